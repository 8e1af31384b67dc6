"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")


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
