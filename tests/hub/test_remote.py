"""A file on the Hub, read by range: what is asked, how little is read, and which answers are no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from local_hub import LocalRepo, SparseFile
from raw_server import RawServer
from small_repos import QUICK, asked

from hubaudit.errors import NetworkError
from hubaudit.hub.remote import RemoteFile
from hubaudit.hub.session import HubSession, Wanted

if TYPE_CHECKING:
    import socket

    from local_hub import LocalHub

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
START = bytes(range(256)) * 1024
BIG = SparseFile(START, 20 * GIGABYTE)
PATH = "model.safetensors"


def remote(
    hub: LocalHub, content: bytes | SparseFile = BIG, *, listed: int | None = None, **options: Any
) -> RemoteFile:
    """A file of that content, of which the listing says that it has ``listed`` bytes."""
    repo = hub.add(LocalRepo("org/one", {PATH: content}, **options))
    wanted = Wanted(repo_id="org/one", revision=repo.sha, path=PATH)
    return RemoteFile(HubSession(token="hf_x", patience=QUICK), wanted, size_bytes=listed)


def test_a_read_is_a_range(local_hub: LocalHub) -> None:
    """Of a file of 20 GB come the bytes asked for, and its size."""
    file = remote(local_hub)
    assert (file.path, file.size_bytes) == (PATH, None)
    assert file.read(10, 300) == START[10:310]
    assert file.size_bytes == len(BIG)
    assert asked(local_hub) == [PATH, f"cdn {PATH}"]
    assert sum(request.bytes_sent for request in local_hub.requests if request.host == "cdn") == 300


def test_the_second_read_goes_straight_to_the_storage(local_hub: LocalHub) -> None:
    """One request instead of two, and no token with it."""
    file = remote(local_hub)
    file.read(0, 100)
    local_hub.reset_log()
    assert file.read(100, 100) == START[100:200]
    assert asked(local_hub) == [f"cdn {PATH}"]
    assert not local_hub.requests[0].authorized


def test_a_file_that_stays_on_the_hub_is_asked_with_the_token(local_hub: LocalHub) -> None:
    """Where the redirect stays on the Hub, a private file still needs the token."""
    file = remote(local_hub, START, lfs=(), private=True, allowed_tokens=("hf_x",))
    assert file.read(0, 100) + file.read(100, 100) == START[:200]
    assert all(request.authorized for request in local_hub.requests)
    assert asked(local_hub) == [PATH, f"cached {PATH}"] * 2


@pytest.mark.parametrize("listed", [None, 1000])
def test_a_read_ends_where_the_file_does(local_hub: LocalHub, listed: int | None) -> None:
    """Short reads happen at the end only."""
    file = remote(local_hub, START[:1000], listed=listed)
    assert file.read(0, 32768) == START[:1000]
    assert file.read(900, 32768) == START[900:1000]
    local_hub.reset_log()
    assert file.read(1000, 10) == file.read(5000, 10) == file.read(0, 0) == b""
    assert local_hub.requests == []


def test_a_listed_size_bounds_the_range(local_hub: LocalHub) -> None:
    """Nobody asks for bytes that the listing says are not there."""
    remote(local_hub, START[:1000], listed=1000).read(0, 32768)
    assert local_hub.requests[-1].range == "bytes=0-999"


def test_an_empty_file_is_not_asked_for(local_hub: LocalHub) -> None:
    """Its listing says all; asked for a range of it, the Hub would answer 416."""
    assert remote(local_hub, b"", listed=0).read(0, 10) == b""
    assert local_hub.requests == []


@pytest.mark.parametrize("listed", [999, 1001])
def test_another_size_than_the_listing_says(local_hub: LocalHub, listed: int) -> None:
    """Then it is not the file that was asked for."""
    with pytest.raises(NetworkError, match=f"the listing says {listed} bytes, the server 1000"):
        remote(local_hub, START[:1000], listed=listed).read(0, 100)


# --- a server that does not know ranges ----------------------------------------------------------------------------------


def test_the_start_of_a_file_whose_server_ignores_ranges(local_hub: LocalHub) -> None:
    """It would send 20 GB: the stream is dropped after the bytes asked for, and what the socket held."""
    local_hub.fault("ignore_range", host="cdn")
    file = remote(local_hub)
    assert file.read(0, 32768) == START[:32768]
    assert file.size_bytes == len(BIG)
    assert local_hub.requests[-1].bytes_sent < 20 * MEGABYTE


def test_a_later_part_is_read_through_to(local_hub: LocalHub) -> None:
    """As far as a header may reach; the bytes before it are dropped."""
    local_hub.fault("ignore_range", host="cdn")
    file = remote(local_hub)
    assert file.read(100_000, 1000) == START[100_000:101_000]
    assert file.read(32 * 1024, 5 * MEGABYTE) == BIG.prefix[32 * 1024 :] + bytes(
        5 * MEGABYTE + 32 * 1024 - len(BIG.prefix)
    )


def test_a_part_too_far_in_is_not(local_hub: LocalHub) -> None:
    """Gigabytes are not read to be dropped."""
    local_hub.fault("ignore_range", host="cdn")
    with pytest.raises(NetworkError, match="ignores range requests") as caught:
        remote(local_hub).read(GIGABYTE, 10)
    assert local_hub.requests[-1].bytes_sent < 20 * MEGABYTE
    assert caught.value.hint


def test_a_small_file_whose_server_ignores_ranges(local_hub: LocalHub) -> None:
    """All of it comes, and the part asked for is cut out."""
    local_hub.fault("ignore_range", host="cdn")
    file = remote(local_hub, START[:1000])
    assert file.read(10, 20) == START[10:30]
    assert file.size_bytes == 1000


def test_a_whole_answer_of_another_length(local_hub: LocalHub) -> None:
    """The length that a server claims for the whole file must be the listing's."""
    local_hub.fault("ignore_range", host="cdn")
    with pytest.raises(NetworkError, match="the listing says 5000 bytes, the server"):
        remote(local_hub, START[:1000], listed=5000).read(0, 100)


# --- answers that are none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_range", "words"),
    [
        (None, "another range"),
        ("bytes 0-99", "another range"),
        ("bytes 0-99/nope", "another range"),
        ("bytes */1000", "another range"),
        ("items 10-29/1000", "another range"),
        ("bytes 10-29/" + "9" * 5000, "another range"),
        ("bytes 10-29/999", "the listing says 1000 bytes, the server 999"),
    ],
)
def test_another_range_than_asked_for(local_hub: LocalHub, content_range: str | None, words: str) -> None:
    """Bytes of another place would be read as a header."""
    local_hub.fault("wrong_content_range", host="cdn", content_range=content_range)
    with pytest.raises(NetworkError, match=words) as caught:
        remote(local_hub, START[:1000], listed=1000).read(10, 20)
    assert caught.value.hint


def test_a_range_of_a_file_of_unknown_size(local_hub: LocalHub) -> None:
    """HTTP lets a server say that it does not know the whole size (RFC 9110, 14.4)."""
    local_hub.fault("wrong_content_range", host="cdn", content_range="bytes 10-29/*")
    file = remote(local_hub)
    assert file.read(10, 20) == START[10:30]
    assert file.size_bytes is None


def test_a_range_cut_short(local_hub: LocalHub) -> None:
    """Less than asked for, and the answer says that it is whole."""
    local_hub.fault("wrong_length", host="cdn", length=50)
    with pytest.raises(NetworkError, match="cut off: 50 of 100 bytes"):
        remote(local_hub, listed=len(BIG)).read(0, 100)


def test_a_web_page_instead_of_a_file(local_hub: LocalHub) -> None:
    """A captive portal answers 200 to everything."""
    local_hub.fault("wrong_content")
    with pytest.raises(NetworkError, match="web page"):
        remote(local_hub).read(0, 100)


def test_a_web_page_dressed_as_a_range(local_hub: LocalHub) -> None:
    """It is too short, or of another size, to be the file."""
    local_hub.fault("wrong_content", status=206)
    with pytest.raises(NetworkError):
        remote(local_hub, listed=len(BIG)).read(0, 32768)


def test_more_than_asked_for_is_cut() -> None:
    """A range answered with more than the range ends where it should."""

    def generous(connection: socket.socket, _: bytes) -> None:
        connection.sendall(
            b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/100\r\nContent-Length: 20\r\n\r\n" + START[:20]
        )

    with RawServer(generous) as server:
        wanted = Wanted(repo_id="org/one", revision="main", path=PATH)
        file = RemoteFile(HubSession(patience=QUICK), wanted)
        file._url = server.url
        assert file.read(0, 10) == START[:10]


def test_a_file_needs_a_path_and_a_commit() -> None:
    """What a branch means may change between two reads."""
    with pytest.raises(ValueError, match="a path and a commit"):
        RemoteFile(HubSession(), Wanted(repo_id="org/one", path=PATH))
