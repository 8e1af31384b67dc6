"""What is imported when: help costs click alone, the package nothing, and the rooms that compute need no library.

Who may import whom is import-linter's to check (``[tool.importlinter]`` in pyproject.toml); here it is what really gets loaded, in a
process of its own.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hubaudit

PACKAGE = Path(hubaudit.__file__).parent
PURE = ("types", "units", "errors", "data", "formats", "facts", "estimate", "fit", "findings", "report", "card")
"""The rooms that import the standard library and each other only, but for the module that draws for people."""
ENDING = ("hubaudit.cli", "hubaudit.cli.failures", "hubaudit.errors")
"""How every run ends, help too."""
DRAWN = ("hubaudit.report.human",)


def modules_of(rooms: tuple[str, ...]) -> list[str]:
    """Every module of these rooms by name."""
    files = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0].removesuffix(".py") in rooms]
    names = (".".join(("hubaudit", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files)
    return sorted(name.removesuffix(".__init__") for name in names)


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded once ``code`` has run in a new interpreter, those of a bare one left out."""
    lines = (
        f"import sys; bare = set(sys.modules)\n{code}\nimport json; print(json.dumps(sorted(set(sys.modules) - bare)))"
    )
    run = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True, timeout=180)
    found: list[str] = json.loads(run.stdout.splitlines()[-1])
    return set(found)


def strangers(modules: set[str]) -> set[str]:
    """Of these, the top names that are neither the standard library's nor ours."""
    return {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"hubaudit"}


def test_help_imports_click_only() -> None:
    """``hubaudit --help`` answers at once: no rich, no huggingface_hub, no tables, none of the rooms."""
    code = """
import contextlib
sys.argv = ["hubaudit", "--help"]
from hubaudit.cli import main
with contextlib.suppress(SystemExit):
    main()
"""
    loaded = loaded_by(code)
    assert strangers(loaded) == {"click"}
    assert {name for name in loaded if name.startswith("hubaudit")} <= {"hubaudit", "hubaudit._version", *ENDING}
    assert not loaded & {"tomllib", "http.client", "ssl", "concurrent.futures", "asyncio", "email.message"}


@pytest.mark.parametrize("words", [["--version"], ["audit", "--nope"], ["--nope"]])
def test_nothing_is_loaded_for_a_mistake(words: list[str]) -> None:
    """A version and a usage error need neither the network's library nor the table of models."""
    code = f"""
import contextlib
sys.argv = ["hubaudit", *{words!r}]
from hubaudit.cli import main
with contextlib.suppress(SystemExit):
    main()
"""
    assert strangers(loaded_by(code)) == {"click"}


def test_the_package_costs_nothing() -> None:
    """``import hubaudit`` loads its version only; each name is fetched when it is first used."""
    assert {name for name in loaded_by("import hubaudit") if name.startswith("hubaudit")} == {
        "hubaudit",
        "hubaudit._version",
    }
    assert strangers(loaded_by("import hubaudit")) == set()


def test_the_rooms_that_compute_need_no_library() -> None:
    """All their modules together load the standard library only, and nothing of the hub room."""
    modules = [name for name in modules_of(PURE) if name not in DRAWN]
    assert len(modules) > 50
    loaded = loaded_by(f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
    assert strangers(loaded) == set()
    assert set(modules) <= loaded
    assert not {name for name in loaded if name.startswith(("hubaudit.hub", "hubaudit.cli"))}


@pytest.mark.parametrize("name", [name for name in modules_of(PURE) if name not in DRAWN])
def test_nor_do_they_load_one_later(name: str) -> None:
    """No function of theirs imports a library when it is called."""
    file = PACKAGE.joinpath(*name.split(".")[1:])
    source = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert strangers(imported) == set()


def test_an_audit_loads_nothing_heavy() -> None:
    """The base install's libraries are enough, and what draws or parses words is left for the command line."""
    bundle = PACKAGE.parent / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz"
    if not bundle.exists():
        pytest.skip("needs the fixtures")
    loaded = strangers(loaded_by(f"from hubaudit import audit\naudit({str(bundle)!r})"))
    assert not loaded & {"torch", "transformers", "numpy", "safetensors", "pandas", "rich", "click"}
