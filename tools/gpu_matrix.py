"""Measure a matrix of models and ways to run them on this machine's GPU, and write calibration records: `python -m tools.gpu_matrix`.

Geometries are those of real models, from the configs of fixtures/bundles; weights are random. Each run is a child process with a time
limit; a record is appended as soon as it is there, and what the file has already is skipped, so the matrix can be done in pieces. On a
machine without a GPU, `--device cpu --geometry tiny` shows that all of it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.errors import HubauditError
from hubaudit.types import RepoSnapshot, Workload
from hubaudit.verify.beside import Request, measure
from hubaudit.verify.launch import MeasurementError
from hubaudit.verify.record import failed_record, read, to_record, workload_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "fixtures" / "measured" / "gpu.jsonl"
#: From 0.1 to 8 billion parameters: learned positions, tied and untied heads, windows, query norms, fused projections, scans.
GEOMETRIES = (
    "gpt2", "qwen2-0.5b-instruct", "qwen3-0.6b", "gemma-2-2b-it", "phi-3-mini-4k-instruct", "mistral-7b-v0.1", "llama-3.1-8b", "mamba-130m-hf",
)  # fmt: skip
TINY: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 1024,
}  # fmt: skip
_INFER: dict[str, Any] = {"mode": "infer", "dtype": "bf16", "batch_size": 4}
_TRAIN: dict[str, Any] = {"mode": "train", "recipe": "bf16", "batch_size": 4}
_QUANTS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "int8": {"quant": "int8"},
    "nf4": {"quant": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"},
}
_LORA: dict[str, Any] = {"lora": 16, "lora_targets": "all-linear"}


def cases(prompt_tokens: int, sequence_tokens: int, new_tokens: int) -> Iterator[tuple[str, Workload]]:
    """Every way to run by name: a quantized base is trained with adapters only."""
    for name, quant in _QUANTS.items():
        infer: dict[str, Any] = {**_INFER, **quant, "prompt_tokens": prompt_tokens}
        train: dict[str, Any] = {**_TRAIN, **quant, "sequence_tokens": sequence_tokens}
        yield f"{name} prefill", Workload(**infer, new_tokens=0)
        yield f"{name} generate", Workload(**infer, new_tokens=new_tokens)
        if not quant:
            yield "bf16 train", Workload(**train)
            yield "bf16 train checkpointing", Workload(**train, gradient_checkpointing="full")
            yield "bf16 lora", Workload(**train, **_LORA)
        else:
            yield f"{name} qlora", Workload(**train, **_LORA, gradient_checkpointing="full")


def snapshot(name: str) -> RepoSnapshot:
    """The model's config, without its headers: weights are made of the config."""
    config = TINY if name == "tiny" else _config(name)
    return RepoSnapshot(repo_id=name, revision=None, commit=None, source="bundle", configs={"config.json": config})


def _config(name: str) -> dict[str, Any]:
    from hubaudit.hub import fetch

    return dict(fetch(str(ROOT / "fixtures" / "bundles" / f"{name}.json.gz")).configs["config.json"])


def main() -> int:
    """Measure what is missing; 1 where a run failed otherwise than by memory or time."""
    asked = _asked()
    done = _done(asked.out)
    deadline = time.monotonic() + asked.seconds
    failures = 0
    for geometry in asked.geometry or GEOMETRIES:
        model = snapshot(geometry)
        for name, workload in cases(asked.prompt_tokens, asked.sequence_tokens, asked.new_tokens):
            if not any(word in name for word in asked.only or [""]) or _key(geometry, workload) in done:
                continue
            left = deadline - time.monotonic()
            if left < asked.time_limit:
                print(f"{left:.0f} s are left: run again for the rest", flush=True)
                return 1 if failures else 0
            request = Request(device=asked.device, limit_seconds=asked.time_limit, repeats=asked.repeats)
            failures += _one(model, geometry, name, workload, request, asked.out)
    return 1 if failures else 0


def _one(model: RepoSnapshot, geometry: str, name: str, workload: Workload, request: Request, out: Path) -> int:
    try:
        record = to_record(measure(model, workload, request))
    except MeasurementError as error:
        kind = request.device.partition(":")[0]
        config = model.configs["config.json"]
        record = failed_record(error, repo_id=geometry, config=config, workload=workload, device=kind, weights="random")
    except HubauditError as error:
        print(f"{geometry} {name}: {error.message}", flush=True)
        return 1
    # The workload as asked, so that the same run is found again.
    record["workload"] = _plain(workload)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{geometry} {name}: {_line(record)}", flush=True)
    return 0 if record["outcome"] in ("ok", "out_of_memory", "timeout") else 1


def _line(record: dict[str, Any]) -> str:
    if record["outcome"] != "ok":
        return f"{record['outcome']}: {record['message']}"
    words = []
    for row in record["figures"]:
        if not row["id"].startswith("max"):
            continue
        errors = [
            f"{side} {100 * (row[f'{side}_bytes'] / row['measured_bytes'] - 1):+.2f} %"
            for side in ("exact", "formula")
            if row[f"{side}_bytes"]
        ]
        words.append(f"{row['id']} {row['measured_bytes'] / 2**20:.1f} MiB ({', '.join(errors)})")
    return "; ".join(words)


def _plain(workload: Workload) -> dict[str, Any]:
    defaults = Workload()
    found = {name: getattr(workload, name) for name in Workload.__slots__}
    return {name: value for name, value in found.items() if name == "mode" or value != getattr(defaults, name)}


def _key(geometry: str, workload: Workload) -> str:
    return f"{geometry} {json.dumps(_plain(workload), sort_keys=True)}"


def _done(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {_key(record["subject"]["repo_id"], workload_of(record)) for record in read(path)}


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--geometry", action="append", choices=[*GEOMETRIES, "tiny"], help="may be repeated; default: all"
    )
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="ways to run that hold this word; may be repeated"
    )
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--sequence-tokens", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=300, help="seconds for each run")
    parser.add_argument(
        "--seconds", type=float, default=86400, help="seconds for all: no run begins that could exceed them"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
