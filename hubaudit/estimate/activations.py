"""The largest temporaries alive at once in a forward pass without gradients: inside a layer, at the head, and for one new token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, component, given, known
from hubaudit.estimate.layer_moments import layer_moments, matrix_moment, origin, routed_inputs, scanned

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

#: One new token: the MLP's three tensors, and one layer's keys and values a second time while the token is appended.
_DECODE = (
    "6 * batch_size * intermediate_size * dtype_bits // 8"
    " + batch_size * largest_layer_elements * (prompt_tokens + new_tokens) * kv_bits // 8"
)
#: A decoder's first token, while the last layer fills its cross cache: the encoder's result, and what that layer makes keys and values of it.
_CROSSING = "batch_size * encoder_tokens * (hidden_size + 2 * attention_heads * head_dim) * dtype_bits // 8"
#: One new token where experts are multiplied in batches: the matrices of every token's own experts, copied out of the stack.
_GATHERED = (
    "batch_size * experts_per_token * expert_matrices * hidden_size * expert_intermediate_size * dtype_bits // 8"
)
_GATHERED_SOURCE = (
    "transformers 5.23.0, generation/utils.py (_optimize_model_for_decode), integrations/moe.py (batched_mm_experts_forward): each token "
    "copies its experts' matrices; within 0.3 % of traces of Mixtral and Qwen3-MoE"
)
_LOGITS = "batch_size * vocab_size * (dtype_bits // 8 + score_bytes)"
_KEPT_SCORES = "batch_size * vocab_size * score_bytes"
_LOGITS_SOURCE = "logits of the last token, their float32 copy, and what generate() derives of it and keeps until the next, transformers 5.23.0 generation/utils.py"
_ALL_LOGITS = "batch_size * prompt_tokens * vocab_size * (dtype_bits + 32) // 8 + batch_size * prompt_tokens * hidden_size * dtype_bits // 8"
#: A masked-language-model's head: logits of every token, with the encoder's output and what the head's own layer and norm make of it.
_MASKED_LOGITS = "batch_size * prompt_tokens * (vocab_size + 2 * hidden_size) * dtype_bits // 8"
_MASKED_SOURCE = (
    "transformers 5.23.0, models/bert/modeling_bert.py (BertForMaskedLM: scores of the whole sequence); within 2 % of traces of BERT, RoBERTa, "
    "DistilBERT, ELECTRA, MPNet and DeBERTa-v2, ModernBERT 13 % more"
)
_MASKED_PERCENT = (5, 15)
#: Bytes beside each logit, by how the next token is chosen: after the prompt, after a new token, and alive while the next one is computed. Read in
#: generation/utils.py (_sample, _beam_search) of transformers 5.23.0 and equal to traces; sampling is with generate()'s default of the 50 likeliest.
_SCORE_BYTES = {"greedy": (4, 8, 4), "sampled": (12, 17, 12), "beams": (10, 12, 8)}
#: A repository may ask for other ways to choose, and top_p sorts all words.
_LOGITS_PERCENT = (50, 200)
_ALL_LOGITS_PERCENT = (5, 5)


def layer_activations(facts: ModelFacts, setting: Setting) -> Component | str:
    """The worst moment inside of a layer while the prompt goes through; a reason where it cannot be known."""
    if any(layer.kind == "mamba1" for layer in facts.layer_plan or ()):
        return scanned(facts, setting)
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    made = [
        component(
            "activations", "Activation", moment.formula, inputs | dict(moment.inputs), exactness="formula",
            source=moment.source, band_percent=moment.band_percent,
        )
        for moment in layer_moments(facts, setting, routed_inputs(facts))
    ]  # fmt: skip
    return max(made, key=lambda part: part.bytes)


def matrix_activations(facts: ModelFacts, setting: Setting, which: str) -> Component | str:
    """What is alive beside the temporaries of a matrix product of the MLP: one that reads the stream (``in``), or the last (``out``)."""
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    moment = matrix_moment(facts, setting, which)
    return component(
        "activations", "Activation", moment.formula, inputs | dict(moment.inputs), exactness="formula",
        source=moment.source, band_percent=moment.band_percent,
    )  # fmt: skip


def crossing_activations(facts: ModelFacts, setting: Setting) -> Component | str | None:
    """What lies beside the cross caches when the last of them is made; ``None`` without an encoder, a reason where it cannot be known."""
    if facts.family != "encoder-decoder" or not setting.new_tokens.value:
        return None
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    source, band = origin(facts)
    return component(
        "activations", "Activation", _CROSSING, inputs | {"encoder_tokens": setting.encoder_tokens}, exactness="formula",
        source=source, band_percent=band,
    )  # fmt: skip


def decode_activations(facts: ModelFacts, setting: Setting, largest_layer_elements: int) -> Component | str:
    """Temporaries of one new token at the end of the text; a reason where they cannot be known."""
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    inputs |= {
        "new_tokens": setting.new_tokens,
        "kv_bits": setting.kv_bits,
        "largest_layer_elements": given(
            largest_layer_elements, "keys and values of a token in the layer that keeps most"
        ),
    }
    source, band = origin(facts)
    made = component(
        "activations", "Activation", _DECODE, inputs, exactness="formula", source=source, band_percent=band
    )
    routed = routed_inputs(facts)
    if routed is None or not setting.release.gathers_experts or setting.choice == "beams":
        return made  # beam search leaves the experts as the prompt has them
    inputs |= routed | {"expert_matrices": given(3, "rule:gate, up and down")}
    gathered = component(
        "activations",
        "Activation",
        _GATHERED,
        inputs,
        exactness="formula",
        source=_GATHERED_SOURCE,
        band_percent=(5, 5),
    )
    return max(made, gathered, key=lambda part: part.bytes)


def kept_scores(facts: ModelFacts, setting: Setting) -> Component | None:
    """What generate() still holds of the last token's scores while the next token goes through the layers."""
    vocab_size = known(facts.vocab_size)
    if vocab_size is None or setting.new_tokens.value < 2:
        return None
    kept = _SCORE_BYTES[setting.choice][2]
    inputs = {
        "batch_size": setting.batch_size,
        "vocab_size": vocab_size,
        "score_bytes": given(kept, f"rule:{setting.choice}"),
    }
    return component(
        "logits", "Activation", _KEPT_SCORES, inputs, exactness="formula", source=_LOGITS_SOURCE,
        band_percent=_LOGITS_PERCENT,
    )  # fmt: skip


def logits(facts: ModelFacts, setting: Setting, *, of_prompt: bool) -> Component | str | None:
    """What the head makes of the last token, or of the whole prompt where the release or the class does so; ``None`` for models without such a head."""
    if facts.family in ("encoder", "other") and not _is_masked(facts):
        return None
    vocab_size = known(facts.vocab_size)
    if vocab_size is None:
        return f"vocab_size is not known: {facts.vocab_size.where}"
    inputs = {"batch_size": setting.batch_size, "vocab_size": vocab_size, "dtype_bits": setting.dtype_bits}
    if _is_masked(facts) or (of_prompt and setting.release.all_logits):
        return _all_logits(facts, setting, inputs)
    is_later = not of_prompt and setting.new_tokens.value > 1
    beside = _SCORE_BYTES[setting.choice][1 if is_later else 0]
    inputs["score_bytes"] = given(beside, f"rule:{setting.choice}")
    return component(
        "logits", "Activation", _LOGITS, inputs, exactness="formula", source=_LOGITS_SOURCE,
        band_percent=_LOGITS_PERCENT,
    )  # fmt: skip


def _is_masked(facts: ModelFacts) -> bool:
    return facts.family == "encoder" and (facts.architecture or "").endswith("ForMaskedLM")


def _all_logits(facts: ModelFacts, setting: Setting, inputs: dict[str, Input]) -> Component | str:
    """Scores at every token of the prompt: what a masked language model is for, and what older releases make of every model."""
    hidden_size = known(facts.hidden_size)
    if hidden_size is None:
        return f"hidden_size is not known: {facts.hidden_size.where}"
    formula, source, band = (
        (_MASKED_LOGITS, _MASKED_SOURCE, _MASKED_PERCENT)
        if _is_masked(facts)
        else (_ALL_LOGITS, setting.release.source, _ALL_LOGITS_PERCENT)
    )
    inputs |= {"prompt_tokens": setting.prompt_tokens, "hidden_size": hidden_size}
    return component("logits", "Activation", formula, inputs, exactness="formula", source=source, band_percent=band)


def _inputs(facts: ModelFacts, setting: Setting) -> dict[str, Input] | str:
    inputs = {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "dtype_bits": setting.dtype_bits,
    }
    for name, fact in (
        ("hidden_size", facts.hidden_size),
        ("intermediate_size", facts.intermediate_size),
        ("head_dim", facts.head_dim),
        ("attention_heads", facts.attention_heads),
    ):
        value = known(fact)
        if value is None:
            return f"{name} is not known: {fact.where}"
        inputs[name] = value
    return inputs
