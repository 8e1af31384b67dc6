"""A workload on one device or several: the estimate of the fullest one, and what every other holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate import infer
from hubaudit.estimate.component import component, given, known
from hubaudit.estimate.overhead import banded
from hubaudit.estimate.setting import settle
from hubaudit.estimate.split.layout import Place, Split, places, rules_of, split_of, stage_layers
from hubaudit.estimate.split.share import check, facts_on, held_whole
from hubaudit.types import DeviceShare

if TYPE_CHECKING:
    from hubaudit.types import Component, Estimate, ModelFacts, Variant, Workload

_ONE = Split()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """One device: what it holds as facts, and the estimate for its share of the workload."""

    place: Place
    facts: ModelFacts
    estimate: Estimate


def estimate(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory for ``workload`` on the fullest of its devices, with a row for each; :func:`hubaudit.estimate.infer.estimate` where there is one.

    Raises:
        UsageError: the workload asks for something that does not exist, or for a split that its engine refuses.
    """
    split = split_of(workload)
    if split == _ONE:
        return infer.estimate(facts, workload)
    return _fullest(facts, workload, split)[1]


def variants(facts: ModelFacts, workload: Workload) -> tuple[Variant, ...]:
    """The same workload with the weights held otherwise, on the device that is the fullest as asked."""
    split = split_of(workload)
    if split == _ONE:
        return infer.variants(facts, workload)
    fullest, _ = _fullest(facts, workload, split)
    extra = communication(facts, split, settle(facts, workload).runtime).bytes
    made = infer.variants(fullest.facts, on_one_device(workload, split))
    return tuple(replace(variant, total_bytes=variant.total_bytes + extra) for variant in made)


def fullest_facts(facts: ModelFacts, workload: Workload) -> ModelFacts:
    """What the fullest device holds, as facts; ``facts`` themselves where there is one device."""
    split = split_of(workload)
    return facts if split == _ONE else _fullest(facts, workload, split)[0].facts


def _fullest(facts: ModelFacts, workload: Workload, split: Split) -> tuple[_Held, Estimate]:
    runtime = settle(facts, workload).runtime
    held = _everywhere(facts, on_one_device(workload, split), split, runtime)
    fullest = max(held, key=lambda one: (one.estimate.total_bytes, one.estimate.high_bytes))
    more = communication(facts, split, runtime)
    made = fullest.estimate
    return fullest, replace(
        made,
        components=(*made.components, more),
        total_bytes=made.total_bytes + more.bytes,
        low_bytes=made.low_bytes + more.low_bytes,
        high_bytes=max(one.estimate.high_bytes for one in held) + more.high_bytes,
        phases=tuple(replace(phase, bytes=phase.bytes + more.bytes) for phase in made.phases),
        assumptions=(*made.assumptions, *_said(facts, split, runtime, fullest.place)),
        devices=tuple(_row(facts, one, split, runtime, more) for one in held),
    )


def _everywhere(facts: ModelFacts, workload: Workload, split: Split, runtime: str) -> list[_Held]:
    """Every device; equal shares are estimated once."""
    known: dict[int, Estimate] = {}
    held = []
    for place, share in _shares(_Same(facts), split, runtime):
        if id(share) not in known:
            known[id(share)] = infer.estimate(share, workload)
        held.append(_Held(place=place, facts=share, estimate=known[id(share)]))
    return held


class _Same:
    """The same facts object, as a key: facts hold mappings and have no hash."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return id(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.facts is self.facts


@lru_cache(maxsize=16)
def _shares(whole: _Same, split: Split, runtime: str) -> tuple[tuple[Place, ModelFacts], ...]:
    """The share of every device; devices that hold the same have the same object. Searches ask for the same splits many times."""
    check(whole.facts, split, runtime)
    known: dict[tuple[object, ...], ModelFacts] = {}
    found = []
    for place in places(split):
        share = facts_on(whole.facts, split, place, runtime)
        found.append((place, known.setdefault((share.tensor_groups, share.layer_plan), share)))
    return tuple(found)


def on_one_device(workload: Workload, split: Split) -> Workload:
    """What one device runs: its share of the sequences, where groups of devices serve their own."""
    batch_size = -(-workload.batch_size // split.replicas)
    return replace(workload, batch_size=batch_size, tp=1, pp=1, ep=1)


def communication(facts: ModelFacts, split: Split, runtime: str) -> Component:
    """Buffers of the collective library: as much again for every further group that a device is in. llama.cpp has its own copies."""
    if runtime == "llama.cpp":
        row = rules_of(runtime)
        inputs = {
            "copies": given(row["copies"], row["copies_source"]),
            "ubatch_tokens": given(table("runtimes.toml")["llama_cpp"]["ubatch_tokens"], "table:runtimes.toml"),
            "hidden_size": known(facts.hidden_size) or given(0, facts.hidden_size.where),
        }
        return component(
            "communication", "Workspace", "4 * copies * ubatch_tokens * hidden_size", inputs, exactness="formula",
            source=row["copies_source"], band_percent=(100, 100),
        )  # fmt: skip
    groups = (split.tensor > 1) + (split.pipeline > 1) + (split.expert > split.tensor)
    one = banded("communication", "Workspace", "overheads.toml", "communication")
    return replace(
        one,
        bytes=one.bytes * groups,
        formula="measured_bytes * groups",
        inputs={**one.inputs, "groups": groups},
        low_bytes=one.low_bytes,
        high_bytes=one.high_bytes * groups,
        sources=(one.sources[0], f"groups: {split.label}", *one.sources[1:]),
    )


def _row(facts: ModelFacts, held: _Held, split: Split, runtime: str, more: Component) -> DeviceShare:
    layers = facts.layers.value or len(facts.layer_plan or ())
    first, end = stage_layers(layers, split, held.place.stage, runtime) if split.pipeline > 1 else (0, layers)
    parts = held.estimate.components
    return DeviceShare(
        device=held.place.device,
        first_layer=first,
        end_layer=end,
        parameters=0 if held.facts.parameters is None else held.facts.parameters.loaded,
        weights_bytes=sum(part.bytes for part in parts if part.category == "Parameter"),
        cache_bytes=sum(part.bytes for part in parts if part.category == "KVCache"),
        total_bytes=held.estimate.total_bytes + more.bytes,
        high_bytes=held.estimate.high_bytes + more.high_bytes,
    )


def _said(facts: ModelFacts, split: Split, runtime: str, place: Place) -> tuple[str, ...]:
    row = rules_of(runtime)
    said = [
        f"{split.label} as {runtime} splits; shown is the fullest of {split.devices} devices, number {place.device}"
    ]
    if split.tensor > 1:
        said.append(f"matrices: {row['heads_source']}")
    if split.pipeline > 1:
        said.append(f"stages: {row['stages_source']}")
    if runtime == "llama.cpp":
        said.append(
            "the compute buffer with the head's logits is counted on every device, though only the last has the head"
        )
    if split.expert > 1:
        said.append(f"experts: {row['experts_source']}")
    if split.replicas > 1:
        said.append(f"{split.replicas} groups of devices serve their own share of the batch")
    unknown = held_whole(facts, split, runtime)
    if unknown:
        names = ", ".join(group.pattern for group in unknown[:3]) + (" …" if len(unknown) > 3 else "")
        said.append(f"counted whole on every device, for no rule is known: {names}")
    return tuple(said)
