"""One question to the Hub: what is sent, how much is read, how long is waited, and what is said when it fails."""

from __future__ import annotations

import gzip
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from raw_server import RawServer
from small_repos import HASTY, QUICK, one_file

from hubaudit.errors import AccessError, HubauditError, NetworkError, NotFoundError, RateLimitError, UsageError
from hubaudit.hub.deadline import Deadline
from hubaudit.hub.quota import asked_wait_seconds
from hubaudit.hub.session import HubSession, Patience, Wanted, api_url, file_url

if TYPE_CHECKING:
    from local_faults import FaultKind
    from local_hub import LocalHub

    from hubaudit.hub.answer import Answer

INFO = Wanted(repo_id="org/one")
CONFIG = Wanted(repo_id="org/one", revision="main", path="config.json")
WEIGHTS = Wanted(repo_id="org/one", revision="main", path="model.safetensors")
MEGABYTE = 1_000_000


def ask(wanted: Wanted = CONFIG, *, patience: Patience = QUICK, token: str | None = None, **options: object) -> Answer:
    """One question about ``org/one``."""
    url = api_url(wanted.repo_id) if wanted.path is None else file_url(wanted.repo_id, "main", wanted.path)
    options.setdefault("max_bytes", MEGABYTE)
    return HubSession(token=token, patience=patience).get(url, wanted, **options)  # type: ignore[arg-type]


def ask_raw(server: RawServer, *, patience: Patience = QUICK, max_bytes: int = MEGABYTE) -> Answer:
    """One question to a raw server."""
    return HubSession(patience=patience).get(f"{server.url}/org/one", CONFIG, max_bytes=max_bytes)


def check_said(error: HubauditError) -> None:
    """Every failure is one printable line, with a hint."""
    assert error.message.isprintable()
    assert error.hint.isprintable()
    assert error.hint


# --- what is sent --------------------------------------------------------------------------------------------------------


def test_the_user_agent_names_us(local_hub: LocalHub) -> None:
    """The Hub sees which program asks, at which version, through which library."""
    local_hub.add(one_file())
    ask()
    agents = {request.headers["user-agent"] for request in local_hub.requests}
    assert all(agent.startswith("hubaudit/0.") and "; hf_hub/" in agent for agent in agents)


def test_the_token_goes_to_the_hub_and_nowhere_else(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment or the argument, and a redirect to the storage host leaves it behind."""
    local_hub.add(one_file())
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    ask(WEIGHTS, byte_range=(0, 100))
    ask(WEIGHTS, byte_range=(0, 100), token="hf_argument")
    sent = [(request.host, request.token) for request in local_hub.requests]
    assert sent == [("hub", "hf_environment"), ("cdn", None), ("hub", "hf_argument"), ("cdn", None)]
    assert not any(request.authorized for request in local_hub.requests if request.host == "cdn")


def test_the_token_can_stay_at_home(local_hub: LocalHub) -> None:
    """``with_token=False`` sends none even to the Hub."""
    local_hub.add(one_file())
    ask(token="hf_argument", with_token=False)
    assert not any(request.authorized for request in local_hub.requests)


def test_a_saved_token_is_found(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``hf auth login`` wrote is used."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    with open(constants.HF_TOKEN_PATH, "w") as file:
        file.write("hf_saved\n")
    ask()
    assert {request.token for request in local_hub.requests} == {"hf_saved"}


@pytest.mark.parametrize("token", ["hf_é", "hf_a\nx: y", "hf_\0", "hf_\x7f"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    """It is no internal error, and the token is not repeated where others may read it."""
    with pytest.raises(AccessError, match="characters that no token has") as caught:
        HubSession(token=token)
    check_said(caught.value)
    assert token not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("what", ["folder", "device", "pipe", "gigabyte", "no text"])
@pytest.mark.parametrize("which", ["HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH"])
def test_a_token_file_that_cannot_be_read(
    what: str, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no file of tokens is said to be none, before it is read: a device never ends, and a pipe never begins."""
    from huggingface_hub import constants

    path = tmp_path / "there"
    if what == "folder":
        path.mkdir()
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "gigabyte":
        with path.open("wb") as file:
            file.truncate(2**30)
    else:
        path.write_bytes(b"hf_\xff\xfe")
    (tmp_path / "token").write_text("hf_saved")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, which, str(path))
    if which == "HF_STORED_TOKENS_PATH" and what == "no text":  # huggingface_hub passes it over: the token is there
        HubSession()
        return
    with pytest.raises(AccessError, match="token cannot be read") as caught:
        HubSession()
    check_said(caught.value)


@pytest.mark.parametrize("path", [os.devnull, "/nowhere/token"])
def test_no_token_is_no_failure(path: str, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who want to send none name a file that is empty or not there."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", path)
    ask()
    assert {request.token for request in local_hub.requests} == {None}


def test_a_token_of_the_environment_needs_no_file(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the file then, whatever it is."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/dev/zero")
    monkeypatch.setenv("HF_TOKEN", "hf_given")
    ask()
    assert {request.token for request in local_hub.requests} == {"hf_given"}


@pytest.mark.parametrize("answer", [None, b"", b"[]", b"{}", b'"x"', b'{"access_token": "t", "expires_in": "soon"}'])
def test_an_exchange_of_tokens_that_fails(
    answer: bytes | None, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI asks for a token by ``HF_OIDC_RESOURCE``: no identity, no server, or an answer that is none ends in one line."""
    monkeypatch.setenv("HF_OIDC_RESOURCE", "org/one")
    if answer is not None:
        monkeypatch.setenv("HF_OIDC_ID_TOKEN", "identity")
        status = 200 if answer else 404
        reply = httpx2.Response(status, content=answer, request=httpx2.Request("POST", "http://x/oauth/token"))
        monkeypatch.setattr("huggingface_hub._oidc.get_session", lambda: SimpleNamespace(post=lambda *_, **__: reply))
    with pytest.raises(AccessError, match="token cannot be read") as caught:
        HubSession()
    check_said(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["", "localhost:8080", "huggingface.co", "ftp://huggingface.co", "https://", "http:///x"]
)
def test_an_endpoint_that_is_no_address(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistaken ``HF_ENDPOINT`` is the user's, and said before anything is asked."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(UsageError, match="HF_ENDPOINT is not the address of a Hub") as caught:
        HubSession()
    check_said(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9"),
        ("HTTPS_PROXY", "gopher://127.0.0.1:9"),
        ("HTTP_PROXY", "http://127.0.0.1:no"),
    ],
)
def test_settings_that_no_client_can_be_made_of(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of a kind that is not installed, or of no kind, is a matter of settings."""
    from huggingface_hub.utils import close_session

    close_session()
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="no connection can be set up") as caught:
        ask()
    check_said(caught.value)
    assert "ALL_PROXY" in caught.value.hint


# --- what is read --------------------------------------------------------------------------------------------------------


def test_an_answer_comes_whole_or_to_its_limit(local_hub: LocalHub) -> None:
    """``is_whole`` tells whether there was more."""
    local_hub.add(one_file())
    whole = ask()
    size = len(whole.content)
    assert whole.is_whole
    assert ask(max_bytes=size).is_whole
    cut = ask(max_bytes=size - 1)
    assert (cut.content, cut.is_whole) == (whole.content[:-1], False)


def test_a_range_is_what_was_asked_for(local_hub: LocalHub) -> None:
    """Offset and length become the header; compression, which would move the offsets, is declined."""
    local_hub.add(one_file())
    answer = ask(WEIGHTS, byte_range=(8, 4))
    assert (answer.status, answer.content) == (206, b'{"mo')
    request = local_hub.requests[-1]
    assert (request.range, request.headers["accept-encoding"]) == ("bytes=8-11", "identity")


def test_compressed_answers_are_unpacked(local_hub: LocalHub) -> None:
    """The limit is one of unpacked bytes, and a body that unpacks to more is dropped there."""
    repo = one_file(info={"padding": "x" * 200_000})
    local_hub.add(repo)
    whole = ask(INFO)
    assert whole.is_whole
    assert len(whole.content) > 200_000
    assert local_hub.requests[-1].bytes_sent < 20_000
    assert len(ask(INFO, max_bytes=1000).content) == 1000


def test_a_body_without_end_is_dropped_at_the_limit() -> None:
    """Memory and time follow the limit, not what the server would send."""

    def endless(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with RawServer(endless) as server:
        answer = ask_raw(server, max_bytes=100_000)
    assert (len(answer.content), answer.is_whole) == (100_000, False)


def test_a_refusal_without_end_is_not_read() -> None:
    """What a 404 says stands in its headers."""

    def endless(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nX-Error-Code: EntryNotFound\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with RawServer(endless) as server, pytest.raises(NotFoundError) as caught:
        ask_raw(server)
    check_said(caught.value)


def test_a_redirect_without_end_is_followed_all_the_same() -> None:
    """Its body is read to a small limit only; the library by itself would read it to its end."""

    def endless(connection: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET /there"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return
        connection.sendall(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /there\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with RawServer(endless) as server:
        assert ask_raw(server).content == b"ok"
        assert len(server.requests) == 2


def test_connections_are_used_again(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect's body is read to its end, so that the next question needs no new connection."""
    local_hub.add(one_file())
    opened: list[object] = []
    original = local_hub._servers[0].process_request

    def counted(request: object, client_address: object) -> None:
        opened.append(client_address)
        original(request, client_address)

    monkeypatch.setattr(local_hub._servers[0], "process_request", counted)
    session = HubSession(patience=QUICK)
    for _ in range(5):
        session.get(file_url("org/one", "main", "config.json"), CONFIG, max_bytes=MEGABYTE)
    assert len(local_hub.requests) == 10
    assert len(opened) == 1


# --- how long is waited --------------------------------------------------------------------------------------------------


def test_a_passing_failure_is_asked_again(local_hub: LocalHub) -> None:
    """A server that fails once is no reason to fail."""
    local_hub.add(one_file())
    passing: list[tuple[FaultKind, dict[str, int]]] = [
        ("status", {"status": 500}), ("status", {"status": 502}), ("status", {"status": 503}),
        ("status", {"status": 504}), ("status", {"status": 408}), ("status", {"status": 429, "reset_seconds": 0}),
        ("reset", {}), ("close", {}), ("truncate", {}),
    ]  # fmt: skip
    for kind, options in passing:
        local_hub.clear_faults()
        fault = local_hub.fault(kind, "cache|cached|resolve/", times=2, **options)
        assert ask().is_whole, kind
        assert local_hub.applied(fault) == 2, kind


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_a_lasting_failure_is_asked_as_often_as_patience_says(local_hub: LocalHub, status: int) -> None:
    """Then it is a network error that names the status."""
    local_hub.add(one_file())
    fault = local_hub.fault("status", status=status)
    with pytest.raises(NetworkError, match=f"answered {status}") as caught:
        ask()
    check_said(caught.value)
    assert local_hub.applied(fault) == 1 + QUICK.retries


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 416, 418, 451, 501])
def test_a_refusal_is_asked_once(local_hub: LocalHub, status: int) -> None:
    """Asking again does not change it."""
    local_hub.add(one_file())
    fault = local_hub.fault("status", status=status)
    with pytest.raises(HubauditError) as caught:
        ask()
    check_said(caught.value)
    assert local_hub.applied(fault) == 1


@pytest.mark.parametrize("status", [204, 205, 300, 304, 306])
def test_a_status_that_carries_no_file_is_no_answer(status: int) -> None:
    """Nothing but 200 and 206 is taken for what was asked for."""

    def odd(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %d Odd\r\nContent-Length: 0\r\n\r\n" % status)

    with RawServer(odd) as server, pytest.raises(NetworkError, match=f"answered {status}") as caught:
        ask_raw(server)
    check_said(caught.value)


def test_a_short_quota_wait_is_waited_out(local_hub: LocalHub) -> None:
    """The Hub says when the quota is renewed; not earlier is asked again."""
    local_hub.add(one_file())
    local_hub.fault("status", status=429, reset_seconds=1, times=1)
    started = time.monotonic()
    assert ask().is_whole
    assert time.monotonic() - started >= 1


def test_a_long_quota_wait_is_not(local_hub: LocalHub) -> None:
    """Nobody sits for minutes before a program that says nothing."""
    local_hub.add(one_file())
    fault = local_hub.fault("status", status=429, reset_seconds=55)
    with pytest.raises(RateLimitError, match="rate limit") as caught:
        ask()
    assert local_hub.applied(fault) == 1
    assert "in 55 seconds" in caught.value.hint
    assert (caught.value.exit_code, caught.value.kind) == (4, "rate_limit")
    check_said(caught.value)


def test_a_quota_that_stays_used_up(local_hub: LocalHub) -> None:
    """Short waits too come to an end."""
    local_hub.add(one_file())
    fault = local_hub.fault("status", status=429, reset_seconds=0)
    with pytest.raises(RateLimitError) as caught:
        ask()
    assert local_hub.applied(fault) == 1 + QUICK.retries
    check_said(caught.value)


def test_the_storage_host_may_limit_us_too(local_hub: LocalHub) -> None:
    """It says nothing of when, so it is asked again as after any passing failure."""
    local_hub.add(one_file())
    fault = local_hub.fault("status", status=429, host="cdn")
    with pytest.raises(RateLimitError, match=local_hub.cdn_endpoint) as caught:
        ask(WEIGHTS, byte_range=(0, 10))
    assert local_hub.applied(fault) == 1 + QUICK.retries
    check_said(caught.value)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_heeded_within_bounds(status: int, local_hub: LocalHub) -> None:
    """A server that wants a day of rest is not waited for."""
    local_hub.add(one_file())

    def resting(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %d Busy\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n" % status)

    with RawServer(resting) as server, pytest.raises(NetworkError) as caught:
        ask_raw(server)
    assert len(server.requests) == 1
    check_said(caught.value)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"RateLimit": '"api";r=0;t=55'}, 55),
        (429, {"RateLimit": '"api";r=0;t=55', "Retry-After": "3"}, 55),
        (429, {"RateLimit": '"api";r=7;t=55'}, None),
        (429, {"RateLimit": '"api";r=7;t=55', "Retry-After": "3"}, 3),
        (503, {"RateLimit": '"api";r=0;t=55'}, None),
        (503, {"Retry-After": " 12 "}, 12),
        (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        (503, {"Retry-After": "-1"}, None),
        (503, {"Retry-After": "²"}, None),
        (503, {"Retry-After": "9" * 5000}, None),
        (429, {"RateLimit": '"api";r=0;t=' + "9" * 5000}, None),
        (429, {"RateLimit": "nonsense"}, None),
        (429, {}, None),
    ],
)
def test_what_a_server_asks_for(status: int, headers: dict[str, str], seconds: int | None) -> None:
    """The quota's own word before Retry-After, and nothing where neither can be understood."""
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    assert asked_wait_seconds(status, httpx2.Headers(encoded)) == seconds


# --- deadlines -----------------------------------------------------------------------------------------------------------


def trickle(head: bytes, drop: bytes) -> RawServer:
    """A server that sends ``head`` and then ``drop`` again and again, slowly enough to take for ever."""

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        while not server.stopping.wait(0.02):
            connection.sendall(drop)

    server = RawServer(answer)
    return server


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x", id="body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: ", b"x", id="headers"),
        pytest.param(b"HTTP/1.1 307 Temporary\r\nLocation: /x\r\nContent-Length: 9999\r\n\r\n", b"x", id="redirect"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 999999\r\n\r\n" + gzip.compress(b"")[:10],
            b"\0\0\0\xff\xff",  # stored blocks of nothing: a stream that goes on and unpacks to nothing
            id="gzip that unpacks to nothing",
        ),
    ],
)
def test_a_byte_now_and_then_does_not_keep_us(head: bytes, drop: bytes) -> None:
    """Every wait for the next byte is short, and still the whole has an end: that is no read timeout's doing."""
    started = time.monotonic()
    with trickle(head, drop) as server, pytest.raises(NetworkError, match="did not answer in time") as caught:
        ask_raw(server, patience=HASTY)
    assert time.monotonic() - started < 10  # for ever, had it been left to the read timeout
    check_said(caught.value)


def test_a_large_answer_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps coming is waited for beyond the seconds of a question: each byte moves the deadline by so much."""
    monkeypatch.setattr("hubaudit.hub.deadline.SLOWEST_BYTES_PER_SECOND", 1_000)

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n")
        for _piece in range(40):
            connection.sendall(b"x" * 1_000)
            time.sleep(0.05)

    with RawServer(answer) as server:
        assert ask_raw(server, patience=replace(QUICK, retries=0, answer_seconds=1.0)).content == b"x" * 40_000


def test_what_came_moves_the_deadline_by_the_least_speed() -> None:
    """100 MB, the most of any file, are worth 200 s, and a thousand bytes 2 ms."""
    deadline = Deadline(60.0)
    before = deadline.ends_at
    deadline.came(1_000)
    assert deadline.ends_at - before == pytest.approx(0.002, abs=1e-6)
    deadline.came(100_000_000)
    assert deadline.ends_at - before == pytest.approx(200.002, abs=1e-6)


def test_a_hub_that_says_nothing(local_hub: LocalHub) -> None:
    """Silence too ends with the deadline, whatever the library's timeout is."""
    local_hub.add(one_file())
    local_hub.fault("timeout", seconds=60)
    with pytest.raises(NetworkError, match="did not answer in time") as caught:
        ask(patience=HASTY)
    assert caught.value.exit_code == 4
    check_said(caught.value)


def test_a_name_that_is_looked_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket's timeout reaches into the look-up of a name."""
    import socket

    asleep = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: asleep.wait(20) and [])
    with pytest.raises(NetworkError, match="did not answer in time"):
        ask(patience=HASTY)
    asleep.set()


def test_redirects_without_end(local_hub: LocalHub) -> None:
    """They are counted, and not tried again."""
    local_hub.add(one_file())
    fault = local_hub.fault("endless_redirects")
    with pytest.raises(NetworkError, match="redirects without end") as caught:
        ask()
    assert local_hub.applied(fault) == 21
    check_said(caught.value)


# --- where redirects lead ------------------------------------------------------------------------------------------------


def test_a_redirect_to_another_host_never_carries_the_token(local_hub: LocalHub) -> None:
    """Whatever the Hub, or who plays it, says: the token is for the Hub only, also after a way round and back."""
    local_hub.add(one_file())

    def welcoming(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with RawServer(welcoming) as stranger:
        local_hub.fault("redirect_to", location=f"{stranger.url}/collect")
        assert ask(token="hf_secret").content == b"{}"
        assert local_hub.requests[0].token == "hf_secret"
        assert len(stranger.requests) == 1
        assert b"authorization" not in stranger.requests[0].lower()
        assert b"hf_secret" not in stranger.requests[0]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://127.0.0.1:9/x", "could not connect to http://127.0.0.1:9"),
        ("ftp://127.0.0.1/x", "the address for .* is no good"),
        ("file:///etc/passwd", "the address for .* is no good"),
        ("http://[::bad/x", "answered 302"),
        ("http://a:b:c/", "answered 302"),
        ("", "redirects without end"),
    ],
)
def test_a_redirect_to_nowhere(local_hub: LocalHub, location: str, words: str) -> None:
    """A bad address is a failure of the network, and nothing but http is followed."""
    local_hub.add(one_file())
    local_hub.fault("redirect_to", location=location)
    with pytest.raises(NetworkError, match=words) as caught:
        ask()
    check_said(caught.value)


def test_a_redirect_to_what_no_host_is_called(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of a host's name has 63 characters at most: Python refuses a longer one with an error of its own, before anyone is asked."""
    real: Any = socket.getaddrinfo

    def resolved(host: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(host, str):
            host.encode("idna")  # as the real one does
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    local_hub.add(one_file())
    local_hub.fault("redirect_to", location=f"http://{'x' * 64}/")
    with pytest.raises(NetworkError, match=r"the address for .* is no good") as caught:
        ask()
    check_said(caught.value)


def test_what_a_storage_host_says_is_not_the_hubs_word(local_hub: LocalHub) -> None:
    """Its 404 does not mean that the file is not in the repository, nor its 403 that the user may not read it."""
    local_hub.add(one_file())
    for status in (401, 403, 404):
        local_hub.clear_faults()
        local_hub.fault("status", status=status, host="cdn")
        with pytest.raises(NetworkError, match=f"{local_hub.cdn_endpoint} answered {status}") as caught:
            ask(WEIGHTS, byte_range=(0, 10))
        check_said(caught.value)


def test_a_refused_connection_names_the_host() -> None:
    """Users must see whether it is the Hub or the storage that their network does not reach."""
    with pytest.raises(NetworkError, match=r"could not connect to http://127\.0\.0\.1:9: .*refused") as caught:
        ask()
    check_said(caught.value)
    assert "HF_ENDPOINT" in caught.value.hint


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [
        ("http://user:secret@127.0.0.1:9", NetworkError),
        ("ftp://user:secret@127.0.0.1", UsageError),
        ("user:secret@127.0.0.1", UsageError),
    ],
)
def test_a_password_in_the_endpoint_stays_out_of_messages(
    endpoint: str, kind: type[HubauditError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages end in logs."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(kind) as caught:
        ask()
    assert "secret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_no_http(answer: bytes) -> None:
    """Whatever comes in place of HTTP is a broken connection."""

    def babble(connection: socket.socket, _: bytes) -> None:
        import socket

        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with RawServer(babble) as server, pytest.raises(NetworkError, match=r"the connection to .* broke") as caught:
        ask_raw(server)
    assert len(server.requests) == 1 + QUICK.retries
    check_said(caught.value)


# --- beside others -------------------------------------------------------------------------------------------------------


def test_connections_closed_by_others_are_opened_anew(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub closes the connections of all threads where one cannot connect, and ours may be in between."""
    from huggingface_hub.utils import get_session

    from hubaudit.hub import session

    local_hub.add(one_file())
    closed = httpx2.Client()
    closed.close()
    clients = iter([closed])
    monkeypatch.setattr(session, "get_session", lambda: next(clients, None) or get_session())
    assert ask().is_whole


def test_what_is_no_failure_of_the_network_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug stays a bug, with its own exception."""
    from hubaudit.hub import session

    def broken(*_: object) -> Answer:
        raise ZeroDivisionError

    monkeypatch.setattr(session, "_ask", broken)
    with pytest.raises(ZeroDivisionError):
        ask()
