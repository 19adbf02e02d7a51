"""Main, shared and local memory of simulated threads, and who touched them.

Two threads race when they touch one element, one of them writing, and no barrier orders them
(the definition of the CUDA memory model, with barriers as the only order). For every element the
readers and the writers since the last barrier are remembered as the span of their numbers, which
is exact: threads of one block between two barriers, or of two blocks at any time, all conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from relaxlab.runtime.arrays import Array, uninitialised

# One integer per element holds a thread's number and the site of its access: a million sites leave
# 43 bits for threads, more than a grid can have in the time that anybody waits.
_SITE_BITS = 20
_SITE_MASK = (1 << _SITE_BITS) - 1


@dataclass(slots=True)
class Clock:
    """The times at which the threads of each running block, and of each of its warps, last met.

    `now` counts meetings; `blocks` (one entry per block) and `warps` (blocks x warps) hold its
    value after the last one of each, `oldest` the least of `blocks`. `first` is the number of the
    first block that runs, `threads` the number of threads of a block, `warp` that of a warp.
    """

    first: int
    threads: int
    warp: int
    blocks: Array
    warps: Array
    now: int = 0
    oldest: int = 0


@dataclass(frozen=True, slots=True)
class Race:
    """Elements `at` (positions in the access) that another thread, `other`, touched at `sites`."""

    at: Array
    other: Array
    sites: Array


class History:
    """The threads that last read, or wrote, each element, and the times at which they did.

    `low` and `high` are accesses by the first and the last thread: the thread's number and the
    access's site in one integer, -1 before the first access.
    """

    __slots__ = ("high", "low", "per_block", "time")

    def __init__(self, size: int, per_block: bool) -> None:
        self.per_block = per_block
        self.low = np.full(size, -1, np.int64)
        self.high = np.full(size, -1, np.int64)
        self.time = np.full(size, -1, np.int64)

    def race(self, at: Array, numbers: Array, clock: Clock, before: Array | None) -> Race | None:
        """Return the accesses of elements `at` by the threads `numbers` that race with remembered
        ones; `before` is the result of `ordered`."""
        if before is None:
            return None
        bad = np.flatnonzero(~before)
        me, low, high = numbers[bad], self.low[at[bad]], self.high[at[bad]]
        far_low, far_high = (_distance(x >> _SITE_BITS, me, clock) for x in (low, high))
        other = np.where(far_high > far_low, high, low)
        return Race(bad, other >> _SITE_BITS, other & _SITE_MASK)

    def ordered(self, at: Array, numbers: Array, clock: Clock) -> Array | None:
        """Return where every remembered access of the elements `at` happens before an access by the
        threads `numbers` now; None if everywhere."""
        time = self.time[at]
        latest = int(time.max(initial=-1))
        if latest < 0 or (self.per_block and latest < clock.oldest):
            return None
        low, high = self.low[at] >> _SITE_BITS, self.high[at] >> _SITE_BITS
        blocks, threads = np.divmod(numbers, clock.threads)
        start = blocks * clock.threads
        inside = (low >= start) & (high < start + clock.threads)
        before = inside & (time < clock.blocks[blocks - clock.first])
        warp = start + threads // clock.warp * clock.warp
        met = clock.warps[blocks - clock.first, threads // clock.warp]
        before |= inside & (low >= warp) & (high < warp + clock.warp) & (time < met)
        before |= (low == numbers) & (high == numbers)
        before |= time < 0
        return None if before.all() else before

    def add(self, at: Array, numbers: Array, before: Array | None, site: int, now: int) -> None:
        """Remember reads. Of several threads at one element the first gives `low` and the last
        `high`: numbers ascend, and the last of several assignments to an element stays."""
        low = high = (numbers << _SITE_BITS) + site
        if before is not None:
            low = np.where(before, low, np.minimum(self.low[at], low))
            high = np.where(before, high, np.maximum(self.high[at], high))
        self.low[at[::-1]] = low[::-1]
        self.high[at] = high
        self.time[at] = now

    def add_writes(self, at: Array, numbers: Array, site: int, now: int) -> Race | None:
        """Remember writes, which are ordered or were reported; the race of threads that write
        one element with this very access."""
        self.low[at] = self.high[at] = (numbers << _SITE_BITS) + site
        self.time[at] = now
        last = self.high[at] >> _SITE_BITS
        if np.array_equal(last, numbers):
            return None
        bad = np.flatnonzero(last != numbers)
        return Race(bad, last[bad], np.full(len(bad), site))


def _distance(a: Array, b: Array, clock: Clock) -> Array:
    """Return how far apart threads are: 0 for one thread, 1 in a warp, 2 in a block, 3 beyond.

    Of the threads remembered of an element the farthest is not ordered if any is not: what the near
    ones did may have been ordered since by a barrier, which did not bind the far one.
    """
    threads, warp_size = clock.threads, clock.warp
    block = a // threads == b // threads
    warp = block & (a % threads // warp_size == b % threads // warp_size)
    return 3 - block.astype(int) - warp - (a == b)


class Watcher(Protocol):
    """An observer of faults; `at` are positions in the access."""

    def race(self, found: Race, verb: str) -> None:
        """Report a race; `verb`: the other thread reads or writes."""
        ...

    def uninitialised(self, at: Array) -> None: ...


@dataclass(slots=True)
class Memory:
    """Main memory, or the shared memory of the blocks that run (`per_block`): elements, whether
    they were written (None: all were), and who read and wrote them (None: the launch never
    writes them, so nothing can race)."""

    data: Array
    written: Array | None = None
    per_block: bool = False
    histories: tuple[History, History] | None = field(default=None)
    changed: bool = False

    def watch(self) -> None:
        """Forget past accesses, and look for races from now on: there will be writes."""
        self.changed = True
        size = self.data.size
        self.histories = History(size, self.per_block), History(size, self.per_block)

    def load(self, at: Array, numbers: Array, clock: Clock, site: int, watcher: Watcher) -> Array:
        """The elements `at`, read by the threads `numbers`, which ascend."""
        if self.histories is not None:
            reads, writes = self.histories
            found = writes.race(at, numbers, clock, writes.ordered(at, numbers, clock))
            if found is not None:
                watcher.race(found, "writes")
            reads.add(at, numbers, reads.ordered(at, numbers, clock), site, clock.now)
        if self.written is not None and not (there := self.written[at]).all():
            watcher.uninitialised(np.flatnonzero(~there))
        return self.data[at]

    def store(
        self, at: Array, value: Any, numbers: Array, clock: Clock, site: int, watcher: Watcher
    ) -> None:
        """Set the elements `at`; of several threads at one element the last wins."""
        assert self.histories is not None
        reads, writes = self.histories
        for history, verb in ((writes, "writes"), (reads, "reads")):
            found = history.race(at, numbers, clock, history.ordered(at, numbers, clock))
            if found is not None:
                watcher.race(found, verb)
        found = writes.add_writes(at, numbers, site, clock.now)
        if found is not None:
            watcher.race(found, "writes")
        self.data[at] = value
        if self.written is not None:
            self.written[at] = True

    @staticmethod
    def fresh(size: int, dtype: str, *, per_block: bool) -> Memory:
        """Return memory that is not written yet."""
        return Memory(uninitialised((size,), dtype), np.zeros(size, bool), per_block)


@dataclass(slots=True)
class LocalMemory:
    """Registers: one array per element with an entry for each thread that runs."""

    data: Array
    written: Array

    @staticmethod
    def fresh(size: int, threads: int, dtype: str) -> LocalMemory:
        """Return registers that are not written yet."""
        return LocalMemory(uninitialised((size, threads), dtype), np.zeros((size, threads), bool))
