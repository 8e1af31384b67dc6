"""Writes what a plain install of hubaudit is made of, as CycloneDX: every package of requirements/base.txt with its hashes.

    python tools/sbom.py FILE

cyclonedx-py reads the lock and pyproject.toml. Of the package itself it leaves out the version, which is in its code, and what it needs; a list of
parts that does not say of what is of no use, so both are added here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def completed(bom: dict[str, Any], version: str, needs: list[str]) -> dict[str, Any]:
    """``bom`` with the version of what it is about, and its own needs, as pyproject.toml has them, among the dependencies."""
    about = bom["metadata"]["component"]
    about |= {"version": version, "purl": f"pkg:pypi/{about['name']}@{version}"}
    references = {_canonical(one["name"]): one["bom-ref"] for one in bom["components"]}
    direct = sorted(references[_canonical(need)] for need in needs)
    others = [row for row in bom.get("dependencies", []) if row["ref"] != about["bom-ref"]]
    return bom | {"dependencies": [*others, {"ref": about["bom-ref"], "dependsOn": direct}]}


def _canonical(requirement: str) -> str:
    """The name in a requirement, as the package index compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def main() -> int:
    """Write the file."""
    told = subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(ROOT / "requirements" / "base.txt")),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON", "-o", "-"),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "hubaudit" / "_version.py").read_text(encoding="utf-8"))
    assert found is not None
    bom = completed(json.loads(told.stdout), found[1], project["dependencies"])
    Path(sys.argv[1]).write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
