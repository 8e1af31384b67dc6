"""Blocks of device memory and the pools that keep the free ones in order: the allocator's data structure."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of a segment: in use, cached, or (in an expandable segment) an address without memory behind it.

    ``previous`` and ``following`` are its neighbours in the segment. ``born`` is the pool's count of searches when the block was cached,
    from which garbage collection tells its age. ``base`` is where its segment begins.
    """

    address: int
    size_bytes: int
    pool: Pool
    base: int
    is_expandable: bool = False
    is_mapped: bool = True
    is_used: bool = False
    previous: Block | None = None
    following: Block | None = None
    born: int = 0

    @property
    def is_split(self) -> bool:
        """Whether other blocks share its segment."""
        return self.previous is not None or self.following is not None

    def room_bytes(self) -> int:
        """Its size, with the addresses behind it that could be mapped."""
        behind = self.following
        return self.size_bytes + (behind.size_bytes if behind is not None and not behind.is_mapped else 0)

    def insert_between(self, previous: Block | None, following: Block | None) -> None:
        """Stand between two neighbours."""
        self.previous, self.following = previous, following
        if previous is not None:
            previous.following = self
        if following is not None:
            following.previous = self

    def absorb(self, other: Block) -> None:
        """Take over a neighbour's stretch."""
        if self.previous is other:
            self.address = other.address
            self.previous = other.previous
            if self.previous is not None:
                self.previous.following = self
        else:
            self.following = other.following
            if self.following is not None:
                self.following.previous = self
        self.size_bytes += other.size_bytes


class Pool:
    """The free blocks of small or of large requests, ordered by size and then address; and addresses without memory, by address."""

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.searches = 0
        self.unmapped: list[Block] = []
        self._order: list[tuple[int, int]] = []
        self._blocks: dict[int, Block] = {}

    def add(self, block: Block) -> None:
        """Cache a block."""
        block.born = self.searches
        insort(self._order, (block.size_bytes, block.address))
        self._blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """Take a block out of the cache."""
        del self._order[bisect_left(self._order, (block.size_bytes, block.address))]
        del self._blocks[block.address]

    def add_unmapped(self, block: Block) -> None:
        """Remember a stretch of addresses without memory."""
        insort(self.unmapped, block, key=lambda one: one.address)

    def fitting(self, size_bytes: int) -> Iterator[Block]:
        """Cached blocks of at least so many bytes, the best fit first."""
        for at in range(bisect_left(self._order, (size_bytes, -1)), len(self._order)):
            yield self._blocks[self._order[at][1]]

    def cached(self) -> list[Block]:
        """All cached blocks, smallest first."""
        return [self._blocks[address] for _, address in self._order]
