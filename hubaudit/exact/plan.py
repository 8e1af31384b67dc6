"""What exact mode is asked to run, free of the command line's words: one record for tests, tools and the audit alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hubaudit.errors import CannotAuditError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.types import Workload

#: Every expert gets as many tokens; or as many experts as a token chooses get all of them.
BALANCED, WORST = "balanced", "worst"
#: Of the device that is taken where none is named.
DEFAULT_CAPABILITY = "8.0"
_CACHES = ("dynamic", "static")
_WHY_NOT = {
    "quantized": ", whose layers are packed by kernels of optimum-quanto or HQQ that it does not know",
    "offloaded": ", whose layers come and go on a stream of their own",
    "offloaded_static": ", whose layers come and go on a stream of their own",
}
_PLAIN_RECIPES = ("fp32", "bf16", "fp16")
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_AMP_RECIPES = {"amp": "bf16", "amp-fp16": "fp16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: ``tokens`` are the prompt's, or a training sequence's.

    ``quant`` is ``nf4``, ``fp4``, ``int8`` or ``None``, ``skipped_modules`` what of a checkpoint is left out of it; ``autocast`` the type of a mixed-precision step. ``holds_outputs``: the outputs live on
    through the backward pass, as in loops that keep them in a variable. ``upcasts_base``: peft's prepare_model_for_kbit_training runs.
    ``routing``: how experts get their tokens, ``balanced`` or ``worst``, where memory depends on it. ``cache`` is ``dynamic`` or ``static``,
    ``max_cache_len`` what a static one is sized for where that is more than the run needs.
    """

    mode: Literal["infer", "train"]
    batch_size: int
    tokens: int
    new_tokens: int = 0
    dtype: str = "bf16"
    attention: str = "sdpa"
    quant: str | None = None
    double_quant: bool = False
    compute_dtype: str = "bf16"
    skipped_modules: tuple[str, ...] = ()
    outlier_threshold: float = 6.0
    autocast: str | None = None
    optimizer: str = "adamw"
    steps: int = 2
    grad_accum: int = 1
    checkpointing: bool = False
    holds_outputs: bool = False
    lora_rank: int | None = None
    lora_targets: str | None = None
    lora_variant: str = "lora"
    lora_dropout: bool = False
    modules_to_save: tuple[str, ...] = ()
    upcasts_base: bool = False
    uses_cache: bool | None = None
    cache: str = "dynamic"
    max_cache_len: int | None = None
    num_beams: int = 1
    num_return_sequences: int = 1
    routing: str = BALANCED


def plan_of(workload: Workload) -> Plan:
    """The plan for a workload in which nothing is left open (as :func:`hubaudit.estimate.modes.definite` returns).

    Raises:
        UsageError: what is asked for is outside exact mode, which says so rather than leave it out.
    """
    _refuse_what_is_outside(workload)
    if workload.mode != "train":
        return Plan(
            mode="infer",
            batch_size=workload.batch_size,
            tokens=workload.prompt_tokens or 1,
            new_tokens=workload.new_tokens or 0,
            dtype=workload.dtype or "bf16",
            attention=workload.attention,
            quant=workload.quant,
            double_quant=workload.bnb_4bit_use_double_quant,
            compute_dtype=_compute_dtype(workload),
            cache=workload.cache or "dynamic",
            max_cache_len=workload.max_cache_len,
            num_beams=workload.num_beams,
            num_return_sequences=workload.num_return_sequences,
        )
    recipe = workload.recipe or "bf16"
    if recipe not in _PLAIN_RECIPES and recipe not in _AMP_RECIPES:
        raise UsageError(
            f"exact mode does not run the recipe {recipe}", hint="it runs fp32, bf16, fp16, amp and amp-fp16"
        )
    return Plan(
        mode="train",
        batch_size=workload.batch_size,
        tokens=workload.sequence_tokens or 1,
        dtype="fp32" if recipe in _AMP_RECIPES else recipe,
        attention=workload.attention,
        quant=workload.quant,
        double_quant=workload.bnb_4bit_use_double_quant,
        compute_dtype=_compute_dtype(workload),
        autocast=_AMP_RECIPES.get(recipe),
        optimizer=workload.optimizer or "adamw",
        grad_accum=workload.grad_accum,
        checkpointing=workload.gradient_checkpointing is not None,
        holds_outputs=workload.loss == "held",
        lora_rank=workload.lora,
        lora_targets=workload.lora_targets,
        lora_variant=workload.lora_variant or "lora",
        lora_dropout=workload.lora_dropout,
        modules_to_save=workload.modules_to_save,
        upcasts_base=workload.quant is not None,
    )


def _compute_dtype(workload: Workload) -> str:
    """In what 4-bit layers compute: BitsAndBytesConfig's default where nothing is said."""
    name = workload.bnb_4bit_compute_dtype or "float32"
    return _SHORT.get(name, name)


def of_checkpoint(plan: Plan, config: Mapping[str, Any]) -> Plan:
    """The plan with what the checkpoint's own ``quantization_config`` says, where it has one.

    Raises:
        CannotAuditError: it was quantized by something other than bitsandbytes, whose modules exact mode does not know.
        UsageError: it is quantized already and another quantization is asked for.
    """
    stored = config.get("quantization_config")
    if not isinstance(stored, dict):
        return plan
    is_4bit, is_8bit = (bool(stored.get(name)) for name in ("load_in_4bit", "load_in_8bit"))
    method = stored.get("quant_method", "bitsandbytes" if is_4bit or is_8bit else None)
    if method != "bitsandbytes" or is_4bit == is_8bit:
        raise CannotAuditError(
            f"the weights are quantized by {method or 'a method that the config does not name'}, and exact mode knows the modules and kernels "
            "of bitsandbytes only",
            hint="without --exact the estimate is by formula",
        )
    if plan.quant is not None:
        raise UsageError("the checkpoint is quantized already", hint="leave --quant out")
    return replace(
        plan,
        quant="int8" if is_8bit else str(stored.get("bnb_4bit_quant_type", "fp4")),
        double_quant=bool(stored.get("bnb_4bit_use_double_quant")),
        compute_dtype=_SHORT.get(str(stored.get("bnb_4bit_compute_dtype", "float32")).removeprefix("torch."), "fp32"),
        skipped_modules=tuple(map(str, stored.get("llm_int8_skip_modules") or ())),
        outlier_threshold=float(stored.get("llm_int8_threshold", 6.0)),
        upcasts_base=plan.mode == "train",
    )


def _refuse_what_is_outside(workload: Workload) -> None:
    outside = {
        f"--runtime {workload.runtime}": workload.runtime != "transformers",
        f"--cache {workload.cache}{_WHY_NOT.get(workload.cache or '', '')}": workload.cache not in (None, *_CACHES)
        and workload.mode != "train",
        f"--quant {workload.quant}": workload.quant not in (None, "nf4", "fp4", "int8"),
        f"--loss {workload.loss}": workload.loss not in (None, "full", "held"),
        "--selective-checkpointing": workload.gradient_checkpointing == "selective",
        f"--checkpoint-every {workload.checkpoint_every}": workload.checkpoint_every > 1,
        f"--offload {workload.offload}": workload.offload is not None,
        "several GPUs": max(workload.gpus, workload.tp, workload.pp, workload.ep) > 1,
        "quantized base weights without --lora": workload.mode == "train"
        and bool(workload.quant)
        and not workload.lora,
    }
    for words, is_outside in outside.items():
        if is_outside:
            raise UsageError(f"exact mode does not run {words}", hint="without --exact the estimate is by formula")
