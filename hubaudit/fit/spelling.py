"""One form for the many ways to write an accelerator's name: ``"NVIDIA GeForce RTX 4090"``, ``"rtx4090"``, ``"4090 24GB"``."""

from __future__ import annotations

import re

#: Words that name the maker, the form factor or the kind of memory, and never the model.
_NOISE = frozenset((
    "nvidia", "geforce", "amd", "radeon", "instinct", "intel", "apple", "tesla", "arc", "data", "center", "gpu", "graphics", "accelerator",
    "generation", "edition", "workstation", "server", "blackwell", "pcie", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "oam", "ac",
    "hbm2", "hbm2e", "hbm3", "hbm3e", "r", "tm",
))  # fmt: skip
_SERIES = re.compile(r"^(?:rtx|gtx|rx)(?=a?\d|pro)")
_COUNTED = (
    re.compile(r"(?P<name>.+?)\s*[x×*]\s*(?P<count>[0-9]{1,3})"),
    re.compile(r"(?P<count>[0-9]{1,3})\s*[x×*]\s*(?P<name>.+)"),
)


def normalised(name: str) -> str:
    """Letters and digits of the model alone: ``"NVIDIA A100-SXM4-80GB"`` and ``"a100 80g"`` are both ``"a10080"``."""
    words = re.sub(r"(?<![a-z0-9])(\d+)\s*(?:gib|gb|g)\b", r"\1", name.lower())
    tokens = [word for word in re.split(r"[^a-z0-9]+", words) if word and word not in _NOISE]
    return "".join("laptop" if word in ("mobile", "notebook") else word for word in tokens)


def spellings(name: str, memory_gib: int | None) -> frozenset[str]:
    """Every normal form that means this model: with and without the size of its memory and the letters of its series."""
    whole = normalised(name)
    bare = _SERIES.sub("", whole)
    sized = () if memory_gib is None else (f"{whole}{memory_gib}", f"{bare}{memory_gib}")
    return frozenset(form for form in (whole, bare, *sized) if form)


def counted(text: str) -> tuple[tuple[str, int], ...]:
    """The ways to read a count in ``text``: ``(("4090", 2),)`` for ``"4090x2"`` and for ``"2x 4090"``; none where there is none."""
    matches = [pattern.fullmatch(text.strip()) for pattern in _COUNTED]
    return tuple((match["name"].strip(), int(match["count"])) for match in matches if match and int(match["count"]))
