"""`hubaudit explain REPO`: the layers of one model, and what each kind keeps between tokens."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.options import access_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.report.layers import LayerMap, Length
    from hubaudit.types import ModelFacts

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "bright_cyan", "bright_yellow")
_WIDTH = 80
_LENGTHS = (1024, 8192, 32768, 131072)


@click.command("explain")
@click.argument("repo")
@click.option("--dtype", metavar="DTYPE", help="Compute in fp32, bf16 or fp16. Default: as transformers would.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["human", "json"]),
    default="human",
    show_default=True,
    help="What to print.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@access_options
def command(repo: str, dtype: str | None, output_format: str, as_json: bool, **access: Any) -> None:
    """Draw the layers of REPO by kind, one cell a layer, and say what each kind keeps per token and per sequence.

    Below stands what one sequence keeps at several lengths under transformers, vLLM and llama.cpp.
    """
    from hubaudit.report.layers import to_json, to_text

    found = _explained(repo, dtype, access)
    if as_json or output_format == "json":
        click.echo(to_json(found), nl=False)
        return
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stdout.isatty() else _WIDTH
    click.echo(to_text(found, width, _painter(found)), nl=False, color=False if is_plain else None)


def _explained(repo: str, dtype: str | None, access: dict[str, Any]) -> LayerMap:
    from hubaudit.errors import CannotAuditError
    from hubaudit.estimate.setting import settle
    from hubaudit.facts.model import understand
    from hubaudit.hub import fetch
    from hubaudit.report.layers import layer_map
    from hubaudit.types import Subject, Workload

    snapshot = fetch(repo, **access)
    facts = understand(snapshot)
    if facts.layer_plan is None:
        raise CannotAuditError(
            f"what the layers of `{snapshot.repo_id}` keep is not known: {facts.layer_plan_reason}",
            hint="`hubaudit audit` tells the rest",
        )
    subject = Subject(
        repo_id=snapshot.repo_id, revision=snapshot.revision, commit=snapshot.commit, source=snapshot.source
    )
    lengths = list(_lengths(facts, dtype))
    return layer_map(subject, facts, settle(facts, Workload(dtype=dtype)).dtype, lengths)


def _lengths(facts: ModelFacts, dtype: str | None) -> Iterator[Length]:
    """One sequence's cache at round lengths and at the model's longest, by engine; nothing where no layer keeps anything."""
    from hubaudit.estimate.infer import estimate
    from hubaudit.estimate.kv_dtype import RUNTIMES
    from hubaudit.report.layers import Length
    from hubaudit.types import Workload

    if not any(layer.tensors for layer in facts.layer_plan or ()):
        return
    longest = facts.max_positions.value
    wanted = [tokens for tokens in _LENGTHS if longest is None or tokens < longest]
    for tokens in (*wanted, *((longest,) if longest else ())):
        sizes: dict[str, int | None] = {}
        for runtime in RUNTIMES:
            asked = Workload(mode="kv", runtime=runtime, prompt_tokens=tokens, new_tokens=0, dtype=dtype)
            made = estimate(facts, asked)
            sizes[runtime] = None if made.omitted else made.total_bytes
        yield Length(tokens=tokens, bytes_by_runtime=sizes)


def _painter(found: LayerMap) -> Callable[[str, str], str]:
    """Each kind in its own colour; layers that read another's cache in that one's."""
    symbols = dict.fromkeys(row.symbol.upper() for row in found.rows)
    colours = {symbol: _COLOURS[at % len(_COLOURS)] for at, symbol in enumerate(symbols)}
    return lambda symbol, text: click.style(text, fg=colours[symbol.upper()], bold=symbol.isupper())
