"""Comparison of two results: the tolerance, and the first element outside of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir import graph, loops, types
from relaxlab.ir.data import DataValue
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.check.inputs import roundoff

ROUNDINGS = 32
"""Rounding errors that a value may have gathered outside of its longest sum."""
NUDGES = 4
"""A result may move this many times as far as it does with inputs nudged by one rounding."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a result and the reference. `place` names the value, `index` the first
    element outside of the tolerance, `worst` is the largest error; `wrong` of `total` elements
    differ."""

    place: str
    index: tuple[int, ...]
    got: Any
    expected: Any
    worst: float
    tolerance: float
    wrong: int
    total: int

    def __str__(self) -> str:
        at = f"element {self.index} of {self.place}" if self.index else self.place
        got, expected = _in_short(self.got, self.expected)
        return (
            f"{at} is {got}, expected {expected}; {self.wrong} of {self.total} differ, "
            f"by up to {self.worst:.3g} (tolerance {self.tolerance:.2g})"
        )


def _in_short(got: object, expected: object) -> tuple[str, str]:
    """Return two values with six digits, or with all where they would read the same."""
    short = [f"{v:.6g}" if isinstance(v, float | np.floating) else str(v) for v in (got, expected)]
    return (str(got), str(expected)) if short[0] == short[1] else (short[0], short[1])


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The tolerance for floating-point results.

    With u the roundoff of the coarsest floating-point dtype of the program and L the length of its
    longest reduction, an element may be off by ROUNDINGS * u * sqrt(L) times the largest element of
    its array (1 at least): the sum of L rounding errors of random sign. Where the program itself
    magnifies errors, a result may also move NUDGES times as far as it does when every input moves
    by one rounding. Integers and bools are equal, or move in that same way.
    """

    roundoff: float
    length: int
    moved: tuple[float, ...]

    def of(self, leaf: int, expected: Array) -> float:
        """Return the tolerance for array number `leaf` of the result."""
        moved = NUDGES * self.moved[leaf] if leaf < len(self.moved) else 0.0
        if not is_float(str(expected.dtype)):
            return moved
        finite = np.abs(as_numbers(expected)[np.isfinite(as_numbers(expected))])
        scale = max(1.0, float(finite.max(initial=0.0)))
        return ROUNDINGS * self.roundoff * math.sqrt(max(1, self.length)) * scale + moved


def as_numbers(array: Array) -> Array:
    """Floats of any width, and bools, as float64; integers as they are."""
    exact = array.dtype.kind in "iu"
    return array if exact else array.astype("float64")


def leaves(value: Any, place: str) -> Iterator[tuple[str, Array]]:
    """The arrays (shapes and numbers as arrays, too) of a value, with their places."""
    if isinstance(value, tuple) and not _is_shape(value):  # type: ignore[reportUnknownArgumentType]
        for i, v in enumerate(value):  # type: ignore[reportUnknownArgumentType]
            yield from leaves(v, f"field {i} of {place}")
    elif isinstance(value, DataValue):
        yield f"the constructor of {place}", np.asarray(value.tag)
        for i, v in enumerate(value.fields):
            yield from leaves(v, f"field {i} of `{value.constructor}` in {place}")
    else:
        yield place, np.asarray(value)


def _is_shape(value: tuple[Any, ...]) -> bool:
    return all(isinstance(v, int) for v in value)


def movement(a: Any, b: Any) -> tuple[float, ...]:
    """The largest distance between two runs' values of each array; infinite where shapes differ."""
    found: list[float] = []
    for (_, x), (_, y) in zip(leaves(a, ""), leaves(b, ""), strict=False):
        if x.shape != y.shape:
            found.append(math.inf)
            continue
        with np.errstate(all="ignore"):
            far = np.abs(_distance(x, y))
        found.append(float(far.max(initial=0.0)))
    return tuple(found)


def _distance(x: Array, y: Array) -> Array:
    """|x - y| as float64, 0 where both are the same infinity or no number, else infinite there."""
    a, b = (v.astype("float64") for v in (x, y))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    far = np.where(same, 0.0, np.abs(a - b))
    return np.where(np.isnan(far), np.inf, far)


def difference(
    got: Any, expected: Any, place: str, tolerance: Tolerance
) -> Difference | str | None:
    """Return the difference between `got` and `expected`, one of structure in words; None if they
    agree."""
    mine, theirs = list(leaves(got, place)), list(leaves(expected, place))
    if len(mine) != len(theirs):
        return f"{place} has {len(mine)} parts, expected {len(theirs)}"
    for leaf, ((_, g), (at, e)) in enumerate(zip(mine, theirs, strict=True)):
        if g.shape != e.shape:
            return f"{at} has the shape {g.shape}, expected {e.shape}"
        if g.dtype != e.dtype and {g.dtype.kind, e.dtype.kind} != {"i"}:
            return f"{at} has the dtype {g.dtype}, expected {e.dtype}"
        found = _of_arrays(g, e, at, tolerance.of(leaf, e))
        if found is not None:
            return found
    return None


def _of_arrays(got: Array, expected: Array, place: str, tolerance: float) -> Difference | None:
    with np.errstate(all="ignore"):
        far = _distance(got, expected)
        if got.dtype.kind in "iu":  # float64 does not tell all int64 apart
            far = np.where((got != expected) & (far == 0), 1.0, far)
    wrong = far > tolerance
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if far.ndim else ()
    count = int(wrong.sum())
    return Difference(
        place, first, got[first].item(), expected[first].item(), float(far.max()), tolerance,
        count, far.size,
    )  # fmt: skip


def coarsest(mod: Module) -> float:
    """The roundoff of the coarsest floating-point dtype that occurs in a module."""
    found = {"float64"}
    for node in (n for _, f in mod.items() for n in walk(f)):
        match node:
            case graph.Var(ty=types.TensorType(dtype=str(dtype))):
                found.add(dtype)
            case loops.BufferLoad(buffer) | loops.BufferStore(buffer):
                found.add(buffer.dtype)
            case graph.Constant(data):
                found.add(str(data.dtype))
            case graph.DataTypeImm(dtype):
                found.add(dtype)
            case _:
                pass
    return max(roundoff(d) for d in found if is_float(d))
