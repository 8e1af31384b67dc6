"""A server that sends bytes which no HTTP library would: for answers broken in ways that the local Hub cannot be."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RawServer:
    """Reads one request after another off each connection, and lets ``answer`` do with the connection what it will.

    ``answer(connection, request)`` gets the request's head; it may wait on ``stopping``. Every connection has a thread.
    """

    def __init__(self, answer: Callable[[socket.socket, bytes], None]) -> None:
        self.stopping = threading.Event()
        self.requests: list[bytes] = []
        self._answer = answer
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for connection in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            head = b""
            while not self.stopping.is_set():
                received = connection.recv(65536)
                if not received:
                    return
                head += received
                if b"\r\n\r\n" in head:
                    self.requests.append(head)
                    self._answer(connection, head)
                    head = b""
