"""`--gpu auto`: what this machine's drivers say, with stand-ins for NVML, nvidia-smi and sysctl."""

from __future__ import annotations

import platform
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.cli.machine import this_machine
from hubaudit.errors import UsageError
from hubaudit.types import Hardware

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
GIB = 2**30


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any accelerator: an empty PATH, no NVML binding, no Mac."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(platform, "system", lambda: "Linux")


def program(tmp_path: Path, name: str, script: str) -> None:
    """An executable of that name, the only one on the PATH."""
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def nvml(*devices: dict[str, Any], **changes: Any) -> SimpleNamespace:
    """A binding of NVML that knows these devices."""

    def memory(handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:
        if "total" not in handle or (version is not None and "reserved" not in handle):
            raise RuntimeError("Not Supported")
        return SimpleNamespace(**{"used": 0} | handle)

    return SimpleNamespace(
        **{
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlMemory_v2": 2,
            "nvmlDeviceGetCount": lambda: len(devices),
            "nvmlDeviceGetHandleByIndex": lambda index: devices[index],
            "nvmlDeviceGetName": lambda handle: handle["name"],
            "nvmlDeviceGetUUID": lambda _: "GPU-x",
            "nvmlSystemGetDriverVersion": lambda: "560.35.03",
            "nvmlDeviceGetMemoryInfo": memory,
        }
        | changes
    )


def test_a_machine_without_any_says_so() -> None:
    """One line, and what to do instead."""
    with pytest.raises(UsageError, match="no GPU of this machine could be asked") as refused:
        this_machine()
    assert "--memory" in refused.value.hint


def test_nvml_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Total without what the driver keeps; equal devices are counted, bytes for names are read."""
    card = {"name": "NVIDIA GeForce RTX 4090", "total": 24564 * MIB, "reserved": 347 * MIB}
    other = {"name": b"Tesla T4", "total": 15360 * MIB, "reserved": 447 * MIB}
    monkeypatch.setitem(sys.modules, "pynvml", nvml(card, other, card))
    assert this_machine() == (
        Hardware(name="GeForce RTX 4090", usable_bytes=24217 * MIB, count=2, usable_source="this machine"),
        Hardware(name="Tesla T4", usable_bytes=14913 * MIB, count=1, usable_source="this machine"),
    )


def test_an_old_nvml_knows_the_total_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second version of the memory question the whole total is taken."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml({"name": "Tesla T4", "total": 15360 * MIB}))
    assert [one.usable_bytes for one in this_machine()] == [15360 * MIB]


def test_a_device_without_memory_of_its_own_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """GB10 shares the processor's memory: NVML has no total, the catalogue has."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml({"name": "NVIDIA GB10"}))
    (device,) = this_machine()
    assert (device.name, device.usable_source) == ("GB10", "process")
    assert 119 * GIB < device.usable_bytes < 128 * GIB


def test_nvidia_smi_answers_where_nvml_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding without a driver is no answer; the program's CSV is."""

    def no_driver() -> None:
        raise RuntimeError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=no_driver))
    program(
        tmp_path,
        "nvidia-smi",
        'echo "0, NVIDIA H200, GPU-x, 560.35.03, 143771, 700, 615"; echo "1, NVIDIA H200, GPU-y, 560.35.03, 143771, 0, 615"',
    )
    assert this_machine() == (Hardware(name="H200", usable_bytes=143156 * MIB, count=2, usable_source="this machine"),)


def test_an_old_driver_is_asked_a_shorter_question(tmp_path: Path) -> None:
    """Where `memory.reserved` is no field, the total alone is asked for."""
    script = (
        'case "$1" in *reserved*) echo "Field \\"memory.reserved\\" is not a valid field to query."; exit 2;; esac\n'
    )
    program(tmp_path, "nvidia-smi", script + 'echo "0, GeForce GTX 1070, GPU-x, 470.82, 8119, 20"')
    assert [(one.name, one.usable_bytes) for one in this_machine()] == [("GeForce GTX 1070", 8119 * MIB)]


def test_nvidia_smi_without_numbers_leads_to_the_catalogue(tmp_path: Path) -> None:
    """`[N/A]` is what it prints for shared memory."""
    program(tmp_path, "nvidia-smi", 'echo "0, NVIDIA GB10, GPU-x, 580.95, [N/A], [N/A], [N/A]"')
    assert [one.name for one in this_machine()] == ["GB10"]


@pytest.mark.parametrize("script", ["exit 9", "echo", "printf '\\377'"])
def test_a_broken_nvidia_smi_is_no_answer(script: str, tmp_path: Path) -> None:
    """A driver that cannot be reached, silence, or noise: the same one line."""
    program(tmp_path, "nvidia-smi", script)
    with pytest.raises(UsageError):
        this_machine()


@pytest.mark.parametrize(
    ("memory_gib", "limit_mib", "usable_bytes", "source"),
    [
        (64, 0, 48 * GIB, "process"),
        (64, 58 * 1024, 58 * GIB, "this machine"),
        (192, 0, 144 * GIB, "rule"),
    ],
)
def test_a_mac_says_what_metal_may_have(
    memory_gib: int, limit_mib: int, usable_bytes: int, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit that the user set, else Metal's own for a Mac of that size."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    answers = {
        "machdep.cpu.brand_string": "Apple M2 Ultra",
        "hw.memsize": memory_gib * GIB,
        "iogpu.wired_limit_mb": limit_mib,
    }
    cases = "".join(f'{key}) echo "{value}";; ' for key, value in answers.items())
    program(tmp_path, "sysctl", f'case "$2" in {cases} esac')
    (device,) = this_machine()
    assert (device.name, device.usable_source) == ("Apple M2 Ultra", source)
    assert abs(device.usable_bytes - usable_bytes) < 10_000
