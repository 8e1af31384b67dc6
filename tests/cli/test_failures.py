"""Every way a run can fail, through the command line: one line, a hint, the documented exit code, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import pytest
from local_hub import LocalRepo, safetensors_prefix
from raw_server import RawServer
from small_repos import CONFIG, HASTY, INDEX, PARAMETERS, QUICK, TENSORS, one_file, sharded

from hubaudit import cli
from hubaudit.cli.failures import report_failure
from hubaudit.errors import HubauditError, RateLimitError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from local_hub import LocalHub

    from hubaudit.hub.session import Patience

Run = tuple[int, str, str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs the command line in this process, without long waits: exit code, stdout and stderr."""
    from hubaudit.hub import session

    def run_here(*words: str, patience: Patience = QUICK) -> Run:
        monkeypatch.setattr(session, "Patience", lambda: patience)
        monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return run_here


def run_child(*words: str, environment: dict[str, str] | None = None) -> Run:
    """Runs it in a process of its own, as users do."""
    ended = subprocess.run(
        [sys.executable, "-m", "hubaudit", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, **(environment or {})},
    )
    return ended.returncode, ended.stdout, ended.stderr


def check_said(err: str) -> tuple[str, str]:
    """The line and the hint of a failure, in exactly the form that is promised."""
    lines = err.splitlines()
    assert len(lines) == 3, err
    assert lines[0].startswith("error: ")
    assert lines[1] == ""
    assert lines[2].startswith("hint: ")
    assert err.isprintable() or all(line.isprintable() for line in lines)
    return lines[0], lines[2]


CASES: dict[str, tuple[Callable[[LocalHub], Any], tuple[str, ...], int, str, str]] = {
    "missing": (lambda hub: None, ("org/missing",), 3, "no model `org/missing`", "check the name"),
    "private": (lambda hub: hub.add(one_file(private=True)), ("org/one",), 3, "or it is private", "hf auth login"),
    "gated": (lambda hub: hub.add(one_file(gated="manual")), ("org/one",), 3, "is gated", "ask for access at"),
    "disabled": (lambda hub: hub.add(one_file(disabled=True)), ("org/one",), 3, "is disabled", "page"),
    "no revision": (lambda hub: hub.add(one_file()), ("org/one@nope",), 3, "no revision `nope`", "check the branch"),
    "used up": (lambda hub: hub.fault("status", status=429, reset_seconds=250), ("org/one",), 4, "rate limit", "in 250 seconds"),
    "500": (lambda hub: hub.fault("status", status=500), ("org/one",), 4, "answered 500", "try again later"),
    "503": (lambda hub: hub.fault("status", status=503), ("org/one",), 4, "answered 503", "try again later"),
    "silence": (lambda hub: hub.fault("timeout"), ("org/one",), 4, "did not answer in time", "HF_HUB_DOWNLOAD_TIMEOUT"),
    "reset": (lambda hub: hub.fault("reset"), ("org/one",), 4, "broke", "try again"),
    "closed": (lambda hub: hub.fault("close"), ("org/one",), 4, "broke", "try again"),
    "endless redirects": (lambda hub: hub.fault("endless_redirects"), ("org/one",), 4, "redirects without end", "HF_ENDPOINT"),
    "a web page": (lambda hub: hub.fault("wrong_content"), ("org/one",), 4, "does not answer like a Hub", "proxy"),
    "offline": (lambda hub: hub.add(one_file()), ("org/one", "--offline"), 4, "is not in the cache", "without --offline"),
    "empty": (lambda hub: hub.add(LocalRepo("org/one", {"README.md": "x"})), ("org/one",), 5, "nothing to audit", "config.json"),
    "a token of nonsense": (lambda hub: None, ("org/one", "--token", "hf_é"), 3, "no token has", "HF_TOKEN"),
    "no name": (lambda hub: None, ("a/b/c",), 2, "not a repository id", "org/name"),
    "two revisions": (lambda hub: None, ("org/one@a", "--revision", "b"), 2, "two revisions", "not both"),
    "another site": (lambda hub: None, ("https://example.org/org/one",), 2, "not a Hugging Face URL", "HF_ENDPOINT"),
    "a data set": (lambda hub: None, ("https://huggingface.co/datasets/a/b",), 2, "not the URL of a model", "org/name"),
    "no folder": (lambda hub: None, ("./nowhere",), 3, "no such file or folder", "org/name"),
    "empty name": (lambda hub: None, ("",), 2, "an empty name", "org/name"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_failure_in_words(case: str, local_hub: LocalHub, run: Callable[..., Run]) -> None:
    """On stderr for people, and in JSON as a row with a stable kind; stdout holds data only."""
    prepare, words, code, message, hint = CASES[case]
    prepare(local_hub)
    patience = HASTY if case == "silence" else QUICK
    ended, out, err = run(*words, patience=patience)
    line, advice = check_said(err)
    assert (ended, out) == (code, "")
    assert message in line
    assert hint in advice
    ended, out, err = run(*words, "--json", patience=patience)
    row = json.loads(out)["error"]
    assert ended == code
    assert (f"error: {row['message']}", f"hint: {row['hint']}") == (line, advice)
    assert row["kind"].isidentifier()


@pytest.mark.parametrize("host", ["hub", "cdn"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("status", {"status": 500}), ("reset", {}), ("truncate", {}), ("wrong_content", {}), ("wrong_length", {}),
        ("slow", {}), ("timeout", {}), ("redirect_to", {"location": "http://127.0.0.1:9/"}), ("status", {"status": 404}),
    ],
)  # fmt: skip
def test_a_failure_in_the_middle(
    kind: Any, options: dict[str, Any], host: str, local_hub: LocalHub, run: Callable[..., Run]
) -> None:
    """After a good start: exit code 4 and no half answer."""
    if (kind, host) == ("wrong_length", "hub"):
        pytest.skip("half the text of a redirect is as good as all of it")
    local_hub.add(one_file())
    local_hub.fault(kind, "model.safetensors", host=host, **options)
    ended, out, err = run("org/one", "--json", patience=HASTY if kind in ("slow", "timeout") else QUICK)
    check_said(err)
    assert ended == 4
    assert json.loads(out).keys() >= {"error"}
    assert "facts" not in json.loads(out)


@pytest.mark.parametrize("name", ["org/one", "org/sharded"])
def test_what_passes_is_not_mentioned(name: str, local_hub: LocalHub, run: Callable[..., Run]) -> None:
    """One bad moment in each request, and a report as if nothing had been."""
    local_hub.add(one_file())
    local_hub.add(sharded())
    for match in ("/api/models/", "/resolve/.*config.json", "/resolve/.*safetensors", "/safetensors-metadata/"):
        local_hub.fault("status", match, status=503, times=1)
    local_hub.fault("reset", host="cdn", times=1)
    ended, out, err = run(name, "--json")
    assert (ended, err) == (0, "")
    assert json.loads(out)["facts"]["parameters"]["total"] == PARAMETERS


def test_a_repository_of_the_worst_kind(local_hub: LocalHub, run: Callable[..., Run]) -> None:
    """Everything in it is broken, and named so as to move the cursor: said in clean lines, exit code 5."""
    files: dict[str, bytes | str] = {
        "config.json": "[1,",
        "model-00001-of-00002.safetensors": (10**12).to_bytes(8, "little") + b"{}",
        "model-\x1b[2J.safetensors": b"",
        INDEX: json.dumps({"weight_map": {"w": "../../../../api/whoami-v2", "v": "\x1b[31m"}}),
    }
    local_hub.add(LocalRepo("org/worst", files))
    ended, out, err = run("org/worst", "--token", "hf_x")
    check_said(err)
    assert (ended, out) == (5, "")
    assert not any("whoami" in request.path for request in local_hub.requests)


@pytest.mark.parametrize("output_format", ["human", "json", "jsonl", "csv", "markdown"])
def test_hostile_words_in_a_config(
    output_format: str, local_hub: LocalHub, run: Callable[..., Run], tmp_path: Path
) -> None:
    """Control characters never reach a terminal, and half a character breaks no output, to stdout or to a file."""
    config = {**CONFIG, "architectures": ["\x1b[2J\ud800ForCausalLM"], "model_type": "ll\x1b]0;x\x07\ud83dama"}
    local_hub.add(one_file(config=config))
    ended, out, err = run("org/one", "--format", output_format)
    assert (ended, err) == (0, "")
    assert "\x1b" not in out
    ended, out, err = run("org/one", "--format", output_format, "-o", str(tmp_path / "report"))
    assert (ended, out, err) == (0, "", "")
    assert b"\x1b" not in (tmp_path / "report").read_bytes()


@pytest.mark.parametrize(
    "name", ["org/\x1b[2Jone", "\x9b2J", "./no\x1b]0;x\x07such.safetensors", "org/one@\x1b[2J", "\u202eeno"]
)
def test_control_characters_of_a_name_reach_no_terminal(name: str, run: Callable[..., Run]) -> None:
    """A name may come from a list that a stranger wrote; the message shows what is in it and sends none of it."""
    ended, out, err = run(name)
    assert ended in (2, 3)
    assert out == ""
    assert err.replace("\n", "").isprintable()
    for line in ("-o", "--format"):
        _, _, err = run("org/one", line, f"x/\x1b[2J{name}/y")
        assert err.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "error",
    [
        HubauditError("a\x1b[2J\nb", hint="\x9b2J\n\x07"),
        click.UsageError("\x1b]0;x\x07"),
        RuntimeError("\u202e\x1b[2J"),
    ],
    ids=["ours", "usage", "bug"],
)
def test_whatever_an_error_says_is_clean(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where who raised it forgot to quote what it read."""
    report_failure(error)
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_a_bundle_of_a_repository(local_hub: LocalHub, run: Callable[..., Run], tmp_path: Path) -> None:
    """It is written once read, its failures are those of an audit, and it replays without the Hub."""
    local_hub.add(sharded())
    target = tmp_path / "saved.json.gz"
    assert check_said(run("bundle", "org/missing", "-o", str(target))[2])
    assert not target.exists()
    assert run("bundle", "org/sharded", "-o", str(target))[0] == 0
    local_hub.reset_log()
    ended, out, _ = run(str(target), "--json")
    assert (ended, json.loads(out)["facts"]["parameters"]["total"]) == (0, PARAMETERS)
    assert local_hub.requests == []
    for words in (
        ("bundle", "org/sharded", "-o", str(tmp_path / "saved.txt")),
        ("bundle", "org/sharded", "-o", "/nowhere/x.json"),
    ):
        ended, _, err = run(*words)
        assert ended == 2
        assert err.startswith("error: ")
        assert "Traceback" not in err


# --- in a process of its own ---------------------------------------------------------------------------------------------


def test_a_child_process_answers(local_hub: LocalHub) -> None:
    """The whole way, with the environment only."""
    local_hub.add(one_file())
    ended, out, err = run_child("org/one", "--json")
    assert (ended, err) == (0, "")
    assert json.loads(out)["facts"]["parameters"]["total"] == PARAMETERS
    ended, out, _ = run_child("org/one", "--json", environment={"HF_HUB_OFFLINE": "1"})
    assert (ended, json.loads(out)["subject"]["source"]) == (0, "cache")


@pytest.mark.parametrize(
    ("words", "environment", "code", "message"),
    [
        (("org/missing",), {}, 3, "no model `org/missing`"),
        (("org/gated",), {}, 3, "is gated"),
        (("org/one",), {"HF_HUB_OFFLINE": "1"}, 4, "is not in the cache"),
        (("org/one",), {"HF_ENDPOINT": "http://127.0.0.1:9"}, 4, "could not connect to http://127.0.0.1:9"),
        (("org/one",), {"HF_ENDPOINT": "localhost"}, 2, "HF_ENDPOINT is not the address of a Hub"),
        (("org/one",), {"HF_ENDPOINT": "http://x:abc"}, 2, "huggingface_hub does not start"),
        (("org/one",), {"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}, 2, "huggingface_hub does not start"),
        (("org/one",), {"HTTP_PROXY": "socks5://127.0.0.1:9"}, 2, "no connection can be set up"),
        (("org/one",), {"SSL_CERT_FILE": "/nowhere"}, 2, "no connection can be set up"),
        (("org/one@\udcff",), {}, 2, "not a revision"),
        (("~nobody-of-that-name",), {}, 3, "no such file or folder"),
        (("https://[x",), {}, 2, "not a URL"),
    ],
)
def test_a_child_process_fails_well(
    words: tuple[str, ...], environment: dict[str, str], code: int, message: str, local_hub: LocalHub
) -> None:
    """No traceback and no warning of any library, whatever the environment is."""
    local_hub.add(one_file("org/gated", gated="auto"))
    ended, out, err = run_child(*words, environment=environment)
    line, _ = check_said(err)
    assert (ended, out) == (code, "")
    assert message in line


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_ends_it_soon(local_hub: LocalHub) -> None:
    """Ctrl-C during a wait: one word, 130, no traceback, and nobody waits for a question to be asked again."""
    local_hub.add(one_file())
    local_hub.fault("timeout", "config.json")
    child = subprocess.Popen(
        [sys.executable, "-m", "hubaudit", "org/one"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"HF_HUB_DOWNLOAD_TIMEOUT": "60"},  # on a busy machine the signal must not come after the failure
    )
    for _ in range(300):
        if any("config.json" in request.path for request in local_hub.requests):
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=180)
    assert (child.returncode, out, err.lstrip()) == (130, "", "error: interrupted\n")
    assert sum("config.json" in request.path for request in local_hub.requests) <= 2


# --- the last line of defence --------------------------------------------------------------------------------------------


def test_a_bug_is_called_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, one line, and how to report it; with HUBAUDIT_DEBUG the traceback."""
    assert report_failure(ZeroDivisionError("division\nby zero\x1b[2J")) == 1
    line, hint = check_said(capsys.readouterr().err)
    assert line == "error: internal error: ZeroDivisionError: division by zero\\x1b[2J"
    assert "HUBAUDIT_DEBUG" in hint
    monkeypatch.setenv("HUBAUDIT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        report_failure(ZeroDivisionError())


def test_a_clean_up_that_ctrl_c_broke_is_an_interruption() -> None:
    """What fails because Ctrl-C came in its middle ends as Ctrl-C does."""
    broken = ValueError("a transaction within a transaction")
    broken.__context__ = KeyboardInterrupt()
    assert report_failure(broken) == 130


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SystemExit(3), 3, ""),
        (SystemExit(None), 0, ""),
        (SystemExit("words"), 1, "error: words\n"),
        (click.exceptions.Exit(0), 0, ""),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (click.Abort(), 130, "error: interrupted\n"),
        (click.UsageError("no such thing"), 2, "error: no such thing\n\nhint: `hubaudit --help` lists what there is\n"),
        (click.FileError("x", "is gone"), 2, "error: Could not open file 'x': is gone\n"),
        (HubauditError("a\nb"), 1, "error: a b\n"),
        (RateLimitError("used up", hint="wait\x07"), 4, "error: used up\n\nhint: wait\\x07\n"),
    ],
)
def test_how_each_exception_ends(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code, and clean words."""
    assert (report_failure(error), capsys.readouterr().err) == (code, said)


def test_a_server_that_drips(local_hub: LocalHub, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of the status line now and then: it ends by the deadline."""
    from huggingface_hub import constants

    def drip(connection: socket.socket, _: bytes) -> None:
        while not server.stopping.wait(0.05):
            connection.sendall(b"H")

    with RawServer(drip) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        ended, out, err = run("org/one", patience=HASTY)
    assert (ended, out) == (4, "")
    assert "did not answer in time" in check_said(err)[0]


def test_only_weights_still_answer(local_hub: LocalHub, run: Callable[..., Run]) -> None:
    """A repository without a config: the figures that the one witness allows."""
    local_hub.add(LocalRepo("org/bare", {"model.safetensors": safetensors_prefix(TENSORS)}))
    ended, out, _ = run("org/bare", "--json")
    assert (ended, json.loads(out)["facts"]["parameters"]["total"]) == (0, PARAMETERS)
