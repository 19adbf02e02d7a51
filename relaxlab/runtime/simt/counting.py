"""One block of a launch, run like any other while its work is counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from relaxlab.codegen.gpu.bytes_in_words import BITWISE, LANES
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.simt.access import Access, Cost, Site, cost_of
from relaxlab.runtime.simt.counters import (
    QUOTIENTS,
    Counters,
    Pipe,
    Work,
    fused_products,
    work_of,
)
from relaxlab.runtime.simt.kernel import Kernel
from relaxlab.runtime.simt.points import Points
from relaxlab.runtime.simt.team import Team

_COUNTED = (expr.Cast, expr.Select, expr.Not, expr.Call)
ON_WORDS = (*BITWISE, expr.ShiftLeft, expr.ShiftRight)
"""Operations on bytes that the lanes of a vectorized loop do on words of four."""


class CountingTeam(Team):
    """The block of number `block` of a kernel. `accesses` are all of its accesses in order; what is
    run counts `weight` times.

    As in compiled code, an element that was loaded since the last barrier, store to its buffer or
    iteration of a serial loop is in a register: it is no access that `counters` count.
    """

    def __init__(self, kernel: Kernel, block: int) -> None:
        super().__init__(kernel, block, 1)
        self.accesses: list[Access] = []
        self.weight = 1.0
        self._costs: dict[Site, Cost] = {}
        self._pipes: dict[Pipe, float] = {}
        self._products = self._barriers = 0.0
        self._fused = fused_products(kernel.launch.body)
        self._work: dict[int, Work] = {}
        self._addressing = False
        self._loaded: dict[Buffer, set[bytes]] = {}

    def counters(self) -> Counters:
        """The work of the block so far."""
        return Counters(self._costs, self._pipes, self._products, self._barriers)

    def value(self, e: PrimExpr, p: Points) -> Any:
        found = super().value(e, p)
        if isinstance(e, _COUNTED):
            self._count(e, found, p)
        return found

    def _binary(self, e: expr.BinaryOp, p: Points) -> Any:
        found = super()._binary(e, p)
        self._count(e, found, p)
        return found

    def _count(self, e: PrimExpr, found: Any, p: Points) -> None:
        """Count an operation; those on what all threads agree on have a unit of their own."""
        if not isinstance(found, np.ndarray):
            return
        if self._addressing and not isinstance(e, QUOTIENTS):
            return
        work = self._work.get(id(e))
        if work is None:
            work = self._work[id(e)] = work_of(e, id(e) in self._fused)
        together = LANES if p.spread and isinstance(e, ON_WORDS) and e.dtype == "uint8" else 1
        for pipe, times in work.items():
            self._add(pipe, times * self._instructions(p) / together)

    def _flat(self, buffer: Buffer, indices: tuple[PrimExpr, ...], p: Points) -> Any:
        outside, self._addressing = self._addressing, True
        found = super()._flat(buffer, indices, p)
        self._addressing = outside
        return found

    def _add(self, pipe: Pipe, instructions: float) -> None:
        self._pipes[pipe] = self._pipes.get(pipe, 0) + instructions * self.weight

    def _instructions(self, p: Points) -> int:
        """The instructions of warps that an operation at these points is."""
        found = p.values.get("instructions")
        if found is None:
            if p.pick is None and p.parent is not None:
                found = self._instructions(p.parent)
            else:
                warps = np.count_nonzero(np.diff(p.lanes // self.warp, prepend=-1))
                each = np.bincount(p.lanes).max() if p.spread else 1
                found = int(warps * each)
            p.values["instructions"] = found
        return found

    def _touched(self, access: BufferLoad | BufferStore, at: Array, p: Points) -> None:
        site = self.kernel.sites[self.kernel.site(self.stmt, access)]
        size = numpy_dtype(access.buffer.dtype).itemsize
        one = Access(site, p.lanes, at * size, size)
        self._keep(one)
        if not site.write:
            known = self._loaded.setdefault(access.buffer, set())
            key = p.lanes.tobytes() + one.offsets.tobytes()
            if key in known:
                return
            known.add(key)
        else:
            self._loaded.pop(access.buffer, None)
        cost, before = cost_of(one, self.kernel.launch.facts), self._costs.get(site)
        paid = cost * self.weight
        self._costs[site] = paid if before is None else before + paid
        self._add("lsu", cost.instructions)

    def _keep(self, access: Access) -> None:
        self.accesses.append(access)

    def on_product(self, operations: int) -> None:
        self._products += operations * self.weight

    def _barrier(self, e: expr.Call, p: Points) -> None:
        before = self.barriers[0]
        super()._barrier(e, p)
        self._barriers += float(self.barriers[0] - before) * self.weight
        self._loaded.clear()

    def _iterations(self, s: loops.For, extent: int) -> Iterable[int]:
        for n in range(extent):
            if s.kind == "serial":
                self._next_iteration()
            yield n

    def _next_iteration(self) -> None:
        self._loaded.clear()
