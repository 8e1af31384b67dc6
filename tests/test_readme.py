"""The README shows what the program prints today."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

if TYPE_CHECKING:
    from types import ModuleType

README = (ROOT / "README.md").read_text(encoding="utf-8")


def tool() -> ModuleType:
    """tools/readme.py."""
    spec = importlib.util.spec_from_file_location("readme_tool", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_outputs_are_todays() -> None:
    """Regenerating the README changes nothing (python tools/readme.py writes it)."""
    assert tool().readme(README) == README
    assert "494,032,768 parameters" in README


def test_the_picture_is_todays() -> None:
    """Regenerating docs/report.svg changes nothing."""
    assert tool().picture() == (ROOT / "docs" / "report.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(hubaudit [^`]+)`", README))))
def test_every_command_in_it_parses(command: str) -> None:
    """Options and subcommands that the README names exist."""
    import click

    from hubaudit.cli import cli

    words = shlex.split(command)[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hubaudit", *words])
        context = cli.make_context("hubaudit", words)
        name, subcommand, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
        assert isinstance(subcommand, click.Command)
        subcommand.make_context(name, list(rest), parent=context)
