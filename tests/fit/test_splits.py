"""Several devices: the split that is taken, and the fewest that are enough, as a brute-force search finds them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fixture_models import facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate import infer
from hubaudit.estimate.modes import estimate
from hubaudit.estimate.split.room import Room
from hubaudit.fit.catalogue import hardware_named
from hubaudit.fit.judge import judge
from hubaudit.fit.splits import fewest_devices, roomiest
from hubaudit.types import Estimate, Fit, Hardware, ModelFacts, Workload

GIB = 2**30
NAMES = ["llama-3.1-8b", "mixtral-8x7b-v0.1", "qwen2-0.5b-instruct", "falcon-7b-instruct", "deepseek-v2-lite"]
MOST = 8


def one_fit(name: str, hardware: Hardware, workload: Workload) -> Fit:
    """The answer for one line of hardware."""
    facts = facts_of(name)
    (found,) = judge(facts, workload, estimate(facts, workload), (hardware,))
    return found


def fullest(name: str, runtime: str, tp: int, pp: int) -> int | None:
    """The upper end on the fullest device, from the estimator alone; ``None`` where the engine refuses."""
    try:
        return estimate(facts_of(name), Workload(runtime=runtime, tp=tp, pp=pp)).high_bytes
    except UsageError:
        return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", ["transformers", "vllm"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_the_fewest_devices_are_those_of_a_brute_force_search(name: str, runtime: str, data: st.DataObject) -> None:
    """Over every tensor and pipeline split of up to eight devices, for devices of any size."""
    facts, workload = facts_of(name), Workload(runtime=runtime)
    alone = estimate(facts, workload)
    weights = {
        count: [
            high for tp in range(1, count + 1) if count % tp == 0 and (high := fullest(name, runtime, tp, count // tp))
        ]
        for count in range(2, MOST + 1)
    }
    sizes = sorted(high for highs in weights.values() for high in highs)
    if not sizes:  # transformers has no rule for the model
        assert fewest_devices(facts, workload, alone, alone.total_bytes - 1) is None
        return
    usable = data.draw(st.one_of(st.sampled_from(sizes), st.integers(sizes[0], sizes[-1])), "usable")
    expected = next((count for count, highs in weights.items() if any(high <= usable for high in highs)), None)
    found = fewest_devices(facts, workload, alone, usable)
    if expected is None:
        assert found is None or found.devices > MOST
    else:
        assert found is not None
        assert found.devices == expected
        assert found.estimate.high_bytes == min(weights[expected])


@pytest.mark.parametrize("runtime", ["transformers", "vllm", "llama.cpp"])
@pytest.mark.parametrize(("tp", "pp"), [(1, 2), (1, 3), (2, 1), (2, 2)])
def test_a_split_that_fits_is_one_whose_fullest_device_fits(tp: int, pp: int, runtime: str) -> None:
    """Found without an estimate of every device: at the byte where it begins to fit, whoever is the fullest."""
    facts, workload = facts_of("llama-3.1-8b"), Workload(runtime=runtime, tp=tp, pp=pp)
    high = fullest("llama-3.1-8b", runtime, tp, pp)
    if high is None:
        with pytest.raises(UsageError):
            Room(facts, 2**60).holds(workload)
        return
    assert Room(facts, high).holds(workload)
    assert not Room(facts, high - 1).holds(workload)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite"])
def test_what_is_kept_of_one_split_changes_no_other(name: str) -> None:
    """A room that has answered for other splits answers as one that is asked for the first time, with stages and ranks of every number."""
    facts = facts_of(name)
    for usable in (2 * GIB, 4 * GIB, 9 * GIB):
        asked_before = Room(facts, usable)
        for tp, pp in ((1, 2), (1, 5), (1, 6), (2, 1), (2, 5), (4, 1), (4, 2), (1, 7), (8, 1)):
            answers = [_holds(room, Workload(tp=tp, pp=pp)) for room in (asked_before, Room(facts, usable))]
            assert answers[0] == answers[1], (usable, tp, pp)


def _holds(room: Room, workload: Workload) -> bool | str:
    try:
        return room.holds(workload)
    except UsageError as error:
        return error.message


def test_a_search_estimates_no_share_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-five numbers of small cards, none of which is enough: two estimates for a split at most, where its devices are a hundred."""
    facts, workload = facts_of("deepseek-v3"), Workload()
    estimates, splits = [], []
    whole, holds = infer.estimate, Room.holds

    def estimated(facts: ModelFacts, workload: Workload) -> Estimate:
        estimates.append(workload)
        return whole(facts, workload)

    def held(room: Room, workload: Workload) -> bool:
        answer = holds(room, workload)
        splits.append(workload)
        return answer

    alone = estimate(facts, workload)
    monkeypatch.setattr(infer, "estimate", estimated)
    monkeypatch.setattr(Room, "holds", held)
    assert fewest_devices(facts, workload, alone, 12 * GIB) is None
    assert len(splits) > 25
    assert len(estimates) <= 2 * len(splits)


def test_several_devices_share_what_one_does_not_hold() -> None:
    """Llama-3.1-8B in bf16 on two T4, as everybody serves it; the figures are those of each."""
    fit = one_fit("llama-3.1-8b", hardware_named("t4x2"), Workload())
    best = roomiest(facts_of("llama-3.1-8b"), Workload(), 2)
    assert best is not None
    assert (fit.verdict, fit.split, fit.headroom_bytes) == (
        "fits",
        best.label,
        hardware_named("t4").usable_bytes - best.estimate.total_bytes,
    )
    assert fit.max_batch is not None
    assert fit.max_batch >= 1


def test_one_device_that_is_too_small_says_how_many_would_do() -> None:
    """The answer on one T4 names the number that the answer on so many confirms."""
    alone = one_fit("llama-3.1-8b", hardware_named("t4"), Workload())
    assert (alone.verdict, alone.devices_needed) == ("no", 2)
    assert one_fit("llama-3.1-8b", hardware_named(f"t4x{alone.devices_needed}"), Workload()).verdict == "fits"


def test_limits_on_several_devices_are_the_estimators() -> None:
    """The largest batch fits on each device under the split, one more does not."""
    fit = one_fit("llama-3.1-8b", hardware_named("t4x2"), Workload(prompt_tokens=512, new_tokens=64, tp=2))
    facts, usable = facts_of("llama-3.1-8b"), hardware_named("t4").usable_bytes
    assert fit.max_batch is not None
    asked = Workload(prompt_tokens=512, new_tokens=64, tp=2, batch_size=fit.max_batch)
    assert estimate(facts, asked).high_bytes <= usable
    assert estimate(facts, replace(asked, batch_size=fit.max_batch + 1)).high_bytes > usable


def test_a_split_takes_its_devices() -> None:
    """--tp 4 on a kind of card counts four of them; on two it does not fit, whatever their size."""
    assert one_fit("llama-3.1-8b", hardware_named("h100"), Workload(tp=4)).hardware.count == 4
    two = one_fit("llama-3.1-8b", hardware_named("h100x2"), Workload(tp=4))
    assert (two.verdict, two.reason) == ("no", "the split takes 4 devices")
