"""What a CUDA device and a version of torch are to exact mode: rows of ``data/torch_cuda.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from hubaudit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A CUDA device, as far as the host's decisions about memory depend on it."""

    capability: tuple[int, int]
    processors: int
    threads_per_processor: int
    name: str

    @property
    def capability_text(self) -> str:
        """``8.0``."""
        return "{}.{}".format(*self.capability)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlasPolicy:
    """What torch allocates for cuBLAS: bytes of the workspace that each thread keeps, and what cuBLASLt does.

    ``lt`` is ``shared`` (it takes the thread's cuBLAS workspace), ``kept`` (one of its own that is kept) or ``passing`` (one of its own
    for each call). ``kept_bytes`` of 0: torch allocates none.
    """

    torch: str
    kept_bytes: int
    lt: str
    lt_bytes: int


#: Of a device without cuBLAS.
NO_WORKSPACES = BlasPolicy(torch="", kept_bytes=0, lt="shared", lt_bytes=0)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("hubaudit.data") / "torch_cuda.toml").read_text(encoding="utf-8"))


def device_of_capability(text: str, name: str | None = None) -> Device:
    """The device of a compute capability, as ``8.0``; of several with the same one, the row named, else the first.

    Raises:
        UsageError: no row has it.
    """
    rows = [row for row in _table()["device"] if row["capability"] == text]
    if not rows:
        known = ", ".join(dict.fromkeys(row["capability"] for row in _table()["device"]))
        raise UsageError(f"exact mode knows no device of compute capability {text}", hint=f"known: {known}")
    row = next((row for row in rows if name is not None and row["name"].lower() in name.lower()), rows[0])
    major, _, minor = text.partition(".")
    return Device(
        capability=(int(major), int(minor)),
        processors=row["processors"],
        threads_per_processor=row["threads_per_processor"],
        name=row["name"],
    )


def device_named(name: str) -> Device | None:
    """The device whose row's name stands in ``name``, as ``H100 SXM`` holds ``H100``; the longest such row. ``None`` where none does."""
    words = name.lower().replace("-", " ")
    rows = [row for row in _table()["device"] if row["name"].lower() in words]
    best = max(rows, key=lambda row: len(row["name"]), default=None)
    return None if best is None else device_of_capability(best["capability"], best["name"])


def blas_policy(torch_version: str, device: Device) -> BlasPolicy:
    """The newest policy that is not newer than ``torch_version``."""
    wanted = _numbers(torch_version)
    rows = [row for row in _table()["blas"] if _numbers(row["torch"]) <= wanted]
    row = max(rows, key=lambda row: _numbers(row["torch"]))
    is_wide = device.capability[0] in row["wide_majors"]
    return BlasPolicy(
        torch=row["torch"],
        kept_bytes=row["wide_bytes"] if is_wide else row["bytes"],
        lt=row["lt"],
        lt_bytes=row["lt_bytes"],
    )


def attention_rows() -> list[dict[str, Any]]:
    """Which attention kernel torch picks, first match first."""
    rows: list[dict[str, Any]] = _table()["attention"]
    return rows


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdecimal())
