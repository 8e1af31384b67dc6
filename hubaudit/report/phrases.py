"""The sentences that every text form of a report shares, and the cleaning of words that strangers wrote."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from hubaudit.types import Component, Estimate, ModelFacts, Report, Workload

#: What people reckon with, and why it is no bound: it knows neither the batch nor the context.
RULE_OF_THUMB = "rule of thumb 1.2 × weights"


def clean(text: str) -> str:
    """Text from a repository made safe for a terminal: control and other unprintable characters are escaped, never sent."""
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
    quant = f" weights {workload.quant}," if workload.quant else ""
    return (
        f"batch {workload.batch_size}, {workload.prompt_tokens:,} prompt + {workload.new_tokens:,} new tokens,"
        f"{quant} {workload.dtype}, KV cache {workload.kv_dtype}, {workload.attention} attention, {workload.runtime}"
    )


def band(low_bytes: int, high_bytes: int) -> str:
    """A band for people; empty where there is none."""
    return "" if low_bytes == high_bytes else f"{format_bytes(low_bytes)} – {format_bytes(high_bytes)}"


def note_of(part: Component) -> str:
    """The one thing to add to a component's row."""
    if part.category != "KVCache":
        return band(part.low_bytes, part.high_bytes)
    sequence_bytes = part.bytes // part.inputs["batch_size"]
    if "layers" in part.inputs:  # the textbook formula, in which every token costs the same
        return f"{sequence_bytes // (part.inputs['prompt_tokens'] + part.inputs['new_tokens']):,} B a token"
    return f"{sequence_bytes:,} B a sequence"


def thumb_line(estimate: Estimate) -> str | None:
    """The rule of thumb beside the estimate, as what it is."""
    weights = next((part.bytes for part in estimate.components if part.id == "weights"), None)
    if weights is None:
        return None
    return f"{RULE_OF_THUMB}: {format_bytes(weights * 6 // 5)}; it knows neither batch nor context, so it is neither a lower nor an upper bound"
