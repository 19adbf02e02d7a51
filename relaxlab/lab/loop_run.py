"""A loop function run on small arguments, as data: every access, in order, and its costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.names import among
from relaxlab.ir.plain import plain
from relaxlab.lab.loop_costs import LINE_BYTES, loop_kinds
from relaxlab.lab.loop_tree import Tree
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.runtime.arrays import Array, ExecutionError, uninitialised
from relaxlab.runtime.interpreter.record_accesses import (
    Recording,
    Step,
    record_accesses,
    reuse_distances,
)

SMALL = (4, 5, 6)
"""Default values of symbols, in order: small, and distinct."""
SMALL_BOUND = (72, 40, 36)
"""Default values for functions that are bound to threads: more than a warp, and no multiple of
one."""
MOST_BYTES = 1 << 26
"""Most bytes of the arguments of a run."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The value of each symbol and scalar parameter of a loop function."""

    values: Mapping[expr.Var, int | float]

    @staticmethod
    def of(
        func: loops.PrimFunc, given: Mapping[str, int | float], small: Sequence[int] = SMALL
    ) -> Sizes:
        """`given` by name, `small` ones for the others. Raises ValueError for a name that the
        function does not have and for what is not a size."""
        symbols = kernel_symbols(func)
        names = [v.name for v in symbols]
        given = plain(dict(given))
        for name, value in given.items():
            if name not in names:
                has = f"it has: {among(name, names)}" if names else "all its sizes are constant"
                raise ValueError(f"the loop function has no symbol {name!r}; {has}")
            whole = not is_float(symbols[names.index(name)].dtype)
            if whole and (not isinstance(value, int) or value < 0):
                raise ValueError(f"the size {name!r} is {value!r}; sizes are whole numbers from 0")
        found: dict[expr.Var, int | float] = {}
        for number, v in enumerate(symbols):
            usual = 2.0 if is_float(v.dtype) else small[number % len(small)]
            found[v] = given.get(v.name, usual)
        return Sizes(found)

    def shape(self, buffer: loops.Buffer) -> tuple[int, ...]:
        """The shape of a buffer of the function."""
        return tuple(int(evaluate(d, self.values)) for d in buffer.shape)

    def state(self) -> dict[str, int | float]:
        """Return the values by name."""
        return {v.name: n for v, n in self.values.items()}


def arguments(
    func: loops.PrimFunc, sizes: Sizes, filled: frozenset[int] = frozenset()
) -> list[Any]:
    """Return arguments of those sizes. Inputs, and the buffers numbered in `filled`, hold small
    whole numbers; the other buffers that the function writes hold uninitialised values.

    Raises ValueError if the arrays are too big to be looked at.
    """
    shapes = [sizes.shape(b) for b in func.buffers]
    total = sum(
        int(np.prod(s)) * numpy_dtype(b.dtype).itemsize
        for b, s in zip(func.buffers, shapes, strict=True)
    )
    if total > MOST_BYTES:
        raise ValueError(
            f"the arguments take {total >> 20} MB, more than the {MOST_BYTES >> 20} MB that a "
            "stepped run may have; give the symbols smaller values"
        )
    written = written_buffers(func) - filled
    made: list[Any] = []
    position = 0
    for p in func.params:
        if isinstance(p, expr.Var):
            made.append(sizes.values[p])
            continue
        fresh = position in written
        shape = shapes[position]
        made.append(uninitialised(shape, p.dtype) if fresh else _whole(p, shape, position))
        position += 1
    return made


def _whole(buffer: loops.Buffer, shape: tuple[int, ...], number: int) -> Array:
    """Small whole numbers: of integers below the smallest dimension, as they may be places."""
    count = np.arange(int(np.prod(shape)))
    if is_float(buffer.dtype):
        values = (count * (2 + number) + number) % 9 + 1
    else:
        values = count % max(1, min((d for d in shape if d > 1), default=1))
    return values.astype(numpy_dtype(buffer.dtype)).reshape(shape)


def record(func: loops.PrimFunc, sizes: Sizes, most: int) -> Recording:
    """Run on arguments of the sizes. A buffer that is updated (read before it is written) is given
    values. What fails becomes the recording's error."""
    try:
        found = record_accesses(func, arguments(func, sizes), most)
        updated = frozenset(_read_first(found) & written_buffers(func))
        if updated:
            found = record_accesses(func, arguments(func, sizes, updated), most)
    except (ExecutionError, ValueError) as error:
        return Recording(error=str(error))
    return found


def _read_first(found: Recording) -> set[int]:
    """Return the numbers of the buffers with an element that is read before it is written."""
    seen: set[tuple[int, int]] = set()
    first: set[int] = set()
    for a in found.accesses:
        place = a.buffer, a.element
        if place not in seen and not a.write:
            first.add(a.buffer)
        seen.add(place)
    return first


@dataclass(slots=True)
class _Values:
    """The texts of values, each stored once."""

    texts: list[str] = field(default_factory=list[str])
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, value: Any) -> int:
        text = _text(value)
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]


def _text(value: Any) -> str:
    if isinstance(value, np.integer | np.bool_ | bool | int):
        return str(int(value))
    return f"{float(value):.4g}"


@dataclass(frozen=True, slots=True)
class _Vector:
    """The steps of the lanes that run one statement together; one step outside vectorized loops."""

    lanes: list[Step]

    def values(self) -> list[int | str]:
        """The values of the loops around it; text for those that differ from lane to lane."""
        many = (list(dict.fromkeys(v)) for v in zip(*(s.values for s in self.lanes), strict=True))
        return [v[0] if len(v) == 1 else _numbers(v) for v in many]


def _numbers(values: Sequence[int]) -> str:
    first, last = values[0], values[-1]
    whole = list(values) == list(range(first, last + 1))
    return f"{first}–{last}" if whole else ", ".join(map(str, values))


def _vectors(found: Recording, func: loops.PrimFunc) -> Iterator[_Vector]:
    """Yield the steps in order, those of all lanes of a vectorized loop together.

    The lanes run statement by statement. Where they do not all meet the statements in one order (a
    lane skips what another runs first), they are yielded one after the other, as recorded.
    """
    vectorized = {v for v, kind in loop_kinds(func).items() if kind == "vectorized"}
    inside: list[int | None] = []  # by statement: number of loops outside the vectorized ones
    for s in found.statements:
        inside.append(next((i for i, v in enumerate(s.loops) if v in vectorized), None))
    window: list[Step] = []
    at: tuple[int, ...] | None = None
    for step in found.steps:
        outer = inside[step.statement]
        place = None if outer is None else step.values[:outer]
        if place is None or place != at:
            yield from _together(window, found, vectorized)
            window, at = [], place
        window.append(step)
    yield from _together(window, found, vectorized)


def _together(
    steps: Sequence[Step], found: Recording, vectorized: set[expr.Var]
) -> Iterator[_Vector]:
    """Yield the vectors of one run of a vectorized loop."""
    groups: dict[tuple[Any, ...], list[Step]] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    lanes: dict[tuple[int, ...], list[int]] = {}  # by lane: the numbers of the groups it meets
    for step in steps:
        around = list(zip(found.statements[step.statement].loops, step.values, strict=True))
        key = step.statement, *(n for v, n in around if v not in vectorized)
        groups.setdefault(key, []).append(step)
        lane = tuple(n for v, n in around if v in vectorized)
        lanes.setdefault(lane, []).append(numbers.setdefault(key, len(numbers)))
    if all(a < b for met in lanes.values() for a, b in pairwise(met)):
        yield from (_Vector(group) for group in groups.values())
    else:
        yield from (_Vector([step]) for step in steps)


def run_state(found: Recording, tree: Tree, func: loops.PrimFunc) -> dict[str, Any]:
    """A recording as JSON has it: columns of numbers, with one step for all lanes of a vector."""
    values = _Values()
    steps = list(_vectors(found, func))
    accesses = [a for v in steps for s in v.lanes for a in s.accesses]
    places = [(a.buffer, a.element) for a in accesses]
    near = reuse_distances(places)
    lines = reuse_distances(found.line_of(a, LINE_BYTES[0]) for a in accesses)
    return {
        "buffers": [_buffer_state(found, i, values, func) for i in range(len(found.buffers))],
        "sites": [
            {"row": _row_of(tree, s), "loops": [v.name for v in s.loops], "block": s.block}
            for s in found.statements
        ],
        "steps": {
            "site": [v.lanes[0].statement for v in steps],
            "values": [n for v in steps for n in v.values()],
            "count": [sum(len(s.accesses) for s in v.lanes) for v in steps],
        },
        "accesses": {
            "buffer": [b for b, _ in places],
            "element": [e for _, e in places],
            "write": [int(a.write) for a in accesses],
            "value": [values.number(a.value) for a in accesses],
            "distance": [-1 if d is None else d for d in near],
            "line": [-1 if d is None else d for d in lines],
        },
        "values": values.texts, "cut": found.cut,
    }  # fmt: skip


def _buffer_state(
    found: Recording, number: int, values: _Values, func: loops.PrimFunc
) -> dict[str, Any]:
    held = found.buffers[number]
    b, start = held.buffer, held.initial
    role = "inner"
    if start is not None:
        role = "output" if number in written_buffers(func) else "input"
        fresh = role == "output" and number not in _read_first(found)
        start = None if fresh else start
    initial = None if start is None else [values.number(v) for v in start.reshape(-1)]
    return {
        "name": b.name, "shape": list(held.shape), "dtype": b.dtype, "scope": b.scope,
        "role": role, "initial": initial,
    }  # fmt: skip


def _row_of(tree: Tree, s: Any) -> int:
    """The row of a statement; initialisations that were moved before their loops are found by
    their block, which has them at one place."""
    row = tree.row_of.get(id(s.stmt))
    return tree.init_of.get(s.block, -1) if row is None else row
