"""A card's header is YAML, and YAML has ways to be much larger than it looks."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from hubaudit.hub.beside import header_of
from hubaudit.hub.card_header import card_header


def _bomb(key: str) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for at in range(1, 40):
        lines += [f"a{at}: &a{at}", f"  {key}: [{', '.join([f'*a{at - 1}'] * 9)}]"]
    return "\n".join(["---", *lines, "license: mit", "---", ""])


@pytest.mark.parametrize("key", ["<<", "'<<'", "!!merge x", "! <<", '"\\x3c\\x3c"', "!<tag:yaml.org,2002:merge> y"])
def test_merges_of_merges_are_not_followed(key: str) -> None:
    """Nine times nine times nine ... values: the header is left alone, or its keys are plain ones, in no time."""
    began = time.process_time()
    header = header_of(_bomb(key))
    assert header is None or isinstance(header, dict)
    assert isinstance(card_header(_bomb(key)), dict)
    assert time.process_time() - began < 5


def test_aliases_of_aliases_take_no_room() -> None:
    """Lists of lists of one list are one list each, however often they are named."""
    header = header_of(_bomb("b"))
    assert isinstance(header, dict)
    assert header["license"] == "mit"


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system [echo]", "!!python/name:os.system ''", "!x y", "&a [*a]", "*nobody"]
)
def test_tags_make_no_objects(value: str) -> None:
    """A header that asks for an object is no header; one that holds itself is one, and ends."""
    header = header_of(f"---\nlicense: mit\nx: {value}\n---\n")
    assert header is None or (isinstance(header, dict) and isinstance(header["x"], list))


@pytest.mark.parametrize(
    "nested",
    ["[" * 99_000 + "]" * 99_000, "{a: " * 30_000 + "1" + "}" * 30_000, "- " * 90_000 + "a", "? " * 90_000 + "a"],
    ids=["lists", "objects", "items", "keys"],
)
@pytest.mark.parametrize("key", ["license", "model_id"])
def test_nesting_ends_no_process(key: str, nested: str) -> None:
    """The loader of libyaml calls itself for each level, and 99,000 of them were a segmentation fault: the child must end by itself."""
    text = f"---\n{key}:\n  {nested}\n---\n# Card\n"
    assert len(text) < 200_000
    program = "import sys; from hubaudit.hub.card_header import card_header; print(card_header(sys.stdin.read()))"
    ended = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "{}\n"), ended.stderr


def test_a_header_as_deep_as_cards_are() -> None:
    """A model-index is eight levels deep."""
    header = header_of(f"---\na: {'[' * 40}{']' * 40}\nlicense: mit\n---\n")
    assert isinstance(header, dict)
    assert header["license"] == "mit"


def test_a_plain_header_is_read() -> None:
    """Without which the others would prove nothing."""
    assert header_of("---\nlicense: mit\n---\n# Card\n") == {"license": "mit"}
    assert card_header("---\nlicense: mit\n---\n# Card\n")["license"] == "mit"
