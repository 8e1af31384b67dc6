"""A repository on the Hub, read with the real client: how many questions, at which commit, and what every failure becomes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from local_hub import LocalRepo, SparseFile, safetensors_prefix
from small_repos import (
    CONFIG,
    HASTY,
    INDEX,
    PARAMETERS,
    QUICK,
    TENSORS,
    asked,
    fetch_quickly,
    one_file,
    parameters,
    shard_name,
    sharded,
    shards_of,
)

from hubaudit.errors import AccessError, HubauditError, NetworkError, NotFoundError, RateLimitError

if TYPE_CHECKING:
    from local_faults import FaultKind
    from local_hub import LocalHub

    from hubaudit.hub.session import Patience

SHARDS = [shard_name(number, 4) for number in range(1, 5)]


# --- how many questions --------------------------------------------------------------------------------------------------


def test_one_file_cold_and_warm(local_hub: LocalHub) -> None:
    """Three questions, five requests with the redirects; the second time, one."""
    local_hub.add(one_file())
    cold = fetch_quickly("org/one")
    assert sorted(asked(local_hub)) == sorted(
        ["info", "config.json", "cached config.json", "model.safetensors", "cdn model.safetensors"]
    )
    local_hub.reset_log()
    warm = fetch_quickly("org/one")
    assert asked(local_hub) == ["info"]
    assert warm == replace(cold, source="cache")
    assert (cold.source, parameters(cold)) == ("hub", PARAMETERS)


def test_a_pinned_commit_that_was_read_needs_no_question(local_hub: LocalHub) -> None:
    """What a full commit holds cannot change."""
    repo = local_hub.add(one_file())
    cold = fetch_quickly("org/one")
    local_hub.reset_log()
    assert fetch_quickly("org/one", revision=repo.sha) == replace(cold, source="cache", revision=repo.sha)
    assert fetch_quickly(f"org/one@{repo.sha}").commit == repo.sha
    assert asked(local_hub) == []


def test_four_shards_at_once(local_hub: LocalHub) -> None:
    """All headers come in one answer: four questions, one of which makes sure that ``main`` has not moved."""
    local_hub.add(sharded())
    snapshot = fetch_quickly("org/sharded")
    assert sorted(asked(local_hub)) == sorted(["info", "config.json", "cached config.json", "headers", "info"])
    assert [file.path for file in snapshot.weights] == SHARDS
    assert parameters(snapshot) == PARAMETERS
    local_hub.reset_log()
    fetch_quickly("org/sharded")
    assert asked(local_hub) == ["info"]


def test_an_answer_that_names_its_commit_needs_no_second_look(local_hub: LocalHub) -> None:
    """Where the Hub says at which commit it read the headers, three questions are enough."""
    repo = local_hub.add(sharded())
    local_hub.fault("headers", "/safetensors-metadata/", headers={"X-Repo-Commit": repo.sha})
    fetch_quickly("org/sharded")
    assert sorted(asked(local_hub)) == sorted(["info", "config.json", "cached config.json", "headers"])


def by_range(local_hub: LocalHub, name: str = "org/sharded", **options: Any) -> list[str]:
    """What is asked where the headers come by range: questions, the redirects left out."""
    snapshot = fetch_quickly(name, **options)
    assert parameters(snapshot) == PARAMETERS
    assert not snapshot.problems
    return sorted(name for name in asked(local_hub) if not name.startswith(("cached", "cdn")))


def test_a_mirror_without_the_endpoint(local_hub: LocalHub) -> None:
    """Then each shard is one question more: three, the index, and the one that failed."""
    local_hub.add(sharded())
    local_hub.routes.serves_headers = False
    assert by_range(local_hub) == sorted(["info", "config.json", "headers", INDEX, *SHARDS])
    assert len([name for name in asked(local_hub) if name.startswith("cdn")]) == 4
    local_hub.reset_log()
    fetch_quickly("org/sharded")
    assert asked(local_hub) == ["info"]


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", "commit"])
def test_another_revision_does_not_ask_the_endpoint(local_hub: LocalHub, revision: str) -> None:
    """It knows ``main`` only."""
    repo = local_hub.add(sharded(tags={"v1": "main"}, pull_requests={1: "main"}))
    revision = repo.sha if revision == "commit" else revision
    assert by_range(local_hub, revision=revision) == sorted(["info", "config.json", INDEX, *SHARDS])


def test_main_by_name_does(local_hub: LocalHub) -> None:
    """``@main`` is what is read without a revision."""
    local_hub.add(sharded())
    snapshot = fetch_quickly("org/sharded@main")
    assert "headers" in asked(local_hub)
    assert snapshot.revision == "main"


def test_shards_are_read_side_by_side(local_hub: LocalHub) -> None:
    """Forty shards of a mirror take a few rounds, not forty: many are asked for before the first is answered."""
    names = [shard_name(number, 40) for number in range(1, 41)]
    parts: list[list[tuple[str, str, tuple[int, ...]]]] = [
        [(f"layer.{number}", "BF16", (4, 4))] for number in range(40)
    ]
    local_hub.add(LocalRepo("org/many", {"config.json": json.dumps(CONFIG), **shards_of(parts)}))
    local_hub.routes.serves_headers = False
    local_hub.latency_seconds = 0.3
    snapshot = fetch_quickly("org/many")
    assert [file.path for file in snapshot.weights] == names
    shards = [request for request in local_hub.requests if re.search("/resolve/.*-of-", request.path)]
    started = sorted(request.started_at for request in shards)
    assert sum(at < started[0] + 0.3 for at in started) >= 8


def test_a_long_header_takes_one_more_range(local_hub: LocalHub) -> None:
    """The rest of the header is asked of the storage host itself, to the byte."""
    tensors = [(f"layer.{number}.a_rather_long_name.weight", "BF16", (8, 8)) for number in range(1000)]
    weights = safetensors_prefix(tensors)
    local_hub.add(LocalRepo("org/long", {"model.safetensors": weights}))
    snapshot = fetch_quickly("org/long")
    assert asked(local_hub) == ["info", "model.safetensors", "cdn model.safetensors", "cdn model.safetensors"]
    first, second = (request for request in local_hub.requests if request.host == "cdn")
    assert (first.range, second.range) == ("bytes=0-32767", f"bytes=32768-{len(weights.prefix) - 1}")
    assert len(snapshot.weights[0].tensors) == 1000


def test_only_headers_are_read(local_hub: LocalHub) -> None:
    """Of a file of 140 GB, 32 kB."""
    local_hub.add(LocalRepo("org/big", {"model.safetensors": safetensors_prefix([("w", "BF16", (70, 1000**3))])}))
    snapshot = fetch_quickly("org/big")
    assert parameters(snapshot) == 70 * 1000**3
    assert sum(request.bytes_sent for request in local_hub.requests if request.host == "cdn") <= 32768


@pytest.mark.parametrize(
    ("files", "questions"),
    [
        ({"config.json": json.dumps(CONFIG)}, ["info", "config.json"]),
        ({"model.safetensors": safetensors_prefix(TENSORS)}, ["info", "model.safetensors"]),
        ({"README.md": "# hello"}, ["info"]),
    ],
)
def test_what_is_not_there_is_not_asked_for(
    local_hub: LocalHub, files: dict[str, str | SparseFile], questions: list[str]
) -> None:
    """The listing tells before anything else is asked."""
    local_hub.add(LocalRepo("org/part", files))
    snapshot = fetch_quickly("org/part")
    assert [name for name in asked(local_hub) if not name.startswith(("cached", "cdn"))] == questions
    assert not snapshot.problems


def test_what_the_hub_says_of_a_repository(local_hub: LocalHub) -> None:
    """The listing with sizes, the library and the Hub's own count of parameters go into the snapshot."""
    repo = local_hub.add(one_file(library_name="transformers", safetensors={"BF16": PARAMETERS}))
    snapshot = fetch_quickly("org/one")
    assert (snapshot.repo_id, snapshot.revision, snapshot.commit) == ("org/one", None, repo.sha)
    assert (snapshot.library_name, snapshot.hub_parameters) == ("transformers", {"BF16": PARAMETERS})
    assert {file.path: file.size_bytes for file in snapshot.files} == {
        path: blob.size_bytes for path, blob in repo.commits[repo.sha].items()
    }
    assert snapshot.configs == {"config.json": CONFIG}


@pytest.mark.parametrize("name", ["org/one", "org/sharded"])
def test_headers_that_a_mirror_may_leave_out(local_hub: LocalHub, name: str) -> None:
    """No ETag, no commit, no linked size, no rate limit, no range announced: the answer is the same."""
    local_hub.add(one_file())
    local_hub.add(sharded())
    left_out = ("ETag", "X-Repo-Commit", "X-Linked-Size", "X-Linked-Etag", "X-Xet-Hash", "Link", "RateLimit",
                "RateLimit-Policy", "Accept-Ranges", "Date", "X-Request-Id", "Vary", "Content-Type")  # fmt: skip
    local_hub.fault("headers", headers=dict.fromkeys(left_out))
    snapshot = fetch_quickly(name)
    assert (parameters(snapshot), snapshot.problems) == (PARAMETERS, ())


# --- at which commit -----------------------------------------------------------------------------------------------------

OTHER = {
    "config.json": json.dumps({**CONFIG, "num_hidden_layers": 2}),
    "model.safetensors": safetensors_prefix(TENSORS[:5]),
}


@pytest.mark.parametrize(
    "moment", ["/resolve/.*config.json", "/resolve/.*model.safetensors", "xet-bridge", "resolve-cache"]
)
def test_a_branch_is_resolved_once(local_hub: LocalHub, moment: str) -> None:
    """A push in the middle changes nothing: all is read at the commit that ``main`` meant at first."""
    repo = local_hub.add(one_file())
    before = repo.sha
    fault = local_hub.fault("changed_commit", moment, times=1, files=OTHER)
    snapshot = fetch_quickly("org/one")
    assert local_hub.applied(fault) == 1
    assert repo.sha != before
    assert (snapshot.commit, snapshot.configs["config.json"]) == (before, CONFIG)
    assert parameters(snapshot) == PARAMETERS
    resolved = [request.path for request in local_hub.requests if "/resolve/" in request.path]
    assert all(f"/resolve/{before}/" in path for path in resolved)
    after = fetch_quickly("org/one")
    assert after.commit == repo.sha
    assert parameters(after) < PARAMETERS


@pytest.mark.parametrize("moment", ["/safetensors-metadata/", r"expand\[\]=sha"])
def test_headers_at_once_are_of_that_commit_too(local_hub: LocalHub, moment: str) -> None:
    """The endpoint answers for ``main`` of now; if that has moved, its answer is dropped and the shards are read at the commit."""
    repo = local_hub.add(sharded())
    before = repo.sha
    other = shards_of([[*TENSORS[:2]], [*TENSORS[2:3]], [*TENSORS[3:4]], [*TENSORS[4:5]]])
    local_hub.fault("changed_commit", moment, times=1, files={"config.json": json.dumps(CONFIG), **other})
    snapshot = fetch_quickly("org/sharded")
    assert (snapshot.commit, parameters(snapshot)) == (before, PARAMETERS)
    assert {
        request.path.split("/resolve/")[1][:40] for request in local_hub.requests if "/resolve/" in request.path
    } == {before}


@pytest.mark.parametrize("revision", ["v1.0", "dev", "refs/pr/7"])
def test_a_revision_is_found(local_hub: LocalHub, revision: str) -> None:
    """Tags, branches and pull requests, with the slash encoded as the Hub wants it."""
    repo = local_hub.add(
        one_file(tags={"v1.0": OTHER_FILES}, branches={"dev": OTHER_FILES}, pull_requests={7: OTHER_FILES})
    )
    snapshot = fetch_quickly(f"org/one@{revision}")
    assert (snapshot.revision, snapshot.commit) == (revision, repo.refs[revision])
    assert parameters(snapshot) < PARAMETERS


OTHER_FILES = {path: content.encode() if isinstance(content, str) else content for path, content in OTHER.items()}


# --- names that lead elsewhere -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["old/name", "one", "ORG/One"])
def test_another_name_for_a_repository(local_hub: LocalHub, name: str) -> None:
    """Renamed, one-word and differently written ids land on the repository, which is then called by its own name."""
    local_hub.add(one_file(renamed_from=["old/name", "one"]))
    snapshot = fetch_quickly(name)
    assert (snapshot.repo_id, parameters(snapshot)) == ("org/one", PARAMETERS)
    local_hub.reset_log()
    assert fetch_quickly(name).source == "cache"
    assert asked(local_hub) == ["info", "info"]


def test_a_renamed_repository_that_was_renamed_again(local_hub: LocalHub) -> None:
    """Redirects may come one after another."""
    local_hub.add(one_file())
    local_hub.redirect("a/first", "b/second")
    local_hub.redirect("b/second", "org/one")
    assert fetch_quickly("a/first").repo_id == "org/one"


def test_a_renamed_repository_at_a_commit(local_hub: LocalHub) -> None:
    """A commit known under the new name is known under the old one, once it was asked for by that."""
    repo = local_hub.add(one_file(renamed_from=["old/name"]))
    fetch_quickly(f"old/name@{repo.sha}")
    local_hub.reset_log()
    assert fetch_quickly(f"old/name@{repo.sha}").repo_id == "org/one"
    assert asked(local_hub) == []


@pytest.mark.parametrize("repo_id", ["..", "../../x", "a/b/c", "", None, 5, "a\n"])
def test_an_answer_that_names_an_impossible_repository(local_hub: LocalHub, repo_id: object) -> None:
    """The id becomes part of addresses and of the cache's folders, so it must be one."""
    local_hub.add(one_file(info={"id": repo_id}))
    with pytest.raises(NetworkError, match="does not answer like a Hub"):
        fetch_quickly("org/one")


# --- who may read --------------------------------------------------------------------------------------------------------


def failure(name: str, **options: Any) -> HubauditError:
    """The error that reading ``name`` ends with: one printable line and a hint."""
    with pytest.raises(HubauditError) as caught:
        fetch_quickly(name, **options)
    error = caught.value
    assert error.message.isprintable()
    assert error.hint.isprintable()
    assert error.hint
    return error


@pytest.mark.parametrize(("token", "words"), [(None, "HF_TOKEN"), ("hf_other", "HF_TOKEN")])
@pytest.mark.parametrize("repo", [one_file, sharded])
def test_a_gated_repository(local_hub: LocalHub, token: str | None, words: str, repo: Any) -> None:
    """Info is public and the files are not: the page to ask at is named, and it is not called missing."""
    name = local_hub.add(repo(gated="manual", allowed_tokens=["hf_friend"])).repo_id
    error = failure(name, token=token)
    assert isinstance(error, AccessError)
    assert error.exit_code == 3
    assert "is gated" in error.message
    assert f"{local_hub.endpoint}/{name}" in error.hint
    assert words in error.hint
    assert parameters(fetch_quickly(name, token="hf_friend")) == PARAMETERS


def test_a_gated_repository_with_many_shards_is_soon_left_alone(local_hub: LocalHub) -> None:
    """One refusal is enough: not every shard is asked for."""
    parts: list[list[tuple[str, str, tuple[int, ...]]]] = [
        [(f"layer.{number}", "BF16", (4, 4))] for number in range(200)
    ]
    local_hub.add(LocalRepo("org/many", shards_of(parts), gated="auto"))
    failure("org/many")
    assert len(local_hub.requests) < 120


@pytest.mark.parametrize("over_https", [True, False])
def test_a_private_or_missing_repository(local_hub: LocalHub, over_https: bool, request: pytest.FixtureRequest) -> None:
    """The Hub does not tell them apart, nor do we; with the right token the private one is read."""
    if over_https:
        request.getfixturevalue("typed_401")
    local_hub.add(one_file("org/private", private=True, allowed_tokens=["hf_friend"]))
    for name in ("org/private", "org/missing", "missing"):
        for token in (None, "hf_other"):
            error = failure(name, token=token)
            assert isinstance(error, NotFoundError)
            assert error.exit_code == 3
            assert f"no model `{name}`" in error.message
            assert "or it is private" in error.message
    assert parameters(fetch_quickly("org/private", token="hf_friend")) == PARAMETERS


def test_a_token_that_the_hub_does_not_know(local_hub: LocalHub) -> None:
    """It does no harm to a public repository, and is named where it was needed."""
    local_hub.add(one_file())
    local_hub.invalid_tokens.add("hf_expired")
    assert parameters(fetch_quickly("org/one", token="hf_expired")) == PARAMETERS
    error = failure("org/missing", token="hf_expired")
    assert isinstance(error, AccessError)
    assert "does not accept your token" in error.message


def test_a_disabled_repository(local_hub: LocalHub) -> None:
    """Whether info says so or the files do."""
    local_hub.add(one_file(disabled=True))
    assert "is disabled" in failure("org/one").message
    local_hub.add(one_file("org/half", disabled=True, info={"disabled": False}))
    error = failure("org/half")
    assert isinstance(error, AccessError)
    assert "is disabled" in error.message


@pytest.mark.parametrize("revision", ["nope", "refs/pr/99", "0" * 40, "abcdef1"])
def test_a_missing_revision(local_hub: LocalHub, revision: str) -> None:
    """It is the revision that is not there, and that is what is said."""
    local_hub.add(one_file())
    error = failure("org/one", revision=revision)
    assert isinstance(error, NotFoundError)
    assert error.message == f"no revision `{revision}` in `org/one`"


def test_a_file_listed_and_not_there(local_hub: LocalHub) -> None:
    """The Hub's own word that it has no such file makes it a problem of the repository, not of the network."""
    local_hub.add(one_file())
    gone = {"X-Error-Code": "EntryNotFound"}
    local_hub.fault("status", "/resolve/.*config.json", status=404, headers=gone)
    snapshot = fetch_quickly("org/one")
    assert [problem.path for problem in snapshot.problems] == ["config.json"]
    assert parameters(snapshot) == PARAMETERS


# --- every request of an audit, and all that can happen to it ------------------------------------------------------------

REQUESTS = {
    "info": ("org/one", r"/api/models/org/one\?"),
    "config": ("org/one", "/resolve/.*config.json"),
    "config, second hop": ("org/one", "/resolve-cache/.*config.json"),
    "header": ("org/one", "/resolve/.*model.safetensors"),
    "header, on the storage host": ("org/one", "xet-bridge"),
    "endpoint": ("org/sharded", "/safetensors-metadata/"),
    "second look": ("org/sharded", r"expand\[\]=sha"),
    "index": ("org/ranged", "/resolve/.*index.json"),
    "index, second hop": ("org/ranged", "/resolve-cache/.*index.json"),
    "a shard": ("org/ranged", "/resolve/.*00003-of"),
    "a shard, on the storage host": ("org/ranged", "xet-bridge.*00003-of"),
}
HTML_AS_JSON = b'{"error": "Something went wrong"}'
FAULTS: dict[str, tuple[FaultKind, dict[str, Any]]] = {
    "503 with JSON": ("status", {"status": 503, "html": False}),
    "404": ("status", {"status": 404}),
    "403": ("status", {"status": 403}),
    "429": ("status", {"status": 429, "reset_seconds": 250}),
    "reset": ("reset", {}),
    "closed": ("close", {}),
    "silence": ("timeout", {}),
    "cut off": ("truncate", {}),
    "cut off at once": ("truncate", {"keep": 0}),
    "half the length": ("wrong_length", {}),
    "a web page": ("wrong_content", {}),
    "a web page as a range": ("wrong_content", {"status": 206}),
    "an error as JSON": ("wrong_content", {"body": HTML_AS_JSON}),
    "nothing": ("wrong_content", {"body": b""}),
    "range ignored": ("ignore_range", {}),
    "another range": ("wrong_content_range", {}),
    "slow": ("slow", {}),
    "endless redirects": ("endless_redirects", {}),
    "elsewhere": ("redirect_to", {"location": "http://127.0.0.1:9/"}),
}


@pytest.fixture
def hub_of_three(local_hub: LocalHub) -> LocalHub:
    """One file; shards by the endpoint; shards by range."""
    local_hub.add(one_file())
    local_hub.add(sharded())
    local_hub.add(sharded("org/ranged", tags={"v1": "main"}))
    return local_hub


def outcome(name: str, patience: Patience = QUICK) -> int | HubauditError:
    """The parameters of a snapshot without problems, or the error in its place."""
    try:
        snapshot = fetch_quickly(f"{name}@v1" if name == "org/ranged" else name, patience=patience)
    except HubauditError as error:
        return error
    assert not snapshot.problems
    assert snapshot.configs == {"config.json": CONFIG}
    return parameters(snapshot)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_the_right_answer_or_an_error(hub_of_three: LocalHub, request_name: str, fault: str) -> None:
    """Whatever goes on going wrong with whatever request, no number is wrong, nothing else is raised, and it ends."""
    name, match = REQUESTS[request_name]
    kind, options = FAULTS[fault]
    rule = hub_of_three.fault(kind, match, **options)
    takes_for_ever = kind in ("timeout", "slow")
    result = outcome(name, HASTY if takes_for_ever else QUICK)
    assert hub_of_three.applied(rule) >= 1 or takes_for_ever
    assert not any(request.authorized for request in hub_of_three.requests if request.host == "cdn")
    if isinstance(result, HubauditError):
        assert result.exit_code in (3, 4)
        assert result.message.isprintable()
        assert result.hint.isprintable()
        assert result.hint
    else:
        assert result == PARAMETERS
    hub_of_three.clear_faults()
    assert outcome(name) == PARAMETERS  # and so is what was cached, if anything was


@pytest.mark.parametrize("lfs", [None, ["json"]])
def test_a_whole_file_is_held_against_its_hash(local_hub: LocalHub, lfs: list[str] | None) -> None:
    """A digit altered on the way is seen, in a file that git keeps and in one that LFS keeps; as long and as good JSON as it is."""
    local_hub.add(one_file(lfs=["safetensors", *(lfs or [])]))
    match = "org/one/config.json" if lfs else "/resolve-cache/.*config.json"
    local_hub.fault("altered", match, host="cdn" if lfs else "hub")
    assert "other bytes came" in failure("org/one").message
    local_hub.clear_faults()
    assert outcome("org/one") == PARAMETERS


def test_a_header_that_came_broken_is_read_again(local_hub: LocalHub) -> None:
    """No hash is known of a part of a file: what cannot be read is said, and not kept; a config that is wrong at the source is kept."""
    local_hub.add(one_file())
    local_hub.fault("garbled", host="cdn", times=1)
    assert [one.kind for one in fetch_quickly("org/one").problems] == ["unreadable"]
    assert outcome("org/one") == PARAMETERS
    local_hub.add(LocalRepo("org/wrong", {"config.json": "{,", "model.safetensors": safetensors_prefix(TENSORS)}))
    assert fetch_quickly("org/wrong").problems
    assert fetch_quickly("org/wrong").source == "cache"


PASSING = ["503 with JSON", "reset", "closed", "cut off", "range ignored"]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_what_passes_does_no_harm(hub_of_three: LocalHub, request_name: str, fault: str) -> None:
    """What goes wrong once is asked again, or another way, and nobody notices."""
    name, match = REQUESTS[request_name]
    kind, options = FAULTS[fault]
    hub_of_three.fault(kind, match, times=1, **options)
    assert outcome(name) == PARAMETERS


def test_a_quota_used_up_before_the_first_answer(hub_of_three: LocalHub) -> None:
    """Exit code 4, and when to come again."""
    hub_of_three.fault("status", status=429, reset_seconds=250)
    error = failure("org/one")
    assert isinstance(error, RateLimitError)
    assert error.exit_code == 4
    assert "in 250 seconds" in error.hint
    assert len(hub_of_three.requests) == 1


def test_a_real_quota(local_hub: LocalHub) -> None:
    """A Hub that counts: the question over the quota is refused with the time that is left."""
    local_hub.add(one_file())
    local_hub.quotas = {"api": 1}
    fetch_quickly("org/one")
    error = failure("org/one")
    assert isinstance(error, RateLimitError)
    assert "try again in" in error.hint


def test_the_endpoints_quota_is_not_the_files(hub_of_three: LocalHub) -> None:
    """Where the API's quota is used up after the first question, the files are still read."""
    hub_of_three.fault("status", "/safetensors-metadata/", status=429, reset_seconds=250)
    assert parameters(fetch_quickly("org/sharded")) == PARAMETERS


def test_an_endpoint_that_fails_is_asked_once(hub_of_three: LocalHub) -> None:
    """There is another way, so nobody waits for it to recover."""
    fault = hub_of_three.fault("status", "/safetensors-metadata/", status=503)
    assert parameters(fetch_quickly("org/sharded")) == PARAMETERS
    assert hub_of_three.applied(fault) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"headers": {}, "index": {}}',
        b'{"headers": [], "index": {}}',
        b'{"headers": {"model-00001-of-00004.safetensors": {}}, "index": {"metadata": {}}}',
        b'{"headers": {"a": 1, "a": 2}, "index": {}}',
        b'{"headers"' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_an_endpoint_that_answers_nonsense(hub_of_three: LocalHub, body: bytes) -> None:
    """Its answer is dropped, and the shards are read."""
    hub_of_three.fault("wrong_content", "/safetensors-metadata/", body=body)
    assert outcome("org/sharded") == PARAMETERS


@pytest.mark.parametrize(
    "info",
    [
        {"siblings": None},
        {"siblings": 5},
        {"sha": None},
        {"sha": "main"},
        {"sha": "../../x"},
    ],
)
def test_info_that_is_no_info(local_hub: LocalHub, info: dict[str, Any]) -> None:
    """A server that answers 200 and JSON is not yet a Hub."""
    local_hub.add(one_file(info=info))
    error = failure("org/one")
    assert isinstance(error, NetworkError)
    assert "does not answer like a Hub" in error.message
    assert "HF_ENDPOINT" in error.hint


def test_a_listing_with_odd_rows(local_hub: LocalHub) -> None:
    """Rows that name no file of the repository are passed over, and odd sizes are not known."""
    rows: list[Any] = [
        {"rfilename": "config.json", "size": len(json.dumps(CONFIG))},
        {"rfilename": "model.safetensors", "size": -5},
        {"rfilename": "../../../../api/whoami-v2", "size": 1},
        {"rfilename": "/etc/passwd"},
        {"rfilename": "a/../b"},
        {"rfilename": 7},
        {"size": 7},
        "config.json",
        None,
    ]
    local_hub.add(one_file(info={"siblings": rows, "library_name": 7, "safetensors": {"parameters": {"BF16": "many"}}}))
    snapshot = fetch_quickly("org/one")
    assert [(file.path, file.size_bytes) for file in snapshot.files][1:] == [("model.safetensors", None)]
    assert (parameters(snapshot), snapshot.library_name, snapshot.hub_parameters) == (PARAMETERS, None, {})


def test_a_config_too_large_to_be_one(local_hub: LocalHub) -> None:
    """It is not read to its end, and the weights are still audited."""
    padding = SparseFile(b"{", 50_000_000)
    local_hub.add(LocalRepo("org/padded", {"config.json": padding, "model.safetensors": safetensors_prefix(TENSORS)}))
    snapshot = fetch_quickly("org/padded")
    assert [problem.reason for problem in snapshot.problems] == ["larger than 10000000 bytes"]
    assert parameters(snapshot) == PARAMETERS


def test_hostile_names_in_an_index_are_not_asked_for(local_hub: LocalHub) -> None:
    """A shard name cannot lead our token to another address."""
    index = {"weight_map": {"w": "../../../../api/whoami-v2", "v": "model-00001-of-00002.safetensors"}}
    weights = safetensors_prefix([("v", "BF16", (2, 2))])
    local_hub.add(LocalRepo("org/bad", {INDEX: json.dumps(index), "model-00001-of-00002.safetensors": weights}))
    local_hub.routes.serves_headers = False
    snapshot = fetch_quickly("org/bad", token="hf_x")
    assert not any("whoami" in request.path for request in local_hub.requests)
    assert {problem.path for problem in snapshot.problems} == {INDEX, "model-00002-of-00002.safetensors"}


def test_many_files(local_hub: LocalHub) -> None:
    """A repository of three thousand files is listed in the one question."""
    files: dict[str, str | SparseFile] = {f"runs/{number}.txt": "x" for number in range(3000)}
    local_hub.add(LocalRepo("org/many", {**files, "config.json": json.dumps(CONFIG)}))
    assert len(fetch_quickly("org/many").files) == 3001
    assert asked(local_hub) == ["info", "config.json", "cached config.json"]


def test_a_refused_connection() -> None:
    """Nobody listens: exit code 4, the host's name, and that the cache can be used."""
    error = failure("org/one")
    assert isinstance(error, NetworkError)
    assert error.exit_code == 4
    assert "could not connect to http://127.0.0.1:9" in error.message
    assert "--offline" in error.hint
