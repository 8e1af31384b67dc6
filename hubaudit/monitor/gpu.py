"""What NVIDIA's driver says of this machine's GPUs and of a process on them: by NVML, or by nvidia-smi where that does not answer."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 20
_MIB = 2**20
_QUERY = "index,name,uuid,driver_version,memory.total,memory.used"
_APPS = "pid,used_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One GPU as the driver knows it; ``None`` is what it does not tell. ``source`` is ``NVML`` or ``nvidia-smi``."""

    index: int
    name: str
    uuid: str | None
    driver: str | None
    total_bytes: int | None
    used_bytes: int | None
    source: str


def gpus() -> tuple[GpuInfo, ...]:
    """The GPUs of this machine; none where neither NVML nor nvidia-smi answers."""
    return tuple(_by_nvml()) or tuple(gpus_of_text(_output(f"--query-gpu={_QUERY}") or ""))


def process_bytes(index: int = 0, pid: int | None = None) -> int | None:
    """Memory of the GPU ``index`` that the driver counts for a process, with its CUDA context; ``None`` where it does not know it.

    In a container the driver may know the process under another number: where it knows a single one, that is ours.
    """
    pid = os.getpid() if pid is None else pid
    rows = tuple(_apps_by_nvml(index))
    if not rows:
        rows = tuple(apps_of_text(_output(f"--query-compute-apps={_APPS}", f"--id={index}") or ""))
    own = [size for number, size in rows if number == pid]
    if not own and len(rows) == 1:
        return rows[0][1]
    return own[0] if own else None


def gpus_of_text(text: str) -> Iterator[GpuInfo]:
    """The rows of nvidia-smi's comma-separated answer to index, name, uuid, driver, total and used; sizes in MiB."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != _QUERY.count(",") + 1 or not cells[0].isdecimal():
            continue
        index, name, uuid, driver, total, used = cells
        yield GpuInfo(
            index=int(index),
            name=name,
            uuid=uuid or None,
            driver=driver or None,
            total_bytes=_mib(total),
            used_bytes=_mib(used),
            source="nvidia-smi",
        )


def apps_of_text(text: str) -> Iterator[tuple[int, int | None]]:
    """The rows of nvidia-smi's answer to pid and used memory. Under some drivers the memory is not available."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == _APPS.count(",") + 1 and cells[0].isdecimal():
            yield int(cells[0]), _mib(cells[1])


def _mib(cell: str) -> int | None:
    return int(cell) * _MIB if cell.isdecimal() else None


def _by_nvml() -> Iterator[GpuInfo]:
    nvml = _nvml()
    if nvml is None:
        return
    try:
        driver = _told(nvml.nvmlSystemGetDriverVersion)
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = _told(lambda handle=handle: nvml.nvmlDeviceGetMemoryInfo(handle))
            yield GpuInfo(
                index=index,
                name=_word(nvml.nvmlDeviceGetName(handle)) or "",
                uuid=_word(_told(lambda handle=handle: nvml.nvmlDeviceGetUUID(handle))),
                driver=_word(driver),
                total_bytes=None if memory is None else int(memory.total),
                used_bytes=None if memory is None else int(memory.used),
                source="NVML",
            )
    finally:
        nvml.nvmlShutdown()


def _apps_by_nvml(index: int) -> Iterator[tuple[int, int | None]]:
    nvml = _nvml()
    if nvml is None:
        return
    try:
        handle = _told(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        for one in _told(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ():
            size = one.usedGpuMemory
            yield int(one.pid), int(size) if isinstance(size, int) and 0 <= size < 2**63 else None
    finally:
        nvml.nvmlShutdown()


def _nvml() -> Any:
    """The binding, started; ``None`` where there is no binding, library or driver."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever fails here, nvidia-smi is asked next
        return None
    return nvml


def _told(ask: Any) -> Any:
    """The answer, or ``None`` where the driver does not support the question."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - "not supported" has no type of its own that all bindings share
        return None


def _word(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def _output(*arguments: str) -> str | None:
    """What nvidia-smi prints; ``None`` where there is none, or it fails, or hangs."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        run = subprocess.run(  # noqa: S603 - a program of the system's own, with arguments written here
            [path, *arguments, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return run.stdout if run.returncode == 0 else None
