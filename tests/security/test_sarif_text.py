"""Alerts of code scanning: their text is a stranger's in part, and GitHub shows links in it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from small_repos import CONFIG

from hubaudit import cli
from hubaudit.errors import NotFoundError
from hubaudit.report.sarif import to_sarif

if TYPE_CHECKING:
    from pathlib import Path


def test_a_name_makes_no_link_in_an_alert() -> None:
    """SARIF 2.1.0, 3.11.6: ``[words](address)`` in a plain message is a link; a name that is one loses that."""
    hostile = "org/[your account is blocked](https://example.org/login)"
    document = json.loads(to_sarif([(hostile, NotFoundError("no such model"))]))
    (told,) = document["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert "](" not in told["message"]["text"]
    assert "your account" in told["message"]["text"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no file names that are no UTF-8")
@pytest.mark.parametrize("output_format", ["human", "json", "jsonl", "csv", "markdown", "agent", "github", "sarif"])
def test_a_folder_whose_name_is_no_utf_8(output_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python holds the byte E9 as half a character, which no URI and no hash takes as it is: each form is written, and is UTF-8."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump({**CONFIG, "hidden_size": 30, "auto_map": {"AutoModel": "modeling_x.X"}}, file)
    monkeypatch.setattr(sys, "argv", ["hubaudit", folder, "--format", output_format, "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    text = (tmp_path / "out").read_bytes().decode("utf-8")
    if output_format == "sarif":
        results = json.loads(text)["runs"][0]["results"]
        uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results]
        assert uris
        assert all(uri.isascii() for uri in uris)
