"""Builds the stub driver: with it the CUDA build of torch runs its real allocator, and every other decision of the host, without a GPU.

python -m tools.stub_driver.build FOLDER     needs cc, nm, and the CUDA build of torch in the running environment
FOLDER/run PROGRAM.py ...                    runs a program of that environment on the stub device

What the device answers is written in device.c; every other function of the CUDA runtime, the driver, NVML and cuBLAS that torch's
libraries (and bitsandbytes') name is answered with success and no effect. cuDNN is not stubbed: convolutions cannot run.
The few operators that torch 2.13 writes in Triton run by their older kernels (TORCH_DISABLE_NATIVE_JIT), as nothing can be compiled here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

_SOURCE = Path(__file__).with_name("device.c")
_NAMES = re.compile(r"\bU ((?:__)?(?:cuda|cublas|cu[A-Z]|nvml)\w+)")
_WRITTEN = re.compile(r"^[\w ]+?\*?\b((?:cuda|cublas|cu[A-Z]|nvml)\w+)\(", re.MULTILINE)
_NVML = ("nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetCount_v2")
_RUNNER = """#!/bin/sh
# Runs a Python program on a CUDA device that is not there.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here" LD_PRELOAD="$here/libstub.so" HF_HUB_OFFLINE=1 TORCH_DISABLE_NATIVE_JIT=1
exec {python} "$@"
"""


def build(folder: Path) -> None:
    """Compile the libraries into ``folder`` and write the script that runs a program with them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = set(_WRITTEN.findall(_SOURCE.read_text(encoding="utf-8")))
    silent = sorted((_named_by_libraries() | set(_NVML)) - written)
    stubs = folder / "silent.c"
    stubs.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in silent))
    library = folder / "libstub.so"
    headers = _package("triton") / "backends" / "nvidia" / "include"  # whole, where the runtime wheel lacks crt/
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-w", f"-I{headers}", str(_SOURCE), str(stubs), "-o", str(library)],
        check=True,
    )
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):  # opened by these names where a driver is looked for
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
    runner = folder / "run"
    runner.write_text(_RUNNER.format(python=sys.executable))
    runner.chmod(0o755)


def _named_by_libraries() -> set[str]:
    """The functions that torch and bitsandbytes expect others to have."""
    libraries = [*(_package("torch") / "lib").glob("*.so"), *_package("bitsandbytes").glob("*cuda130.so")]
    found: set[str] = set()
    for path in libraries:
        command = ["nm", "-D", "--undefined-only", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True)
        found.update(_NAMES.findall(listing.stdout))
    return found


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed here")
    return Path(next(iter(spec.submodule_search_locations)))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
