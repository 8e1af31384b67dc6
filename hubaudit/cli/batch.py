"""`hubaudit batch LIST -o DIR`: many models, resumable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.audit import command as audit_command
from hubaudit.cli.gate import DOES_NOT_FIT, gate_options
from hubaudit.cli.options import access_options, hardware_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.batch.journal import Rows
    from hubaudit.batch.plan import Access, Item, Plan
    from hubaudit.cli.gate import Gate
    from hubaudit.hub.listing import Query
    from hubaudit.types import Workload

_FORMATS = ("csv", "markdown", "html", "parquet")
_USUAL = ("csv", "markdown", "html")
_SORTS = ("created_at", "downloads", "last_modified", "likes", "trending_score")
_SPAN = re.compile(r"([0-9]+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: States of rows, the worst first, and the exit code of a run that ends with one.
_CODES = (("bug", 1), ("later", 4), ("access", 3), ("never", 5))
_SAID = {
    "bug": "met a bug",
    "later": "failed for now (run it again)",
    "access": "need access",
    "never": "cannot be audited",
}


class _Span(click.ParamType[float]):
    """A stretch of time as 30m, 12h or 7d."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _SPAN.fullmatch(str(value))
        if found is None:
            self.fail(f"`{value}` is no time: write 30m, 12h or 7d", param, ctx)
        return float(int(found[1]) * _SECONDS[found[2]])


@click.command("batch")
@click.argument("sources", nargs=-1, metavar="[LIST|-|FOLDER|REPO]...")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), help="The run's directory.")
@click.option("--column", metavar="NAME", help="Column of the names in CSV, TSV, Parquet and JSON lines.")
@click.option("--author", metavar="NAME", help="All models of a user or an organization.")
@click.option("--search", metavar="TEXT", help="Models with TEXT in their name.")
@click.option("--filter", "filters", multiple=True, metavar="TAG", help="Models with this tag. May be repeated.")
@click.option("--collection", metavar="SLUG", help="The models of a collection.")
@click.option("--sort", type=click.Choice(_SORTS), help="The order of a listing.")
@click.option("--limit", type=click.IntRange(1), help="The most models of a listing.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="One workload, on top of the options of an audit, as batch_size=8,prompt_tokens=8192. May be repeated.",
)
@hardware_options
@gate_options
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice([*_FORMATS, "none"]),
    help="What to make of the journal at the end. May be repeated. Default: csv, markdown and html.",
)
@click.option(
    "--executor",
    default="threads",
    show_default=True,
    metavar="WHERE",
    help="threads, processes, dask://HOST:PORT or ray://HOST:PORT.",
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="Models under way at once.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the Hub's quota to use. Default: 0.8, which leaves some to others.",
)
@click.option(
    "--max-age", type=_Span(), default="0s", help="Take what was read so lately (30m, 12h, 7d) without asking the Hub."
)
@click.option(
    "--retry",
    type=click.Choice(["later", "access", "all", "none"]),
    default="later",
    show_default=True,
    help="Earlier failures to try again: those that pass by themselves, those of access too, all, or none.",
)
@click.option(
    "--diff",
    nargs=2,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="OLD NEW",
    help="What changed between two runs; nothing is audited.",
)
@click.option("--json", "as_json", is_flag=True, help="With --diff: JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@access_options
def command(
    sources: tuple[str, ...], folder: Path | None, diff: tuple[Path, Path] | None, as_json: bool, **options: Any
) -> int:
    """Audit many models: a list, a stream, a table, folders, or what a query of the Hub lists.

    The run's directory holds journal.jsonl, a line for each model, on the disk before it counts. The same command again goes on where it was
    stopped. Without a list or a query it only writes the formats anew.
    """
    if diff is not None:
        return _compare(*diff, as_json=as_json)
    if folder is None:
        raise click.UsageError("-o DIR is needed: the directory that the run is kept in")
    from hubaudit.cli.settings import gate_of

    # First: a rule that does not exist is said before hours of audits.
    gate = gate_of(options["fail_on"], options["ignore"])
    query = _query(options)
    if sources or not query.is_empty:
        _audit_all(sources, query, folder, options)
    return _finish(folder, options["formats"], gate)


# What a model is asked to do is said as for one audit, and --revision is each name's own.
command.params = [param for param in command.params if param.name != "revision"]
_OWN = {param.name for param in command.params}


def _add_workload_options() -> frozenset[str]:
    from hubaudit.types import Workload

    fields = frozenset(Workload.__slots__)
    shared = [param for param in audit_command.params if param.name in fields and param.name not in _OWN]
    at = next(place for place, param in enumerate(command.params) if param.name == "gpu_names")
    command.params[at:at] = shared
    return frozenset(param.name or "" for param in shared)


_WORKLOAD_OPTIONS = _add_workload_options()


def _query(options: dict[str, Any]) -> Query:
    from hubaudit.hub.listing import Query

    return Query(**{name: options.pop(name) for name in ("author", "search", "filters", "collection", "sort", "limit")})


def _audit_all(sources: tuple[str, ...], query: Query, folder: Path, options: dict[str, Any]) -> None:
    import gc

    from hubaudit.batch.executors import engine_for
    from hubaudit.batch.inputs import can_count, items_of
    from hubaudit.batch.journal import Journal
    from hubaudit.batch.plan import Access
    from hubaudit.batch.runner import Runner
    from hubaudit.cli.batch_progress import Lines, open_progress

    # One audit ends before its cycles matter; thousands of them held 10 kB a model until they were collected (benchmarks/load.py).
    gc.set_threshold(20_000, 10, 10)
    plan = _plan(options)
    access = Access(
        token=options["token"],
        cache_dir=options["cache_dir"],
        offline=options["offline"],
        max_age_seconds=options["max_age"],
    )
    column = options["column"]
    countable = query.is_empty and can_count(sources)
    total = sum(1 for _ in items_of(sources, column)) if countable else query.limit if not sources else None
    with Journal(folder, plan) as journal:
        engine = engine_for(options["executor"], plan, access, share=options["share"], jobs=options["jobs"])
        try:
            with open_progress(engine.budget, total, quiet=options["quiet"]) as watcher:
                if journal.torn_bytes and isinstance(watcher, Lines):
                    watcher.say(f"the journal's last line was cut off; {journal.torn_bytes} bytes removed")
                runner = Runner(
                    submit=engine.submit,
                    journal=journal,
                    watcher=watcher,
                    window=engine.window,
                    admission=engine.admission,
                    again=_again(options["retry"]),
                )
                runner.run(_items(sources, query, column, access))
        finally:
            engine.close()


def _items(sources: tuple[str, ...], query: Query, column: str | None, access: Access) -> Iterator[Item]:
    """The names of the sources, then those that the Hub lists."""
    from hubaudit.batch.inputs import items_of
    from hubaudit.batch.plan import Item
    from hubaudit.hub.listing import list_models

    position = -1
    for item in items_of(sources, column):
        position = item.position
        yield item
    if not query.is_empty:
        for at, listed in enumerate(list_models(query, token=access.token), start=position + 1):
            yield Item(name=listed.repo_id, position=at, commit=listed.commit)


def _plan(options: dict[str, Any]) -> Plan:
    from hubaudit.batch.plan import Plan
    from hubaudit.cli.audit import devices
    from hubaudit.types import Workload

    # An option that may be repeated is an empty tuple where it was not given, which may mean another thing than the field's default.
    base = Workload(**{name: options[name] for name in _WORKLOAD_OPTIONS if options[name] != ()})
    workloads = tuple(dict.fromkeys(_workload(base, text) for text in options["workloads"])) or (base,)
    hardware = devices(options["gpu_names"], options["memories"], must_fit="fit" in options["fail_on"])
    return Plan(workloads=workloads, hardware=hardware, file=options["file"])


def _workload(base: Workload, text: str) -> Workload:
    """``base`` with what ``text`` says; a value is read as the option of that name reads it."""
    from dataclasses import replace

    params = {param.name: param for param in audit_command.params if param.name in _WORKLOAD_OPTIONS}
    changes: dict[str, Any] = {}
    for pair in text.split(","):
        key, is_pair, value = pair.strip().partition("=")
        if not is_pair or key not in params:
            known = ", ".join(sorted(_WORKLOAD_OPTIONS))
            raise click.UsageError(f"--workload {text}: `{pair.strip()}` is not KEY=VALUE with one of {known}")
        read = params[key].type.convert(value, params[key], None)
        changes[key] = (read,) if getattr(params[key], "multiple", False) else read
    return replace(base, **changes)


def _again(retry: str) -> tuple[str, ...]:
    return {"later": ("later",), "access": ("later", "access"), "none": ()}.get(
        retry, ("later", "access", "never", "bug")
    )


def _finish(folder: Path, formats: tuple[str, ...], gate: Gate) -> int:
    """Write the formats, say how it ended, and return the exit code: of the worst kind of failure, else of the gate."""
    from hubaudit.batch.journal import Rows, as_written
    from hubaudit.batch.outputs import write_outputs

    with Rows(folder) as rows, as_written(folder):
        written = write_outputs(folder, rows, [name for name in formats or _USUAL if name != "none"])
        counts = rows.index.counts()
        failures = [f"{counts[state]:,} {_SAID[state]}" for state, _ in _CODES if counts.get(state)]
        models = f"{sum(counts.values()):,} model{'s' if sum(counts.values()) != 1 else ''}"
        said = ", ".join([f"{models}: {counts.get('audited', 0):,} audited", *failures])
        click.echo(f"{said} → {folder}: {', '.join(('journal.jsonl', *written))}", err=True)
        for state, code in _CODES:
            if counts.get(state):
                return code
        return _gated(rows, gate)


def _gated(rows: Rows, gate: Gate) -> int:
    """The gate's exit code over all rows; a workload without an estimate is not known to fit."""
    code = 0
    for row in rows if gate.fail_on else ():
        document = row["document"]
        verdicts = {fit["verdict"] for audit in document["audits"] for fit in audit.get("fit", ())}
        verdicts |= {"unknown" for audit in document["audits"] if "error" in audit}
        found = [(finding["rule"], finding["severity"]) for finding in document["findings"]]
        code = gate.code_of(verdicts, found) or code
        if code == DOES_NOT_FIT:
            break
    return code


def _compare(old: Path, new: Path, *, as_json: bool) -> int:
    from hubaudit.batch.diff import differences, sentence
    from hubaudit.batch.journal import Rows, as_written
    from hubaudit.report.json_text import json_text

    with Rows(old) as before, Rows(new) as after, as_written(old):
        changed = 0
        for difference in differences(before, after):
            changed += 1
            click.echo(json_text(difference) if as_json else sentence(difference))
        total = sum(after.index.counts().values())
    click.echo(f"{changed:,} of {total:,} models changed", err=True)
    return 0
