"""`hubaudit bundle REPO -o FILE`: all that an audit reads, in one small file."""

from __future__ import annotations

from pathlib import Path

import click

from hubaudit.cli.options import access_options


@click.command("bundle")
@click.argument("repo")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.json or FILE.json.gz."
)
@access_options
def command(
    repo: str,
    output: Path,
    revision: str | None,
    token: str | None,
    cache_dir: Path | None,
    offline: bool,
    file: str | None,
) -> None:
    """Save the commit, configs and weight headers of REPO in one file, to be audited offline or sent with a bug report.

    A bundle holds no weights, no token and no paths of this machine.
    """
    from hubaudit.errors import UsageError
    from hubaudit.hub import fetch
    from hubaudit.hub.bundle import write_bundle
    from hubaudit.hub.sharing import shareable
    from hubaudit.units import format_bytes

    if not output.name.endswith((".json", ".json.gz")):
        raise UsageError(f"a bundle's name ends in .json or .json.gz, not `{output.name}`")
    snapshot = shareable(fetch(repo, revision=revision, token=token, cache_dir=cache_dir, offline=offline, file=file))
    try:
        write_bundle(snapshot, output)
    except OSError as error:
        raise UsageError(f"cannot write `{output}`: {error.strerror}") from None
    click.echo(
        f"{output}: {format_bytes(output.stat().st_size)}, {len(snapshot.weights)} weight files' headers", err=True
    )
