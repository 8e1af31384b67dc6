"""Loads, generates or trains as people do, on tensors without data, and says which storage belongs to which component."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from hubaudit.errors import CannotAuditError
from hubaudit.exact import building, grouped, largest, optimizers, quantized, sampling
from hubaudit.exact.autocast import Autocast, checkpoint_contexts
from hubaudit.exact.emulation import as_on_cuda
from hubaudit.exact.generation import infer, label_outputs
from hubaudit.exact.kernels import tables
from hubaudit.exact.lengths import Lengths
from hubaudit.exact.replaced import replaced
from hubaudit.exact.routing import Routing
from hubaudit.exact.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.exact.device import Device
    from hubaudit.exact.plan import Plan


def run(config: Mapping[str, Any], plan: Plan, device: Device) -> Tracer:
    """The plan, carried out on a model of this config; the tracer holds its events.

    Raises:
        CannotAuditError: the model cannot be built.
    """
    model = building.build(config, plan.dtype, plan.attention)
    if plan.quant is not None:
        quantized.quantize(model, plan)
    tracer = Tracer("meta", device)
    tracer.overrides.update(grouped.overrides() | sampling.overrides())
    tracer.routing = Routing(plan.routing)
    tracer.overrides.update(tracer.routing.overrides())
    if plan.quant is not None:
        tracer.overrides.update(quantized.overrides(device))
    tracer.answers = Lengths()
    with as_on_cuda(device), replaced(), patch.dict(tables.SCRATCH, largest.scratch()), tracer:
        _hold(tracer, model, config)
        tracer.hold(quantized.state_tensors(model), "weights")
        if plan.mode == "train":
            _train(_prepared(model, plan, tracer, config), plan, tracer)
        else:
            tracer.mark("load")
            infer(model.eval(), plan, tracer)
    return tracer


def _hold(tracer: Tracer, model: Any, config: Mapping[str, Any]) -> None:
    """Record what the model is made of: its weights, and the tables and masks that the estimate by formula counts apart."""
    tracer.hold((tensor for _, tensor in building.tensors_in_order(model)), "weights")
    tracer.hold(building.made_buffers(model, config), "buffers")


# --- training --------------------------------------------------------------------------------------------------------------------


def _prepared(model: Any, plan: Plan, tracer: Tracer, config: Mapping[str, Any]) -> Any:
    """The model as a training script prepares it: adapters, frozen weights, checkpointing."""
    tracer.mark("load")
    if plan.upcasts_base:
        import peft

        with patch.object(
            torch.cuda, "is_available", lambda: True
        ):  # where there is a GPU it gives cached blocks back at the end
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        _hold(tracer, model, config)
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
    label_outputs(outputs, tracer)
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
