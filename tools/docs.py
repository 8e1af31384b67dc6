"""Pages of the documentation that are made of the code: the rules, the command line, the JSON contract, the tables and their sources.

mkdocs calls `on_files` (mkdocs.yml, `hooks`), so the pages are as new as the code and lie nowhere on disk. `python tools/docs.py PAGE` prints one.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "hubaudit" / "data"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
_SOURCE_KEYS = ("source", "sources", "where", "read_from")
_MADE = "<!-- made by tools/docs.py -->\n\n"


def pages() -> dict[str, Callable[[], str]]:
    """Each page's path and what makes it."""
    return {
        "reference/rules.md": rules_page,
        "reference/cli.md": cli_page,
        "reference/json.md": json_page,
        "reference/tables.md": tables_page,
    }


def rules_page() -> str:
    """All rules with their help."""
    from hubaudit.findings import rules
    from hubaudit.report.rules import to_markdown

    head = (
        "# Rules\n\nWhat an audit looks for. `--ignore RULE` drops a rule's findings, `--fail-on` makes them count.\n\n"
    )
    return _MADE + head + to_markdown(rules())


def cli_page() -> str:
    """The help of every command, as it is printed."""
    import click

    from hubaudit.cli import _COMMANDS, cli

    text = "# Command line\n\n`hubaudit REPO` is `hubaudit audit REPO`.\n"
    for name in ("", *_COMMANDS):
        command: click.Command = import_module(_COMMANDS[name][0]).command if name else cli
        context = click.Context(
            command, info_name=f"hubaudit {name}".strip(), terminal_width=100, max_content_width=100
        )
        with context:
            text += f"\n## {f'hubaudit {name}'.strip()}\n\n```text\n{command.get_help(context)}\n```\n"
    return _MADE + text


def json_page() -> str:
    """The schema of the wire contract, and a table of what is in it."""
    from hubaudit.report.schema import schema

    made = schema()
    lines = [
        "# JSON contract",
        "",
        "`hubaudit schema` prints it. Names are added in later versions, and never removed or given another meaning.",
        "",
    ]
    lines += [
        "| name | type |",
        "|---|---|",
        *_rows("", made["properties"]),
        "",
        "`facts` and each of its `components`:",
        "",
    ]
    lines += ["| name | type |", "|---|---|", *_rows("facts.", made["$defs"]["facts"]["properties"])]
    lines += ["", "```json", json.dumps(made, indent=1), "```", ""]
    return _MADE + "\n".join(lines)


def _rows(prefix: str, properties: dict[str, Any]) -> Iterator[str]:
    for name, part in properties.items():
        yield f"| `{prefix}{name}` | {_type(part)} |"
        items = part.get("items", part)
        if "properties" in items:
            yield from _rows(f"{prefix}{name}{'[]' if 'items' in part else ''}.", items["properties"])


def _type(part: dict[str, Any]) -> str:
    if "anyOf" in part:
        return " or ".join(_type(one) for one in part["anyOf"])
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    return f"`{part['const']}`" if "const" in part else str(part.get("type", "object"))


def tables_page() -> str:
    """Each table of facts: what its head says of it, how many rows it has, and the sources that they name."""
    text = (
        "# Tables and their sources\n\nWhat hubaudit knows beside what it reads. Each file lies in `hubaudit/data/`.\n"
    )
    for path in sorted((*DATA.glob("*.toml"), *DATA.glob("*.json"))):
        content = path.read_text(encoding="utf-8")
        head = (
            " ".join(line.lstrip("# ") for line in content.splitlines() if line.startswith("#"))[:600]
            if path.suffix == ".toml"
            else ""
        )
        from hubaudit.data import table

        found = sorted(set(_sources(table(path.name))))
        text += f"\n## {path.name}\n\n{_plain(head)}\n\n{len(found)} sources.\n\n" + "".join(
            f"- {_plain(one)}\n" for one in found
        )
    return _MADE + text


def _sources(value: Any) -> Iterator[str]:
    """All sources that a table names, wherever they stand in it."""
    if isinstance(value, list):
        for one in value:
            yield from _sources(one)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _SOURCE_KEYS and isinstance(inner, str):
                yield inner
            else:
                yield from _sources(inner)


def _plain(text: str) -> str:
    """Text as text: no markup, no links but addresses."""
    return re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", " ".join(text.split()))


def on_files(files: Any, config: Any) -> Any:
    """mkdocs: add the pages that are made."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found]

    for path, make in pages().items():
        files.append(File.generated(config, path, content=make()))
    return files


if __name__ == "__main__":
    print(pages()[sys.argv[1]]())
