"""Loads, generates or trains as people do, on tensors without data, and says which storage belongs to which component."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from hubaudit.errors import CannotAuditError
from hubaudit.exact import building, grouped, optimizers, quantized
from hubaudit.exact.autocast import Autocast, checkpoint_contexts
from hubaudit.exact.emulation import as_on_cuda
from hubaudit.exact.routing import Routing
from hubaudit.exact.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.exact.device import Device
    from hubaudit.exact.plan import Plan

_TRACED_STEPS = 8
_ALL_STEPS = 16
_CACHE_DEPTH = 8


def run(config: Mapping[str, Any], plan: Plan, device: Device) -> Tracer:
    """The plan, carried out on a model of this config; the tracer holds its events.

    Raises:
        CannotAuditError: the model cannot be built.
    """
    model = building.build(config, plan.dtype, plan.attention)
    if plan.quant is not None:
        quantized.quantize(model, plan)
    tracer = Tracer("meta", device)
    tracer.overrides.update(grouped.overrides())
    tracer.routing = Routing(plan.routing)
    tracer.overrides.update(tracer.routing.overrides())
    if plan.quant is not None:
        tracer.overrides.update(quantized.overrides(device))
    with as_on_cuda(device), tracer:
        tracer.hold((tensor for _, tensor in building.tensors_in_order(model)), "weights")
        tracer.hold(quantized.state_tensors(model), "weights")
        if plan.mode == "train":
            _train(_prepared(model, plan, tracer), plan, tracer)
        else:
            tracer.mark("load")
            _infer(model.eval(), plan, tracer)
    return tracer


# --- inference -----------------------------------------------------------------------------------------------------------------


def _infer(model: Any, plan: Plan, tracer: Tracer) -> None:
    ids = torch.zeros(plan.batch_size, plan.tokens, dtype=torch.long, device="meta")
    with torch.no_grad():
        if not model.can_generate() or not plan.new_tokens:
            start = _decoder_start(model, plan)  # the program's own, as the ids are: held until it ends
            outputs = model(input_ids=ids, **start)
            _label_outputs(outputs, tracer)
            tracer.mark("prefill")
            return
        made = _generate(model, ids, plan, tracer)
        tracer.mark("decode")
        if plan.new_tokens > _ALL_STEPS:
            _last_steps(model, getattr(made, "past_key_values", None), plan, tracer)


def _decoder_start(model: Any, plan: Plan) -> dict[str, Any]:
    """The token from which a decoder beside an encoder starts."""
    if not model.config.is_encoder_decoder:
        return {}
    return {"decoder_input_ids": torch.zeros(plan.batch_size, 1, dtype=torch.long, device="meta")}


def traced_steps(plan: Plan) -> int:
    """How many tokens are generated one by one: all of a few, else the first of many."""
    return plan.new_tokens if plan.new_tokens <= _ALL_STEPS else _TRACED_STEPS


def _generate(model: Any, ids: Any, plan: Plan, tracer: Tracer) -> Any:
    """``model.generate`` itself; each forward pass ends with a look at the cache."""
    from transformers.generation.utils import GenerationMixin

    count = traced_steps(plan)
    calls: list[int] = []

    def after(module: Any, args: Any, outputs: Any) -> None:
        _label_outputs(outputs, tracer)
        calls.append(1)
        if len(calls) == 1:
            tracer.mark("prefill")

    hook = model.register_forward_hook(after)
    with patch.object(GenerationMixin, "_has_unfinished_sequences", lambda *_, **__: len(calls) < count):
        made = model.generate(
            input_ids=ids,
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
        )
    hook.remove()
    return made


def _last_steps(model: Any, cache: Any, plan: Plan, tracer: Tracer) -> None:
    """The cache as long as it will be, and the last two tokens: what lies between differs in its length only."""
    layers = getattr(cache, "layers", ())
    if not layers or any(type(layer).__name__ != "DynamicLayer" for layer in layers):
        return
    for layer in layers:
        for name in ("keys", "values"):
            before = getattr(layer, name)
            shape = (*before.shape[:-2], plan.tokens + plan.new_tokens - 2, before.shape[-1])
            setattr(layer, name, torch.empty(shape, dtype=before.dtype, device=before.device))
            del before
        tracer.hold((layer.keys, layer.values), "kv_cache")
    for _ in range(2):
        token = torch.zeros(plan.batch_size, 1, dtype=torch.long, device="meta")
        outputs = model(input_ids=token, past_key_values=cache, use_cache=True)
        _label_outputs(outputs, tracer)
        del outputs
    tracer.mark("last tokens")


def _label_outputs(outputs: Any, tracer: Tracer) -> None:
    cache = getattr(outputs, "past_key_values", None)
    if cache is None:
        cache = getattr(outputs, "cache_params", None)
    tracer.hold(_tensors(cache), "kv_cache")
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, torch.Tensor):
        tracer.hold((logits,), "logits")


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Every tensor that a cache holds, however it is built."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _CACHE_DEPTH:
        parts: Any = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
            parts = [part for name, part in vars(value).items() if name != "config"]
        for part in parts:
            yield from _tensors(part, depth + 1)


# --- training --------------------------------------------------------------------------------------------------------------------


def _prepared(model: Any, plan: Plan, tracer: Tracer) -> Any:
    """The model as a training script prepares it: adapters, frozen weights, checkpointing."""
    tracer.mark("load")
    if plan.upcasts_base:
        import peft

        with patch.object(
            torch.cuda, "is_available", lambda: True
        ):  # where there is a GPU it gives cached blocks back at the end
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        tracer.hold((tensor for _, tensor in building.tensors_in_order(model)), "weights")
    if plan.lora_rank is not None:
        model = _with_adapters(model, plan)
        tracer.hold((one for one in model.parameters() if one.requires_grad), "adapters")
        tracer.mark("adapters")
    if plan.checkpointing:
        arguments: dict[str, Any] = {"use_reentrant": False}
        if plan.autocast:
            arguments["context_fn"] = checkpoint_contexts
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=arguments)
        if plan.lora_rank is not None:
            model.enable_input_require_grads()
    return model.train()


def _with_adapters(model: Any, plan: Plan) -> Any:
    import peft

    targets: Any = plan.lora_targets
    if targets not in (None, "all-linear"):
        targets = [name.strip() for name in str(targets).split(",")]
    asked = peft.LoraConfig(
        r=plan.lora_rank,
        lora_alpha=2 * (plan.lora_rank or 1),
        target_modules=targets,
        lora_dropout=0.1 if plan.lora_dropout else 0.0,
        use_dora=plan.lora_variant == "dora",
        use_rslora=plan.lora_variant == "rslora",
        modules_to_save=list(plan.modules_to_save) or None,
    )
    with ExitStack() as stack:
        # Made on the host, without values, and then moved, as it happens to a model that is on its device.
        stack.enter_context(torch.device("cpu"))
        for name in ("kaiming_uniform_", "normal_", "zeros_", "uniform_"):
            stack.enter_context(patch.object(torch.nn.init, name, lambda tensor, *_, **__: tensor))
        return peft.get_peft_model(model, asked)


def _train(model: Any, plan: Plan, tracer: Tracer) -> None:
    """Whole steps: the first makes the optimizer's states, the second is what all later ones are."""
    optimizer = optimizers.make(plan.optimizer, model)
    for step in range(1, plan.steps + 1):
        for _ in range(min(plan.grad_accum, 2)):
            _forward_and_backward(model, plan, tracer, step)
        optimizer.step()
        tracer.hold(optimizers.state_tensors(optimizer), "optimizer")
        tracer.mark(f"update {step}")
        optimizer.zero_grad()


def _forward_and_backward(model: Any, plan: Plan, tracer: Tracer, step: int) -> None:
    ids = torch.zeros(plan.batch_size, plan.tokens, dtype=torch.long, device="meta")
    extra = {} if plan.uses_cache is None else {"use_cache": plan.uses_cache}
    dtype = building.torch_dtype(plan.autocast) if plan.autocast else None
    with Autocast(dtype) if dtype is not None else nullcontext():
        outputs = model(input_ids=ids, labels=ids, **extra)
        tracer.hold(Autocast.copies(), "autocast_copies")
    _label_outputs(outputs, tracer)
    loss = getattr(outputs, "loss", None)
    if loss is None:
        raise CannotAuditError(
            f"{type(model).__name__} has no head, and so no loss to train on",
            hint="without --exact the estimate is by formula",
        )
    tracer.mark(f"forward {step}")
    if not plan.holds_outputs:
        del outputs
    loss.backward()
    tracer.hold((one.grad for one in model.parameters() if one.grad is not None), "gradients")
    tracer.mark(f"backward {step}")
