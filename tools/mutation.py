"""Mutation testing by sample: single changes of the code, each tried against the tests of its module. Do the tests notice?

    python tools/mutation.py [--rooms formats estimate] [--sample 60] [--seed 1] [--minutes 10] [--kept FILE]

A mutant is drawn by drawing a module (as often as it has lines), a kind of change (each as likely), one of cosmic-ray's operators of that kind and one of
its places, again until there is such a place, all with the seed. The
tests are those that import the module or are named after it (those of its room in ``MAPPED`` where there are none), without the slowest and without oracles. The
change is made in a copy of the tree. What survives is printed as a diff, for a person to look at: it lacks a test, or means the same.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Tests of a whole room, by the start of the module's path.
MAPPED = {
    "estimate/training": ("tests/estimate/training",),
    "estimate/split": ("tests/estimate/split",),
    "estimate/runtimes": ("tests/estimate/runtimes",),
    "estimate/": ("tests/estimate/test_infer.py", "tests/estimate/test_generation.py", "tests/test_fixtures.py"),
    "formats/": ("tests/formats",),
}
#: They say little more than the others, and take most of the time.
SLOW = "not very_large and not more_never and not more_sharding and not every_growing_cache"
#: Annotations are strings here, and what only types see cannot fail.
SKIPPED_LINE = re.compile(r"^\s*(from|import|class|@|def|#|\"\"\"|_?[A-Z_]+: TypeAlias|\w+: [^=]*\|)|->|TYPE_CHECKING")
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


def tests_of(module: str) -> list[str]:
    """The test files for a module, those named after it first."""
    inside = module.removeprefix("hubaudit/")
    name = inside.removesuffix(".py").replace("/", ".")
    importing = re.compile(rf"hubaudit\.{re.escape(name)}\b")
    own = sorted(
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.stem == f"test_{Path(module).stem}" or importing.search(path.read_text(encoding="utf-8"))
    )
    mapped = next(files for start, files in MAPPED.items() if inside.startswith(start))
    chosen = [str(path.relative_to(ROOT)) for path in own if not path.stem.endswith("_oracle")]
    return chosen or list(mapped)


def tried(mutant: Mutant, tree: Path) -> tuple[str, str]:
    """``killed``, ``timeout`` or ``survived``, and the change as a diff. ``tree`` is a copy that is put right again."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    module, operator, occurrence = mutant
    path = tree / module
    before = path.read_text(encoding="utf-8")
    changed = mutate_code(before.encode(), get_operator(operator)(), occurrence)
    assert changed is not None
    diff = "".join(difflib.unified_diff(before.splitlines(True), changed.splitlines(True), module, operator, n=1))
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
        "-m",
        "not oracle",
        "-k",
        SLOW,
    ]
    path.write_text(changed, encoding="utf-8")
    try:
        environment = os.environ | {
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ended = subprocess.run(
            [*words, *tests_of(module)], cwd=tree, env=environment, capture_output=True, timeout=240, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout", diff
    finally:
        path.write_text(before, encoding="utf-8")
    return ("survived" if ended.returncode == 0 else "killed"), diff


def main() -> int:
    """Draw, try until the time is over, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=["formats", "estimate"])
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kept", type=Path, help="keep results here, and go on behind those that are there")
    asked = parser.parse_args()
    done = (
        [json.loads(line) for line in asked.kept.read_text().splitlines()] if asked.kept and asked.kept.exists() else []
    )
    until = time.monotonic() + asked.minutes * 60
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        ignored = shutil.ignore_patterns(
            ".git", ".tox", "__pycache__", ".venv*", ".mypy_cache", ".ruff_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, tree, ignore=ignored)
        for mutant in drawn(asked.rooms, asked.seed, asked.sample)[len(done) :]:
            if time.monotonic() > until:
                break
            result, diff = tried(mutant, tree)
            done.append([result, mutant[0], diff])
            print(f"{result}\n{diff if result == 'survived' else ''}", end="", flush=True)
            if asked.kept:
                with asked.kept.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    counts = Counter(result for result, *_ in done)
    noticed = counts["killed"] + counts["timeout"]
    print(
        f"{len(done)} of {asked.sample} mutants of seed {asked.seed}: {dict(counts)}; noticed {noticed / max(1, len(done)):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
