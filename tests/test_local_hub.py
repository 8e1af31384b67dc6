"""The local Hub, seen through the real huggingface_hub client: it must answer, refuse and fail as the Hub does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_hub import (
    LocalHub,
    LocalRepo,
    Request,
    SparseFile,
    repo_from_snapshot,
    safetensors_prefix,
)
from local_repo import pieces

from hubaudit.types import RepoFile, RepoSnapshot, TensorInfo, WeightFile, WeightIndex

if TYPE_CHECKING:
    import httpx2
    from local_faults import FaultKind

CONFIG = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}).encode()
ONE_FILE = safetensors_prefix([("w", "BF16", (64, 32)), ("b", "F32", (64,))], {"format": "pt"})
INDEX_PATH = "model.safetensors.index.json"


def one_file_repo(repo_id: str = "org/one", **options: Any) -> LocalRepo:
    """A config and one weight file."""
    return LocalRepo(repo_id, {"config.json": CONFIG, "model.safetensors": ONE_FILE}, **options)


def sharded_repo(repo_id: str = "org/sharded", shards: int = 3, rows: int = 64, **options: Any) -> LocalRepo:
    """A config, an index, and ``shards`` weight files of one tensor each."""
    names = {f"layer.{n}": f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)}
    files = {path: safetensors_prefix([(name, "BF16", (rows, 8))], {"format": "pt"}) for name, path in names.items()}
    index = json.dumps({"metadata": {"total_size": rows * 16 * shards}, "weight_map": names}).encode()
    return LocalRepo(repo_id, {"config.json": CONFIG, INDEX_PATH: index, **files}, **options)


def session() -> httpx2.Client:
    """The real client's own connections: they follow redirects."""
    from huggingface_hub.utils import get_session

    return get_session()


def targets(hub: LocalHub) -> list[tuple[str, str, int]]:
    """Method, host and status of every request."""
    return [(request.method, request.host, request.status) for request in hub.requests]


# --- facts of a repository -------------------------------------------------------------------------------------------


def test_model_info_lists_the_files(local_hub: LocalHub) -> None:
    """Model info without ``expand`` names the commit and every file, without sizes."""
    from huggingface_hub import model_info

    repo = local_hub.add(one_file_repo(library_name="transformers", safetensors={"BF16": 2048, "F32": 64}))
    info = model_info("org/one")
    assert info.sha == repo.sha
    assert [sibling.rfilename for sibling in info.siblings or ()] == ["config.json", "model.safetensors"]
    assert [sibling.size for sibling in info.siblings or ()] == [None, None]
    assert info.config == {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    assert info.safetensors is not None
    assert info.safetensors.total == 2112
    assert info.library_name == "transformers"


def test_model_info_with_expand_gives_only_what_was_asked(local_hub: LocalHub) -> None:
    """``expand[]`` answers the keys asked for and ``_id`` and ``id``."""
    local_hub.add(one_file_repo())
    answer = session().get(f"{local_hub.endpoint}/api/models/org/one?expand[]=sha&expand[]=gated&expand[]=gguf")
    assert set(answer.json()) == {"_id", "id", "sha", "gated"}


def test_model_info_refuses_an_unknown_expand_and_lists_the_valid_ones(local_hub: LocalHub) -> None:
    """A wrong ``expand`` is a 400 that names the right ones; so is ``blobs`` together with ``expand``."""
    from huggingface_hub.errors import BadRequestError
    from huggingface_hub.utils import hf_raise_for_status

    local_hub.add(one_file_repo())
    base = f"{local_hub.endpoint}/api/models/org/one"
    with pytest.raises(BadRequestError, match='"safetensors"'):
        hf_raise_for_status(session().get(f"{base}?expand[]=weights"))
    assert session().get(f"{base}?expand[]=sha&blobs=true").status_code == 400


def test_model_info_with_blobs_gives_sizes_and_hashes(local_hub: LocalHub) -> None:
    """``blobs=true`` adds sizes, and the sha256 of LFS files."""
    from huggingface_hub import model_info

    local_hub.add(one_file_repo())
    config, weights = model_info("org/one", files_metadata=True).siblings or ()
    assert (config.size, config.lfs) == (len(CONFIG), None)
    assert weights.size == ONE_FILE.size
    assert weights.lfs is not None
    assert weights.lfs.size == ONE_FILE.size


def test_a_revision_may_be_a_branch_a_tag_a_commit_or_a_pull_request(local_hub: LocalHub) -> None:
    """Every kind of revision leads to its own commit; a pull request's name must come encoded."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import RevisionNotFoundError

    other = {"config.json": b"{}"}
    repo = one_file_repo(branches={"dev": other}, tags={"v1": "main"}, pull_requests={1: {"README.md": b"#"}})
    local_hub.add(repo)
    shas = {rev: model_info("org/one", revision=rev).sha for rev in ("main", "dev", "v1", "refs/pr/1", repo.sha)}
    assert shas == {rev: repo.refs.get(rev, rev) for rev in shas}
    assert len(set(shas.values())) == 3
    answer = session().get(f"{local_hub.endpoint}/org/one/resolve/refs/pr/1/README.md")
    assert answer.status_code == 404
    with pytest.raises(RevisionNotFoundError):
        model_info("org/one", revision="no-such")


def test_tree_comes_in_pages(local_hub: LocalHub) -> None:
    """A listing longer than a page is continued by Link, and the real client follows it to the end."""
    from huggingface_hub import list_repo_tree
    from huggingface_hub.hf_api import RepoFile as ClientFile

    paths = [f"folder-{n % 3}/file-{n}.json" for n in range(1500)]
    local_hub.add(LocalRepo("org/many", dict.fromkeys(paths, b"{}")))
    items = list(list_repo_tree("org/many", recursive=True))
    assert sorted(item.path for item in items if isinstance(item, ClientFile)) == sorted(paths)
    assert len(items) - len(paths) == 3
    assert targets(local_hub) == [("GET", "hub", 200)] * 2
    top = list(list_repo_tree("org/many"))
    assert [item.path for item in top] == ["folder-0", "folder-1", "folder-2"]
    assert {item.path for item in list_repo_tree("org/many", "folder-1")} == set(paths[1::3])


def test_paths_info_leaves_unknown_paths_out(local_hub: LocalHub) -> None:
    """The named files come with their sizes; a file that is not there is not mentioned."""
    from huggingface_hub import HfApi

    local_hub.add(one_file_repo())
    found = HfApi().get_paths_info("org/one", ["model.safetensors", "no-such.json"])
    assert [(item.path, getattr(item, "size", None)) for item in found] == [("model.safetensors", ONE_FILE.size)]


def test_refs_are_listed(local_hub: LocalHub) -> None:
    """The real client reads branches, tags and pull requests."""
    from huggingface_hub import HfApi

    local_hub.add(one_file_repo(branches={"dev": "main"}, tags={"v1": "main"}, pull_requests={1: "main"}))
    refs = HfApi().list_repo_refs("org/one", include_pull_requests=True)
    assert [ref.name for ref in refs.branches] == ["main", "dev"]
    assert [ref.name for ref in refs.tags] == ["v1"]
    assert [ref.ref for ref in refs.pull_requests or ()] == ["refs/pr/1"]


def test_models_are_listed_by_author_in_pages(local_hub: LocalHub) -> None:
    """One listing answers an author's models with the expanded facts; ``limit`` and Link page it."""
    from huggingface_hub import list_models

    for number in range(7):
        local_hub.add(one_file_repo(f"org/m{number}", safetensors={"BF16": number}))
    local_hub.add(one_file_repo("org/hidden", private=True, allowed_tokens={"hf_member"}))
    local_hub.add(one_file_repo("other/m1"))
    found = list(list_models(author="org", expand=["safetensors"]))
    assert [(m.id, m.safetensors.total) for m in found if m.safetensors] == [(f"org/m{n}", n) for n in range(7)]
    assert {m.id for m in list_models(search="m1")} == {"org/m1", "other/m1"}
    assert "org/hidden" in {m.id for m in list_models(author="org", token="hf_member")}
    local_hub.reset_log()
    url = f"{local_hub.endpoint}/api/models?author=org&limit=5&expand[]=safetensors"
    first = session().get(url)
    second = session().get(first.links["next"]["url"])
    assert [item["id"] for item in first.json() + second.json()] == [f"org/m{n}" for n in range(7)]
    assert "next" not in second.links
    assert all(set(item) == {"_id", "id", "safetensors"} for item in first.json())


def test_whoami_knows_a_token_from_none(local_hub: LocalHub) -> None:
    """A token has a user; without one, or with a wrong one, it is a 401."""
    from huggingface_hub import whoami
    from huggingface_hub.errors import HfHubHTTPError

    local_hub.invalid_tokens.add("hf_wrong")
    assert whoami(token="hf_right")["name"] == "local-user"
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        whoami(token="hf_wrong")


def test_the_list_of_agent_harnesses_is_empty(local_hub: LocalHub) -> None:
    """The client's daily question has an answer of the right shape."""
    answer = session().get(f"{local_hub.endpoint}/api/agent-harnesses")
    assert answer.json() == {"standardEnvVars": [], "harnesses": {}}


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_small_file_is_redirected_on_the_same_host(local_hub: LocalHub) -> None:
    """Resolve leads to resolve-cache by a relative 307; the real client's cache then holds the file by its git oid."""
    from huggingface_hub import hf_hub_download

    repo = local_hub.add(one_file_repo())
    path = Path(hf_hub_download("org/one", "config.json"))
    assert path.read_bytes() == CONFIG
    assert path.parent.name == repo.sha
    assert path.resolve().name == repo.commits[repo.sha]["config.json"].git_oid
    hops = local_hub.requests
    assert [(r.method, r.status) for r in hops] == [("HEAD", 307), ("HEAD", 200), ("GET", 200)]
    assert {r.host for r in hops} == {"hub"}


def test_git_oids_are_those_of_git(local_hub: LocalHub) -> None:
    """The ETag of a small file is the hash that ``git hash-object`` gives (an oracle that this project did not write)."""
    answer = subprocess.run(["git", "hash-object", "--stdin"], input=CONFIG, capture_output=True, check=True)
    repo = local_hub.add(one_file_repo())
    reply = session().get(f"{local_hub.endpoint}/org/one/resolve/main/config.json")
    assert reply.headers["etag"] == f'"{answer.stdout.decode().strip()}"'
    assert reply.headers["x-repo-commit"] == repo.sha
    again = session().get(str(reply.url), headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert session().get(str(reply.url).replace(repo.sha, "main")).status_code == 400


def test_a_large_file_is_redirected_to_the_other_host_without_the_token(local_hub: LocalHub) -> None:
    """Resolve leads to the CDN by an absolute 302 that already tells commit, size and sha256; the token stays behind."""
    from huggingface_hub import hf_hub_download

    data = bytes(range(256)) * 40
    repo = local_hub.add(LocalRepo("org/data", {"weights.bin": data}))
    assert Path(hf_hub_download("org/data", "weights.bin", token="hf_secret")).read_bytes() == data
    hub = [request for request in local_hub.requests if request.host == "hub"]
    cdn = [request for request in local_hub.requests if request.host == "cdn"]
    assert all(request.token == "hf_secret" for request in hub)
    assert [(r.method, r.status, r.bytes_sent, r.file) for r in cdn] == [
        ("GET", 200, len(data), "org/data/weights.bin")
    ]
    assert not any(request.authorized for request in cdn)
    url = f"{local_hub.endpoint}/org/data/resolve/main/weights.bin"
    redirect = session().get(url, follow_redirects=False)
    blob = repo.commits[repo.sha]["weights.bin"]
    assert redirect.status_code == 302
    assert redirect.headers["location"].startswith(f"{local_hub.cdn_endpoint}/")
    assert redirect.headers["x-repo-commit"] == repo.sha
    assert redirect.headers["x-linked-size"] == str(len(data))
    assert redirect.headers["x-linked-etag"] == f'"{blob.sha256}"'
    assert redirect.headers["x-xet-hash"] == blob.xet_hash
    assert redirect.links["xet-auth"]
    assert session().get(redirect.headers["location"]).headers["etag"] == f'"{blob.xet_hash}"'


def test_the_cdn_takes_only_addresses_that_the_hub_signed(local_hub: LocalHub) -> None:
    """A CDN address without its signature is refused, as a stale one would be."""
    local_hub.add(one_file_repo())
    location = (
        session()
        .head(f"{local_hub.endpoint}/org/one/resolve/main/model.safetensors", follow_redirects=False)
        .headers["location"]
    )
    assert session().get(location, headers={"Range": "bytes=0-7"}).status_code == 206
    assert session().get(location.partition("?")[0]).status_code == 403


@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("bytes=0-9", 0, 10), ("bytes=5-", 5, None), ("bytes=-4", -4, None), ("bytes=10-999999999", 10, None)],
)
def test_ranges(local_hub: LocalHub, path: str, asked: str, start: int, stop: int | None) -> None:
    """Both hosts answer a range as RFC 9110 says: 206, the bytes, and which ones they are."""
    local_hub.add(one_file_repo())
    whole = CONFIG if path == "config.json" else b"".join(pieces(ONE_FILE, 0, ONE_FILE.size))
    answer = session().get(f"{local_hub.endpoint}/org/one/resolve/main/{path}", headers={"Range": asked})
    expected = whole[start:stop]
    first = whole.index(expected) if start >= 0 else len(whole) + start
    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["content-range"] == f"bytes {first}-{first + len(expected) - 1}/{len(whole)}"


def test_a_range_beyond_the_end_is_refused(local_hub: LocalHub) -> None:
    """A range that starts behind the last byte is a 416 that tells the size."""
    local_hub.add(one_file_repo())
    url = f"{local_hub.endpoint}/org/one/resolve/main/model.safetensors"
    answer = session().get(url, headers={"Range": f"bytes={ONE_FILE.size}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{ONE_FILE.size}")


def test_safetensors_headers_of_one_file(local_hub: LocalHub) -> None:
    """The real client parses the header of a file whose data does not exist."""
    from huggingface_hub import get_safetensors_metadata

    local_hub.add(one_file_repo())
    found = get_safetensors_metadata("org/one")
    assert found.parameter_count == {"BF16": 2048, "F32": 64}
    tensors = found.files_metadata["model.safetensors"].tensors
    assert {name: tensor.data_offsets for name, tensor in tensors.items()} == {"w": (0, 4096), "b": (4096, 4352)}


def test_safetensors_headers_of_many_shards_come_one_by_one_or_all_at_once(local_hub: LocalHub) -> None:
    """Shards of 700 GB in all are served from memory, and both ways of the real client read the same from them."""
    from huggingface_hub import get_safetensors_metadata, get_sharded_safetensors_metadata

    repo = local_hub.add(sharded_repo(shards=40, rows=1_100_000_000))
    assert sum(blob.size_bytes for blob in repo.commits[repo.sha].values()) > 700e9
    one_by_one = get_safetensors_metadata("org/sharded")
    assert len([r for r in local_hub.requests if r.host == "cdn" and r.status == 206]) == 40
    local_hub.reset_log()
    at_once = get_sharded_safetensors_metadata("org/sharded")
    assert targets(local_hub) == [("GET", "hub", 200)]
    assert at_once.files_metadata == one_by_one.files_metadata
    assert at_once.weight_map == one_by_one.weight_map
    assert at_once.metadata == one_by_one.metadata
    assert at_once.parameter_count == {"BF16": 40 * 1_100_000_000 * 8}


def test_the_endpoint_of_all_headers_can_be_absent(local_hub: LocalHub) -> None:
    """A mirror does not have it: a bare 404, with no code that would mean a missing file."""
    from huggingface_hub import get_sharded_safetensors_metadata
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    local_hub.add(sharded_repo())
    with pytest.raises(RemoteEntryNotFoundError):
        get_sharded_safetensors_metadata("org/sharded", filename="other.index.json")
    local_hub.routes.serves_headers = False
    with pytest.raises(HfHubHTTPError) as caught:
        get_sharded_safetensors_metadata("org/sharded")
    assert type(caught.value) is HfHubHTTPError
    assert caught.value.response.status_code == 404


def test_large_json_answers_come_compressed_and_without_a_length(local_hub: LocalHub) -> None:
    """As the Hub does for who accepts gzip; who does not gets it plain."""
    local_hub.add(LocalRepo("org/many", {f"file-{n}.json": b"{}" for n in range(200)}))
    url = f"{local_hub.endpoint}/api/models/org/many"
    packed = session().get(url)
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-length" not in packed.headers
    plain = session().get(url, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert local_hub.requests[0].bytes_sent < local_hub.requests[1].bytes_sent == len(plain.content)


# --- who may not, and what is not there --------------------------------------------------------------------------------


def _download(repo_id: str, path: str, **options: Any) -> str:
    from huggingface_hub import hf_hub_download

    return str(hf_hub_download(repo_id, path, **options))


def test_a_gated_repository_tells_its_facts_but_not_its_files(local_hub: LocalHub) -> None:
    """Info, tree and paths-info stay public; files are 401 without and 403 with a token that has no access."""
    from huggingface_hub import HfApi, model_info
    from huggingface_hub.errors import GatedRepoError

    repo = local_hub.add(one_file_repo(gated="manual", allowed_tokens={"hf_member"}))
    assert model_info("org/one").gated == "manual"
    assert len(list(HfApi().list_repo_tree("org/one"))) == 2
    assert len(HfApi().get_paths_info("org/one", ["config.json"])) == 1
    for token, status in ((None, 401), ("hf_stranger", 403)):
        with pytest.raises(GatedRepoError) as caught:
            _download("org/one", "config.json", token=token)
        assert caught.value.response.status_code == status
    direct = f"{local_hub.endpoint}/api/resolve-cache/models/org/one/{repo.sha}/config.json"
    assert session().get(direct).status_code == 401
    assert Path(_download("org/one", "config.json", token="hf_member")).read_bytes() == CONFIG


@pytest.mark.parametrize("repo_id", ["org/missing", "org/private"])
def test_a_missing_repository_looks_like_a_private_one(local_hub: LocalHub, repo_id: str) -> None:
    """401 without any code for strangers (which the client types over https only), 404 RepoNotFound with a token."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    local_hub.add(one_file_repo("org/private", private=True, allowed_tokens={"hf_member"}))
    with pytest.raises(HfHubHTTPError) as caught:
        model_info(repo_id)
    assert not isinstance(caught.value, RepositoryNotFoundError)
    assert caught.value.response.status_code == 401
    assert caught.value.response.headers["x-error-message"] == "Invalid username or password."
    assert "x-error-code" not in caught.value.response.headers
    with pytest.raises(RepositoryNotFoundError) as known:
        model_info(repo_id, token="hf_stranger")
    assert known.value.response.status_code == 404
    assert model_info("org/private", token="hf_member").private


@pytest.mark.usefixtures("typed_401")
def test_a_bare_401_is_typed_as_over_https(local_hub: LocalHub) -> None:
    """With the fixture ``typed_401`` the client takes the 401 for a missing repository, as it does with the real Hub."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import RepositoryNotFoundError

    with pytest.raises(RepositoryNotFoundError):
        model_info("org/missing")
    assert local_hub.requests[0].status == 401


def test_an_invalid_token_reads_public_repositories(local_hub: LocalHub) -> None:
    """A wrong token is no hindrance where none is needed."""
    from huggingface_hub import model_info

    repo = local_hub.add(one_file_repo())
    local_hub.invalid_tokens.add("hf_wrong")
    assert model_info("org/one", token="hf_wrong").sha == repo.sha


def test_missing_files_and_revisions_have_their_codes(local_hub: LocalHub) -> None:
    """EntryNotFound comes with the commit, so that the client remembers the absence; RevisionNotFound without."""
    from huggingface_hub.errors import RemoteEntryNotFoundError, RevisionNotFoundError

    repo = local_hub.add(one_file_repo())
    with pytest.raises(RemoteEntryNotFoundError) as missing:
        _download("org/one", "generation_config.json")
    assert missing.value.response.headers["x-repo-commit"] == repo.sha
    with pytest.raises(RevisionNotFoundError):
        _download("org/one", "config.json", revision="no-such")


def test_a_disabled_repository(local_hub: LocalHub) -> None:
    """Info says so, files refuse."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, model_info
    from huggingface_hub.errors import DisabledRepoError

    local_hub.add(one_file_repo(disabled=True))
    assert model_info("org/one").disabled
    with pytest.raises(DisabledRepoError):
        get_hf_file_metadata(hf_hub_url("org/one", "config.json"))


def test_old_ids_redirect_and_keep_the_query(local_hub: LocalHub) -> None:
    """One-word, renamed and differently cased ids are 307, relative, and each hop of a chain is a request."""
    from huggingface_hub import model_info

    local_hub.add(one_file_repo("org/new", renamed_from=("one", "old/name")))
    local_hub.redirect("oldest/name", "old/name")
    for old, hops in (("one", 1), ("old/name", 1), ("oldest/name", 2), ("ORG/New", 1)):
        local_hub.reset_log()
        assert model_info(old, expand=["sha"]).id == "org/new"
        log = local_hub.requests
        assert [request.status for request in log] == [307] * hops + [200]
        assert {request.query for request in log} == {"expand=sha"}
        assert Path(_download(old, "config.json")).read_bytes() == CONFIG
    answer = session().get(f"{local_hub.endpoint}/api/models/one?blobs=true", follow_redirects=False)
    assert answer.headers["location"] == "/api/models/org/new?blobs=true"


# --- quotas and time -------------------------------------------------------------------------------------------------


def test_every_hub_answer_carries_the_rate_limit(local_hub: LocalHub) -> None:
    """Right or wrong, api or resolvers: the real client parses what remains. The CDN says nothing of it."""
    from huggingface_hub.utils import parse_ratelimit_headers

    local_hub.add(one_file_repo())
    base = local_hub.endpoint
    bucket = {}
    for path in ("api/models/org/one", "api/models/org/missing", "org/one/resolve/main/config.json"):
        limit = parse_ratelimit_headers(session().get(f"{base}/{path}").headers)
        assert limit is not None
        bucket[path] = (limit.resource_type, limit.limit, limit.remaining)
    assert list(bucket.values()) == [("api", 500, 499), ("api", 500, 498), ("resolvers", 3000, 2998)]
    signed_in = session().get(f"{base}/api/models/org/one", headers={"Authorization": "Bearer hf_x"})
    assert "q=1000" in signed_in.headers["ratelimit-policy"]
    cdn = session().get(f"{base}/org/one/resolve/main/model.safetensors", headers={"Range": "bytes=0-7"})
    assert "ratelimit" not in cdn.headers


def test_a_quota_runs_out() -> None:
    """The request beyond the quota is a 429 with an HTML page; each bucket has its own, and the CDN none."""
    with LocalHub(one_file_repo(), quotas={"api": 2}) as hub:
        client = session()
        answers = [client.get(f"{hub.endpoint}/api/models/org/one") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].text.startswith("<!DOCTYPE html>")
        assert '"api";r=0;' in answers[2].headers["ratelimit"]
        url = f"{hub.endpoint}/org/one/resolve/main/model.safetensors"
        assert [client.get(url, headers={"Range": "bytes=0-7"}).status_code for _ in range(4)] == [206] * 4


def test_latency_is_waited_on_both_hosts() -> None:
    """A request followed to the CDN takes at least two latencies."""
    with LocalHub(one_file_repo(), latency_seconds=0.1) as hub:
        before = time.monotonic()
        session().get(f"{hub.endpoint}/org/one/resolve/main/model.safetensors", headers={"Range": "bytes=0-7"})
        assert time.monotonic() - before >= 0.2


def test_requests_are_answered_in_parallel() -> None:
    """Sixteen clients wait for the same latency, not for each other."""
    with LocalHub(one_file_repo(), latency_seconds=0.2) as hub:
        client = session()
        url = f"{hub.endpoint}/api/models/org/one"
        threads = [threading.Thread(target=client.get, args=(url,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        starts = [request.started_at for request in hub.requests]
        assert len(starts) == 16
        assert max(starts) - min(starts) < 15 * 0.2  # one after the other takes at least that long


# --- faults ------------------------------------------------------------------------------------------------------------

RANGE = {"Range": "bytes=0-99"}


def weights_url(hub: LocalHub) -> str:
    """Where the weight file of ``one_file_repo`` is asked for."""
    return f"{hub.endpoint}/org/one/resolve/main/model.safetensors"


@pytest.mark.parametrize("status", [429, 500, 502, 503])
@pytest.mark.parametrize("html", [True, False])
def test_fault_status(local_hub: LocalHub, status: int, html: bool) -> None:
    """Any status, with a page or JSON for a body; the client types it, and a 429 tells when to come back."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import parse_ratelimit_headers

    local_hub.add(one_file_repo())
    local_hub.fault("status", "/api/models/", status=status, html=html, reset_seconds=55, times=1)
    with pytest.raises(HfHubHTTPError) as caught:
        model_info("org/one")
    answer = caught.value.response
    assert answer.status_code == status
    assert ("html" in answer.headers["content-type"]) is html
    limit = parse_ratelimit_headers(answer.headers)
    assert limit is not None
    assert (limit.remaining == 0 and limit.reset_in_seconds == 55) is (status == 429)
    assert model_info("org/one").id == "org/one"
    assert [request.fault for request in local_hub.requests] == ["status", None]


@pytest.mark.parametrize(
    ("kind", "error"),
    [("reset", "ReadError"), ("close", "RemoteProtocolError"), ("timeout", "ReadTimeout"), ("truncate", "RemoteProtocolError")],
)  # fmt: skip
@pytest.mark.parametrize("host", ["hub", "cdn"])
def test_faults_of_the_connection(local_hub: LocalHub, kind: FaultKind, error: str, host: Any) -> None:
    """A reset, a close, a silence and a cut body are what the client calls them, on either host; then all is well."""
    import httpx2

    local_hub.add(one_file_repo())
    fault = local_hub.fault(kind, "model.safetensors", host=host, times=1, seconds=1.5)
    with pytest.raises(getattr(httpx2, error)):
        session().get(weights_url(local_hub), headers=RANGE, timeout=0.3)
    assert local_hub.applied(fault) == 1
    assert session().get(weights_url(local_hub), headers=RANGE).content == ONE_FILE.prefix[:100]


def test_fault_truncate_of_a_compressed_answer(local_hub: LocalHub) -> None:
    """A chunked answer that is cut has no last chunk."""
    import httpx2

    local_hub.add(LocalRepo("org/many", {f"file-{n}.json": b"{}" for n in range(200)}))
    local_hub.fault("truncate", "org/many", keep=100)
    with pytest.raises(httpx2.RemoteProtocolError):
        session().get(f"{local_hub.endpoint}/api/models/org/many")
    assert local_hub.requests[0].bytes_sent == 100


def test_fault_wrong_length(local_hub: LocalHub) -> None:
    """A Content-Length below the truth cuts the answer without any sign; one above it is a broken connection."""
    import httpx2

    local_hub.add(one_file_repo())
    local_hub.fault("wrong_length", "resolve-cache", times=1)
    url = f"{local_hub.endpoint}/org/one/resolve/main/config.json"
    assert session().get(url).content == CONFIG[: len(CONFIG) // 2]
    local_hub.fault("wrong_length", "resolve-cache", length=10_000)
    with pytest.raises(httpx2.RemoteProtocolError):
        session().get(url)


def test_fault_ignore_range(local_hub: LocalHub) -> None:
    """The whole file comes instead of a range; a client that stops reading is seen to have stopped."""
    size = 50_000_000_000
    local_hub.add(LocalRepo("org/one", {"model.safetensors": SparseFile(ONE_FILE.prefix, size)}))
    local_hub.fault("ignore_range", host="cdn")
    with session().stream("GET", weights_url(local_hub), headers=RANGE) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-length"] == str(size)
        assert next(answer.iter_bytes())[:100] == ONE_FILE.prefix[:100]
    assert 100 <= local_hub.requests[-1].bytes_sent < 8_000_000


def test_fault_wrong_content(local_hub: LocalHub) -> None:
    """A page, or any bytes, with a status that says all is well."""
    local_hub.add(one_file_repo())
    local_hub.fault("wrong_content", "resolve-cache")
    local_hub.fault("wrong_content", host="cdn", body=b"\xff" * 100, status=206)
    page = session().get(f"{local_hub.endpoint}/org/one/resolve/main/config.json")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.text.startswith("<!DOCTYPE html>")
    garbage = session().get(weights_url(local_hub), headers=RANGE)
    assert (garbage.status_code, garbage.content) == (206, b"\xff" * 100)
    assert garbage.headers["content-range"] == f"bytes 0-99/{ONE_FILE.size}"


def test_fault_wrong_content_range(local_hub: LocalHub) -> None:
    """Other bytes than those asked for, or whatever the rule says, are announced."""
    local_hub.add(one_file_repo())
    local_hub.fault("wrong_content_range", host="cdn", times=1)
    local_hub.fault("wrong_content_range", host="cdn", content_range="bytes 0-99/*")
    announced = [session().get(weights_url(local_hub), headers=RANGE).headers["content-range"] for _ in range(2)]
    assert announced == [f"bytes 1000-1099/{ONE_FILE.size}", "bytes 0-99/*"]


def test_fault_slow(local_hub: LocalHub) -> None:
    """The body drips: headers at once, then no faster than the rate."""
    local_hub.add(one_file_repo())
    local_hub.fault("slow", host="cdn", bytes_per_second=200)
    heads = []
    for _ in range(5):  # on a busy machine the headers may once be late themselves
        before = time.monotonic()
        with session().stream("GET", weights_url(local_hub), headers=RANGE) as answer:
            heads.append(time.monotonic() - before)
            assert answer.read() == ONE_FILE.prefix[:100]
        assert time.monotonic() - before >= 0.45
        if heads[-1] < 0.45:
            break
    assert min(heads) < 0.45


def test_fault_headers(local_hub: LocalHub) -> None:
    """Single headers can be set and taken away."""
    local_hub.add(one_file_repo())
    local_hub.fault("headers", "/resolve/", headers={"X-Repo-Commit": None, "X-Linked-Size": "7"})
    answer = session().head(weights_url(local_hub), follow_redirects=False)
    assert "x-repo-commit" not in answer.headers
    assert answer.headers["x-linked-size"] == "7"


def test_fault_changed_commit(local_hub: LocalHub) -> None:
    """Between two requests of one client the branch moves."""
    from huggingface_hub import model_info

    repo = local_hub.add(one_file_repo())
    local_hub.add(one_file_repo("org/one-more"))
    first = repo.sha
    local_hub.fault("changed_commit", "org/one$", after=1, times=1, files={"config.json": "{}"})
    shas = [model_info("org/one").sha for _ in range(3)]
    assert shas == [first, repo.sha, repo.sha]
    assert first != repo.sha
    assert list(repo.commits[repo.sha]) == ["config.json"]
    assert list(repo.commits[first]) == ["config.json", "model.safetensors"]


def test_fault_endless_redirects(local_hub: LocalHub) -> None:
    """The client gives up on a redirect that never ends."""
    import httpx2

    local_hub.add(one_file_repo())
    local_hub.fault("endless_redirects", "/org/one/resolve/")
    with pytest.raises(httpx2.TooManyRedirects):
        session().get(weights_url(local_hub))
    assert len(local_hub.requests) > 10


def test_fault_redirect_to(local_hub: LocalHub) -> None:
    """A redirect anywhere, such as to a place that nobody serves."""
    import httpx2

    local_hub.add(one_file_repo())
    local_hub.fault("redirect_to", "/org/one/resolve/", location="http://127.0.0.1:9/elsewhere")
    with pytest.raises(httpx2.ConnectError):
        session().get(weights_url(local_hub))


def test_faults_begin_after_some_requests_and_end(local_hub: LocalHub) -> None:
    """``after`` and ``times`` count the requests that match; a predicate may choose them; clearing ends all."""
    local_hub.add(one_file_repo())
    url = f"{local_hub.endpoint}/api/models/org/one"
    fault = local_hub.fault("status", lambda request: "one" in request.path, status=503, after=2, times=3)
    assert [session().get(url).status_code for _ in range(7)] == [200, 200, 503, 503, 503, 200, 200]
    assert local_hub.applied(fault) == 3
    local_hub.fault("status", method="GET", status=500)
    assert session().head(url).status_code == 200
    assert session().get(url).status_code == 500
    local_hub.clear_faults()
    assert session().get(url).status_code == 200


# --- what the repositories are made of ---------------------------------------------------------------------------------


def test_safetensors_prefix_is_read_by_the_safetensors_library() -> None:
    """The library itself accepts the layout, whatever padding fills the file to a given size."""
    safetensors = pytest.importorskip("safetensors")
    tensors = [("w", "BF16", (3, 5)), ("b", "F32", (7,)), ("empty", "I64", (0, 4))]
    for size in (None, 1000):
        file = safetensors_prefix(tensors, {"format": "pt"}, size=size)
        data = b"".join(pieces(file, 0, file.size))
        assert len(data) == file.size == (size or file.size)
        found = {name: (tensor["dtype"], tuple(tensor["shape"])) for name, tensor in safetensors.deserialize(data)}
        assert found == {name: (dtype, shape) for name, dtype, shape in tensors}


def test_a_sparse_file_reads_as_prefix_and_zeros() -> None:
    """Any stretch of it is the same stretch of the bytes written out."""
    file = SparseFile(b"abc", 200_000)
    whole = b"abc" + bytes(199_997)
    for start, stop in ((0, 2), (1, 5), (3, 3), (2, 150_000), (199_999, 200_000), (0, 200_000)):
        assert b"".join(pieces(file, start, stop)) == whole[start:stop]
        assert b"".join(pieces(whole, start, stop)) == whole[start:stop]


def test_repo_from_snapshot_serves_what_was_read(local_hub: LocalHub) -> None:
    """The real client reads from the copy the totals, sizes, configs and headers of the snapshot it was made of."""
    from huggingface_hub import get_safetensors_metadata, model_info

    shards = tuple(
        WeightFile(
            path=f"model-0000{n}-of-00002.safetensors",
            size_bytes=10_000,
            format="safetensors",
            tensors=(TensorInfo(f"layer.{n}.weight", "BF16", (16, 4), 128),),
            metadata={"format": "pt"},
        )
        for n in (1, 2)
    )
    snapshot = RepoSnapshot(
        repo_id="org/copy",
        revision="main",
        commit="c" * 40,
        source="hub",
        files=(
            *(RepoFile(path=shard.path, size_bytes=10_000) for shard in shards),
            RepoFile(path="tokenizer.json", size_bytes=123),
        ),
        configs={"config.json": {"model_type": "llama"}},
        weights=shards,
        indexes=(WeightIndex(path=INDEX_PATH, total_size_bytes=256, weight_map={}),),
        card="# Copy",
        library_name="transformers",
        hub_parameters={"BF16": 128},
    )
    local_hub.add(repo_from_snapshot(snapshot))
    info = model_info("org/copy", files_metadata=True)
    assert info.sha == "c" * 40
    assert info.safetensors is not None
    assert info.safetensors.total == 128
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or ()}
    assert set(sizes) == {"README.md", "config.json", "tokenizer.json", INDEX_PATH, *(shard.path for shard in shards)}
    assert {sizes[shard.path] for shard in shards} == {10_000}
    assert sizes["tokenizer.json"] == 123
    found = get_safetensors_metadata("org/copy")
    assert found.weight_map == {f"layer.{n}.weight": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    assert found.metadata == {"total_size": 256}
    assert {(t.dtype, tuple(t.shape)) for f in found.files_metadata.values() for t in f.tensors.values()} == {
        ("BF16", (16, 4))
    }


# --- the fixtures ------------------------------------------------------------------------------------------------------


def test_child_processes_use_the_same_hub(local_hub: LocalHub) -> None:
    """The environment leads a child's client to the local Hub too, and asks it nothing else."""
    repo = local_hub.add(one_file_repo())
    script = "from huggingface_hub import model_info; print(model_info('org/one').sha)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == repo.sha
    assert [request.path for request in local_hub.requests] == ["/api/models/org/one"]


def test_no_test_leaves_this_machine(tmp_path: Path) -> None:
    """A test that tries, by name or by address, fails even where the code under test swallows the error."""
    tests = Path(__file__).parent
    (tmp_path / "test_leaving.py").write_text(
        "import contextlib, os, socket\n"
        "def test_by_name():\n"
        "    with contextlib.suppress(OSError):\n"
        "        socket.create_connection(('huggingface.co', 443), timeout=1)\n"
        "def test_by_address():\n"
        "    with contextlib.suppress(OSError), socket.socket() as sock:\n"
        "        sock.connect(('192.0.2.1', 443))\n"
        "def test_environment():\n"
        "    assert 'HF_TOKEN' not in os.environ\n"
        "    assert 'NO_COLOR' not in os.environ\n"
        "    assert os.environ['HF_ENDPOINT'].startswith('http://127.0.0.1:')\n"
        "    assert not os.path.samefile(os.environ['HOME'], os.path.dirname(__file__))\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    environment = {"PYTHONPATH": str(tests), "PATH": "", "HF_TOKEN": "hf_mine", "NO_COLOR": "1", "HOME": str(tmp_path)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
        timeout=300,
    )
    assert "3 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "tried to leave this machine for huggingface.co" in done.stdout
    assert "tried to leave this machine for 192.0.2.1" in done.stdout


def test_a_request_is_recorded_as_it_came(local_hub: LocalHub) -> None:
    """Path and query stay encoded, headers are lower case, and the token is told from its absence."""
    local_hub.add(one_file_repo(pull_requests={1: "main"}))
    url = f"{local_hub.endpoint}/api/models/org/one/revision/refs%2Fpr%2F1?expand[]=sha"
    session().get(url, headers={"Authorization": "Bearer hf_x", "Range": "bytes=0-1"})
    (record,) = local_hub.requests
    assert isinstance(record, Request)
    assert (record.method, record.host, record.status) == ("GET", "hub", 200)
    assert record.path == "/api/models/org/one/revision/refs%2Fpr%2F1"
    assert record.params == {"expand[]": ["sha"]}
    assert (record.authorized, record.token, record.range) == (True, "hf_x", "bytes=0-1")
    local_hub.reset_log()
    assert local_hub.requests == []
