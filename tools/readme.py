"""Regenerates what the README shows of the program: the output blocks, and the picture.

python tools/readme.py           write README.md and docs/report.svg anew
python tools/readme.py --check   exit 1 where they are not what the program prints today
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"(<!-- output of: (?P<command>hubaudit [^\n]*?) -->\n```\n)(?P<output>.*?)(```\n)", re.DOTALL)
_PICTURED = "fixtures/bundles/qwen2-0.5b-instruct.json.gz"


def readme(text: str) -> str:
    """``text`` with every marked block replaced by what its command prints now."""
    return _BLOCK.sub(lambda block: block[1] + _printed(block["command"]) + block[4], text)


def picture() -> str:
    """The human report as an SVG of a terminal of 80 columns."""
    from rich.console import Console

    from hubaudit import audit
    from hubaudit.report.human import render

    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, highlight=False)
    console.print(render(audit(str(ROOT / _PICTURED))))
    return console.export_svg(title="hubaudit Qwen/Qwen2-0.5B-Instruct --mode infer", unique_id="hubaudit")


def _printed(command: str) -> str:
    words = [sys.executable, "-m", *shlex.split(command)]
    run = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True, env={"COLUMNS": "80", "NO_COLOR": "1"}
    )
    return run.stdout


def main() -> int:
    """Write, or with ``--check`` compare."""
    stale = 0
    pages = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
    made = [(page, readme(page.read_text(encoding="utf-8"))) for page in pages]
    for path, content in (*made, (ROOT / "docs" / "report.svg", picture())):
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is stale; run python tools/readme.py")
            stale = 1
        else:
            path.write_text(content, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
