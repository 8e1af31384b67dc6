"""docs/faults.md: whole, and true of a part of its cells that is tried here. `python tools/faults.py --check` tries all."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

if TYPE_CHECKING:
    from types import ModuleType

    from local_hub import LocalHub


def tool() -> ModuleType:
    """tools/faults.py."""
    spec = importlib.util.spec_from_file_location("faults_tool", ROOT / "tools" / "faults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


FAULTS = tool()
CELLS = {str(cell): cell for cell in FAULTS.cells()}
#: Cells that take long, and are left to the tool: silence is waited out.
QUICK = [name for name, cell in CELLS.items() if cell.kind not in FAULTS.TAKES_FOR_EVER and not cell.is_batch]
#: Every 17th goes through every request and every fault, for 17 divides neither number.
SOME = [
    *QUICK[::17],
    "A model in one file / config.json / no answer / for ever",
    "A sharded model / all headers at once / a byte a second / for ever",
    "A batch of four models / one header, at the CDN / 500 / for ever",
    "A batch of four models / everything at the CDN / connection reset / once",
]


def told() -> dict[str, str]:
    """What the page says of each cell."""
    found = {}
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    for title, table in re.findall(r"^## (.+)\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        for fault, *cells in rows:
            for request, said in zip(head[1:], cells, strict=True):
                once, _, stays = said.partition(" → ")
                found[f"{title} / {request} / {fault} / once"] = once
                found[f"{title} / {request} / {fault} / for ever"] = stays or once
    return found


TOLD = told()


def test_the_page_tells_of_every_request_and_every_fault() -> None:
    """No cell is empty but those that are not tried, and no run of any cell ended in a bug or a usage error."""
    assert {name for name, said in TOLD.items() if said} == set(CELLS)
    outcomes = {said for name, said in TOLD.items() if name in CELLS and not CELLS[name].is_batch}
    known = re.compile(r"=|network 4|rate_limit 4|not_found 3|access 3|lacks \([a-z, -]+\)")
    assert all(known.fullmatch(said) for said in outcomes), outcomes
    assert {said for name, said in TOLD.items() if name.endswith(("500 / once", "reset / once"))} == {"="}


@pytest.mark.parametrize("name", SOME)
def test_a_cell_is_as_the_page_says(name: str, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outcome now, no number but the right ones, the token at home, an end in time, and nothing spoilt for the next run."""
    monkeypatch.setenv("HF_TOKEN", "hf_local")
    FAULTS.furnish(local_hub)
    assert FAULTS.Bench(local_hub).outcome(CELLS[name]) == TOLD[name]
