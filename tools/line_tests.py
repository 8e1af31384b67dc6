"""Which tests run which lines of formats/ and estimate/, and how long each takes: a pytest plugin that runs coverage.py, for `tools/mutation.py`.

LINE_TESTS=FOLDER python -m pytest -p tools.line_tests -n 2 -m "not oracle" tests/…
python -m tools.line_tests FOLDER lines.json

Each process of pytest-xdist measures what it runs itself, and leaves two files in the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOMS = ["hubaudit.formats", "hubaudit.estimate"]


class LinesOfTests:
    """What a process that runs tests does: keep each test's lines apart, and its seconds of the processor."""

    def __init__(self, kept: Path) -> None:
        from coverage import Coverage

        self._kept = kept
        self._coverage = Coverage(data_file=str(kept.with_suffix(".lines")), source=ROOMS, config_file=False)
        # a process may be given no test of a room, which is nothing to warn of: pytest takes warnings for errors
        self._coverage.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
        self._coverage.start()
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on, lines belong to this test."""
        self._coverage.switch_context(nodeid)
        self._seconds[nodeid] = time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """From here on, to none."""
        self._seconds[nodeid] = time.process_time() - self._seconds[nodeid]
        self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        """Keep both."""
        self._coverage.stop()
        self._coverage.save()
        self._kept.with_suffix(".seconds").write_text(json.dumps(self._seconds))


def few_examples() -> None:
    """Hypothesis tries 10 cases of each test, always the same, instead of 100: here a test's time counts, and a mutant that dies must die again."""
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "lines", max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("lines")


def pytest_configure(config: pytest.Config) -> None:
    """After conftest.py, which has a profile of its own, and before any test is loaded, because a test takes the profile that there is."""
    few_examples()
    folder = Path(os.environ["LINE_TESTS"])
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None:  # the first process: nothing of an earlier run may stay
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    if worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(LinesOfTests(folder / (worker or "alone")))


def lines(folder: Path) -> dict[str, Any]:
    """The tests with their seconds, and for each module and line the places of its tests in that list, the cheapest first."""
    from coverage import CoverageData

    seconds: dict[str, float] = {}
    found: dict[str, dict[int, set[str]]] = {}
    for kept in sorted(folder.glob("*.lines")):
        seconds |= json.loads(kept.with_suffix(".seconds").read_text())
        data = CoverageData(str(kept))
        data.read()
        for path in data.measured_files():
            there = found.setdefault(path[path.rindex("hubaudit/") :], {})
            for line, names in data.contexts_by_lineno(path).items():
                there.setdefault(line, set()).update(names)
    tests = sorted(seconds, key=lambda name: seconds[name])
    places = {name: at for at, name in enumerate(tests)}
    modules = {
        module: {line: sorted(places[name] for name in names if name in places) for line, names in there.items()}
        for module, there in found.items()
    }
    return {"tests": tests, "seconds": [round(seconds[name], 3) for name in tests], "modules": modules}


if __name__ == "__main__":
    kept, made = map(Path, sys.argv[1:])
    made.write_text(json.dumps(lines(kept)))
