"""transformers' static, offloaded and quantized caches: worked figures, laws and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_models import NAMES, facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.infer import estimate
from hubaudit.types import Component, Estimate, Workload

QWEN = "qwen2-0.5b-instruct"
TOKEN = 12_288  # bytes in bf16: 24 layers, 2 heads of 64 (vLLM logs agree)


def kv(name: str, **more: Any) -> Estimate:
    """The cache alone."""
    return estimate(facts_of(name), Workload(**({"mode": "kv"} | more)))


def part(made_of: Estimate, name: str) -> Component:
    """The component of that id."""
    return next(item for item in made_of.components if item.id == name)


def test_a_static_cache_is_allocated_for_max_length_less_one() -> None:
    """generate() asks for max_length - 1 places (transformers 5.23.0 generation/utils.py): the last token is never fed back."""
    made_of = kv(QWEN, cache="static", batch_size=3, prompt_tokens=1000, new_tokens=25)
    assert made_of.total_bytes == TOKEN * 3 * 1024


def test_a_longer_static_cache_says_how_much_is_used() -> None:
    """max_cache_len wins where it is more; the workload's own part stands in the notes."""
    made_of = kv(QWEN, cache="static", prompt_tokens=1000, new_tokens=25, max_cache_len=4096)
    assert made_of.total_bytes == TOKEN * 4096
    assert f"fills {TOKEN * 1024:,} of the {TOKEN * 4096:,} bytes" in made_of.assumptions[-1]
    shorter = kv(QWEN, cache="static", prompt_tokens=1000, new_tokens=25, max_cache_len=10)
    assert shorter.total_bytes == TOKEN * 1024


def test_static_windows_are_whole() -> None:
    """Gemma 2's 13 sliding layers hold 4,096 tokens in the static cache, 4,095 in the growing one (StaticSlidingWindowLayer)."""
    row_bytes = 2 * 4 * 256 * 2
    asked = {"prompt_tokens": 8000, "new_tokens": 192}
    assert kv("gemma-2-2b-it", cache="static", **asked).total_bytes == 13 * row_bytes * (8191 + 4096)
    assert kv("gemma-2-2b-it", **asked).total_bytes == 13 * row_bytes * (8192 + 4095)


def test_offloading_keeps_two_layers() -> None:
    """The running layer and the one that is fetched while it runs; the rest is named in the notes."""
    asked = {"prompt_tokens": 1000, "new_tokens": 24}
    made_of = kv(QWEN, cache="offloaded", **asked)
    assert made_of.total_bytes == TOKEN // 24 * 2 * 1024
    assert "host's memory" in made_of.assumptions[-1]
    static = kv("gemma-2-2b-it", cache="offloaded_static", **asked)
    row_bytes = 2 * 4 * 256 * 2
    assert static.total_bytes == row_bytes * 1023 * (2 + 13)


def test_states_are_not_offloaded() -> None:
    """Recurrent states stay where they are, as the growing cache has them."""
    asked = {"prompt_tokens": 1000, "new_tokens": 24}
    away, here = (kv("qwen3-next-80b-a3b-instruct", cache=cache, **asked) for cache in ("offloaded", "dynamic"))
    assert part(away, "recurrent_state") == part(here, "recurrent_state")
    assert part(away, "kv_cache").bytes * 6 == part(here, "kv_cache").bytes


def test_four_bits_with_scales_and_a_residue() -> None:
    """KIVI-like packing: half a byte a value and two bf16 numbers for 64 of them; 127 tokens not packed yet.

    QuantizedLayer of transformers 5.23.0: residual_length 128, q_group_size 64. 24 layers × 2 tensors of 128 elements a token.
    """
    made_of = kv(QWEN, kv_dtype="int4", prompt_tokens=1024, new_tokens=127)
    values = 48 * 128
    assert part(made_of, "kv_cache").bytes == 1024 * values * (64 // 2 + 4) // 64 + 127 * values * 2
    packed = kv(QWEN, kv_dtype="int4", prompt_tokens=1024, new_tokens=128)
    before = 1024 * values * 36 // 64 + 127 * values * 2
    after = 1152 * values * 36 // 64
    assert part(packed, "kv_cache").bytes == max(before, after)


def test_quantized_is_int4_where_nothing_is_said() -> None:
    """generate(cache_implementation="quantized") takes quanto with four bits; int8 is HQQ's, fp8 the library's own."""
    assert kv(QWEN, cache="quantized").total_bytes == kv(QWEN, kv_dtype="int4").total_bytes
    for kv_dtype, backend in (("int4", "quanto"), ("int2", "quanto"), ("int8", "hqq"), ("fp8", "fp8")):
        assert any(backend in line for line in kv(QWEN, kv_dtype=kv_dtype).assumptions)


def test_fp8_is_a_byte_a_value_and_a_scale_a_tensor() -> None:
    """Fp8QuantizedLayer of transformers 5.23.0."""
    made_of = kv(QWEN, kv_dtype="fp8_e4m3", prompt_tokens=1000, new_tokens=24)
    assert part(made_of, "kv_cache").bytes == 1024 * TOKEN // 2 + 4 * 48


@pytest.mark.parametrize(
    ("name", "workload", "words"),
    [
        ("gemma-2-2b-it", {"cache": "quantized"}, "not of sliding"),
        ("qwen3-next-80b-a3b-instruct", {"kv_dtype": "int8"}, "not of linear"),
        ("t5-small", {"kv_dtype": "int4"}, r"not of full\+cross"),
        (QWEN, {"cache": "quantized", "kv_dtype": "bf16"}, "does not hold bf16"),
        (QWEN, {"cache": "static", "kv_dtype": "int4"}, "a static cache does not hold int4"),
        (QWEN, {"cache": "paged"}, "no cache called `paged`"),
        (QWEN, {"max_cache_len": 100}, "only a static cache"),
        (QWEN, {"draft_tokens": 2}, "drafted tokens"),
        (QWEN, {"kv_dtype": "q8_0"}, "unknown KV cache dtype"),
        (QWEN, {"kv_dtype": "fp8_e5m2"}, "unknown KV cache dtype"),
        (QWEN, {"runtime": "vllm", "kv_dtype": "int4"}, "unknown KV cache dtype"),
        (QWEN, {"runtime": "vllm", "cache": "static"}, "no cache called `static`"),
        (QWEN, {"runtime": "llama.cpp", "kv_dtype": "fp8"}, "unknown KV cache dtype"),
        (QWEN, {"runtime": "tgi"}, "unknown runtime"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(name: str, workload: dict[str, Any], words: str) -> None:
    """One line says what does not exist, and the hint what does."""
    with pytest.raises(UsageError, match=words) as refused:
        kv(name, **workload)
    assert refused.value.hint or "drafted" in refused.value.message


@pytest.mark.parametrize("cache", ["static", "offloaded", "offloaded_static"])
@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_every_growing_cache(name: str, cache: str) -> None:
    """Offloading leaves no more than the whole on the device; a static cache for one token less is no larger than one more window token."""
    asked = {"prompt_tokens": 700, "new_tokens": 40}
    whole, other = kv(name, **asked), kv(name, cache=cache, **asked)
    if cache == "offloaded":
        assert other.total_bytes <= whole.total_bytes
    else:
        assert other.total_bytes <= kv(name, prompt_tokens=702, new_tokens=40).total_bytes


@settings(deadline=None)
@given(
    kv_dtype=st.sampled_from(["int2", "int4", "int8", "fp8"]),
    batch=st.integers(1, 8),
    prompt=st.integers(1, 3000),
    new=st.integers(0, 600),
)
def test_quantized_caches_only_grow(kv_dtype: str, batch: int, prompt: int, new: int) -> None:
    """The largest size so far never falls with one more token, prompt or new, or one more sequence; residue and scales are within it."""
    size = part(kv(QWEN, kv_dtype=kv_dtype, batch_size=batch, prompt_tokens=prompt, new_tokens=new), "kv_cache").bytes
    for more in ((batch + 1, prompt, new), (batch, prompt + 1, new), (batch, prompt, new + 1)):
        asked = dict(zip(("batch_size", "prompt_tokens", "new_tokens"), more, strict=True))
        assert size <= part(kv(QWEN, kv_dtype=kv_dtype, **asked), "kv_cache").bytes
