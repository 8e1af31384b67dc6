"""The nouns every room passes to the next: frozen data, no logic.

Sizes are ``int`` bytes, widths ``int`` bits, counts ``int``; a name ends in its unit. What is not known is ``None`` and comes
with a reason, never with a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Anything ``json.loads`` can return."""

Config: TypeAlias = Mapping[str, Json]
"""One JSON object read from a repository."""

Source: TypeAlias = Literal["hub", "cache", "local", "bundle"]
Category: TypeAlias = Literal[
    "Parameter",
    "Buffer",
    "Gradient",
    "OptimizerState",
    "Activation",
    "KVCache",
    "Workspace",
    "Context",
    "Fragmentation",
]
Exactness: TypeAlias = Literal["exact", "formula", "fitted", "bound"]
Mode: TypeAlias = Literal["infer", "train", "kv"]
Severity: TypeAlias = Literal["error", "warning", "info"]
Checkpointing: TypeAlias = Literal["full", "selective"]
ProblemKind: TypeAlias = Literal["unreadable", "truncated", "missing", "unreferenced"]

NOTHING: Mapping[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced(Generic[T_co]):
    """A value and where it was read.

    ``where`` is ``"config.json#num_hidden_layers"``, ``"header:<tensor name>"``, ``"default:<model type>"`` (the config class's
    default in transformers, which is not the checkpoint's word), or ``"rule:<what was computed>"``. Where ``value`` is ``None``,
    ``where`` says why it is not known.
    """

    value: T_co | None
    where: str


# --- what was read -------------------------------------------------------------------------------------------------------


class TensorInfo(NamedTuple):
    """One tensor as a weight file declares it: dtype in the file's own spelling, shape in elements, bytes it fills there.

    A tuple, because a large model has 100,000 of them and a frozen dataclass takes four times as long to make.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFile:
    """One file of the repository's listing; ``size_bytes`` is ``None`` where the listing does not say."""

    path: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """One weight file whose header was read; ``size_bytes`` is the whole file's, ``metadata`` what the header says of itself."""

    path: str
    size_bytes: int | None
    format: str
    tensors: tuple[TensorInfo, ...]
    metadata: Config = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightIndex:
    """A ``*.index.json``: the total it claims in bytes, and the shard it names for each tensor (empty where not served)."""

    path: str
    total_size_bytes: int | None
    weight_map: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """One whole set of weights as a loader takes it: a file, or files that belong together.

    ``variant`` is what its name adds to that of its twins: ``"fp16"``, or for GGUF the quantization, ``"Q4_K_M"``. ``size_bytes`` is ``None``
    where the listing does not say. ``index`` is the ``*.index.json`` that has the last word on ``files``, ``missing`` are shards that the
    names of the others promise and the listing lacks. ``note`` says what else there is to know of it.
    """

    format: str
    files: tuple[str, ...]
    size_bytes: int | None = None
    variant: str | None = None
    index: str | None = None
    missing: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProblem:
    """A file that the repository names and that could not be used, and why, in one line.

    ``kind`` says what became of it: it breaks its format's rules (``unreadable``), ends too soon (``truncated``), is named and not there
    (``missing``), or is there and the index does not name it (``unreferenced``).
    """

    path: str
    reason: str
    kind: ProblemKind = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a repository is offered, by its card's header and the Hub.

    ``licence`` is the header's own word (``"apache-2.0"``, ``"other"``), ``licence_link`` where it says the text is. ``gated`` is true where one must
    ask for access, ``None`` where that is not known (a folder). ``gate_text`` is true where the header says what one agrees to.
    """

    licence: str | None = None
    licence_link: str | None = None
    gated: bool | None = None
    gate_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What the tokenizer's files say: one more than the largest token id, and the most tokens that it lets through; where each was read."""

    tokens: Sourced[int]
    max_tokens: Sourced[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoSnapshot:
    """All that an audit read of one repository at one commit: enough to replay the audit offline.

    ``chosen`` are the weights that were read, one set for each part of a pipeline; ``others`` those that were not, because they are the same
    weights another way, or no part of the model. ``base`` is the model that an adapter is for, ``base_reason`` why it was not read and
    ``base_error`` what kind of failure that was (``HubauditError.kind``). ``card`` is the text of README.md, ``tokenizer`` what the tokenizer's
    files say: both are read where they lie on this machine, and cost no question to the Hub. ``terms`` is ``None`` where nothing told them.
    """

    repo_id: str
    revision: str | None
    commit: str | None
    source: Source
    files: tuple[RepoFile, ...] = ()
    configs: Mapping[str, Config] = field(default_factory=dict)
    weights: tuple[WeightFile, ...] = ()
    indexes: tuple[WeightIndex, ...] = ()
    card: str | None = None
    library_name: str | None = None
    hub_parameters: Mapping[str, int] | None = None
    problems: tuple[ReadProblem, ...] = ()
    chosen: tuple[WeightSet, ...] = ()
    others: tuple[WeightSet, ...] = ()
    base: RepoSnapshot | None = None
    base_reason: str | None = None
    base_error: str | None = None
    terms: Terms | None = None
    tokenizer: TokenizerFacts | None = None


# --- what it means -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors of one role, shape and dtype whose names differ in their numbers only: ``model.layers.*.mlp.up_proj.weight``.

    ``shape`` is the stored one; ``parameters`` counts logical parameters of the whole group (packed containers unpacked, 0 for
    scales and quantization statistics), ``None`` where a packing is not understood. ``logical_shape`` is one weight's own shape where
    it is packed and the packing tells, ``bits`` the width of one value of a quantized weight (``None`` for all else). ``kind`` is
    what a runtime makes of it: ``linear``, ``conv1d``, ``embedding``, ``norm``, ``bias``, ``experts`` (3-D), ``conv``, ``buffer``,
    ``scale`` or ``other``. ``extra`` names why a runtime does not build it (``"mtp"``, ``"tied head"``, ``"buffer"``, ``"quantization
    state"``), ``None`` where it does. ``numbers`` are the first numbers in the tensors' names (in most the layer), each with how many tensors have it.
    """

    pattern: str
    role: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    parameters: int | None
    stored_bytes: int
    extra: str | None = None
    logical_shape: tuple[int, ...] | None = None
    bits: int | None = None
    numbers: tuple[tuple[int, int], ...] = ()


class BuiltTensor(NamedTuple):
    """One parameter as transformers builds it of the config: its full name there, the kind of its module (as ``TensorGroup.kind``), its shape."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Exact parameter counts.

    ``total`` follows the Hub's own rule: every stored tensor, packed weights unpacked, scales and statistics left out.
    ``loaded`` is what a runtime builds of it: a tied head stored again, unused buffers and multi-token-prediction layers are not
    in it. ``active`` is the share of ``loaded`` that one token passes through (mixture of experts), ``None`` where not known.
    """

    total: int
    loaded: int
    active: int | None
    by_dtype: Mapping[str, int]
    by_role: Mapping[str, int]
    extra: Mapping[str, int]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the stored weights are quantized: the method's name, its bits (``None`` where they differ by module), where it was read.

    ``stored_elements`` are those of all tensors in the files, which are fewer than the parameters where several values share a
    container; ``scale_elements`` and ``scale_bytes`` are what scales, zeros, statistics and orders take of them. ``None`` where no
    weights were read.
    """

    method: str
    bits: int | None
    where: str
    stored_elements: int | None = None
    scale_elements: int | None = None
    scale_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts of a layer, and how many of them one token passes through."""

    experts: Sourced[int]
    experts_per_token: Sourced[int]
    expert_intermediate_size: Sourced[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTensor:
    """One tensor that a layer keeps for one sequence between tokens.

    It holds ``fixed_elements + elements_per_token × kept`` elements. ``kept`` is ``counted // tokens_per_entry`` (one entry for so many
    tokens), at most ``window_tokens``; where ``unfinished`` is true it is ``counted % tokens_per_entry`` instead (the tokens that wait
    until their entry is full). ``counted`` is what ``grows_with`` names: all tokens of the sequence so far (prompt and generated), those
    of the prompt, the generated ones, or the tokens that the encoder (of text, sound or images) hands to cross-attention. ``dtype`` is
    ``None`` where it follows the cache's dtype.
    """

    name: str
    elements_per_token: int = 0
    fixed_elements: int = 0
    window_tokens: int | None = None
    tokens_per_entry: int = 1
    unfinished: bool = False
    grows_with: Literal["tokens", "prompt_tokens", "new_tokens", "encoder_tokens"] = "tokens"
    dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """What one layer keeps between tokens: ``tensors``, each for one sequence.

    ``shares_cache_with`` is the index of the layer whose cache it reads instead of its own; ``tensors`` is then only what it keeps all the
    same (often nothing). So the whole cache is the sum over every layer's ``tensors``.
    """

    index: int
    kind: str
    tensors: tuple[CacheTensor, ...]
    where: str
    shares_cache_with: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Two witnesses that say different things of one fact; the audit goes on with ``used``."""

    subject: str
    config_says: str
    files_say: str
    used: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the model is. A fact that no witness gives is ``Sourced(value=None, where=<reason>)``.

    ``file_bytes`` is what lies on disk, ``stored_bytes`` its tensors' part, ``resident_bytes`` what the weights take when they are loaded with
    no dtype asked for. A pipeline, a model of several modules and an adapter with its base have ``components`` with a ``name`` each; their
    own counts are the sums. ``format`` is that of the weights that were read; ``chosen`` and ``other_weights`` are the snapshot's.
    ``kv_cache_dtype`` is the scheme that the checkpoint was calibrated to keep keys and values in. ``built`` are the parameters that transformers
    makes of the config, module by module; empty where that is not described, or does not add up to the weights that are loaded.
    """

    library: str | None
    model_type: str | None
    architecture: str | None
    family: Literal["decoder", "encoder", "encoder-decoder", "other", "unknown"]
    layers: Sourced[int]
    hidden_size: Sourced[int]
    intermediate_size: Sourced[int]
    attention_heads: Sourced[int]
    kv_heads: Sourced[int]
    head_dim: Sourced[int]
    vocab_size: Sourced[int]
    max_positions: Sourced[int]
    tied_embeddings: Sourced[bool]
    dtype: Sourced[str]
    parameters: ParameterCount | None
    parameters_reason: str | None
    tensor_groups: tuple[TensorGroup, ...]
    stored_bytes: int | None
    file_bytes: int | None
    layer_plan: tuple[LayerSpec, ...] | None
    layer_plan_reason: str | None
    quantization: Quantization | None = None
    moe: MixtureOfExperts | None = None
    disagreements: tuple[Disagreement, ...] = ()
    missing: tuple[str, ...] = ()
    components: tuple[ModelFacts, ...] = ()
    name: str | None = None
    format: str | None = None
    num_classes: Sourced[int] | None = None
    resident_bytes: int | None = None
    chosen: tuple[WeightSet, ...] = ()
    other_weights: tuple[WeightSet, ...] = ()
    kv_cache_dtype: Sourced[str] | None = None
    built: tuple[BuiltTensor, ...] = ()


# --- what is asked, and what it takes --------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of an estimate: ``bytes`` is ``formula`` over ``inputs``, both shown to whoever asks.

    ``low_bytes``/``high_bytes`` are the band (equal to ``bytes`` where ``exactness`` is ``exact``). ``sources`` says where the inputs were
    read and whose formula it is.
    """

    id: str
    category: Category
    bytes: int
    formula: str
    inputs: Mapping[str, int]
    exactness: Exactness
    sources: tuple[str, ...]
    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A part that could not be estimated, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the run and the bytes alive at its worst moment."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """One of several devices: the layers (first, and one past the last) and bytes that it holds. ``parameters`` are those loaded there."""

    device: int
    first_layer: int
    end_layer: int
    parameters: int
    weights_bytes: int
    cache_bytes: int
    total_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """What each of ``gpus`` processes holds at its worst moment where they share a training run in one way, nothing offloaded.

    ``name`` is ``ddp``, ``zero-1``, ``zero-2``, ``zero-3``, ``fsdp-1`` or ``fsdp-2``. ``weights_bytes`` has adapters in it, ``optimizer_bytes`` the
    master copy, ``activations_bytes`` the logits, and ``buffers_bytes`` all else: gathered layers, buckets, workspaces, the CUDA context.
    """

    name: str
    gpus: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buffers_bytes: int
    total_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory for one workload on one device: the components alive in the worst phase, and their sum with its band.

    On several ``devices`` the components are those of the fullest one, ``total_bytes`` is its sum, and ``high_bytes`` is no less than that of
    any device. ``stages`` are the ways in which several processes may share a training run, side by side.
    """

    fidelity: Literal["formula", "exact", "measured"]
    components: tuple[Component, ...]
    total_bytes: int
    low_bytes: int
    high_bytes: int
    phases: tuple[Phase, ...] = ()
    peak_phase: str | None = None
    assumptions: tuple[str, ...] = ()
    omitted: tuple[Omission, ...] = ()
    devices: tuple[DeviceShare, ...] = ()
    stages: tuple[StageShare, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The same workload with the weights held another way. ``plain_bytes`` is bits × parameters, ``weights_bytes`` what a loader makes of it."""

    dtype: str
    quant: str | None
    plain_bytes: int
    weights_bytes: int
    total_bytes: int
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An estimate against hardware, one process on one device.

    ``fits``: the whole band does; ``tight``: the estimate does, its upper end does not; ``no``: the estimate does not; ``unknown``: no
    answer can be given, and ``reason`` says why. ``headroom_bytes`` is what one device has left beside the estimate, negative where it
    lacks so much. ``max_batch`` and ``max_context`` (prompt and new tokens) are the largest that fit, each with the rest of the workload
    as asked, 0 where none does and ``None`` where there is no limit or it cannot be known. ``best_precision`` is the one nearest to the
    model's own that fits, ``None`` where none does. ``min_devices`` is a lower bound on the devices needed, as if all but the overheads
    of a process could be split evenly; ``None`` where no number is enough. Under vLLM ``cache_tokens`` is what its cache holds in all that
    it may take, and ``full_sequences`` how many of ``full_tokens``, the model's longest, run at once.

    Where several devices share the model, ``split`` says how, and all figures are those of the fullest; ``min_devices`` is then ``None``. Where one
    is not enough, ``devices_needed`` is the least number on which the engine's own split (``needed_split``) fits, ``None`` where none was found.
    """

    hardware: Hardware
    verdict: Literal["fits", "tight", "no", "unknown"]
    headroom_bytes: int
    max_batch: int | None
    max_context: int | None
    best_precision: str | None = None
    min_devices: int | None = None
    reason: str | None = None
    cache_tokens: int | None = None
    full_sequences: int | None = None
    full_tokens: int | None = None
    split: str | None = None
    devices_needed: int | None = None
    needed_split: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with the repository: the rule's id, how bad, what, where, and what to do.

    ``where`` is a file's path, or ``path#field`` of a JSON file; ``line`` is the line of a text file, counted from 1.
    """

    rule: str
    severity: Severity
    message: str
    where: str
    help: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was audited."""

    repo_id: str
    revision: str | None
    commit: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPhase:
    """A stretch of a traced run: what ``torch.cuda`` would report at its end, and the largest that it would have reported within it."""

    name: str
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFit:
    """Whether the traced run ends well on a device, by replaying it with that much memory.

    ``capacity_bytes`` is what the allocator can have: the device's usable bytes without the CUDA context. ``needed_bytes`` and
    ``needed_expandable_bytes`` are the fewest in which it runs, without and with expandable segments.
    """

    hardware: Hardware
    capacity_bytes: int
    fits: bool
    fits_expandable: bool
    needed_bytes: int
    needed_expandable_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMemory:
    """A traced run: ``estimate`` has ``fidelity`` exact, its components are those of the peak. ``label`` says what it claims to be."""

    label: str
    estimate: Estimate
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    phases: tuple[ExactPhase, ...]
    fits: tuple[ExactFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One audit, whole. ``exact_unknown`` says why exact mode, where it was asked for, has no answer for this model."""

    subject: Subject
    facts: ModelFacts
    workload: Workload
    estimate: Estimate
    variants: tuple[Variant, ...] = ()
    fit: tuple[Fit, ...] = ()
    findings: tuple[Finding, ...] = ()
    exact: ExactMemory | None = None
    exact_unknown: str | None = None
