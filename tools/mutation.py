"""Mutation testing by sample: single changes of the code, each tried against the tests that run that line. Do the tests notice?

    python tools/mutation.py --lines lines.json [--sample 300] [--seed 1] [--minutes 60] --kept FILE     draw, and try; goes on behind what FILE has
    python tools/mutation.py --page                                                                      write what is recorded into docs/testing.md

A mutant is drawn by drawing a module (as often as it has lines), a kind of change (each as likely), one of cosmic-ray's operators of that kind and one of
its places, again until there is such a place, all with the seed. `tools/line_tests.py` makes ``lines.json``, which tests run which line; the cheapest are
tried first. The change is made in a copy of the tree. What survives is for a person to look at: it lacks a test, or means the same.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "fixtures" / "mutation.json"
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- mutation:begin -->", "<!-- mutation:end -->"
#: Annotations are strings here, and what only types see cannot fail.
SKIPPED_LINE = re.compile(r"^\s*(from|import|class|@|def|#|\"\"\"|_?[A-Z_]+: TypeAlias|\w+: [^=]*\|)|->|TYPE_CHECKING")
#: Processor seconds of tests, as `line_tests` took them, that one mutant is worth; the cheapest tests come first.
BUDGET_SECONDS = 12.0
#: Of the processor: a change that makes a loop endless has used them up soon, however busy the machine is. And of the clock, for one that waits.
LONGEST_PROCESSOR_SECONDS = 60
LONGEST_SECONDS = 400
Mutant = tuple[str, str, int]


def drawn(rooms: list[str], seed: int, count: int) -> list[Mutant]:
    """Module, operator and the number of its occurrence, for so many different mutants."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = random.Random(seed)  # noqa: S311 - a sample, not a secret
    modules = [path for room in rooms for path in sorted((ROOT / "hubaudit" / room).rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in modules}
    trees: dict[Path, Any] = {}
    families: dict[str, list[str]] = {}
    for name in sorted(operator_names()):
        if not name.startswith("core/Variable"):  # they are told which variable
            families.setdefault(name.split("_")[0], []).append(name)
    found: dict[Mutant, None] = {}
    while len(found) < count:
        (path,) = source.choices(modules, [texts[one].count("\n") for one in modules])
        operator = source.choice(families[source.choice(list(families))])
        tree = trees[path] = trees.get(path) or parsed(texts[path])
        places = _places(tree, get_operator(operator)())
        if not places:
            continue
        occurrence = source.randrange(places)
        changed = mutate_code(texts[path].encode(), get_operator(operator)(), occurrence)
        if changed is not None and _is_code(path, changed):
            found[str(path.relative_to(ROOT)), operator, occurrence] = None
    return list(found)


def parsed(text: str) -> Any:
    """The syntax tree that cosmic-ray walks."""
    import parso

    return parso.parse(text)


def _places(tree: Any, operator: Any) -> int:
    """At how many places the operator has a change to make."""
    count, nodes = 0, [tree]
    while nodes:
        node = nodes.pop()
        count += len(list(operator.mutation_positions(node)))
        nodes += getattr(node, "children", [])
    return count


def _is_code(path: Path, changed: str) -> bool:
    lines = difflib.ndiff(path.read_text(encoding="utf-8").splitlines(), changed.splitlines())
    return not any(SKIPPED_LINE.search(line[2:]) for line in lines if line.startswith("- "))


# --- which tests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LineTests:
    """What `tools/line_tests.py` wrote."""

    tests: list[str]
    seconds: list[float]
    modules: dict[str, dict[str, list[int]]]

    def of(self, module: str, changed: Iterable[int]) -> list[int]:
        """The tests that run one of the lines, the cheapest first; those of the whole module where a line is run by its import only."""
        known = self.modules.get(module, {})
        found = {test for line in changed for test in known.get(str(line), ())}
        return sorted(found or {test for tests in known.values() for test in tests})

    def within(self, those: list[int], seconds: float) -> list[str]:
        """As many as cost so much, each function's first with a few of its parameters, so that all kinds of tests have their turn."""
        turns = sorted(those, key=_Turn(self.tests))
        chosen: list[str] = []
        spent = 0.0
        for test in turns:
            spent += self.seconds[test]
            if spent > seconds and chosen:
                break
            chosen.append(self.tests[test])
        return chosen


class _Turn:
    """How many tests of the same function came before; of the parameters, which are many, each second is passed over once."""

    def __init__(self, tests: list[str]) -> None:
        self._tests = tests
        self._seen: Counter[str] = Counter()

    def __call__(self, test: int) -> tuple[int, int]:
        function = self._tests[test].partition("[")[0]
        self._seen[function] += 1
        return self._seen[function], test


# --- one mutant ----------------------------------------------------------------------------------------------------------


class Mutants:
    """A pytest plugin that tries each mutant in a fork of a session that has collected all tests, which is most of what one costs.

    The code of the functions that changed is put in place of that of the functions that are there. What runs while a module is loaded (a constant, a
    default) cannot be changed that way: such a mutant is written into a copy of the tree, and its tests run in a session of their own.
    """

    def __init__(self, asked: argparse.Namespace, lines: LineTests) -> None:
        self._asked, self._lines = asked, lines
        self._items: dict[str, Any] = {}

    def pytest_configure(self) -> None:
        """Hypothesis tries as few cases as when the tests' time was taken."""
        from tools.line_tests import few_examples

        few_examples()

    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of the tests themselves."""
        self._items = {item.nodeid: item for item in session.items}
        for (
            module
        ) in self._lines.modules:  # many are imported when they are asked for; what is not there cannot be replaced
            import_module(module.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        kept = self._asked.kept
        done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        until = time.monotonic() + self._asked.minutes * 60
        with kept.open("a") as file:
            mutants = sorted(drawn(self._asked.rooms, self._asked.seed, self._asked.sample), key=_room, reverse=True)
            for mutant in mutants[len(done) :]:
                if time.monotonic() > until:
                    break
                if _room(mutant) == "estimate":
                    _warm()
                done.append(self._tried(mutant))
                print(done[-1]["result"], *mutant, done[-1].get("diff", ""), flush=True)
                file.write(json.dumps(done[-1]) + "\n")
                file.flush()
        print(summary(done))
        return True

    def _tried(self, mutant: Mutant) -> dict[str, Any]:
        """``killed`` with the test that failed, ``timeout`` or ``survived`` with the change as a diff."""
        module, operator, occurrence = mutant
        before, changed = mutated(mutant)
        matched = difflib.SequenceMatcher(None, before.splitlines(), changed.splitlines(), autojunk=False).get_opcodes()
        numbers = [
            line + 1
            for tag, start, end, _, _ in matched
            if tag != "equal"
            for line in range(start, max(end, start + 1))
        ]
        covering = [test for test in self._lines.of(module, numbers) if self._lines.tests[test] in self._items]
        tests = self._lines.within(covering, BUDGET_SECONDS)
        replaced = replacements(before, changed, str(ROOT / module))
        made = {
            "module": module,
            "operator": operator,
            "occurrence": occurrence,
            "line": numbers[0],
            "tests": len(tests),
        }
        if not tests:
            result, by = "survived", ""
        else:
            result, by = self._forked(tests, replaced) if replaced else ran_anew(module, changed, tests)
        made |= {"result": result} | ({"by": by} if by else {})
        if result == "survived":
            rows = difflib.unified_diff(before.splitlines(True), changed.splitlines(True), module, operator, n=1)
            made["diff"] = "".join(rows)
        return made

    def _forked(self, tests: list[str], replaced: dict[Any, Any]) -> tuple[str, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 3
            try:
                os.setpgid(0, 0)
                _limit_processor()
                for function, text in replaced.items():
                    function.__code__ = text
                failed = self._first_failure(tests)
                os.write(writing, failed.encode())
                code = 1 if failed else 0
            finally:
                os._exit(code)
        os.close(writing)
        until = time.monotonic() + LONGEST_SECONDS
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
            time.sleep(0.01)
        with os.fdopen(reading, "rb") as file:
            if not ended[0]:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "timeout", ""
            if os.WIFSIGNALED(ended[1]) and os.WTERMSIG(ended[1]) == signal.SIGXCPU:
                return "timeout", ""
            return ("killed" if ended[1] else "survived"), file.read().decode()

    def _first_failure(self, tests: list[str]) -> str:
        from _pytest.runner import runtestprotocol

        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        for name, following in zip(tests, [*tests[1:], None], strict=True):
            reports = runtestprotocol(
                self._items[name], log=False, nextitem=None if following is None else self._items[following]
            )
            if any(report.failed for report in reports):
                return name
        return ""


def _limit_processor() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_PROCESSOR_SECONDS, resource.RLIM_INFINITY))


def _room(mutant: Mutant) -> str:
    return mutant[0].split("/")[1]


@cache
def _warm() -> None:
    """What hubaudit makes of the fixtures does not pass through estimate/; with it at hand, most tests of that room are much quicker."""
    from fixture_models import facts_of

    for path in sorted((ROOT / "fixtures" / "bundles").glob("*.json.gz")):
        facts_of(path.name.removesuffix(".json.gz"))


def mutated(mutant: Mutant) -> tuple[str, str]:
    """The module's text as it is, and with the change."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    module, operator, occurrence = mutant
    before = (ROOT / module).read_text(encoding="utf-8")
    changed = mutate_code(before.encode(), get_operator(operator)(), occurrence)
    assert changed is not None
    return before, changed


def replacements(before: str, changed: str, path: str) -> dict[Any, CodeType]:
    """The functions that are there, each with its changed code; nothing where anything changed that is in no function, or cannot be put in place."""
    whole, other = _compiled(before, path), _compiled(changed, path)
    old, new = dict(_functions(whole)), dict(_functions(other))
    differing = {name for name, code in new.items() if old.get(name) is None or _shape(code) != _shape(old[name])}
    if any("<" in name for name in differing):  # lambdas of one module are called alike
        return {}
    if not differing or _shape(whole, deep=False) != _shape(other, deep=False):
        return {}
    there = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__.co_filename == path]
    found = {one: new[one.__code__.co_qualname] for one in there if one.__code__.co_qualname in differing}
    is_whole = {one.__code__.co_qualname for one in found} == differing
    return (
        found if is_whole and all(one.__code__.co_freevars == code.co_freevars for one, code in found.items()) else {}
    )


def _compiled(text: str, path: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `is` with a number, which a change may make, is for the tests to notice
        return compile(text, path, "exec")


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The functions of a module and the methods of its classes; what is inside a function belongs to it."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & CO_OPTIMIZED:
                yield inner.co_qualname, inner
            else:
                yield from _functions(inner)


def _shape(code: CodeType, *, deep: bool = True) -> tuple[Any, ...]:
    """What two codes must have in common to do the same. A module's or class's own text, without ``deep``, leaves out its functions'."""
    consts = tuple(
        _shape(one, deep=deep) if isinstance(one, CodeType) and (deep or not one.co_flags & CO_OPTIMIZED) else one
        for one in code.co_consts
        if deep or not isinstance(one, CodeType) or not one.co_flags & CO_OPTIMIZED
    )
    return code.co_code, code.co_names, code.co_varnames, repr(consts)


def ran_anew(module: str, changed: str, tests: list[str]) -> tuple[str, str]:
    """The same in a copy of the tree and a session of its own."""
    functions = list(
        dict.fromkeys(name.partition("[")[0] for name in tests)
    )  # not every parameter can be spelt on a command line
    ignored = shutil.ignore_patterns(".git", ".tox", ".venv*", ".mypy_cache", ".ruff_cache", ".hypothesis")
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        shutil.copytree(ROOT, tree, ignore=ignored)
        (tree / module).write_text(changed, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::SyntaxWarning",
            "--tb=no",
            "-rfE",
            *functions,
        ]
        try:
            ended = subprocess.run(
                words,
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONGEST_SECONDS,
                check=False,
                preexec_fn=_limit_processor,
            )
        except subprocess.TimeoutExpired:
            return "timeout", ""
    if ended.returncode == -signal.SIGXCPU:
        return "timeout", ""
    if ended.returncode == 0:
        return "survived", ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    return "killed", found.group(1) if found else "the tests cannot be loaded"


def summary(done: list[dict[str, Any]]) -> str:
    """How many of each result."""
    counts = Counter(one["result"] for one in done)
    noticed = counts["killed"] + counts["timeout"]
    return f"{len(done)} mutants: {dict(counts)}; noticed {noticed / max(1, len(done)):.0%}"


# --- the page ------------------------------------------------------------------------------------------------------------


def page_with_table(page: str, record: dict[str, Any]) -> str:
    """The page with what is recorded between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(record)}\n{END}{rest.partition(END)[2]}"


def table(record: dict[str, Any]) -> str:
    """How many were noticed, by sample and room, before and after survivors were looked at, and what each of the survivors was."""
    rows = [
        "| sample | room | changes | noticed at once | of those that change anything | noticed today |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for sample in record["samples"]:
        for room in ("formats", "estimate"):
            those = [one for one in sample["mutants"] if _room((one["module"], "", 0)) == room]
            rows += [f"| {sample['seed']} | `{room}` | {_scores(those)} |"] if those else []
    every = [one for sample in record["samples"] for one in sample["mutants"]]
    rows.append(f"| all | both | {_scores(every)} |")
    lasting = [one for one in every if one["result"] == "survived"]
    kinds = (
        ("had no test, and have one now", [one for one in lasting if not one.get("judged")]),
        (
            "are noticed by a test that had not been asked",
            [one for one in lasting if one.get("judged") == "noticed"],
        ),
        ("change nothing", [one for one in lasting if one.get("judged") == "same"]),
        ("are left", [one for one in lasting if one.get("judged") == "left"]),
    )
    text = [*rows, "", f"Of the {len(lasting)} that were not noticed at once:", ""]
    for title, those in kinds:
        if those:
            text += [
                f'<details markdown="1"><summary>{len(those)} {title}</summary>',
                "",
                *map(_told, those),
                "",
                "</details>",
                "",
            ]
    left = [one for one in lasting if one.get("judged") == "left"]
    return "\n".join([*text, f"Left without an answer: {len(left)}."])


def _scores(those: list[dict[str, Any]]) -> str:
    first = sum(one["result"] != "survived" for one in those)
    now = first + sum("test" in one for one in those if one["result"] == "survived")
    real = len(those) - sum(one.get("judged") == "same" for one in those)
    return f"{len(those)} | {first} ({first / len(those):.0%}) | {first} of {real} ({first / real:.0%}) | {now} of {real} ({now / real:.0%})"


def _told(one: dict[str, Any]) -> str:
    """Where it was, why it lasted, and who notices it."""
    where = f"`{one['module'].removeprefix('hubaudit/')}:{one['line']}`"
    return f"- {where}: {one['why']}" + (f" `{one['test'].partition('::')[2]}`" if "test" in one else "")


def main() -> int:
    """Draw, try until the time is over, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=["formats", "estimate"])
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--lines", type=Path, help="what tools/line_tests.py wrote")
    parser.add_argument("--kept", type=Path, help="keep results here, and go on behind those that are there")
    parser.add_argument("--page", action="store_true", help="write the record into the page")
    asked = parser.parse_args()
    if asked.page:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
        return 0
    return sampled(asked)


def sampled(asked: argparse.Namespace) -> int:
    """Try the mutants that are not in the kept file yet."""
    import pytest

    lines = LineTests(**json.loads(asked.lines.read_text()))
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # what is changed lies here, not where a wheel was installed
    files = sorted({name.partition("::")[0] for name in lines.tests})
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-m", "not oracle", *files]
    return int(pytest.main(words, plugins=[Mutants(asked, lines)]))


if __name__ == "__main__":
    sys.exit(main())
