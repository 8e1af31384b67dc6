"""`hubaudit action`: what the GitHub Action runs. Inputs come by environment, results go where GitHub looks for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.gate import FAIL_ON, Gate

if TYPE_CHECKING:
    from hubaudit.errors import HubauditError
    from hubaudit.types import Hardware, Report

    Results = list[Report | tuple[str, HubauditError]]

_PREFIX = "HUBAUDIT_ACTION_"
_MODES = ("infer", "kv", "train")


@click.command("action")
def command() -> int:
    """Run as a step of GitHub Actions: audit the models and check the cards that HUBAUDIT_ACTION_* name.

    Writes a report (JSON lines), SARIF where asked for, the step's outputs and summary, and annotations on standard output. See action.yml.
    """
    fail_on = _words("FAIL_ON")
    unknown = set(fail_on) - {*FAIL_ON, "card"}
    if unknown:
        raise click.UsageError(f"fail-on is any of {', '.join(FAIL_ON)}, card; not {', '.join(sorted(unknown))}")
    from hubaudit.cli.settings import gate_of

    gate = gate_of(tuple(word for word in fail_on if word != "card"), _words("IGNORE"))
    results = [result if isinstance(result, tuple) else gate.applied(result) for result in _audited()]
    _deliver(results)
    ends = [_exit_code(results, gate), _cards(must_pass="card" in fail_on)]
    return next((code for code in ends if code), 0)


def _input(name: str) -> str:
    return os.environ.get(f"{_PREFIX}{name}", "").strip()


def _lines(name: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in _input(name).splitlines() if line.strip())


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in _input(name).replace("\n", ",").split(",") if word.strip())


def _audited() -> Results:
    models = _lines("MODELS")
    if not models:
        return []
    mode = _input("MODE") or "infer"
    if mode not in _MODES:
        raise click.UsageError(f"mode is one of {', '.join(_MODES)}, not `{mode}`")
    from hubaudit.cli.audit import read_and_audit

    access = {"revision": None, "token": _input("TOKEN") or None, "cache_dir": None, "offline": False, "file": None}
    return read_and_audit(models, {"mode": mode}, _hardware(), access, "github")


def _hardware() -> tuple[Hardware, ...]:
    from hubaudit.fit.catalogue import hardware_named, hardware_of_size

    return tuple(_device(name, hardware_named, hardware_of_size) for name in _lines("GPU"))


def _device(name: str, named: Any, of_size: Any) -> Hardware:
    """A size where it is one, else a name."""
    from hubaudit.units import parse_bytes

    try:
        parse_bytes(name)
    except ValueError:
        return named(name)  # type: ignore[no-any-return]
    return of_size(name)  # type: ignore[no-any-return]


def _deliver(results: Results) -> None:
    """The report, SARIF, the summary, the annotations, and the outputs, which are single lines of our own making."""
    import json

    from hubaudit.report.github import to_annotations, to_summary
    from hubaudit.report.sarif import to_sarif
    from hubaudit.report.wire import error_to_wire, to_wire

    folder = Path(os.environ.get("RUNNER_TEMP") or ".")
    report = folder / "hubaudit-report.jsonl"
    rows = [error_to_wire(*result) if isinstance(result, tuple) else to_wire(result) for result in results]
    _write(report, "".join(json.dumps(row) + "\n" for row in rows))
    summary = to_summary(results)
    _write(folder / "hubaudit-summary.md", summary)
    _append("GITHUB_STEP_SUMMARY", summary)
    sarif = _input("SARIF")
    if sarif and "\n" in sarif:
        raise click.UsageError("sarif is the path of one file")
    if sarif:
        _write(Path(sarif), to_sarif(results))
    click.echo(to_annotations(results), nl=False)
    reports = [result for result in results if not isinstance(result, tuple)]
    outputs = {
        "report": str(report),
        "fits": _fits(reports),
        "total-bytes": str(max((one.estimate.total_bytes for one in reports), default="")),
        "findings": str(sum(len(one.findings) for one in reports)),
        "sarif": sarif,
    }
    _append("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in outputs.items()))


def _fits(reports: list[Report]) -> str:
    verdicts = {fit.verdict for report in reports for fit in report.fit}
    if not verdicts:
        return ""
    return "false" if "no" in verdicts else "unknown" if "unknown" in verdicts else "true"


def _exit_code(results: Results, gate: Gate) -> int:
    failures = [result[1] for result in results if isinstance(result, tuple)]
    return failures[0].exit_code if failures else gate.exit_code(results)


def _cards(*, must_pass: bool) -> int:
    """The cards, as `hubaudit card` does it; what it finds fails the job only where that was asked for, what it cannot do always."""
    cards = _lines("CARD")
    if not cards:
        return 0
    from hubaudit.cli.card import DRIFT
    from hubaudit.cli.card import command as card_command

    mode = "--write" if _input("WRITE").lower() == "true" else "--check"
    words = [mode, "--format", "github", *(word for rule in _words("IGNORE") for word in ("--ignore", rule))]
    token = _input("TOKEN")
    words += ["--token", token] if token else []
    code: int = card_command.main([*words, "--", *cards], prog_name="hubaudit card", standalone_mode=False) or 0
    return 0 if code == DRIFT and not must_pass else code


def _write(path: Path, text: str) -> None:
    from hubaudit.errors import UsageError

    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def _append(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    if path:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
