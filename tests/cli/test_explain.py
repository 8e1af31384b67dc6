"""`hubaudit explain`: one cell a layer, what each kind keeps, readable anywhere, and the same for programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import NAMES, ROOT, facts_of

from hubaudit import cli
from hubaudit.estimate.infer import estimate
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path


def bundle(name: str) -> str:
    """The path of a fixture."""
    return str(ROOT / "fixtures" / "bundles" / f"{name}.json.gz")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `hubaudit explain` in this process."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "explain", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err  # type: ignore[return-value]


def explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """The JSON document on a fixture."""
    code, out, _ = run(capsys, monkeypatch, bundle(name), "--format", "json")
    assert code == 0
    document: dict[str, Any] = json.loads(out)
    return document


def strip_rows(text: str) -> list[tuple[int, str]]:
    """The rows of the strip: index of the first layer, and the cells."""
    rows = re.findall(r"^ +(\d+)  ([A-Za-z. ]+)$", text, flags=re.MULTILINE)
    return [(int(start), cells.replace(" ", "")) for start, cells in rows]


def folder(tmp_path: Path, **config: Any) -> str:
    """A folder with a config.json alone."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_a_hybrid_is_drawn_layer_by_layer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen3-Next: three layers with a state, then one with keys and values, twelve times (its config.json: full_attention_interval 4)."""
    code, out, err = run(capsys, monkeypatch, bundle("qwen3-next-80b-a3b-instruct"))
    assert (code, err) == (0, "")
    assert "LLLFLLLFLL LFLLLFLLLF LLLFLLLFLL LFLLLFLLLF LLLFLLLF" in out
    for words in (
        "L  linear · 36 layers",
        "F  full · 12 layers",
        "2,048 B a token",
        "24,576 B a token",
        "config.json: num_hidden_layers",
    ):
        assert words in out


@pytest.mark.parametrize("name", NAMES)
def test_every_fixture_fits_a_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 80 columns, no escape sequence where nobody looks, no blanks at line ends, and as many cells as layers."""
    code, out, _ = run(capsys, monkeypatch, bundle(name))
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in lines)
    assert sum(len(row[1]) for row in strip_rows(out)) == len(facts_of(name).layer_plan or ())


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_add_up_to_the_estimate(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of the JSON's tensors over all layers and tokens are what the estimator gives for that many tokens."""
    document = explained(capsys, monkeypatch, name)
    facts = facts_of(name)
    assert [row for row in document["kinds"] for _ in row["layers"]]
    assert sorted(index for row in document["kinds"] for index in row["layers"]) == list(range(len(document["strip"])))
    for row in document["kinds"]:
        assert {document["strip"][index] for index in row["layers"]} == {row["symbol"]}
    counted = {"tokens": 3000, "encoder_tokens": 2000}
    asked = {"prompt_tokens": 2000, "new_tokens": 1000}
    if facts.family == "encoder-decoder":
        counted["tokens"] = 1000
    total = 0
    for row in document["kinds"]:
        for tensor in row["tensors"]:
            entries = counted[tensor["grows_with"]]
            kept = entries if tensor["window_tokens"] is None else min(entries, tensor["window_tokens"])
            total += len(row["layers"]) * (tensor["bytes_per_entry"] * kept + tensor["fixed_bytes"])
    assert total == estimate(facts, Workload(mode="kv", **asked)).total_bytes


def test_lengths_are_each_engines_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """12,288 bytes a token of Qwen2-0.5B under every engine (vLLM's logs), up to the 32,768 that it takes."""
    document = explained(capsys, monkeypatch, "qwen2-0.5b-instruct")
    assert [row["tokens"] for row in document["lengths"]] == [1024, 8192, 32768]
    for row in document["lengths"]:
        assert set(row["bytes_by_runtime"].values()) == {12_288 * row["tokens"]}


def test_layers_that_read_another_cache_are_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 4 E2B's last 20 layers read layers 13 and 14 (num_kv_shared_layers of its config.json)."""
    config = {
        "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 35, "hidden_size": 1536, "head_dim": 256,
        "global_head_dim": 512, "num_attention_heads": 8, "num_key_value_heads": 1, "num_kv_shared_layers": 20, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "dtype": "bfloat16", "attention_k_eq_v": False,
    }  # fmt: skip
    code, out, _ = run(capsys, monkeypatch, folder(tmp_path, **config))
    assert code == 0
    assert "SSSSFSSSSF SSSSFssssf ssssfssssf ssssf" in out
    assert "reads the cache of layer 13, keeps none of its own" in out


def test_126_layers_are_three_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Llama 3.1 405B's depth: rows of fifty cells with the first one's index before them."""
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 126, "hidden_size": 16384, "vocab_size": 128256,
        "num_attention_heads": 128, "num_key_value_heads": 8, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    }  # fmt: skip
    code, out, _ = run(capsys, monkeypatch, folder(tmp_path, **config))
    assert code == 0
    assert [(start, len(cells)) for start, cells in strip_rows(out)] == [(0, 50), (50, 50), (100, 26)]
    assert "516,096 B a token" in out


def test_an_encoder_keeps_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's twelve layers are dots."""
    _, out, _ = run(capsys, monkeypatch, bundle("bert-base-uncased"))
    assert "0  .......... .." in out
    assert "A sequence keeps nothing between tokens." in out


def test_an_unknown_plan_is_said_and_ends_with_five(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason in one line, a hint, exit code 5; a stranger's name is escaped."""
    code, out, err = run(capsys, monkeypatch, folder(tmp_path, model_type="nobody\x1b[2Jknows", hidden_size=4))
    assert (code, out) == (5, "")
    assert err.startswith("error: what the layers of")
    assert "hint: " in err
    assert "\x1b" not in err


def test_colour_is_for_terminals_that_want_it() -> None:
    """A pseudo-terminal gets colours; NO_COLOR, a dumb one and a pipe do not."""
    command = f"{sys.executable} -m hubaudit explain {bundle('gemma-3-4b-it')}"

    def seen(shell: str, **environment: str) -> str:
        found = subprocess.run(
            ["bash", "-c", shell], capture_output=True, text=True, check=True, env=os.environ | environment
        )
        return found.stdout

    terminal = f"script -qec '{command}' /dev/null"
    plain = {"NO_COLOR": "1", "TERM": "xterm"}
    assert "\x1b[" in seen(terminal, TERM="xterm", NO_COLOR="")
    assert "\x1b[" not in seen(terminal, **plain)
    assert "\x1b[" not in seen(terminal, TERM="dumb", NO_COLOR="")
    assert "\x1b[" not in seen(command, NO_COLOR="")
