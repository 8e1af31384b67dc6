"""A folder that a stranger filled: links that lead out of it, and what of it may be handed on."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from small_repos import CONFIG
from weight_bytes import safetensors

from hubaudit import cli
from hubaudit.auditing import audit_snapshot
from hubaudit.hub import fetch
from hubaudit.hub.bundle import read_bundle
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model, as git would lay it out."""
    made = tmp_path / "at-home" / "model"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "model.safetensors").write_bytes(safetensors({"w": ("F32", (2, 2))}))
    return made


def bundled(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `hubaudit bundle`."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "bundle", str(folder), "-o", str(target)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("name", ["README.md", "config.json", "adapter_config.json"])
def test_a_link_to_a_secret_goes_into_no_bundle(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Git makes the links that a repository has: one to a file of secrets must not travel with a bug report."""
    secret = tmp_path / "credentials"
    secret.write_text(json.dumps({"auths": "hunter2"}))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    assert bundled(folder, tmp_path / "x.json", monkeypatch) == 2
    assert not (tmp_path / "x.json").exists()
    error = capsys.readouterr().err
    assert "is a link to a file outside of the folder" in error
    assert "hunter2" not in error


def test_links_within_the_folder_are_its_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link from one name to another in the folder says nothing that the folder does not."""
    (folder / "config.json").rename(folder / "real.json")
    (folder / "config.json").symlink_to("real.json")
    assert bundled(folder, tmp_path / "x.json", monkeypatch) == 0
    assert read_bundle(tmp_path / "x.json").configs == {"config.json": CONFIG}


def test_a_snapshot_of_the_cache_is_made_of_links(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface_hub keeps the files beside its snapshots: those are the repository's own."""
    home = tmp_path / "models--org--name"
    (home / "blobs").mkdir(parents=True)
    snapshot = home / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        path.rename(home / "blobs" / path.name)
        (snapshot / path.name).symlink_to(home / "blobs" / path.name)
    assert bundled(snapshot, tmp_path / "x.json", monkeypatch) == 0


def test_a_bundle_names_no_path_of_this_machine(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called as the folder is, and not by the way there."""
    assert bundled(folder, tmp_path / "x.json", monkeypatch) == 0
    assert "at-home" not in (tmp_path / "x.json").read_text()
    assert read_bundle(tmp_path / "x.json").repo_id == "model"


def test_a_link_in_place_of_weights_shows_nothing(folder: Path, tmp_path: Path) -> None:
    """What is no header is said to be none, and its text stays where it is."""
    secret = tmp_path / "id_rsa"
    secret.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(secret)
    report = audit_snapshot(fetch(str(folder)), Workload())
    assert [finding.rule for finding in report.findings if finding.rule == "unreadable-file"]
    assert "PRIVATE" not in repr(report)
    assert "c2VjcmV0" not in repr(report)


def test_what_a_device_would_say_is_no_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Git makes links: one called as the settings are and leading to a device that never ends, or to a pipe, is none."""
    monkeypatch.chdir(folder)
    (folder / ".hubaudit.toml").symlink_to("/dev/zero")
    os.mkfifo(folder / "pyproject.toml")
    monkeypatch.setattr(sys, "argv", ["hubaudit", ".", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["facts"]["layers"] == CONFIG["num_hidden_layers"]


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 5_000, "tool = 5 # hubaudit", "\0", "# " + "x" * 1_000_001],
    ids=["deep", "digits", "tool", "nul", "long"],
)
@pytest.mark.parametrize("name", [".hubaudit.toml", "pyproject.toml"])
def test_settings_that_are_none(
    text: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 2 where it is our own file, and where it is everybody's unless it is far too long."""
    monkeypatch.chdir(folder)
    (folder / name).write_text(f"# hubaudit\n{text}")
    monkeypatch.setattr(sys, "argv", ["hubaudit", ".", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    is_refused = name == ".hubaudit.toml" or len(text) > 1_000_000
    assert ended.value.code == (2 if is_refused else 0)
    assert ("error: " in capsys.readouterr().err) == is_refused


@pytest.mark.parametrize("hostile", ["pipe", "url"])
def test_a_clone_whose_git_config_is_a_trap(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`card` asks the clone where it came from: a pipe there would never answer, and an address may be none."""
    (tmp_path / "README.md").write_text("# Card\n")
    (tmp_path / ".git").mkdir()
    if hostile == "pipe":
        os.mkfifo(tmp_path / ".git" / "config")
    else:
        (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = https://[x\n')
    monkeypatch.setattr(sys, "argv", ["hubaudit", "card", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "does not say which model it is about" in capsys.readouterr().err


def test_a_card_larger_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hole of a terabyte is not read to be told that it is too large."""
    (tmp_path / "README.md").touch()
    os.truncate(tmp_path / "README.md", 10**12)
    monkeypatch.setattr(sys, "argv", ["hubaudit", "card", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "is larger than a card" in capsys.readouterr().err
