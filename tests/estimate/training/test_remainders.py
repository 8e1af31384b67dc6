"""Remainders of blocks against the replayed allocator, which is held against torch's own elsewhere (tests/exact/test_allocator.py)."""

from __future__ import annotations

from fixture_models import facts_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.estimate.modes import estimate
from hubaudit.estimate.training.remainders import unsplit_bytes
from hubaudit.estimate.training.tensors import Trained, reached_by_text, whole_model
from hubaudit.exact.allocator import CachingAllocator
from hubaudit.exact.settings import AllocatorSettings
from hubaudit.types import Workload

MIB = 2**20
_ROUNDED_TO = 512
_GROUPS = st.lists(
    st.builds(
        Trained,
        role=st.sampled_from(["attention", "mlp", "expert"]),
        shape=st.tuples(st.integers(1, 3000), st.integers(1, 6000)),
        count=st.sampled_from([3, 6]),
        in_layers=st.booleans(),
    ),
    max_size=5,
).map(tuple)


def _replayed(tensors: tuple[Trained, ...], layers: int) -> int:
    """Bytes beyond the tensors' own, rounded to 512, in a fresh allocator."""
    allocator = CachingAllocator(AllocatorSettings(), None)
    asked = 0
    outside = [one for one in tensors if not one.in_layers for _ in range(one.count)]
    sizes = [2 * one.elements for one in outside]
    for _ in range(layers):
        for one in tensors:
            number = one.count // layers
            if one.in_layers and one.role == "expert":
                sizes.append(2 * one.elements * number)
            elif one.in_layers:
                sizes += [2 * one.elements] * number
    for size in sizes:
        allocator.malloc(size)
        asked += -(-size // _ROUNDED_TO) * _ROUNDED_TO
    return allocator.allocated_bytes - asked


@given(_GROUPS)
def test_remainders_are_the_allocators_own(tensors: tuple[Trained, ...]) -> None:
    """Tensors laid one after the other into an empty device: what is allocated beyond them, to the byte."""
    assert unsplit_bytes(tensors, 3, 16) == _replayed(tensors, 3)


def test_bert_and_llama() -> None:
    """BERT's matrices of 1.125 and 4.5 MiB leave remainders in every segment of 20 MiB; those of Llama-3.1-8B are whole numbers of 2 MiB but for its vocabulary."""
    bert, llama = facts_of("bert-base-uncased"), facts_of("llama-3.1-8b")
    assert unsplit_bytes(whole_model(bert), 12, 16) == _replayed(whole_model(bert), 12) > 5 * MIB
    assert unsplit_bytes(whole_model(llama), 32, 16) == _replayed(whole_model(llama), 32) == 0


def test_they_are_told_where_one_process_holds_everything_itself() -> None:
    """Gemma-3-4b-it: of weights, gradients and states; flat shards and packed weights are laid out otherwise."""
    facts = facts_of("gemma-3-4b-it")
    asked = Workload(mode="train", batch_size=1, sequence_tokens=64, recipe="bf16")

    def told(**changed: object) -> int:
        workload = Workload(**{"mode": "train", "batch_size": 1, "sequence_tokens": 64, **changed})  # type: ignore[arg-type]
        made = estimate(facts, workload)
        return sum(part.bytes for part in made.components if part.category == "Fragmentation")

    everything = whole_model(facts)
    reached = reached_by_text(everything)
    states = tuple(one for one in reached for _ in range(2))
    assert estimate(facts, asked).peak_phase == "backward"
    assert told(recipe="bf16") == sum(unsplit_bytes(one, 34, 16) for one in (everything, reached, states))
    assert told(recipe="bf16", gpus=2, fsdp=2) == 0
    assert told(quant="nf4", lora=8, lora_targets="q_proj") == 0
