"""Quantizing while loading: which modules a method converts, and what becomes of one weight. The rows are in quantizers.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of, dtype_named
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hubaudit.types import Exactness, Workload

#: ``should_convert_module``: a key reaches from the start of a name to the end of a word, or is the end of the name (transformers 5.23.0).
_WHOLE_WORD = r"(?:(?<=\.)|(?=\.|$))"
_DEFAULT_KEYS = ("lm_head",)
#: What ``bnb_4bit_quant_storage`` may be (transformers 5.23.0, utils/quantization_config.py).
_STORAGES = ("U8", "I8", "F16", "BF16", "F32", "F64")
_COMPUTE = ("F32", "BF16", "F16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """One method with everything that may be chosen chosen.

    ``parts`` are the bytes of the tensors that come of one weight, ``parts_beside_kept`` of those beside one that is too small for the method's
    blocks, as formulas. ``skip_modules`` are the user's, ``None`` where the class's own keys hold. ``compute_dtype`` is what 4-bit layers of
    bitsandbytes multiply in. Where there are ``blocks``, only what lies under the first of them that the model has is converted. ``exact_bits`` is the
    width of the load dtypes with which libraries were compared, ``untold_types`` are model types of which a library makes more than is told here,
    and ``fails`` those whose code does not run on such weights: which module's weight it ``reads`` itself, and the ``reason`` in words.
    """

    name: str
    method: str
    bits: int
    kinds: frozenset[str]
    parts: Mapping[str, str]
    parts_beside_kept: Mapping[str, str]
    group: int
    storage_bytes: int
    whole_blocks: tuple[int, int]
    skips: tuple[str, ...] | None
    skip_modules: tuple[str, ...] | None
    matches_weight: bool
    takes_subclasses: bool
    only: tuple[str, ...]
    blocks: tuple[str, ...]
    exact_bits: int | None
    untold_types: frozenset[str]
    fails: Mapping[str, Mapping[str, str]]
    is_calibrated: bool
    compute_dtype: str | None
    threshold: float
    exactness: Exactness
    note: str | None
    source: str

    def fits_blocks(self, rows: int, columns: int) -> bool:
        """Whether a matrix consists of whole blocks, without which the method leaves it as it is."""
        return rows % self.whole_blocks[0] == 0 and columns % self.whole_blocks[1] == 0

    @property
    def goes_by_class(self) -> bool:
        """Whether the class's own keys hold: neither the method nor the user lists what stays."""
        return self.skips is None and self.skip_modules is None

    def why_it_fails(self, model_type: str | None) -> str | None:
        """Why transformers' code for a model type does not run on such weights; ``None`` where nothing is known against it."""
        row = self.fails.get(model_type or "")
        return None if row is None or kept_by(self.skip_modules or ())(row["reads"]) else row["reason"]

    def keys(self, architecture: str | None) -> tuple[tuple[str, ...], bool]:
        """Names of modules that stay as they are, and whether they are known to be those of this class."""
        row = _rows_by_class().get(architecture or "")
        derived = tuple(row["subclasses"]) if row is not None and not self.takes_subclasses else ()
        if self.skip_modules is not None:
            return (*self.skip_modules, *_kept_by_class(architecture), *derived), row is not None
        if self.skips is not None:
            return (*self.skips, *derived), row is not None
        return (*(_DEFAULT_KEYS if row is None else row["keys"]), *derived), row is not None


def spellings() -> tuple[str, ...]:
    """Every ``--quant``."""
    return tuple(name for row in _rows() for name in (row["name"], *row.get("also", ())))


def bits_of_conversion(name: str) -> int:
    """The width that people reckon with for this ``--quant``."""
    return int(_row(name)["bits"])


def with_quant(workload: Workload, quant: str | None) -> Workload:
    """The workload with its weights quantized another way, or not at all; what was chosen for one method is not for another."""
    if quant is not None and workload.quant is not None and _row(quant) is _row(workload.quant):
        return replace(workload, quant=quant)
    return replace(
        workload,
        quant=quant,
        quant_group_size=None,
        bnb_4bit_use_double_quant=False,
        bnb_4bit_quant_storage=None,
        bnb_4bit_compute_dtype=None,
        llm_int8_skip_modules=None if quant is None else workload.llm_int8_skip_modules,
    )


def conversion_of(workload: Workload) -> Conversion | None:
    """What the workload's weights are converted to; ``None`` where they are not.

    Raises:
        UsageError: the workload asks for what the method does not have.
    """
    if workload.quant is None:
        _refuse_options(workload)
        return None
    row = _row(workload.quant)
    is_four_bit = "double_quant_parts" in row
    if not is_four_bit:
        _refuse_four_bit_options(workload)
    group = _group(row, workload.quant_group_size)
    blocks = [group if side == "group" else side for side in row.get("whole_blocks", (1, 1))]
    return Conversion(
        name=workload.quant,
        method=row["method"],
        bits=row["bits"],
        kinds=frozenset(row["converts"]),
        parts=row["double_quant_parts" if workload.bnb_4bit_use_double_quant else "parts"],
        parts_beside_kept=row.get("parts_beside_kept", {}),
        group=group,
        storage_bytes=_dtype(workload.bnb_4bit_quant_storage or "uint8", _STORAGES, "quant storage")[1],
        whole_blocks=(blocks[0], blocks[1]),
        skips=None if "skips" not in row else tuple(row["skips"]),
        skip_modules=workload.llm_int8_skip_modules,
        matches_weight=row.get("matches") == "weight",
        takes_subclasses=row.get("takes_subclasses", False),
        only=tuple(row.get("only", ())),
        blocks=tuple(row.get("blocks", ())),
        exact_bits=row.get("exact_bits"),
        untold_types=frozenset(row.get("untold_types", ())),
        fails=row.get("fails", {}),
        is_calibrated=row.get("calibrated", False),
        compute_dtype=_dtype(workload.bnb_4bit_compute_dtype or "float32", _COMPUTE, "compute dtype")[0]
        if is_four_bit
        else None,
        threshold=_threshold(workload),
        exactness=row["exactness"],
        note=row.get("note"),
        source=row["source"],
    )


@cache
def kept_by(keys: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a module of a name is left as it is, where ``keys`` are not to be converted.

    Raises:
        UsageError: a key is no regular expression.
    """
    try:
        patterns = [re.compile(f"(?:{key}){_WHOLE_WORD}") for key in keys]
    except (re.error, RecursionError, OverflowError) as error:  # the last two are of groups without end, and of counts
        raise UsageError(
            f"a module to skip is no regular expression: {error}", hint="as in --skip-modules lm_head"
        ) from None
    return lambda name: name.endswith(keys) or any(pattern.match(name) for pattern in patterns)


@cache
def _rows_by_class() -> dict[str, Mapping[str, Any]]:
    return {name: row for row in table("unconverted.json")["rows"] for name in row["architectures"]}


def _kept_by_class(architecture: str | None) -> tuple[str, ...]:
    """``_keep_in_fp32_modules``, which hold whatever the user lists."""
    row = table("load_rules.json")["architectures"].get(architecture, {})
    return tuple(row.get("fp32_under_fp16", ()))


@cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(table("quantizers.toml")["on_load"])


def _row(name: str) -> Mapping[str, Any]:
    for row in _rows():
        if name in (row["name"], *row.get("also", ())):
            return row
    raise UsageError(f"unknown quantization `{name}`", hint=f"one of {', '.join(spellings())}")


def _group(row: Mapping[str, Any], asked: int | None) -> int:
    allowed = row.get("groups", ())
    if asked is not None and asked not in allowed:
        sizes = f"one of {', '.join(map(str, allowed))}" if allowed else f"{row['name']} has none"
        raise UsageError(f"{row['name']} has no group size {asked}", hint=sizes)
    return asked or int(row.get("group", 1))


def _dtype(named: str, allowed: Sequence[str], what: str) -> tuple[str, int]:
    dtype = dtype_named(named)
    if dtype is None or dtype not in allowed:
        raise UsageError(f"no {what} is called `{named}`", hint=f"one of {', '.join(name.lower() for name in allowed)}")
    return dtype, bits_of()[dtype] // 8


def _threshold(workload: Workload) -> float:
    if workload.llm_int8_threshold < 0:
        raise UsageError("the outlier threshold cannot be negative", hint="--llm-int8-threshold 6, or 0 for none")
    return workload.llm_int8_threshold


def _refuse_options(workload: Workload) -> None:
    if workload.quant_group_size is not None or workload.llm_int8_skip_modules is not None:
        raise UsageError("a group size and modules to skip are for quantizing while loading", hint="add --quant")
    _refuse_four_bit_options(workload)


def _refuse_four_bit_options(workload: Workload) -> None:
    if workload.bnb_4bit_use_double_quant or workload.bnb_4bit_quant_storage or workload.bnb_4bit_compute_dtype:
        raise UsageError(
            "double quantization, its storage and its compute dtype are for nf4 and fp4", hint="--quant nf4"
        )
