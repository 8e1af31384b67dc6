"""The catalogue of accelerators: every figure has its source, and figures from different sources agree."""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.data import table
from hubaudit.fit.spelling import spellings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
ROWS = table("gpus.json")["gpus"]
BY_NAME = {row["name"]: row for row in ROWS}
MIB, GIB = 2**20, 2**30

#: Board totals that nvidia-smi printed, each seen in another place than the catalogue's own figure of that card.
NVIDIA_SMI_MIB = {
    "GeForce RTX 3090": (24576, "https://github.com/noonghunna/club-3090/issues/1128"),
    "GeForce RTX 4090": (24564, "https://github.com/RLinf/RLinf/issues/255"),
    "GeForce RTX 5080": (16303, "https://github.com/utensils/comfyui-nix/issues/80"),
    "GeForce RTX 5090": (32607, "https://github.com/noonghunna/club-3090/issues/1261"),
    "Tesla T4": (15360, "https://github.com/robbyant-research/MagicQuill/issues/57"),
}
#: Totals that other programs printed for the same cards, in GiB with two decimals, rounded; drivers differ by some tenths.
OTHER_WORDS_GIB = {
    "H100 80GB": ("79.18", "llm-d-planner docs/empirical-vllm-memory-results.md@e50305af90f0"),
    "A100 80GB": ("79.25", "https://github.com/levihsu/OOTDiffusion/issues/235"),
    "GeForce RTX 3070": ("7.79", "https://github.com/ultralytics/yolov5/issues/2510"),
    "GeForce RTX 3090": ("23.69", "https://github.com/ultralytics/ultralytics/issues/5359"),
    "A10G": ("22.0", "https://github.com/batteries-included/batteries-included/pull/1663"),
    "GeForce RTX 5090": ("31.4", "https://github.com/ollama/ollama/issues/9415"),
}


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    """``tools.gpus``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("tools.gpus")


def test_the_file_is_what_the_facts_make(tool: Any) -> None:
    """Whoever edits the facts runs the tool."""
    assert (ROOT / "hubaudit" / "data" / "gpus.json").read_text(encoding="utf-8") == tool.text()


def test_every_row_says_where_its_figures_come_from() -> None:
    """The size on the box, and what a process gets of it."""
    for row in ROWS:
        assert row["memory_source"].startswith(("https://", "huggingface.js ")), row["name"]
        assert row["usable_source"] in {"process", "driver", "rule", "marketing"}
        is_told = row["usable_source"] in {"process", "driver"}
        assert is_told == any(word in row["usable_evidence"] for word in ("https://", "github.com/", "`")), row["name"]
        assert (row["usable_source"] == "driver") == (", nvidia-smi: " in row["usable_evidence"])
        assert row["usable_source"] != "marketing" or row["usable_bytes"] == row["memory_bytes"]


def test_the_catalogue_is_large_and_mostly_measured() -> None:
    """At least 120 accelerators of four vendors, at least 40 of them with a driver's word."""
    assert len(ROWS) >= 120
    assert {row["vendor"] for row in ROWS} == {"NVIDIA", "AMD", "Apple", "Intel"}
    assert sum(row["usable_source"] in {"process", "driver"} for row in ROWS) >= 40


def test_the_cards_that_users_asked_for_are_there() -> None:
    """A 4 GB GTX 960, an 8 GB RTX 3070 and a 24 GB GeForce, each with what a process was told."""
    for name, memory in (("GeForce GTX 960", 4), ("GeForce RTX 3070", 8), ("GeForce RTX 3090", 24)):
        assert BY_NAME[name]["memory_bytes"] == memory * GIB
        assert BY_NAME[name]["usable_source"] == "process"


def test_no_two_rows_go_by_one_name() -> None:
    """Names and aliases, in every spelling."""
    owner: dict[str, str] = {}
    for row in ROWS:
        forms = {
            form for name in (row["name"], *row["aliases"]) for form in spellings(name, row["memory_bytes"] // GIB)
        }
        for form in forms:
            assert owner.setdefault(form, row["name"]) == row["name"], form


def test_a_familys_name_is_no_rows_name_but_its_own() -> None:
    """What is said without a size means one row, or asks back; it never means a row of another family."""
    for row in ROWS:
        for other in ROWS:
            if spellings(row["family"], None) & spellings(other["name"], None):
                assert row["family"] == other["family"], (row["name"], other["name"])


@pytest.mark.parametrize("name", NVIDIA_SMI_MIB)
def test_a_process_gets_a_little_less_than_the_board_has(name: str) -> None:
    """What CUDA told a process is below nvidia-smi's total of the same card, by 6 percent at most."""
    total = NVIDIA_SMI_MIB[name][0] * MIB
    assert Fraction(94, 100) * total < BY_NAME[name]["usable_bytes"] < total


@pytest.mark.parametrize("name", OTHER_WORDS_GIB)
def test_figures_of_other_machines_are_close(name: str) -> None:
    """The smallest figure was taken: no other is smaller by more than its rounding, none larger by more than 3 percent."""
    other = Fraction(OTHER_WORDS_GIB[name][0]) * GIB
    rounding = Fraction(5, 10 ** (len(OTHER_WORDS_GIB[name][0].partition(".")[2]) + 1)) * GIB
    # the smallest one of a driver that is older may be a little larger than what a newer one leaves
    assert BY_NAME[name]["usable_bytes"] <= (other + rounding) * Fraction(101, 100)
    assert BY_NAME[name]["usable_bytes"] >= other * Fraction(97, 100)


def test_metals_share_follows_the_memory() -> None:
    """Two thirds up to 32 GB and three quarters from 36 GB: every measured size says so, to a hundredth of a percent."""
    for row in ROWS:
        if row["vendor"] == "Apple":
            share = Fraction(2, 3) if row["memory_bytes"] <= 32 * GIB else Fraction(3, 4)
            assert abs(row["usable_bytes"] / row["memory_bytes"] / share - 1) < Fraction(1, 10_000)


@pytest.mark.parametrize(
    ("text", "size"), [("1 B", 1), ("7753 MiB", 7753 * MIB), ("15.572 GiB", 16_720_307_683), ("0.5 MiB", 2**19)]
)
def test_sizes_are_read_with_their_unit(text: str, size: int, tool: Any) -> None:
    """Rounded down to whole bytes."""
    assert tool.size_bytes(text) == size


@pytest.mark.parametrize("text", ["8 GB", "8GiB", "eight GiB", "", "8 MiB "])
def test_a_size_without_its_real_unit_is_refused(text: str, tool: Any) -> None:
    """GB means two things, so the facts may not say it."""
    with pytest.raises(ValueError, match="not a size"):
        tool.size_bytes(text)


def test_impossible_rows_are_refused(tool: Any) -> None:
    """A card cannot have more than it carries, nor lose a tenth of it, nor be there twice."""
    row = {"name": "A", "vendor": "NVIDIA", "memory_bytes": 100, "usable_bytes": 95}
    assert tool.problems([row]) == []
    for wrong in ([row, row], [row | {"usable_bytes": 101}], [row | {"usable_bytes": 89}]):
        assert len(tool.problems(wrong)) == 1
