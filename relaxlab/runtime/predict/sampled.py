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
from relaxlab.runtime.simt.asynchronous import ROWS, TERMS, WARPGROUP, Units, element_at
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
    writes at least once, and how often its threads wait for main memory before they go on. `boxes`
    are the bytes that copies of boxes bring, `warpgroup_products` the part of the floating-point
    operations of tensor cores that is of warpgroups."""

    counters: Counters
    read: dict[Buffer, float] = field(default_factory=dict[Buffer, float])
    written: dict[Buffer, float] = field(default_factory=dict[Buffer, float])
    trips: float = 0.0
    boxes: float = 0.0
    warpgroup_products: float = 0.0


class SampledTeam(CountingTeam):
    """A block of which only the first, the second and the last iteration of each serial loop are
    run. The second stands for all in between."""

    def __init__(self, kernel: Kernel, block: int) -> None:
        super().__init__(kernel, block)
        self._touched_sectors: dict[tuple[Buffer, bool], set[int]] = {}
        self._bytes: dict[tuple[Buffer, bool], float] = {}
        self._trips = 0.0
        self._waits = 1.0
        self.units = self._units = _SampledUnits(self)

    def _shared(self, buffer: Buffer) -> Memory:
        return _zeros(buffer, math.prod(self.kernel.shapes[buffer]))

    def work(self) -> BlockWork:
        """The work of the whole block."""
        units = self._units
        found = BlockWork(
            self.counters(), trips=self._trips + units.trips, boxes=units.boxes,
            warpgroup_products=units.products,
        )  # fmt: skip
        for (buffer, write), count in self._bytes.items():
            (found.written if write else found.read)[buffer] = count
        for buffer, count in units.read.items():
            found.read[buffer] = found.read.get(buffer, 0) + count
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


class _SampledUnits(Units):
    """Copies of boxes and products of warpgroups, which are counted and not made: where iterations
    are left out, nobody may wait for others."""

    def __init__(self, team: SampledTeam) -> None:
        super().__init__(team)
        self._block = team
        self._known: set[tuple[Buffer, tuple[int, ...]]] = set()
        self.read: dict[Buffer, float] = {}
        self.boxes = self.products = self.trips = 0.0

    def call(self, e: expr.Call, p: Points) -> None:
        """Count a call."""
        team = self._block
        match e.op:
            case "tma_load":
                source = element_at(e.args[1])
                size = numpy_dtype(source.dtype).itemsize * team.weight
                count = math.prod(int(team.value(n, p)) for n in e.args[2:-1]) * size
                corner = tuple(int(np.ravel(team.value(n, p))[0]) for n in source.indices)
                self.boxes += count
                self.trips = 1.0  # a block waits for its first box alone
                if (source.buffer, corner) not in self._known:
                    self._known.add((source.buffer, corner))
                    self.read[source.buffer] = self.read.get(source.buffer, 0) + count
            case "wgmma":
                columns, groups = int(team.value(e.args[3], p)), len(p) // WARPGROUP
                operations = 2 * ROWS * columns * TERMS * groups
                team.on_product(operations)
                self.products += operations * team.weight
            case _:
                pass


class _WaveUnits(Units):
    """The units of a wave: they keep where its blocks begin to copy boxes, and nothing waits."""

    def __init__(self, team: WaveTeam) -> None:
        super().__init__(team)
        self._wave = team

    def call(self, e: expr.Call, p: Points) -> None:
        """Look at where a box begins."""
        if e.op == "tma_load":
            source = element_at(e.args[1])
            places = np.broadcast_to(self._wave.place(source, p), len(p))
            self._wave.share(source.buffer, places, p)


class WaveTeam(Team):
    """One warp of each block of a wave, as far as the first iteration of each loop: where blocks
    begin to read. `shares` has for each buffer how many different places they are, of all."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        super().__init__(kernel, 0, count)
        self.shares: dict[Buffer, float] = {}
        self.units = _WaveUnits(self)

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
        self.share(buffer, at, p)

    def share(self, buffer: Buffer, at: Array, p: Points) -> None:
        """Note at how many different places blocks read, of all of them."""
        blocks = self._blocks(p)
        first = at[np.flatnonzero(np.diff(blocks, prepend=-1))]
        share = len(np.unique(first)) / len(first)
        self.shares[buffer] = max(self.shares.get(buffer, 0), share)

    def _barrier(self, e: expr.Call, p: Points) -> None: ...
