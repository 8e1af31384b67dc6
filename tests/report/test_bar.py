"""The bar of characters: always as wide, shares as large as they are, and told apart without colour."""

from __future__ import annotations

import pytest
from fixture_models import NAMES, snapshot_of

from hubaudit.auditing import audit_snapshot
from hubaudit.fit.catalogue import hardware_named
from hubaudit.report.bar import bar_lines
from hubaudit.types import Hardware, Workload

SIGNS = "█▓▒░"


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_bar_is_forty_wide(name: str) -> None:
    """Every sign's share is that of its components, within one cell."""
    report = audit_snapshot(snapshot_of(name), Workload())
    bar, key = bar_lines(report)
    assert len(bar) == 40
    weights = sum(part.bytes for part in report.estimate.components if part.category == "Parameter")
    assert abs(bar.count("█") - 40 * weights / report.estimate.total_bytes) <= 1
    assert len(key) <= 78
    assert set(bar) <= set(SIGNS)


def test_devices_are_as_full_as_their_headroom_says() -> None:
    """Free cells for what is left, an arrow where it does not fit; a name that is long is cut."""
    cards = (hardware_named("4090"), hardware_named("rtx3070"), Hardware(name="x" * 50, usable_bytes=2**50))
    report = audit_snapshot(snapshot_of("llama-3.1-8b"), Workload(), cards)
    fits, over, vast, _ = bar_lines(report)
    assert fits.endswith(f" {report.estimate.total_bytes * 100 // cards[0].usable_bytes} %")
    assert fits.count("·") == 40 - -(-40 * report.estimate.total_bytes // cards[0].usable_bytes)
    assert f"▶ {report.estimate.total_bytes * 100 // cards[1].usable_bytes} %" in over
    assert "·" not in over
    assert vast.startswith("xxxxxxxxxxxxxxxxxxx~ ")
    assert all(len(line) <= 78 for line in (fits, over, vast))


@pytest.mark.parametrize("runtime", ["transformers", "vllm"])
def test_a_device_of_a_byte_has_a_bar(runtime: str) -> None:
    """Of which vLLM takes nine tenths, which is nothing: it is too full, and nothing is divided by nothing."""
    asked = Workload(mode="kv", runtime=runtime)
    report = audit_snapshot(snapshot_of("llama-3.1-8b"), asked, (Hardware(name="x", usable_bytes=1),))
    assert "▶" in bar_lines(report)[0]
