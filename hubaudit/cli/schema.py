"""`hubaudit schema`: what --format json promises, as JSON Schema."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of one report of --format json, or one line of --format jsonl."""
    import json

    from hubaudit.report.schema import schema

    click.echo(json.dumps(schema(), indent=2))
