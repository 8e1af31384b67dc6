"""Functions that only some models call, as on CUDA: a context around a run, beside :func:`hubaudit.exact.emulation.as_on_cuda`."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from hubaudit.exact import asking, norm

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replaced() -> Iterator[None]:
    """While this lasts, they are replaced."""
    with ExitStack() as stack:
        for owner, name, replacement in (*norm.replacements(), *asking.replacements()):
            stack.enter_context(patch.object(owner, name, replacement))
        yield
