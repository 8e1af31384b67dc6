"""The user's token: in no output, no error, no bundle, no cache and no journal, whatever the Hub and the network do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from local_hub import LocalRepo
from small_repos import QUICK, one_file, sharded

from hubaudit import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_hub import LocalHub

TOKEN = "hf_ThisIsASecretOfTheUser"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs the command line with the token in the environment, for people who look for bugs too: exit code, and all that was printed."""
    from hubaudit.hub import session

    monkeypatch.setattr(session, "Patience", lambda: QUICK)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_DEBUG", "1")

    def run_here(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out + err

    return run_here


def _written(folder: Path) -> bytes:
    return b"\n".join(path.name.encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_token_is_sent_and_said_nowhere(
    local_hub: LocalHub, run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """Reports, bundles, the cache, a batch's journal and plan: the Hub got it, and no file and no screen did."""
    local_hub.add(one_file())
    local_hub.add(sharded())
    cache = ("--cache-dir", str(tmp_path / "cache"))
    code, said = run("org/one", "org/sharded", "--explain", *cache)
    assert code == 0
    for words in (
        ("org/one", "--json", "-o", str(tmp_path / "report.json")),
        ("org/one", "--format", "sarif", "-o", str(tmp_path / "report.sarif")),
        ("bundle", "org/one", "-o", str(tmp_path / "bundle.json")),
        ("batch", "org/one", "org/sharded", "org/missing", "-o", str(tmp_path / "batch")),
    ):
        code, more = run(*words, *cache)
        assert code in (0, 3, 5)
        said += more
    assert any(request.token == TOKEN for request in local_hub.requests)
    assert TOKEN not in said
    assert (tmp_path / "bundle.json").is_file()
    assert any((tmp_path / "batch").iterdir())
    assert TOKEN.encode() not in _written(tmp_path)


FAULTS: dict[str, dict[str, Any]] = {
    "reset": {"kind": "reset"}, "rounds": {"kind": "endless_redirects"}, "page": {"kind": "wrong_content"}, "cut": {"kind": "truncate"},
    "nowhere": {"kind": "redirect_to", "location": "file:///etc/passwd"},
} | {str(status): {"kind": "status", "status": status} for status in (400, 401, 403, 404, 418, 500, 503)}  # fmt: skip


@pytest.mark.parametrize("words", [("--token", TOKEN), ()], ids=["option", "environment"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_failure_tells_the_token(
    fault: str, words: tuple[str, ...], local_hub: LocalHub, run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """An answer that breaks, leads round or refuses: the message names the host and not what was sent to it, alone and as a row of a batch."""
    local_hub.add(one_file())
    local_hub.fault(**FAULTS[fault])
    code, said = run("org/one", "--json", *words)
    assert code in (3, 4)
    assert TOKEN not in said
    code, said = run("batch", "org/one", "-o", str(tmp_path / "run"), *words)
    assert code in (3, 4, 5)
    assert TOKEN not in said
    assert b'"error"' in _written(tmp_path)
    assert TOKEN.encode() not in _written(tmp_path)


def test_an_echo_of_the_token_is_not_repeated(
    local_hub: LocalHub, run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """A config that holds the token's name in its places does not get it filled in: nothing is expanded."""
    config = {"model_type": "$HF_TOKEN", "architectures": ["${HF_TOKEN}"], "num_hidden_layers": "%HF_TOKEN%"}
    local_hub.add(LocalRepo("org/echo", {"config.json": json.dumps(config)}))
    _, said = run("org/echo", "--json", "--cache-dir", str(tmp_path))
    assert TOKEN not in said
    assert TOKEN.encode() not in _written(tmp_path)
