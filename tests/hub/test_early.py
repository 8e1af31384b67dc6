"""What is asked ahead of the first answer: it saves a round trip, and whatever comes of it, the audit reads what it would have read without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from local_hub import LocalRepo, safetensors_prefix
from small_repos import PARAMETERS, QUICK, asked, fetch_quickly, one_file, parameters, sharded

from hubaudit.errors import AccessError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from local_faults import FaultKind
    from local_hub import LocalHub

AHEAD = "/resolve/main/"


def ahead(name: str, **options: Any) -> Any:
    """As the command line reads one model."""
    return fetch_quickly(name, ask_ahead=True, **options)


def resolved(hub: LocalHub) -> list[str]:
    """Revision and path of every file that was asked for."""
    return sorted(request.path.split("/resolve/")[1] for request in hub.requests if "/resolve/" in request.path)


def test_one_file_in_one_round(local_hub: LocalHub) -> None:
    """The same five requests as without, all first hops at once, at the branch; the second time it is one."""
    local_hub.add(one_file())
    local_hub.latency_seconds = 1.0
    snapshot = ahead("org/one")
    assert sorted(asked(local_hub)) == sorted(
        ["info", "config.json", "cached config.json", "model.safetensors", "cdn model.safetensors"]
    )
    assert resolved(local_hub) == ["main/config.json", "main/model.safetensors"]
    first = [request.started_at for request in local_hub.requests if "resolve-cache" not in request.path]
    assert sorted(first)[2] - min(first) < 1.0
    local_hub.reset_log()
    assert ahead("org/one") == replace(snapshot, source="cache")
    assert asked(local_hub) == ["info"]
    assert (parameters(snapshot), snapshot.problems) == (PARAMETERS, ())


@pytest.mark.parametrize("repo", [one_file, sharded])
def test_it_reads_what_it_reads_without(local_hub: LocalHub, repo: Any, tmp_path: Path) -> None:
    """Question for question or ahead: one snapshot."""
    name = local_hub.add(repo(tags={"v1": "main"})).repo_id
    for revision in (None, "v1"):
        snapshots = [
            fetch_quickly(name, revision=revision, ask_ahead=eager, cache_dir=tmp_path / f"{eager}{revision}")
            for eager in (False, True)
        ]
        assert snapshots[0] == snapshots[1]


@pytest.mark.parametrize("commit", ["0" * 40, None])
def test_an_answer_of_another_commit_does_not_count(local_hub: LocalHub, commit: str | None) -> None:
    """What comes of the branch is taken only at the commit that the branch was found to mean; else the file is asked for at the commit."""
    repo = local_hub.add(one_file())
    for match in (AHEAD, "/resolve-cache/"):
        local_hub.fault("headers", match, headers={"X-Repo-Commit": commit})
    assert parameters(ahead("org/one")) == PARAMETERS
    at_commit = [f"{repo.sha}/config.json", f"{repo.sha}/model.safetensors"]
    assert resolved(local_hub) == sorted([*at_commit, "main/config.json", "main/model.safetensors"])


@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
@pytest.mark.parametrize(
    "kind",
    [
        "status",
        "reset",
        "close",
        "timeout",
        "truncate",
        "wrong_length",
        "ignore_range",
        "wrong_content",
        "wrong_content_range",
        "slow",
        "endless_redirects",
    ],
)
def test_whatever_becomes_of_it(local_hub: LocalHub, kind: FaultKind, path: str, tmp_path: Path) -> None:
    """A question ahead that fails, in whatever way, is asked again as if it had not been asked: no other answer, and no error."""
    local_hub.add(one_file())
    plain = fetch_quickly("org/one", cache_dir=tmp_path / "plain")
    local_hub.fault(kind, f"{AHEAD}{path}", status=503)
    patience = (
        replace(QUICK, answer_seconds=3.0) if kind in ("timeout", "slow") else QUICK
    )  # what is asked anew has to come in that time
    assert ahead("org/one", patience=patience, cache_dir=tmp_path / "ahead") == plain


def test_a_header_longer_than_its_start(local_hub: LocalHub) -> None:
    """The rest is asked of the storage host itself."""
    tensors = [(f"layer.{number}.a_rather_long_name.weight", "BF16", (8, 8)) for number in range(1000)]
    weights = safetensors_prefix(tensors)
    local_hub.add(LocalRepo("org/long", {"model.safetensors": weights}))
    assert len(ahead("org/long").weights[0].tensors) == 1000
    assert resolved(local_hub) == ["main/config.json", "main/model.safetensors"]
    ranges = [request.range for request in local_hub.requests if request.host == "cdn"]
    assert ranges == ["bytes=0-32767", f"bytes=32768-{len(weights.prefix) - 1}"]


def test_what_is_not_there_costs_a_question(local_hub: LocalHub) -> None:
    """Shards instead of one file: one answer more, that there is no such file."""
    local_hub.add(sharded())
    ahead("org/sharded")
    assert sorted(asked(local_hub)) == sorted(
        ["info", "config.json", "cached config.json", "headers", "info", "model.safetensors"]
    )


def test_refusals_are_told_as_without(local_hub: LocalHub) -> None:
    """A gated repository, and one that is not there."""
    local_hub.add(one_file("org/gated", gated="manual", allowed_tokens=["hf_friend"]))
    with pytest.raises(AccessError, match="is gated"):
        ahead("org/gated")
    assert parameters(ahead("org/gated", token="hf_friend")) == PARAMETERS
    with pytest.raises(NotFoundError):
        ahead("org/missing@0000000")


def test_weights_chosen_by_the_user_are_not_guessed(local_hub: LocalHub) -> None:
    """With ``--file``, and with a commit given in full, nothing is asked ahead."""
    repo = local_hub.add(one_file())
    ahead("org/one", file="model.safetensors")
    ahead("org/one", revision=repo.sha, file="model.safetensors")
    assert all(path.startswith(repo.sha) for path in resolved(local_hub))
