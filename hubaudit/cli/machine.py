"""The accelerators of this machine, for ``--gpu auto``: asked of NVIDIA's driver or of macOS."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.fit.catalogue import apple_usable, hardware_named
from hubaudit.monitor.gpu import gpus
from hubaudit.types import Hardware

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.monitor.gpu import GpuInfo

_SECONDS = 20
_MIB = 2**20


def this_machine() -> tuple[Hardware, ...]:
    """Its accelerators, equal ones together; bytes are those that the driver leaves to processes, used or not.

    Raises:
        UsageError: none was found that can be asked.
    """
    found = tuple(map(_device, gpus())) or tuple(_apple())
    if not found:
        raise UsageError(
            "no GPU of this machine could be asked: neither NVML nor nvidia-smi answers, and it is no Apple silicon",
            hint="name one (`hubaudit gpus` lists them) or say its size with --memory 24GiB",
        )
    return tuple(
        Hardware(name=one.name, usable_bytes=one.usable_bytes, count=count, usable_source=one.usable_source)
        for one, count in Counter(found).items()
    )


def _apple() -> Iterator[Hardware]:
    """From macOS: the limit that the user set on the GPU's share of the memory, else Metal's default for a Mac of this size."""
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return
    name, memory, limit = (_sysctl(key) for key in ("machdep.cpu.brand_string", "hw.memsize", "iogpu.wired_limit_mb"))
    if not memory.isdecimal():
        return
    if limit.isdecimal() and int(limit):
        yield Hardware(name=name, usable_bytes=int(limit) * _MIB, usable_source="this machine")
    else:
        usable_bytes, source = apple_usable(int(memory))
        yield Hardware(name=name, usable_bytes=usable_bytes, usable_source=source)


def _device(gpu: GpuInfo) -> Hardware:
    """A device by its driver's word, or, where that gives no size, as for memory shared with the processor, by the catalogue's."""
    if gpu.total_bytes is None:
        return hardware_named(gpu.name)
    usable_bytes = gpu.total_bytes - (gpu.reserved_bytes or 0)
    return Hardware(name=gpu.name.removeprefix("NVIDIA "), usable_bytes=usable_bytes, usable_source="this machine")


def _sysctl(key: str) -> str:
    """What macOS says under ``key``; nothing where it does not know it, or hangs."""
    path = shutil.which("sysctl")
    if path is None:
        return ""
    try:
        run = subprocess.run(  # noqa: S603 - a program of the system's own, with arguments written here
            [path, "-n", key], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
