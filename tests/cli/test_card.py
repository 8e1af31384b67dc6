"""`hubaudit card`: checked, written, and its claims held against the model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT
from local_hub import LocalRepo
from shapes import BASE
from small_repos import CONFIG, TENSORS

from hubaudit import cli

if TYPE_CHECKING:
    from pathlib import Path

    from local_hub import LocalHub

QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")
TRUE = "---\nlicense: mit\n---\n# Qwen2\n\n- Number of Parameters: 0.49B\n- Context length: 32K\n"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "card", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err  # type: ignore[return-value]


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A card whose claims are right."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "README.md"
    path.write_text(TRUE, encoding="utf-8")
    return path


def test_check_write_check(card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale: 11 and a diff that is what --write then does; after that 0, no output, and the same bytes."""
    code, diff, _ = run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check")
    assert code == 11
    assert card.read_text(encoding="utf-8") == TRUE
    assert run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--write")[0] == 0
    written = card.read_bytes()
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert written.decode().startswith(TRUE)
    assert [line for line in written.decode()[len(TRUE) :].splitlines() if line] == [line for line in added if line]
    assert b"494,032,768 parameters (BF16)" in written
    assert b"12,288 B a token" in written
    assert run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check")[:2] == (0, "")
    assert run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--write")[0] == 0
    assert card.read_bytes() == written


def test_a_number_that_was_changed_by_hand(
    card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the markers the tool has the last word."""
    run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--write")
    card.write_text(card.read_text(encoding="utf-8").replace("12,288", "12,289"), encoding="utf-8")
    code, out, _ = run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check")
    assert code == 11
    assert "-KV cache: 12,289" in out
    assert "+KV cache: 12,288" in out


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        ("- Number of Parameters: 7B", "card-parameters"),
        ("- Context length: 128K", "card-context"),
        ("- Tensor type: FP32", "card-precision"),
        ("It needs at least 0.2 GB of VRAM in fp16.", "card-memory"),
    ],
)
def test_claims(
    claim: str, rule: str, card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one is told with file, line and rule, and is drift even where the section is current; --ignore is for what one knows."""
    run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--write")
    card.write_text(card.read_text(encoding="utf-8").replace("- Number of Parameters: 0.49B", claim), encoding="utf-8")
    code, out, _ = run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check")
    assert code == 11
    assert out.startswith("README.md:6: warning: the card says")
    assert f"[{rule}]" in out
    assert run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check", "--ignore", rule)[:2] == (0, "")
    annotated = run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check", "--format", "github")[1]
    assert annotated.startswith(f"::warning file=README.md,line=6,title=hubaudit%3A {rule}::")


def test_options_are_kept_in_the_marker(
    card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check makes the section the way it was written, without being told again."""
    run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--write", "--gpu", "rtx 4090", "--training")
    text = card.read_text(encoding="utf-8")
    assert "<!-- hubaudit:begin gpus=rtx_4090 training=yes -->" in text
    assert "Tesla T4" not in text
    assert "| training | need | band |" in text
    assert run(capsys, monkeypatch, "README.md", "--repo", QWEN, "--check")[0] == 0


def test_a_model_on_the_hub(
    card: Path, local_hub: LocalHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named once with --repo, the marker knows it from then on; a new commit of the same model makes nothing stale."""
    import json

    from local_hub import safetensors_prefix

    files = {"config.json": json.dumps(CONFIG), "model.safetensors": safetensors_prefix(TENSORS)}
    local_hub.add(LocalRepo("org/one", files))
    card.write_text("# One\n")
    assert run(capsys, monkeypatch, "--repo", "org/one", "--write")[0] == 0
    assert "<!-- hubaudit:begin repo=org/one -->" in card.read_text()
    assert run(capsys, monkeypatch, "--check")[0] == 0
    local_hub.add(LocalRepo("org/one", {**files, "README.md": card.read_text()}))
    assert run(capsys, monkeypatch, "--check")[0] == 0
    local_hub.add(
        LocalRepo("org/one", {**files, "config.json": json.dumps({**CONFIG, "max_position_embeddings": 128})})
    )
    assert run(capsys, monkeypatch, "--check")[0] == 11


def test_before_the_push(card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A card beside weights is about them; nobody is asked, and no path of this machine gets into the card."""
    for path, content in BASE.items():
        (card.parent / path).write_bytes(content)
    card.write_text("# Tiny\n")
    assert run(capsys, monkeypatch, "--write")[0] == 0
    assert "45,344 parameters" in card.read_text()
    assert str(card.parent) not in card.read_text()
    assert run(capsys, monkeypatch, ".", "--check")[0] == 0


def test_a_monorepo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A glob takes every card with its own model; settings may name it; the worst end is the run's."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        for path, content in {**BASE, "README.md": f"# {name}\n".encode()}.items():
            (tmp_path / "models" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "models" / name / path).write_bytes(content)
    assert run(capsys, monkeypatch, "models/*/README.md", "--write")[0] == 0
    assert run(capsys, monkeypatch, "models/*", "--check")[0] == 0
    (tmp_path / ".hubaudit.toml").write_text('[card]\nfiles = ["models/**/README.md"]\n')
    (tmp_path / "models" / "b" / "README.md").write_text("# b\n")
    code, out, err = run(capsys, monkeypatch, "--check")
    assert code == 11
    assert "+++ b/models/b/README.md" in out
    assert "a/README.md: is up to date" in err
    (tmp_path / "models" / "a" / "config.json").unlink()
    (tmp_path / "models" / "a" / "model.safetensors").unlink()
    assert run(capsys, monkeypatch, "--check")[0] == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere.md",), 3, "no model card"),
        (("README.md",), 2, "does not say which model"),
        (("README.md", "--repo", "x", "--check", "--write"), 2, "not both"),
        (("README.md", "other", "--repo", "x"), 2, "--repo names one model"),
    ],
)
def test_mistakes(
    words: tuple[str, ...],
    code: int,
    said: str,
    card: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line and a hint."""
    (card.parent / "other").write_text("x")
    ended, _, err = run(capsys, monkeypatch, *words)
    assert ended == code
    assert said in err


def test_only_looking(card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --check and --write nothing is written, and the exit code is 0."""
    code, out, err = run(capsys, monkeypatch, "--repo", QWEN)
    assert (code, out) == (0, "")
    assert err == "README.md: has no memory section\n"
    card.write_text("# no header\n")
    assert run(capsys, monkeypatch, "--repo", QWEN)[2] == "README.md: has no memory section\n"
    card.write_text(TRUE)
    assert card.read_text(encoding="utf-8") == TRUE
