"""Bytes of weights that are quantized while they are loaded: what each method makes of every module, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.errors import UsageError
from hubaudit.estimate.component import component, given
from hubaudit.estimate.conversion import kept_by
from hubaudit.estimate.expression import evaluate
from hubaudit.estimate.linear_names import is_compared, kind_of
from hubaudit.facts.built import is_built_so
from hubaudit.facts.loading import converts, loaded_groups, names_kept_in_float32
from hubaudit.facts.made import made_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.conversion import Conversion
    from hubaudit.types import Component, ModelFacts, TensorGroup

_EXPERTS = 3
#: How far names of files may lead astray about which modules are converted, in percent: seen with bitsandbytes' own modules.
_BY_NAME_PERCENT = (15, 60)
#: The same for classes whose names were held against their modules: 2,076 estimates by tools/class_survey.py, of which 2,015 within 0.1 percent. Those that
#: are off are too low, where the last layer's module alone is left, or a file lacks buffers; a config may ask for a module that the defaults lack.
_BY_CLASS_PERCENT = (2, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Weights of ``count`` modules alike: ``matrices`` of them in one tensor (experts), of so many outputs and inputs."""

    name: str
    kind: str
    rows: int
    columns: int
    matrices: int = 1
    count: int = 1

    @property
    def elements(self) -> int:
        """Weights in one tensor."""
        return self.matrices * self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What a method converts of a model, and what stays: parameters in the load dtype, in float32, and bytes that no loader casts.

    ``small`` are matrices whose modules were exchanged but whose weights were left, because they are no multiple of a block. ``is_certain`` where the
    modules are those of transformers, not told by names of files, which ``is_built`` says alone; ``is_compared`` where names were held against
    the class's modules.
    """

    converted: tuple[Matrix, ...]
    small: tuple[Matrix, ...]
    kept_parameters: int
    float32_parameters: int
    integer_bytes: int
    is_certain: bool
    is_built: bool
    is_compared: bool


def split(facts: ModelFacts, conversion: Conversion, dtype: str) -> Split | None:
    """Which modules of the model the method converts; ``None`` where no tensors are known.

    Raises:
        UsageError: the method does not know models of this class.
    """
    groups = loaded_groups(facts)
    if facts.parameters is None or not groups:
        return None
    if conversion.only and facts.architecture not in conversion.only:
        raise UsageError(f"{conversion.name} on load is for {conversion.only[0]} only", hint="--quant fp8, or nf4")
    total = sum(group.parameters or 0 for group in groups)
    integers = [group for group in groups if not converts(group)]
    total += made_parameters(facts) - sum(group.parameters or 0 for group in integers)
    keys, are_known = conversion.keys(facts.architecture)
    if conversion.skip_modules is not None and facts.tied_embeddings.value and not kept_by(tuple(keys))("lm_head"):
        are_known = False  # transformers would then convert the head and tie it again
    is_built = is_built_so(facts)
    weights = _modules(facts) if is_built else _by_name(groups, facts.architecture)
    told_by_class = not is_built and is_compared(facts.architecture)
    if told_by_class and conversion.goes_by_class:
        keys = ()  # what the class keeps is in its names already
    kept = kept_by(tuple(keys))
    block = _block(conversion, weights)
    chosen = [
        weight
        for weight in weights
        if weight.kind in conversion.kinds
        and not kept(_called(weight.name, conversion))
        and weight.name.startswith(block or "")
    ]
    converted = [weight for weight in chosen if conversion.fits_blocks(weight.rows, weight.columns)]
    taken = {weight.name for weight in converted}
    in_float32 = names_kept_in_float32(facts.architecture, dtype)
    float32_parameters = _in_float32(facts, groups, in_float32, taken, is_built=is_built)
    return Split(
        converted=tuple(converted),
        small=tuple(weight for weight in chosen if weight.name not in taken),
        kept_parameters=total - sum(weight.count * weight.elements for weight in converted) - float32_parameters,
        float32_parameters=float32_parameters,
        integer_bytes=sum(group.stored_bytes for group in integers),
        is_built=is_built,
        is_compared=told_by_class,
        is_certain=is_built and are_known and block is not None and _was_compared(conversion, facts, dtype),
    )


def weights_quantized(found: Split | None, conversion: Conversion, bits: Input) -> Component | None:
    """The converted modules as the method holds them, all else in the load dtype; ``None`` where no tensors are known.

    Exact where the row of quantizers.toml was compared with the library's own modules and the model's modules are known.
    """
    if found is None:
        return None
    kept = "embeddings, head, norms, biases and whatever else is not converted"
    inputs = {
        "kept_parameters": given(found.kept_parameters, kept),
        "kept_bits": bits,
        "float32_parameters": given(found.float32_parameters, "table:load_rules.json"),
        "integer_bytes": given(found.integer_bytes, "header:integer tensors"),
    }
    terms = ["kept_parameters * kept_bits // 8"]
    terms += ["4 * float32_parameters"] if found.float32_parameters else []
    terms += ["integer_bytes"] if found.integer_bytes else []
    for name, size_bytes, where in _parts(found, conversion, bits.value // 8):
        inputs[name] = given(size_bytes, where)
        terms.append(name)
    exactness = conversion.exactness if found.is_certain else "formula"
    return component(
        "weights",
        "Parameter",
        " + ".join(terms),
        inputs,
        exactness=exactness,
        source=conversion.source,
        band_percent=_band(found),
    )


def _band(found: Split) -> tuple[int, int]:
    if found.is_certain or found.is_built:
        return 0, 0
    return _BY_CLASS_PERCENT if found.is_compared else _BY_NAME_PERCENT


def bytes_of(formula: str, weight: Matrix, conversion: Conversion, dtype_bytes: int) -> int:
    """Bytes of one of the tensors that come of one module's weight."""
    inputs = {
        "matrices": weight.matrices,
        "rows": weight.rows,
        "columns": weight.columns,
        "elements": weight.elements,
        "group": conversion.group,
        "dtype_bytes": dtype_bytes,
        "storage_bytes": conversion.storage_bytes,
    }
    return evaluate(formula, inputs)


def _parts(found: Split, conversion: Conversion, dtype_bytes: int) -> Iterator[tuple[str, int, str]]:
    """Each kind of tensor that the method makes, its bytes over all modules, and how one is reckoned."""
    modules = sum(weight.count for weight in found.converted)
    for name, formula in conversion.parts.items():
        size_bytes = _added(formula, found.converted, conversion, dtype_bytes)
        beside = conversion.parts_beside_kept.get(name)
        size_bytes += _added(beside, found.small, conversion, dtype_bytes) if beside else 0
        group = f", group {conversion.group}" if "group" in formula else ""
        yield name, size_bytes, f"{formula}, over {modules:,} weights of modules{group}"


def _added(formula: str, weights: tuple[Matrix, ...], conversion: Conversion, dtype_bytes: int) -> int:
    one_of = {(weight.matrices, weight.rows, weight.columns): weight for weight in weights}
    alike: Counter[tuple[int, int, int]] = Counter()
    for weight in weights:
        alike[weight.matrices, weight.rows, weight.columns] += weight.count
    return sum(count * bytes_of(formula, one_of[shape], conversion, dtype_bytes) for shape, count in alike.items())


def _block(conversion: Conversion, weights: list[Matrix]) -> str | None:
    """The start of the names of the modules that are looked at; ``None`` where the library would have to be told."""
    if not conversion.blocks:
        return ""
    return next(
        (block for block in conversion.blocks if any(weight.name.startswith(block) for weight in weights)), None
    )


def _was_compared(conversion: Conversion, facts: ModelFacts, dtype: str) -> bool:
    """Whether real modules of the library were compared for such a model in such a dtype."""
    return conversion.exact_bits in (None, bits_of()[dtype]) and facts.model_type not in conversion.untold_types


def _called(weight: str, conversion: Conversion) -> str:
    return weight if conversion.matches_weight else weight.removesuffix(".weight")


def _modules(facts: ModelFacts) -> list[Matrix]:
    """Weights of modules as transformers builds them."""
    return [_matrix(tensor.name, tensor.kind, tensor.shape) for tensor in facts.built if len(tensor.shape) > 1]


def _matrix(name: str, kind: str, shape: tuple[int, ...], count: int = 1) -> Matrix:
    first, last = shape[0], prod(shape[1:])
    if kind == "conv1d":
        first, last = last, first
    if kind == "experts":
        if len(shape) == _EXPERTS:
            return Matrix(name=name, kind=kind, rows=shape[1], columns=shape[2], matrices=shape[0], count=count)
        kind = "bias"  # one row an expert
    return Matrix(name=name, kind=kind, rows=first, columns=last, count=count)


def _by_name(groups: Iterable[TensorGroup], architecture: str | None) -> list[Matrix]:
    """The same as the names of files tell, one row for modules that differ in their numbers only."""
    return [
        _matrix(
            group.pattern,
            kind_of(group, architecture),
            group.logical_shape or group.shape,
            group.count,
        )
        for group in groups
        if len(group.shape) > 1 and converts(group)
    ]


def _in_float32(
    facts: ModelFacts,
    groups: list[TensorGroup],
    in_float32: Callable[[str], bool],
    taken: set[str],
    *,
    is_built: bool,
) -> int:
    """Parameters that are neither converted nor in the load dtype."""
    if is_built:
        return sum(prod(tensor.shape) for tensor in facts.built if tensor.name not in taken and in_float32(tensor.name))
    return sum(
        group.parameters or 0
        for group in groups
        if converts(group) and group.pattern not in taken and in_float32(group.pattern)
    )
