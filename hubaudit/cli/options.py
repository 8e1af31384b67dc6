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
        )
    ):
        command = option(command)
    return command
