"""One item → its row: what is done for each model, in this process or in a worker's."""

from __future__ import annotations

import json
import time
import traceback
from typing import TYPE_CHECKING, Any

from hubaudit.auditing import audit_facts
from hubaudit.batch.plan import Outcome, given
from hubaudit.errors import AccessError, HubauditError, NetworkError, RateLimitError
from hubaudit.facts.repository import understand
from hubaudit.hub.budget import Meter
from hubaudit.hub.many import Fetcher
from hubaudit.hub.online import may_be_damaged
from hubaudit.report.wire import error_of, error_to_wire, to_wire

if TYPE_CHECKING:
    from hubaudit.batch.plan import Access, Item, Plan, State
    from hubaudit.types import RepoSnapshot

_BUG_HINT = "this is a bug; `hubaudit audit` on this model alone with HUBAUDIT_DEBUG=1 shows where"


def audit_item(item: Item, plan: Plan, fetcher: Fetcher) -> Outcome:
    """The row of ``item``, whatever happens: a failure is a row too.

    A commit that was worked out before under the same plan by the same program is answered from the cache.
    """
    started = time.monotonic()
    is_rate_limit = False
    state: State
    try:
        state, document = "audited", _answer(item, plan, fetcher)
    except HubauditError as error:
        is_rate_limit = isinstance(error, RateLimitError)
        state, document = state_of(error), _dumped(error_to_wire(item.name, error))
    except Exception as error:  # noqa: BLE001 - one model's surprise must not end the run of all others; the row says what it was
        state, document = "bug", _dumped(error_to_wire(item.name, _surprise(error)))
    seconds = time.monotonic() - started
    return Outcome(item=item, state=state, document=document, seconds=seconds, is_rate_limit=is_rate_limit)


def audit_elsewhere(item: Item, plan: Plan, access: Access) -> Outcome:
    """:func:`audit_item` for a process of its own, which shares no budget and so reports what it used."""
    meter = Meter()
    outcome = audit_item(item, plan, fetcher_for(plan, access, meter))
    return Outcome(
        item=item,
        state=outcome.state,
        document=outcome.document,
        seconds=outcome.seconds,
        is_rate_limit=outcome.is_rate_limit,
        sent=meter.sent,
        told=meter.told(),
    )


def fetcher_for(plan: Plan, access: Access, budget: Any) -> Fetcher:
    """What reads the models of ``plan``, counting its requests against ``budget``."""
    return Fetcher(
        token=access.token,
        cache_dir=access.cache_dir,
        offline=access.offline,
        max_age_seconds=access.max_age_seconds,
        budget=budget,
        file=plan.file,
    )


def state_of(error: HubauditError) -> State:
    """Whether, and when, asking again can help."""
    if isinstance(error, NetworkError):
        return "later"
    return "access" if isinstance(error, AccessError) else "never"


def failed(item: Item, error: Exception) -> Outcome:
    """The row of an item that its worker did not bring back: the worker died, or could not start."""
    lost = NetworkError(f"the worker was lost: {type(error).__name__}: {error}", hint="run it again")
    return Outcome(item=item, state="later", document=_dumped(error_to_wire(item.name, lost)), seconds=0.0)


def _answer(item: Item, plan: Plan, fetcher: Fetcher) -> bytes:
    located = fetcher.locate(item.name, commit=item.commit)
    key = None
    if located.repo_id is not None and located.commit is not None:
        key = plan.answer_key(located.reference.revision)
        known = fetcher.cache.load_answer(located.repo_id, located.commit, key)
        if known is not None:
            return known
    snapshot = fetcher.read(located)
    document = _dumped(_worked_out(snapshot, plan))
    # An adapter's answer depends on its base's commit as well, which may move.
    is_lasting = snapshot.base is None and snapshot.base_reason is None and not may_be_damaged(snapshot.problems)
    if key is not None and snapshot.commit is not None and is_lasting:
        fetcher.cache.save_answer(snapshot.repo_id, snapshot.commit, key, document)
    return document


def _worked_out(snapshot: RepoSnapshot, plan: Plan) -> dict[str, Any]:
    """The report's wire form with ``audits``, one for each workload, in place of the one workload's keys.

    A workload that does not go with the model has its ``error`` there, as long as another one does.
    """
    facts = understand(snapshot)
    document: dict[str, Any] | None = None
    failure: HubauditError | None = None
    audits = []
    for workload in plan.workloads:
        try:
            report = to_wire(audit_facts(snapshot, facts, workload, plan.hardware, with_variants=False))
        except HubauditError as error:
            failure = failure or error
            audits.append({"workload": given(workload), "error": error_of(error)})
            continue
        audits.append({name: report[name] for name in ("workload", "estimate", "fit")})
        document = document or report
    if document is None:
        raise failure or HubauditError("a plan without workloads")
    shared = {name: document[name] for name in ("schema_version", "tool", "subject", "facts", "findings")}
    return shared | {"audits": audits}


def _surprise(error: Exception) -> HubauditError:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return HubauditError(f"internal error: {type(error).__name__}: {error}{at}", hint=_BUG_HINT)


def _dumped(document: dict[str, Any]) -> bytes:
    """ASCII, so that half a character out of a repository's JSON cannot break a line."""
    return json.dumps(document, separators=(",", ":")).encode("ascii")
