"""The accelerators of this machine, for ``--gpu auto``: asked of NVML, of nvidia-smi, or of macOS."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hubaudit.errors import UsageError
from hubaudit.fit.catalogue import apple_usable, hardware_named
from hubaudit.types import Hardware

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 20
_MIB = 2**20
_QUERY = "name,memory.total,memory.reserved"


def this_machine() -> tuple[Hardware, ...]:
    """Its accelerators, equal ones together; bytes are those that the driver leaves to processes, used or not.

    Raises:
        UsageError: none was found that can be asked.
    """
    found = tuple(_nvml()) or tuple(_nvidia_smi()) or tuple(_apple())
    if not found:
        raise UsageError(
            "no GPU of this machine could be asked: neither NVML nor nvidia-smi answers, and it is no Apple silicon",
            hint="name one (`hubaudit gpus` lists them) or say its size with --memory 24GiB",
        )
    return tuple(
        Hardware(name=one.name, usable_bytes=one.usable_bytes, count=count, usable_source=one.usable_source)
        for one, count in Counter(found).items()
    )


def _nvml() -> Iterator[Hardware]:
    """Through the Python binding of NVML, where one is installed."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no binding, no library or no driver: nvidia-smi is asked next, and says why
        return
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(handle)
            yield _device(name.decode() if isinstance(name, bytes) else name, _nvml_bytes(nvml, handle))
    finally:
        nvml.nvmlShutdown()


def _nvml_bytes(nvml: Any, handle: Any) -> int | None:
    """Total without what the driver keeps; ``None`` where NVML has no number, as for memory shared with the processor."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return int(memory.total - memory.reserved)
    except Exception:  # noqa: BLE001 - an older binding or driver knows the first version only
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except Exception:  # noqa: BLE001 - "not supported": the catalogue knows the name
            return None


def _nvidia_smi() -> Iterator[Hardware]:
    """Through the program that comes with NVIDIA's driver. Drivers before 510 do not know `memory.reserved`."""
    for query in (_QUERY, _QUERY.rpartition(",")[0]):
        answer = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
        if answer is None:
            continue
        for line in answer.splitlines():
            name, *numbers = (cell.strip() for cell in line.split(","))
            if numbers:
                total, reserved = (int(cell) if cell.isdecimal() else None for cell in (*numbers, "")[:2])
                yield _device(name, None if total is None else (total - (reserved or 0)) * _MIB)
        return


def _apple() -> Iterator[Hardware]:
    """From macOS: the limit that the user set on the GPU's share of the memory, else Metal's default for a Mac of this size."""
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return
    name, memory, limit = (
        (_output("sysctl", "-n", key) or "").strip()
        for key in ("machdep.cpu.brand_string", "hw.memsize", "iogpu.wired_limit_mb")
    )
    if not memory.isdecimal():
        return
    if limit.isdecimal() and int(limit):
        yield Hardware(name=name, usable_bytes=int(limit) * _MIB, usable_source="this machine")
    else:
        usable_bytes, source = apple_usable(int(memory))
        yield Hardware(name=name, usable_bytes=usable_bytes, usable_source=source)


def _device(name: str, usable_bytes: int | None) -> Hardware:
    """A device by its driver's word, or, where that gives no size, by the catalogue's."""
    if usable_bytes is None:
        return hardware_named(name)
    return Hardware(name=name.removeprefix("NVIDIA "), usable_bytes=usable_bytes, usable_source="this machine")


def _output(program: str, *arguments: str) -> str | None:
    """What the program prints; ``None`` where there is none, or it fails, or hangs."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        run = subprocess.run(  # noqa: S603 - a program of the system's own, with arguments written here
            [path, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return run.stdout if run.returncode == 0 else None
