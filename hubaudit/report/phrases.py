"""The sentences that every text form of a report shares, and the cleaning of words that strangers wrote."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from hubaudit.report.stages import verdict_on
from hubaudit.report.totals import least
from hubaudit.units import format_bytes, format_count, format_gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Component, Estimate, Fit, ModelFacts, Report, Workload

#: What people reckon with, and why it is no bound: it knows neither the batch nor the context.
RULE_OF_THUMB = "rule of thumb 1.2 × weights"


def clean(text: str) -> str:
    """Text from a repository made safe for a terminal: control and other unprintable characters are escaped, never sent."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def title(report: Report) -> str:
    """The repository, and the commit that was read."""
    subject = report.subject
    at = f" at {subject.commit[:12]}" if subject.commit else ""
    return clean(f"{subject.repo_id}{at}")


def identity(facts: ModelFacts) -> str:
    """Architecture, model type, and library, as far as they are known."""
    words = [facts.architecture, facts.model_type, facts.family if facts.family != "unknown" else None, facts.library]
    return clean(" · ".join(dict.fromkeys(word for word in words if word))) or "no architecture is named"


def parameter_lines(facts: ModelFacts) -> list[str]:
    """How many parameters, of which types, and what of them is not loaded or not active."""
    count = facts.parameters
    if count is None:
        return [clean(f"parameters not counted: {facts.parameters_reason}")]
    dtypes = " + ".join(
        f"{dtype} {format_count(number)}" if len(count.by_dtype) > 1 else dtype
        for dtype, number in count.by_dtype.items()
    )
    lines = [clean(f"{count.total:,} parameters ({format_count(count.total)}{', ' + dtypes if dtypes else ''})")]
    lines += [f"{number:,} of them not loaded: {clean(kind)}" for kind, number in count.extra.items()]
    if count.active is not None and count.active != count.loaded:
        lines.append(f"{count.active:,} active per token ({format_count(count.active)})")
    if facts.tied_embeddings.value is True:
        lines.append("embeddings tied to the head, counted once")
    return lines


def shape_line(facts: ModelFacts) -> str:
    """Layers, widths, heads, vocabulary and context; what is unknown is left out."""
    rows = (
        ("layers", facts.layers.value),
        ("hidden", facts.hidden_size.value),
        ("heads", facts.attention_heads.value),
        ("kv heads", facts.kv_heads.value),
        ("head dim", facts.head_dim.value),
        ("vocab", facts.vocab_size.value),
        ("context", facts.max_positions.value),
    )
    words = [f"{name} {value:,}" for name, value in rows if value is not None]
    if facts.moe is not None and facts.moe.experts.value:
        per_token = facts.moe.experts_per_token.value
        words.append(f"experts {facts.moe.experts.value}" + (f", {per_token} per token" if per_token else ""))
    return " · ".join(words)


def plan_line(facts: ModelFacts) -> str | None:
    """What the layers keep between tokens, in a few words: ``"24 full"``, ``"40 sliding + 8 full"``."""
    if facts.layer_plan is None:
        return None
    counts = Counter(layer.kind for layer in facts.layer_plan)
    return " + ".join(f"{count} {kind}" for kind, count in counts.most_common())


def workload_line(workload: Workload) -> str:
    """What the model was asked to do."""
    if workload.mode == "train":
        return ", ".join(_training_words(workload))
    words = [
        f"batch {workload.batch_size}",
        f"{workload.num_beams} beams" if workload.num_beams > 1 else "",
        f"{workload.num_return_sequences} sequences each" if workload.num_return_sequences > 1 else "",
        f"{workload.prompt_tokens:,} prompt + {workload.new_tokens:,} new tokens",
        f"weights {workload.quant}" if workload.quant else "",
        workload.dtype,
        f"{_cache_name(workload)} {workload.kv_dtype}",
        f"{workload.draft_tokens} drafted tokens" if workload.draft_tokens else "",
        f"{workload.attention} attention" if workload.runtime == "transformers" else "",
        workload.runtime,
        *(f"{name} {number}" for name in ("tp", "pp", "ep") if (number := getattr(workload, name)) > 1),
    ]
    return ", ".join(word for word in words if word)


def _training_words(workload: Workload) -> Iterator[str]:
    """A training run: its sizes, precision, optimizer, and what it does to need less."""
    yield f"train, batch {workload.batch_size}" + (f" × {workload.grad_accum}" if workload.grad_accum > 1 else "")
    yield f"{workload.sequence_tokens:,} tokens"
    yield f"recipe {workload.recipe}"
    if workload.quant:
        yield f"base in {workload.quant}"
    if workload.lora:
        yield f"{workload.lora_variant or 'lora'} rank {workload.lora} on {workload.lora_targets or 'the usual modules'}"
    yield f"{workload.optimizer}"
    yield f"{workload.attention} attention"
    if workload.gradient_checkpointing:
        every = f" every {workload.checkpoint_every} layers" if workload.checkpoint_every > 1 else ""
        yield f"{workload.gradient_checkpointing} checkpointing{every}"
    if workload.loss not in (None, "full"):
        yield f"{workload.loss} loss"
    yield from _sharing_words(workload)


def _sharing_words(workload: Workload) -> Iterator[str]:
    """How processes share the run; nothing where there is one that keeps all."""
    if workload.gpus > 1:
        yield f"{workload.gpus} GPUs"
    for name, number in (("ZeRO", workload.zero), ("FSDP", workload.fsdp)):
        if number is not None:
            yield f"{name} {number}"
    for name, number in (("tp", workload.tp), ("pp", workload.pp), ("cp", workload.cp)):
        if number > 1:
            yield f"{name} {number}"
    if workload.sequence_parallel:
        yield "sequence parallel"
    if workload.offload:
        yield f"offload {workload.offload}"


#: What the phases are phases of, by mode.
PHASES_HEAD = {"train": "Phases of a step", "infer": "Phases of a run", "kv": "Phases of a run"}


def phase_rows(estimate: Estimate) -> list[tuple[str, str, str]]:
    """Every phase of a step with the bytes alive at its worst moment; the worst of all is marked."""
    return [
        (phase.name, least(phase.bytes, estimate), "peak" if phase.name == estimate.peak_phase else "")
        for phase in estimate.phases
    ]


#: The columns of :func:`device_rows`.
DEVICE_HEAD = ("devices", "layers", "parameters", "weights", "cache", "total")


def device_rows(estimate: Estimate) -> list[tuple[str, ...]]:
    """What each of several devices holds; neighbours that hold the same in one row."""
    rows: list[tuple[str, ...]] = []
    for _, same in groupby(estimate.devices, key=lambda one: replace(one, device=0)):
        held = list(same)
        first, last = held[0], held[-1]
        layers = f"{first.first_layer}–{first.end_layer - 1}" if first.end_layer > first.first_layer else ""
        rows.append(
            (
                str(first.device) if first is last else f"{first.device}–{last.device}",
                layers,
                f"{first.parameters:,}",
                format_bytes(first.weights_bytes),
                format_bytes(first.cache_bytes),
                format_bytes(first.total_bytes),
            )
        )
    return rows


#: The columns of :func:`stage_rows`.
STAGE_HEAD = ("", "weights", "gradients", "optimizer", "activations", "buffers", "total", "fits")


def stage_title(estimate: Estimate) -> str:
    """What the table of stages shows."""
    return f"GiB on each of {estimate.stages[0].gpus} GPUs"


def stage_rows(report: Report) -> list[tuple[str, ...]]:
    """Every way to share a training run, and whether the device asked about holds it with the whole band."""
    return [
        (
            one.name,
            *(
                format_gib(size)
                for size in (
                    one.weights_bytes,
                    one.gradients_bytes,
                    one.optimizer_bytes,
                    one.activations_bytes,
                    one.buffers_bytes,
                    one.total_bytes,
                )
            ),
            _VERDICTS[verdict_on(report, one)],
        )
        for one in report.estimate.stages
    ]


_VERDICTS = {None: "", "no": "no", "unknown": "?", "tight": "tight", "fits": "yes"}


def _cache_name(workload: Workload) -> str:
    """The cache, by its name where it is not the one that everybody has."""
    if workload.cache in (None, "dynamic", "paged", "swa"):
        return "KV cache"
    return f"{workload.cache.replace('_', ' ')} KV cache"


def band(low_bytes: int, high_bytes: int) -> str:
    """A band for people; empty where there is none."""
    return "" if low_bytes == high_bytes else f"{format_bytes(low_bytes)} – {format_bytes(high_bytes)}"


def note_of(part: Component) -> str:
    """The one thing to add to a component's row."""
    if part.category != "KVCache":
        return band(part.low_bytes, part.high_bytes)
    sequence_bytes = part.bytes // part.inputs["batch_size"]
    if "token_bytes" in part.inputs:
        return f"{part.inputs['token_bytes']:,} B a token, in blocks of {part.inputs['block_tokens']}"
    if "layers" in part.inputs:  # the textbook formula, in which every token costs the same
        return f"{sequence_bytes // (part.inputs['prompt_tokens'] + part.inputs['new_tokens']):,} B a token"
    return f"{sequence_bytes:,} B a sequence"


def thumb_line(estimate: Estimate) -> str | None:
    """The rule of thumb beside the estimate, as what it is."""
    weights = next((part.bytes for part in estimate.components if part.id == "weights"), None)
    if weights is None:
        return None
    return f"{RULE_OF_THUMB}: {format_bytes(weights * 6 // 5)}; it knows neither batch nor context, so it is neither a lower nor an upper bound"


#: The columns of :func:`fit_cells`.
FIT_HEAD = ("device", "usable", "verdict", "headroom", "max batch", "max context")
_USABLE = {
    "driver": "usable is nvidia-smi's total, of which the driver keeps one to three percent",
    "marketing": "usable is the size on the box, of which a process gets less",
    "rule": "usable follows the rule of machines that were measured",
}


def fit_cells(fit: Fit) -> tuple[str, ...]:
    """One device's row: what it has, the verdict, what is left, and the most that fits."""
    return (
        _devices(fit),
        format_bytes(fit.hardware.usable_bytes),
        fit.verdict,
        "unknown" if fit.headroom_bytes is None else format_bytes(fit.headroom_bytes),
        _most(fit.max_batch, fit),
        _most(fit.max_context, fit),
    )


def fit_notes(report: Report) -> Iterator[str]:
    """What the table does not say of each device: why, with which weights it would fit, how many it takes, whose word the size is."""
    for fit in report.fit:
        said = "; ".join(_remarks(fit))
        if said:
            yield f"{_devices(fit)}: {said}"


def _devices(fit: Fit) -> str:
    count = f" × {fit.hardware.count}" if fit.hardware.count > 1 else ""
    return clean(fit.hardware.name) + count


def _most(number: int | None, fit: Fit) -> str:
    if number is not None:
        return f"{number:,}" if number else "none"
    return "no limit" if fit.verdict in ("fits", "tight") else "unknown"


def _served(fit: Fit) -> Iterator[str]:
    """What a server's cache holds where it takes all that it may."""
    if fit.cache_tokens is None or fit.full_tokens is None:
        return
    yield f"the cache would hold about {fit.cache_tokens:,} tokens, {fit.full_sequences:,} sequences of {fit.full_tokens:,}"
    if not fit.full_sequences:
        yield "vLLM does not start so: --max-model-len must be shorter"


def _counted(fit: Fit) -> Iterator[str]:
    """How many of the devices it takes, where that was not said."""
    if fit.verdict in ("fits", "tight") and fit.hardware.count > 1:
        yield "one of them is enough"
    if fit.min_devices is None:
        yield "less than every process needs beside the model"
    elif fit.devices_needed:
        yield f"fits on {fit.devices_needed} of them with {fit.needed_split}"
    elif fit.min_devices > 1:
        yield f"at least {fit.min_devices} of them, however the model is split"


def _remarks(fit: Fit) -> Iterator[str]:
    if fit.reason:
        yield fit.reason
    yield from _served(fit)
    if fit.verdict in ("no", "tight") and fit.best_precision:
        yield f"fits with {fit.best_precision} weights"
    if fit.split is None:
        yield from _counted(fit)
    else:
        yield f"with {fit.split}; each row is for the fullest of them"
    if fit.hardware.usable_source in _USABLE:
        yield _USABLE[fit.hardware.usable_source]
