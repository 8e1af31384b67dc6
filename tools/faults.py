"""Writes docs/faults.md: what becomes of an audit when one of its requests goes wrong, once or for ever, tried on the local Hub of the tests.

    python tools/faults.py              try all, and write the page
    python tools/faults.py --check      try all, and fail where the page says another thing
    python tools/faults.py --only TEXT  try only the requests whose subject or name holds TEXT, and print what came

Every report that is given in spite of a fault is held against the one that is given without, at the same commit. A wrong number, a traceback, a
question that takes longer than it may, or an answer in the cache that outlives the fault ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "faults.md"
#: Seconds that a cell of the table may take on a busy machine. What bounds it is Patience; a hang takes for ever.
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is audited, with the requests that it takes: a name for the table, and what the local Hub knows each by."""

    title: str
    words: tuple[str, ...]
    requests: dict[str, tuple[str, dict[str, Any]]]


def _hop(match: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return match, options


SUBJECTS = (
    Subject(
        title="A model in one file",
        words=("org/one",),
        requests={
            "model info": _hop(r"/api/models/org/one\?"),
            "config.json": _hop("org/one/resolve/.*config.json"),
            "config.json, redirected": _hop("/resolve-cache/.*org/one/.*config.json"),
            "header": _hop("org/one/resolve/.*model.safetensors"),
            "header, at the CDN": _hop("org/one/model.safetensors", host="cdn"),
        },
    ),
    Subject(
        title="A header of two ranges",
        words=("org/long",),
        requests={"second range, at the CDN": _hop("org/long/model.safetensors", host="cdn", after=1)},
    ),
    Subject(
        title="A sharded model",
        words=("org/sharded",),
        requests={
            "model info": _hop(r"/api/models/org/sharded\?blobs"),
            "all headers at once": _hop("/safetensors-metadata/"),
            "its commit": _hop(r"org/sharded\?expand\[\]=sha"),
        },
    ),
    Subject(
        title="A sharded model at a tag",
        words=("org/ranged@v1",),
        requests={
            "index": _hop("org/ranged/resolve/.*index.json"),
            "index, redirected": _hop("/resolve-cache/.*org/ranged/.*index.json"),
            "one shard": _hop("org/ranged/resolve/.*00003-of"),
            "one shard, at the CDN": _hop("org/ranged/.*00003-of", host="cdn"),
        },
    ),
    Subject(
        title="An adapter",
        words=("org/lora",),
        requests={
            "adapter_config.json": _hop("org/lora/resolve/.*adapter_config.json"),
            "its base's model info": _hop(r"/api/models/org/one\?"),
            "its base's header, at the CDN": _hop("org/one/model.safetensors", host="cdn"),
        },
    ),
    Subject(
        title="A batch of four models",
        words=("org/one", "org/long", "org/sharded", "org/ranged@v1"),
        requests={
            "one model info": _hop(r"/api/models/org/one\?"),
            "one config.json": _hop("org/one/resolve/.*config.json"),
            "one header, at the CDN": _hop("org/one/model.safetensors", host="cdn"),
            "every model info": _hop("/api/models/.*blobs"),
            "everything at the CDN": _hop("", host="cdn"),
        },
    ),
)

_ALONE = "org/alone"
HTML_AS_JSON = b'{"error": "Something went wrong"}'
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no answer": ("timeout", {}),
    "connection reset": ("reset", {}),
    "connection closed": ("close", {}),
    "500": ("status", {"status": 500}),
    "503 as JSON": ("status", {"status": 503, "html": False}),
    "429, quota back in 1 s": ("status", {"status": 429, "reset_seconds": 1}),
    "429, quota back in 250 s": ("status", {"status": 429, "reset_seconds": 250}),
    "429 without RateLimit": ("status", {"status": 429, "headers": {"RateLimit": None, "RateLimit-Policy": None}}),
    "403": ("status", {"status": 403}),
    "404": ("status", {"status": 404}),
    "cut off in the middle": ("truncate", {}),
    "cut off at once": ("truncate", {"keep": 0}),
    "half the length announced": ("wrong_length", {}),
    "Range ignored": ("ignore_range", {}),
    "another range": ("wrong_content_range", {}),
    "a web page": ("wrong_content", {}),
    "a web page as that range": ("wrong_content", {"status": 206}),
    "other JSON": ("wrong_content", {"body": HTML_AS_JSON}),
    "nothing, with 200": ("wrong_content", {"body": b""}),
    "as many other bytes": ("garbled", {}),
    "one digit altered": ("altered", {}),
    "a byte a second": ("slow", {}),
    "redirects without end": ("endless_redirects", {}),
    "redirected to nobody": ("redirect_to", {"location": "http://127.0.0.1:9/"}),
    "new commit just before": ("changed_commit", {}),
}
TAKES_FOR_EVER = ("timeout", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place of the table: a request of a subject, what goes wrong with it, and whether only the first time."""

    subject: Subject
    request: str
    fault: str
    once: bool

    @property
    def kind(self) -> str:
        """What the local Hub calls the fault."""
        return FAULTS[self.fault][0]

    @property
    def is_batch(self) -> bool:
        """Whether several models are audited in one run."""
        return len(self.subject.words) > 1

    def __str__(self) -> str:
        return f"{self.subject.title} / {self.request} / {self.fault} / {'once' if self.once else 'for ever'}"


def is_tried(request: str, fault: str) -> bool:
    """An altered digit shows only in what the listing has the hash of, or by luck."""
    return fault != "one digit altered" or "config.json" in request or "index" in request


def cells() -> Iterator[Cell]:
    """The whole table."""
    for subject in SUBJECTS:
        for request in subject.requests:
            for fault in FAULTS:
                for once in (True, False) if is_tried(request, fault) else ():
                    yield Cell(subject=subject, request=request, fault=fault, once=once)


# --- a Hub, and a client without long waits ------------------------------------------------------------------------------


def furnish(hub: Any) -> None:
    """Puts the subjects there as they are in the beginning."""
    from local_hub import LocalRepo, safetensors_prefix
    from small_repos import CONFIG, TENSORS, one_file, sharded

    hub.quotas = dict.fromkeys(("api", "resolvers", "pages"), 10**7)  # a batch keeps to its share of what is told
    long = safetensors_prefix(TENSORS, {"format": "pt", "note": "words " * 6000})
    hub.add(one_file())
    hub.add(LocalRepo("org/long", {"config.json": json.dumps(CONFIG), "model.safetensors": long}))
    hub.add(sharded())
    hub.add(sharded("org/ranged", tags={"v1": "main"}))
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "org/one", "r": 8, "target_modules": ["q_proj"]}
    pairs = [("A", (8, 32)), ("B", (32, 8))]
    weights = [
        (f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{name}.weight", "F32", shape)
        for layer in range(4)
        for name, shape in pairs
    ]
    files = {"adapter_config.json": json.dumps(adapter), "adapter_model.safetensors": safetensors_prefix(weights)}
    hub.add(LocalRepo("org/lora", files))
    alone = {**files, "adapter_config.json": json.dumps({**adapter, "base_model_name_or_path": "org/gone"})}
    hub.add(LocalRepo(_ALONE, alone))


@contextlib.contextmanager
def patience(*, is_short: bool) -> Iterator[None]:
    """Waits between repetitions are hundredths of a second; where ``is_short``, answers are given up after a second, not a minute."""
    from huggingface_hub import constants

    from hubaudit.hub import budget, session

    quick = session.Patience(retries=2, first_wait_seconds=0.01, answer_seconds=30.0, rate_limit_seconds=1.0)
    kept = session.Patience, constants.HF_HUB_DOWNLOAD_TIMEOUT, budget._UNTOLD_SECONDS, budget._SAFETY_SECONDS
    chosen = replace(quick, retries=1, answer_seconds=1.5) if is_short else quick
    session.Patience = lambda: chosen  # type: ignore[assignment, misc]
    constants.HF_HUB_DOWNLOAD_TIMEOUT = 0.5 if is_short else 10  # type: ignore[assignment]
    budget._UNTOLD_SECONDS, budget._SAFETY_SECONDS = 0, 0.01
    try:
        yield
    finally:
        session.Patience, constants.HF_HUB_DOWNLOAD_TIMEOUT, budget._UNTOLD_SECONDS, budget._SAFETY_SECONDS = kept  # type: ignore[misc]


def run(*words: str) -> tuple[int, str, str]:
    """The command line in this process: exit code, stdout and stderr."""
    from hubaudit import cli

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["hubaudit", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli._run()
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


# --- one cell ------------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """The local Hub, and the reports that are given while nothing goes wrong."""

    hub: Any
    truths: dict[str, Any] = field(default_factory=dict)

    def truth(self, name: str, commit: str | None) -> dict[str, Any]:
        """The report of ``name`` at ``commit`` as the subjects are in the beginning."""
        at = f"{name.partition('@')[0]}@{commit}" if commit else name
        if at not in self.truths:
            self.truths[at] = self._now(at)
        found: dict[str, Any] = self.truths[at]
        return found

    def _now(self, name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = run(name, "--json", "--cache-dir", folder)
        assert code == 0, err
        return timeless(json.loads(out))

    def _begin(self, cell: Cell) -> None:
        furnish(self.hub)
        for word in cell.subject.words:
            name, _, revision = word.partition("@")
            self.truth(word, self.hub.routes.repos[name].find_commit(revision or "main"))

    def _truths(self, cell: Cell, document: dict[str, Any]) -> list[dict[str, Any]]:
        """What the report of a cell may be: of its own commit, and, where an adapter's base moved meanwhile, of the base before or after."""
        name, commit = cell.subject.words[0].partition("@")[0], document["subject"]["commit"]
        expected = [self.truth(name, commit)]
        return [*expected, self._now(f"{name}@{commit}")] if cell.kind == "changed_commit" else expected

    def outcome(self, cell: Cell) -> str:
        """What becomes of the audit, in the words of the table.

        Raises:
            AssertionError: a number was wrong, something else than an error of ours was raised, it took too long, or the cache was spoilt.
        """
        self._begin(cell)
        kind, options = FAULTS[cell.fault]
        if cell.is_batch and options.get("reset_seconds", 0) > 1:
            options = {**options, "reset_seconds": 2}  # a batch waits for it
        match, narrowed = cell.subject.requests[cell.request]
        rule = self.hub.fault(kind, match, times=1 if cell.once else None, **_new_commit(cell), **options, **narrowed)
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                with patience(is_short=kind in TAKES_FOR_EVER):
                    ended = run(*_words(cell, Path(folder)))
                seconds = time.monotonic() - started
                assert self.hub.applied(rule), f"{cell}: the request was not made"
            finally:
                self.hub.clear_faults()
            assert seconds < LONGEST_SECONDS, f"{cell}: {seconds:.0f} s"
            assert not any(one.authorized for one in self.hub.requests if one.host == "cdn"), (
                f"{cell}: token at the CDN"
            )
            said = self._batch(cell, Path(folder), *ended) if cell.is_batch else self._judged(cell, *ended)
            self._afterwards(cell, Path(folder))
        self.hub.reset_log()
        return said

    def _judged(self, cell: Cell, code: int, out: str, err: str) -> str:
        document = json.loads(out)
        if code == 0:
            return self._held(cell, document)
        error = document["error"]
        assert code in (3, 4, 5), f"{cell}: exit code {code}: {err}"
        assert "facts" not in document, f"{cell}: half an answer"
        assert err.splitlines() == [f"error: {error['message']}", "", f"hint: {error['hint']}"], f"{cell}: {err}"
        return f"{error['kind']} {code}"

    def _held(self, cell: Cell, document: dict[str, Any]) -> str:
        """A report is the one without the fault, or says what it lacks and gives no number that is not in that one."""
        truth, *_ = truths = self._truths(cell, document)
        given = timeless(document)
        if given in truths:
            return "="
        broken = sorted({one["rule"] for one in given["findings"] if one not in truth["findings"]})
        is_said = set(given["facts"]["missing"]) > set(truth["facts"]["missing"])
        assert broken or is_said, f"{cell}: something is missing, and nothing says so: {differing(given, truth)}"
        # An adapter whose base may not be read is counted by itself.
        expected = self.truth(_ALONE, None) if "adapter-base-missing" in broken else truth
        wrong = list(_differences(given, expected))
        assert not wrong, f"{cell}: {wrong[:5]}"
        return f"lacks ({', '.join(broken or ['missing'])})"

    def _batch(self, cell: Cell, folder: Path, code: int, _: str, err: str) -> str:
        assert "Traceback" not in err, f"{cell}: {err}"
        states = self._rows(cell, folder)
        if set(states.values()) == {"audited"}:
            assert code == 0, f"{cell}: {code} {err}"
            return "="
        counts = {state: list(states.values()).count(state) for state in ("later", "access", "never", "lacks")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count) + f", exit {code}"

    def _rows(self, cell: Cell, folder: Path) -> dict[str, str]:
        """The state of each model, none lost and none doubled; every report as it should be."""
        lines = (folder / "run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        rows = {row["name"]: row for row in map(json.loads, lines)}
        assert set(rows) == set(cell.subject.words), f"{cell}: {sorted(rows)}"
        states = {}
        for name, row in rows.items():
            document, states[name] = row["document"], row["state"]
            assert row["state"] in ("audited", "later", "access", "never"), f"{cell}: {row}"
            if row["state"] == "audited":
                truth = self.truth(name, document["subject"]["commit"])
                (audited,) = document["audits"]
                given = timeless(
                    {"facts": document["facts"], "estimate": audited["estimate"], "findings": document["findings"]}
                )
                expected = {key: truth[key] for key in given}
                if given != expected:
                    assert not list(_differences(given, expected)), f"{cell}: {name} is wrong"
                    states[name] = "lacks"
        return states

    def _afterwards(self, cell: Cell, folder: Path) -> None:
        """With the fault gone, the same cache gives the right report, and a batch does what it could not."""
        if cell.is_batch:
            code, _, err = run(*_words(cell, folder), "--retry", "all")
            states = set(self._rows(cell, folder).values())
            assert states <= {"audited", "lacks"}, f"{cell}: afterwards {states} {code} {err}"
            return
        code, out, err = run(*_words(cell, folder))
        assert code == 0, f"{cell}: afterwards {code} {err}"
        document = json.loads(out)
        truths = self._truths(cell, document)
        assert timeless(document) in truths, f"{cell}: the cache was spoilt: {differing(timeless(document), truths[0])}"


def _words(cell: Cell, folder: Path) -> tuple[str, ...]:
    """The command of a cell, with all that it keeps in ``folder``."""
    cache = ("--cache-dir", str(folder / "cache"))
    if not cell.is_batch:
        return (*cell.subject.words, "--json", *cache)
    names = folder / "names.txt"
    names.write_text("".join(f"{name}\n" for name in cell.subject.words), encoding="utf-8")
    return ("batch", str(names), "-o", str(folder / "run"), "--format", "none", "-q", *cache)


def _new_commit(cell: Cell) -> dict[str, Any]:
    """For a commit that comes midway: a model of other numbers."""
    if cell.kind != "changed_commit":
        return {}
    from local_hub import safetensors_prefix
    from small_repos import CONFIG, TENSORS

    config = {**CONFIG, "max_position_embeddings": 512, "num_key_value_heads": 4}
    return {"files": {"config.json": json.dumps(config), "model.safetensors": safetensors_prefix(TENSORS)}}


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    """A report without what may differ between two ways to the same commit: how it was named, and whether it was cached."""
    return {key: value for key, value in document.items() if key not in ("subject", "tool", "schema_version")}


def differing(given: dict[str, Any], truth: dict[str, Any]) -> str:
    """The start of each part that is not the same."""
    return "; ".join(
        f"{key}: {str(value)[:300]} / {str(truth[key])[:300]}" for key, value in given.items() if value != truth[key]
    )


def _differences(given: Any, truth: Any, at: str = "") -> Iterator[str]:
    """Where a number in ``given`` is neither that of ``truth`` nor left out."""
    if isinstance(given, dict) and isinstance(truth, dict):
        for key, value in given.items():
            yield from _differences(value, truth.get(key), f"{at}.{key}")
    elif isinstance(given, (int, float)) and given != truth:
        yield f"{at}: {given}, not {truth}"


# --- the page ------------------------------------------------------------------------------------------------------------

_HEAD = """# When the network fails

Written by `tools/faults.py`, which tries every request of an audit with everything that can go wrong with it, on a Hub of its own (`tests/local_hub.py`).
Every report that came in spite of a fault was held against the report without it, at the same commit; none had another number, none of the runs
showed a traceback, and with the fault gone the same cache and the same batch gave the whole answer.

What stands before the arrow happens when the fault comes **once**, what stands behind it when it **stays**:

- `=` the same report as without the fault.
- `network 4`, `rate_limit 4`, `not_found 3`, `access 3`, `cannot_audit 5` no report, but an error of that kind, in one line with a hint, and that exit code.
- `lacks (rule)` a report without the file that could not be read; the finding of that rule names it, or `facts.missing` does, and
  what depends on it is not known.
- In a batch: how many of its models failed for now (`later`), for want of `access`, or for good (`never`), and the exit code. The other models
  have their reports, and the next run of the same command tries the rest again.

How long it may take: one wait for bytes ends after `HF_HUB_DOWNLOAD_TIMEOUT` (10 s), one question with its redirects and up to 3 repetitions after
60 s, and a second more for each 500 kB that came of its answer; waits that the Hub asks for come on top where they are no longer than 60 s each, a longer one
ends the audit with `rate_limit`. A batch waits for the quota as long as it takes. The runs of this page had shorter limits of the same kind.

An audit reads no README.md from the Hub: a card's header comes with the model info. Files that are read whole are held against the hash in the repository's listing.
Of weight files only the headers are read, which have none: bytes altered so that the header stays valid, and describes a file of exactly this
size, cannot be told from the right ones, nor can a number altered in what the Hub's API answers; so "one digit altered" is tried on files with a hash only.
"""


def page(outcomes: dict[str, str]) -> str:
    """The page with these outcomes, by the name of their cell."""
    text = _HEAD
    for subject in SUBJECTS:
        text += f"\n## {subject.title}\n\n| | {' | '.join(subject.requests)} |\n|---|{'---|' * len(subject.requests)}\n"
        for fault in FAULTS:
            shown = [_shown(outcomes, subject, request, fault) for request in subject.requests]
            text += f"| {fault} | {' | '.join(shown)} |\n"
    return text


def _shown(outcomes: dict[str, str], subject: Subject, request: str, fault: str) -> str:
    if not is_tried(request, fault):
        return ""
    once, stays = (
        outcomes[str(Cell(subject=subject, request=request, fault=fault, once=one))] for one in (True, False)
    )
    return once if once == stays else f"{once} → {stays}"


def tried(bench: Bench, those: list[Cell], kept: Path | None) -> dict[str, str]:
    """The outcome of each cell, told as it comes."""
    outcomes: dict[str, str] = {}
    if kept is not None and kept.exists():
        outcomes = dict(map(json.loads, kept.read_text(encoding="utf-8").splitlines()))
    furnish(bench.hub)
    for cell in those:
        if str(cell) in outcomes:
            continue
        outcomes[str(cell)] = bench.outcome(cell)
        print(f"{cell}: {outcomes[str(cell)]}", flush=True)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([str(cell), outcomes[str(cell)]]) + "\n")
    return outcomes


def main() -> int:
    """Try, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="keep outcomes here, and try only what is not there yet"
    )
    asked = parser.parse_args()
    from local_hub import LocalHub

    with tempfile.TemporaryDirectory() as home, LocalHub() as hub:
        os.environ |= {
            "HF_HOME": home,
            "HF_ENDPOINT": hub.endpoint,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_TOKEN": "hf_local",
        }
        outcomes = tried(Bench(hub), [cell for cell in cells() if asked.only in str(cell)], asked.kept)
    if asked.only:
        return 0
    made = page(outcomes)
    if asked.check:
        is_same = PAGE.read_text(encoding="utf-8") == made
        print("as the page says" if is_same else "docs/faults.md is stale; run python tools/faults.py")
        return 0 if is_same else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
