"""What the name of a weight file tells: its format, which model it is of, which variant, which shard of how many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table

if TYPE_CHECKING:
    from collections.abc import Sequence

#: More shards than any model has; a name that claims more is no shard's.
MAX_SHARDS = 10_000
MAX_NAME_CHARACTERS = 255

_SHARD = re.compile(r"(?P<stem>.+?)[-_](?P<number>[0-9]{1,6})-of-(?P<count>[0-9]{1,6})(?P<after>\.\w+)?", re.DOTALL)
#: Meta's own checkpoints: one file for each rank of a tensor-parallel run, and nowhere how many.
_RANK = re.compile(r"(?P<stem>consolidated)\.(?P<number>[0-9]{2})")
_INDEX = re.compile(r"(?P<stem>.+)\.(?P<ending>safetensors|bin)(\.(?P<before>\w+))?\.index(\.(?P<after>\w+))?\.json")
_QUANT = re.compile(r"[-.](?P<quant>(U?I?Q|TQ)\d\w*|B?F(P)?\d+|MXFP\d\w*|NVFP\d\w*|FP\d\w*|INT\d\w*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightName:
    """A file's name taken apart. ``stem`` is the name that its shards and variants share; ``count`` is 0 where the name does not say it.

    ``frame`` is what stands before and after a shard's number, its folder included.
    """

    path: str
    folder: str
    format: str
    stem: str
    variant: str | None = None
    number: int | None = None
    count: int | None = None
    frame: tuple[str, str] = ("", "")

    @property
    def is_shard(self) -> bool:
        """Whether it is one file of several."""
        return self.number is not None


def weight_name(path: str) -> WeightName | None:
    """The name taken apart; ``None`` where it is no weight file's."""
    folder, _, name = path.rpartition("/")
    format = format_of(name)
    if format is None:
        return None
    base = name.rpartition(".")[0]
    shard = (_RANK if format == "torch" else _SHARD).fullmatch(base) or _SHARD.fullmatch(base)
    number = count = None
    frame = ("", "")
    if shard is not None and int(shard.groupdict().get("count") or 0) <= MAX_SHARDS:
        base = shard["stem"] + (shard.groupdict().get("after") or "")
        number, count = int(shard["number"]), int(shard.groupdict().get("count") or 0)
        at = len(path) - len(name)
        frame = (path[: at + shard.start("number")], path[at + shard.end("number") :])
    stem, variant = _split(base, format)
    return WeightName(
        path=path, folder=folder, format=format, stem=stem, variant=variant, number=number, count=count, frame=frame
    )


def index_name(path: str) -> WeightName | None:
    """An ``*.index.json`` of shards, in any of the spellings that transformers and diffusers have had for variants."""
    if not path.endswith(".json"):
        return None
    folder, _, name = path.rpartition("/")
    index = _INDEX.fullmatch(name)
    if index is None:
        return None
    format = {"safetensors": "safetensors", "bin": "torch"}[index["ending"]]
    stem, variant = _split(index["stem"], format)
    return WeightName(
        path=path, folder=folder, format=format, stem=stem, variant=variant or index["before"] or index["after"]
    )


def format_of(name: str) -> str | None:
    """The format that a file's name (without its folder) shows; ``None`` where it holds no weights."""
    if len(name) > MAX_NAME_CHARACTERS or not name.lower().endswith(_endings()):
        return None
    return next((format or None for match, format in _files() if match.fullmatch(name)), None)


@cache
def read_formats() -> frozenset[str]:
    """The formats whose headers this tool reads."""
    return frozenset(row["format"] for row in table("weight_files.toml")["file"] if row.get("is_read"))


@cache
def known_stems() -> frozenset[str]:
    """The names that loaders look for."""
    return frozenset(row["stem"] for row in table("weight_files.toml")["loader"])


@cache
def _endings() -> tuple[str, ...]:
    """Asked first, because a listing may hold 100,000 names and few of them are weights."""
    return tuple(table("weight_files.toml")["endings"])


@cache
def _files() -> Sequence[tuple[re.Pattern[str], str]]:
    rows = table("weight_files.toml")["file"]
    return [(re.compile(row["match"], re.IGNORECASE | re.DOTALL), row["format"]) for row in rows]


def _split(base: str, format: str) -> tuple[str, str | None]:
    """Stem and variant. Only after a name that loaders know is a second word a variant: elsewhere dots are part of the name."""
    if format == "gguf":
        quant = _QUANT.search(base)
        return base, quant["quant"].upper() if quant else None
    stem, _, variant = base.partition(".")
    if stem not in known_stems():
        return base, None
    return stem, variant if variant not in ("", "safetensors", "bin") else None
