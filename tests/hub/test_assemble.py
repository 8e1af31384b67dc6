"""What is read of a repository, in which order its witnesses count, and what becomes of a file that cannot be read."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from byte_sources import BytesSource
from local_hub import safetensors_prefix
from small_repos import INDEX, shard_name

from hubaudit.errors import AccessError, NetworkError, NotFoundError
from hubaudit.hub.assemble import Contents, read_contents
from hubaudit.types import RepoFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hubaudit.types import Json

ONE, TWO, THREE = (shard_name(number, 3) for number in (1, 2, 3))


class Shelf:
    """A repository in memory. ``broken`` are files that raise; ``served`` is what the Hub would say of all headers at once."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        broken: Mapping[str, Exception] | None = None,
        served: tuple[Json, Mapping[str, Json]] | None = None,
        parallel: int = 4,
        before: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.contents = dict(files)
        self.broken = dict(broken or {})
        self.served = served
        self.parallel = parallel
        self.before = before
        self.files = [RepoFile(path=path, size_bytes=len(content)) for path, content in files.items()]
        self.read_paths: list[str] = []

    def _take(self, path: str) -> bytes:
        self.before(path)
        self.read_paths.append(path)
        if path in self.broken:
            raise self.broken[path]
        return self.contents[path]

    def read(self, path: str, max_bytes: int) -> bytes:
        return self._take(path)[:max_bytes]

    def open(self, path: str) -> BytesSource:
        return BytesSource(self._take(path), path=path)

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        return self.served


def weights(*names: str) -> bytes:
    """A whole file of one small tensor each."""
    sparse = safetensors_prefix([(name, "F32", (2, 3)) for name in names])
    return sparse.prefix + bytes(sparse.size - len(sparse.prefix))


def index(shards: Mapping[str, str], total: Json = None) -> bytes:
    """An index of that map."""
    metadata = {} if total is None else {"total_size": total}
    return json.dumps({"metadata": metadata, "weight_map": dict(shards)}).encode()


def header(content: bytes) -> Json:
    """The header as the Hub decodes it."""
    decoded: Json = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return decoded


THREE_SHARDS = {ONE: weights("a"), TWO: weights("b"), THREE: weights("c")}
WHOLE_INDEX = index({"a": ONE, "b": TWO, "c": THREE}, 72)


def seen(contents: Contents) -> dict[str, list[str]]:
    """Tensor names by file."""
    return {file.path: [tensor.name for tensor in file.tensors] for file in contents.weights}


def problems(contents: Contents) -> dict[str, str]:
    """Reasons by file."""
    return {problem.path: problem.reason for problem in contents.problems}


def test_config_and_one_file() -> None:
    """The usual small model."""
    contents = read_contents(Shelf({"config.json": b'{"a": 1}', "model.safetensors": weights("w")}))
    assert contents.configs == {"config.json": {"a": 1}}
    assert seen(contents) == {"model.safetensors": ["w"]}
    assert not contents.problems


@pytest.mark.parametrize("files", [{}, {"README.md": b"# hello"}])
def test_nothing_to_read(files: dict[str, bytes]) -> None:
    """Nothing is asked for that the listing does not name."""
    shelf = Shelf(files)
    assert read_contents(shelf) == Contents()
    assert shelf.read_paths == []


def test_one_whole_file_is_preferred() -> None:
    """The same weights in shards are left alone."""
    shelf = Shelf({**THREE_SHARDS, INDEX: WHOLE_INDEX, "model.safetensors": weights("w")})
    assert list(seen(read_contents(shelf))) == ["model.safetensors"]
    assert shelf.read_paths == ["model.safetensors"]


def test_an_index_and_its_shards() -> None:
    """Every shard's header, in the order of names, and what the index claims."""
    contents = read_contents(Shelf({**THREE_SHARDS, INDEX: WHOLE_INDEX}))
    assert seen(contents) == {ONE: ["a"], TWO: ["b"], THREE: ["c"]}
    (read,) = contents.indexes
    assert (read.path, read.total_size_bytes) == (INDEX, 72)
    assert read.weight_map == {"a": ONE, "b": TWO, "c": THREE}
    assert not contents.problems


def test_the_index_has_the_last_word() -> None:
    """A shard that it does not name is not counted, and that is said; a strange name that it does name is read."""
    shelf = Shelf(
        {**THREE_SHARDS, "extra.safetensors": weights("d"), INDEX: index({"a": ONE, "d": "extra.safetensors"})}
    )
    contents = read_contents(shelf)
    assert seen(contents) == {"extra.safetensors": ["d"], ONE: ["a"]}
    assert problems(contents) == dict.fromkeys((TWO, THREE), f"not named by `{INDEX}`; not counted")


def test_a_shard_that_is_not_there() -> None:
    """It is missed by name, and the others are still read."""
    files = {ONE: THREE_SHARDS[ONE], THREE: THREE_SHARDS[THREE], INDEX: WHOLE_INDEX}
    contents = read_contents(Shelf(files))
    assert list(seen(contents)) == [ONE, THREE]
    assert problems(contents) == {TWO: f"named by `{INDEX}` but not in the repository"}


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"weight_map": []}', index({"a": "../../etc/passwd"}), b'{"weight_map": {"a": 1}}']
)
def test_an_index_that_cannot_be_used(broken: bytes) -> None:
    """The shards that look like shards are read without it."""
    contents = read_contents(Shelf({**THREE_SHARDS, INDEX: broken}))
    assert list(seen(contents)) == [ONE, TWO, THREE]
    assert list(problems(contents)) == [INDEX]
    assert not contents.indexes


def test_shards_without_an_index() -> None:
    """They are read by their names, and a gap in the numbers is no small model."""
    assert list(seen(read_contents(Shelf(THREE_SHARDS)))) == [ONE, TWO, THREE]
    contents = read_contents(Shelf({TWO: THREE_SHARDS[TWO]}))
    assert list(seen(contents)) == [TWO]
    assert problems(contents) == {ONE: "not in the repository, nor are 1 more of its shards"}


def test_a_gap_is_seen_behind_a_broken_index_too() -> None:
    """Two things are wrong, and both are said."""
    contents = read_contents(Shelf({ONE: THREE_SHARDS[ONE], THREE: THREE_SHARDS[THREE], INDEX: b"{"}))
    assert problems(contents).keys() == {INDEX, TWO}


def test_a_file_that_breaks_its_format() -> None:
    """It becomes a problem, and the rest is read."""
    contents = read_contents(Shelf({"config.json": b"{}", ONE: b"short", TWO: weights("b")}))
    assert contents.configs == {"config.json": {}}
    assert list(seen(contents)) == [TWO]
    assert problems(contents)[ONE] == "at byte 0: too short for safetensors: 5 bytes"


@pytest.mark.parametrize("config", [b"", b"nope", b"[]", b"\xff", b'{"a":' * 100_000])
def test_a_config_that_cannot_be_read(config: bytes) -> None:
    """The weights still tell what they can."""
    contents = read_contents(Shelf({"config.json": config, "model.safetensors": weights("w")}))
    assert (list(seen(contents)), contents.configs) == (["model.safetensors"], {})
    assert list(problems(contents)) == ["config.json"]


def test_a_file_listed_and_gone() -> None:
    """The listing and the store may disagree."""
    shelf = Shelf({"config.json": b"{}", "model.safetensors": b""}, broken={"config.json": NotFoundError("gone")})
    contents = read_contents(shelf)
    assert problems(contents)["config.json"] == "in the listing, but the file itself is not there"


@pytest.mark.parametrize("path", ["config.json", ONE, THREE, INDEX])
@pytest.mark.parametrize("failure", [NetworkError("the network failed"), AccessError("you may not")])
def test_a_failure_of_the_network_ends_it(path: str, failure: Exception) -> None:
    """Half an answer would be a wrong one."""
    shelf = Shelf({"config.json": b"{}", **THREE_SHARDS, INDEX: WHOLE_INDEX}, broken={path: failure})
    with pytest.raises(type(failure)):
        read_contents(shelf)


def test_a_failure_leaves_the_rest_unasked() -> None:
    """Of a gated model with many shards, most are never asked for."""
    files = {shard_name(number, 200): b"" for number in range(1, 201)}
    shelf = Shelf(
        files, broken=dict.fromkeys(files, AccessError("gated")), parallel=2, before=lambda _: time.sleep(0.05)
    )
    with pytest.raises(AccessError):
        read_contents(shelf)
    assert len(shelf.read_paths) < 100


def test_files_are_read_side_by_side() -> None:
    """All three shards, the index and the config are on their way before any is there."""
    together = threading.Barrier(5, timeout=20)

    def wait(_: str) -> None:
        together.wait()

    shelf = Shelf({"config.json": b"{}", **THREE_SHARDS, INDEX: WHOLE_INDEX}, parallel=5, before=wait)
    assert len(read_contents(shelf).weights) == 3


# --- all headers at once -------------------------------------------------------------------------------------------------


def served(**changes: Any) -> tuple[Json, Mapping[str, Json]]:
    """The Hub's answer for the three shards, with ``changes`` by shard name."""
    headers = {path: header(content) for path, content in THREE_SHARDS.items()}
    return {"total_size": 72}, {**headers, **changes}


def test_served_headers_are_as_good_as_read_ones() -> None:
    """The same tensors, without a read, but for the map, which the Hub leaves out."""
    files = {**THREE_SHARDS, INDEX: WHOLE_INDEX}
    shelf = Shelf(files, served=served())
    contents, by_range = read_contents(shelf), read_contents(Shelf(files))
    assert shelf.read_paths == []
    assert contents.weights == by_range.weights
    assert contents.indexes[0].total_size_bytes == 72
    assert contents.indexes[0].weight_map == {}


@pytest.mark.parametrize("lacking", [(ONE,), (ONE, TWO, THREE)])
def test_served_headers_must_be_complete(lacking: tuple[str, ...]) -> None:
    """A shard that the listing names and the answer lacks would be missed in every sum: then all is read by range."""
    metadata, headers = served()
    partial = {path: value for path, value in headers.items() if path not in lacking}
    shelf = Shelf({**THREE_SHARDS, INDEX: WHOLE_INDEX}, served=(metadata, partial))
    assert list(seen(read_contents(shelf))) == [ONE, TWO, THREE]
    assert sorted(shelf.read_paths) == sorted([ONE, TWO, THREE, INDEX])


def test_a_served_shard_that_the_listing_lacks() -> None:
    """It is missed by name, as with an index that was read."""
    shelf = Shelf({**THREE_SHARDS, INDEX: WHOLE_INDEX}, served=served(**{"gone.safetensors": {}}))
    assert problems(read_contents(shelf)) == {"gone.safetensors": f"named by `{INDEX}` but not in the repository"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not a JSON object"),
        ([], "not a JSON object"),
        ({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 20]}}, "needs 24 bytes"),
        ({"a": {"dtype": "F32", "shape": [2000, 3], "data_offsets": [0, 24000]}}, "cut off"),
    ],
)
def test_a_served_header_is_checked_like_any(value: Json, words: str) -> None:
    """The Hub decodes; whether it makes sense, and fits the file's size, is for us to see."""
    contents = read_contents(Shelf({**THREE_SHARDS, INDEX: WHOLE_INDEX}, served=served(**{TWO: value})))
    assert list(seen(contents)) == [ONE, THREE]
    assert words in problems(contents)[TWO]
