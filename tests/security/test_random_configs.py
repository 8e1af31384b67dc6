"""Any JSON as config.json: a folder of it is a report with reasons, or ends with exit code 5; never a traceback, never a silent nothing."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.choices import Choices
from fuzz.configs import WORKLOADS, changed, config_from, keys, model_types, real_configs
from fuzz.reports import audited
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weight_bytes import safetensors

from hubaudit.errors import CannotAuditError
from hubaudit.hub import fetch
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path

IN_A_FOLDER = settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
_LEAF = (
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8) | st.sampled_from(["llama", "auto", "1", "bfloat16", 10**18, 2**63])
)  # fmt: skip
ANY_JSON = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(keys()) | st.text(max_size=4), inner, max_size=6), max_leaves=20
)  # fmt: skip
WEIGHTS = {"model.embed_tokens.weight": ("F32", (8, 4)), "model.layers.0.self_attn.k_proj.weight": ("BF16", (4, 4))}


@st.composite
def typed(draw: st.DrawFn) -> Any:
    """An object with a model type that the tables know, so that it is read further than its first key."""
    made = draw(st.dictionaries(st.sampled_from(keys()), ANY_JSON, max_size=12))
    return {**made, "model_type": draw(st.sampled_from(model_types()))}


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A real config with a few values changed, or a class's own."""
    choices = Choices(draw(st.binary(min_size=8, max_size=80)))
    return (
        changed(choices, draw(st.sampled_from(real_configs())), keys()) if draw(st.booleans()) else config_from(choices)
    )


@given(
    config=ANY_JSON | typed() | mutated(),
    workload=st.sampled_from(WORKLOADS),
    has_weights=st.booleans(),
    form=st.integers(0, 9),
)
@IN_A_FOLDER
def test_any_config_is_a_report_with_reasons_or_exit_5(
    config: Any, workload: Workload, has_weights: bool, form: int, tmp_path: Path
) -> None:
    """Through the whole audit of a folder, for every mode, engine and quantization; `fuzz.reports.check` says what a report must keep."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    if has_weights:
        (tmp_path / "model.safetensors").write_bytes(safetensors(WEIGHTS))
    try:
        audited(fetch(str(tmp_path)), workload, form=form)
    except CannotAuditError as error:
        assert (error.exit_code, bool(error.message)) == (5, True)  # noqa: PT017 - either end is right


_MISTRAL: dict[str, Any] = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 1000,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["infer", "kv", "train"])
@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**18},
        {"num_hidden_layers": 1025},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 100, "per_layer_config": {str(at): {"sliding_window": at + 2} for at in range(100)}},
        {"num_hidden_layers": float("nan")},
        {"num_hidden_layers": "32"},
        {"num_key_value_heads": 0, "head_dim": 0},
        {"num_attention_heads": 0},
        {"hidden_size": 0},
        {"hidden_size": -64},
        {"vocab_size": 10**300},
        {"sliding_window": 0},
        {"head_dim": [64]},
    ],
    ids=lambda change: ascii(change)[:60],
)
def test_configs_that_ask_for_too_much(change: dict[str, Any], mode: Any, tmp_path: Path) -> None:
    """A reason stands in place of what cannot be known, and it is soon there."""
    (tmp_path / "config.json").write_text(json.dumps({**_MISTRAL, **change}))
    began = time.process_time()
    report = audited(fetch(str(tmp_path)), Workload(mode=mode))
    assert time.process_time() - began < 10
    assert report is not None
    known = {part.id for part in report.estimate.components} & {"weights", "kv_cache"}
    told = {gap.id for gap in report.estimate.omitted}
    if mode != "kv" and "weights" not in known:
        assert {"weights"} <= told
    if mode == "train" and "weights" in told:
        assert {"gradients", "optimizer", "activations"} <= told
    if mode == "kv" and "kv_cache" not in known:
        assert told == {"kv_cache"}
        assert report.estimate.assumptions[-1].startswith("not in the total")


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("method", ["gptq", "fp8", "\x1b[2J", 5, None])
def test_quantized_weights_that_nobody_read(method: Any, mode: Any, tmp_path: Path) -> None:
    """A config that calls its weights quantized, and no file that shows how: their size is not known, and is not taken for that of plain ones."""
    (tmp_path / "config.json").write_text(json.dumps({**_MISTRAL, "quantization_config": {"quant_method": method}}))
    report = audited(fetch(str(tmp_path)), Workload(mode=mode))
    assert report is not None
    (gap,) = [gap for gap in report.estimate.omitted if gap.id == "weights"]
    assert "no weights were read that show how they are packed" in gap.reason
    assert gap.reason.isprintable()
    assert report.variants == ()
