"""generate() of the real model code on tensors without data, in cases where beams, experts, scores or states are the peak: beside today's estimate.

python -m tools.generation_traces record [SECONDS]   trace what fixtures/generation/traces.jsonl lacks (needs torch and transformers)
python -m tools.generation_traces show               each row with today's estimate (needs neither)

The models are those of the fixtures, cut as for training (tools/training_traces.py); what is compared is the most that is alive at once over the whole
run. The estimate is taken without the CUDA context and cuBLAS's workspace, which are no tensors.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hubaudit.estimate.modes import estimate
from hubaudit.facts.model import understand
from hubaudit.types import Estimate, RepoSnapshot, Workload

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))
from tools.training_traces import allocated_bytes, most_alive, small  # noqa: E402

RECORDED = _ROOT / "fixtures" / "generation" / "traces.jsonl"
LARGE_VOCAB = 65_536
#: What is asked of each case, and whether the vocabulary is large enough for scores to be the peak.
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "greedy": ({"batch_size": 4, "prompt_tokens": 4, "new_tokens": 6}, True),
    "sampled": ({"batch_size": 2, "prompt_tokens": 4, "new_tokens": 6, "num_return_sequences": 3}, True),
    "beams": ({"batch_size": 2, "prompt_tokens": 4, "new_tokens": 6, "num_beams": 4}, True),
    "beams returned": ({"batch_size": 2, "prompt_tokens": 4, "new_tokens": 6, "num_beams": 4, "num_return_sequences": 3}, True),
    "prompt": ({"batch_size": 2, "prompt_tokens": 2048, "new_tokens": 4}, False),
    "prompt, eager": ({"batch_size": 2, "prompt_tokens": 512, "new_tokens": 4, "attention": "eager"}, False),
    "prompt, float32": ({"batch_size": 2, "prompt_tokens": 1024, "new_tokens": 4, "dtype": "fp32"}, False),
    "prompt, beams": ({"batch_size": 2, "prompt_tokens": 1024, "new_tokens": 4, "num_beams": 4}, False),
    "prompt, static, eager": ({"batch_size": 2, "prompt_tokens": 512, "new_tokens": 4, "attention": "eager", "cache": "static", "max_cache_len": 2048}, False),
}  # fmt: skip
#: Families of one cache and one kind of block each, and what is asked of them: all cases, where none are named.
FAMILIES: dict[str, tuple[str, ...]] = {
    "llama-3.1-8b": (),
    "qwen2-0.5b-instruct": (),
    "gpt2": (),
    "t5-small": (),
    "mixtral-8x7b-v0.1": (),
    "qwen3-30b-a3b": (),
    "gpt-oss-20b": ("prompt", "prompt, eager"),
    "mamba-130m-hf": ("greedy", "prompt"),
    "gemma-2-2b-it": (),
    "falcon-7b-instruct": (),
    "phi-3-mini-4k-instruct": (),
    "mistral-7b-v0.1": (),
}


def cases_of(family: str) -> tuple[str, ...]:
    """The cases that a family is traced in."""
    return FAMILIES[family] or tuple(CASES)


def config_of(family: str, case: str) -> dict[str, Any]:
    """The family's config, cut; with many words where the scores are looked at."""
    config = small(family)
    if CASES[case][1]:
        config["vocab_size"] = LARGE_VOCAB
    return config


def estimated(family: str, case: str) -> Estimate:
    """Today's estimate of that run."""
    snapshot = RepoSnapshot(
        repo_id=family, revision=None, commit=None, source="local", configs={"config.json": config_of(family, case)}
    )
    return estimate(understand(snapshot), Workload(mode="infer", **{"dtype": "bf16", **CASES[case][0]}))


def traced(family: str, case: str) -> dict[str, int]:
    """The most that is alive at once, and of it while the prompt is read (compute capability 8.0)."""
    import torch

    from hubaudit.exact import building, grouped
    from hubaudit.exact.device import device_of_capability
    from hubaudit.exact.emulation import as_on_cuda
    from hubaudit.exact.tracer import Tracer

    asked = CASES[case][0]
    device = device_of_capability("8.0")
    model = building.build(config_of(family, case), asked.get("dtype", "bf16"), asked.get("attention", "sdpa")).eval()
    tracer = Tracer("meta", device)
    tracer.overrides.update(grouped.overrides())
    with as_on_cuda(device), tracer, torch.no_grad():
        tracer.hold((tensor for _, tensor in building.tensors_in_order(model)), "weights")
        tracer.mark("load")
        _generate(model, asked, tracer)
        tracer.mark("end")
    most = most_alive(tracer.trace().events)
    return {"load_bytes": most["load"], "prefill_bytes": most["prefill"], "peak_bytes": max(most.values())}


def _generate(model: Any, asked: dict[str, Any], tracer: Any) -> None:
    import torch
    from transformers.generation.utils import GenerationMixin

    ids = torch.zeros(asked["batch_size"], asked["prompt_tokens"], dtype=torch.long, device="meta")
    calls: list[int] = []
    beams, returned = asked.get("num_beams", 1), asked.get("num_return_sequences", 1)

    def after(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            tracer.mark("prefill")

    def unfinished(*_: Any, **__: Any) -> bool:
        return bool(len(calls) < asked["new_tokens"])

    model.register_forward_hook(after)
    with (
        patch.object(GenerationMixin, "_has_unfinished_sequences", unfinished),
        patch.object(GenerationMixin, "_beam_search_has_unfinished_sequences", unfinished),
    ):
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=asked["new_tokens"],
            do_sample=returned > 1 and beams == 1,
            num_beams=beams,
            num_return_sequences=returned,
            eos_token_id=None,
            pad_token_id=0,
            **({"cache_implementation": "static", "max_cache_len": asked["max_cache_len"]} if "cache" in asked else {}),
        )


def recorded() -> dict[tuple[str, str], dict[str, Any]]:
    """Rows by family and case."""
    rows = (json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()) if RECORDED.exists() else ()
    return {(row["family"], row["case"]): row for row in rows}


def record(seconds: float) -> None:
    """Trace what is not there yet, until the time is over; what cannot be traced is a row with the reason."""
    end, done = time.monotonic() + seconds, recorded()
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        for case in cases_of(family):
            if (family, case) in done or time.monotonic() > end:
                continue
            row: dict[str, Any] = {"family": family, "case": case}
            try:
                row |= traced(family, case)
            except Exception as error:  # noqa: BLE001 - any end is a row
                row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            with RECORDED.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")


def show() -> None:
    """Every recorded row beside today's estimate: the error of the whole peak, and of what comes on top of the loaded model."""
    for (family, case), row in recorded().items():
        if "error" in row:
            print(f"{family:24} {case:15} {row['error'][:90]}")
            continue
        made = estimated(family, case)
        ours, peak, load = allocated_bytes(made), row["peak_bytes"], row["load_bytes"]
        above = 100 * (ours - peak) / (peak - load)
        print(
            f"{family:24} {case:15} traced {peak / 2**20:9.2f} MiB  ours {100 * (ours - peak) / peak:+7.2f} %  "
            f"of what is above the weights {above:+7.1f} %  {made.peak_phase}, traced prefill {row['prefill_bytes'] / 2**20:.2f}"
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["show"]:
        show()
    else:
        record(float(sys.argv[2]) if len(sys.argv) > 2 else float("inf"))
