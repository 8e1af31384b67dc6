"""Tables and masks beside the weights: counted once, wherever transformers loads the model, and left out with a reason where they are not known."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_models import facts_of
from packed_checkpoints import snapshot, tensor

from hubaudit.estimate.modes import estimate
from hubaudit.facts.model import understand
from hubaudit.types import Component, Estimate, ModelFacts, Workload

#: What transformers 5.23.0 makes of GPT-Neo's own defaults, which are those of EleutherAI/gpt-neo-1.3B: 24 masks of 2,048 × 2,048 bool.
MASKS = 24 * 4_194_304
SPEECH = 3_598_336


def facts(model_type: str, architecture: str, **said: Any) -> ModelFacts:
    """A model of its class's defaults whose file holds one tensor."""
    config = {"model_type": model_type, "architectures": [architecture], **said}
    return understand(snapshot([tensor("one.weight", "BF16", 8, 8)], config))


def buffers(made: Estimate) -> list[Component]:
    """The components of that id."""
    return [part for part in made.components if part.id == "buffers"]


NEO = facts("gpt_neo", "GPTNeoForCausalLM")


@pytest.mark.parametrize(
    "workload",
    [
        Workload(prompt_tokens=16, new_tokens=4), Workload(dtype="fp32", prompt_tokens=16, new_tokens=4), Workload(mode="train", sequence_tokens=16),
        Workload(mode="train", sequence_tokens=16, recipe="amp"),
    ],
)  # fmt: skip
def test_masks_lie_beside_the_weights_in_every_workload(workload: Workload) -> None:
    """One component of kind Buffer, the same in every dtype, and in the total."""
    made = estimate(NEO, workload)
    (found,) = buffers(made)
    assert (found.bytes, found.category, found.exactness) == (MASKS, "Buffer", "exact")
    assert found.low_bytes == found.high_bytes == MASKS
    assert made.total_bytes == sum(part.bytes for part in made.components)


def test_tables_follow_the_dtype_that_the_model_is_loaded_in() -> None:
    """Speech2Text's sines take twice as much in float32."""
    model = facts("speech_to_text", "Speech2TextForConditionalGeneration")
    work = {"prompt_tokens": 8, "new_tokens": 2}
    assert [buffers(estimate(model, Workload(dtype=dtype, **work)))[0].bytes for dtype in ("bf16", "fp32")] == [
        SPEECH,
        2 * SPEECH,
    ]


@pytest.mark.parametrize(
    "workload", [Workload(mode="kv", prompt_tokens=8, new_tokens=2), Workload(runtime="vllm", sequence_tokens=16)]
)
def test_they_are_those_of_transformers_alone(workload: Workload) -> None:
    """The cache alone has none, and what an engine of its own makes is not in the table."""
    assert buffers(estimate(NEO, workload)) == []


def test_models_without_them_say_nothing_of_them() -> None:
    """A Qwen2 has neither the component nor a reason."""
    made = estimate(facts_of("qwen2-0.5b-instruct"), Workload(prompt_tokens=8, new_tokens=2))
    assert "buffers" not in {part.id for part in (*made.components, *made.omitted)}


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_the_config_does_not_tell_is_left_out_with_a_reason(mode: Any) -> None:
    """The total is then that of the known parts, and the estimate says so."""
    model = facts("gpt_neo", "GPTNeoForCausalLM", max_position_embeddings="long")
    made = estimate(model, Workload(mode=mode, prompt_tokens=16, new_tokens=4, sequence_tokens=None))
    (why,) = [part.reason for part in made.omitted if part.id == "buffers"]
    assert "max_position_embeddings" in why
    assert buffers(made) == []


def test_stages_of_a_pipeline_make_the_masks_of_their_own_layers() -> None:
    """Two stages of a GPT-Neo hold half of the masks each."""
    made = estimate(NEO, Workload(mode="train", sequence_tokens=16, gpus=2, pp=2))
    assert [part.bytes for part in buffers(made)] == [MASKS // 2]


@pytest.mark.parametrize("sharing", [{"zero": 3}, {"fsdp": 2}])
def test_every_process_has_all_of_them(sharing: dict[str, int]) -> None:
    """ZeRO and FSDP divide parameters, gradients and states, and no buffers."""
    made = estimate(NEO, Workload(mode="train", sequence_tokens=16, gpus=4, **sharing))  # type: ignore[arg-type]
    assert [part.bytes for part in buffers(made)] == [MASKS]
