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
#: Drivers before 510 do not know the last.
_QUERY = "index,name,uuid,driver_version,memory.total,memory.used,memory.reserved"
_APPS = "pid,used_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One GPU as the driver knows it; ``None`` is what it does not tell. ``source`` is ``NVML`` or ``nvidia-smi``.

    ``reserved_bytes`` are those of the total that the driver keeps from every process.
    """

    index: int
    name: str
    uuid: str | None
    driver: str | None
    total_bytes: int | None
    used_bytes: int | None
    reserved_bytes: int | None
    source: str


def gpus() -> tuple[GpuInfo, ...]:
    """The GPUs of this machine; none where neither NVML nor nvidia-smi answers."""
    return tuple(_by_nvml()) or _by_nvidia_smi()


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
    """The rows of nvidia-smi's comma-separated answer to index, name, uuid, driver, total, used and, of newer drivers, reserved; sizes in MiB."""
    most = _QUERY.count(",") + 1
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) not in (most - 1, most) or not cells[0].isdecimal():
            continue
        index, name, uuid, driver, total, used, reserved = [*cells, ""][:most]
        yield GpuInfo(
            index=int(index),
            name=name,
            uuid=uuid or None,
            driver=driver or None,
            total_bytes=_mib(total),
            used_bytes=_mib(used),
            reserved_bytes=_mib(reserved),
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
            memory = _memory(nvml, handle)
            yield GpuInfo(
                index=index,
                name=_word(nvml.nvmlDeviceGetName(handle)) or "",
                uuid=_word(_told(lambda handle=handle: nvml.nvmlDeviceGetUUID(handle))),
                driver=_word(driver),
                total_bytes=None if memory is None else int(memory.total),
                used_bytes=None if memory is None else int(memory.used),
                reserved_bytes=int(memory.reserved) if hasattr(memory, "reserved") else None,
                source="NVML",
            )
    finally:
        nvml.nvmlShutdown()


def _memory(nvml: Any, handle: Any) -> Any:
    """The second version tells the reserved bytes apart; older bindings and drivers know the first only, and shared memory has neither."""
    newer = _told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    return _told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle)) if newer is None else newer


def _by_nvidia_smi() -> tuple[GpuInfo, ...]:
    for query in (_QUERY, _QUERY.rpartition(",")[0]):
        answer = _output(f"--query-gpu={query}")
        if answer is not None:
            return tuple(gpus_of_text(answer))
    return ()


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
