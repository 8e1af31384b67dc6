"""benchmarks/load.py with few models: a run that fails here and there, is killed, and goes on; the record of 10,000 is in docs/scale.md."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from fixture_models import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def benchmark() -> ModuleType:
    """benchmarks/load.py."""
    spec = importlib.util.spec_from_file_location("load_benchmark", ROOT / "benchmarks" / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    """Eighty models, a tenth of all requests spoilt, a kill −9 at half: each has its one right row."""
    record = benchmark().measured(80, 0.1, tmp_path)
    assert record.is_good, record
    assert 40 <= record.rows_at_kill <= 80
    assert record.requests >= 400
    assert sum(record.faults.values()) > 20
