"""What a checkpoint's own quantization makes of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from hubaudit.errors import CannotAuditError, UsageError
from hubaudit.exact.plan import Plan, of_checkpoint, plan_of
from hubaudit.types import Workload

_PLAN = Plan(mode="infer", batch_size=1, tokens=8)


def _config(**stored: Any) -> dict[str, Any]:
    return {"model_type": "llama", "quantization_config": stored}


def test_bitsandbytes_own_words_are_taken() -> None:
    """Fields as transformers' BitsAndBytesConfig writes them."""
    four = of_checkpoint(
        _PLAN,
        _config(
            quant_method="bitsandbytes",
            load_in_4bit=True,
            load_in_8bit=False,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype="bfloat16",
            llm_int8_skip_modules=["lm_head"],
        ),
    )
    assert (four.quant, four.double_quant, four.compute_dtype, four.skipped_modules) == (
        "nf4",
        True,
        "bf16",
        ("lm_head",),
    )
    eight = of_checkpoint(_PLAN, _config(load_in_8bit=True, llm_int8_threshold=0.0))
    assert (eight.quant, eight.outlier_threshold) == ("int8", 0.0)


def test_defaults_are_those_of_the_library() -> None:
    """Of a 4-bit checkpoint that says no more: fp4, computed in fp32."""
    plan = of_checkpoint(_PLAN, _config(load_in_4bit=True))
    assert (plan.quant, plan.compute_dtype, plan.double_quant) == ("fp4", "fp32", False)


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "mxfp4"])
def test_other_methods_are_not_known(method: str) -> None:
    """Not guessed: the reason names the method."""
    with pytest.raises(CannotAuditError, match=method):
        of_checkpoint(_PLAN, _config(quant_method=method, bits=4))


def test_a_second_quantization_is_refused() -> None:
    """What is quantized cannot be quantized again."""
    asked = Plan(mode="infer", batch_size=1, tokens=8, quant="nf4")
    with pytest.raises(UsageError, match="already"):
        of_checkpoint(asked, _config(load_in_8bit=True))


def test_a_plain_checkpoint_changes_nothing() -> None:
    """The plan itself comes back."""
    assert of_checkpoint(_PLAN, {"model_type": "llama"}) is _PLAN


@pytest.mark.parametrize(
    ("cache", "why"), [("quantized", "quanto"), ("offloaded", "stream"), ("offloaded_static", "stream")]
)
def test_caches_that_are_not_run_are_refused_with_the_reason(cache: str, why: str) -> None:
    """By name, and with what stands against them."""
    asked = Workload(mode="infer", cache=cache, prompt_tokens=8, new_tokens=2)
    with pytest.raises(UsageError, match=f"--cache {cache}.*{why}"):
        plan_of(asked)


def test_static_caches_beams_and_samples_are_run() -> None:
    """What transformers' generate() is told comes with the plan."""
    asked = Workload(
        mode="infer",
        prompt_tokens=8,
        new_tokens=2,
        cache="static",
        max_cache_len=64,
        num_beams=4,
        num_return_sequences=2,
    )
    plan = plan_of(asked)
    assert (plan.cache, plan.max_cache_len, plan.num_beams, plan.num_return_sequences) == ("static", 64, 4, 2)
