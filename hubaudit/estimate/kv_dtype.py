"""The type that an engine keeps keys and values in: what the user asked for, or what the engine decides itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of, dtype_named, is_float, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.component import Input, given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import ModelFacts

TABLE = "runtimes.toml"
RUNTIMES = {"transformers": "transformers", "vllm": "vllm", "llama.cpp": "llama_cpp"}
"""Engines as the command line spells them, and their sections of the table."""

_LEAST_PLAIN_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KvType:
    """``bytes`` hold ``elements`` elements: 1 and 2 for bf16, 32 and 34 for q8_0. ``cache`` is the cache that this type needs, if any."""

    name: str
    elements: int
    bytes: int
    where: str
    cache: str | None = None
    backend: str | None = None

    @property
    def bits(self) -> Input:
        """Width of one element as an input of formulas.

        Raises:
            ValueError: the type packs elements so that one alone has no whole number of bits.
        """
        width, rest = divmod(8 * self.bytes, self.elements)
        if rest:
            raise ValueError(f"{self.name} has no whole number of bits an element")
        return given(width, self.where)

    @property
    def block(self) -> dict[str, Input]:
        """The inputs ``kv_block_elements`` and ``kv_block_bytes``."""
        return {
            "kv_block_elements": given(self.elements, self.where),
            "kv_block_bytes": given(self.bytes, self.where),
        }


def runtime_row(runtime: str) -> dict[str, Any]:
    """The engine's section of the table.

    Raises:
        UsageError: there is no such engine.
    """
    if runtime not in RUNTIMES:
        raise UsageError(f"unknown runtime `{runtime}`", hint=f"one of {', '.join(RUNTIMES)}")
    row: dict[str, Any] = table(TABLE)[RUNTIMES[runtime]]
    return row


def kv_type(runtime: str, asked: str | None, facts: ModelFacts, compute: str, compute_where: str) -> KvType:
    """The type of the cache under ``runtime``; ``compute`` is the dtype that the model computes in.

    Raises:
        UsageError: the engine has no cache of that type.
    """
    if asked is None or asked == "auto":
        return _auto(runtime_row(runtime)["kv_auto"], facts, compute, compute_where, runtime)
    wanted = asked.strip().lower()
    for row in _rows():
        if row["runtime"] == runtime and wanted in row["called"]:
            return _of_row(row, "workload")
    named = dtype_named(wanted)
    if runtime != "llama.cpp" and named is not None and is_float(named) and bits_of()[named] >= _LEAST_PLAIN_BITS:
        return _plain(named, "workload")
    hint = f"{runtime} has {', '.join(dict.fromkeys(_known(runtime)))}"
    raise UsageError(f"unknown KV cache dtype `{asked}`", hint=hint)


def default_quantized() -> KvType:
    """What ``generate(cache_implementation="quantized")`` makes where no more is said: quanto's four bits."""
    row = next(row for row in _rows() if row["name"] == "int4")
    return _of_row(row, "default:transformers generation/utils.py, _prepare_cache_for_generation: backend quanto")


def _auto(rule: str, facts: ModelFacts, compute: str, compute_where: str, runtime: str) -> KvType:
    """As the engine decides: in the compute dtype, in the checkpoint's own scheme where it has one, or always in f16."""
    if rule == "f16":
        row = next(row for row in _rows() if row["runtime"] == runtime and row["name"] == "f16")
        return _of_row(row, "default:llama.cpp's --cache-type-k and --cache-type-v")
    scheme = facts.kv_cache_dtype
    if rule == "checkpoint" and scheme is not None and scheme.value is not None:
        row = next(row for row in _rows() if row["runtime"] == runtime and row["name"] == scheme.value)
        return _of_row(row, scheme.where)
    return _plain(compute, compute_where)


def _plain(dtype: str, where: str) -> KvType:
    return KvType(name=short_name(dtype), elements=1, bytes=bits_of()[dtype] // 8, where=where)


def _of_row(row: dict[str, Any], where: str) -> KvType:
    elements, size_bytes = _ggml()[row["ggml"]] if "ggml" in row else (row["elements"], row["bytes"])
    return KvType(
        name=row["name"],
        elements=elements,
        bytes=size_bytes,
        where=where,
        cache=row.get("cache"),
        backend=row.get("backend"),
    )


def _known(runtime: str) -> Iterator[str]:
    yield "auto"
    if runtime != "llama.cpp":
        yield from ("bf16", "fp16", "fp32")
    for row in _rows():
        if row["runtime"] == runtime:
            yield row["name"]


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(TABLE)["kv_dtype"]
    return rows


@cache
def _ggml() -> dict[str, tuple[int, int]]:
    return {row["name"]: (row["block_elements"], row["block_bytes"]) for row in table("ggml_types.json")["types"]}
