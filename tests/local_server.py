"""The two HTTP servers of the local Hub: connections, what is sent, and what is sent wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
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

from local_faults import HTML_PAGE, Fault
from local_repo import pieces
from local_wire import Answer, Request, json_answer, redirect_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_hub import LocalHub


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """One of the two hosts."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, hub: LocalHub, host: Literal["hub", "cdn"]) -> None:
        self.hub = hub
        self.host: Literal["hub", "cdn"] = host
        self._open: dict[socket.socket, threading.Thread] = {}
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True, name=f"local {host}")
        super().__init__(("127.0.0.1", 0), Handler)

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


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads requests off one connection, asks the routes, and sends the answer, or what the fault makes of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

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
        self._limit_headers, exceeded = self.server.hub.count(request)
        return Answer(status=429, headers={"Content-Type": "text/html"}, content=HTML_PAGE) if exceeded else None

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
            if re.search(rf"(^|[/ ]){re.escape(repo.repo_id)}($|[/? ])", request.label):
                repo.commit(fault.files)
        return self._limited(request) or routes.answer(request)

    def _endless_redirects(self, request: Request, fault: Fault) -> Answer:
        self._limited(request)
        hop = int(request.params.get("hop", ["0"])[0]) + 1
        kept = "".join(f"{part}&" for part in request.query.split("&") if part and not part.startswith("hop="))
        return redirect_answer(307, f"{request.path}?{kept}hop={hop}")

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

    def _garbled(self, request: Request, fault: Fault, answer: Answer) -> Answer:
        return _respelt(answer, lambda body: bytes(byte ^ 0x55 for byte in body))

    def _altered(self, request: Request, fault: Fault, answer: Answer) -> Answer:
        return _respelt(
            answer, lambda body: re.sub(rb"[1-9]", lambda found: b"2" if found[0] == b"1" else b"1", body, count=1)
        )

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, request: Request, answer: Answer, fault: Fault | None) -> None:
        length, chunked = answer.length, answer.chunked
        if fault is not None and fault.kind == "wrong_length":
            length, chunked = answer.length // 2 if fault.length is None else fault.length, False
        if fault is not None and fault.kind in ("truncate", "wrong_length"):
            self.close_connection = True
        headers: dict[str, str | None] = {
            "Date": self.date_time_string(),
            "Connection": "close" if self.close_connection else "keep-alive",
            "X-Request-Id": f"Root=local-{id(self._entry):x}",
            **self._limit_headers,
            **answer.headers,
            "Content-Length": None if chunked or answer.status == 304 else str(length),
            "Transfer-Encoding": "chunked" if chunked else None,
            **(fault.headers if fault is not None else {}),
        }
        lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._entry.status = answer.status
        without_body = request.method == "HEAD" or answer.status == 304
        body = iter(()) if without_body else self._body(answer, fault)
        self._send_body(
            head, body, chunked=chunked and not without_body, cut=fault is not None and fault.kind == "truncate"
        )

    def _send_body(self, head: bytes, body: Iterator[bytes | memoryview], *, chunked: bool, cut: bool) -> None:
        """Sends the head with the first piece, then piece after piece, counting each as it goes."""
        waiting = head
        try:
            for piece in body:
                framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked and piece else bytes(piece)
                self.connection.sendall(waiting + framed)
                self._entry.bytes_sent += len(piece)
                waiting = b""
            self.connection.sendall(waiting + (b"0\r\n\r\n" if chunked and not cut else b""))
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
        yield b""  # the headers go out at once
        for piece in body:
            for at in range(0, len(piece), step):
                if self.server.hub.stopping.wait(step / bytes_per_second):
                    self.close_connection = True
                    return
                yield piece[at : at + step]


def _respelt(answer: Answer, spell: Callable[[bytes], bytes]) -> Answer:
    """The answer with its body spelt another way, and all that its headers say of it as it was."""
    body = b"".join(bytes(piece) for piece in pieces(answer.content, answer.start, answer.stop))
    packed = answer.headers.get("Content-Encoding") == "gzip"
    spelt = gzip.compress(spell(gzip.decompress(body)), 1, mtime=0) if packed else spell(body)
    return dataclasses.replace(answer, content=spelt, start=0, stop=len(spelt))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


_BEFORE: dict[str, Callable[[Handler, Request, Fault], Answer | None]] = {
    "status": Handler._status,
    "reset": Handler._reset,
    "close": Handler._close,
    "timeout": Handler._timeout,
    "changed_commit": Handler._changed_commit,
    "endless_redirects": Handler._endless_redirects,
    "redirect_to": Handler._redirect_to,
}
_AFTER: dict[str, Callable[[Handler, Request, Fault, Answer], Answer]] = {
    "ignore_range": Handler._ignore_range,
    "wrong_content": Handler._wrong_content,
    "wrong_content_range": Handler._wrong_content_range,
    "garbled": Handler._garbled,
    "altered": Handler._altered,
}
