"""What is asked: the work that a model shall do, and the hardware that it shall do it on."""

from __future__ import annotations

from dataclasses import dataclass

from hubaudit.types.values import Checkpointing, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the model is asked to do. ``None`` means "as the model and the runtime decide", which the estimate then says.

    ``cache`` is one of the runtime's; ``max_cache_len`` is what a static cache is sized for where that is more than the workload
        needs; ``draft_tokens`` are those that speculative decoding drafts at once, which recurrent states are kept for. ``quant`` is what the weights
    are converted to while they are loaded; the fields after it are called as in transformers' ``BitsAndBytesConfig``, and
    ``quant_group_size`` is how many weights share a scale where that can be chosen. ``num_beams`` and ``num_return_sequences`` are those of
    generate(); ``runtime_version`` is the release of transformers, ``None`` for the newest that is described.

    Training: ``batch_size`` sequences of ``sequence_tokens`` go through one process at once, ``grad_accum`` times before each update.
    ``recipe`` says which copies of weights and gradients are held in which precision, ``optimizer`` whose states. With
    ``gradient_checkpointing`` every ``checkpoint_every``-th layer keeps its input only. ``lora`` is the rank of adapters on
    ``lora_targets`` (names with commas between, or ``all-linear``); ``modules_to_save`` are trained whole beside them. ``gpus`` processes
    share states by ``zero`` stage or ``fsdp`` version (neither: every one holds all), tensors by ``tp``, layers by ``pp``.

    With ``sequence_parallel`` the ranks of ``tp`` also divide what lies between their matrices; ``cp`` ranks divide the sequence (ring attention).

    For inference ``tp``, ``pp`` and ``ep`` are the devices that share matrices, layers and experts, as the runtime splits them.
    """

    mode: Mode = "infer"
    batch_size: int = 1
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    encoder_tokens: int | None = None
    dtype: str | None = None
    quant: str | None = None
    kv_dtype: str | None = None
    attention: str = "sdpa"
    cache: str | None = None
    runtime: str = "transformers"
    max_cache_len: int | None = None
    draft_tokens: int = 0
    sequence_tokens: int | None = None
    recipe: str | None = None
    optimizer: str | None = None
    grad_accum: int = 1
    gradient_checkpointing: Checkpointing | None = None
    checkpoint_every: int = 1
    loss: str | None = None
    lora: int | None = None
    lora_targets: str | None = None
    lora_variant: str | None = None
    lora_dropout: bool = False
    modules_to_save: tuple[str, ...] = ()
    zero: int | None = None
    fsdp: int | None = None
    gpus: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    sequence_parallel: bool = False
    offload: str | None = None
    quant_group_size: int | None = None
    bnb_4bit_use_double_quant: bool = False
    bnb_4bit_quant_storage: str | None = None
    bnb_4bit_compute_dtype: str | None = None
    llm_int8_threshold: float = 6.0
    llm_int8_skip_modules: tuple[str, ...] | None = None
    num_beams: int = 1
    num_return_sequences: int = 1
    runtime_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """An accelerator: what one process can really use of it, in bytes, and how many there are.

    ``usable_source`` says whose word that is: of a process on such a card (``process``), of nvidia-smi (``driver``), of a rule that
    measured machines follow (``rule``), of the box (``marketing``), of the user (``given``), or of this machine (``this machine``).
    """

    name: str
    usable_bytes: int
    count: int = 1
    usable_source: str = "given"
