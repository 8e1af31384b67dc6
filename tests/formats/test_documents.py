"""JSON documents of a repository: configs, indexes, and the names of files that they hold."""

from __future__ import annotations

import json
import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import MalformedFileError
from hubaudit.formats.documents import (
    MAX_PATH_CHARACTERS,
    declared_total,
    is_repo_path,
    parse_array,
    parse_index,
    parse_object,
)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "content", [b'{"a": [1, 2.5, null]}', b'\xef\xbb\xbf{"a": [1, 2.5, null]}', b' \n{"a":[1,2.5,null]}\r\n']
)
def test_an_object(content: bytes) -> None:
    """With a byte order mark too, as some editors write it."""
    assert parse_object(content, "config.json") == {"a": [1, 2.5, None]}


def test_what_pythons_json_takes_is_taken() -> None:
    """Configs are loaded with Python's ``json``, which knows NaN and Infinity, and lets the last of two equal keys count."""
    config = parse_object(b'{"a": 1, "a": 2, "b": Infinity, "c": "\\ud800"}', "config.json")
    assert config == {"a": 2, "b": float("inf"), "c": "\ud800"}


def test_keys_may_be_required_to_differ() -> None:
    """Where two readers could see two things."""
    with pytest.raises(MalformedFileError, match="the key 'a' appears twice"):
        parse_object(b'{"a": 1, "a": 2}', "x.json", may_repeat_keys=False)


@pytest.mark.parametrize(
    ("content", "reason", "offset"),
    [
        (b"", "not JSON: Expecting value", 0),
        (b"{", "not JSON: Expecting property name enclosed in double quotes", 1),
        (b'{"a": nope}', "not JSON: Expecting value", 6),
        ('{"é名": nope}'.encode(), "not JSON: Expecting value", 10),
        (b"\xef\xbb\xbf" + '{"é": nope}'.encode(), "not JSON: Expecting value", 10),
        (b"{}{}", "not JSON: Extra data", 2),
        (b'{"a": "\xff"}', "not UTF-8", 7),
        (b"\xff\xfe{\0}\0", "not UTF-8", 0),
        (b"[]", "holds a JSON list, not an object", 0),
        (b'"text"', "holds a JSON str, not an object", 0),
        (b"null", "holds a JSON NoneType, not an object", 0),
        (b'{"a":' * 200_000, "JSON nested too deeply", None),
    ],
)
def test_what_is_no_object(content: bytes, reason: str, offset: int | None) -> None:
    """The file, the byte and the reason, in one line."""
    with pytest.raises(MalformedFileError) as caught:
        parse_object(content, "config.json")
    assert (caught.value.path, caught.value.reason, caught.value.offset) == ("config.json", reason, offset)
    assert caught.value.message.isprintable()
    assert caught.value.exit_code == 5


def test_a_number_without_end() -> None:
    """Python refuses to convert it, and so do we."""
    with pytest.raises(MalformedFileError, match="not acceptable JSON"):
        parse_object(b'{"a": ' + b"9" * 5000 + b"}", "config.json")


def test_an_array() -> None:
    """A table of modules is a list; an object in its place is none."""
    assert parse_array(b'[{"idx": 0}]', "modules.json") == {"items": [{"idx": 0}]}
    with pytest.raises(MalformedFileError, match="holds a JSON dict, not an array"):
        parse_array(b"{}", "modules.json")


@given(content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_document_or_refused(content: bytes) -> None:
    """Nothing else is raised, by any of the readers."""
    for parse in (parse_object, parse_array, parse_index):
        try:
            parse(content, "x.json")
        except MalformedFileError as error:
            assert error.message.isprintable()  # noqa: PT017 - either end is right


@given(value=st.dictionaries(st.text(), JSON))
def test_an_object_comes_back(value: dict[str, Any]) -> None:
    """As Python's ``json`` wrote it."""
    assert parse_object(json.dumps(value).encode(), "x.json") == value


# --- indexes -------------------------------------------------------------------------------------------------------------

INDEX = "model.safetensors.index.json"


def index(**changes: Any) -> bytes:
    """An index of two tensors in two shards."""
    return json.dumps(
        {"metadata": {"total_size": 24}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}, **changes}
    ).encode()


def test_an_index() -> None:
    """The shard of each tensor, and the bytes of all."""
    read = parse_index(index(), INDEX)
    assert (read.path, read.total_size_bytes) == (INDEX, 24)
    assert read.weight_map == {"a": "1.safetensors", "b": "2.safetensors"}


def test_an_index_in_a_folder_names_its_neighbours() -> None:
    """In the result they are paths of the repository."""
    assert parse_index(index(), f"unet/{INDEX}").weight_map == {"a": "unet/1.safetensors", "b": "unet/2.safetensors"}


@pytest.mark.parametrize("weight_map", [None, [], "x", 5, {"a": None}, {"a": 1}, {"a": ["1.safetensors"]}])
def test_an_index_without_a_map(weight_map: Any) -> None:
    """It is of no use."""
    with pytest.raises(MalformedFileError, match="has no `weight_map`"):
        parse_index(index(weight_map=weight_map), INDEX)


HOSTILE = [
    "", ".", "..", "/etc/passwd", "../x", "a/../../x", "../../../../api/whoami-v2", "a/..", "./a", "a/./b", "a//b", "a/",
    "//host/x", "a\\..\\b", "C:\\x", "a\0b", "a\nb", "a\x1b[2Jb", "a\u202eb", "\ud800", "x" * (MAX_PATH_CHARACTERS + 1),
]  # fmt: skip


@pytest.mark.parametrize("shard", HOSTILE)
@pytest.mark.parametrize("path", [INDEX, f"unet/{INDEX}"])
def test_a_shard_outside_the_repository(shard: str, path: str) -> None:
    """No address and no path is made of such a name."""
    if path != INDEX and shard in ("", "../x", "a/..", "/etc/passwd", "//host/x"):
        shard = f"{shard}/../.."
    with pytest.raises(MalformedFileError, match="names a shard outside the repository") as caught:
        parse_index(index(weight_map={"a": shard}), path)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("metadata", "total"),
    [
        ({"total_size": 988065536}, 988065536),
        ({"total_size": 0}, 0),
        ({"total_size": 988065536.0}, 988065536),
        ({"total_size": 1.5}, None),
        ({"total_size": -1}, None),
        ({"total_size": True}, None),
        ({"total_size": "24"}, None),
        ({"total_size": None}, None),
        ({"total_size": 2**63}, None),
        ({"total_size": float("inf")}, None),
        ({"total_size": float("nan")}, None),
        ({}, None),
        (None, None),
        ([], None),
        ("x", None),
    ],
)
def test_the_total_that_an_index_claims(metadata: Any, total: int | None) -> None:
    """Whole bytes, however written; anything else is no claim."""
    assert declared_total(metadata) == total
    assert parse_index(index(metadata=metadata), INDEX).total_size_bytes == total


# --- names of files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", HOSTILE)
def test_a_name_that_leaves_the_repository(path: str) -> None:
    """Absolute, climbing, ambiguous or unprintable."""
    assert not is_repo_path(path)


@pytest.mark.parametrize("path", ["a", "model.safetensors", "unet/config.json", "..a", "a..b", "a/..b", ".gitattributes", "é/名", "a b", "x" * MAX_PATH_CHARACTERS])  # fmt: skip
def test_a_name_in_the_repository(path: str) -> None:
    """Dots at harmless places, spaces and letters of any script are."""
    assert is_repo_path(path)


@given(
    path=st.lists(st.sampled_from(["..", ".", "", "a", "b c", "é", "\\", "~"]), max_size=5).map("/".join) | st.text()
)
def test_a_name_that_passes_stays_inside(path: str) -> None:
    """Joined to any folder, it leads below that folder."""
    if is_repo_path(path):
        assert posixpath.normpath(posixpath.join("/root/folder", path)) == f"/root/folder/{path}"
