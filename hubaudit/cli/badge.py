"""`hubaudit badge REPO`: a small picture for a README."""

from __future__ import annotations

from typing import Any

import click

from hubaudit.cli.destination import opened
from hubaudit.cli.options import access_options

_KINDS = ("memory", "parameters", "fit")


@click.command("badge")
@click.argument("repo")
@click.option("--kind", type=click.Choice(_KINDS), help="What it says. Default: fit with --gpu, else memory.")
@click.option(
    "--mode", type=click.Choice(["infer", "kv", "train"]), default="infer", show_default=True, help="What to estimate."
)
@click.option("--dtype", metavar="DTYPE", help="Load weights as fp32, bf16 or fp16. Default: as transformers would.")
@click.option("--quant", type=click.Choice(["int8", "nf4", "fp4"]), help="Quantize with bitsandbytes while loading.")
@click.option("--gpu", "gpu_name", metavar="NAME", help="The accelerator that it fits, or not.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="Write to FILE instead of stdout.",
)
@access_options
def command(
    repo: str,
    kind: str | None,
    mode: Any,
    dtype: str | None,
    quant: str | None,
    gpu_name: str | None,
    output: str,
    **access: Any,
) -> None:
    """Draw REPO's badge as SVG: what memory it needs, how many parameters it has, or whether it fits --gpu.

    The picture is a file of your own: nothing is fetched to show it.
    """
    from hubaudit.auditing import audit
    from hubaudit.errors import UsageError
    from hubaudit.fit.catalogue import hardware_named
    from hubaudit.report.badge import badge
    from hubaudit.types import Workload

    kind = kind or ("fit" if gpu_name else "memory")
    if kind == "fit" and gpu_name is None:
        raise UsageError("a badge on fitting needs --gpu NAME", hint="`hubaudit gpus` lists the names")
    hardware = () if gpu_name is None else (hardware_named(gpu_name),)
    report = audit(repo, workload=Workload(mode=mode, dtype=dtype, quant=quant), hardware=hardware, **access)
    with opened(output) as stream:
        stream.write(badge(report, kind))
