"""Ctrl-C between two rows, not within one: a row that is being kept is kept whole."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back until the function that is yielded is called, which then raises it. A second Ctrl-C does not wait.

    Where Python does not turn the signal into an exception (it is ignored, or another program's handler has it), and in threads that get no
    signals, nothing is held.

    Raises:
        KeyboardInterrupt: from the function, or by a second Ctrl-C anywhere.
    """
    is_asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        is_asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def heed() -> None:
        if is_asked:
            raise KeyboardInterrupt

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield heed
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield heed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    heed()
