"""Every component of every engine and cache follows from the formula it shows, over inputs that each have a source."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fixture_models import facts_of

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.infer import estimate
from hubaudit.estimate.kv_dtype import RUNTIMES, TABLE
from hubaudit.types import Component, Workload

MODELS = [
    "qwen2-0.5b-instruct",
    "gemma-3-4b-it",
    "gpt-oss-20b",
    "deepseek-v2-lite",
    "lfm2-1.2b",
    "mamba-130m-hf",
    "qwen3-next-80b-a3b-instruct",
    "mistral-7b-v0.1",
    "t5-small",
    "bert-base-uncased",
]
CASES = [(runtime, cache, None) for runtime in RUNTIMES for cache in table(TABLE)[RUNTIMES[runtime]]["caches"]]
CASES += [(row["runtime"], row.get("cache"), row["name"]) for row in table(TABLE)["kv_dtype"]]
CASES = [case for case in CASES if "quantized" not in case]
QUANTIZED = [("transformers", "quantized", row["name"]) for row in table(TABLE)["kv_dtype"] if row.get("cache")]


def check(part: Component) -> None:
    """The bytes are the formula's over the inputs, as Python itself reckons it; the band holds it; each input and the formula have a source."""
    functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
    assert eval(part.formula, {"__builtins__": {}}, {**functions, **part.inputs}) == part.bytes  # noqa: S307
    assert part.low_bytes <= part.bytes <= part.high_bytes
    assert part.exactness != "exact" or part.low_bytes == part.high_bytes
    assert {source.partition(":")[0] for source in part.sources if not source.startswith("band")} == {
        *part.inputs,
        "formula",
    }
    assert set(re.findall(r"[a-z_A-Z]\w*", part.formula)) - set(functions) == set(part.inputs)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("runtime", "cache", "kv_dtype"), CASES)
def test_every_component_follows_from_its_formula(
    runtime: str, cache: str | None, kv_dtype: str | None, model: str
) -> None:
    """All engines, all their caches, all their types."""
    asked: dict[str, Any] = {"runtime": runtime, "cache": cache, "kv_dtype": kv_dtype, "batch_size": 3}
    made_of = estimate(facts_of(model), Workload(**asked, prompt_tokens=777, new_tokens=55))
    for part in made_of.components:
        check(part)
    assert made_of.total_bytes == sum(part.bytes for part in made_of.components)
    assert all(item.reason for item in made_of.omitted)


@pytest.mark.parametrize("model", ["qwen2-0.5b-instruct", "deepseek-v2-lite"])
@pytest.mark.parametrize(("runtime", "cache", "kv_dtype"), QUANTIZED)
def test_quantized_components_follow_from_theirs(runtime: str, cache: str, kv_dtype: str, model: str) -> None:
    """The quantized cache, which not every model has."""
    asked: dict[str, Any] = {"runtime": runtime, "cache": cache, "kv_dtype": kv_dtype, "batch_size": 3}
    for part in estimate(facts_of(model), Workload(**asked, prompt_tokens=777, new_tokens=300)).components:
        check(part)


def test_every_row_of_the_table_has_a_source() -> None:
    """Constants have theirs beside them, types and bands their own; dtypes and kinds are known names."""
    rows = table(TABLE)
    for section in RUNTIMES.values():
        for key in rows[section]:
            if not key.endswith("source"):
                known = {f"{key}_source", "caches_source"} if key != "kinds" else {"kinds_source"}
                assert known & set(rows[section]) or _shared(section, key), (section, key)
    assert all(row["source"] and row["called"] for row in rows["kv_dtype"])
    bands = [name for name in rows if name.startswith(("vllm_", "llama_cpp_")) or name == "quantized_cache"]
    assert all(rows[name]["source"] for name in bands)
    assert all(named in bits_of() for name, named in rows["vllm"]["state_dtype"].items())
    kinds = set(table("layer_kinds.toml"))
    assert all(set(rows[section]["kinds"]) <= kinds for section in ("vllm", "llama_cpp"))


def _shared(section: str, key: str) -> bool:
    """Keys whose source stands under another name in the same section."""
    family = {
        "own_cache": "own_cache_source",
        "indexer_scale_bytes": "indexer_source",
        "indexer_scale_elements": "indexer_source",
        "large_bytes": "large_source",
        "large_sequences": "large_source",
        "large_batched_tokens": "large_source",
    }
    family |= {
        "sparse_fp8_token_bytes": "sparse_fp8_source",
        "state_dtype": "state_dtype_source" if section == "vllm" else "state_source",
    }
    return family.get(key) in table(TABLE)[section]
