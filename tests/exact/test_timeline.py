"""The picture and the snapshot of a replay hold what the replay says."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from xml.etree import ElementTree as ET

from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.events import from_rows
from hubaudit.exact.replay import replay
from hubaudit.exact.snapshot import to_pickle
from hubaudit.exact.timeline import to_html, to_svg

_FIXTURE = Path(__file__).parents[2] / "fixtures" / "exact" / "twelve_linears.json.gz"
_TRACE = from_rows(json.loads(gzip.decompress(_FIXTURE.read_bytes()))["foreach"])
_REPLAYED = replay(_TRACE, blas_policy("2.13", device_of_capability("8.0")), with_timeline=True)


def test_the_timeline_is_a_picture_with_its_peak_marked() -> None:
    """Well-formed SVG, a layer for each component alive, the peak in words, a stranger's name escaped."""
    drawn = to_svg(_REPLAYED, _TRACE, "a <b> & c", "label")
    root = ET.fromstring(drawn)  # noqa: S314 - our own text
    words = ["".join(element.itertext()) for element in root]
    assert "peak 258.36 MiB" in words
    assert "a <b> & c" in words
    layers = [element for element in root if element.tag.endswith("polygon")]
    assert len(layers) == len({name for moment in _REPLAYED.timeline for name in moment.by_component})


def test_the_page_needs_nothing_beside_itself() -> None:
    """No script, no link to anywhere: it opens offline."""
    page = to_html(_REPLAYED, _TRACE, "title", "label")
    assert "<script" not in page
    assert "href=" not in page
    assert "peak 258.36 MiB" in page


def test_the_snapshot_is_plain_data_and_adds_up_to_the_peak() -> None:
    """Replaying the snapshot's own entries gives the peak, and every free has its allocation."""
    snapshot = pickle.loads(to_pickle(_REPLAYED, _TRACE))  # noqa: S301 - written a line above
    live: dict[int, int] = {}
    peak = 0
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            assert entry["addr"] not in live
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"]
        peak = max(peak, sum(live.values()))
    assert peak == _REPLAYED.peak_allocated_bytes
