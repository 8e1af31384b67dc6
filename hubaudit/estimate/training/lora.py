"""Low-rank adapters: which matrices have one, and the tensors that are trained in the model's place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.errors import UsageError
from hubaudit.estimate.component import component, given
from hubaudit.estimate.training.tensors import TOWERS, Trained, elements_of, trained_as
from hubaudit.facts.loading import loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import Adapters, TrainSetting
    from hubaudit.types import Component, ModelFacts, TensorGroup

TABLE = "lora_targets.toml"
ALL_LINEAR = "all-linear"
#: What no adapter is put on: parameters that are no modules of their own (routers, fused experts; transformers 5), and norms.
_NO_LINEAR = frozenset({"router", "expert", "norm", "buffer"})
#: Names of the matrices that read attention's result, and the MLP's product.
_ATTENTION_OUT = frozenset({"o_proj", "out_proj", "c_proj", "dense", "wo", "o"})
_MLP_OUT = frozenset({"down_proj", "output_linear", "c_proj", "fc2", "dense_4h_to_h", "w2", "wo"})
#: What weighs the result of a shared expert, and reads the stream as its matrices do.
_GATE_OF_SHARED = "shared_expert_gate"
#: Names of single experts' matrices: PEFT takes them for the fused parameters, and leaves dense layers of the same names alone.
_OF_EXPERTS = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
#: Types whose matrices are GPT-2's Conv1D, stored with the inputs first.
_CONV1D = frozenset({"gpt2", "openai-gpt", "imagegpt", "decision_transformer"})
#: A matrix's tensor, plain and as packed formats call it.
_WEIGHTS = (".weight", ".qweight", ".weight_packed")
_PEFT = "peft 0.21.2 tuners/lora/layer.py; 16-bit adapters are made float32 (autocast_adapter_dtype)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """How many of one layer's matrices have adapters, by what they read.

    That is the layer's stream before attention, attention's result, the stream before the MLP, or the MLP's product. ``names`` are those of
    all of them. ``experts``: the fused experts have adapters too.
    """

    attention_in: int = 0
    attention_out: int = 0
    mlp_in: int = 0
    mlp_out: int = 0
    names: frozenset[str] = frozenset()
    experts: bool = False


def adapted_groups(facts: ModelFacts, adapters: Adapters) -> list[TensorGroup]:
    """The matrices that get an adapter.

    Raises:
        UsageError: no module of the model has one of the names, or nobody says which and PEFT has no default for the model type.
    """
    groups = [group for group in loaded_groups(facts) if _is_adaptable(group)]
    if adapters.targets == ALL_LINEAR:
        taken = _OF_EXPERTS if _converts_experts(facts) else ()
        found = [
            group
            for group in groups
            if group.kind == "linear" and not _is_output(group, facts) and not _matches(_module(group), taken)
        ]
    else:
        names = _names(facts, adapters)
        found = [group for group in groups if _matches(_module(group), names)]
    if not found:
        raise UsageError("no module has the name of one of --lora-targets", hint="--lora-targets all-linear")
    return found


def _converts_experts(facts: ModelFacts) -> bool:
    """Whether PEFT finds fused experts by the names of single ones; of other types it takes modules alone."""
    return facts.model_type in table(TABLE)["fused_experts"]


def _names(facts: ModelFacts, adapters: Adapters) -> tuple[str, ...]:
    if adapters.targets is not None:
        return tuple(name.strip() for name in adapters.targets.split(",") if name.strip())
    known: dict[str, list[str]] = table(TABLE)["targets"]
    names = known.get(facts.model_type or "")
    if names is None:
        of_what = f"the model type {facts.model_type}" if facts.model_type else "a model that names no type"
        raise UsageError(f"PEFT has no default targets for {of_what}", hint="--lora-targets all-linear")
    return tuple(names)


def _is_adaptable(group: TensorGroup) -> bool:
    is_gate = _module(group).endswith(_GATE_OF_SHARED)
    shape = group.logical_shape or group.shape
    if group.pattern.endswith("relative_attention_bias.weight"):
        return False  # an embedding of distances
    return group.pattern.endswith(_WEIGHTS) and len(shape) == 2 and (group.role not in _NO_LINEAR or is_gate)


def _is_output(group: TensorGroup, facts: ModelFacts) -> bool:
    """Whether it is the model's output embedding, which ``all-linear`` leaves out."""
    return group.role in ("head", "embedding") and facts.vocab_size.value in group.shape


def _module(group: TensorGroup) -> str:
    return group.pattern.rpartition(".")[0]


def _matches(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.endswith(f".{name}") for name in names)


def trained_tensors(facts: ModelFacts, adapters: Adapters) -> tuple[Trained, ...]:
    """Matrices A and B of every adapter, DoRA's magnitudes; then the modules that are trained whole."""
    rank = adapters.rank
    made = _of_experts(facts, adapters)
    for group in adapted_groups(facts, adapters):
        rows, columns = group.logical_shape or group.shape
        shapes: list[tuple[int, ...]] = [(rank, columns), (rows, rank)]
        if adapters.variant == "dora":
            shapes.append((columns,) if facts.model_type in _CONV1D else (rows,))
        in_tower = group.role in TOWERS
        made += [Trained(role="adapter", shape=shape, count=group.count, in_tower=in_tower) for shape in shapes]
    return tuple(made)


def _of_experts(facts: ModelFacts, adapters: Adapters) -> list[Trained]:
    """Adapters of fused experts and their router, which ``all-linear`` means too: the rank for every expert, twice for gate and up in one.

    Raises:
        UsageError: DoRA does not know parameters that are no modules.
    """
    moe, hidden = facts.moe, facts.hidden_size.value
    layers = max((group.count for group in loaded_groups(facts) if group.role == "router"), default=0)
    if adapters.targets != ALL_LINEAR or not _converts_experts(facts) or moe is None or not hidden or not layers:
        return []
    if adapters.variant == "dora":
        raise UsageError("PEFT has no DoRA for fused experts", hint="--lora-targets q_proj,k_proj,v_proj,o_proj")
    experts, size = moe.experts.value, moe.expert_intermediate_size.value or facts.intermediate_size.value
    if not experts or not size:
        return []
    rank = adapters.rank
    shapes = (
        (2 * rank * experts, hidden), (2 * size, 2 * rank * experts), (rank * experts, size), (hidden, rank * experts), (rank, hidden), (experts, rank),
    )  # fmt: skip
    return [Trained(role="adapter", shape=shape, count=layers) for shape in shapes]


def saved_whole(facts: ModelFacts, adapters: Adapters) -> tuple[Trained, ...]:
    """Copies of the modules that are trained whole beside the adapters.

    Raises:
        UsageError: no module has that name.
    """
    found = []
    for name in adapters.modules_to_save:
        groups = [
            group
            for group in loaded_groups(facts)
            if group.parameters and _matches(group.pattern.rpartition(".")[0], (name,))
        ]
        if not groups:
            raise UsageError(
                f"no module is called `{name}`", hint="--modules-to-save takes a name as lm_head or embed_tokens"
            )
        found += [trained_as(group) for group in groups]
    return tuple(found)


def targets_of(facts: ModelFacts, setting: TrainSetting) -> Targets:
    """The same by what the matrices read, for one layer."""
    if setting.adapters is None:
        return Targets()
    places: dict[str, set[str]] = {name: set() for name in ("attention_in", "attention_out", "mlp_in", "mlp_out")}
    adapted = adapted_groups(facts, setting.adapters)
    for group in adapted:
        place = _place(group)
        if place is not None:  # an encoder and a decoder have matrices of the same names
            places[place].add(_module(group).rpartition(".")[2])
    counts = {place: len(names) for place, names in places.items()}
    return Targets(
        **counts,
        names=frozenset(_module(group).rpartition(".")[2] for group in adapted),
        experts=bool(_of_experts(facts, setting.adapters)),
    )


def adapted_outputs(facts: ModelFacts, setting: TrainSetting) -> tuple[int, int]:
    """Values that the adapted matrices of one layer make of a token, on average over the layers; and those of the widest matrix."""
    if setting.adapters is None:
        return 0, 0
    side = 1 if facts.model_type in _CONV1D else 0
    groups = adapted_groups(facts, setting.adapters)
    widths = [((group.logical_shape or group.shape)[side], group.count) for group in groups]
    made = sum(width * count for width, count in widths)
    return -(-made // max(1, facts.layers.value or 1)), max(width for width, _ in widths)


def _place(group: TensorGroup) -> str | None:
    name = _module(group).rpartition(".")[2]
    if group.role == "attention":
        return "attention_out" if name in _ATTENTION_OUT else "attention_in"
    if group.role in ("mlp", "shared_expert") or name == _GATE_OF_SHARED:
        is_out = name in _MLP_OUT or _module(group).endswith(".output.dense")
        return "mlp_out" if is_out else "mlp_in"
    return None


def adapter_component(facts: ModelFacts, setting: TrainSetting) -> Component | None:
    """The adapters' own weights; ``None`` where there are none."""
    if setting.adapters is None:
        return None
    inputs = {
        "adapter_parameters": given(
            elements_of(trained_tensors(facts, setting.adapters)), "rank × (rows + columns) of every target"
        ),
        "copied_parameters": given(elements_of(saved_whole(facts, setting.adapters)), "modules_to_save"),
        "weight_bits": given(setting.recipe.weight_bits, f"table:recipes.toml#{setting.recipe.name}"),
    }
    formula = "4 * adapter_parameters"
    formula += " + copied_parameters * weight_bits // 8" if inputs["copied_parameters"].value else ""
    return component("adapters", "Parameter", formula, inputs, exactness="exact", source=_PEFT)
