"""What users write for a model, and what is understood."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import HubauditError, NotFoundError, UsageError
from hubaudit.hub.names import is_repo_id
from hubaudit.hub.parsing import parse_reference
from hubaudit.hub.reference import Reference

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "revision"),
    [
        ("org/name", "org/name", None),
        ("gpt2", "gpt2", None),
        ("Qwen/Qwen2.5-0.5B_x", "Qwen/Qwen2.5-0.5B_x", None),
        ("org/name@v1.0", "org/name", "v1.0"),
        ("gpt2@main", "gpt2", "main"),
        (f"org/name@{COMMIT}", "org/name", COMMIT),
        ("org/name@refs/pr/1", "org/name", "refs/pr/1"),
        ("https://huggingface.co/org/name", "org/name", None),
        ("https://huggingface.co/org/name/", "org/name", None),
        ("http://huggingface.co/org/name", "org/name", None),
        ("https://www.huggingface.co/org/name", "org/name", None),
        ("https://HuggingFace.co/org/Name", "org/Name", None),
        ("https://hf.co/org/name", "org/name", None),
        ("hf.co/org/name", "org/name", None),
        ("huggingface.co/org/name", "org/name", None),
        ("https://huggingface.co/gpt2", "gpt2", None),
        ("https://huggingface.co/gpt2/tree/main", "gpt2", "main"),
        ("https://huggingface.co/gpt2/blob/main/config.json", "gpt2", "main"),
        ("https://huggingface.co/org/name/tree/v1.0", "org/name", "v1.0"),
        ("https://huggingface.co/org/name/tree/v1.0/onnx", "org/name", "v1.0"),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1", "org/name", "refs/pr/1"),
        ("https://huggingface.co/org/name/tree/refs/pr/1", "org/name", "refs/pr/1"),
        ("https://huggingface.co/org/name/blob/refs%2Fpr%2F12/config.json", "org/name", "refs/pr/12"),
        ("https://huggingface.co/org/name/tree/feature%2Fx", "org/name", "feature/x"),
        (f"https://huggingface.co/org/name/commit/{COMMIT}", "org/name", COMMIT),
        (f"https://huggingface.co/org/name/resolve/{COMMIT}/tokenizer.json", "org/name", COMMIT),
        ("https://huggingface.co/org/name/raw/main/config.json", "org/name", "main"),
        ("https://huggingface.co/models/org/name", "org/name", None),
        ("https://huggingface.co/org/name?library=transformers#usage", "org/name", None),
        ("https://huggingface.co/org/name/discussions/5", "org/name", None),
        ("hf://org/name", "org/name", None),
        ("hf://models/org/name@v2", "org/name", "v2"),
        # A repository may be called tree.
        ("https://huggingface.co/tree/name", "tree/name", None),
    ],
)
def test_a_name_on_the_hub(text: str, name: str, revision: str | None) -> None:
    """Ids, one-word ids, revisions and the addresses that the Hub's pages have."""
    assert parse_reference(text) == Reference(kind="hub", name=name, revision=revision)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("model", "folder"),
        ("./model", "folder"),
        ("model/", "folder"),
        ("one.safetensors", "file"),
        ("./one.safetensors", "file"),
        ("saved.json", "bundle"),
        ("saved.json.gz", "bundle"),
        ("odd.name", "file"),
        ("org/name", "folder"),
    ],
)
def test_what_lies_there_wins(text: str, kind: str, tmp_path: Path) -> None:
    """A folder, a weight file and a bundle are known by being there, even where a repository could have the name."""
    for folder in ("model", "org/name"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("one.safetensors", "saved.json", "saved.json.gz", "odd.name"):
        (tmp_path / file).touch()
    reference = parse_reference(text)
    assert reference.kind == kind
    assert os.path.samefile(reference.name, text)


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is the user's home, as in a shell that was not asked."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert parse_reference("~/model") == Reference(kind="folder", name=str(tmp_path / "model"))


def test_the_mirror_that_is_in_use_has_addresses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``HF_ENDPOINT`` set, addresses of that host are understood, below its path if it has one."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example:8443/hf")
    assert parse_reference("https://mirror.example:8443/hf/org/name/tree/v1") == Reference(
        kind="hub", name="org/name", revision="v1"
    )
    with pytest.raises(UsageError, match="not a Hugging Face URL"):
        parse_reference("https://other.example/org/name")


@pytest.mark.parametrize(
    ("revision", "is_pinned"), [(COMMIT, True), (COMMIT.upper(), False), (COMMIT[:10], False), ("main", False)]
)
def test_only_a_full_commit_pins(revision: str, is_pinned: bool) -> None:
    """A short hash may become ambiguous, and a name may move."""
    assert parse_reference(f"org/name@{revision}").is_pinned is is_pinned
    assert not parse_reference("org/name").is_pinned


@pytest.mark.parametrize("text", ["org/name@v1", "https://huggingface.co/org/name/tree/v1", "org/name"])
def test_a_revision_may_be_given_apart(text: str) -> None:
    """``--revision`` says the same as ``@``, and twice the same is no contradiction."""
    assert parse_reference(text, revision="v1") == Reference(kind="hub", name="org/name", revision="v1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "org/name@",
        "a/b/c",
        "datasets/org/name",
        "org/",
        "org//name",
        "-org/name",
        "org/name.git",
        "org/na--me",
        "org/..",
        "a..b",
        "org/na me",
        "org/name\n",
        "x" * 97,
        "x" * 100_000,
        "org/name\0",
        "org/name@v1\nx",
        "org/name@\x1b[2J",
        "org/name@\udcff",
        "org/\udcff",
        "org/name@" + "v" * 251,
        "https://huggingface.co",
        "https://huggingface.co/",
        "https://huggingface.co/datasets/org/name",
        "https://huggingface.co/spaces/org/name",
        "https://huggingface.co/docs/transformers",
        "https://huggingface.co/../../etc/passwd",
        "https://huggingface.co/org/%2e%2e",
        "https://huggingface.co/org/name%2Fmore",
        "https://evil.example/org/name",
        "https://huggingface.co.evil.example/org/name",
        "https://huggingface.co@evil.example/org/name",
        "ftp://huggingface.co.example/org/name",
        "file:///etc/passwd",
        "https://[bad",
        "https://",
        "hf://",
        "hf://org/name/config.json",
        "://",
    ],
)
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    """One line that shows the text escaped, a hint, exit code 2, and no question to anyone."""
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert caught.value.exit_code == 2
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "./nowhere",
        "/nowhere/at/all",
        "~/nowhere",
        "~nobody-of-that-name/x",
        "gone.json",
        "gone.json.gz",
        "a/b.safetensors",
    ],
)
def test_a_path_where_nothing_lies(text: str) -> None:
    """What looks like a path is not asked of the Hub."""
    with pytest.raises(NotFoundError, match="no such file or folder") as caught:
        parse_reference(text)
    assert caught.value.hint


def test_two_revisions_are_refused() -> None:
    """Nobody can tell which one was meant."""
    with pytest.raises(UsageError, match="two revisions for `org/name`: `v1` and `v2`"):
        parse_reference("org/name@v1", revision="v2")


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    """A revision beside a local path is a mistake, not a wish to be ignored."""
    with pytest.raises(UsageError, match="has no revisions"):
        parse_reference(str(tmp_path), revision="main")


def test_a_pipe_is_neither_file_nor_folder(tmp_path: Path) -> None:
    """Nothing is opened that may never end."""
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        parse_reference("pipe.json")


@given(st.text())
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    """No text crashes, and what is understood as a name of the Hub is fit to be put into an address."""
    try:
        understood: Reference | HubauditError = parse_reference(text)
    except HubauditError as error:
        understood = error
    if isinstance(understood, HubauditError):
        assert understood.exit_code in (2, 3)
    elif understood.kind == "hub":
        assert is_repo_id(understood.name)
        assert understood.revision is None or understood.revision.isprintable()


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("https://huggingface.co/org/name/blob/main/name-Q4_K_M.gguf", "name-Q4_K_M.gguf"),
        (f"https://huggingface.co/org/name/resolve/{COMMIT}/unet/diffusion_pytorch_model.fp16.safetensors?download=true",
         "unet/diffusion_pytorch_model.fp16.safetensors"),
        ("https://huggingface.co/org/name/blob/refs%2Fpr%2F12/model.safetensors", "model.safetensors"),
        ("https://huggingface.co/org/name/tree/main/original", None),
        ("https://huggingface.co/org/name/blob/main/README.md", None),
        ("https://huggingface.co/org/name/resolve/main/../../x.safetensors", None),
    ],
)  # fmt: skip
def test_the_url_of_a_weight_file_chooses_it(url: str, file: str | None) -> None:
    """Who pastes the page of one quantization means that one; no path that leaves the repository is taken."""
    assert parse_reference(url).file == file
