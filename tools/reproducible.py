"""Builds the wheel and the source archive twice, in two folders, and fails where a byte differs. Prints the hashes.

    python tools/reproducible.py [FOLDER]    leaves the archives in FOLDER

``SOURCE_DATE_EPOCH`` is the time of the last commit, so that anybody can build what was released from the same commit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(source: Path, folder: Path, epoch: str) -> dict[str, str]:
    """Name and sha256 of what one build makes."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(words, env=os.environ | {"SOURCE_DATE_EPOCH": epoch}, check=True, stdout=subprocess.DEVNULL)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main() -> int:
    """Build from this tree and from a copy of what git knows of it, at another place."""
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "elsewhere"
        for name in filter(None, files.stdout.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        first = build(ROOT, Path(place) / "first", told.stdout.strip())
        second = build(copy, Path(place) / "second", told.stdout.strip())
        for name, digest in first.items():
            print(
                f"{digest}  {name}{'' if second.get(name) == digest else '  differs: ' + second.get(name, 'not made')}"
            )
        if first == second and len(sys.argv) > 1:
            shutil.copytree(Path(place) / "first", sys.argv[1], dirs_exist_ok=True)
    return 0 if first == second else 1


if __name__ == "__main__":
    sys.exit(main())
