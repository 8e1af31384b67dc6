"""Which model a card is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.card.target import cloned_from, target_of
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1000\n"


def said(path: Path, **options: Any) -> tuple[str, str]:
    """Name, and who said it."""
    target = target_of(path / "README.md", **{"repo": None, "marker": {}, "header": {}, **options})
    return target.name, target.said_by


def clone(folder: Path, url: str) -> Path:
    """A clone of that remote."""
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = x\n')
    return folder


def test_in_that_order(tmp_path: Path) -> None:
    """The argument, the marker, the header, the folder's weights, the git remote."""
    clone(tmp_path, "https://huggingface.co/org/cloned")
    assert said(tmp_path) == ("org/cloned", "remote")
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    assert said(tmp_path) == ("org/cloned", "remote")  # without LFS there are no weights to read
    (tmp_path / "model.safetensors").write_bytes(b"x" * 2000)
    assert said(tmp_path) == (str(tmp_path), "folder")
    assert said(tmp_path, header={"model_id": "org/head"}) == ("org/head", "header")
    assert said(tmp_path, header={"model_id": "org/head"}, marker={"repo": "org/mark"}) == ("org/mark", "marker")
    assert said(tmp_path, repo="./x", marker={"repo": "org/mark"}) == ("./x", "argument")


@pytest.mark.parametrize(
    "name", ["../../etc", "/etc/passwd", "https://elsewhere/x", "a/b/c", "./a", "", 3, None, "a/b c"]
)
def test_a_card_names_no_file(name: Any, tmp_path: Path) -> None:
    """What stands in a card may be a repository's id, and nothing else."""
    with pytest.raises(UsageError, match="does not say"):
        said(tmp_path, header={"model_id": name}, marker={"repo": name} if isinstance(name, str) else {})


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://huggingface.co/org/name", "org/name"),
        ("https://user:hf_token@huggingface.co/org/name.git", "org/name"),
        ("git@hf.co:org/name", "org/name"),
        ("https://github.com/org/name", None),
        ("https://huggingface.co/datasets/org/name", None),
        ("https://huggingface.co.evil.example/org/name", None),
    ],
)
def test_remotes(url: str, name: str | None, tmp_path: Path) -> None:
    """Model repositories of the Hub only; a token in the URL goes nowhere."""
    assert cloned_from(clone(tmp_path, url)) == name


def test_no_clone(tmp_path: Path) -> None:
    """A folder without git has no remote."""
    assert cloned_from(tmp_path) is None
