"""A Hub on this machine: two HTTP servers (Hub and CDN) that answer like the real ones, keep a log, and fail on request.

``127.0.0.1`` is the Hub and ``localhost`` the CDN, so that the two are different origins, as in reality.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import os
import re
import socket
import socketserver
import struct
import sys
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from local_faults import HTML_PAGE, Fault, FaultRules
from local_repo import (
    Blob,
    Content,
    Files,
    LocalRepo,
    SparseFile,
    pieces,
    repo_from_snapshot,
    safetensors_prefix,
)
from local_routes import Answer, Request, Routes, json_answer, redirect_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local_faults import FaultKind

__all__ = [
    "HTML_PAGE",
    "Blob",
    "Content",
    "Fault",
    "Files",
    "LocalHub",
    "LocalRepo",
    "Request",
    "SparseFile",
    "repo_from_snapshot",
    "safetensors_prefix",
]

WINDOW_SECONDS = 300
ANONYMOUS_QUOTAS = {"api": 500, "resolvers": 3000, "pages": 100}
SIGNED_IN_QUOTAS = {"api": 1000, "resolvers": 5000, "pages": 200}
SETTLE_SECONDS = 3.0


class _Entry:
    """The log's line of one request, while it is being answered and after."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status = 0
        self.bytes_sent = 0
        self.fault: str | None = None
        self.settled = False

    def record(self) -> Request:
        return dataclasses.replace(self.request, status=self.status, bytes_sent=self.bytes_sent, fault=self.fault)


class LocalHub:
    """A Hub that serves the given repositories from entering the ``with`` block until leaving it.

    ``latency_seconds`` is waited before every answer on both hosts. ``quotas`` (requests per bucket ``api``, ``resolvers``,
    ``pages`` in five minutes) are enforced with 429 where given. ``serves_headers=False`` turns the one-request
    safetensors-metadata endpoint off, as on a mirror. ``tree_page`` is the most files one page of a listing holds. ``xet``
    adds the Xet headers that make the real client download through hf_xet. ``compress`` gzips JSON answers for who accepts.
    """

    def __init__(
        self,
        *repos: LocalRepo,
        latency_seconds: float = 0.0,
        quotas: Mapping[str, int] | None = None,
        serves_headers: bool = True,
        tree_page: int = 1000,
        xet: bool = True,
        compress: bool = False,
    ) -> None:
        self.latency_seconds = latency_seconds
        self.quotas = quotas
        self.routes = Routes(serves_headers=serves_headers, tree_page=tree_page, xet=xet, compress=compress)
        self.rules = FaultRules()
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._settled = threading.Condition()
        self._log: list[_Entry] = []
        self._used: dict[tuple[str | None, str], int] = {}
        self._window_start = time.monotonic()
        self._servers: list[_Server] = []
        for repo in repos:
            self.add(repo)

    # --- what a test sets up -----------------------------------------------------------------------------------------

    def add(self, repo: LocalRepo) -> LocalRepo:
        """Serves one more repository (in place of one of the same id)."""
        self.routes.add(repo)
        return repo

    def redirect(self, old_id: str, new_id: str) -> None:
        """Answers for ``old_id`` with a redirect to ``new_id``, which may redirect again."""
        self.routes.add_redirect(old_id, new_id)

    def fault(self, kind: FaultKind, match: str | Callable[[Request], bool] = "", **options: Any) -> Fault:
        """Adds a ``Fault`` rule."""
        return self.add_fault(Fault(kind=kind, match=match, **options))

    def add_fault(self, fault: Fault) -> Fault:
        """Adds a rule behind those already there."""
        with self._settled:
            return self.rules.add(fault)

    def clear_faults(self) -> None:
        """From now on everything goes well."""
        with self._settled:
            self.rules.clear()

    def applied(self, fault: Fault) -> int:
        """How many requests the rule has been applied to."""
        with self._settled:
            return self.rules.applied(fault)

    @property
    def invalid_tokens(self) -> set[str]:
        """Tokens that the Hub does not know; it takes every other."""
        return self.routes.invalid_tokens

    # --- what a test looks at ----------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:port``, for ``HF_ENDPOINT``."""
        return self.routes.endpoint

    @property
    def cdn_endpoint(self) -> str:
        return self.routes.cdn_endpoint

    @property
    def requests(self) -> list[Request]:
        """All requests so far in the order they came, once those under way are answered, but for hanging ones."""
        with self._settled:
            self._settled.wait_for(lambda: all(entry.settled for entry in self._log), timeout=SETTLE_SECONDS)
            return [entry.record() for entry in self._log]

    def reset_log(self) -> None:
        """Forgets the requests so far."""
        with self._settled:
            self._settled.wait_for(lambda: all(entry.settled for entry in self._log), timeout=SETTLE_SECONDS)
            self._log.clear()

    # --- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> LocalHub:
        self._servers = [_Server(self, "hub"), _Server(self, "cdn")]
        hub, cdn = self._servers
        self.routes.endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
        self.routes.cdn_endpoint = f"http://localhost:{cdn.server_address[1]}"
        for server in self._servers:
            server.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopping.set()
        for server in self._servers:
            server.stop()

    # --- what the handlers call --------------------------------------------------------------------------------------

    def enter(self, request: Request) -> tuple[_Entry, Fault | None]:
        """Logs a request as it comes in, and says what is to go wrong with it."""
        with self._settled:
            entry = _Entry(request)
            self._log.append(entry)
            fault = self.rules.take(request)
            entry.fault = fault.kind if fault else None
            return entry, fault

    def settle(self, entry: _Entry) -> None:
        """Marks a request as one that the log need not wait for."""
        with self._settled:
            entry.settled = True
            self._settled.notify_all()

    def count(self, request: Request) -> tuple[str, int, int, int]:
        """Counts a Hub request: bucket, the bucket's quota, what remains (-1 when overdrawn), seconds to the reset."""
        bucket = "pages"
        if "/resolve/" in request.path or request.path.startswith("/api/resolve-cache/"):
            bucket = "resolvers"
        elif request.path.startswith("/api/"):
            bucket = "api"
        with self._settled:
            now = time.monotonic()
            if now - self._window_start >= WINDOW_SECONDS:
                self._window_start, self._used = now, {}
            key = (request.token, bucket)
            self._used[key] = used = self._used.get(key, 0) + 1
            reset = WINDOW_SECONDS - int(now - self._window_start)
        if self.quotas is not None and bucket in self.quotas:
            return bucket, self.quotas[bucket], max(-1, self.quotas[bucket] - used), reset
        quota = (SIGNED_IN_QUOTAS if request.token else ANONYMOUS_QUOTAS)[bucket]
        return bucket, quota, max(1, quota - used), reset


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """One of the two hosts."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, hub: LocalHub, host: Literal["hub", "cdn"]) -> None:
        self.hub = hub
        self.host: Literal["hub", "cdn"] = host
        self._open: dict[socket.socket, threading.Thread] = {}
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True, name=f"local {host}")
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own would look the host's name up

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection, thread in list(self._open.items()):
            with contextlib.suppress(OSError):  # it may be gone already
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=2)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections may break at any time; anything else is a bug of this server and fails the test."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.hub.errors.append(error)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Reads requests off one connection, asks the routes, and sends the answer, or what the fault makes of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet: the log is ``LocalHub.requests``."""

    def _serve(self) -> None:
        hub = self.server.hub
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        request = Request(
            method=self.command,
            host=self.server.host,
            path=path,
            query=query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            file=hub.routes.cdn_file(path) if self.server.host == "cdn" else "",
            started_at=time.monotonic(),
        )
        self._entry, fault = hub.enter(request)
        try:
            hub.stopping.wait(hub.latency_seconds)
            self._answer(request, fault)
        finally:
            hub.settle(self._entry)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815

    def _answer(self, request: Request, fault: Fault | None) -> None:
        if fault is not None and fault.kind in _BEFORE:
            answer = _BEFORE[fault.kind](self, request, fault)
            if answer is None:
                return
        else:
            answer = self._limited(request) or self.server.hub.routes.answer(request)
            if fault is not None and fault.kind in _AFTER:
                answer = _AFTER[fault.kind](self, request, fault, answer)
        self._send(request, answer, fault)

    def _limited(self, request: Request) -> Answer | None:
        """The 429 of a used-up quota; leaves the rate limit's headers to be sent with any answer."""
        self._limit_headers = {}
        if request.host == "cdn":
            return None
        bucket, quota, remaining, reset = self.server.hub.count(request)
        self._limit_headers = _limit_headers(bucket, quota, max(0, remaining), reset)
        return Answer(status=429, headers={"Content-Type": "text/html"}, content=HTML_PAGE) if remaining < 0 else None

    # --- faults that come before the answer: each gives another answer, or None when nothing more is to be sent --------

    def _status(self, request: Request, fault: Fault) -> Answer:
        self._limited(request)
        status = fault.status or 500
        answer = json_answer({"error": HTTPStatus(status).phrase}, status=status)
        if fault.html:
            answer = Answer(status=status, headers={"Content-Type": "text/html; charset=utf-8"}, content=HTML_PAGE)
        if status == 429 and request.host == "hub":
            used_up = f"r=0;t={fault.reset_seconds}"
            self._limit_headers["RateLimit"] = re.sub(r"r=\d+;t=\d+", used_up, self._limit_headers["RateLimit"])
        return answer

    def _reset(self, request: Request, fault: Fault) -> None:
        """Closes the connection's descriptor at once, unread data and all: that sends RST, not FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())

    def _close(self, request: Request, fault: Fault) -> None:
        self.close_connection = True

    def _timeout(self, request: Request, fault: Fault) -> Answer:
        self.server.hub.settle(self._entry)
        self.server.hub.stopping.wait(fault.seconds)
        return self._limited(request) or self.server.hub.routes.answer(request)

    def _changed_commit(self, request: Request, fault: Fault) -> Answer:
        routes = self.server.hub.routes
        for repo in routes.repos.values():
            if repo.repo_id in request.label:
                repo.commit(fault.files)
        return self._limited(request) or routes.answer(request)

    def _endless_redirects(self, request: Request, fault: Fault) -> Answer:
        self._limited(request)
        hop = int(request.params.get("hop", ["0"])[0]) + 1
        return redirect_answer(307, f"{request.path}?hop={hop}")

    def _redirect_to(self, request: Request, fault: Fault) -> Answer:
        self._limited(request)
        return redirect_answer(fault.status or 302, fault.location)

    # --- faults that spoil the right answer ---------------------------------------------------------------------------

    def _ignore_range(self, request: Request, fault: Fault, answer: Answer) -> Answer:
        if answer.status in (206, 416):
            plain = dataclasses.replace(request, headers={k: v for k, v in request.headers.items() if k != "range"})
            answer = self.server.hub.routes.answer(plain)
            answer.headers.pop("Accept-Ranges", None)
            # so little is in flight that a client that stops reading is noticed early
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        return answer

    def _wrong_content(self, request: Request, fault: Fault, answer: Answer) -> Answer:
        kind = "text/html; charset=utf-8" if fault.body.lstrip()[:1] == b"<" else "application/octet-stream"
        headers = {
            k: v for k, v in answer.headers.items() if k not in ("Location", "Content-Range", "Content-Encoding")
        }
        wrong = Answer(status=fault.status or 200, headers=headers | {"Content-Type": kind}, content=fault.body)
        if wrong.status == 206:
            start = int(re.findall(r"\d+", request.range or "0")[0])
            wrong.headers["Content-Range"] = f"bytes {start}-{start + len(fault.body) - 1}/{len(answer.content)}"
        return wrong

    def _wrong_content_range(self, request: Request, fault: Fault, answer: Answer) -> Answer:
        if answer.status == 206:
            moved = f"bytes {answer.start + 1000}-{answer.stop + 999}/{len(answer.content)}"
            answer.headers["Content-Range"] = fault.content_range or moved
        return answer

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, request: Request, answer: Answer, fault: Fault | None) -> None:
        length = answer.length
        if fault is not None and fault.kind == "wrong_length":
            length = answer.length // 2 if fault.length is None else fault.length
        headers: dict[str, str | None] = {
            "Date": self.date_time_string(),
            "Connection": "keep-alive",
            "X-Request-Id": f"Root=local-{id(self._entry):x}",
            **self._limit_headers,
            **answer.headers,
            "Content-Length": None if answer.status == 304 else str(length),
            **(fault.headers if fault is not None else {}),
        }
        lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._entry.status = answer.status
        without_body = request.method == "HEAD" or answer.status == 304
        self._send_body(head, iter(()) if without_body else self._body(answer, fault))
        if fault is not None and fault.kind in ("truncate", "wrong_length"):
            self.close_connection = True

    def _send_body(self, head: bytes, body: Iterator[bytes | memoryview]) -> None:
        """Sends the head with the first piece, then piece after piece, counting each as it goes."""
        first = next(body, b"")
        try:
            self.connection.sendall(head + bytes(first))
            self._entry.bytes_sent += len(first)
            for piece in body:
                self.connection.sendall(piece)
                self._entry.bytes_sent += len(piece)
        except OSError:
            self.close_connection = True  # the client has left

    def _body(self, answer: Answer, fault: Fault | None) -> Iterator[bytes | memoryview]:
        stop = answer.stop
        if fault is not None and fault.kind == "truncate":
            stop = answer.start + (answer.length // 2 if fault.keep is None else min(fault.keep, answer.length))
        body = pieces(answer.content, answer.start, stop)
        return self._slowly(body, fault.bytes_per_second) if fault is not None and fault.kind == "slow" else body

    def _slowly(self, body: Iterator[bytes | memoryview], bytes_per_second: int) -> Iterator[bytes | memoryview]:
        self.server.hub.settle(self._entry)
        step = max(1, bytes_per_second // 20)
        yield b""
        for piece in body:
            for at in range(0, len(piece), step):
                if self.server.hub.stopping.wait(step / bytes_per_second):
                    self.close_connection = True
                    return
                yield piece[at : at + step]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _limit_headers(bucket: str, quota: int, remaining: int, reset_seconds: int) -> dict[str, str]:
    return {
        "RateLimit": f'"{bucket}";r={remaining};t={reset_seconds}',
        "RateLimit-Policy": f'"fixed window";"{bucket}";q={quota};w={WINDOW_SECONDS}',
    }


_BEFORE: dict[str, Callable[[_Handler, Request, Fault], Answer | None]] = {
    "status": _Handler._status,
    "reset": _Handler._reset,
    "close": _Handler._close,
    "timeout": _Handler._timeout,
    "changed_commit": _Handler._changed_commit,
    "endless_redirects": _Handler._endless_redirects,
    "redirect_to": _Handler._redirect_to,
}
_AFTER: dict[str, Callable[[_Handler, Request, Fault, Answer], Answer]] = {
    "ignore_range": _Handler._ignore_range,
    "wrong_content": _Handler._wrong_content,
    "wrong_content_range": _Handler._wrong_content_range,
}
