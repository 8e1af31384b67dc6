"""The table of a placement: 80 columns, runs of layers, and the slow part by name."""

from __future__ import annotations

import json

from hubaudit.report.placement import Placed, Placement, slow_part, to_json, to_markdown, to_text

GIB = 2**30
MADE = Placement(
    architecture="LlamaForCausalLM",
    dtype="bf16",
    rows=(
        Placed(
            device="0", layers=(0, 1, 2, 5), modules=("embed_tokens", "a\x1b[31m|b"), bytes=6 * GIB, limit_bytes=8 * GIB
        ),
        Placed(device="cpu", layers=(3, 4), modules=(), bytes=3 * GIB, limit_bytes=None),
        Placed(
            device="disk", layers=(), modules=tuple(f"projection_{at}" for at in range(20)), bytes=GIB, limit_bytes=None
        ),
    ),
    assumptions=("made up",),
)


def test_the_text_is_eighty_wide() -> None:
    """Runs of layers, sizes and limits in their columns; long lists go on below."""
    text = to_text(MADE, "org/na\x07me")
    assert max(map(len, text.splitlines())) <= 80
    assert "0–2, 5" in text
    assert "6.00 GiB" in text
    assert "projection_19" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_the_slow_part_is_named() -> None:
    """What is on the host and on disk, how much of the whole, and what a forward pass does for it."""
    cpu, disk = slow_part(MADE)
    assert cpu.startswith("slow: layers 3–4 on cpu, 3.00 GiB (30 %)")
    assert disk.startswith("slow: some modules on disk, 1.00 GiB (10 %), read from the disk")
    alone = Placement(architecture="A", dtype="bf16", rows=MADE.rows[:1])
    assert list(slow_part(alone)) == []


def test_json_and_markdown_hold_all() -> None:
    """Every row with its numbers; names are no markup."""
    document = json.loads(to_json(MADE, "org/name"))
    assert document["schema_version"] == 1
    assert [row["bytes"] for row in document["placement"]["devices"]] == [row.bytes for row in MADE.rows]
    assert document["placement"]["total_bytes"] == 10 * GIB
    assert "a\\\\x1b\\[31m\\|b" in to_markdown(MADE, "org/name")
