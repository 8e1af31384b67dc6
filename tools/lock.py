"""Writes requirements/*.txt: for each environment of CI, every package with its version and the hashes that its files may have.

    python tools/lock.py            anew, from pyproject.toml and what the package index has today (needs uv: `tox -e lock`)

CI installs these first, with pip's ``--require-hashes`` implied by the hashes, and builds the wheel with what `tox` holds, so that nothing else is
downloaded. Whoever runs tox by hand installs by the ranges of pyproject.toml, from any index; ``LOCKED="-r requirements/core.txt" tox -e core`` does
what CI does. ``lowest`` has the least version of each of the package's own needs.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
#: The dependency groups of each file, beside the package's own needs.
LOCKS: dict[str, tuple[str, ...]] = {
    "base": (),
    "core": ("tests",),
    "lowest": ("tests",),
    "full": ("tests", "oracle"),
    "typing": ("typing",),
    "lint": ("lint",),
    "docs": ("docs",),
    "workflows": ("workflows",),
    "release": ("release",),
    "tox": ("tox",),
    "real-model": ("real-model",),
}
#: What needs nothing of the package itself.
ALONE = ("real-model", "release", "tox", "workflows")


def least() -> str:
    """The package's own needs, each in the least version that pyproject.toml allows."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return "".join(f"{need.partition(',')[0].replace('>=', '==')}\n" for need in needs)


def main() -> int:
    """Resolve each environment for all platforms and Python versions at once."""
    FOLDER.mkdir(exist_ok=True)
    for name, groups in LOCKS.items():
        project = () if name in ALONE else ("pyproject.toml",)
        words = ["uv", "pip", "compile", *project, "--universal", "--python-version", "3.11", "--generate-hashes"]
        words += [word for group in groups for word in ("--group", f"pyproject.toml:{group}")]
        words += ["--no-header", "--no-annotate", "--quiet", "--upgrade", "-o", str(FOLDER / f"{name}.txt")]
        words += {"real-model": ["--no-deps"], "lowest": ["--constraint", "-"]}.get(name, [])
        subprocess.run(words, cwd=ROOT, check=True, input=least(), text=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
