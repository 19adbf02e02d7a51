"""Costs of a recorded run of a loop function: accesses to memory by reuse distance, and the
instructions that its loops ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.node import children, walk
from relaxlab.runtime.interpreter.loops import Arrival
from relaxlab.runtime.interpreter.record_accesses import Access, Recording, Step, reuse_distances
from relaxlab.schedule.tensor_intrin import register_scope

LINE_BYTES = (16, 32, 64, 128)
"""Cache lines to choose from. That of today's CPUs has 64 bytes; on matrices small enough to be
looked at, the toy line of four numbers shows what that does to large ones."""

UNROLLED_KINDS = ("vectorized", "unrolled")
"""Kinds of loops whose iterations are one instruction, or stand one after the other in the code."""


def costs_state(found: Recording, func: loops.PrimFunc) -> dict[str, Any]:
    """Return the costs of a recording: counts of accesses to memory, how many of them have which
    reuse distance (first touches as -1) in elements and in lines of each of `LINE_BYTES`, bytes of
    scratch memory, and the instructions issued."""
    accesses = [a for a in found.accesses if _in_memory(found, a)]
    places = [(a.buffer, a.element) for a in accesses]
    scratch = [h for h in found.buffers if h.initial is None and not _in_registers(h.buffer)]
    sizes = (numpy_dtype(h.buffer.dtype).itemsize * int(np.prod(h.shape)) for h in scratch)
    return {
        "steps": len(found.steps),
        "reads": sum(not a.write for a in accesses),
        "writes": sum(a.write for a in accesses),
        "elements": len(set(places)),
        "scratch": sum(sizes),
        "distances": _histogram(reuse_distances(places)),
        "lines": {
            str(size): _histogram(reuse_distances(found.line_of(a, size) for a in accesses))
            for size in LINE_BYTES
        },
        "issued": issued(found, func).state(),
        "cut": found.cut,
        "through_addresses": found.through_addresses,
        "error": found.error,
    }  # fmt: skip


def _in_memory(found: Recording, a: Access) -> bool:
    return not _in_registers(found.buffers[a.buffer].buffer)


def _in_registers(buffer: loops.Buffer) -> bool:
    """True for buffers that are registers, or are meant to be kept in them: no memory is accessed
    for them."""
    return buffer.scope.startswith("local") or register_scope(buffer.scope) is not None


def _histogram(distances: Sequence[int | None]) -> list[list[int]]:
    counts = Counter(-1 if d is None else d for d in distances)
    return [[d, n] for d, n in sorted(counts.items())]


@dataclass(slots=True)
class Issued:
    """Instructions of a run: loads and stores of memory, and arithmetic."""

    loads: int = 0
    stores: int = 0
    arithmetic: int = 0

    def state(self) -> dict[str, int]:
        """The counts by name."""
        return {"loads": self.loads, "stores": self.stores, "arithmetic": self.arithmetic}


@dataclass(slots=True)
class _Window:
    """The values that the code of one iteration of the loops that are neither vectorized nor
    unrolled holds in registers: of the places it has loaded or stored already."""

    known: set[tuple[int, frozenset[int]]] = field(default_factory=set[tuple[int, frozenset[int]]])


def issued(found: Recording, func: loops.PrimFunc) -> Issued:
    """Return the instructions of a recorded run.

    The iterations of vectorized loops are one instruction: a load or store of neighbouring
    elements, or of one element for all lanes, counts once, any other once for each lane. Within an
    iteration of the innermost loop that is neither vectorized nor unrolled, what was loaded or
    stored before is in a register. Buffers of scope `local` are registers. How often a machine has
    to split a vector, and what it keeps from one iteration to the next, is not counted.
    """
    kinds = loop_kinds(func)
    work = [_operations(s.stmt) for s in found.statements]
    total = Issued()
    window, at = _Window(), None
    for place, statement, lanes in _instructions(found, kinds):
        if place != at:
            window, at = _Window(), place
        total.arithmetic += work[statement]
        for same in zip(*(s.accesses for s in lanes), strict=False):
            if _in_memory(found, same[0]):
                _count(same, window, total)
    return total


def loop_kinds(func: loops.PrimFunc) -> dict[expr.Var, str]:
    """Return how the iterations of each loop run, by its variable: `serial`, `vectorized`, …"""
    return {s.loop_var: s.kind for s in walk(func.body) if isinstance(s, loops.For)}


def _count(lanes: Sequence[Access], window: _Window, total: Issued) -> None:
    """Add one access of all lanes."""
    elements = frozenset(a.element for a in lanes)
    key = lanes[0].buffer, elements
    together = max(elements) - min(elements) < len(elements)
    count = 1 if together else len(elements)
    if lanes[0].write:
        total.stores += count
        window.known = {k for k in window.known if k[0] != key[0] or not k[1] & elements}
    elif key not in window.known:
        total.loads += count
    window.known.add(key)


Place = tuple[tuple[expr.Var, int], ...]


def _instructions(
    found: Recording, kinds: Mapping[expr.Var, str]
) -> Iterator[tuple[Place, int, list[Step]]]:
    """The steps, those of the lanes of one instruction together: the iteration they belong to, the
    statement, and a step for each lane."""
    window: dict[tuple[int, Place], list[Step]] = {}
    at: Place | None = None
    for step in found.steps:
        arrival = found.statements[step.statement]
        outer, unrolled = _place(arrival, step, kinds)
        if outer != at:
            yield from ((at or (), k[0], lanes) for k, lanes in window.items())
            window, at = {}, outer
        window.setdefault((step.statement, unrolled), []).append(step)
    yield from ((at or (), k[0], lanes) for k, lanes in window.items())


def _place(arrival: Arrival, step: Step, kinds: Mapping[expr.Var, str]) -> tuple[Place, Place]:
    """The iteration of the loops outside those that are vectorized or unrolled at the end, and
    that of the unrolled ones among these."""
    around = list(zip(arrival.loops, step.values, strict=True))
    inner = len(around)
    while inner > 0 and kinds.get(around[inner - 1][0]) in UNROLLED_KINDS:
        inner -= 1
    unrolled = tuple(p for p in around[inner:] if kinds.get(p[0]) == "unrolled")
    return tuple(around[:inner]), unrolled


def _operations(stmt: loops.Stmt) -> int:
    """Return the number of operations on data in a store; index arithmetic is left out."""
    if not isinstance(stmt, loops.BufferStore):
        return 0

    def count(e: expr.PrimExpr) -> int:
        if isinstance(e, loops.BufferLoad):
            return 0
        inner = [c for c in children(e) if isinstance(c, expr.PrimExpr)]
        return bool(inner) + sum(map(count, inner))

    return count(stmt.value)
