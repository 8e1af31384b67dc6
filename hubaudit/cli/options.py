"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")


def hardware_options(command: F) -> F:
    """What the estimate is judged against, and whether the exit code says how that ended."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                "gpus",
                multiple=True,
                metavar="NAME[xN]|auto",
                help="Does it fit this accelerator, or this machine's own? May be repeated; `hubaudit gpus` lists the names.",
            ),
            click.option(
                "--memory",
                "memories",
                multiple=True,
                metavar="SIZE",
                help="Does it fit a device with so much, as 24GiB?",
            ),
            click.option(
                "--fail-on",
                type=click.Choice(["fit"]),
                help="fit: exit with 10 where it does not fit on every one of --gpu and --memory, or that cannot be known.",
            ),
        )
    ):
        command = option(command)
    return command


def engine_options(command: F) -> F:
    """Which engine runs the model, and what it keeps between tokens. What an engine does not have is refused when it is known."""
    for option in reversed(
        (
            click.option(
                "--runtime",
                type=click.Choice(["transformers", "vllm", "llama.cpp"]),
                default="transformers",
                show_default=True,
                help="The engine that runs it: each keeps, rounds and pads in its own way.",
            ),
            click.option(
                "--cache",
                metavar="CACHE",
                help="transformers: dynamic, static, offloaded, offloaded_static, quantized; vllm: paged, paged_full (no hybrid manager); "
                "llama.cpp: swa, swa_full, expanded (all heads of latent attention). Default: the first.",
            ),
            click.option(
                "--max-cache-len", type=click.IntRange(1), help="Tokens that a static cache is sized for, where more."
            ),
            click.option(
                "--kv-dtype",
                metavar="DTYPE",
                help="auto (as the engine decides), bf16, fp16, fp32; int8, int4, int2 and fp8 in transformers' quantized cache; fp8, "
                "fp8_e5m2 and nvfp4 in vLLM; q8_0, q4_0, q5_1 and more in llama.cpp.",
            ),
            click.option(
                "--draft-tokens",
                type=click.IntRange(0),
                default=0,
                help="Tokens that speculative decoding drafts at once; vLLM and llama.cpp keep a state for each.",
            ),
        )
    ):
        command = option(command)
    return command


def access_options(command: F) -> F:
    """How the Hub, or the cache, is read."""
    for option in reversed(
        (
            click.option("--revision", metavar="REV", help="Branch, tag or commit of a Hub repository."),
            click.option("--token", metavar="TOKEN", help="Hub token. Better: `hf auth login`, or HF_TOKEN."),
            click.option(
                "--cache-dir",
                type=click.Path(path_type=Path, file_okay=False),
                help="Where facts are kept by commit. Default: in HF_ASSETS_CACHE.",
            ),
            click.option("--offline", is_flag=True, help="Ask the Hub nothing (as HF_HUB_OFFLINE=1)."),
            click.option(
                "--file",
                metavar="PATH",
                help="Audit these weights of the repository (a quantization, a variant, a part), not those that loaders would choose.",
            ),
        )
    ):
        command = option(command)
    return command
