"""What a batch asks of every model, and what comes back of one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hubaudit.types import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.hub.budget import Quota
    from hubaudit.types import Hardware

State: TypeAlias = Literal["audited", "later", "access", "never", "bug"]
"""How a model's turn ended: with an answer, or with a failure that is worth repeating by itself (``later``), once the user has access
(``access``), not before the repository changes (``never``), or not before the program does (``bug``)."""

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One model to audit: its name as the user or a listing gave it, its place in the list, and the commit that a listing told."""

    name: str
    position: int = 0
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is worked out of every model. Two runs of one directory must have the same."""

    workloads: tuple[Workload, ...] = (Workload(),)
    hardware: tuple[Hardware, ...] = ()
    file: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The plan as it is kept beside the journal."""
        return {
            "workloads": [given(workload) for workload in self.workloads],
            "hardware": [asdict(hardware) for hardware in self.hardware],
            "file": self.file,
        }

    def answer_key(self, revision: str | None) -> str:
        """Names all that a row depends on beside the commit: the plan, the revision that was asked for, and this very program."""
        return _answer_key(self, revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the Hub, or the cache, is read. Not part of the plan: another token gives no other answer."""

    token: str | None = field(default=None, repr=False)
    cache_dir: Path | None = None
    offline: bool = False
    max_age_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one item: ``document`` is its row as JSON. A worker elsewhere adds what it sent, and what it was told of the quota."""

    item: Item
    state: State
    document: bytes
    seconds: float
    is_rate_limit: bool = False
    sent: Mapping[str, int] = field(default_factory=dict)
    told: tuple[Quota, ...] = ()


def given(workload: Workload) -> dict[str, Any]:
    """A workload by what was asked for: a field that a later version adds changes no earlier plan."""
    plain = Workload()
    return {
        name: getattr(workload, name)
        for name in workload.__slots__
        if name == "mode" or getattr(workload, name) != getattr(plain, name)
    }


@lru_cache(maxsize=1000)
def _answer_key(plan: Plan, revision: str | None) -> str:
    text = json.dumps([plan.as_json(), revision, program_digest()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def program_digest() -> str:
    """Names the code and the tables that this process runs, so that no answer of another version is taken for its own."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml", ".json") and "page" not in path.parts:
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
