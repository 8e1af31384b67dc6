"""What is imported while the Hub is waited for."""

from __future__ import annotations

import subprocess
import sys

from hubaudit.cli.audit import _FORMATS
from hubaudit.cli.getting_ready import PRINTERS, STEPS


def test_the_steps_are_those_of_an_audit() -> None:
    """Each is a module that the audit imports anyway, and none of them needs the Hub's client."""
    program = f"""
import sys
from importlib import import_module
import hubaudit.auditing
assert not set({STEPS!r}).difference(sys.modules), set({STEPS!r}).difference(sys.modules)
assert "huggingface_hub" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_format_has_its_printer() -> None:
    """No format of the command line is forgotten."""
    assert set(PRINTERS) == set(_FORMATS)
