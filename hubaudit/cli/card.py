"""`hubaudit card README.md`: the memory section of a model card, kept up to date, and its claims held against the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.options import access_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.card.document import Card
    from hubaudit.cli.gate import Gate
    from hubaudit.cli.settings import Settings
    from hubaudit.errors import HubauditError
    from hubaudit.types import Finding, Report, RepoSnapshot

DRIFT = 11
_CARD = "README.md"
_MAX_BYTES = 10_000_000
_SEVERITIES = {"error": "error", "warning": "warning", "info": "notice"}


@click.command("card")
@click.argument("paths", nargs=-1, metavar="[CARD]...")
@click.option(
    "--repo",
    metavar="REPO",
    help="The model that the card is about. Default: as marker, header, folder or git remote say.",
)
@click.option("--check", is_flag=True, help="Exit with 11 and a diff where the section is stale, or a claim is wrong.")
@click.option("--write", is_flag=True, help="Write the section, between markers; nothing else of the file changes.")
@click.option(
    "--gpu", "gpu_names", multiple=True, metavar="NAME", help="Show these accelerators instead of common ones."
)
@click.option("--training", is_flag=True, help="Add rows on training: full, LoRA, QLoRA.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Take no notice of claims that this rule is about.")
@click.option("--format", "output_format", type=click.Choice(["human", "github"]), default="human", show_default=True)
@access_options
def command(
    paths: tuple[str, ...],
    repo: str | None,
    check: bool,
    write: bool,
    gpu_names: tuple[str, ...],
    training: bool,
    ignore: tuple[str, ...],
    output_format: str,
    **access: Any,
) -> int:
    """Check or write the section on memory in model cards, and hold what a card claims against its model.

    CARD is a file, a folder with a README.md, or a glob; several are taken one by one, each with its own model. Claims on parameters, context,
    dtype and memory are read from tables, "Key: value" lines and plain sentences, and shown with their line.
    """
    from hubaudit.cli.settings import gate_of, settings
    from hubaudit.errors import HubauditError

    own = settings()
    cards = list(_cards(paths or own.card_files or (_CARD,)))
    if repo is not None and len(cards) != 1:
        raise click.UsageError(f"--repo names one model, and there are {len(cards)} cards")
    if check and write:
        raise click.UsageError("--check or --write, not both")
    job = _Job(repo=repo, gpu_names=gpu_names, training=training, settings=own, gate=gate_of((), ignore), access=access)
    ends = []
    for path in cards:
        try:
            ends.append(_one(path, job, check=check, write=write, output_format=output_format))
        except HubauditError as error:
            ends.append(_failed(error))
    return next((code for code in ends if code not in (0, DRIFT)), max(ends, default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What the command line and the project's settings ask for, for every card."""

    repo: str | None
    gpu_names: tuple[str, ...]
    training: bool
    settings: Settings
    gate: Gate
    access: dict[str, Any]


def _cards(patterns: tuple[str, ...]) -> Iterator[Path]:
    """The files that are meant, each once. A shell without globs leaves them to us."""
    from hubaudit.errors import NotFoundError

    seen: dict[Path, None] = {}
    for pattern in patterns:
        try:
            files = _files_of(pattern)
        except (OSError, ValueError):  # too long for a name, or a null byte in it
            files = []
        if not files:
            raise NotFoundError(f"no model card: {pattern}", hint="name a file, a folder with a README.md, or a glob")
        seen |= dict.fromkeys(files)
    yield from seen


def _files_of(pattern: str) -> list[Path]:
    from glob import glob

    found = [Path(pattern)] if Path(pattern).exists() else [Path(one) for one in sorted(glob(pattern, recursive=True))]
    return [one for one in (one / _CARD if one.is_dir() else one for one in found) if one.is_file()]


def _one(path: Path, job: _Job, *, check: bool, write: bool, output_format: str) -> int:
    """One card from reading to exit code."""
    from hubaudit.card.document import diff, parse_card, with_section
    from hubaudit.errors import UsageError

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"`{path}` is larger than a card: more than {_MAX_BYTES:,} bytes")
    old = parse_card(content, str(path))
    section, found = _audited(path, old, job)
    new = with_section(old, section, str(path))
    wrong = [finding for finding in found if finding.severity != "info"]
    is_stale = new.to_bytes() != old.to_bytes()
    for finding in found:
        click.echo(_line(finding, path, output_format))
    if write and is_stale:
        try:
            path.write_bytes(new.to_bytes())
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
    if check and is_stale:
        click.echo(diff(old, new, path.as_posix()), nl=False)
    click.echo(_state(path, old, is_stale=is_stale, write=write, wrong=len(wrong)), err=True)
    return DRIFT if check and (is_stale or wrong) else 0


def _audited(path: Path, card: Card, job: _Job) -> tuple[str, list[Finding]]:
    """The section as it should be, and the findings on the card's own claims."""
    from hubaudit.auditing import audit_snapshot, prepare
    from hubaudit.card.section import section_of
    from hubaudit.card.target import target_of
    from hubaudit.fit.catalogue import hardware_named
    from hubaudit.hub import fetch
    from hubaudit.hub.card_header import card_header
    from hubaudit.types import Workload

    target = target_of(path, repo=job.repo, marker=card.attributes, header=card_header(card.text))
    snapshot = replace(fetch(target.name, **job.access), card=card.text)
    attributes = _attributes(card, job, target.name if target.said_by in ("argument", "marker") else None)
    prepare()
    gpus = [
        hardware_named(name.replace("_", " ")) for name in attributes.get("gpus", "").split(",") if name
    ] or _common()
    report = job.gate.applied(audit_snapshot(snapshot, Workload(), tuple(gpus)))
    training = list(_training(snapshot)) if attributes.get("training") == "yes" else []
    found = [finding for finding in report.findings if finding.rule.startswith("card-")]
    return section_of(report, training, attributes=attributes), found


def _attributes(card: Card, job: _Job, repo: str | None) -> dict[str, str]:
    """How the section is made: as the command line says, else as it was made before, else as the project's settings say."""
    import re

    made: dict[str, str] = {}
    if repo is not None and re.fullmatch(r"[\w.-]+/[\w.-]+", repo) and not Path(repo).exists():
        made["repo"] = repo
    names = job.gpu_names or tuple(filter(None, card.attributes.get("gpus", "").split(","))) or job.settings.card_gpus
    if names:
        made["gpus"] = ",".join(name.replace(" ", "_") for name in names)
    if (
        job.training
        or card.attributes.get("training") == "yes"
        or (not card.has_section and job.settings.card_training)
    ):
        made["training"] = "yes"
    return made


def _common() -> list[Any]:
    from hubaudit.card.section import COMMON_GPUS
    from hubaudit.fit.catalogue import hardware_named

    return [hardware_named(name) for name in COMMON_GPUS]


def _training(snapshot: RepoSnapshot) -> Iterator[tuple[str, Report]]:
    """Three ways to train that people ask about, one sequence at a time with checkpointing; what cannot be is left out."""
    from hubaudit.auditing import audit_snapshot
    from hubaudit.errors import HubauditError
    from hubaudit.types import Workload

    common = Workload(mode="train", gradient_checkpointing="full")
    for name, asked in (
        ("full, default optimizer", common),
        ("LoRA, rank 16", replace(common, lora=16)),
        ("QLoRA (nf4), rank 16", replace(common, lora=16, quant="nf4")),
    ):
        try:
            yield name, audit_snapshot(snapshot, asked)
        except HubauditError:
            continue


def _line(finding: Finding, path: Path, output_format: str) -> str:
    from hubaudit.report.github import command as workflow_command
    from hubaudit.report.phrases import clean

    if output_format == "github":
        place = {"file": path.as_posix(), **({} if finding.line is None else {"line": str(finding.line)})}
        return workflow_command(
            _SEVERITIES[finding.severity], {**place, "title": f"hubaudit: {finding.rule}"}, finding.message
        )
    return clean(f"{path.as_posix()}:{finding.line or 1}: {finding.severity}: {finding.message} [{finding.rule}]")


def _state(path: Path, card: Card, *, is_stale: bool, write: bool, wrong: int) -> str:
    from hubaudit.report.phrases import clean

    section = (
        "has no memory section"
        if not card.has_section
        else "has a stale memory section"
        if is_stale
        else "is up to date"
    )
    if write and is_stale:
        section = "written"
    told = f"; {wrong} claim{'s' if wrong > 1 else ''} that the audit contradicts" if wrong else ""
    return f"{clean(path.as_posix())}: {section}{told}"


def _failed(error: HubauditError) -> int:
    from hubaudit.cli.failures import say_failure

    say_failure(error)
    return error.exit_code
