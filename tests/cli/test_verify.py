"""`hubaudit verify` where it does not get as far as loading: no torch, no GPU, options that do not go together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hubaudit.cli.verify import command
from hubaudit.errors import CannotAuditError, HubauditError, UsageError
from hubaudit.monitor import gpu
from hubaudit.verify import launch

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = "0, NVIDIA RTX A6000, GPU-0, 550.90.07, 49140, 2\n"


def failure(words: list[str]) -> BaseException | None:
    """What the command raises, which the program turns into a line and an exit code."""
    return CliRunner().invoke(command, words).exception


def test_without_torch_it_says_so_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is the extra to install."""
    monkeypatch.setattr(launch, "find_spec", lambda _: None)
    error = failure(["org/name"])
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert "torch, transformers, accelerate" in error.message
    assert "hubaudit[verify]" in error.hint


def test_gpu_info_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and the exit code of what cannot be told."""
    monkeypatch.setattr(gpu, "_nvml", lambda: None)
    monkeypatch.setattr(gpu, "_output", lambda *_: None)
    error = failure(["--gpu-info"])
    assert isinstance(error, CannotAuditError)
    assert (error.exit_code, error.message) == (5, "no GPU: neither NVML nor nvidia-smi answers")


def test_gpu_info_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Total and driver, in words and as JSON in bytes."""
    monkeypatch.setattr(gpu, "_nvml", lambda: None)
    monkeypatch.setattr(gpu, "_output", lambda *_: _TEXT)
    told = CliRunner().invoke(command, ["--gpu-info"], standalone_mode=False).output
    assert told == "0: NVIDIA RTX A6000, 47.99 GiB (2.00 MiB used), driver 550.90.07, by nvidia-smi\n"
    (row,) = json.loads(CliRunner().invoke(command, ["--gpu-info", "--json"], standalone_mode=False).output)
    assert row["total_bytes"] == 49140 * 2**20


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["org/name", "--compare", "--slope"],
        ["org/name", "--timeline", "a.png"],
        ["org/name", "--timeline", "a.svg", "--compare"],
        ["org/name", "--time-limit", "0"],
        ["org/name", "--mode", "kv"],
    ],
)
def test_mistakes_are_usage(words: list[str]) -> None:
    """Nothing is run."""
    assert CliRunner().invoke(command, words).exit_code == 2


def test_a_bundle_has_no_weights_to_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hint is the option that needs none; a device of no kind is refused too."""
    monkeypatch.setattr(launch, "find_spec", lambda name: name)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    from fixture_models import ROOT

    bundle = str(ROOT / "fixtures" / "bundles" / "gpt2.json.gz")
    error = failure([bundle, "--device", "cpu"])
    assert isinstance(error, HubauditError)
    assert "--dummy-weights" in error.hint
    error = failure([bundle, "--device", "tpu", "--dummy-weights"])
    assert isinstance(error, UsageError)
