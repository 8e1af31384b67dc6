"""PyTorch's CUDA caching allocator in plain Python: one device, one stream, byte for byte.

The policy is that of torch 2.13 (c10/cuda/CUDACachingAllocator.cpp). Addresses only ever grow, where a driver may hand freed ones out
again: of two cached segments of equal size, a real device may take the other one.
"""

from __future__ import annotations

from hubaudit.exact.blocks import Block, Pool
from hubaudit.exact.settings import MIB, AllocatorSettings

SMALLEST_BLOCK_BYTES = 512
SMALL_REQUEST_BYTES = 1 * MIB
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_REQUEST_BYTES = 10 * MIB
_LARGE_ROUNDING_BYTES = 2 * MIB
_FIRST_INTERVAL_BIT = 20
_FIRST_ADDRESS = 2**40
_GAP_BYTES = 2 * MIB
_ENDLESS_BYTES = 2**46


class OutOfDeviceMemoryError(Exception):
    """The device cannot give what was asked for, not even after all cached memory was given back."""

    def __init__(self, requested_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        super().__init__(f"{requested_bytes} bytes asked, {allocated_bytes} in use, {reserved_bytes} reserved")
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes


class CachingAllocator:
    """What ``torch.cuda.memory_allocated`` and ``memory_reserved`` would say, request by request.

    Args:
        settings: the allocator's settings.
        capacity_bytes: what the device can give this process; ``None`` for as much as it asks for.
    """

    def __init__(self, settings: AllocatorSettings | None = None, capacity_bytes: int | None = None) -> None:
        self.settings = settings or AllocatorSettings()
        self.capacity_bytes = capacity_bytes
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0
        self.retries = 0
        self._small = Pool(is_small=True)
        self._large = Pool(is_small=False)
        self._next_address = _FIRST_ADDRESS

    def malloc(self, requested_bytes: int) -> Block | None:
        """Hand out a block for a request; ``None`` for one of 0 bytes, which takes none.

        Raises:
            OutOfDeviceMemoryError: as torch.OutOfMemoryError.
        """
        if requested_bytes == 0:
            return None
        size_bytes = self.rounded(requested_bytes)
        pool = self._small if size_bytes <= SMALL_REQUEST_BYTES else self._large
        block = self._cached_block(pool, size_bytes) or self._new_block(pool, size_bytes)
        if self._should_split(block, size_bytes):
            block = self._split(block, size_bytes)
        block.is_used = True
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block | None) -> None:
        """Take a block back into the cache, one with its free neighbours."""
        if block is None:
            return
        block.is_used = False
        self.allocated_bytes -= block.size_bytes
        self._merge(block, block.previous)
        self._merge(block, block.following)
        block.pool.add(block)

    def empty_cache(self) -> None:
        """Give every cached segment back that no block in use shares; of expandable segments, every whole free page."""
        for pool in (self._large, self._small):
            for block in pool.cached():
                if block.is_expandable:
                    self._unmap(block)
                elif not block.is_split:
                    self._release(block)

    def reset_peaks(self) -> None:
        """Forget the peaks so far."""
        self.peak_allocated_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes

    def rounded(self, requested_bytes: int) -> int:
        """The size of the block that a request asks for."""
        if requested_bytes < SMALLEST_BLOCK_BYTES:
            return SMALLEST_BLOCK_BYTES
        intervals = self.settings.roundup_power2_divisions
        at = min(max(requested_bytes.bit_length() - 1 - _FIRST_INTERVAL_BIT, 0), len(intervals) - 1)
        divisions = intervals[at]
        if divisions > 1 and requested_bytes > SMALLEST_BLOCK_BYTES * divisions:
            if not requested_bytes & (requested_bytes - 1):
                return requested_bytes
            return _up(requested_bytes, (1 << (requested_bytes.bit_length() - 1)) // divisions)
        return _up(requested_bytes, SMALLEST_BLOCK_BYTES)

    # --- from the cache ------------------------------------------------------------------------------------------------------

    def _cached_block(self, pool: Pool, size_bytes: int) -> Block | None:
        if self._collects_garbage:
            pool.searches += 1
        candidates = pool.fitting(size_bytes)
        block = next(candidates, None)
        if block is None:
            return None
        if block.is_expandable:
            # What counts for a block at the growing end is how far it can grow.
            for other in candidates:
                if other.room_bytes() >= block.room_bytes():
                    break
                block = other
        limit = self.settings.max_split_bytes
        if limit is not None:
            if size_bytes < limit <= block.size_bytes:
                return None
            if size_bytes >= limit and block.size_bytes >= size_bytes + self.settings.max_non_split_rounding_bytes:
                return None
        pool.remove(block)
        return block

    def _should_split(self, block: Block, size_bytes: int) -> bool:
        rest_bytes = block.size_bytes - size_bytes
        if block.pool.is_small or self.settings.expandable_segments:
            return rest_bytes >= SMALLEST_BLOCK_BYTES
        limit = self.settings.max_split_bytes
        return (limit is None or size_bytes < limit) and rest_bytes > SMALL_REQUEST_BYTES

    def _split(self, rest: Block, size_bytes: int) -> Block:
        """Cut a block off the front; what is left goes back to the cache."""
        block = Block(rest.address, size_bytes, rest.pool, rest.base, is_expandable=rest.is_expandable)
        block.insert_between(rest.previous, rest)
        rest.address += size_bytes
        rest.size_bytes -= size_bytes
        rest.pool.add(rest)
        return block

    def _merge(self, block: Block, neighbour: Block | None) -> None:
        """Unite a block, which lies in no pool now, with a neighbour that is as free as it is."""
        if neighbour is None or neighbour.is_used or neighbour.is_mapped != block.is_mapped:
            return
        if neighbour.is_mapped:
            block.pool.remove(neighbour)
        else:
            block.pool.unmapped.remove(neighbour)
        block.absorb(neighbour)

    # --- from the device ------------------------------------------------------------------------------------------------------

    def _new_block(self, pool: Pool, size_bytes: int) -> Block:
        """Memory that the device gives, if need be after cached memory was given back."""
        if self._collects_garbage:
            self._collect_garbage()
        block = self._from_device(pool, size_bytes)
        if block is None and self._release_oversized(pool, size_bytes):
            block = self._from_device(pool, size_bytes)
        if block is None:
            self.retries += 1
            self.empty_cache()
            block = self._from_device(pool, size_bytes)
        if block is None:
            raise OutOfDeviceMemoryError(size_bytes, self.allocated_bytes, self.reserved_bytes)
        return block

    def _from_device(self, pool: Pool, size_bytes: int) -> Block | None:
        segment_bytes = self._segment_bytes(size_bytes)
        if self.settings.memory_fraction is not None and self.reserved_bytes + segment_bytes > self._allowed_bytes:
            return None
        if self.settings.expandable_segments:
            return self._expand(pool, size_bytes)
        if not self._reserve(segment_bytes):
            return None
        block = Block(self._next_address, segment_bytes, pool, self._next_address)
        self._next_address += segment_bytes + _GAP_BYTES
        return block

    def _segment_bytes(self, size_bytes: int) -> int:
        if size_bytes <= SMALL_REQUEST_BYTES:
            return _SMALL_SEGMENT_BYTES
        if size_bytes < _LARGE_REQUEST_BYTES:
            return self.settings.large_segment_bytes
        return _up(size_bytes, _LARGE_ROUNDING_BYTES)

    def _reserve(self, more_bytes: int) -> bool:
        """Ask the device for memory."""
        if self.capacity_bytes is not None and self.reserved_bytes + more_bytes > self.capacity_bytes:
            return False
        self.reserved_bytes += more_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        self.reserved_bytes -= block.size_bytes

    def _release_oversized(self, pool: Pool, size_bytes: int) -> bool:
        """Give back cached blocks too large to be split: one that is large enough, else the largest until it is enough."""
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        wanted_bytes = max(size_bytes, limit)
        one = next(pool.fitting(wanted_bytes), None)
        if one is not None and not one.is_expandable:
            self._release(one)
            return True
        released_bytes = 0
        for block in reversed(pool.cached()):
            if released_bytes >= wanted_bytes or block.size_bytes < limit:
                break
            if not block.is_expandable:
                self._release(block)
                released_bytes += block.size_bytes
        return released_bytes >= wanted_bytes

    # --- garbage collection ---------------------------------------------------------------------------------------------------

    @property
    def _collects_garbage(self) -> bool:
        return self.settings.garbage_collection_threshold > 0 and self.settings.memory_fraction is not None

    @property
    def _allowed_bytes(self) -> int:
        total_bytes = _ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return int((self.settings.memory_fraction or 1.0) * total_bytes)

    def _collect_garbage(self) -> None:
        """Give back unsplit large blocks that lay unused longer than the average, until the threshold is met."""
        threshold_bytes = int(self.settings.garbage_collection_threshold * self._allowed_bytes)
        if self.reserved_bytes <= threshold_bytes:
            return
        goal_bytes, reclaimed_bytes = self.reserved_bytes - threshold_bytes, 0
        searches = self._large.searches
        left = [block for block in self._large.cached() if not block.is_split]
        while left and reclaimed_bytes < goal_bytes:
            mean_age = sum(searches - block.born for block in left) / len(left)
            old = [block for block in left if not block.is_expandable and searches - block.born >= mean_age]
            if not old:
                return
            for block in old:
                reclaimed_bytes += block.size_bytes
                self._release(block)
                left.remove(block)

    # --- expandable segments --------------------------------------------------------------------------------------------------

    def _expand(self, pool: Pool, size_bytes: int) -> Block | None:
        """A block at addresses that are mapped page by page as they are needed; ``None`` where the device gives no more pages."""
        block = self._with_room(pool, size_bytes) or self._new_range(pool)
        if not block.is_mapped and not self._map(block, min(block.size_bytes, size_bytes)):
            return None
        while block.size_bytes < size_bytes:
            behind = block.following
            if behind is None:  # _with_room promises that there is
                raise AssertionError("an expandable segment ended before its room did")
            if not self._map(behind, min(size_bytes - block.size_bytes, behind.size_bytes)):
                return None
            block = behind
        pool.remove(block)
        return block

    @staticmethod
    def _with_room(pool: Pool, size_bytes: int) -> Block | None:
        """The lowest free stretch, mapped or not, that is long enough and has unmapped addresses in it."""
        for unmapped in pool.unmapped:
            before = unmapped.previous
            first = before if before is not None and not before.is_used else unmapped
            room_bytes, block = 0, first
            while room_bytes < size_bytes and not block.is_used:
                room_bytes += block.size_bytes
                if block.following is None:
                    break
                block = block.following
            if room_bytes >= size_bytes:
                return first
        return None

    def _page_bytes(self, pool: Pool) -> int:
        return _SMALL_SEGMENT_BYTES if pool.is_small else self.settings.large_segment_bytes

    def _new_range(self, pool: Pool) -> Block:
        """Addresses for the whole device and an eighth, so that pages can be moved to the end."""
        device_bytes = _ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
        range_bytes = _up(device_bytes + device_bytes // 8, self._page_bytes(pool))
        block = Block(self._next_address, range_bytes, pool, self._next_address, is_expandable=True, is_mapped=False)
        self._next_address += range_bytes + _GAP_BYTES
        pool.add_unmapped(block)
        return block

    def _map(self, block: Block, size_bytes: int) -> bool:
        """Put pages behind the first bytes of an unmapped block and cache it."""
        mapped_bytes = _up(size_bytes, self._page_bytes(block.pool))
        if not self._reserve(mapped_bytes):
            return False
        pool = block.pool
        pool.unmapped.remove(block)
        block.is_mapped = True
        if mapped_bytes < block.size_bytes:
            rest = Block(
                block.address + mapped_bytes,
                block.size_bytes - mapped_bytes,
                pool,
                block.base,
                is_expandable=True,
                is_mapped=False,
            )
            rest.insert_between(block, block.following)
            pool.add_unmapped(rest)
            block.size_bytes = mapped_bytes
        self._merge(block, block.previous)
        self._merge(block, block.following)
        pool.add(block)
        return True

    def _unmap(self, block: Block) -> None:
        """Give the whole pages of a cached block back; what is left on either side stays cached."""
        page_bytes, base = self._page_bytes(block.pool), block.base
        start = base + _up(block.address - base, page_bytes)
        end = base + (block.address + block.size_bytes - base) // page_bytes * page_bytes
        if end <= start:
            return
        pool = block.pool
        pool.remove(block)
        self.reserved_bytes -= end - start
        before_bytes, after_bytes = start - block.address, block.address + block.size_bytes - end
        if before_bytes:
            before = Block(block.address, before_bytes, pool, base, is_expandable=True)
            before.insert_between(block.previous, block)
            pool.add(before)
        if after_bytes:
            after = Block(end, after_bytes, pool, base, is_expandable=True)
            after.insert_between(block, block.following)
            pool.add(after)
        block.address, block.size_bytes, block.is_mapped = start, end - start, False
        self._merge(block, block.previous)
        self._merge(block, block.following)
        pool.add_unmapped(block)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
