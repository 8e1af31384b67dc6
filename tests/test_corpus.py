"""Every real config of the shared corpus gives an audit with reasons; skipped where the corpus is not beside the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit import audit

if TYPE_CHECKING:
    from pathlib import Path

CONFIGS = ROOT.parent / "shared" / "corpus" / "configs"
FOLDERS = sorted(path.parent for path in CONFIGS.glob("*/config.json"))

pytestmark = pytest.mark.skipif(not FOLDERS, reason="needs the shared corpus")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_config_alone_gives_facts_or_a_reason(folder: Path) -> None:
    """No traceback, no silent zero: what is unknown has its reason, what is known is positive."""
    if (folder / "model_index.json").exists():
        pytest.skip("the parts of a pipeline lie in folders that the corpus leaves out")
    report = audit(str(folder))
    facts, estimate = report.facts, report.estimate
    assert facts.parameters is not None or facts.parameters_reason
    assert facts.layer_plan is not None or facts.layer_plan_reason
    for part in ("weights", "kv_cache"):
        is_there = any(item.id == part and item.bytes > 0 for item in estimate.components)
        is_encoder = part == "kv_cache" and facts.layer_plan is not None
        assert is_there or is_encoder or any(item.id == part and item.reason for item in estimate.omitted)
