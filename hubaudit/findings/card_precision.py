"""A dtype on the model card that the files do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.claims import CARD, claimed
from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_SPELT = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
#: A width is what several dtypes have; what a quantizer packs, its declared bits tell.
_WIDTHS = {"8 bits": ("F8_E4M3", "F8_E5M2", "I8", "U8"), "4 bits": ("F4",)}


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each dtype that neither the files, nor the config, nor the quantization has."""
    dtypes = {group.dtype for group in facts.tensor_groups}
    if not dtypes or facts.format == "gguf" or facts.library == "peft":
        return
    known = {*dtypes, *filter(None, (_SPELT.get(facts.dtype.value or ""),))}
    bits = None if facts.quantization is None else facts.quantization.bits
    for claim in claimed(snapshot, "dtype"):
        said = claim.dtype or ""
        is_known = said in known or not known.isdisjoint(_WIDTHS.get(said, ())) or said == f"{bits} bits"
        is_open = facts.quantization is not None and bits is None and said in _WIDTHS
        if not is_known and not is_open:
            yield RULE.found(
                f"the card says {shown(claim.text)}, the files hold {', '.join(sorted(dtypes))}",
                where=CARD,
                line=claim.line,
            )


RULE = Rule(
    id="card-precision",
    severity="warning",
    title="the card says another dtype than the files",
    about="Only plain claims count: a row or line called dtype, tensor type, data type or precision, that names one. Half the width is half the memory, so "
    "who reads the card plans wrongly.",
    fix="correct the card, or convert the files",
    check=check,
)
