"""Which tests run which lines of formats/ and estimate/, and how long each takes: a pytest plugin under coverage.py, for `tools/mutation.py`.

python -m coverage run --source hubaudit.formats,hubaudit.estimate --data-file lines.coverage -m pytest -p tools.line_tests -n 0 -m "not oracle" tests/…
python -m tools.line_tests lines.coverage seconds.json lines.json
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_SECONDS: dict[str, float] = {}


def _context(name: str) -> None:
    import coverage

    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(name)


def few_examples() -> None:
    """Hypothesis tries 25 cases of each test, always the same, instead of 100: here a test's time counts, and a mutant that dies must die again."""
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "lines", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("lines")


def pytest_configure() -> None:
    """After conftest.py, which has a profile of its own, and before any test is loaded, because a test takes the profile that there is."""
    few_examples()


def pytest_runtest_logstart(nodeid: str) -> None:
    """From here on, lines belong to this test."""
    _context(nodeid)
    _SECONDS[nodeid] = time.process_time()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """From here on, to none."""
    _SECONDS[nodeid] = time.process_time() - _SECONDS[nodeid]
    _context("")


def pytest_sessionfinish() -> None:
    """Keep the processor's seconds of each test in the file that ``LINE_TESTS_SECONDS`` names."""
    Path(os.environ.get("LINE_TESTS_SECONDS", "seconds.json")).write_text(json.dumps(_SECONDS))


def lines(data_file: str, seconds: dict[str, float]) -> dict[str, Any]:
    """The tests with their seconds, and for each module and line the places of its tests in that list, the cheapest first."""
    import coverage

    data = coverage.CoverageData(data_file)
    data.read()
    tests = sorted(seconds, key=lambda name: seconds[name])
    places = {name: at for at, name in enumerate(tests)}
    modules = {}
    for path in data.measured_files():
        found = data.contexts_by_lineno(path)
        inside = path[path.rindex("hubaudit/") :]
        modules[inside] = {
            line: sorted(places[name] for name in names if name in places) for line, names in found.items()
        }
    return {"tests": tests, "seconds": [round(seconds[name], 3) for name in tests], "modules": modules}


if __name__ == "__main__":
    data_file, seconds_file, made = sys.argv[1:]
    Path(made).write_text(json.dumps(lines(data_file, json.loads(Path(seconds_file).read_text()))))
