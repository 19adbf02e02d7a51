"""Threads of a GPU block, side by side: what they exchange at barriers and in warps.

A thread is a Python generator. It runs until it needs others, and yields what it wants of them: a
`Meeting`, or a `Fork` into the threads of another axis. Threads that wait at one statement are
answered together; nobody passes a barrier before all threads have come to one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.arrays import Array, ExecutionError, uninitialised

WARP = 32
"""The threads of a warp."""
BARRIER = "tvm_storage_sync"
ALLREDUCE = "tvm_thread_allreduce"

Where: TypeAlias = "Mapping[str, tuple[int, int]]"
"""A thread by the axes of its block: its number on each, and the extent."""
Body: TypeAlias = "Callable[[Any, Where], Generator[Any, Any, None]]"
"""The program of a thread, given its number on an axis and all its numbers."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A thread goes on as several, along one more axis, and waits for them."""

    axis: str
    low: Any
    extent: Any
    body: Body


@dataclass(frozen=True, slots=True)
class Meeting:
    """Threads at one statement, which its number tells apart, exchange values by an intrinsic."""

    number: int
    op: str
    values: tuple[Any, ...] = ()
    axes: tuple[str, ...] = ()
    combine: Callable[..., tuple[Any, ...]] | None = None


@dataclass(eq=False, slots=True)
class _Thread:
    run: Generator[Any, Any, None]
    where: Where
    parent: _Thread | None = None
    children: int = 0
    wanted: Meeting = field(default_factory=lambda: Meeting(-1, BARRIER))

    def lane(self) -> tuple[int, int]:
        """The warp of the thread and its number there."""
        number, width = 0, 1
        for axis in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            index, extent = self.where.get(axis, (0, 1))
            number, width = number + index * width, width * extent
        return divmod(number, WARP)


def side_by_side(fork: Fork) -> None:
    """Run the threads of a fork until all have ended. Raises ExecutionError where some wait at one
    barrier and some at another."""
    waiting = _forked(fork, None, {})
    while waiting:
        groups: dict[int, list[_Thread]] = {}
        for thread in waiting:
            groups.setdefault(thread.wanted.number, []).append(thread)
        exchanges = [n for n, group in groups.items() if group[0].wanted.op != BARRIER]
        if not exchanges and len(groups) > 1:
            raise ExecutionError("the threads of a block wait at different barriers")
        number = min(exchanges, default=next(iter(groups)))
        met = groups.pop(number)
        waiting = [t for group in groups.values() for t in group]
        for thread, answer in zip(met, list(_answers(met)), strict=True):
            waiting += _go_on(thread, answer)


def _forked(fork: Fork, parent: _Thread | None, where: Where) -> list[_Thread]:
    kind, extent = np.asarray(fork.extent).dtype.type, int(fork.extent)
    children: list[_Thread] = []
    for n in range(extent):
        own = {**where, fork.axis: (n, extent)}
        children.append(_Thread(fork.body(kind(int(fork.low) + n), own), own, parent))
    if parent is not None:
        parent.children = extent
        if not children:
            return _go_on(parent, None)
    return [t for child in children for t in _go_on(child, None)]


def _go_on(thread: _Thread, answer: Any) -> list[_Thread]:
    """The threads that wait after one went on: itself, its children, or those it was waited for
    by."""
    try:
        wanted = thread.run.send(answer)
    except StopIteration:
        if thread.parent is None:
            return []
        thread.parent.children -= 1
        return [] if thread.parent.children else _go_on(thread.parent, None)
    if isinstance(wanted, Fork):
        return _forked(wanted, thread, thread.where)
    thread.wanted = wanted
    return [thread]


def _answers(met: Sequence[_Thread]) -> Iterable[Any]:
    op = met[0].wanted.op
    if op == BARRIER:
        return [None] * len(met)
    return _reduced(met) if op == ALLREDUCE else _exchanged(met, op)


def _exchanged(met: Sequence[_Thread], op: str) -> Iterable[Any]:
    """For each thread what an intrinsic of its warp gives: the mask of those that are there, or
    the value of another lane; its own where that lane is not there."""
    warps: dict[int, dict[int, _Thread]] = {}
    for thread in met:
        warp, lane = thread.lane()
        warps.setdefault(warp, {})[lane] = thread
    for thread in met:
        warp, lane = thread.lane()
        lanes = warps[warp]
        if op == "tvm_warp_activemask":
            yield np.uint32(sum(1 << n for n in lanes))
        else:
            source = lanes.get(_source(op, lane, thread.wanted.values), thread)
            yield source.wanted.values[0 if op == "warp_shuffle_xor" else 1]


def _source(op: str, lane: int, values: tuple[Any, ...]) -> int:
    """The lane whose value a shuffle returns in a lane."""
    if op == "warp_shuffle_xor":
        return lane ^ int(values[1])
    by, width = int(values[2]), int(values[3])
    start = lane - lane % width
    found = {
        "tvm_warp_shuffle": start + by % width,
        "tvm_warp_shuffle_up": lane - by,
        "tvm_warp_shuffle_down": lane + by,
        "tvm_warp_shuffle_xor": lane ^ by,
    }[op]
    return found if start <= found < start + width else lane


def _reduced(met: Sequence[_Thread]) -> Iterable[tuple[Any, ...]]:
    """For each thread the values that those along the axes of the reduction have together. A thread
    whose condition does not hold adds nothing."""
    groups: dict[Any, tuple[Any, ...]] = {}
    keys: list[Any] = []
    for thread in met:
        wanted = thread.wanted
        key = tuple(sorted((a, i) for a, (i, _) in thread.where.items() if a not in wanted.axes))
        keys.append(key)
        *values, identities, holds = wanted.values
        own = tuple(values) if holds else identities
        assert wanted.combine is not None
        groups[key] = wanted.combine(*groups[key], *own) if key in groups else own
    return [groups[key] for key in keys]


COLLECTIVES = frozenset({
    BARRIER, ALLREDUCE, "warp_shuffle_xor", "tvm_warp_activemask", "tvm_warp_shuffle",
    "tvm_warp_shuffle_up", "tvm_warp_shuffle_down", "tvm_warp_shuffle_xor",
})  # fmt: skip
"""The intrinsics that need other threads."""


def own_memory(of: dict[Any, Array], array: Array, where: Where) -> Array:
    """The memory of one thread in place of an array that was allocated around its block's threads;
    `of` has that of all threads."""
    key = tuple(sorted((axis, index) for axis, (index, _) in where.items()))
    if key not in of:
        of[key] = uninitialised(array.shape, str(array.dtype))
        assert of[key].dtype == numpy_dtype(str(array.dtype))
    return of[key]
