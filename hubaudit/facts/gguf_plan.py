"""What each layer of a GGUF model keeps between tokens, from its metadata and what llama.cpp knows of its architecture.

Convolutions keep the columns that the next token needs, without the one it pushes out (llama-hparams.cpp, ``n_embd_r``); all states are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.types import CacheTensor, LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hubaudit.facts.gguf_metadata import GgufMetadata

TABLE = "gguf_architectures.toml"
_DEFAULT_INTERVAL = 4  # models/qwen3next.cpp, qwen35.cpp
_DEFAULT_TOKEN_SHIFTS = 2  # llama-hparams.h, token_shift_count
_DEFAULT_KDA_COLUMNS = 3  # llama-hparams.cpp, n_embd_r

Plan = tuple[tuple[LayerSpec, ...] | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """Widths of keys and values in one layer, in elements a token, and the window (``None`` for all tokens)."""

    key: int
    value: int
    window: int | None
    kind: str
    is_latent: bool


class _UnknownError(Exception):
    """The file does not tell; the message says what is missing."""


def plan_gguf(metadata: GgufMetadata, layers: int | None) -> Plan:
    """The plan and ``None``, or ``None`` and the reason why it is not known.

    An architecture that the table does not have is taken to attend to all tokens in every layer, which is an upper bound, unless its metadata
    speaks of windows or states.
    """
    architecture = metadata.architecture
    if architecture is None or layers is None:
        return None, "the file names no architecture" if architecture is None else "the number of layers is not known"
    facts = table(TABLE)
    if architecture in facts["not_described"]:
        return None, f"{architecture}: {facts['not_described'][architecture]}, which is not described"
    if architecture in (*facts["encoders"], *facts["without_cache"]):
        where = f"table:{TABLE}#{architecture}: llama.cpp makes no cache for it"
        return tuple(LayerSpec(index=index, kind="none", tensors=(), where=where) for index in range(layers)), None
    try:
        return _Planner(metadata, architecture, layers).plan(), None
    except _UnknownError as error:
        return None, f"{architecture}: {error}"


class _Planner:
    """One model's layers."""

    def __init__(self, metadata: GgufMetadata, architecture: str, layers: int) -> None:
        self._metadata = metadata
        self._architecture = architecture
        self._layers = layers
        self._window = _row("window", architecture)
        self._state = _row("state", architecture)
        self._is_known = architecture in table(TABLE)["known"]
        if not self._is_known and (metadata.own("attention.sliding_window") or metadata.starts_with("ssm.")):
            raise _UnknownError("llama.cpp b10256 does not have it, so its windows and states are not known")

    def plan(self) -> tuple[LayerSpec, ...]:
        kv_heads = self._kv_heads()
        stateful = self._stateful_layers(kv_heads)
        windows = self._windows()
        shared_from = self._shared_from()
        return tuple(
            self._layer(index, kv_heads[index], windows[index], has_state=stateful[index], shared_from=shared_from)
            for index in range(self._layers)
        )

    def _layer(
        self, index: int, kv_heads: int, window: int | None, *, has_state: bool, shared_from: int | None
    ) -> LayerSpec:
        if shared_from is not None and index >= shared_from:
            # llama-model.cpp, create_memory: the last layers read the last window's or the last full layer's cache.
            owner = shared_from - (1 if window is None else 2)
            return self._spec(index, "full" if window is None else "sliding", (), shares_cache_with=owner)
        kinds: list[str] = []
        tensors: tuple[CacheTensor, ...] = ()
        if kv_heads and not (has_state and self._state and self._state["layers"] == "interval"):
            attention = self._attention(kv_heads, window)
            kinds.append(attention.kind)
            tensors += _attention_tensors(attention)
            index_width = self._index_width(attention)
            if index_width:
                kinds.append("index")
                tensors += (CacheTensor(name="indexer_keys", elements_per_token=index_width),)
        if has_state and self._state:
            kinds.append(self._state["kind"])
            tensors += _SHAPES[self._state["shape"]](self._metadata)
        return self._spec(index, "+".join(kinds) or "none", tensors)

    def _spec(
        self, index: int, kind: str, tensors: tuple[CacheTensor, ...], shares_cache_with: int | None = None
    ) -> LayerSpec:
        told = (
            f"table:{TABLE}#{self._architecture}"
            if self._is_known
            else "rule:full attention in every layer, an upper bound"
        )
        return LayerSpec(
            index=index,
            kind=kind,
            tensors=tensors,
            where=f"gguf:{self._architecture}.attention.*; {told}",
            shares_cache_with=shares_cache_with,
        )

    def _kv_heads(self) -> tuple[int, ...]:
        """llama.cpp takes head_count where there is no head_count_kv; a model of states alone has no heads, whatever its file says."""
        if self._state and self._state["layers"] == "all":
            return (0,) * self._layers
        for key in ("attention.head_count_kv", "attention.head_count"):
            if self._metadata.own(key) is not None:
                counts = self._metadata.per_layer(key, self._layers)
                if counts is None:
                    raise _UnknownError(f"{key} is no count for every layer")
                return counts
        raise _UnknownError("the file has no attention.head_count")

    def _attention(self, kv_heads: int, window: int | None) -> _Attention:
        is_latent = bool(self._metadata.own("attention.key_length_mla"))
        key = self._head_width("key", window)
        value = 0 if is_latent else self._head_width("value", window)
        kind = "mla" if is_latent else "full" if window is None else str((self._window or {}).get("kind", "sliding"))
        return _Attention(key=kv_heads * key, value=kv_heads * value, window=window, kind=kind, is_latent=is_latent)

    def _head_width(self, which: str, window: int | None) -> int:
        keys = [f"attention.{which}_length_swa"] if window is not None else []
        said = self._metadata.count(*keys, f"attention.{which}_length")
        if said.value is not None:
            return said.value
        if self._metadata.own(f"attention.{which}_length") is not None:
            raise _UnknownError(said.where)
        width, heads = self._metadata.count("embedding_length"), self._metadata.count("attention.head_count")
        if width.value is None or not heads.value:
            raise _UnknownError(f"neither attention.{which}_length nor embedding_length and one head_count")
        return width.value // heads.value

    def _index_width(self, attention: _Attention) -> int:
        return (self._metadata.count("attention.indexer.key_length").value or 0) if attention.is_latent else 0

    # --- windows -------------------------------------------------------------------------------------------------------

    def _windows(self) -> list[int | None]:
        """The window of each layer, ``None`` for all tokens."""
        window = self._window_tokens()
        if window is None or self._window is None:
            return [None] * self._layers
        listed = self._metadata.flags("attention.sliding_window_pattern", self._layers)
        if self._window.get("by_list") and listed is not None:
            return [window if is_sliding else None for is_sliding in listed]
        period = self._window.get("period")
        said = self._metadata.own("attention.sliding_window_pattern")
        period = said if type(said) is int and period is not None else period
        if period is None:
            raise _UnknownError("the file does not list which layers have the window")
        return [window if self._slides(index, period) else None for index in range(self._layers)]

    def _slides(self, index: int, period: int) -> bool:
        """llama-hparams.cpp, set_swa_pattern."""
        if period == 0:
            return True
        return index % period != 0 if self._window and self._window.get("dense_first") else index % period < period - 1

    def _window_tokens(self) -> int | None:
        row = self._window
        if row is None or row.get("only_with_layers", self._layers) != self._layers:
            return None
        said = self._metadata.count("attention.sliding_window")
        if said.value is None and self._metadata.own("attention.sliding_window") is not None:
            raise _UnknownError(said.where)
        window = row.get("tokens") if said.value is None else said.value and row.get("fixed", said.value)
        return int(window) if window else None

    def _shared_from(self) -> int | None:
        """The first layer that reads another's cache."""
        fixed = (self._window or {}).get("layers_with_cache")
        if fixed is not None:
            return int(fixed)
        shared = self._metadata.count("attention.shared_kv_layers").value or 0
        return self._layers - shared if 0 < shared <= self._layers - 2 else None

    # --- states --------------------------------------------------------------------------------------------------------

    def _stateful_layers(self, kv_heads: Sequence[int]) -> list[bool]:
        if self._state is None:
            return [False] * self._layers
        rule = self._state["layers"]
        if rule in ("all", "beside"):
            return [True] * self._layers
        if rule == "interval":
            return self._by_interval()
        widths = self._metadata.per_layer("feed_forward_length", self._layers)
        if rule == "no_kv_heads_no_mlp":
            if widths is None:
                raise _UnknownError("feed_forward_length is no count for every layer")
            return [heads == 0 and width == 0 for heads, width in zip(kv_heads, widths, strict=True)]
        return [heads == 0 for heads in kv_heads]

    def _by_interval(self) -> list[bool]:
        listed = self._metadata.flags("attention.recurrent_layers", self._layers)
        if listed is not None:
            return list(listed)
        interval = self._metadata.count("full_attention_interval").value or _DEFAULT_INTERVAL
        return [(index + 1) % interval != 0 for index in range(self._layers)]


def _attention_tensors(attention: _Attention) -> tuple[CacheTensor, ...]:
    # As everywhere in layer plans, the window is what is left of it once the next token has its place.
    kept = None if attention.window is None else max(attention.window - 1, 1)
    if attention.is_latent:
        return (CacheTensor(name="latent", elements_per_token=attention.key, window_tokens=kept),)
    return (
        CacheTensor(name="keys", elements_per_token=attention.key, window_tokens=kept),
        CacheTensor(name="values", elements_per_token=attention.value, window_tokens=kept),
    )


def _need(metadata: GgufMetadata, key: str, default: int | None = None) -> int:
    said = metadata.count(key)
    if said.value is None and (default is None or metadata.own(key) is not None):
        raise _UnknownError(said.where)
    return said.value if said.value is not None else default or 0


def _states(columns: int, state: int) -> tuple[CacheTensor, ...]:
    made = (("conv_columns", columns), ("recurrent_state", state))
    return tuple(CacheTensor(name=name, fixed_elements=elements, dtype="F32") for name, elements in made if elements)


def _ssm(metadata: GgufMetadata) -> tuple[CacheTensor, ...]:
    inner, size = _need(metadata, "ssm.inner_size"), _need(metadata, "ssm.state_size")
    groups, kernel = _need(metadata, "ssm.group_count", 0), _need(metadata, "ssm.conv_kernel")
    return _states(max(kernel - 1, 0) * (inner + 2 * groups * size), size * inner)


def _wkv(metadata: GgufMetadata) -> tuple[CacheTensor, ...]:
    width, head = _need(metadata, "embedding_length"), _need(metadata, "wkv.head_size")
    return _states(_need(metadata, "token_shift_count", _DEFAULT_TOKEN_SHIFTS) * width, width * head)


def _shortconv(metadata: GgufMetadata) -> tuple[CacheTensor, ...]:
    return _states(_need(metadata, "embedding_length") * max(_need(metadata, "shortconv.l_cache") - 1, 0), 0)


def _kda(metadata: GgufMetadata) -> tuple[CacheTensor, ...]:
    head, heads = _need(metadata, "kda.head_dim"), _need(metadata, "attention.head_count")
    kernel = _need(metadata, "ssm.conv_kernel", 0)
    return _states(3 * (kernel - 1 if kernel else _DEFAULT_KDA_COLUMNS) * heads * head, head * head * heads)


_SHAPES: Mapping[str, Callable[[GgufMetadata], tuple[CacheTensor, ...]]] = {
    "ssm": _ssm,
    "wkv": _wkv,
    "shortconv": _shortconv,
    "kda": _kda,
}


def _row(kind: str, architecture: str) -> Mapping[str, Any] | None:
    rows: list[Mapping[str, Any]] = table(TABLE)[kind]
    return next((row for row in rows if architecture in row["architectures"]), None)
