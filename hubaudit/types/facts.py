"""What a model is: its tensors by role, its parameters, its quantization and its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hubaudit.types.snapshot import WeightSet
from hubaudit.types.values import Sourced


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
    """One parameter, or saved buffer, as transformers builds it of the config: its full name there, the kind of its module (as ``TensorGroup.kind``), its shape."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBuffer:
    """A table or mask that a model's class makes while it is loaded and saves to no file: positions, a causal mask.

    ``name`` is a regular expression for the end of what modules call it. ``formula`` gives the bytes of all of that name, an integer
    expression over ``inputs`` and ``dtype_bits``, the width that the model is loaded in; an input without a value says why.
    """

    name: str
    formula: str
    inputs: Mapping[str, Sourced[int]]
    source: str


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
    ``kv_cache_dtype`` is the scheme that the checkpoint was calibrated to keep keys and values in. ``dropout_rates`` are
    those that the config names, by its own keys. ``scan_chunk_tokens`` is how many tokens a state-space layer takes at once. ``built`` are the parameters and the saved
    buffers that transformers makes of the config, module by module; empty where that is not described, or does not add up to the weights that are loaded. ``made`` are the
    parameters that the class makes itself and saves to no file, so that no count holds them; ``buffers`` are tables and masks of the same kind that
    no optimizer sees.
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
    made: tuple[BuiltTensor, ...] = ()
    buffers: tuple[MadeBuffer, ...] = ()
    dropout_rates: tuple[tuple[str, float], ...] = ()
    scan_chunk_tokens: Sourced[int] | None = None
