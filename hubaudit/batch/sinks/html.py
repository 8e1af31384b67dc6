"""HTML: one file that needs nothing else, with a table to sort and filter, a fits matrix, a histogram, and each model's explanation."""

from __future__ import annotations

import json
import tempfile
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any

from hubaudit._version import __version__
from hubaudit.batch.flat import WORKLOAD, device_names, fit_cells, model_cells, omitted_words, workload_words
from hubaudit.report.phrases import clean
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path

NAME = "report.html"
_COLUMNS = (
    "name", "commit", "architecture", "model_type", "library", "parameters", "active_parameters", "layers", "hidden_size", "attention_heads",
    "kv_heads", "max_positions", "dtype", "format", "quantization", "file_bytes", "state", "error", "hint", "findings", "audits",
)  # fmt: skip
_RENAMED = {"active_parameters": "active"}
#: More than a browser shows with ease; the CSV holds the rest.
MOST_ROWS = 50_000
_MOST_WORDS = 100_000
_MOST_FINDINGS = 50


class HtmlSink:
    """The file while it is written: rows wait in a file of their own, because the words that they share come after them."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._path = folder / NAME
        self._plan = plan
        self._devices = device_names(plan)
        self._words = _Words()
        self._rows = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 - closed when it is poured into the page
        self._models = self._audited = 0

    def put(self, row: dict[str, Any]) -> None:
        """One model."""
        self._models += 1
        self._audited += row["state"] == "audited"
        if self._models <= MOST_ROWS:
            self._rows.write(",\n" if self._models > 1 else "")
            self._rows.write(_embedded(self._cells(row)))

    def close(self) -> tuple[str, ...]:
        """No more rows: put the page together."""
        style, script = _page("page.css"), _page("page.js")
        policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
        page = (
            _page("page.html").replace("@@POLICY@@", policy).replace("@@STYLE@@", style).replace("@@SCRIPT@@", script)
        )
        before, _, after = page.partition("@@DATA@@")
        with self._path.open("w", encoding="utf-8") as file:
            file.write(f"{before}{{")
            for name, value in self._about().items():
                file.write(f'"{name}":{_embedded(value)},\n')
            file.write('"rows":[\n')
            _pour(self._rows, file)
            file.write(f"\n]}}{after}")
        return (NAME,)

    def _about(self) -> dict[str, Any]:
        cut = f", the first {MOST_ROWS:,} of them on this page" if self._models > MOST_ROWS else ""
        return {
            "title": f"Memory of {self._models:,} models",
            "summary": f"{self._audited:,} of {self._models:,} audited{cut} · hubaudit {__version__}",
            "columns": [_RENAMED.get(name, name) for name in _COLUMNS],
            "workloads": [workload_words(workload) for workload in self._plan["workloads"]],
            "devices": self._devices,
            "words": self._words.all,
        }

    def _cells(self, row: dict[str, Any]) -> list[Any]:
        document = row["document"]
        cells = model_cells(row)
        cells["hint"] = (document.get("error") or {}).get("hint")
        cells["findings"] = [
            [finding["severity"], finding["rule"], clean(finding["message"])]
            for finding in document.get("findings", ())[:_MOST_FINDINGS]
        ]
        cells["audits"] = [self._audit(audit) for audit in document.get("audits", ())]
        return [clean(value) if isinstance(value := cells.get(name), str) else value for name in _COLUMNS]

    def _audit(self, audit: dict[str, Any]) -> dict[str, Any]:
        if "error" in audit:
            return {"error": clean(audit["error"]["message"])}
        estimate, fits = audit["estimate"], dict(fit_cells(audit))
        return {
            "total": estimate["total_bytes"],
            "omitted": omitted_words(estimate),
            "low": estimate["low_bytes"],
            "high": estimate["high_bytes"],
            "said": clean(_said(audit["workload"])),
            "parts": [self._part(part) for part in estimate["components"]],
            "fit": [_fit(fits.get(name)) for name in self._devices],
        }

    def _part(self, part: dict[str, Any]) -> list[Any]:
        word = self._words.of
        return [
            word(part["id"]),
            part["bytes"],
            part["low_bytes"],
            part["high_bytes"],
            word(part["exactness"]),
            word(part["formula"]),
            [[word(name), value] for name, value in part["inputs"].items()],
            [word(clean(source)) for source in part["sources"]],
        ]


open_sink = HtmlSink


class _Words:
    """Words that many rows share, told once; a number stands for each."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        return list(self._places)

    def of(self, text: str) -> int | str:
        place = self._places.get(text)
        if place is None:
            if len(self._places) >= _MOST_WORDS:
                return text
            place = self._places[text] = len(self._places)
        return place


def _fit(fit: dict[str, Any] | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "verdict": fit["verdict"],
        "headroom": fit["headroom_bytes"],
        "batch": fit["max_batch"],
        "context": fit["max_context"],
        "reason": None if fit["reason"] is None else clean(fit["reason"]),
    }


def _said(workload: dict[str, Any]) -> str:
    """The workload as it was made definite for this model."""
    plain = Workload()
    told = [
        (name, value)
        for name, value in workload.items()
        if value is not None and (name in WORKLOAD or value not in (getattr(plain, name, None), []))
    ]
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told)


def _embedded(value: Any) -> str:
    """JSON that can stand in a script element: no character of it can end the element, or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _pour(scratch: IO[str], page: IO[str]) -> None:
    scratch.seek(0)
    while some := scratch.read(1 << 16):
        page.write(some)
    scratch.close()


def _page(name: str) -> str:
    return files("hubaudit.batch").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a content security policy names the one script, or style, that may run."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
