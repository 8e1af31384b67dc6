"""Snapshots kept by commit: found again, never mixed up, and no failure where they cannot be kept."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_repos import PARAMETERS, asked, fetch_quickly, one_file, parameters

from hubaudit.errors import OfflineError
from hubaudit.hub import cache as caches
from hubaudit.hub import fetch
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.reference import Reference
from hubaudit.types import RepoSnapshot

if TYPE_CHECKING:
    from local_hub import LocalHub

COMMIT, OTHER = "1" * 40, "2" * 40
SNAPSHOT = RepoSnapshot(
    repo_id="org/one", revision="main", commit=COMMIT, source="hub", configs={"config.json": {"a": 1}}
)


def named(name: str = "org/one", revision: str | None = None) -> Reference:
    """A reference to the Hub."""
    return Reference(kind="hub", name=name, revision=revision)


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    """By its commit; the revision is that of who asks, so it is not kept."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    assert cache.load("org/one", COMMIT) == replace(SNAPSHOT, source="cache", revision=None)
    assert cache.known(named(revision=COMMIT)) == cache.load("org/one", COMMIT)


@pytest.mark.parametrize(("repo_id", "commit"), [("org/one", OTHER), ("org/two", COMMIT), ("org", COMMIT)])
def test_what_was_not_saved_is_not_found(tmp_path: Path, repo_id: str, commit: str) -> None:
    """Another commit or another repository is another snapshot."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    assert cache.load(repo_id, commit) is None


def test_a_name_leads_to_its_commit(tmp_path: Path) -> None:
    """Branches, tags and pull requests, by the name asked for and by the repository's own."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    for revision in (None, "v1", "refs/pr/1", "feature/x"):
        assert cache.known(named("old", revision)) is None
        cache.remember(named("old", revision), "org/one", COMMIT)
        for name in ("old", "org/one"):
            found = cache.known(named(name, revision))
            assert found is not None
            assert found.repo_id == "org/one"
    assert cache.known(named("old", "main")) is not None
    assert cache.known(named("old", "v2")) is None


def test_a_branch_that_moved(tmp_path: Path) -> None:
    """The last word of the Hub counts, also where the new commit was not read."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    cache.remember(named(), "org/one", COMMIT)
    cache.remember(named(), "org/one", OTHER)
    assert cache.known(named()) is None


def test_a_snapshot_without_a_commit_is_not_kept(tmp_path: Path) -> None:
    """A folder may change under its name."""
    SnapshotCache(tmp_path).save(replace(SNAPSHOT, commit=None))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, '{"hubaudit_bundle": 0}', "\0"])
def test_a_spoilt_snapshot_is_read_anew(tmp_path: Path, content: str) -> None:
    """What a crash, or another version, left behind is as good as nothing."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    (file,) = tmp_path.rglob(f"{COMMIT}.json")
    file.write_text(content)
    assert cache.load("org/one", COMMIT) is None


def test_a_snapshot_under_a_wrong_name_is_not_taken(tmp_path: Path) -> None:
    """What the file says of itself must be what was asked for."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    (file,) = tmp_path.rglob(f"{COMMIT}.json")
    file.rename(file.with_name(f"{OTHER}.json"))
    assert cache.load("org/one", OTHER) is None


@pytest.mark.parametrize(
    "note", ["", " ", COMMIT, f"{COMMIT} ", f"{COMMIT} ../../x", f"{COMMIT} a\0b", f"../{COMMIT} org/one", "\xff" * 9]
)
def test_a_spoilt_note_is_no_note(tmp_path: Path, note: str) -> None:
    """No name in it is used before it is seen to be one."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    cache.remember(named(), "org/one", COMMIT)
    (file,) = tmp_path.rglob("ref-main")
    file.write_bytes(note.encode("latin-1"))
    assert cache.known(named()) is None


def test_a_cache_that_cannot_be_written(tmp_path: Path, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the folder's place: every audit asks the Hub, and none fails."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "file"))
    for folder in (None, tmp_path / "file"):
        for _ in range(2):
            assert parameters(fetch_quickly("org/one", cache_dir=folder)) == PARAMETERS
        with pytest.raises(OfflineError):
            fetch("org/one", cache_dir=folder, offline=True)


def test_a_full_disk_is_no_failure(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is there, and only its copy is lost."""

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    local_hub.add(one_file())
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    assert parameters(fetch_quickly("org/one")) == PARAMETERS


def test_a_revision_too_long_for_a_file_name(tmp_path: Path) -> None:
    """It is not remembered, and that is all."""
    cache = SnapshotCache(tmp_path)
    cache.save(SNAPSHOT)
    cache.remember(named(revision="é" * 200), "org/one", COMMIT)
    assert cache.known(named(revision="é" * 200)) is None


def test_the_folder_given_is_the_one_used(local_hub: LocalHub, tmp_path: Path) -> None:
    """Nothing is written elsewhere, and another folder knows nothing."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    fetch_quickly("org/one", cache_dir=tmp_path / "a")
    assert fetch("org/one", cache_dir=tmp_path / "a", offline=True).source == "cache"
    with pytest.raises(OfflineError):
        fetch("org/one", cache_dir=tmp_path / "b", offline=True)
    assert not Path(constants.HF_ASSETS_CACHE).exists() or not list(Path(constants.HF_ASSETS_CACHE).rglob("*.json"))


def test_by_default_it_lies_with_the_clients_assets(local_hub: LocalHub) -> None:
    """Where ``HF_HOME`` or ``HF_ASSETS_CACHE`` say, below our own name."""
    from huggingface_hub import constants

    local_hub.add(one_file())
    fetch_quickly("org/one")
    assert [file.parent.name for file in (Path(constants.HF_ASSETS_CACHE) / "hubaudit").rglob("*.json")] == ["org--one"]


def test_a_version_that_reads_more_reads_anew(local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older version left out is not taken for absent."""
    local_hub.add(one_file())
    fetch_quickly("org/one")
    monkeypatch.setattr(caches, "READS", f"{caches.READS}-and-more")
    local_hub.reset_log()
    fetch_quickly("org/one")
    assert "config.json" in asked(local_hub)


def test_many_write_at_once(tmp_path: Path) -> None:
    """Audits side by side never see half a file."""
    cache = SnapshotCache(tmp_path)
    big = replace(SNAPSHOT, configs={"config.json": {str(number): number for number in range(2000)}})
    cache.save(big)

    def write_and_read(_: int) -> bool:
        cache.save(big)
        return cache.load("org/one", COMMIT) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_and_read, range(80)))
    assert [file.name for file in (tmp_path / "org--one").iterdir()] == [f"{COMMIT}.json"]
