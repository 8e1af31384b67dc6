"""The fuzz targets themselves: that they reach the parsers, what hypothesis finds through them, and what fell over once."""

from __future__ import annotations

import ast
import json
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz.registry import MODULES, TARGETS_WITHOUT_REFUSAL, targets, tried
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "fixtures" / "fuzz"
NAMES = sorted(targets())
RECORD = json.loads((FOUND / "record.json").read_text())
#: Modules of the formats' room that read bytes or decoded JSON of strangers, each by a target; the rest of the room works on what they return.
_PARSERS = {
    "safetensors.py": "safetensors-file",
    "gguf.py": "gguf-file",
    "gguf_values.py": "gguf-file",
    "zip_directory.py": "zip-directory",
    "pickle_ops.py": "pickle-opcodes",
    "pickle_machine.py": "pickle-opcodes",
    "torch_zip.py": "torch-file",
    "torch_rebuild.py": "torch-pickle",
    "torch_sharing.py": "torch-pickle",
    "torch_tensors.py": "torch-pickle",
    "documents.py": "shard-index",
    "parts.py": "parts-tables",
    "tokenizers.py": "tokenizer",
    "card_claims.py": "card-claims",
    "card_text.py": "card-claims",
    "headers.py": "repository",
    "adapters.py": "repository",
    "selection.py": "repository",
    "weight_names.py": "repository",
    "weight_sets.py": "repository",
}
_NO_PARSERS = {"__init__.py", "source.py", "quoting.py"}


def test_every_parser_has_a_target() -> None:
    """A module that is added to the formats' room is fuzzed, or is said to parse nothing; each module of targets is loaded."""
    modules = {path.name for path in (ROOT / "hubaudit" / "formats").glob("*.py")}
    assert modules == _PARSERS.keys() | _NO_PARSERS
    assert set(_PARSERS.values()) <= set(NAMES)
    harness = {"registry", "run", "record", "choices", "reports"}
    here = {path.stem for path in (ROOT / "tests" / "fuzz").glob("*.py") if not path.stem.startswith("test_")}
    assert {name.removeprefix("fuzz.") for name in MODULES} == here - harness
    assert sorted(name for names in MODULES.values() for name in names) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_accepted(name: str) -> None:
    """A target whose seeds were all refused would fuzz its first check only."""
    one = targets()[name]
    assert None in {tried(one, seed) for seed in one.seeds()}


def test_what_a_target_refuses_is_an_error_of_its_own() -> None:
    """Noise is refused by every parser that can refuse, which shows that the harness hands the bytes on."""
    for name, one in targets().items():
        kinds = {tried(one, bytes([at]) * 9) for at in (0, 1, 60, 128, 255)}
        assert kinds != {None} or name in TARGETS_WITHOUT_REFUSAL, name


@st.composite
def _changed(draw: st.DrawFn, name: str) -> bytes:
    """A seed with a few bytes replaced, inserted or cut out, or words of its language put in; or any bytes."""
    one = targets()[name]
    seed = draw(st.sampled_from(sorted(one.seeds())) | st.binary(max_size=100))
    words = st.binary(min_size=1, max_size=8) | (st.sampled_from(one.dictionary) if one.dictionary else st.nothing())
    cuts = sorted(draw(st.lists(st.integers(0, len(seed)), min_size=2, max_size=8)))
    made = seed[: cuts[0]]
    for start, end in pairwise(cuts):
        made += draw(words) if draw(st.booleans()) else seed[start : end - draw(st.integers(0, 2))]
    return made + seed[cuts[-1] :]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_only_documented_errors_leave(name: str, data: st.DataObject) -> None:
    """Hypothesis through the same targets: the short way, on every run of the suite."""
    tried(targets()[name], data.draw(_changed(name)))


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_fell_over_once(path: Path) -> None:
    """Inputs that crashed, hung or gave nonsense once, under the name of their target."""
    tried(targets()[path.parent.name], path.read_bytes())


def test_the_record_is_of_these_targets() -> None:
    """What was run is one of them, and what was found keeps its input here or names the test that has it."""
    assert {row["target"] for row in RECORD["runs"]} <= set(NAMES)
    for found in RECORD["found"]:
        assert found["mended"]
        kept = FOUND / found["target"] / found["input"] if "input" in found else None
        assert kept is None or kept.is_file(), found
        assert kept is not None or _is_test(found["test"]), found


def test_the_page_shows_the_record() -> None:
    """docs/security.md has the table that the record gives (`python tests/fuzz/record.py` writes it)."""
    from fuzz.record import page_with_table

    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert page == page_with_table(page, RECORD)


def _is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)
