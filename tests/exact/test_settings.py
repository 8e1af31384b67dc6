"""PYTORCH_CUDA_ALLOC_CONF is read as torch reads it, and refused where torch refuses it."""

from __future__ import annotations

import pytest

from hubaudit.errors import UsageError
from hubaudit.exact.settings import AllocatorSettings, parse_settings

_MIB = 2**20


def test_no_text_gives_the_defaults() -> None:
    """An unset variable changes nothing."""
    assert parse_settings("") == AllocatorSettings()


def test_every_option_is_read() -> None:
    """All options that change device memory, with blanks and a trailing comma, in one text."""
    text = (
        "backend:native, expandable_segments:True, max_split_size_mb:64,max_non_split_rounding_mb:32,"
        "garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],large_segment_size_mb:40,"
        "per_process_memory_fraction:0.5,pinned_use_background_threads:True,"
    )
    assert parse_settings(text) == AllocatorSettings(
        expandable_segments=True,
        max_split_bytes=64 * _MIB,
        max_non_split_rounding_bytes=32 * _MIB,
        garbage_collection_threshold=0.8,
        roundup_power2_divisions=(1,) * 9 + (2, 4) + (8,) * 5,
        large_segment_bytes=40 * _MIB,
        memory_fraction=0.5,
    )


def test_one_number_of_divisions_is_for_all_sizes() -> None:
    """The older spelling without brackets."""
    assert parse_settings("roundup_power2_divisions:4").roundup_power2_divisions == (4,) * 16


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments:yes",
        "expandable_segments",
        "max_split_size_mb:19",
        "max_split_size_mb:x",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:x",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1",
        "backend:cudaMallocAsync",
        "no_such_option:1",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    """What torch refuses, and another allocator, ends in one line."""
    with pytest.raises(UsageError):
        parse_settings(text)
