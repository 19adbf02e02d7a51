"""A record of the memory accesses of a loop function, one statement after the other.

The loop interpreter runs the function with every read and write written down: which element, which
value, by which statement and in which iteration of the loops around it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.interpreter.helpers import NAMES, Place
from relaxlab.runtime.interpreter.interpreter import bind_parameters
from relaxlab.runtime.interpreter.loops import Arrival, compile_watched
from relaxlab.runtime.native.arguments import address_of


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write of element number `element` (row-major) of buffer number `buffer`."""

    buffer: int
    element: int
    write: bool
    value: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a statement: its number in the recording, the values of the loops around it,
    and its accesses, in order."""

    statement: int
    values: tuple[int, ...]
    accesses: list[Access]


@dataclass(frozen=True, slots=True)
class Held:
    """A buffer that was accessed or given: its shape as run, and its contents at the start (None
    for one that the function allocates)."""

    buffer: loops.Buffer
    shape: tuple[int, ...]
    initial: Array | None


@dataclass(slots=True)
class Recording:
    """A recorded run. `cut`: True if it was stopped at the limit of accesses. `error`: it failed
    after the steps that are here. `through_addresses`: intrinsics that were given addresses; what
    they touch there is not among the accesses."""

    statements: list[Arrival] = field(default_factory=list[Arrival])
    buffers: list[Held] = field(default_factory=list[Held])
    steps: list[Step] = field(default_factory=list[Step])
    cut: bool = False
    error: str | None = None
    through_addresses: bool = False

    @property
    def accesses(self) -> list[Access]:
        """All accesses, in order."""
        return [a for s in self.steps for a in s.accesses]

    def line_of(self, access: Access, line: int) -> tuple[int, int]:
        """Return the cache line of `line` bytes that an element is in; each buffer begins one."""
        size = numpy_dtype(self.buffers[access.buffer].buffer.dtype).itemsize
        return access.buffer, access.element * size // line

    def first(self, most: int) -> Recording:
        """Return the recording of the first steps alone, up to about `most` accesses."""
        count = 0
        for number, step in enumerate(self.steps):
            if count >= most:
                return replace(self, steps=self.steps[:number], cut=True)
            count += 1 + len(step.accesses)
        return self


class _Full(Exception):  # noqa: N818  nothing went wrong
    pass


@dataclass(slots=True)
class _Recorder:
    most: int
    found: Recording = field(default_factory=Recording)
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    allocated: dict[loops.Buffer, int] = field(default_factory=dict[loops.Buffer, int])
    statements: dict[Arrival, int] = field(default_factory=dict[Arrival, int])
    places: dict[int, tuple[int, int, tuple[int, ...]]] = field(
        default_factory=dict[int, tuple[int, int, tuple[int, ...]]]
    )
    alive: list[Array] = field(default_factory=list[Array])
    count: int = 0

    def hold(self, array: Array, held: Held) -> None:
        self.numbers[id(array)] = len(self.found.buffers)
        self.alive.append(array)
        self.found.buffers.append(held)

    def arrive(self, arrival: Arrival, *values: Any) -> None:
        if arrival not in self.statements:
            self.statements[arrival] = len(self.statements)
            self.found.statements.append(arrival)
        if self.count >= self.most:
            raise _Full
        self.count += 1  # so that a program without accesses ends, too
        step = Step(self.statements[arrival], tuple(map(int, values)), [])
        self.found.steps.append(step)

    def made(self, array: Array, buffer: loops.Buffer) -> None:
        """A buffer that is allocated again is the same memory."""
        if buffer in self.allocated:
            self.numbers[id(array)] = self.allocated[buffer]
            self.alive.append(array)
            return
        self.allocated[buffer] = len(self.found.buffers)
        self.hold(array, Held(buffer, array.shape, None))

    def read(self, array: Array, where: Place, *indices: Any) -> Any:
        value = NAMES["read"](array, where, *indices)
        self.touch(array, indices, value, write=False)
        return value

    def write(self, value: Any, array: Array, where: Place, *indices: Any) -> None:
        NAMES["write"](value, array, where, *indices)
        self.touch(array, indices, array[indices], write=True)

    def address(self, array: Array, where: Place, *indices: Any) -> Any:
        self.found.through_addresses = True
        return NAMES["address"](array, where, *indices)

    def touch(self, array: Array, indices: tuple[Any, ...], value: Any, *, write: bool) -> None:
        place = self.places.get(id(array))
        if place is None:
            place = self._place(array)
        buffer, offset, strides = place
        for index, stride in zip(indices, strides, strict=True):
            offset = offset + index * stride
        step = self.found.steps[-1]
        if not isinstance(offset, np.ndarray):  # most accesses: not those of a vector of indices
            step.accesses.append(Access(buffer, int(offset), write, value))
            self.count += 1
            return
        many = zip(np.atleast_1d(offset), np.atleast_1d(value), strict=True)
        for element, one in many:
            step.accesses.append(Access(buffer, int(element), write, one))
            self.count += 1

    def _place(self, array: Array) -> tuple[int, int, tuple[int, ...]]:
        """The number of the buffer that an array shows, where in it the array begins, and its
        strides, in elements. Remembered for arrays that outlive the run."""
        strides = tuple(s // array.itemsize for s in array.strides)
        if id(array) in self.numbers:
            self.places[id(array)] = self.numbers[id(array)], 0, strides
            return self.places[id(array)]
        root: Any = array.base
        while id(root) not in self.numbers:
            # A view of a part: NumPy keeps the array that it is a view of.
            root = root.base
        begin = address_of(array) - address_of(root)
        return self.numbers[id(root)], begin // array.itemsize, strides


def record_accesses(func: loops.PrimFunc, args: Sequence[Any], most: int = 20_000) -> Recording:
    """Run a loop function on `args` (dense arrays, numbers) until it has made about `most`
    accesses.

    What fails while it runs is the recording's `error`. Raises ExecutionError for arguments that
    do not fit and for a function that has no meaning to the interpreter.
    """
    env = bind_parameters(func, args)
    symbols = tuple(v for v in env if v not in func.params)
    recorder = _Recorder(most)
    values: list[Any] = []
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, loops.Buffer):
            # A copy, so that recording leaves the arguments as they were.
            values.append(np.array(a))
            recorder.hold(values[-1], Held(p, a.shape, a))
        else:
            values.append(_scalar(p, env))
    values += [_scalar(v, env) for v in symbols]
    watch = {n: getattr(recorder, n) for n in ("arrive", "made", "read", "write", "address")}
    kernel = compile_watched(func, symbols, watch)
    try:
        with np.errstate(all="ignore"):
            kernel(*values)
    except _Full:
        recorder.found.cut = True
    except ExecutionError as error:
        recorder.found.error = str(error)
    return recorder.found


def _scalar(v: expr.Var, env: dict[expr.Var, Any]) -> Any:
    return np.asarray(env[v]).astype(numpy_dtype(v.dtype))[()]


def reuse_distances(places: Iterable[Hashable]) -> list[int | None]:
    """Return, for each access, the number of other places touched since its place was touched last
    (the LRU stack distance of Mattson et al., 1970); None for the first touch.

    A cache of the n places used last hits where the distance is below n.
    """
    last: dict[Hashable, int] = {}
    order: list[int] = []  # when each place was touched last, ascending
    found: list[int | None] = []
    for now, place in enumerate(places):
        before = last.get(place)
        if before is None:
            found.append(None)
        else:
            at = bisect_left(order, before)
            found.append(len(order) - at - 1)
            del order[at]
        order.append(now)
        last[place] = now
    return found
