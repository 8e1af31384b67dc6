"""`--plot FILE`: three endings, and a refusal before anything is read."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit.cli import _run

if TYPE_CHECKING:
    from pathlib import Path

MODEL = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a run."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
    return _run()


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<svg "), ("html", b"<!DOCTYPE html>"), ("png", b"\x89PNG")])
def test_the_ending_says_what_is_written(
    ending: str, start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SVG, a page, or pixels; the report itself is printed as ever."""
    if ending == "png":
        pytest.importorskip("resvg_py")
    file = tmp_path / f"picture.{ending}"
    assert run(monkeypatch, MODEL, "--gpu", "4090", "--plot", str(file)) == 0
    assert file.read_bytes().startswith(start)
    assert "494,032,768 parameters" in capsys.readouterr().out
    if ending == "png":
        width, height = struct.unpack(">II", file.read_bytes()[16:24])
        assert width == 1600
        assert height > 1000


def test_a_name_that_says_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is read, which does not even exist."""
    assert run(monkeypatch, "no/such-folder/at-all", "--plot", "picture.bmp") == 2
    assert "--plot writes .svg, .png, .html" in capsys.readouterr().err


def test_without_the_extra_png_is_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint names the extra and what works without."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert run(monkeypatch, MODEL, "--plot", "picture.png") == 2
    err = capsys.readouterr().err
    assert "hubaudit[plot]" in err
    assert ".svg" in err


def test_a_file_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and the usage code."""
    assert run(monkeypatch, MODEL, "--plot", str(tmp_path / "no" / "folder.svg")) == 2
    assert "cannot write" in capsys.readouterr().err
