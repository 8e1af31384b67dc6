"""A training workload made definite for one model: every choice that was left open is made, and said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, dtype_named, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.component import Input, given
from hubaudit.estimate.conversion import conversion_of
from hubaudit.estimate.setting import load_choice
from hubaudit.estimate.training.optimizers import Optimizer, optimizer_named
from hubaudit.estimate.training.recipes import Recipe, recipe_for, recipe_named
from hubaudit.facts.loading import stays_packed

if TYPE_CHECKING:
    from hubaudit.estimate.conversion import Conversion
    from hubaudit.types import Checkpointing, ModelFacts, Workload

DEFAULT_SEQUENCE_TOKENS = 2048
DEFAULT_OPTIMIZER = "adamw"
LOSSES = ("full", "held", "chunked", "fused")
OFFLOADS = ("optimizer", "all", "optimizer-nvme", "all-nvme")
VARIANTS = ("lora", "dora", "rslora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Low-rank adapters as they were asked for; ``targets`` is ``None`` where PEFT's own choice for the model type holds."""

    rank: int
    targets: str | None
    variant: str
    has_dropout: bool
    modules_to_save: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How processes share the run: ``zero`` and ``fsdp`` are ``None`` where they are not used."""

    gpus: int
    zero: int | None
    fsdp: int | None
    tp: int
    pp: int
    offload: str | None
    cp: int
    sequence_parallel: bool

    @property
    def replicas(self) -> int:
        """Processes that see different data and may share states."""
        return self.gpus // (self.tp * self.pp)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSetting:
    """One training workload on one model, definite. ``recipe`` is that of full fine-tuning and of the base under adapters alike."""

    batch_size: Input
    sequence_tokens: Input
    grad_accum: int
    recipe: Recipe
    optimizer: Optimizer
    conversion: Conversion | None
    attention: str
    checkpointing: Checkpointing | None
    checkpoint_every: int
    loss: str
    adapters: Adapters | None
    sharing: Sharing
    is_packed: bool
    assumptions: tuple[str, ...]
    in_flight: int = 1

    @property
    def is_prepared(self) -> bool:
        """Whether the base is quantized, and what is not was made float32 (``prepare_model_for_kbit_training``)."""
        return self.conversion is not None or self.is_packed


def settle_training(facts: ModelFacts, workload: Workload) -> TrainSetting:
    """Fill in what the workload leaves open, from the model and from what the Hugging Face Trainer does by default.

    Raises:
        UsageError: the workload asks for something that does not exist, or for two things that exclude each other.
    """
    assumptions: list[str] = []
    _check(workload)
    is_packed = stays_packed(facts)
    if is_packed and workload.lora is None:
        raise UsageError("quantized weights are not trained themselves", hint="--lora RANK trains adapters on them")
    if is_packed and workload.quant is not None:
        raise UsageError("the weights are already quantized", hint="leave out --quant")
    recipe = _recipe(facts, workload, assumptions)
    optimizer = optimizer_named(workload.optimizer or DEFAULT_OPTIMIZER)
    if workload.optimizer is None:
        assumptions.append("fused AdamW, as the Hugging Face Trainer does, unless --optimizer says otherwise")
    return TrainSetting(
        batch_size=given(workload.batch_size, "workload"),
        sequence_tokens=_sequence(facts, workload, assumptions),
        grad_accum=workload.grad_accum,
        recipe=recipe,
        optimizer=optimizer,
        conversion=conversion_of(workload),
        attention=workload.attention,
        checkpointing=workload.gradient_checkpointing,
        checkpoint_every=workload.checkpoint_every,
        loss=workload.loss or "full",
        adapters=_adapters(workload),
        sharing=Sharing(
            gpus=workload.gpus,
            zero=workload.zero,
            fsdp=workload.fsdp,
            tp=workload.tp,
            pp=workload.pp,
            offload=workload.offload,
            cp=workload.cp,
            sequence_parallel=workload.sequence_parallel,
        ),
        is_packed=is_packed,
        assumptions=tuple(assumptions),
    )


def definite_training(facts: ModelFacts, workload: Workload) -> Workload:
    """The workload with every open choice filled in as :func:`settle_training` does, for the report."""
    setting = settle_training(facts, workload)
    return replace(
        workload,
        sequence_tokens=setting.sequence_tokens.value,
        recipe=setting.recipe.name,
        optimizer=setting.optimizer.name,
        dtype=short_name(setting.recipe.weight_dtype),
        loss=setting.loss,
    )


def _check(workload: Workload) -> None:
    """Refuse what does not exist, in the words of the command line."""
    choices = (
        ("loss", workload.loss, LOSSES),
        ("offload", workload.offload, OFFLOADS),
        ("kind of adapter", workload.lora_variant, VARIANTS),
    )
    for what, said, known in choices:
        if said is not None and said not in known:
            raise UsageError(f"unknown {what} `{said}`", hint=f"one of {', '.join(known)}")
    for what, number in (
        ("batch size", workload.batch_size),
        ("gpus", workload.gpus),
        ("grad-accum", workload.grad_accum),
    ):
        if number < 1:
            raise UsageError(f"{what} must be at least 1, not {number}")
    if workload.zero is not None and workload.fsdp is not None:
        raise UsageError("--zero and --fsdp shard the same states", hint="leave out one of them")
    if workload.gpus % (workload.tp * workload.pp * workload.cp):
        asked = f"--tp {workload.tp} × --pp {workload.pp} × --cp {workload.cp}"
        raise UsageError(f"{workload.gpus} GPUs are no multiple of {asked}", hint="--gpus N")
    if workload.runtime != "transformers":
        raise UsageError(f"{workload.runtime} does not train", hint="leave out --runtime")
    if workload.quant is not None and workload.lora is None:
        raise UsageError("quantized weights are not trained themselves", hint="--lora RANK trains adapters on them")
    asks_for_lora = workload.lora_targets or workload.lora_variant or workload.modules_to_save or workload.lora_dropout
    if workload.lora is None and asks_for_lora:
        raise UsageError("what adapters are like is said, but not their rank", hint="--lora RANK")


def _recipe(facts: ModelFacts, workload: Workload, assumptions: list[str]) -> Recipe:
    """The recipe asked for, else that of the dtype the model is loaded in."""
    if workload.recipe is not None:
        recipe = recipe_named(workload.recipe)
        if workload.dtype is not None and dtype_named(workload.dtype) != recipe.weight_dtype:
            raise UsageError(
                f"--recipe {recipe.name} loads weights as {short_name(recipe.weight_dtype)}, not {workload.dtype}",
                hint="leave out --dtype",
            )
        return recipe
    dtype, _ = load_choice(facts, workload, assumptions)
    recipe = recipe_named(recipe_for(dtype))
    assumptions.append(
        f"weights, gradients and states as the model is loaded, in {short_name(dtype)}, unless --recipe says otherwise"
    )
    return recipe


def _sequence(facts: ModelFacts, workload: Workload, assumptions: list[str]) -> Input:
    limit = facts.max_positions.value
    asked = workload.sequence_tokens
    if asked is None:
        tokens = min(DEFAULT_SEQUENCE_TOKENS, limit or DEFAULT_SEQUENCE_TOKENS)
        assumptions.append(f"sequences of {tokens} tokens, unless --seq-len says otherwise")
        return given(tokens, "workload")
    if asked < 1:
        raise UsageError(f"sequence tokens must be at least 1, not {asked}")
    if limit and asked > limit:
        assumptions.append(f"{asked} tokens are more than the {limit} positions that the config declares")
    return given(asked, "workload")


def _adapters(workload: Workload) -> Adapters | None:
    if workload.lora is None:
        return None
    if workload.lora < 1:
        raise UsageError(f"the rank of adapters must be at least 1, not {workload.lora}")
    return Adapters(
        rank=workload.lora,
        targets=workload.lora_targets,
        variant=workload.lora_variant or "lora",
        has_dropout=workload.lora_dropout,
        modules_to_save=workload.modules_to_save,
    )


def compute_bits(setting: TrainSetting) -> Input:
    """Width of activations."""
    return given(bits_of()[setting.recipe.compute], f"table:recipes.toml#{setting.recipe.name}")
