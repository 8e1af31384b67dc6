"""What the driver's answers are read as: recorded text of nvidia-smi, and a stand-in for NVML's binding."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hubaudit.monitor import gpu

# The form is nvidia-smi's --format=csv,noheader,nounits, as NVIDIA's manual page describes it.
_TWO = """\
0, NVIDIA A100-SXM4-80GB, GPU-5f9a1c1e-0000-1111-2222-333344445555, 535.104.05, 81920, 437, 600
1, NVIDIA GeForce RTX 4080, GPU-11111111-2222-3333-4444-555555555555, 550.54.14, 16376, [N/A]
"""


def test_rows_of_nvidia_smi() -> None:
    """Sizes are MiB, and what the driver calls not available is unknown."""
    first, second = gpu.gpus_of_text(_TWO)
    assert (first.index, first.name, first.driver) == (0, "NVIDIA A100-SXM4-80GB", "535.104.05")
    assert (first.total_bytes, first.used_bytes) == (80 * 2**30, 437 * 2**20)
    assert (second.total_bytes, second.used_bytes) == (16376 * 2**20, None)
    assert (first.reserved_bytes, second.reserved_bytes) == (600 * 2**20, None)


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate"]
)
def test_other_text_is_no_gpu(text: str) -> None:
    """Nothing is made of a failure's words."""
    assert not list(gpu.gpus_of_text(text))
    assert not list(gpu.apps_of_text(text))


def test_processes_of_nvidia_smi() -> None:
    """One row a process; under WDDM its memory is not available."""
    assert list(gpu.apps_of_text("4242, 1530\n17, [N/A]\n")) == [(4242, 1530 * 2**20), (17, None)]


def _nvml(**changes: Any) -> SimpleNamespace:
    def device(index: int) -> int:
        return index

    made: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"560.35.03",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": device,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda _: "GPU-x",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150754820096, used=600000000),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            SimpleNamespace(pid=7, usedGpuMemory=5 * 2**30),
            SimpleNamespace(pid=8, usedGpuMemory=None),
        ],
    }
    return SimpleNamespace(**{**made, **changes})


def test_nvml_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, old bindings' byte strings as text, and the process by its number."""
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    (only,) = gpu.gpus()
    assert (only.name, only.driver, only.total_bytes, only.source) == ("NVIDIA H200", "560.35.03", 150754820096, "NVML")
    assert gpu.process_bytes(0, pid=7) == 5 * 2**30
    assert gpu.process_bytes(0, pid=8) is None
    assert gpu.process_bytes(0, pid=9) is None


def test_one_process_under_another_number_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, whose process numbers the driver does not share."""
    alone = _nvml(nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=31337, usedGpuMemory=2**30)])
    monkeypatch.setitem(sys.modules, "pynvml", alone)
    assert gpu.process_bytes(0, pid=1) == 2**30


def test_nvidia_smi_is_asked_where_nvml_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding without a driver is no answer."""

    def fail() -> None:
        raise OSError("libnvidia-ml.so.1 is not there")

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=fail))
    monkeypatch.setattr(gpu, "_output", lambda *arguments: _TWO if "query-gpu" in arguments[0] else "7, 100\n")
    assert [one.source for one in gpu.gpus()] == ["nvidia-smi", "nvidia-smi"]
    assert gpu.process_bytes(0, pid=7) == 100 * 2**20


def test_a_question_that_the_driver_does_not_support_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is still told, without the figure."""

    def fail(_: Any) -> None:
        raise RuntimeError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlDeviceGetMemoryInfo=fail, nvmlDeviceGetUUID=fail))
    (only,) = gpu.gpus()
    assert (only.total_bytes, only.uuid, only.name) == (None, None, "NVIDIA H200")
