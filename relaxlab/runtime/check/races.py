"""Races: iterations of a loop that run at once and meet in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.record_accesses import Recording, record_accesses

ACCESSES = 4000
"""Accesses that are looked at: a race shows in the first iterations, and each takes microseconds
to write down."""


@dataclass(frozen=True, slots=True)
class Race:
    """Two iterations of a parallel or vectorized loop of which one writes an element that the
    other reads, or writes with another value."""

    loop: str
    iterations: tuple[int, int]
    buffer: str
    index: tuple[int, ...]
    blocks: tuple[str, str]

    def __str__(self) -> str:
        where = f"{self.buffer}[{', '.join(map(str, self.index))}]"
        who = " and ".join(dict.fromkeys(map(repr, self.blocks)))
        first, second = self.iterations
        return (
            f"iterations {first} and {second} of the loop {self.loop}, which run at once, meet at "
            f"{where} in block {who}"
        )


def find_race(func: loops.PrimFunc, args: Sequence[Any]) -> Race | None:
    """Run a loop function on copies of `args`, one iteration after the other, and return the first
    race among about `ACCESSES` accesses; None where there is none.

    Iterations that store the same value to an element and read it after that themselves do not
    race. Raises ExecutionError for arguments that do not fit.
    """
    concurrent = _concurrent_loops(func)
    if not concurrent:
        return None
    found = record_accesses(func, args, ACCESSES)
    for var, private in concurrent.items():
        race = _race_of(var, private, found)
        if race is not None:
            return race
    return None


def _concurrent_loops(func: loops.PrimFunc) -> dict[expr.Var, frozenset[loops.Buffer]]:
    """The loops whose iterations run at once, with the buffers that each iteration has alone."""
    nests = [n for n in walk(func.body) if isinstance(n, loops.For)]
    counts = Counter(n.loop_var for n in nests)  # copies of a loop are told apart by nothing
    return {
        n.loop_var: frozenset(b for x in walk(n.body) if isinstance(x, loops.Block)
                              for b in x.alloc_buffers)
        for n in nests
        if n.kind in ("parallel", "vectorized") and counts[n.loop_var] == 1
    }  # fmt: skip


@dataclass(slots=True)
class _Element:
    """The accesses of an element while the loops around are fixed: the values that each iteration
    wrote, those that read values they had not written, and in which block."""

    written: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    read: list[int] = field(default_factory=list[int])
    blocks: dict[int, str] = field(default_factory=dict[int, str])

    def touch(self, iteration: int, write: bool, value: Any, block: str) -> None:
        self.blocks[iteration] = block
        if write:
            self.written.setdefault(iteration, []).append(value)
        elif iteration not in self.written:
            self.read.append(iteration)

    def conflict(self) -> tuple[int, int] | None:
        """Two iterations that race."""
        for writer in self.written:
            for other in (*self.read, *self.written):
                if other == writer:
                    continue
                values = [*self.written[writer], *self.written.get(other, ())]
                if other in self.read or not _all_equal(values):
                    return min(writer, other), max(writer, other)
        return None


def _all_equal(values: Collection[Any]) -> bool:
    first, *rest = values
    return all(np.array_equal(first, v, equal_nan=True) for v in rest)


def _race_of(var: expr.Var, private: Collection[loops.Buffer], found: Recording) -> Race | None:
    touched: dict[tuple[Any, ...], _Element] = {}
    for depth, values, block, access in _accesses_under(var, found):
        buffer = found.buffers[access.buffer].buffer
        if buffer in private or buffer.scope == "local":
            continue
        key = (values[:depth], access.buffer, access.element)
        touched.setdefault(key, _Element()).touch(values[depth], access.write, access.value, block)
    for (_, number, element), who in touched.items():
        iterations = who.conflict()
        if iterations is not None:
            held = found.buffers[number]
            index = tuple(int(i) for i in np.unravel_index(element, held.shape))
            blocks = who.blocks[iterations[0]], who.blocks[iterations[1]]
            return Race(var.name, iterations, held.buffer.name, index, blocks)
    return None


def _accesses_under(
    var: expr.Var, found: Recording
) -> Iterator[tuple[int, tuple[int, ...], str, Any]]:
    """The accesses inside a loop: its place among the loops around, their values, the block."""
    for step in found.steps:
        arrival = found.statements[step.statement]
        if var in arrival.loops:
            depth = arrival.loops.index(var)
            for access in step.accesses:
                yield depth, step.values, arrival.block, access
