"""The program itself: what it must never call, whatever it reads. Read off its syntax, so that a call that no test reaches counts too."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "hubaudit"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Modules that run, or build objects of, what they read.
_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "xml",
    "xmlrpc",
    "ctypes",
    "code",
    "pty",
}
#: Calls by name that run a text, and methods that run a program or unpickle.
_NAMES = {"eval", "exec", "__import__", "execfile", "compile"}
_METHODS = {
    "system",
    "popen",
    "unsafe_load",
    "full_load",
    "load_module",
    "exec_module",
    "spawnv",
    "execv",
    "extractall",
    "extract",
}

#: The exceptions, each with what makes it safe.
EXCUSED = {
    (
        "estimate/expression.py",
        "eval",
    ): "formulas of ours, after every node of their syntax was found in a short list of arithmetic",
    ("estimate/expression.py", "compile"): "the same",
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _calls(path: Path) -> list[tuple[str, ast.Call]]:
    found = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            found.append((node.func.id, node))
        is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
        if is_method and ast.unparse(node.func) != "platform.system":  # which tells the system's name
            found.append((node.func.attr, node))
    return found


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_nothing_runs_what_it_reads() -> None:
    """No eval, exec, os.system or unpacking of archives, but for what is excused, and no excuse that nobody needs."""
    found = {(path.relative_to(PACKAGE).as_posix(), name) for path in FILES for name, _ in _calls(path)}
    assert found == set(EXCUSED)


def test_nothing_unpickles() -> None:
    """Nothing imports what can, but for the one module that writes torch's own format of memory snapshots, and does not read it."""
    found = {(path.relative_to(PACKAGE).as_posix(), name) for path in FILES for name in _imports(path) & _MODULES}
    assert found - {("exact/snapshot.py", "pickle")} == set()
    text = (PACKAGE / "exact" / "snapshot.py").read_text(encoding="utf-8")
    assert "pickle.dump" in text
    assert "pickle.load" not in text
    assert "Unpickler" not in text


def _loads(path: Path) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("load", "load_all")
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("yaml", "torch", "numpy", "np", "pickle")
    ]


def test_every_load_is_a_safe_one() -> None:
    """yaml.load with a safe loader, torch.load never: weights are not read at all."""
    found = [(path.relative_to(PACKAGE).as_posix(), ast.unparse(call)) for path in FILES for call in _loads(path)]
    assert all("yaml.load" in text and "SafeLoader" in text for _, text in found), found


def test_programs_are_started_without_a_shell() -> None:
    """A name from a repository can be no command: there is no shell to read it."""
    for path in FILES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call):
                assert not any(word.arg == "shell" for word in node.keywords), path
                assert not any(
                    word.arg == "trust_remote_code" and getattr(word.value, "value", None) is not False
                    for word in node.keywords
                ), path


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "(1).__class__",
        "a.b",
        "[x for x in y]",
        "lambda: 1",
        "f'{a}'",
        "a ** b",
        "2 if a else 3",
        "open(a)",
        "min(a, key=b)",
    ],
)
def test_formulas_are_arithmetic(formula: str) -> None:
    """What the excuse above rests on: nothing but + - * //, min, max and ceil_div is ever evaluated."""
    from hubaudit.estimate.expression import evaluate

    with pytest.raises((ValueError, SyntaxError)):
        evaluate(formula, {"a": 1, "b": 2, "y": 3})
