"""A Hub on this machine: two HTTP servers (Hub and CDN) that answer like the real ones, keep a log, and fail on request.

``127.0.0.1`` is the Hub and ``localhost`` the CDN, so that the two are different origins, as in reality.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

from local_faults import HTML_PAGE, Fault, FaultRules
from local_repo import (
    Blob,
    Content,
    Files,
    LocalRepo,
    SparseFile,
    repo_from_snapshot,
    safetensors_prefix,
)
from local_routes import Routes
from local_server import Server
from local_wire import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


class Entry:
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
    ``pages`` in ``window_seconds``, five minutes) are enforced with 429 where given. ``serves_headers=False`` turns the one-request
    safetensors-metadata endpoint off, as on a mirror. ``tree_page`` is the most files one page of a listing holds. ``xet``
    adds the Xet headers that make the real client download through hf_xet. ``compress`` gzips larger JSON answers of the
    API for clients that accept it, and then without a Content-Length, as the Hub does; ``bytes_sent`` are then fewer.
    """

    def __init__(
        self,
        *repos: LocalRepo,
        latency_seconds: float = 0.0,
        quotas: Mapping[str, int] | None = None,
        serves_headers: bool = True,
        tree_page: int = 1000,
        xet: bool = True,
        compress: bool = True,
        window_seconds: int = WINDOW_SECONDS,
    ) -> None:
        self.window_seconds = window_seconds
        self.latency_seconds = latency_seconds
        self.quotas = quotas
        self.routes = Routes(serves_headers=serves_headers, tree_page=tree_page, xet=xet, compress=compress)
        self.rules = FaultRules()
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._settled = threading.Condition()
        self._log: list[Entry] = []
        self._used: dict[tuple[str | None, str], int] = {}
        self._window_start = time.monotonic()
        self._servers: list[Server] = []
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
        self._servers = [Server(self, "hub"), Server(self, "cdn")]
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

    def enter(self, request: Request) -> tuple[Entry, Fault | None]:
        """Logs a request as it comes in, and says what is to go wrong with it."""
        with self._settled:
            entry = Entry(request)
            self._log.append(entry)
            fault = self.rules.take(request)
            entry.fault = fault.kind if fault else None
            return entry, fault

    def settle(self, entry: Entry) -> None:
        """Marks a request as one that the log need not wait for."""
        with self._settled:
            entry.settled = True
            self._settled.notify_all()

    def count(self, request: Request) -> tuple[dict[str, str], bool]:
        """Counts a Hub request: the rate limit's headers, and whether the quota is exceeded."""
        bucket = "pages"
        if "/resolve/" in request.path or request.path.startswith("/api/resolve-cache/"):
            bucket = "resolvers"
        elif request.path.startswith("/api/"):
            bucket = "api"
        with self._settled:
            now = time.monotonic()
            if now - self._window_start >= self.window_seconds:
                self._window_start, self._used = now, {}
            key = (request.token, bucket)
            self._used[key] = used = self._used.get(key, 0) + 1
            reset = self.window_seconds - int(now - self._window_start)
        enforced = self.quotas is not None and bucket in self.quotas
        quota = (self.quotas or {}).get(bucket) or (SIGNED_IN_QUOTAS if request.token else ANONYMOUS_QUOTAS)[bucket]
        remaining = max(0 if enforced else 1, quota - used)
        headers = {
            "RateLimit": f'"{bucket}";r={remaining};t={reset}',
            "RateLimit-Policy": f'"fixed window";"{bucket}";q={quota};w={self.window_seconds}',
        }
        return headers, enforced and used > quota
