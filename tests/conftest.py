"""What every test gets: an empty home, no network but this machine, and on request a Hub of its own."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import signal
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_hub import LocalHub

# How long one example takes says more about what else the machine does than about the code.
settings.register_profile("hubaudit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hubaudit")

NOWHERE = "http://127.0.0.1:9"
"""The Hub of a test that asked for none: nobody listens on the discard port."""

FORGOTTEN = (
    "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HF_OIDC_RESOURCE",
    "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ASSETS_CACHE", "HUGGINGFACE_ASSETS_CACHE", "HF_XET_CACHE",
    "TRANSFORMERS_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_DEBUG",
    "HUGGINGFACE_CO_STAGING", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_TOKEN",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSLKEYLOGFILE",
)  # fmt: skip
FORGOTTEN_PREFIXES = ("HUBAUDIT_", "_HUBAUDIT_")
NO_HARNESSES: dict[str, Any] = {"standardEnvVars": [], "harnesses": {}}


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Child processes start with Ctrl-C as in a terminal, even where the tests run in the background of a shell, which ignores it for them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stream of directories that no test has used."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def isolated(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps the user's cache, token, colours and terminal out of the test, and the test off the network."""
    home = next(homes)
    hf_home = home / ".cache" / "huggingface"
    hf_home.mkdir(parents=True)
    # The client asks the Hub for this list once a day; it is there so that counts of requests are the test's own.
    (hf_home / ".agent_harnesses.json").write_text(json.dumps(NO_HARNESSES), encoding="utf-8")
    for name in list(os.environ):
        if name.upper() in FORGOTTEN or name.startswith(FORGOTTEN_PREFIXES):
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "HF_HOME": str(hf_home),
        "HF_ENDPOINT": NOWHERE,
        "HF_HUB_ETAG_TIMEOUT": "2",
        "HF_HUB_DOWNLOAD_TIMEOUT": "2",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    tried = _keep_on_this_machine(monkeypatch)
    if "huggingface_hub.constants" in sys.modules:
        _point_client_at(NOWHERE, str(hf_home), monkeypatch)
    yield
    if "huggingface_hub.utils._http" in sys.modules:
        _forget_connections()
    assert not tried, f"the test tried to leave this machine for {', '.join(sorted(tried))}"


@pytest.fixture
def local_hub(isolated: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A running Hub without repositories, which huggingface_hub here and in child processes takes for the real one."""
    from local_hub import LocalHub

    with LocalHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        _point_client_at(hub.endpoint, os.environ["HF_HOME"], monkeypatch)
        _forget_connections()
        yield hub
        _forget_connections()
    assert not hub.errors, f"the local Hub broke: {hub.errors!r}"


@pytest.fixture
def typed_401(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes huggingface_hub take a bare 401 of the local Hub for a missing repository, as it does over https only."""
    import re

    from huggingface_hub.utils import _http

    pattern = _http.REPO_API_REGEX.pattern.replace("https://", "https?://")
    monkeypatch.setattr(_http, "REPO_API_REGEX", re.compile(pattern, _http.REPO_API_REGEX.flags))


def _point_client_at(endpoint: str, hf_home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does to an imported huggingface_hub what the environment would have done before its import."""
    import httpx2
    from huggingface_hub import constants, hf_api
    from huggingface_hub.utils import _detect_agent, _http

    old_home = constants.HF_HOME
    for name, value in vars(constants).items():
        if isinstance(value, str) and name.isupper() and value.startswith(old_home):
            monkeypatch.setattr(constants, name, hf_home + value.removeprefix(old_home))
    for name, value in {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": os.path.join(hf_home, "hub"),
        "HUGGINGFACE_HUB_CACHE": os.path.join(hf_home, "hub"),
        "HF_ASSETS_CACHE": os.path.join(hf_home, "assets"),
        "HUGGINGFACE_ASSETS_CACHE": os.path.join(hf_home, "assets"),
        "HF_TOKEN_PATH": os.path.join(hf_home, "token"),
        "HF_STORED_TOKENS_PATH": os.path.join(hf_home, "stored_tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "HF_HUB_ETAG_TIMEOUT": 2,
        "HF_HUB_DOWNLOAD_TIMEOUT": 2,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(hf_api.api, "endpoint", endpoint)
    monkeypatch.setattr(_http, "_HUB_ORIGINS", frozenset({*_http._HUB_ORIGINS, _http._url_origin(endpoint)}))
    monkeypatch.setattr(_detect_agent, "_registry", NO_HARNESSES)
    # Loading the certificates of the world takes each new client 0.1 s, and no test speaks TLS.
    monkeypatch.setattr(httpx2._transports.default, "create_ssl_context", _no_certificates)


def _no_certificates(*args: Any, **kwargs: Any) -> ssl.SSLContext:
    """A context that trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _forget_connections() -> None:
    """Closes the client's shared connections, which may lead to the Hub of another test."""
    from huggingface_hub.utils import close_session

    close_session()


def _keep_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Refuses every name look-up and connection that leaves this machine; returns where the test tried to go."""
    tried: set[str] = set()
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def check(host: object) -> None:
        if not _is_here(host):
            tried.add(str(host))
            raise OSError(f"tests may not leave this machine: {host!r}")

    def check_address(sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            check(address[0])

    def guarded_connect(self: socket.socket, address: Any) -> None:
        check_address(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        check_address(self, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host)
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
    return tried


def _is_here(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(name).partition("%")[0]).is_loopback
    except ValueError:
        return False
