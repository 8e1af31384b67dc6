"""Bundles: all that an audit read, written to one file and read back the same, and files that are no bundle."""

from __future__ import annotations

import gzip
import json
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import BUNDLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_repos import PARAMETERS, fetch_quickly, parameters, sharded

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import HubauditError, MalformedFileError, NotFoundError
from hubaudit.formats.documents import is_repo_path
from hubaudit.hub import bundle as bundles
from hubaudit.hub import fetch
from hubaudit.hub.bundle import read_bundle, write_bundle
from hubaudit.types import (
    ReadProblem,
    RepoFile,
    RepoSnapshot,
    TensorInfo,
    WeightFile,
    WeightIndex,
    WeightSet,
    Workload,
)

if TYPE_CHECKING:
    from pathlib import Path

    from local_hub import LocalHub

TEXT = st.text(max_size=20)
PATHS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20).filter(is_repo_path)
SIZES = st.integers(0, 2**63 - 1)
MAYBE_SIZES = st.none() | SIZES
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
TENSORS = st.builds(TensorInfo, TEXT, TEXT, st.lists(SIZES, max_size=4).map(tuple), SIZES)
WEIGHT_SETS = st.lists(
    st.builds(
        WeightSet,
        format=TEXT,
        files=st.lists(PATHS, max_size=2).map(tuple),
        size_bytes=MAYBE_SIZES,
        variant=st.none() | TEXT,
        index=st.none() | PATHS,
        missing=st.lists(PATHS, max_size=2).map(tuple),
        note=st.none() | TEXT,
    ),
    max_size=2,
).map(tuple)
ALONE = st.builds(
    RepoSnapshot,
    repo_id=TEXT,
    revision=st.none() | TEXT,
    commit=st.none() | TEXT,
    source=st.just("bundle"),
    files=st.lists(st.builds(RepoFile, path=PATHS, size_bytes=MAYBE_SIZES), max_size=3).map(tuple),
    configs=st.dictionaries(PATHS, OBJECTS, max_size=2),
    weights=st.lists(
        st.builds(
            WeightFile,
            path=PATHS,
            size_bytes=MAYBE_SIZES,
            format=TEXT,
            tensors=st.lists(TENSORS, max_size=3).map(tuple),
            metadata=OBJECTS,
        ),
        max_size=2,
    ).map(tuple),
    indexes=st.lists(
        st.builds(
            WeightIndex, path=PATHS, total_size_bytes=MAYBE_SIZES, weight_map=st.dictionaries(TEXT, PATHS, max_size=3)
        ),
        max_size=2,
    ).map(tuple),
    card=st.none() | TEXT,
    library_name=st.none() | TEXT,
    hub_parameters=st.none() | st.dictionaries(TEXT, SIZES, max_size=2),
    problems=st.lists(st.builds(ReadProblem, path=TEXT, reason=TEXT), max_size=2).map(tuple),
    chosen=WEIGHT_SETS,
    others=WEIGHT_SETS,
    base=st.none(),
    base_reason=st.none() | TEXT,
)
SNAPSHOTS = st.builds(lambda snapshot, base: replace(snapshot, base=base), ALONE, st.none() | ALONE)
IN_A_FOLDER = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
@given(snapshot=SNAPSHOTS)
@IN_A_FOLDER
def test_what_is_written_is_read_back(snapshot: RepoSnapshot, name: str, tmp_path: Path) -> None:
    """Every snapshot, whatever text it holds, lone surrogates of a config too."""
    write_bundle(snapshot, tmp_path / name)
    assert read_bundle(tmp_path / name) == snapshot


def test_the_same_snapshot_gives_the_same_bytes(tmp_path: Path) -> None:
    """No time and no path of this machine gets in, so that fixtures can be compared."""
    snapshot = read_bundle(BUNDLES[0])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_bundle(snapshot, tmp_path / folder / "x.json.gz")
    assert (tmp_path / "a" / "x.json.gz").read_bytes() == (tmp_path / "b" / "x.json.gz").read_bytes()
    assert str(tmp_path).encode() not in gzip.decompress((tmp_path / "a" / "x.json.gz").read_bytes())


def test_a_bundle_replays_the_audit(local_hub: LocalHub, tmp_path: Path) -> None:
    """What was read of the Hub, saved, and audited again without it."""
    local_hub.add(sharded())
    snapshot = fetch_quickly("org/sharded", token="hf_secret")
    write_bundle(snapshot, tmp_path / "x.json.gz")
    local_hub.reset_log()
    again = fetch(str(tmp_path / "x.json.gz"))
    assert again.source == "bundle"
    assert (again.weights, again.configs, again.indexes) == (snapshot.weights, snapshot.configs, snapshot.indexes)
    assert (again.repo_id, again.commit, parameters(again)) == ("org/sharded", snapshot.commit, PARAMETERS)
    assert local_hub.requests == []
    assert b"hf_secret" not in gzip.decompress((tmp_path / "x.json.gz").read_bytes())


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves the old bundle, and no draft."""
    from pathlib import Path as AnyPath

    snapshot = read_bundle(BUNDLES[0])
    target = tmp_path / "x.json"
    target.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AnyPath, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_bundle(snapshot, target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_others_may_read_a_bundle(tmp_path: Path) -> None:
    """It gets the rights that the user's files get, not those of a temporary file."""
    write_bundle(read_bundle(BUNDLES[0]), tmp_path / "x.json")
    (tmp_path / "y.json").write_text("")
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == stat.S_IMODE((tmp_path / "y.json").stat().st_mode)


# --- what is no bundle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{}", "is no hubaudit bundle"),
        (b"[]", "not an object"),
        (b'{"hidden_size": 64}', "is no hubaudit bundle"),
        (b'{"hubaudit_bundle": 3}', "is a bundle of version 3"),
        (b'{"hubaudit_bundle": true}', "is a bundle of version True"),
        (b'{"hubaudit_bundle": "\xc3\xa9"}', r"is a bundle of version '\\xe9'"),
        (b'{"hubaudit_bundle": 1}', "not what a bundle holds: KeyError 'repo_id'"),
        (b"\x1f\x8b", "cut off"),
        (b"\x1f\x8b\x08nonsense", "broken gzip"),
        (gzip.compress(b"{}", mtime=0)[:-1], "cut off"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_bundle(tmp_path: Path, content: bytes, words: str) -> None:
    """One line that says why, and exit code 5."""
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(MalformedFileError, match=words) as caught:
        fetch(str(tmp_path / "x.json"))
    assert caught.value.exit_code == 5
    assert caught.value.message.isprintable()


def test_a_bundle_that_is_gone(tmp_path: Path) -> None:
    """Between looking and reading anything may happen."""
    for path in (tmp_path / "gone.json", tmp_path):
        with pytest.raises(NotFoundError, match="cannot read the bundle") as caught:
            read_bundle(path)
        assert caught.value.exit_code == 3
        assert caught.value.hint


def test_a_bundle_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of gzip may be a gigabyte of nothing, and a file may be a hole."""
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 1_000_000)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    (tmp_path / "hole.json").touch()
    os.truncate(tmp_path / "hole.json", 10**12)
    for name in ("bomb.json.gz", "hole.json"):
        with pytest.raises(MalformedFileError, match="larger than a bundle may be"):
            read_bundle(tmp_path / name)


SMALL: dict[str, Any] = {
    "hubaudit_bundle": 1,
    "repo_id": "org/x",
    "revision": None,
    "commit": None,
    "library_name": None,
    "files": [["a", 1]],
    "configs": {"config.json": {}},
    "weights": [
        {
            "path": "model.safetensors",
            "size_bytes": None,
            "format": "safetensors",
            "metadata": {},
            "tensors": [["w", "F32", [2, 3], 24]],
        }
    ],
    "indexes": [{"path": "model.safetensors.index.json", "total_size": 24, "weight_map": {"w": "model.safetensors"}}],
    "card": None,
    "hub_parameters": {"F32": 6},
    "problems": [{"path": "x", "reason": "y"}],
}


COLUMNS = {"kinds": [["F32", [2, 3], 24]], "names": ["w"], "kind_of": [0]}


def test_the_small_bundle_is_one(tmp_path: Path) -> None:
    """Without which the next test would prove nothing. Tensors stand in rows, as version 1 has them, or in columns."""
    for tensors in (SMALL["weights"][0]["tensors"], COLUMNS):
        (tmp_path / "x.json").write_text(
            json.dumps({**SMALL, "weights": [{**SMALL["weights"][0], "tensors": tensors}]})
        )
        assert read_bundle(tmp_path / "x.json").weights[0].tensors == (TensorInfo("w", "F32", (2, 3), 24),)


@pytest.mark.parametrize(
    "change",
    [
        {"repo_id": 5},
        {"repo_id": None},
        {"commit": []},
        {"files": None},
        {"files": [["a"]]},
        {"files": [["../a", 1]]},
        {"files": [["a", -1]]},
        {"files": [["a", 1.5]]},
        {"files": ["ab"]},
        {"files": 5},
        {"configs": []},
        {"configs": {"config.json": []}},
        {"configs": {"/etc/passwd": {}}},
        {"weights": {"a": 1}},
        {"weights": [5]},
        {"weights": [{}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", "F32", [2, True], 8]]}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", "F32", [2, -3], 24]]}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", 5, [2, 3], 24]]}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", "F32", "23", 24]]}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", "F32", [2, 3], 2**63]]}]},
        {"weights": [{**SMALL["weights"][0], "tensors": [["w", "F32"]]}]},
        *(
            {"weights": [{**SMALL["weights"][0], "tensors": COLUMNS | change}]}
            for change in (
                {"names": ["w", "x"]},
                {"names": [5]},
                {"names": "w", "kind_of": [1]},
                {"kind_of": [-1]},
                {"kind_of": [True], "kinds": COLUMNS["kinds"] * 2},
                {"kind_of": None},
                {"kinds": [["F32", [2, 3]]]},
                {"kinds": [["F32", "23", 24]]},
                {"kinds": [["F32", [2, 3], -1]]},
            )
        ),
        {"weights": [{**SMALL["weights"][0], "metadata": None}]},
        {"indexes": [{}]},
        {"indexes": [{"path": "a", "total_size": "24", "weight_map": {}}]},
        {"indexes": [{"path": "a", "total_size": 24, "weight_map": {"w": "../x"}}]},
        {"hub_parameters": {"F32": "many"}},
        {"hub_parameters": []},
        {"card": 5},
        {"problems": [{}]},
        {"problems": [{"path": 1, "reason": "y"}]},
    ],
)
def test_a_bundle_with_something_else_in_it(tmp_path: Path, change: dict[str, Any]) -> None:
    """Bundles come from strangers: what is not of the right kind is refused, in one printable line."""
    (tmp_path / "x.json").write_text(json.dumps({**SMALL, **change}))
    with pytest.raises(MalformedFileError, match="not what a bundle holds") as caught:
        read_bundle(tmp_path / "x.json")
    assert caught.value.message.isprintable()


@st.composite
def _changed(draw: st.DrawFn) -> Any:
    """``SMALL`` with one value at any depth replaced by any other."""
    changed = json.loads(json.dumps(SMALL))
    at: Any = changed
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = draw(st.sampled_from(keys))
        if isinstance(at[key], (dict, list)) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        at[key] = draw(JSON)
        return changed


@given(content=_changed() | JSON)
@IN_A_FOLDER
def test_no_bundle_crashes_the_audit(content: Any, tmp_path: Path) -> None:
    """A changed bundle is audited or refused; nothing else is raised, here or in the rooms after."""
    (tmp_path / "x.json").write_text(json.dumps(content))
    try:
        audit_snapshot(fetch(str(tmp_path / "x.json")), Workload())
    except HubauditError as error:
        assert error.exit_code in (2, 5)  # noqa: PT017 - either end is right
