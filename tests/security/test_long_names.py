"""Names made to keep an audit busy: patterns look at them in bounded time, and megabytes of name fill no report."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from byte_sources import BytesSource
from small_repos import CONFIG
from weight_bytes import safetensors

from hubaudit import cli
from hubaudit.auditing import audit_snapshot
from hubaudit.data import table
from hubaudit.errors import MalformedFileError
from hubaudit.formats.safetensors import read_safetensors
from hubaudit.hub import fetch
from hubaudit.hub.bundle import read_bundle, write_bundle
from hubaudit.report.tabular import to_csv
from hubaudit.types import RepoSnapshot, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WORDS = (
    "x",
    "norm",
    "a_norm",
    "ln_",
    "_",
    "1",
    "norm.",
    ".ffn_a",
    ".ffn_",
    ".indexer.a",
    "attn.rotary_emb.",
    ".ssm_",
    ".a",
    "layers.1.",
    "mtp_a.",
)


def _patterns(node: Any) -> Iterator[str]:
    """Every ``match`` in a table."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "match" and isinstance(value, str):
                yield value
            else:
                yield from _patterns(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _patterns(item)


def _seconds(pattern: re.Pattern[str], name: str) -> float:
    """Of the processor. A full garbage collection may fall into it, once."""
    began = time.process_time()
    pattern.search(name)
    return time.process_time() - began


@pytest.mark.parametrize("name", ["roles.toml", "split.toml", "unbuilt.toml", "gguf_architectures.toml"])
def test_no_pattern_of_a_table_takes_long(name: str) -> None:
    """1,000 characters (longer names have no role) made of words of the patterns: what gives back character by character took a second for each, and 20 kB of name 36 s."""
    patterns = [re.compile(text, re.IGNORECASE) for text in _patterns(table(name))]
    assert patterns
    for pattern in patterns:
        for word in _WORDS:
            assert min(_seconds(pattern, (word * 1_000)[:1_000]) for _ in range(2)) < 0.1, (pattern.pattern, word)


@pytest.mark.parametrize("word", ["x", "a_norm", "ln_", "_"])
def test_a_tensor_with_an_endless_name(word: str) -> None:
    """A name of 100 kB is a name; its tensor counts as any."""
    read = read_safetensors(BytesSource(safetensors({(word * 100_000)[:100_000]: ("F32", (2, 2))})))
    snapshot = RepoSnapshot(
        repo_id="a/b", revision=None, commit=None, source="local", configs={"config.json": CONFIG}, weights=(read,)
    )
    began = time.process_time()
    report = audit_snapshot(snapshot, Workload())
    assert time.process_time() - began < 3
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == 4


@pytest.mark.parametrize("key", ["model_type", "architectures", "quantization_config"])
def test_megabytes_of_name_fill_no_report(key: str, tmp_path: Path) -> None:
    """A text of two million characters in the place of a name is none."""
    endless = "x" * 2_000_000
    value: Any = {"model_type": endless, "architectures": [endless], "quantization_config": {"quant_method": endless}}[
        key
    ]
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, key: value}))
    (tmp_path / "model.safetensors").write_bytes(safetensors({"w": ("F32", (2, 2))}))
    assert len(to_csv([audit_snapshot(fetch(str(tmp_path)), Workload())])) < 20_000


@pytest.mark.parametrize("key", ["repo_id", "revision", "commit", "library_name"])
def test_megabytes_of_name_make_no_bundle(key: str, tmp_path: Path) -> None:
    """Nor in a bundle, which is refused."""
    file = tmp_path / "b.json"
    write_bundle(
        RepoSnapshot(repo_id="a/b", revision=None, commit=None, source="local", configs={"config.json": CONFIG}), file
    )
    file.write_text(json.dumps({**json.loads(file.read_text()), key: "x" * 1_001}))
    with pytest.raises(MalformedFileError, match="a name of 1,001 characters"):
        read_bundle(file)


@pytest.mark.parametrize("key", ["problems", "base_reason", "terms", "tokenizer"])
def test_megabytes_of_a_sentence_make_no_bundle(key: str, tmp_path: Path) -> None:
    """What a report quotes of a bundle in full is refused where it is longer than any sentence."""
    endless = "x" * 10_001
    value: Any = {
        "problems": [{"path": "a", "reason": endless, "kind": "missing"}],
        "base_reason": endless,
        "terms": {"licence": endless, "licence_link": None, "gated": None, "gate_text": False},
        "tokenizer": {"tokens": {"value": 1, "where": endless}, "max_tokens": {"value": 1, "where": ""}},
    }[key]
    file = tmp_path / "b.json"
    write_bundle(
        RepoSnapshot(repo_id="a/b", revision=None, commit=None, source="local", configs={"config.json": CONFIG}), file
    )
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(MalformedFileError, match="a sentence of 10,001 characters"):
        read_bundle(file)


_ENDLESS = "x" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        ("FOLDER", "--file", _ENDLESS),
        ("FOLDER", "--dtype", _ENDLESS),
        ("FOLDER", "--memory", _ENDLESS),
        ("FOLDER", "--gpu", _ENDLESS),
        ("FOLDER", "--format", _ENDLESS),
        ("FOLDER", "--plot", _ENDLESS),
        ("FOLDER", "-o", _ENDLESS),
        ("compare", "FOLDER", "FOLDER", "-o", _ENDLESS),
        ("FOLDER", f"--{_ENDLESS}"),
        (f"./{_ENDLESS}",),
        ("card", _ENDLESS),
        ("card", "FOLDER/README.md", "--repo", f"./{_ENDLESS}"),
        ("rules", _ENDLESS),
        ("bundle", "FOLDER", "-o", _ENDLESS),
        ("batch", "FOLDER", "-o", _ENDLESS),
        ("batch", "FOLDER", "-o", "FOLDER/run", "--workload", "x " * 3_000),
        ("batch", "--diff", _ENDLESS, "FOLDER"),
    ],
    ids=lambda words: " ".join(words)[:40].strip(),
)
def test_a_long_word_of_the_command_line_is_not_echoed_whole(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the option, by hubaudit or by click: one line and a hint that a terminal can show, and a code that is documented."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "README.md").write_text("# Card\n")
    monkeypatch.setattr(sys, "argv", ["hubaudit", *(word.replace("FOLDER", str(tmp_path)) for word in words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (ended.value.code in (2, 3), out) == (True, "")
    assert err.startswith("error: ")
    assert max(map(len, err.splitlines())) <= 2_100
    assert "x" * 241 not in err
