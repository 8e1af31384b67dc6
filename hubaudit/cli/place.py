"""`hubaudit place REPO --gpu NAMExN`: where device_map="auto" puts the modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.audit import devices
from hubaudit.cli.options import access_options

if TYPE_CHECKING:
    from hubaudit.types import Hardware

_FORMATS = ("human", "json", "markdown")


@click.command("place")
@click.argument("repo")
@click.option(
    "--gpu",
    "gpu_names",
    multiple=True,
    metavar="NAME[xN]|auto",
    help="An accelerator, or this machine's. May be repeated.",
)
@click.option(
    "--memory", "memories", multiple=True, metavar="SIZE", help="A device with so much, as 24GiB. May be repeated."
)
@click.option("--cpu-memory", metavar="SIZE", help="Free memory of the host, as 64GiB. Default: as much as it takes.")
@click.option("--dtype", metavar="DTYPE", help="Load weights as fp32, bf16 or fp16. Default: as transformers would.")
@click.option(
    "--format", "output_format", type=click.Choice(_FORMATS), default="human", show_default=True, help="What to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@access_options
def command(
    repo: str,
    gpu_names: tuple[str, ...],
    memories: tuple[str, ...],
    cpu_memory: str | None,
    dtype: str | None,
    output_format: str,
    as_json: bool,
    **access: Any,
) -> None:
    """Show where from_pretrained(device_map="auto") puts each layer of REPO: accelerators, host memory, disk.

    Needs no GPU and no weights: transformers' own code places a model without memory. Needs pip install 'hubaudit[exact]'.
    """
    from hubaudit.errors import UsageError
    from hubaudit.estimate.setting import definite
    from hubaudit.exact.device_map import place
    from hubaudit.facts.repository import understand
    from hubaudit.hub import fetch
    from hubaudit.report import placement
    from hubaudit.types import Workload
    from hubaudit.units import parse_bytes

    hardware = devices(gpu_names, memories, must_fit=False)
    if not hardware:
        raise UsageError("on which devices?", hint="--gpu 4090x2, --memory 24GiB, or --gpu auto")
    try:
        cpu_bytes = None if cpu_memory is None else parse_bytes(cpu_memory)
    except ValueError as error:
        raise UsageError(str(error)) from None
    snapshot = fetch(repo, **access)
    facts = understand(snapshot)
    if "config.json" not in snapshot.configs:
        raise UsageError("the repository has no config.json to build a model from")
    made = place(
        snapshot.configs["config.json"],
        architecture=facts.architecture,
        dtype=definite(facts, Workload(dtype=dtype)).dtype or "bf16",
        gpu_bytes=_free(hardware),
        cpu_bytes=cpu_bytes,
    )
    writers = {"human": placement.to_text, "json": placement.to_json, "markdown": placement.to_markdown}
    click.echo(writers["json" if as_json else output_format](made, snapshot.repo_id), nl=False)


def _free(hardware: tuple[Hardware, ...]) -> list[int]:
    """What torch reports as free on each device once the process has its context there."""
    from hubaudit.estimate.overhead import cuda_context

    context = cuda_context().bytes
    return [max(one.usable_bytes - context, 0) for one in hardware for _ in range(one.count)]
