"""The quantization that the config declares is not what the tensors are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_PLAIN = frozenset({"F16", "BF16", "F32", "F64"})


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding where all tensors are plain and the config says a width, and one where they are packed and no config says how."""
    quantization = facts.quantization
    if quantization is None or facts.format == "gguf" or facts.library == "peft":
        return
    dtypes = {group.dtype for group in facts.tensor_groups}
    if quantization.where.startswith("header:"):
        yield RULE.found(
            f"tensors are packed as {shown(quantization.method)} packs them ({quantization.where}), and no config declares it",
            where="config.json#quantization_config",
            fix="add quantization_config to config.json, or loaders take the packed tensors for plain ones",
        )
    elif (
        facts.stored_bytes is not None  # else the tensors are those that the config implies
        and dtypes
        and dtypes <= _PLAIN
        and not quantization.scale_elements
        and quantization.bits is not None
        and quantization.bits < 16
    ):
        yield RULE.found(
            f"the config declares {shown(quantization.method)} with {quantization.bits} bits, and all tensors are {', '.join(sorted(dtypes))}",
            where=quantization.where,
        )


RULE = Rule(
    id="quantization-mismatch",
    severity="error",
    title="quantization_config and tensors disagree",
    about="Loaders replace modules by quantized ones as quantization_config says, and then look for packed tensors and scales. Where the files hold "
    "plain tensors, or packed ones that nobody declares, loading fails or gives noise.",
    fix="remove quantization_config, or upload the quantized weights",
    check=check,
)
