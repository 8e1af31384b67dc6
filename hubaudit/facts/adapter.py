"""Adapters of PEFT: what they put on top of their base model, and both together."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.facts.checkpoints import models_own
from hubaudit.facts.loading import ADAPTER, TUNER, with_residence
from hubaudit.facts.model import lost_weights
from hubaudit.facts.parts import whole_of, with_sums
from hubaudit.facts.tensors import by_name, count_parameters, group_tensors, pattern_of
from hubaudit.formats.adapters import adapter_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.formats.adapters import AdapterConfig
    from hubaudit.types import Config, ModelFacts, RepoSnapshot, TensorGroup

#: What PEFT puts before the names of the base model's modules: its own wrapper and its tuner.
_WRAPPED = re.compile(r"^base_model\.(model\.)?")
#: Embeddings that PEFT saves whole where they were resized or trained (save_and_load.py, EMBEDDING_LAYER_NAMES), of the usual models.
_MOST_COPIES = 64
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|lm_head|wte|word_embeddings|embed_in|embed_out)\.weight$")


def understand_adapter(snapshot: RepoSnapshot, understand: Callable[[RepoSnapshot], ModelFacts]) -> ModelFacts | None:
    """The adapter and its base as one model; ``None`` where the repository is no adapter.

    Shape, cache and quantization are the base's; counts and sizes are sums, with both as ``components``. Without its base the adapter alone is
    told, and why.

    Raises:
        CannotAuditError: the base model is there and cannot be understood.
    """
    adapter = adapter_config(snapshot)
    if adapter is None:
        return None
    base = None if snapshot.base is None else replace(understand(snapshot.base), name="base")
    own = _adapter(snapshot, adapter, base)
    if base is None:
        reason = f"base model not read: {snapshot.base_reason or adapter.base}"
        whole = whole_of((own,), library="peft", architecture=own.architecture, why_unknown=reason)
        return replace(
            whole, layer_plan=None, layer_plan_reason=reason, family="unknown", missing=(reason, *whole.missing)
        )
    whole = with_sums(replace(base, name=None, library="peft"), (base, own))
    quantized = f"the adapter lies on a base quantized by {base.quantization.method}" if base.quantization else None
    return replace(whole, missing=(*whole.missing, *((quantized,) if quantized else ())))


def _adapter(snapshot: RepoSnapshot, adapter: AdapterConfig, base: ModelFacts | None) -> ModelFacts:
    """The adapter's own tensors."""
    snapshot = models_own(snapshot).snapshot
    lost = lost_weights(snapshot)
    groups = () if lost else _groups(snapshot, adapter.config, base)
    kind = adapter.config.get("peft_type")
    alone = whole_of((), library="peft", architecture=kind if isinstance(kind, str) else None, why_unknown="an adapter")
    sizes = [file.size_bytes for file in snapshot.weights]
    problems = "; ".join(f"{problem.path}: {problem.reason}" for problem in snapshot.problems)
    parameters = count_parameters(
        groups, experts=None, experts_per_token=None, is_moe=False, where="header:all tensors of the adapter"
    )
    is_counted = bool(groups) and all(group.parameters is not None for group in groups)
    return with_residence(
        replace(
            alone,
            name="adapter",
            dtype=alone.dtype if base is None else base.dtype,
            parameters=parameters if is_counted else None,
            parameters_reason=None if is_counted else problems or "no adapter weights that hubaudit reads",
            tensor_groups=groups,
            stored_bytes=sum(group.stored_bytes for group in groups) if groups else None,
            file_bytes=sum(size for size in sizes if size is not None) if groups and None not in sizes else None,
            format=snapshot.weights[0].format if snapshot.weights else None,
            missing=tuple(_notes(snapshot, adapter.config)),
        )
    )


def _groups(snapshot: RepoSnapshot, config: Config, base: ModelFacts | None) -> tuple[TensorGroup, ...]:
    """Tuned tensors, which PEFT holds in float32; copies of the base's modules, in the base's dtype; and weights that replace the base's.

    peft 0.21.2: `cast_adapter_dtype` (tuners/tuners_utils.py), `ModulesToSaveWrapper` (utils/other.py), `set_peft_model_state_dict`.
    """
    tensors = [tensor for file in snapshot.weights for tensor in file.tensors]
    saved = config.get("modules_to_save")
    copied = tuple(name for name in saved[:_MOST_COPIES] if isinstance(name, str)) if isinstance(saved, list) else ()
    of_base = frozenset(group.pattern for group in base.tensor_groups) if base else frozenset()

    def module_of(name: str) -> str:
        return _WRAPPED.sub("", name)

    def is_copy(name: str) -> bool:
        words = module_of(name).split(".")
        return any(
            saved.split(".") == words[at : at + saved.count(".") + 1] for saved in copied for at in range(len(words))
        )

    def extra_of(name: str) -> str | None:
        own = module_of(name)
        is_whole = ".base_layer." in own or pattern_of(own) in of_base or _EMBEDDING.search(own) is not None
        return "replaces the base's" if is_whole and not is_copy(name) else None

    groups = group_tensors(by_name(tensors), extras_of=lambda names: [extra_of(name) for name in names])
    return tuple(
        replace(group, role=ADAPTER, kind=group.kind if group.extra or is_copy(group.pattern) else TUNER)
        for group in groups
    )


def _notes(snapshot: RepoSnapshot, config: Config) -> Iterator[str]:
    for problem in snapshot.problems:
        yield f"{problem.path}: {problem.reason}"
    virtual = config.get("num_virtual_tokens")
    if type(virtual) is int and virtual > 0:
        yield f"{virtual} virtual tokens stand before every prompt and are not in its tokens"
