"""Names out of files, streams, tables and folders."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import pytest

from hubaudit.batch.inputs import can_count, items_of
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["org/one", "org/two@v1", "three"]


def names(*sources: object, column: str | None = None) -> list[str]:
    """The names that these sources hold."""
    return [item.name for item in items_of([str(source) for source in sources], column)]


def test_a_file_with_a_name_on_each_line(tmp_path: Path) -> None:
    """Blank lines, remarks, a byte order mark and Windows line ends are no names."""
    file = tmp_path / "list.txt"
    file.write_bytes("\ufeff# models\r\norg/one\r\n\r\n  org/two@v1  # the second\nthree".encode())
    assert names(file) == NAMES
    assert [item.position for item in items_of([str(file)], first=5)] == [5, 6, 7]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is a stream of names, or with a column, of CSV."""
    monkeypatch.setattr("sys.stdin", io.StringIO("org/one\norg/two@v1\nthree\n"))
    assert names("-") == NAMES
    monkeypatch.setattr("sys.stdin", io.StringIO("n,which\n1,org/one\n2,org/two@v1\n3,three\n"))
    assert names("-", column="which") == NAMES
    assert not can_count(["-"])


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(("column", "asked"), [("model_id", None), ("odd", "odd")])
def test_a_column_of_a_table(suffix: str, column: str, asked: str | None, tmp_path: Path) -> None:
    """The column that is named, or one whose name says that it holds models."""
    file = tmp_path / f"list{suffix}"
    rows = [{"n": at, column: name} for at, name in enumerate([*NAMES, ""])]
    if suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), file)
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        comma = "," if suffix == ".csv" else "\t"
        file.write_text(comma.join(rows[0]) + "\n" + "".join(f"{row['n']}{comma}{row[column]}\n" for row in rows))
    assert names(file, column=asked) == NAMES
    with pytest.raises(UsageError, match="has no column `nope`"):
        names(file, column="nope")


def test_no_column_is_guessed(tmp_path: Path) -> None:
    """A table whose columns could mean anything is a question, not an audit of its first column."""
    file = tmp_path / "list.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="known to hold names; it has a, b"):
        names(file)


def test_folders(tmp_path: Path) -> None:
    """A folder is a model, or holds models, at any depth; what lies in a model is not another one."""
    for path in ("one", "org/two", "org/two/onnx"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "config.json").write_text("{}")
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "model-Q4_K_M.gguf").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    found = names(tmp_path)
    assert found == [str(tmp_path / path) for path in ("gguf", "one", "org/two")]
    assert names(tmp_path / "one") == [str(tmp_path / "one")]
    with pytest.raises(UsageError, match="no model in"):
        names(tmp_path / "empty")


def test_names_and_models_themselves(tmp_path: Path) -> None:
    """What is no file and no folder is a name; a weight file and a bundle are models, not lists."""
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "saved.json.gz").write_bytes(b"")
    files = [str(tmp_path / "model.safetensors"), str(tmp_path / "saved.json.gz")]
    assert names("org/one", *files) == ["org/one", *files]
    assert can_count(["org/one", *files])


@pytest.mark.parametrize(
    ("name", "content"),
    [("list.jsonl", b"[1]\n"), ("list.jsonl", b"{\n"), ("list.csv", b'repo_id\n"' + b"x" * 2_000_000)],
)
def test_tables_that_are_none(name: str, content: bytes, tmp_path: Path) -> None:
    """A broken table is a usage error."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError):
        names(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "suffix", "words"),
    [
        (b"org/one\n" + b"a" * 10_001, ".txt", "a name of 10,001 characters"),
        (b"org/one\n" + b"a" * ((1 << 24) + 1), ".txt", "has a line of more than 16,777,216 characters"),
        ("org/one\n".encode("utf-16"), ".txt", "holds null bytes"),
        (b"repo_id\n\0", ".csv", "holds null bytes"),
        (b"[" * 100_000, ".jsonl", "maximum recursion depth"),
        (b'{"id":' + b"9" * 5_000 + b"}", ".jsonl", "Exceeds the limit"),
        (b'repo_id\n"' + b"a\n" * 600_000, ".csv", "field larger than field limit"),
        (b",".join(b"\x1b%d" % at for at in range(100_000)) + b"\n1\n", ".csv", "no column that is known"),
    ],
    ids=["name", "line", "utf-16", "nul", "deep", "digits", "quote", "columns"],
)
def test_a_list_that_is_a_trap(content: bytes, suffix: str, words: str, tmp_path: Path) -> None:
    """It is refused in one short line, and none of its lines has to fit into memory."""
    file = tmp_path / f"list{suffix}"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        names(file)
    assert len(caught.value.message) < 2_100


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_no_list(device: str) -> None:
    """It never ends, and is told to be none at its first null byte."""
    if not os.path.exists(device):
        pytest.skip(f"no {device} here")
    with pytest.raises(UsageError, match="holds null bytes"):
        names(device)


def test_names_of_any_text_are_handed_on(tmp_path: Path) -> None:
    """Formulas, control characters and what is no UTF-8 are names, for the run to refuse one by one."""
    file = tmp_path / "list.txt"
    file.write_bytes(b"=1+1\n\x1b[2J/x\ncaf\xe9\n<b>\n=1+1\n")
    assert names(file) == ["=1+1", "\x1b[2J/x", "caf\ufffd", "<b>", "=1+1"]
