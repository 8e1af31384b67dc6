"""One budget for all threads: the share of each quota, and what becomes of it when the Hub says otherwise."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from hubaudit.errors import RateLimitError
from hubaudit.hub.budget import Meter, SharedBudget, bucket_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def api() -> str:
    """An address of the Hub's API."""
    return f"{constants.ENDPOINT}/api/models/org/one"


def headers(remaining: int, reset: int, quota: int = 500) -> Mapping[str, str]:
    """As the Hub writes them."""
    return {"RateLimit": f'"api";r={remaining};t={reset}', "RateLimit-Policy": f'"fixed window";"api";q={quota};w=300'}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def may_ask(budget: SharedBudget) -> bool:
    """Whether one more request to the API is within the share."""
    return budget.seconds_until({"api": 0}) == 0


def test_each_address_has_its_bucket() -> None:
    """As the Hub counts: files and their cached twin, the API, the rest; another host has none."""
    at = constants.ENDPOINT
    assert bucket_of(f"{at}/api/models/org/one?blobs=true") == "api"
    assert bucket_of(f"{at}/org/one/resolve/main/config.json") == "resolvers"
    assert bucket_of(f"{at}/api/resolve-cache/models/org/one/0/config.json") == "resolvers"
    assert bucket_of("https://us.aws.cdn.hf.co/org/resolve/x") is None


def test_the_share_is_kept_and_the_next_window_opens() -> None:
    """Of 500, a share of 0.8 leaves 100 to others; when the window is over there are 500 again."""
    clock = Clock()
    budget = SharedBudget(share=0.8, clock=clock)
    assert may_ask(budget)
    budget.learn(api(), 200, headers(101, 60))
    assert may_ask(budget)
    budget.learn(api(), 200, headers(100, 60))
    assert budget.seconds_until({"api": 0}) == 60
    clock.now += 60
    assert may_ask(budget)
    assert [(quota.remaining, quota.limit) for quota in budget.quotas()] == [(500, 500)]


def test_requests_under_way_count() -> None:
    """What was sent and not yet answered is not in the Hub's number."""
    budget = SharedBudget(share=0.8, clock=Clock())
    budget.learn(api(), 200, headers(103, 60))
    for _ in range(3):
        assert may_ask(budget)
        budget.take(api())
    assert not may_ask(budget)
    budget.give_back(api())
    assert may_ask(budget)


def test_answers_out_of_order() -> None:
    """Within one window the smallest number is the latest; a later end is a new window."""
    clock = Clock()
    budget = SharedBudget(clock=clock)
    for remaining, reset in ((300, 100), (298, 99), (299, 100)):
        budget.learn(api(), 200, headers(remaining, reset))
    assert budget.quotas()[0].remaining == 298
    budget.learn(api(), 200, headers(499, 300))
    assert budget.quotas()[0].remaining == 499


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"Retry-After": "7"}, 7),
        ({}, 60),
        ({"RateLimit": '"api";r=400;t=9'}, 60),
    ],
)
def test_a_429_closes_the_bucket(said: dict[str, str], seconds: int) -> None:
    """Until the time it names, else for a minute, whatever number it says remains."""
    clock = Clock()
    budget = SharedBudget(clock=clock)
    budget.learn(api(), 429, said)
    assert budget.seconds_until({"api": 0}) == seconds
    assert budget.seconds_until({"resolvers": 9}) == 0
    clock.now += seconds
    assert may_ask(budget)


def test_a_number_that_is_none() -> None:
    """Digits by the thousand, and headers of another host, teach nothing."""
    budget = SharedBudget()
    budget.learn(api(), 200, {"RateLimit": f'"api";r={"9" * 5000};t=1'})
    budget.learn("https://elsewhere.example/api/x", 200, headers(0, 300))
    assert budget.quotas() == ()


def test_threads_wait_for_each_other_and_for_the_window() -> None:
    """No more than so many at once; one that waits for a quota goes on when its window opens."""
    budget = SharedBudget(parallel=2, share=1.0)
    at_once = most = 0
    lock = threading.Lock()

    def ask() -> None:
        nonlocal at_once, most
        budget.take(api())
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        budget.give_back(api())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2
    budget.learn(api(), 200, headers(0, 0))
    assert budget.take(api()) < 5


def test_the_end_of_a_run_frees_who_waits() -> None:
    """A stopped run does not sit out the window."""
    budget = SharedBudget()
    budget.learn(api(), 429, {"Retry-After": "300"})
    ended: list[Exception] = []

    def ask() -> None:
        try:
            budget.take(api())
        except RateLimitError as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not budget.is_waiting():
        time.sleep(0.01)
    budget.close()
    thread.join(timeout=10)
    assert len(ended) == 1


def test_a_worker_elsewhere_counts_and_never_waits() -> None:
    """It tells what it sent and the smallest number it saw, and gives up at once where nothing is left."""
    meter = Meter()
    for remaining in (9, 7, 8):
        meter.take(api())
        meter.learn(api(), 200, headers(remaining, 100))
    assert meter.sent == {"api": 3}
    assert [(quota.bucket, quota.remaining, quota.limit) for quota in meter.told()] == [("api", 7, 500)]
    meter.learn(api(), 429, {"RateLimit": '"api";r=0;t=55'})
    with pytest.raises(RateLimitError):
        meter.take(api())
    assert meter.sent == {"api": 3}
