"""Exact mode against torch's own CUDA build where the recipes differ: eight families, each trained and run in ten ways.

STUB/run -m tools.exact_families record     write fixtures/exact/families.jsonl anew (STUB: tools/stub_driver)
python -m tools.exact_families compare      trace all of it, print what differs
python -m tools.exact_families table        write docs/exact.md's table from the fixture and from a trace of all of it

The recorded side is a plain script: torch.autocast, torch's checkpointing, peft, bitsandbytes' own modules and kernels' host code,
``model.generate``. Only two things are stand-ins: quantized weights are made of the right tensors instead of being quantized, as nothing can
be computed, and generation is told to go on, as there are no tokens to look at.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from tools.exact_survey import _CAPABILITY, Marks, _answered, _apart, _errors, _prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).parent.parent
RECORDED = _ROOT / "fixtures" / "exact" / "families.jsonl"
PAGE = _ROOT / "docs" / "exact.md"
_BEGIN, _END = "<!-- families -->\n", "<!-- end of families -->\n"
_BATCH, _TOKENS, _NEW = 2, 256, 6
_STUB_BYTES = 2**44
_SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8000,
    "max_position_embeddings": 2048,
}
_BERT = {key: value for key, value in _SMALL.items() if key != "num_key_value_heads"}
#: One geometry of each family, small and not round, so that no two tensors are of one size by chance.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_SMALL},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_SMALL, "tie_word_embeddings": True},
    "gemma2": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], **_SMALL, "head_dim": 64},
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_SMALL, "num_local_experts": 4},
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 512,
        "n_layer": 3,
        "n_head": 8,
        "vocab_size": 8000,
    },
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **_BERT},
    "t5": {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": 512,
        "d_ff": 1408,
        "d_kv": 64,
        "num_heads": 8,
        "num_layers": 3,
        "vocab_size": 8000,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    },
    "mamba2": {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 64,
        "state_size": 32,
        "n_groups": 1,
        "chunk_size": 64,
        "vocab_size": 8000,
    },
}
_TRAIN: dict[str, Any] = {"mode": "train", "batch_size": _BATCH, "tokens": _TOKENS}
_LORA: dict[str, Any] = {**_TRAIN, "lora_rank": 16, "lora_targets": "all-linear"}
_GENERATE: dict[str, Any] = {"mode": "infer", "batch_size": _BATCH, "tokens": _TOKENS, "new_tokens": _NEW}
WAYS: dict[str, dict[str, Any]] = {
    "checkpointing": {**_TRAIN, "checkpointing": True},
    "AMP": {**_TRAIN, "dtype": "fp32", "autocast": "bf16"},
    "LoRA": _LORA,
    "QLoRA": {**_LORA, "quant": "nf4", "double_quant": True, "upcasts_base": True, "checkpointing": True},
    "int8": {"mode": "infer", "batch_size": _BATCH, "tokens": _TOKENS, "quant": "int8"},
    "generate": _GENERATE,
    "static cache": {**_GENERATE, "cache": "static"},
    "samples": {**_GENERATE, "num_return_sequences": 3},
    "beams": {**_GENERATE, "num_beams": 3},
    "beams, static cache": {**_GENERATE, "num_beams": 3, "cache": "static"},
}
#: Windows that the prompt is longer than, or that the new tokens fill: sliding layers of a static cache go other ways then.
_WINDOWS = {"gemma2": 200, "mixtral": _TOKENS + 3}


class Cell(NamedTuple):
    """One family in one way."""

    family: str
    way: str


def cells() -> Iterator[Cell]:
    """Every one; an encoder generates nothing."""
    for family in FAMILIES:
        for way in WAYS:
            if family != "bert" or "new_tokens" not in WAYS[way]:
                yield Cell(family, way)


def _config(cell: Cell) -> dict[str, Any]:
    window = _WINDOWS.get(cell.family)
    has_window = window is not None and ("cache" in WAYS[cell.way] or "num_beams" in WAYS[cell.way])
    return {**FAMILIES[cell.family], "sliding_window": window} if has_window else FAMILIES[cell.family]


def _plan(cell: Cell) -> Any:
    from hubaudit.exact.plan import Plan

    chosen = WAYS[cell.way]
    if (
        cell.family == "mamba2" and "lora_targets" in chosen
    ):  # peft refuses its output projection, which the kernels read past the module
        chosen = {**chosen, "lora_targets": "in_proj"}
    return Plan(**chosen)


def traced(cell: Cell) -> Marks:
    """Exact mode's own run."""
    from hubaudit.exact import scenario
    from hubaudit.exact.device import blas_policy, device_of_capability
    from hubaudit.exact.replay import replay

    device = device_of_capability(_CAPABILITY)
    tracer = scenario.run(_config(cell), _plan(cell), device)
    phases = replay(tracer.trace(), blas_policy("2.13", device)).phases
    return [
        [one.label, one.allocated_bytes, one.reserved_bytes, one.peak_allocated_bytes, one.peak_reserved_bytes]
        for one in phases
    ]


# --- the recorded side -------------------------------------------------------------------------------------------------------------


def reported(cell: Cell) -> Marks:
    """What torch.cuda says of the same program, written as people write it."""
    import torch

    from hubaudit.exact import building, quantized

    plan = _plan(cell)
    model = building.build(_config(cell), plan.dtype, plan.attention)
    if plan.quant:
        quantized.quantize(model, plan)
    _to_cuda(model)
    marks: Marks = []

    def mark(label: str) -> None:
        now = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        marks.append([label, *now, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])

    mark("load")
    ids = None
    if plan.mode == "infer":
        ids = torch.zeros(_BATCH, _TOKENS, dtype=torch.long, device="cuda")
        _infer(model.eval(), ids, plan, mark)
    else:
        _train(model, plan, mark)
    return marks


def _to_cuda(model: Any) -> None:
    """Every parameter and buffer on the device, in the order in which a module moves them, then the scales of quantized ones."""
    import torch

    from hubaudit.exact import building, quantized

    moved: dict[int, Any] = {}
    for _, old in building.tensors_in_order(model):
        fresh = torch.empty_like(old.data, device="cuda")
        if isinstance(old, torch.nn.Parameter):
            fresh = torch.Tensor._make_subclass(type(old), fresh, old.requires_grad)
            fresh.__dict__.update(old.__dict__)
            if getattr(fresh, "CB", None) is not None:
                fresh.CB = fresh.data
        moved[id(old)] = fresh
    scales = {id(one): torch.empty_like(one, device="cuda") for one in quantized.state_tensors(model)}
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            kept.update({name: moved[id(old)] for name, old in kept.items() if old is not None})
        state = getattr(module, "quant_state", None)
        holders = [(state, "absmax"), (state, "code"), (state, "offset")]
        nested = getattr(state, "state2", None)
        holders += [(nested, "absmax"), (nested, "code"), (getattr(module, "weight", None), "SCB")]
        for holder, name in holders:
            old = getattr(holder, name, None)
            if id(old) in scales:
                setattr(holder, name, scales[id(old)])


def _infer(model: Any, ids: Any, plan: Any, mark: Callable[[str], None]) -> None:
    import torch
    from transformers.generation.utils import GenerationMixin

    with torch.no_grad():
        if not plan.new_tokens:
            extra = {}
            if model.config.is_encoder_decoder:
                extra["decoder_input_ids"] = torch.zeros(_BATCH, 1, dtype=torch.long, device="cuda")
            outputs = model(input_ids=ids, **extra)
            mark("prefill")
            del outputs
            return
        passes: list[int] = []

        def after(module: Any, args: Any, outputs: Any) -> None:
            passes.append(1)
            if len(passes) == 1:
                mark("prefill")

        model.register_forward_hook(after)
        with patch.object(GenerationMixin, "_has_unfinished_sequences", lambda *_, **__: len(passes) < plan.new_tokens):
            made = model.generate(
                input_ids=ids,
                max_new_tokens=plan.new_tokens,
                do_sample=plan.num_return_sequences > 1,
                num_beams=plan.num_beams,
                num_return_sequences=plan.num_return_sequences,
                cache_implementation=None if plan.cache == "dynamic" else plan.cache,
                disable_compile=True,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
            )
        mark("decode")
        del made


def _train(model: Any, plan: Any, mark: Callable[[str], None]) -> None:
    import torch

    if plan.upcasts_base:
        import peft

        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if plan.lora_rank:
        import peft

        targets = plan.lora_targets if plan.lora_targets == "all-linear" else plan.lora_targets.split(",")
        asked = peft.LoraConfig(
            r=plan.lora_rank, lora_alpha=2 * plan.lora_rank, target_modules=targets, lora_dropout=0.0
        )
        model = peft.get_peft_model(model, asked)
        mark("adapters")
    if plan.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if plan.lora_rank:
            model.enable_input_require_grads()
    model.train()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], fused=True)
    for step in (1, 2):
        ids = torch.zeros(_BATCH, _TOKENS, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=plan.autocast is not None):
            outputs = model(input_ids=ids, labels=ids)
        loss = outputs.loss
        mark(f"forward {step}")
        del outputs
        loss.backward()
        mark(f"backward {step}")
        del loss, ids
        optimizer.step()
        mark(f"update {step}")
        optimizer.zero_grad()


# --- the table ----------------------------------------------------------------------------------------------------------------------


def recorded() -> dict[Cell, Any]:
    """The fixture."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    rows = (json.loads(line) for line in lines)
    return {Cell(row["family"], row["way"]): row for row in rows}


def table(ours: dict[Cell, Any]) -> Iterator[str]:
    """Which cells are equal at every mark, and by how much the peaks of the others are off."""
    yield f"| family | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}\n"
    real = recorded()
    for family in FAMILIES:
        yield f"| {family} | {' | '.join(_word(real.get(Cell(family, way)), ours.get(Cell(family, way))) for way in WAYS)} |\n"


def _word(real: Any, made: Any) -> str:
    if real is None:
        return "—"
    if "error" in real:
        return "not run on the stub"
    if made is None or "error" in made:
        return "not traced"
    if real["marks"] == made["marks"]:
        return "equal"
    return "{:+.3f} % / {:+.3f} %".format(*_errors(real["marks"], made["marks"]))


def main(words: list[str]) -> None:
    """Record, compare or write the table."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("STUB_MEMORY_BYTES", str(_STUB_BYTES))
    _prepared()
    wanted = [cell for cell in cells() if len(words) < 2 or cell.family in words[1:] or cell.way in words[1:]]
    if words[0] == "record":
        rows = recorded()
        for cell in wanted:
            os.environ["STUB_FLAG"] = "0" if cell.way == "int8" else "1"  # no outliers
            rows[cell] = {**cell._asdict(), **_apart([partial(reported, cell)])[0]}
        text = "".join(json.dumps(rows[cell]) + "\n" for cell in cells() if cell in rows)
        RECORDED.write_text(text, encoding="utf-8")
        return
    ours = {cell: _answered(partial(traced, cell)) for cell in wanted}
    if words[0] == "table":
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
        PAGE.write_text(before + _BEGIN + "".join(table(ours)) + _END + rest.partition(_END)[2], encoding="utf-8")
        return
    real = recorded()
    for cell in wanted:
        print(*cell, _word(real.get(cell), ours[cell]), ours[cell].get("error", ""), real[cell].get("error", ""))


if __name__ == "__main__":
    main(sys.argv[1:])
