"""Mutation testing by sample: single changes of the code, each tried against the tests that run that line. Do the tests notice?

    python tools/mutation.py --lines lines.json [--sample 300] [--seed 1] [--minutes 60] --kept FILE     draw, and try; goes on behind what FILE has
    python tools/mutation.py --survivors --lines lines.json --kept FILE                                  try those again that survived in FILE
    python tools/mutation.py --page                                                                      write what is recorded into docs/testing.md

A mutant is drawn by drawing a module (as often as it has lines), a kind of change (each as likely), one of cosmic-ray's operators of that kind and one of
its places, again until there is such a place, all with the seed. `tools/line_tests.py` makes ``lines.json``, which tests run which line; the cheapest are
tried first. The change is made in a copy of the tree. What survives is for a person to look at: it lacks a test, or means the same.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "fixtures" / "mutation.json"
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- mutation:begin -->", "<!-- mutation:end -->"
#: Annotations are strings here, and what only types see cannot fail.
SKIPPED_LINE = re.compile(r"^\s*(from|import|class|@|def|#|\"\"\"|_?[A-Z_]+: TypeAlias|\w+: [^=]*\|)|->|TYPE_CHECKING")
#: Processor seconds of tests, as `line_tests` took them, that one mutant is worth: first the cheap tests, then nearly all.
BUDGETS = (2.0, 12.0)
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


def tried(mutant: Mutant, tree: Path, lines: LineTests, more: list[str]) -> dict[str, Any]:
    """What became of one mutant: ``killed`` (and by which tests' run), ``timeout`` or ``survived``. ``tree`` is a copy that is put right again.

    ``more`` are files of tests to try where all the rest saw nothing.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    module, operator, occurrence = mutant
    path = tree / module
    before, times = path.read_text(encoding="utf-8"), path.stat()
    changed = mutate_code(before.encode(), get_operator(operator)(), occurrence)
    assert changed is not None
    matched = difflib.SequenceMatcher(None, before.splitlines(), changed.splitlines(), autojunk=False).get_opcodes()
    numbers = [
        line + 1 for tag, start, end, _, _ in matched if tag != "equal" for line in range(start, max(end, start + 1))
    ]
    made = {"module": module, "operator": operator, "occurrence": occurrence, "line": numbers[0]}
    covering = lines.of(module, numbers)
    stages = [lines.within(covering, seconds) for seconds in BUDGETS]
    path.write_text(changed, encoding="utf-8")
    result, by, ran = "survived", "", 0
    try:
        for tests in (stages[0], [test for test in stages[1] if test not in set(stages[0])], more):
            if tests and result == "survived":
                (result, by), ran = run_tests(tests, tree), ran + len(tests)
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    made |= {"result": result, "tests": ran, "by": by}
    if result == "survived":
        made["diff"] = "".join(
            difflib.unified_diff(before.splitlines(True), changed.splitlines(True), module, operator, n=1)
        )
    return made


class _FirstFailure:
    """Writes which test failed, or file could not be loaded, into a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def _told(self, report: Any) -> None:
        if report.failed:
            os.write(self._descriptor, f"{report.nodeid}\n".encode())

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._told(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._told(report)


def run_tests(tests: list[str], tree: Path) -> tuple[str, str]:
    """The result, and the first test that failed. In a child that has loaded pytest and all that is not ours already, half of what a mutant costs."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 3
        try:
            code = _in_child(tests, tree, writing)
        finally:
            os._exit(code)
    os.close(writing)
    until = time.monotonic() + LONGEST_SECONDS
    result = "timeout"
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            result = "killed" if os.waitstatus_to_exitcode(status) else "survived"
            break
        time.sleep(0.02)
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb") as file:
        failed = (file.read() or b"").decode().splitlines()
    assert failed or result != "killed", "pytest itself failed"
    return result, failed[0] if failed else ""


def _in_child(tests: list[str], tree: Path, writing: int) -> int:
    os.setpgid(0, 0)
    os.chdir(tree)
    sys.path[:0] = [str(tree), str(tree / "tests")]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    import pytest

    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not oracle"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what was loaded before is not rewritten
    return int(pytest.main([*words, *tests], plugins=[_FirstFailure(writing)]))


@contextlib.contextmanager
def copied_tree() -> Any:
    """A copy of the tree, to be changed."""
    ignored = shutil.ignore_patterns(
        ".git", ".tox", "__pycache__", ".venv*", ".mypy_cache", ".ruff_cache", ".hypothesis"
    )
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(ROOT, Path(place) / "tree", ignore=ignored)
        yield Path(place) / "tree"


# --- the page ------------------------------------------------------------------------------------------------------------


def page_with_table(page: str, record: dict[str, Any]) -> str:
    """The page with what is recorded between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(record)}\n{END}{rest.partition(END)[2]}"


def table(record: dict[str, Any]) -> str:
    """How many were noticed by room, before and after survivors were looked at, and what each of them was."""
    rows = [
        "| room | mutants | noticed at first | of those that change anything | noticed now |",
        "|---|---:|---:|---:|---:|",
    ]
    mutants = record["mutants"]
    for room in ("formats", "estimate", ""):
        those = [one for one in mutants if one["module"].startswith(f"hubaudit/{room}")]
        same = [one for one in those if one.get("judged") == "same"]
        first = [one for one in those if one["result"] != "survived"]
        now = [one for one in those if one["result"] != "survived" or "test" in one]
        real = len(those) - len(same)
        rows.append(
            f"| {f'`{room}`' if room else 'both'} | {len(those)} | {len(first)} ({len(first) / len(those):.0%}) "
            f"| {real}: {len(first) / real:.0%} | {len(now)} of {real} ({len(now) / real:.0%}) |"
        )
    lasting = [one for one in mutants if one["result"] == "survived"]
    kinds = (
        ("Tests that were missing, and are there now", [one for one in lasting if "test" in one]),
        ("Changes that change nothing", [one for one in lasting if one.get("judged") == "same"]),
        ("Left as they are", [one for one in lasting if one.get("judged") == "left"]),
    )
    said = f"{len(mutants)} mutants, seed {record['seed']}, {record['date']}, Python {record['python']}, cosmic-ray {record['engine']}:"
    text = [said, "", *rows]
    for title, those in kinds:
        text += ["", f"{title} ({len(those)}):", "", *(_told(one) for one in those)]
    return "\n".join(text)


def _told(one: dict[str, Any]) -> str:
    removed, added = (
        next((line[1:].strip() for line in one["diff"].splitlines()[2:] if line.startswith(sign)), "") for sign in "-+"
    )
    where = f"`{one['module'].removeprefix('hubaudit/')}:{one['line']}`"
    return f"- {where}: `{removed[:110]}` became `{added[:110]}`. {one['why']}" + (
        f" (`{one['test']}`)" if "test" in one else ""
    )


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
    import hypothesis  # noqa: F401 - so that each child has it
    import pytest  # noqa: F401

    lines = LineTests(**json.loads(asked.lines.read_text()))
    done = [json.loads(line) for line in asked.kept.read_text().splitlines()] if asked.kept.exists() else []
    until = time.monotonic() + asked.minutes * 60
    with copied_tree() as tree, asked.kept.open("a") as file:
        for mutant in drawn(asked.rooms, asked.seed, asked.sample)[len(done) :]:
            if time.monotonic() > until:
                break
            done.append(tried(mutant, tree, lines, []))
            print(done[-1]["result"], *mutant, done[-1].get("diff", ""), flush=True)
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    counts = Counter(one["result"] for one in done)
    noticed = counts["killed"] + counts["timeout"]
    print(
        f"{len(done)} of {asked.sample} mutants of seed {asked.seed}: {dict(counts)}; noticed {noticed / max(1, len(done)):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
