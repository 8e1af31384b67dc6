"""The documentation: pages that are made of the code, links that lead somewhere, and commands that exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest
from fixture_models import ROOT

from hubaudit.cli import _COMMANDS, cli
from hubaudit.findings import rules

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CHINESE = ROOT / "README.zh-CN.md"
TEXTS = [*PAGES, CHINESE, ROOT / "README.md"]


def tool(name: str) -> ModuleType:
    """A module of tools/."""
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCS = tool("docs")


def commands() -> list[str]:
    """All commands of ours in blocks and between backticks."""
    found: set[str] = set()
    for path in (*PAGES, CHINESE):
        text = path.read_text(encoding="utf-8")
        found |= {
            line
            for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
            for line in block.splitlines()
            if line.startswith("hubaudit ")
        }
        found |= set(re.findall(r"`(hubaudit [^`\n]+)`", text))
    return sorted(one for one in found if "docs.py" not in one)


@pytest.mark.parametrize("command", commands())
def test_every_command_parses(command: str) -> None:
    """With its options and choices."""
    words = shlex.split(command, comments=True)[1:]
    context = cli.make_context("hubaudit", list(words))
    _, subcommand, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
    assert isinstance(subcommand, click.Command)
    subcommand.make_context("x", list(rest), parent=context)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """To a file, or a page that is made."""
    made = {(ROOT / "docs" / page).resolve() for page in DOCS.pages()}
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in link:
            target = (path.parent / link).resolve()
            assert target.exists() or target in made, link


def test_the_made_pages() -> None:
    """Every rule, every command, every name of the contract, every table with its sources; made twice they are the same."""
    made = {path: make() for path, make in DOCS.pages().items()}
    assert made == {path: make() for path, make in DOCS.pages().items()}
    assert all(f"\n## {rule.id}\n" in made["reference/rules.md"] for rule in rules())
    assert all(f"\n## hubaudit {name}\n" in made["reference/cli.md"] for name in _COMMANDS)
    assert "| `facts.parameters` |" in made["reference/json.md"]
    tables = [path.name for path in DOCS.DATA.iterdir() if path.suffix in (".toml", ".json")]
    assert all(f"\n## {name}\n" in made["reference/tables.md"] for name in tables)


def test_the_action_is_told_whole() -> None:
    """Every input and output of action.yml stands in the how-to."""
    import yaml

    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    assert not [
        name for name in (*action["inputs"], *action["outputs"]) if f"`{name}`" not in page and name != "github-token"
    ]


def test_the_chinese_page_is_todays() -> None:
    """Its outputs are what the commands print, and its exit codes those of the English page."""
    text = CHINESE.read_text(encoding="utf-8")
    assert tool("readme").readme(text) == text
    english = (ROOT / "README.md").read_text(encoding="utf-8")
    codes = [re.findall(r"^\| (\d+) \|", page, re.MULTILINE) for page in (text, english)]
    assert codes[0] == codes[1]
    assert re.search(r"<!-- main command -->\n```sh\n.*?```", text, re.DOTALL)[0] in english  # type: ignore[index]
