"""Keeps one comment of a pull request up to date: `python comment.py SUMMARY.md`, in a step of GitHub Actions.

It needs GITHUB_TOKEN with `pull-requests: write`, and what every step has: GITHUB_API_URL, GITHUB_REPOSITORY, GITHUB_EVENT_PATH. The standard library
only. A comment that cannot be written (a pull request from a fork has no such token) is a warning, and never fails the job.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MARK = "<!-- hubaudit: this comment is kept up to date -->"
#: GitHub takes 65,536 characters.
MAX_CHARACTERS = 60_000
_PAGE = 100
_MAX_PAGES = 30
_SECONDS = 30


def main(summary: str) -> int:
    """Write or renew the comment."""
    number = pull_request()
    if number is None:
        print("::notice title=hubaudit::no pull request to comment on")
        return 0
    text = Path(summary).read_text(encoding="utf-8")
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + "\n\n(cut: the whole report is in the summary of the run)\n"
    body = {"body": f"{MARK}\n{text}"}
    issue = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    try:
        own = own_comment(f"{issue}/{number}/comments")
        if own is None:
            ask("POST", f"{issue}/{number}/comments", body)
        else:
            ask("PATCH", f"{issue}/comments/{own}", body)
    except (urllib.error.URLError, OSError, ValueError) as error:
        print(f"::warning title=hubaudit::the comment could not be written: {' '.join(str(error).split())}")
    return 0


def pull_request() -> int | None:
    """Its number, by the event that started the run."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        number = event["pull_request"]["number"]
    except (KeyError, OSError, ValueError, TypeError):
        return None
    return number if isinstance(number, int) else None


def own_comment(path: str) -> int | None:
    """The comment that an earlier run wrote: by its mark, and by a bot, for whoever else copies the mark keeps their comment."""
    for page in range(1, _MAX_PAGES + 1):
        comments = ask("GET", f"{path}?per_page={_PAGE}&page={page}")
        for comment in comments:
            if str(comment.get("body", "")).startswith(MARK) and comment.get("user", {}).get("type") == "Bot":
                return int(comment["id"])
        if len(comments) < _PAGE:
            return None
    return None


def ask(method: str, path: str, body: dict[str, str] | None = None) -> Any:
    """One question to GitHub's API; the answer's JSON."""
    request = urllib.request.Request(  # noqa: S310 - the address is the runner's own
        os.environ.get("GITHUB_API_URL", "https://api.github.com") + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "hubaudit",
        },
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
