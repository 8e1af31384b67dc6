"""Who does the work: threads of this process, other processes, or the workers of a Dask or Ray cluster, all shaped like an executor."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from hubaudit.batch.admission import SharedOut
from hubaudit.batch.work import audit_elsewhere, audit_item, fetcher_for
from hubaudit.batch.workers import Workers
from hubaudit.errors import UsageError
from hubaudit.hub.budget import SharedBudget

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from hubaudit.batch.plan import Access, Item, Plan
    from hubaudit.batch.runner import Pending

#: Models under way at once in this process: enough to keep the Hub's connections busy while one of them is worked out.
THREADS = 24
_LOST_WORKERS = 5
_CONNECT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What runs the items: how to start one, how many at once, whose quota it counts, and how to end it."""

    submit: Callable[[Item], Pending]
    window: int
    budget: SharedBudget
    admission: SharedOut | None
    close: Callable[[], None]


def engine_for(name: str, plan: Plan, access: Access, *, share: float | None = None, jobs: int | None = None) -> Engine:
    """The engine that ``name`` names: ``threads``, ``processes``, ``dask://HOST:PORT`` or ``ray://HOST:PORT``.

    Args:
        name: as ``--executor`` takes it.
        plan: what to work out of each model.
        access: how to read the Hub.
        share: the share of the Hub's quota to use; by default a polite one.
        jobs: models under way at once; by default as many as the executor has places, or a few dozen threads.

    Raises:
        UsageError: there is no such executor, its library is missing, or the cluster does not answer.
    """
    budget = SharedBudget() if share is None else SharedBudget(share=share)
    scheme = name.partition("://")[0]
    if name == "threads":
        return _threads(plan, access, budget, jobs or THREADS)
    if name == "processes":
        places = jobs or os.cpu_count() or 1
        workers = Workers(places)
        return _elsewhere(workers, plan, access, budget, places, workers.close)
    if scheme == "dask" and "://" in name:
        return _dask(name, plan, access, budget, jobs)
    if scheme == "ray" and "://" in name:
        return _ray(name, plan, access, budget, jobs)
    raise UsageError(f"no executor `{name}`", hint="there are threads, processes, dask://HOST:PORT and ray://HOST:PORT")


def _threads(plan: Plan, access: Access, budget: SharedBudget, threads: int) -> Engine:
    """All share one session, one cache and, request by request, one budget."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hubaudit model")
    fetcher = fetcher_for(plan, access, budget)

    def submit(item: Item) -> Pending:
        return cast("Pending", pool.submit(audit_item, item, plan, fetcher))

    def close() -> None:
        budget.close()
        pool.shutdown(wait=False, cancel_futures=True)

    return Engine(submit=submit, window=threads * 2, budget=budget, admission=None, close=close)


def _elsewhere(
    pool: Executor, plan: Plan, access: Access, budget: SharedBudget, places: int, close: Callable[[], None]
) -> Engine:
    """Workers report what they used; this process lets items start only as the quota allows."""

    def submit(item: Item) -> Pending:
        return cast("Pending", pool.submit(audit_elsewhere, item, plan, access))

    return Engine(submit=submit, window=places * 2, budget=budget, admission=SharedOut(budget), close=close)


def _dask(name: str, plan: Plan, access: Access, budget: SharedBudget, jobs: int | None) -> Engine:
    """The workers of a running Dask cluster. A task whose worker dies is given to another by Dask itself."""
    distributed = _library("distributed", "dask")
    try:
        client = distributed.Client(
            f"tcp://{name.removeprefix('dask://')}", timeout=_CONNECT_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"no Dask scheduler at `{name}`: {error}", hint="start one with `dask scheduler`") from None
    places = sum(client.nthreads().values())
    if not places:
        client.close()
        raise UsageError(f"the Dask cluster at `{name}` has no workers", hint="start some with `dask worker`")
    pool = client.get_executor(pure=False, retries=_LOST_WORKERS)
    return _elsewhere(pool, plan, access, budget, jobs or places, client.close)


def _ray(name: str, plan: Plan, access: Access, budget: SharedBudget, jobs: int | None) -> Engine:
    """The workers of a running Ray cluster."""
    ray = _library("ray", "ray")
    try:
        ray.init(name, log_to_driver=False)
    except (OSError, ValueError, RuntimeError, ConnectionError) as error:
        raise UsageError(f"no Ray cluster at `{name}`: {error}", hint="start one with `ray start --head`") from None
    task = ray.remote(max_retries=_LOST_WORKERS)(audit_elsewhere)

    def submit(item: Item) -> Pending:
        return cast("Pending", task.remote(item, plan, access).future())

    places = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
    return Engine(submit=submit, window=places * 2, budget=budget, admission=SharedOut(budget), close=ray.shutdown)


def _library(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(f"this executor needs {module}", hint=f"pip install 'hubaudit[{extra}]'") from None
