"""Folders, files, and the two caches: a model audited without the Hub."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from local_hub import safetensors_prefix
from small_repos import (
    CONFIG,
    INDEX,
    PARAMETERS,
    TENSORS,
    asked,
    fetch_quickly,
    one_file,
    parameters,
    sharded,
    shards_of,
)

from hubaudit.errors import CannotAuditError, HubauditError, MalformedFileError, NotFoundError, OfflineError
from hubaudit.hub import fetch, local
from hubaudit.hub.local import LocalFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local_hub import LocalHub, SparseFile


def lay(folder: Path, files: Mapping[str, bytes | str | SparseFile]) -> Path:
    """Write files; of sparse ones only the start, the rest is a hole."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, (bytes, str)):
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            file.write_bytes(content.prefix)
            os.truncate(file, content.size)
    return folder


WEIGHTS = safetensors_prefix(TENSORS)
MODEL: dict[str, bytes | str | SparseFile] = {"config.json": json.dumps(CONFIG), "model.safetensors": WEIGHTS}


def test_a_folder(tmp_path: Path) -> None:
    """Config and weights, the listing with sizes, and no commit."""
    snapshot = fetch(str(lay(tmp_path, {**MODEL, "onnx/model.onnx": b"123"})))
    assert (snapshot.repo_id, snapshot.source, snapshot.commit, snapshot.revision) == (
        str(tmp_path),
        "local",
        None,
        None,
    )
    assert parameters(snapshot) == PARAMETERS
    assert snapshot.configs == {"config.json": CONFIG}
    assert [(file.path, file.size_bytes) for file in snapshot.files] == [
        ("config.json", len(json.dumps(CONFIG))),
        ("model.safetensors", WEIGHTS.size),
        ("onnx/model.onnx", 3),
    ]


def test_a_folder_is_read_as_the_repository_is(tmp_path: Path, local_hub: LocalHub) -> None:
    """The same files give the same configs, weights and index, wherever they lie."""
    repo = sharded()
    local_hub.add(repo)
    lay(tmp_path, {path: blob.content for path, blob in repo.commits[repo.sha].items()})
    here, there = fetch(str(tmp_path)), fetch_quickly("org/sharded", revision=repo.sha)
    assert (here.configs, here.weights, here.indexes) == (there.configs, there.weights, there.indexes)
    assert here.files == there.files
    assert parameters(here) == PARAMETERS


@pytest.mark.parametrize(
    ("files", "configs", "weights"),
    [({"config.json": "{}"}, 1, 0), ({"model.safetensors": WEIGHTS}, 0, 1), ({"notes.txt": "x"}, 0, 0), ({}, 0, 0)],
)
def test_a_folder_with_less(tmp_path: Path, files: dict[str, str | SparseFile], configs: int, weights: int) -> None:
    """One witness, or none: what is there is read."""
    snapshot = fetch(str(lay(tmp_path, files)))
    assert (len(snapshot.configs), len(snapshot.weights), snapshot.problems) == (configs, weights, ())


def test_links_are_followed_to_files_and_not_to_folders(tmp_path: Path) -> None:
    """huggingface_hub's cache is made of links to files; a link to a folder may lead in a circle."""
    store = lay(tmp_path / "store", MODEL)
    folder = tmp_path / "model"
    folder.mkdir()
    for name in MODEL:
        (folder / name).symlink_to(store / name)
    (folder / "round").symlink_to(folder)
    (folder / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    snapshot = fetch(str(folder))
    assert [file.path for file in snapshot.files] == ["config.json", "model.safetensors"]
    assert parameters(snapshot) == PARAMETERS


def test_hidden_files_and_odd_names_are_no_part_of_a_model(tmp_path: Path) -> None:
    """What git and the downloader leave behind is passed over, and so is a name that no repository can have."""
    lay(tmp_path, {**MODEL, ".git/config": "x", ".cache/huggingface/x.json": "x", "a\nb.safetensors": b"x"})
    assert [file.path for file in fetch(str(tmp_path)).files] == ["config.json", "model.safetensors"]


def test_a_folder_that_is_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's whole disk is not listed."""
    monkeypatch.setattr(local, "_MAX_FILES", 10)
    for number in range(3):
        lay(tmp_path / f"sub{number}", {f"{name}.txt": "x" for name in range(5)})
    with pytest.raises(CannotAuditError, match="more than 10 files") as caught:
        fetch(str(tmp_path))
    assert caught.value.exit_code == 5
    assert caught.value.hint


def test_a_deep_folder_has_a_floor(tmp_path: Path) -> None:
    """Models are not nested so deep, and a tree of folders may be."""
    lay(tmp_path, {"config.json": "{}", "/".join("abcdefghijkl") + "/x.json": "{}"})
    assert [file.path for file in fetch(str(tmp_path)).files] == ["config.json"]


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    """It would wait for ever."""
    lay(tmp_path, {"config.json": "{}"})
    os.mkfifo(tmp_path / "model.safetensors")
    assert [file.path for file in fetch(str(tmp_path)).files] == ["config.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_what_may_not_be_read(tmp_path: Path) -> None:
    """An unreadable file is a problem of that file; an unreadable folder, of the audit."""
    lay(tmp_path, MODEL)
    (tmp_path / "config.json").chmod(0)
    assert [problem.path for problem in fetch(str(tmp_path)).problems] == ["config.json"]
    tmp_path.chmod(0)
    try:
        with pytest.raises(CannotAuditError, match="cannot list"):
            fetch(str(tmp_path))
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    """Between looking and listing anything may happen."""
    with pytest.raises(CannotAuditError, match=re.escape(f"cannot list `{tmp_path / 'gone'}`")) as caught:
        local.read_folder(str(tmp_path / "gone"))
    assert caught.value.hint
    with pytest.raises(NotFoundError, match="cannot read"):
        LocalFile(tmp_path / "gone", "gone")
    with pytest.raises(MalformedFileError, match="not a regular file"):
        LocalFile(tmp_path, "folder")


def test_a_large_config_in_a_folder(tmp_path: Path) -> None:
    """It is not read at all."""
    lay(tmp_path, {**MODEL, "config.json": b"{}"})
    os.truncate(tmp_path / "config.json", 20_000_000)
    (problem,) = fetch(str(tmp_path)).problems
    assert problem.reason == "larger than 10000000 bytes"


# --- a file on its own ---------------------------------------------------------------------------------------------------


def test_a_weight_file_on_its_own(tmp_path: Path) -> None:
    """Its tensors, and nothing else of the folder it lies in."""
    lay(tmp_path, MODEL)
    snapshot = fetch(str(tmp_path / "model.safetensors"))
    assert (parameters(snapshot), snapshot.configs) == (PARAMETERS, {})
    assert [(file.path, file.size_bytes) for file in snapshot.files] == [("model.safetensors", WEIGHTS.size)]


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", WEIGHTS.prefix])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    """The reason in one line, and exit code 5."""
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(MalformedFileError) as caught:
        fetch(str(tmp_path / "x.safetensors"))
    assert caught.value.exit_code == 5
    assert caught.value.message.isprintable()


def test_a_local_file_is_read_by_range(tmp_path: Path) -> None:
    """Short reads happen at the end only."""
    (tmp_path / "x").write_bytes(bytes(range(100)))
    file = LocalFile(tmp_path / "x", "x")
    assert (file.size_bytes, file.read(90, 20), file.read(200, 5)) == (100, bytes(range(90, 100)), b"")


# --- without the Hub -----------------------------------------------------------------------------------------------------


def test_offline_from_our_own_cache(local_hub: LocalHub) -> None:
    """What was audited once is audited again without a question: by its branch, its tag and its commit."""
    repo = local_hub.add(one_file(tags={"v1": "main"}))
    for revision in (None, "v1"):
        fetch_quickly("org/one", revision=revision)
    local_hub.reset_log()
    for asked_for in (None, "main", "v1", repo.sha):
        snapshot = fetch("org/one", revision=asked_for, offline=True)
        assert (snapshot.source, snapshot.commit, snapshot.revision) == ("cache", repo.sha, asked_for)
        assert parameters(snapshot) == PARAMETERS
    assert local_hub.requests == []


def test_offline_by_an_old_name(local_hub: LocalHub) -> None:
    """Who asked for ``gpt2`` online can ask for ``gpt2`` offline."""
    local_hub.add(one_file(renamed_from=["one"]))
    fetch_quickly("one")
    for name in ("one", "org/one"):
        assert fetch(name, offline=True).repo_id == "org/one"


def test_offline_by_the_clients_setting(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """``HF_HUB_OFFLINE`` means us too."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    fetch_quickly("org/one")
    local_hub.reset_log()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch("org/one").source == "cache"
    assert local_hub.requests == []


@pytest.mark.parametrize("repo", [one_file, sharded])
def test_offline_from_what_huggingface_hub_downloaded(local_hub: LocalHub, repo: object) -> None:
    """A model that transformers loaded can be audited offline, at its branch, its tag and its commit."""
    from huggingface_hub import hf_hub_download

    made = local_hub.add(repo(tags={"v1": "main"}))  # type: ignore[operator]
    for revision in ("main", "v1"):
        for path in made.commits[made.sha]:
            hf_hub_download(made.repo_id, path, revision=revision)
    local_hub.reset_log()
    for asked_for in (None, "main", "v1", made.sha):
        snapshot = fetch(made.repo_id, revision=asked_for, offline=True)
        assert (snapshot.repo_id, snapshot.source, snapshot.commit) == (made.repo_id, "cache", made.sha)
        assert (parameters(snapshot), snapshot.revision, snapshot.problems) == (PARAMETERS, asked_for, ())
    assert local_hub.requests == []


def test_offline_with_a_part_of_the_files(local_hub: LocalHub) -> None:
    """Only the config was downloaded: it is one witness. Of the shards one: the others are missed by name."""
    from huggingface_hub import hf_hub_download

    local_hub.add(sharded())
    hf_hub_download("org/sharded", "config.json")
    snapshot = fetch("org/sharded", offline=True)
    assert (snapshot.configs, snapshot.weights) == ({"config.json": CONFIG}, ())
    for path in (INDEX, "model-00001-of-00004.safetensors"):
        hf_hub_download("org/sharded", path)
    snapshot = fetch("org/sharded", offline=True)
    assert [file.path for file in snapshot.weights] == ["model-00001-of-00004.safetensors"]
    assert [problem.path for problem in snapshot.problems] == [f"model-0000{n}-of-00004.safetensors" for n in (2, 3, 4)]


@pytest.mark.parametrize("revision", [None, "v9", "refs/pr/1", "0" * 40, "../../x", ".."])
def test_offline_and_in_no_cache(local_hub: LocalHub, revision: str | None) -> None:
    """Exit code 4, what is missing, and what would help."""
    local_hub.add(one_file())
    if revision is not None:
        fetch_quickly("org/one")
    local_hub.reset_log()
    with pytest.raises(OfflineError, match=r"offline, and `org/one`.* is not in the cache") as caught:
        fetch("org/one", revision=revision, offline=True)
    assert (caught.value.exit_code, caught.value.kind) == (4, "offline")
    assert caught.value.hint
    assert local_hub.requests == []


@pytest.mark.parametrize("noted", ["", "..", "main", "0" * 40, "\xff", "a" * 5000])
def test_a_note_in_the_cache_that_leads_nowhere(tmp_path: Path, noted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache's own files are not trusted to be whole."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    lay(tmp_path / "models--org--one", {"refs/main": noted.encode("latin-1"), "snapshots/x": "", "config.json": "{}"})
    with pytest.raises(OfflineError):
        fetch("org/one", offline=True)


def test_offline_is_a_wish_of_that_call(local_hub: LocalHub) -> None:
    """Afterwards the Hub is asked again."""
    local_hub.add(one_file())
    with pytest.raises(HubauditError):
        fetch("org/one", offline=True)
    fetch_quickly("org/one")
    assert "info" in asked(local_hub)


def test_a_copied_folder_is_whole(tmp_path: Path) -> None:
    """Shards in a folder, one of them lost on the way."""
    folder = lay(tmp_path / "model", shards_of([TENSORS[:3], TENSORS[3:]]))
    assert parameters(fetch(str(folder))) == PARAMETERS
    shutil.move(folder / "model-00002-of-00002.safetensors", tmp_path)
    assert [problem.path for problem in fetch(str(folder)).problems] == ["model-00002-of-00002.safetensors"]
