"""The workload itself on a loaded model: phases read by an instrument, caches and states counted where they lie."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from hubaudit.errors import CannotAuditError, UsageError
from hubaudit.exact import optimizers
from hubaudit.exact.building import tensors_in_order, torch_dtype
from hubaudit.exact.generation import arguments, tensors_of
from hubaudit.monitor.storages import CpuStorages
from hubaudit.verify.loading import load, quantized_tensors
from hubaudit.verify.on_cpu import steps_of_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.monitor.reading import Instrument, Reading
    from hubaudit.verify.job import Job

_SEED = 20240731
_STEPS = 2
#: bitsandbytes' optimizers by the estimate's names: class, and its arguments.
_BITSANDBYTES: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw_8bit": ("AdamW8bit", {}),
    "paged_adamw_8bit": ("PagedAdamW8bit", {}),
    "paged_adamw": ("PagedAdamW", {}),
    "lion_8bit": ("Lion8bit", {}),
    "adamw_32bit": ("AdamW32bit", {}),
}


class Run:
    """One run: its phases in order, bytes of the components that can be counted, and what the cache held."""

    def __init__(self, job: Job, instrument: Instrument) -> None:
        self.job = job
        self.instrument = instrument
        self.phases: list[tuple[str, Reading]] = []
        self.components: dict[str, int] = {}
        self.cache: dict[str, Any] | None = None
        self.rests: list[int] = []

    def carry_out(self) -> None:
        """Load, run, run again.

        Raises:
            CannotAuditError: the model cannot be loaded or run.
        """
        torch.manual_seed(_SEED)
        is_counted_from_load = self.instrument.device == "cuda"
        if is_counted_from_load:
            self.instrument.start()
        with self._layers_as_on_cuda():
            model = load(self.job)
            if not is_counted_from_load:
                self.instrument.start()
            try:
                self._held(model, "weights")
                self.mark("load")
                if self.job.is_training:
                    self._train(self._prepared(model))
                else:
                    self._infer(model.eval())
            finally:
                self.instrument.stop()

    def _layers_as_on_cuda(self) -> AbstractContextManager[None]:
        """On the CPU quantized layers do what they would do on CUDA."""
        if not isinstance(self.instrument, CpuStorages) or self.job.workload.quant is None:
            return nullcontext()
        return steps_of_cuda(self.instrument.tracer)

    def mark(self, label: str) -> None:
        """A phase ends here."""
        self.phases.append((label, self.instrument.read(label)))

    def hold(self, tensors: Iterable[Any], component: str) -> int:
        """Say what tensors are; their bytes on the device, each storage once."""
        kept = [one for one in tensors if one is not None and one.device.type == self.job.device.partition(":")[0]]
        self.instrument.hold(kept, component)
        return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in kept}.values())

    def _held(self, model: Any, component: str) -> None:
        both = (*(tensor for _, tensor in tensors_in_order(model)), *quantized_tensors(model))
        self.components[component] = self.hold(both, component)

    # --- inference ------------------------------------------------------------------------------------------------------------

    def _infer(self, model: Any) -> None:
        work = self.job.workload
        generates = model.can_generate() and bool(work.new_tokens)
        ids = _ids(self.job, model)
        with torch.no_grad():
            for turn in range(1 + self.job.repeats):
                if generates:
                    self._generate(model, ids, is_first=turn == 0)
                else:
                    outputs = model(input_ids=ids)
                    if not turn:
                        self._label(outputs)
                        self.mark("prefill")
                    del outputs
                self._rest(turn)

    def _generate(self, model: Any, ids: Any, *, is_first: bool) -> None:
        calls: list[int] = []

        def after(module: Any, args: Any, outputs: Any) -> None:
            calls.append(1)
            if is_first:
                self._label(outputs)
                if len(calls) == 1:
                    self.mark("prefill")

        model.generation_config.eos_token_id = None  # random weights may end a text at any word
        hook = model.register_forward_hook(after)
        try:
            made = model.generate(input_ids=ids, **arguments(self.job.workload))
        finally:
            hook.remove()
        if is_first:
            self.mark("decode")
            self.cache = _cache_report(getattr(made, "past_key_values", None))
            if self.cache is not None:
                self.components["kv_cache"] = self.cache["held_bytes"]

    def _label(self, outputs: Any) -> None:
        cache = getattr(outputs, "past_key_values", None)
        if cache is None:
            cache = getattr(outputs, "cache_params", None)
        held = self.hold(tensors_of(cache), "kv_cache")
        if held:
            self.components["kv_cache"] = max(held, self.components.get("kv_cache", 0))
        logits = getattr(outputs, "logits", None)
        if isinstance(logits, torch.Tensor):
            self.components["logits"] = max(self.hold((logits,), "logits"), self.components.get("logits", 0))

    def _rest(self, turn: int) -> None:
        """What is still allocated when a turn is over, once for each."""
        if self.job.repeats:
            label = f"rest {turn + 1}"
            self.mark(label)
            self.rests.append(self.phases[-1][1].allocated_bytes)

    # --- training ---------------------------------------------------------------------------------------------------------------

    def _prepared(self, model: Any) -> Any:
        """The model as a training script prepares it."""
        import peft

        work = self.job.workload
        if work.quant is not None:
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
            self._held(model, "weights")
        if work.lora is not None:
            model = peft.get_peft_model(model, _adapters(work))
            trained = [one for one in model.parameters() if one.requires_grad]
            self.components["adapters"] = self.hold(trained, "adapters")
            self.mark("adapters")
        if work.gradient_checkpointing is not None:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if work.lora is not None:
                model.enable_input_require_grads()
        return model.train()

    def _train(self, model: Any) -> None:
        optimizer = _optimizer(self.job.workload.optimizer or "adamw", model)
        for step in range(1, _STEPS + self.job.repeats + 1):
            for _ in range(self.job.workload.grad_accum):
                self._forward_and_backward(model, step)
            optimizer.step()
            self.components["optimizer"] = self.hold(optimizers.state_tensors(optimizer), "optimizer")
            if step <= _STEPS:
                self.mark(f"update {step}")
            optimizer.zero_grad()
            self._rest(step - 1)

    def _forward_and_backward(self, model: Any, step: int) -> None:
        ids = _ids(self.job, model)
        dtype = None if self.job.autocast is None else torch_dtype(self.job.autocast)
        kind = self.job.device.partition(":")[0]
        with nullcontext() if dtype is None else torch.autocast(kind, dtype=dtype):
            outputs = model(input_ids=ids, labels=ids)
        self._label(outputs)
        loss = getattr(outputs, "loss", None)
        if loss is None:
            raise CannotAuditError(f"{type(model).__name__} has no head, and so no loss to train on")
        if step <= _STEPS:
            self.mark(f"forward {step}")
        if self.job.workload.loss != "held":
            del outputs
        loss.backward()
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        self.components["gradients"] = self.hold(gradients, "gradients")
        if step <= _STEPS:
            self.mark(f"backward {step}")


def _ids(job: Job, model: Any) -> Any:
    """Random tokens without padding, the same in every run."""
    words = int(getattr(model.config.get_text_config(), "vocab_size", 0) or 2)
    generator = torch.Generator().manual_seed(_SEED)
    shape = (job.workload.batch_size, job.tokens)
    return torch.randint(1, words, shape, generator=generator).to(job.device)


def _adapters(work: Any) -> Any:
    import peft

    targets: Any = work.lora_targets
    if targets not in (None, "all-linear"):
        targets = [name.strip() for name in str(targets).split(",")]
    return peft.LoraConfig(
        r=work.lora,
        lora_alpha=2 * work.lora,
        target_modules=targets,
        lora_dropout=0.1 if work.lora_dropout else 0.0,
        use_dora=work.lora_variant == "dora",
        use_rslora=work.lora_variant == "rslora",
        modules_to_save=list(work.modules_to_save) or None,
    )


def _optimizer(name: str, model: Any) -> Any:
    """Torch's own, or bitsandbytes' own with embeddings in 32 bits, as the Trainer asks for."""
    if name not in _BITSANDBYTES:
        made = optimizers.make(name, model)
        if isinstance(made, optimizers.Blockwise):
            raise UsageError(f"verify does not run the optimizer {name}")
        return made
    import bitsandbytes

    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    cls, arguments = _BITSANDBYTES[name]
    trainable = [one for one in model.parameters() if one.requires_grad]
    return getattr(bitsandbytes.optim, cls)(trainable, **arguments)


def _cache_report(cache: Any) -> dict[str, Any] | None:
    """Bytes that a cache holds, and how many of them stand for tokens that were seen.

    A cache that grows holds as many as it uses, but for windows that keep more than they need; one sized ahead holds more.
    """
    if cache is None:
        return None
    tensors = [one for one in tensors_of(cache) if one.device.type != "meta"]
    held = sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())
    used = 0
    for layer in _layers(cache):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if not isinstance(keys, torch.Tensor) or not isinstance(values, torch.Tensor) or keys.dim() < 3:
            return {"held_bytes": held, "used_bytes": None, "tokens": None}
        seen = min(int(layer.get_seq_length()), keys.shape[-2])
        used += sum(one.numel() * one.element_size() * seen // max(one.shape[-2], 1) for one in (keys, values))
    return {"held_bytes": held, "used_bytes": used, "tokens": int(cache.get_seq_length())}


def _layers(cache: Any) -> list[Any]:
    parts = (getattr(cache, "self_attention_cache", None), getattr(cache, "cross_attention_cache", None))
    if all(part is not None for part in parts):
        return [layer for part in parts for layer in getattr(part, "layers", ())]
    return list(getattr(cache, "layers", ()))
