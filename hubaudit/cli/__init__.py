"""The command line: click only, until a command runs."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import click

from hubaudit._version import __version__

INTERRUPTED = 130
#: Commands, the module that defines each, and the line that help shows, so that help imports nothing but click.
_COMMANDS = {
    "audit": ("hubaudit.cli.audit", "Audit models (the default: `hubaudit REPO` means `hubaudit audit REPO`)."),
    "batch": ("hubaudit.cli.batch", "Audit many models, resumable: a list, a table, folders, or a query of the Hub."),
    "compare": ("hubaudit.cli.compare", "Set models side by side, or one model at two revisions with what changed."),
    "place": ("hubaudit.cli.place", 'Show where device_map="auto" puts the layers: devices, host memory, disk.'),
    "verify": ("hubaudit.cli.verify", "Load a model and measure its memory, beside the estimate and --exact."),
    "explain": ("hubaudit.cli.explain", "Draw a model's layers and what each kind keeps between tokens."),
    "gpus": ("hubaudit.cli.gpus", "List the accelerators that --gpu knows, and what a process can use of each."),
    "rules": ("hubaudit.cli.rules", "List what an audit looks for in a repository, or show a rule's help page."),
    "card": ("hubaudit.cli.card", "Check or write the memory section of model cards, and check their claims."),
    "badge": ("hubaudit.cli.badge", "Draw a badge: parameters, memory, or whether it fits."),
    "bundle": ("hubaudit.cli.bundle", "Save all that an audit reads in one small file."),
    "schema": ("hubaudit.cli.schema", "Print the JSON Schema of --format json."),
    "action": ("hubaudit.cli.action", "Run as a step of GitHub Actions, with inputs from the environment."),
}

_EPILOG = """\b
Examples:
  hubaudit Qwen/Qwen2-0.5B-Instruct --mode infer
  hubaudit meta-llama/Llama-3.1-8B --batch-size 8 --prompt-tokens 8192 --explain
  hubaudit meta-llama/Llama-3.1-8B --gpu 4090 --gpu rtx3070
  hubaudit ./my-model other/model@v1.0 --format json
  hubaudit bundle Qwen/Qwen2-0.5B-Instruct -o qwen2.json.gz

`hubaudit audit --help` lists the options of an audit.
Exit codes: 0 ok, 1 internal, 2 usage, 3 not found or no access, 4 network, 5 cannot be audited, 10 does not fit
(with --fail-on fit), 11 a model card is stale, 12 findings (with --fail-on warning or error).
"""


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is run, and takes a first word that is no command for a model."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(_COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"-h", "--help", "--version"}
        if args and args[0] not in _COMMANDS and args[0] not in own:
            args = ["audit", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    options_metavar="",
    subcommand_metavar="REPO... | COMMAND",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """What a Hugging Face model is, and what memory it needs.

    REPO is a Hub id (org/name, org/name@revision), a huggingface.co URL, a local folder or .safetensors file, or a saved bundle.
    Only config.json and the headers of the weights are read, never the weights.
    """


def main() -> None:
    """Run, and end every failure as one line, a hint and the documented exit code."""
    if sys.stdout is None:  # closed by who started us: what is written there shall fail, and not be lost
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    # Headers of 100,000 tensors are a million objects and no cycles: looking for some is a seventh of the time that such an audit takes.
    gc.set_threshold(2_000_000, 20, 50)
    code = _flushed(_run())
    if code == INTERRUPTED:  # requests under way would hold up the exit until they time out
        os._exit(code)
    gc.freeze()  # a last collection would walk all modules to free memory that ends with the process
    sys.exit(code)


def _flushed(code: int) -> int:
    """Write out what is left, which may fail as any writing: the interpreter would do so at its end, and make the exit code its own."""
    try:
        if not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        from hubaudit.cli.failures import drop, report_failure

        drop(sys.stdout)
        code = code or report_failure(error)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # nobody can be told: the exit code says it
        from hubaudit.cli.failures import drop

        drop(sys.stderr)
    return code


def _called() -> str:
    """The program's name as the user knows it, on which the variable of shell completion depends: ``hf-audit`` is the extension of ``hf``."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    return name if name == "hf-audit" else "hubaudit"


def _run() -> int:
    from hubaudit.cli.failures import report_failure

    try:
        code = cli.main(prog_name=_called(), standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the last line of defence: what is no failure of ours is raised again there
        return report_failure(error)
    return code if isinstance(code, int) else 0
