"""The work of a block, from a few iterations of each of its loops, without computing results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.simt.access import Access
from relaxlab.runtime.simt.counters import Counters
from relaxlab.runtime.simt.counting import CountingTeam
from relaxlab.runtime.simt.kernel import Kernel
from relaxlab.runtime.simt.memory import Clock, Memory, Watcher
from relaxlab.runtime.simt.points import Points
from relaxlab.runtime.simt.team import Team

UNROLLED = 4
"""Iterations of a serial loop that compilers unroll: their loads are under way together."""


class ReadOnly(Memory):
    """Memory that stores do not change: nobody looks at the results."""

    def store(
        self, at: Array, value: Any, numbers: Array, clock: Clock, site: int, watcher: Watcher
    ) -> None:
        """Do nothing."""


def _zeros(buffer: Buffer, count: int) -> ReadOnly:
    """Shared memory of so many elements, which takes none."""
    return ReadOnly(np.broadcast_to(np.zeros((), numpy_dtype(buffer.dtype)), count))


@dataclass(slots=True)
class BlockWork:
    """The work of a block: its counters, the bytes of main memory by buffer that it reads and
    writes at least once, and how often its threads wait for main memory before they go on."""

    counters: Counters
    read: dict[Buffer, float] = field(default_factory=dict[Buffer, float])
    written: dict[Buffer, float] = field(default_factory=dict[Buffer, float])
    trips: float = 0.0


class SampledTeam(CountingTeam):
    """A block of which only the first, the second and the last iteration of each serial loop are
    run. The second stands for all in between."""

    def __init__(self, kernel: Kernel, block: int) -> None:
        super().__init__(kernel, block)
        self._touched_sectors: dict[tuple[Buffer, bool], set[int]] = {}
        self._bytes: dict[tuple[Buffer, bool], float] = {}
        self._trips = 0.0
        self._waits = 1.0

    def _shared(self, buffer: Buffer) -> Memory:
        return _zeros(buffer, math.prod(self.kernel.shapes[buffer]))

    def work(self) -> BlockWork:
        """The work of the whole block."""
        found = BlockWork(self.counters(), trips=self._trips)
        for (buffer, write), count in self._bytes.items():
            (found.written if write else found.read)[buffer] = count
        return found

    def _iterations(self, s: loops.For, extent: int) -> Iterable[int]:
        if s.kind != "serial" or extent <= 3:
            yield from super()._iterations(s, extent)
            return
        outside = self.weight
        for n, times in ((0, 1), (1, extent - 2), (extent - 1, 1)):
            self.weight = outside * times
            self._next_iteration()
            yield n
        self.weight = outside

    def _next_iteration(self) -> None:
        super()._next_iteration()
        self._waits = max(self._waits, 1 / UNROLLED)

    def _keep(self, access: Access) -> None:
        """Count sectors at their first access and loads that something waits for."""
        buffer = access.site.buffer
        if buffer is None or buffer.scope != "global":
            return
        key, sector = (buffer, access.site.write), self.kernel.launch.facts.sector
        ends = (access.offsets // sector, (access.offsets + access.itemsize - 1) // sector)
        known = self._touched_sectors.setdefault(key, set())
        fresh = set(np.unique(np.concatenate(ends)).tolist()) - known
        known |= fresh
        self._bytes[key] = self._bytes.get(key, 0) + len(fresh) * sector * self.weight
        if not access.site.write and not self._is_asynchronous():
            self._trips += self._waits * self.weight
            self._waits = 0

    def _is_asynchronous(self) -> bool:
        match self.stmt:
            case loops.Evaluate(expr.Call(op=op)):
                return op.startswith("cp_async")
            case _:
                return False

    def _barrier(self, e: expr.Call, p: Points) -> None:
        super()._barrier(e, p)
        self._waits = 1


class WaveTeam(Team):
    """One warp of each block of a wave, as far as the first iteration of each loop: where blocks
    begin to read. `shares` has for each buffer how many different places they are, of all."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        super().__init__(kernel, 0, count)
        self.shares: dict[Buffer, float] = {}

    def _shared(self, buffer: Buffer) -> Memory:
        return _zeros(buffer, math.prod(self.kernel.shapes[buffer]) * self.count)

    def _lanes(self) -> Array:
        lanes = np.arange(self.count * self.threads)
        return lanes[lanes % self.threads < self.warp]

    def _iterations(self, s: loops.For, extent: int) -> Iterable[int]:
        return range(min(1, extent))

    def _touched(self, access: BufferLoad | BufferStore, at: Array, p: Points) -> None:
        buffer = access.buffer
        if buffer.scope != "global" or self.kernel.sites[self.kernel.site(self.stmt, access)].write:
            return
        blocks = self._blocks(p)
        first = at[np.flatnonzero(np.diff(blocks, prepend=-1))]
        share = len(np.unique(first)) / len(first)
        self.shares[buffer] = max(self.shares.get(buffer, 0), share)

    def _barrier(self, e: expr.Call, p: Points) -> None: ...
