"""`hubaudit rules [RULE]`: what is looked for in a repository, and each rule's help page."""

from __future__ import annotations

import click

_FORMATS = ("human", "json", "markdown")


@click.command("rules")
@click.argument("names", nargs=-1, metavar="[RULE]...")
@click.option(
    "--format", "output_format", type=click.Choice(_FORMATS), default="human", show_default=True, help="What to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(names: tuple[str, ...], output_format: str, as_json: bool) -> None:
    """List the rules whose findings an audit reports, or show the help pages of those named."""
    from hubaudit.cli.settings import check_rules
    from hubaudit.findings import rules
    from hubaudit.report.rules import to_json, to_list, to_markdown, to_pages

    check_rules(names, "rules")
    chosen = [rule for rule in rules() if not names or rule.id in names]
    if as_json or output_format == "json":
        text = to_json(chosen)
    elif output_format == "markdown":
        text = to_markdown(chosen)
    else:
        text = to_pages(chosen) if names else to_list(chosen)
    click.echo(text, nl=False)
