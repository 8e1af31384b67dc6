"""`hubaudit gpus [SEARCH]`: the catalogue of accelerators, and whose word each size is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hubaudit.fit.catalogue import Gpu

_FORMATS = ("human", "json", "csv")


@click.command("gpus")
@click.argument("search", nargs=-1)
@click.option(
    "--format", "output_format", type=click.Choice(_FORMATS), default="human", show_default=True, help="What to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(search: tuple[str, ...], output_format: str, as_json: bool) -> None:
    """List the accelerators that --gpu knows, all of them or those that hold every word of SEARCH.

    "usable" is what a process can have of the memory: as a process on such a card was told (process), as nvidia-smi counts, with one to
    three percent that the driver keeps (driver), by a rule that measured machines follow (rule), or as large as the box says
    (marketing), which no process gets whole. --format json names the source of every figure.
    """
    from hubaudit.errors import NotFoundError
    from hubaudit.fit.catalogue import search as found
    from hubaudit.report.gpus import to_csv, to_json, to_table

    gpus: tuple[Gpu, ...] = found(" ".join(search))
    if not gpus:
        raise NotFoundError(f"no accelerator matches `{' '.join(search)}`", hint="`hubaudit gpus` lists all")
    writer = {"json": to_json, "csv": to_csv, "human": to_table}["json" if as_json else output_format]
    click.echo(writer(gpus), nl=False)
