"""What the Hub answers to a request that reaches it and with which nothing goes wrong."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from local_repo import Blob, LocalRepo, SparseFile, folder_item, header_of, model_info, tree_item
from local_wire import Answer, Refusal, Request, json_answer, json_text_answer, ranged, redirect_answer, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXPANDABLE = (
    "author", "baseModels", "cardData", "childrenModelCount", "config", "createdAt", "disabled", "downloads",
    "downloadsAllTime", "evalResults", "gated", "gguf", "inference", "inferenceProviderMapping", "lastModified",
    "library_name", "likes", "mask_token", "model-index", "pipeline_tag", "private", "resourceGroup", "safetensors", "sha",
    "siblings", "spaces", "tags", "transformersInfo", "trendingScore", "usedStorage", "widgetData",
)  # fmt: skip
LISTED_KEYS = ("_id", "id", "modelId", "likes", "downloads", "private", "tags", "pipeline_tag", "library_name")
SUBPATHS = ("revision", "tree", "paths-info", "safetensors-metadata", "refs", "commits")
BAD_LOGIN = "Invalid username or password."
CDN_URL_SECONDS = 3600
MAX_NAMED_PATHS = 2000


class Routes:
    """Both hosts' answers, from the repositories they are given."""

    def __init__(self, *, serves_headers: bool, tree_page: int, xet: bool, compress: bool) -> None:
        self.repos: dict[str, LocalRepo] = {}
        self.redirects: dict[str, str] = {}
        self.collections: dict[str, list[tuple[str, str]]] = {}
        self.invalid_tokens: set[str] = set()
        self.serves_headers = serves_headers
        self.tree_page = tree_page
        self.xet = xet
        self.compress = compress
        self.endpoint = ""
        self.cdn_endpoint = ""
        self._gzip_cache: dict[bytes, bytes] = {}
        self._headers_cache: dict[tuple[str, str, str], bytes] = {}
        self._by_lower_id: dict[str, str] = {}
        self._by_cdn_path: dict[str, tuple[LocalRepo, Blob]] = {}

    def add(self, repo: LocalRepo) -> None:
        """Serves one more repository, under its id, its old ids and any letter case of them."""
        self.repos[repo.repo_id] = repo
        self._by_lower_id[repo.repo_id.lower()] = repo.repo_id
        for old in repo.renamed_from:
            self.add_redirect(old, repo.repo_id)

    def add_redirect(self, old_id: str, new_id: str) -> None:
        """Redirects one id, in any letter case, to another."""
        self.redirects[old_id] = new_id
        self._by_lower_id[old_id.lower()] = old_id

    def cdn_file(self, path: str) -> str:
        """``repo_id/path`` of the file behind a CDN address, empty where there is none."""
        found = self._by_cdn_path.get(path)
        return f"{found[0].repo_id}/{found[1].path}" if found else ""

    def answer(self, request: Request) -> Answer:
        """What the host answers, right or refused."""
        try:
            answer = self._cdn(request) if request.host == "cdn" else self._hub(request)
        except Refusal as refusal:
            answer = refusal.answer
        return self._compressed(answer, request)

    def _compressed(self, answer: Answer, request: Request) -> Answer:
        """As the Hub sends its larger JSON answers to who accepts gzip: compressed and chunked, so without a length."""
        is_json = answer.headers.get("Content-Type", "").startswith("application/json") and request.path.startswith(
            "/api/"
        )
        content = answer.content
        if not (
            self.compress and is_json and answer.status == 200 and isinstance(content, bytes) and answer.length > 1000
        ):
            return answer
        if "gzip" not in request.headers.get("accept-encoding", "") or request.range is not None:
            return answer
        if content not in self._gzip_cache:
            self._gzip_cache[content] = gzip.compress(content, 1, mtime=0)
        packed = self._gzip_cache[content]
        headers = answer.headers | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Answer(status=200, headers=headers, content=packed, chunked=True)

    # --- the Hub -----------------------------------------------------------------------------------------------------

    def _hub(self, request: Request) -> Answer:
        segments = [unquote(segment) for segment in request.path.split("/")[1:]]
        if segments[:2] == ["api", "resolve-cache"]:
            return self._resolve_cache(request, segments[3:])
        if segments[:2] == ["api", "models"] and len(segments) > 2:
            return self._model(request, segments[2:])
        if segments[:2] == ["api", "collections"]:
            return self._collection("/".join(segments[2:]))
        named: dict[str, Callable[[Request], Answer]] = {
            "/api/models": self._listing,
            "/api/whoami-v2": self._whoami,
            "/api/agent-harnesses": lambda _: json_answer({"standardEnvVars": [], "harnesses": {}}),
        }
        if request.path in named:
            return named[request.path](request)
        if segments[:1] != ["api"] and "resolve" in segments[1:3]:
            return self._resolve(request, segments)
        raise refuse(404, "Sorry, we can't find the page you are looking for.")

    def _repo(self, request: Request, repo_id: str) -> LocalRepo:
        """The repository of that exact id that the asker may see; a redirect or a refusal otherwise."""
        known = (
            repo_id if repo_id in self.repos else self.redirects.get(repo_id) or self._by_lower_id.get(repo_id.lower())
        )
        target = self.redirects.get(known, known) if known is not None else None
        repo = self.repos.get(target) if target is not None else None
        if known is not None and known != repo_id and (repo is None or repo.visible_to(request.token)):
            path = re.sub(f"/{re.escape(quote(repo_id))}(?=/|$)", f"/{quote(known)}", request.path, count=1)
            raise Refusal(redirect_answer(307, path + (f"?{request.query}" if request.query else "")))
        if repo is not None and repo.visible_to(request.token):
            return repo
        if request.token in self.invalid_tokens:
            raise refuse(401, "Invalid credentials in Authorization header")
        if request.token is None:
            raise refuse(401, BAD_LOGIN)
        raise refuse(404, "Repository not found", "RepoNotFound")

    def _commit(self, repo: LocalRepo, revision: str) -> str:
        sha = repo.find_commit(revision)
        if sha is None:
            raise refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def _may_read(self, repo: LocalRepo, request: Request) -> None:
        if repo.disabled:
            raise refuse(403, "Access to this resource is disabled.")
        if repo.readable_by(request.token):
            return
        restricted = f"Access to model {repo.repo_id} is restricted"
        if request.token is None:
            login = "You must have access to it and be authenticated to access it. Please log in."
            raise refuse(401, f"{restricted}. {login}", "GatedRepo")
        ask = f"Visit https://huggingface.co/{repo.repo_id} to ask for access."
        raise refuse(403, f"{restricted} and you are not in the authorized list. {ask}", "GatedRepo")

    def _blob(self, repo: LocalRepo, sha: str, path: str) -> Blob:
        blob = repo.commits[sha].get(path)
        if blob is None:
            raise refuse(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": sha})
        return blob

    def _model(self, request: Request, segments: list[str]) -> Answer:
        words = 1 if len(segments) == 1 or segments[1] in SUBPATHS else 2
        repo = self._repo(request, "/".join(segments[:words]))
        rest = segments[words:]
        if not rest or rest[0] == "revision":
            sha = self._commit(repo, "/".join(rest[1:2]) or "main")
            if len(rest) > 2:
                raise refuse(404, "Sorry, we can't find the page you are looking for.")
            return self._info(request, repo, sha)
        routes = {
            "tree": self._tree,
            "paths-info": self._paths_info,
            "safetensors-metadata": self._safetensors_metadata,
            "refs": self._refs,
        }
        if rest[0] not in routes:
            raise refuse(404, "Sorry, we can't find the page you are looking for.")
        return routes[rest[0]](request, repo, rest[1:])

    def _expand(self, request: Request) -> list[str]:
        keys = request.params.get("expand[]", []) + request.params.get("expand", [])
        if any(key not in EXPANDABLE for key in keys):
            valid = "|".join(f'"{key}"' for key in EXPANDABLE)
            raise refuse(400, f"Invalid option: expected one of {valid} at expand[0]")
        return keys

    def _info(self, request: Request, repo: LocalRepo, sha: str) -> Answer:
        expand = self._expand(request)
        blobs = request.params.get("blobs", ["false"])[0].lower() in ("true", "1")
        if expand and blobs:
            raise refuse(400, "`expand` and `blobs` cannot be used together")
        info = model_info(repo, sha, blobs=blobs)
        return json_answer({key: info[key] for key in ("_id", "id", *expand) if key in info} if expand else info)

    def _listing(self, request: Request) -> Answer:
        params = {key: values[-1] for key, values in request.params.items()}
        expand = self._expand(request)
        found = [repo for repo in self.repos.values() if repo.visible_to(request.token)]
        if "author" in params:
            found = [repo for repo in found if repo.repo_id.split("/")[0].lower() == params["author"].lower()]
        if "search" in params:
            found = [repo for repo in found if params["search"].lower() in repo.repo_id.lower()]
        limit = min(int(params.get("limit", 1000)), 1000)
        start = _cursor_start(params.get("cursor"))
        infos = [model_info(repo, repo.sha) for repo in found[start : start + limit]]
        keys = ("_id", "id", *expand) if expand else LISTED_KEYS
        answer = json_answer([{key: info[key] for key in keys if key in info} for info in infos])
        if start + limit < len(found):
            answer.headers["Link"] = self._next_link(request, start + limit)
        return answer

    def _collection(self, slug: str) -> Answer:
        """Items of every type by (type, id); only the fields that huggingface_hub's ``Collection`` needs."""
        if slug not in self.collections:
            raise refuse(404, "Collection not found")
        items = [
            {"_id": f"{at:024x}", "type": kind, "id": name, "position": at}
            for at, (kind, name) in enumerate(self.collections[slug])
        ]
        owner = {"name": slug.partition("/")[0]}
        shown = {"slug": slug, "title": slug, "owner": owner, "items": items, "theme": "orange", "upvotes": 0}
        return json_answer({**shown, "lastUpdated": "2026-01-01T00:00:00.000Z", "position": 0, "private": False})

    def _next_link(self, request: Request, start: int) -> str:
        cursor = base64.b64encode(json.dumps({"start": start}).encode()).decode()
        params = [(key, value) for key, values in request.params.items() if key != "cursor" for value in values]
        return f'<{self.endpoint}{request.path}?{urlencode([*params, ("cursor", cursor)])}>; rel="next"'

    def _tree(self, request: Request, repo: LocalRepo, rest: list[str]) -> Answer:
        sha = self._commit(repo, rest[0] if rest else "main")
        folder = "/".join(rest[1:]).strip("/")
        recursive, expand = (
            request.params.get(key, [""])[0].lower() in ("true", "1") for key in ("recursive", "expand")
        )
        items = _tree_items(repo.commits[sha], folder, recursive=recursive, expand=expand)
        if not items and folder:
            raise refuse(404, f"{folder} does not exist on {rest[0]!r}", "EntryNotFound", {"X-Repo-Commit": sha})
        page = min(self.tree_page, 50 if expand else 1000, int(request.params.get("limit", ["1000"])[0]))
        start = _cursor_start(request.params.get("cursor", [None])[0])
        answer = json_answer(items[start : start + page])
        answer.headers["X-Repo-Commit"] = sha
        if start + page < len(items):
            answer.headers["Link"] = self._next_link(request, start + page)
        return answer

    def _paths_info(self, request: Request, repo: LocalRepo, rest: list[str]) -> Answer:
        sha = self._commit(repo, rest[0] if rest else "main")
        body = request.body.decode()
        if request.headers.get("content-type", "").startswith("application/json"):
            asked = json.loads(body or "{}")
            paths, expand = list(asked.get("paths", [])), bool(asked.get("expand"))
        else:
            form = parse_qs(body)
            paths, expand = form.get("paths", []), form.get("expand", [""])[0].lower() == "true"
        if len(paths) > MAX_NAMED_PATHS:
            raise refuse(400, f"at most {MAX_NAMED_PATHS} paths")
        tree = repo.commits[sha]
        folders = {path for path in paths if any(name.startswith(f"{path}/") for name in tree)}
        items = [tree_item(tree[path], expand=expand) if path in tree else folder_item(path) for path in paths
                 if path in tree or path in folders]  # fmt: skip
        return json_answer(items)

    def _refs(self, request: Request, repo: LocalRepo, rest: list[str]) -> Answer:
        def shown(names: list[str], prefix: str) -> list[dict[str, str]]:
            return [{"name": n, "ref": f"{prefix}{n}", "targetCommit": repo.refs[n]} for n in names]

        tags = sorted(repo.tag_names)
        branches = [name for name in repo.refs if name not in repo.tag_names and not name.startswith("refs/")]
        answer = {"branches": shown(branches, "refs/heads/"), "tags": shown(tags, "refs/tags/"), "converts": []}
        if request.params.get("include_prs"):
            proposed = [name for name in repo.refs if name.startswith("refs/pr/")]
            answer["pullRequests"] = [{"name": n, "ref": n, "targetCommit": repo.refs[n]} for n in proposed]
        return json_answer(answer)

    def _safetensors_metadata(self, request: Request, repo: LocalRepo, rest: list[str]) -> Answer:
        """Every shard header of ``main`` at once. Its refusals are guesses: nobody recorded the Hub's."""
        path = "/".join(rest)
        if not self.serves_headers:
            raise refuse(404, "Not Found")
        self._may_read(repo, request)
        key = (repo.repo_id, repo.sha, path)
        if key not in self._headers_cache:
            index = self._blob(repo, repo.sha, path)
            try:
                self._headers_cache[key] = _headers_text(repo.commits[repo.sha], index)
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise refuse(400, f"Could not read the safetensors headers of {path}: {error}") from error
        return json_text_answer(self._headers_cache[key])

    def _whoami(self, request: Request) -> Answer:
        if request.token is None:
            raise refuse(401, BAD_LOGIN)
        if request.token in self.invalid_tokens:
            raise refuse(401, "Invalid credentials in Authorization header")
        access = {"type": "access_token", "accessToken": {"displayName": "local", "role": "read"}}
        return json_answer({"type": "user", "id": "0" * 24, "name": "local-user", "orgs": [], "auth": access})

    # --- files -------------------------------------------------------------------------------------------------------

    def _resolve(self, request: Request, segments: list[str]) -> Answer:
        at = segments.index("resolve", 1)
        if len(segments) < at + 3:
            raise refuse(404, "Sorry, we can't find the page you are looking for.")
        repo = self._repo(request, "/".join(segments[:at]))
        self._may_read(repo, request)
        revision, path = segments[at + 1], "/".join(segments[at + 2 :])
        sha = self._commit(repo, revision)
        blob = self._blob(repo, sha, path)
        return self._to_cdn(repo, sha, blob) if blob.lfs else self._to_cache(request, repo, sha, blob)

    def _to_cache(self, request: Request, repo: LocalRepo, sha: str, blob: Blob) -> Answer:
        """The 307 itself tells nothing of the file: no recorded answer shows that it does."""
        place = f"/api/resolve-cache/models/{quote(repo.repo_id)}/{sha}/{quote(blob.path)}"
        query = f"{quote(request.path, safe='')}=&etag=%22{blob.git_oid}%22"
        return redirect_answer(307, f"{place}?{query}")

    def _to_cdn(self, repo: LocalRepo, sha: str, blob: Blob) -> Answer:
        path = f"/xet-bridge-us/{repo.internal_id}/{blob.xet_hash}"
        self._by_cdn_path[path] = (repo, blob)
        name = quote(blob.path.rpartition("/")[2])
        shown = f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"
        expires = int(time.time()) + CDN_URL_SECONDS
        query = {"response-content-disposition": shown, "Expires": expires, "Signature": _signature(path, expires)}
        answer = redirect_answer(302, f"{self.cdn_endpoint}{path}?{urlencode({'X-Xet-Cas-Uid': 'public', **query})}")
        answer.headers |= {
            "X-Repo-Commit": sha,
            "X-Linked-Size": str(blob.size_bytes),
            "X-Linked-Etag": f'"{blob.etag}"',
            "Accept-Ranges": "bytes",
        }
        if self.xet:
            answer.headers["X-Xet-Hash"] = blob.xet_hash
            route = f"{self.endpoint}/api/models/{repo.repo_id}/xet-read-token/{sha}"
            answer.headers["Link"] = f'<{route}>; rel="xet-auth"'
        return answer

    def _resolve_cache(self, request: Request, segments: list[str]) -> Answer:
        """``{id}/{40 hex}/{path}``: the file itself, for the commit only."""
        at = next((i for i, part in enumerate(segments) if i in (1, 2) and re.fullmatch(r"[0-9a-f]{40}", part)), None)
        if at is None or len(segments) < at + 2:
            raise refuse(400, "Invalid commit hash")
        repo = self._repo(request, "/".join(segments[:at]))
        self._may_read(repo, request)
        sha = self._commit(repo, segments[at])
        blob = self._blob(repo, sha, "/".join(segments[at + 1 :]))
        if blob.lfs:
            raise refuse(400, "Not a small file")
        etag = f'"{blob.git_oid}"'
        kind = "application/json" if blob.path.endswith(".json") else "text/plain; charset=utf-8"
        headers = {"ETag": etag, "X-Repo-Commit": sha, "Content-Type": kind}
        if request.headers.get("if-none-match", "").removeprefix("W/") == etag:
            return Answer(status=304, headers={"ETag": etag, "X-Repo-Commit": sha})
        return ranged(Answer(status=200, headers=headers, content=blob.content), request.range)

    def _cdn(self, request: Request) -> Answer:
        found = self._by_cdn_path.get(request.path)
        expires = request.params.get("Expires", ["0"])[0]
        signed = request.params.get("Signature") == [_signature(request.path, expires)]
        if found is None or not signed or int(expires) < time.time():
            text = b"<Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>"
            raise Refusal(Answer(status=403, headers={"Content-Type": "text/xml"}, content=text))
        blob = found[1]
        headers = {"ETag": f'"{blob.xet_hash}"', "Content-Type": "application/octet-stream"}
        return ranged(Answer(status=200, headers=headers, content=blob.content), request.range)


def _signature(path: str, expires: int | str) -> str:
    return base64.urlsafe_b64encode(f"signed {path} {expires}".encode()).decode()


def _cursor_start(cursor: str | None) -> int:
    return int(json.loads(base64.b64decode(cursor))["start"]) if cursor else 0


def _tree_items(tree: Mapping[str, Blob], folder: str, *, recursive: bool, expand: bool) -> list[dict[str, Any]]:
    prefix = f"{folder}/" if folder else ""
    items: dict[str, dict[str, Any]] = {}
    for path, blob in tree.items():
        if not path.startswith(prefix):
            continue
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            parent = prefix + "/".join(parts[:depth])
            items.setdefault(parent, folder_item(parent))
        if recursive or len(parts) == 1:
            items[path] = tree_item(blob, expand=expand)
    return [items[path] for path in sorted(items)]


def _headers_text(tree: Mapping[str, Blob], index: Blob) -> bytes:
    """The answer with every shard's header as it is written in the file. The index's own weight map is left out."""
    if isinstance(index.content, SparseFile):
        raise TypeError("the index has no data")
    body = json.loads(index.content)
    folder = index.path.rpartition("/")[0]
    parts = []
    for shard in sorted(set(body["weight_map"].values())):
        header = header_of(tree[f"{folder}/{shard}" if folder else shard].content)
        parts.append(json.dumps(shard).encode() + b":" + header.rstrip())
    metadata = json.dumps({"metadata": body.get("metadata")}).encode()
    return b'{"index":' + metadata + b',"headers":{' + b",".join(parts) + b"}}"
