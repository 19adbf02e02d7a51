"""Programs of a kernel at every size, and which of them it is to run where.

Programs that are best at different sizes become versions of one kernel, as few as keep every size
within `TOLERANCE` of its best. Their ranges are found by dynamic programming over the values of one
symbol, as DietCode's decision tree (B. Zheng et al., MLSys 2022) has them for micro-kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from relaxlab.ir.brief import Brief
from relaxlab.ir.expr import Var
from relaxlab.schedule.decisions import SEPARATOR, key_of, version_name, versions_key
from relaxlab.tuning.measured import is_slower
from relaxlab.tuning.points import Point, point_from_json
from relaxlab.tuning.statistics import Interval

TOLERANCE = 1.02
"""A size may be so many times slower than with the program that is best there: a version less."""
Sizes: TypeAlias = tuple[dict[str, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Row(Brief):
    """A program at every size. point: its decisions; intervals: how many times as fast as the
    default it is, all three values being 1 where it runs as the default does."""

    point: Point
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Matrix(Brief):
    """Programs beside the default after a search. sizes: the values of the kernel's
    symbols; rows: the default first, then what was best over all sizes or at some of them, and last
    what was made of them where that is none of these; chosen: per size, the number of the row that
    is best there with as few versions as possible."""

    sizes: Sizes
    rows: tuple[Row, ...]
    chosen: tuple[int, ...]

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Matrix:
        """The matrix of these fields. Raises KeyError or TypeError for others."""
        rows = [
            Row(point_from_json(r["point"]), tuple(Interval(**i) for i in r["intervals"]))
            for r in found["rows"]
        ]
        return Matrix(tuple(found["sizes"]), tuple(rows), tuple(found["chosen"]))


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes, by number, that are to have the program of a row; bound: the largest value of the
    symbol among them and those that nobody measured, None for any."""

    bound: int | None
    row: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ranges:
    """The values of a symbol, divided among rows, ascending. symbol: "" for one range of all."""

    symbol: str
    parts: tuple[Range, ...]

    @property
    def chosen(self) -> tuple[int, ...]:
        """The row of each size."""
        rows = {size: part.row for part in self.parts for size in part.sizes}
        return tuple(rows[size] for size in sorted(rows))


def ranges_of(sizes: Sizes, rows: Sequence[Row]) -> Ranges:
    """The fewest ranges of values of a symbol with a row for each that is slower than the default
    at none of its sizes, and within `TOLERANCE` of the best of each; of as many, the fastest. Where
    no symbol tells sizes apart that need different rows, one row for all."""
    names = [n for n in sizes[0] if len({s[n] for s in sizes}) > 1]
    found: list[tuple[int, float, Ranges]] = []
    for name in names:
        values = sorted({s[name] for s in sizes})
        groups = [tuple(i for i, s in enumerate(sizes) if s[name] == v) for v in values]
        parts = _partition(groups, rows)
        if parts is not None:
            loss = -sum(_gain(rows[row], range_) for _, row, range_ in parts)
            ends = [None if end == len(values) else _cut(*values[end - 1 : end + 1])
                    for end, _, _ in parts]  # fmt: skip
            ranges = [Range(b, row, s) for b, (_, row, s) in zip(ends, parts, strict=True)]
            found.append((len(parts), loss, Ranges(name, tuple(ranges))))
    every = tuple(range(len(sizes)))
    if not found:
        return Ranges("", (Range(None, _best_row(every, rows, math.inf), every),))  # type: ignore[arg-type]
    _, _, best = min(found, key=lambda one: one[:2])
    return best if len(best.parts) > 1 else Ranges("", best.parts)


_Part: TypeAlias = tuple[int, int, tuple[int, ...]]
"""The end of a range among the values, its row and its sizes."""


def _partition(groups: Sequence[tuple[int, ...]], rows: Sequence[Row]) -> tuple[_Part, ...] | None:
    """The best ranges of consecutive groups of sizes; None where a group has no row for all of its
    sizes."""
    best: list[tuple[int, float, tuple[_Part, ...]] | None] = [(0, 0.0, ())]
    for end in range(1, len(groups) + 1):
        options: list[tuple[int, float, tuple[_Part, ...]]] = []
        for start, before in enumerate(best):
            within = tuple(i for group in groups[start:end] for i in group)
            row = _best_row(within, rows, TOLERANCE)
            if before is not None and row is not None:
                count, loss, parts = before
                gain = _gain(rows[row], within)
                options.append((count + 1, loss - gain, (*parts, (end, row, within))))
        best.append(min(options, default=None))
    return None if best[-1] is None else best[-1][2]


def _best_row(sizes: Sequence[int], rows: Sequence[Row], tolerance: float) -> int | None:
    """The number of the fastest row that serves the sizes, the default before others of its speed;
    None where there is none."""

    def serves(row: Row) -> bool:
        return all(
            not is_slower(row.intervals[i])
            and _credit(row.intervals[i]) * tolerance >= max(_credit(r.intervals[i]) for r in rows)
            for i in sizes
        )

    fitting = [number for number, row in enumerate(rows) if serves(row)]
    return max(fitting, key=lambda n: (_gain(rows[n], sizes), -n), default=None)


def _credit(ratio: Interval) -> float:
    """The ratio that is believed: what is faster without confidence is as fast."""
    return ratio.middle if ratio.low > 1 else min(1.0, ratio.middle)


def _gain(row: Row, sizes: Sequence[int]) -> float:
    return sum(math.log(_credit(row.intervals[i])) for i in sizes)


def _cut(below: int, above: int) -> int:
    """A bound between two values that were measured, in their geometric middle. A version for 1
    alone is only made where that is the one value below."""
    return max(below, min(above - 1, max(2, math.isqrt(below * above))))


def joined(ranges: Ranges, points: Sequence[Point], keys: Callable[[int, int], set[str]]) -> Point:
    """One point that has the program of each range's row there.

    points: of the rows. keys: the decisions that make a difference in the program of a row at a
    size, both by number. Where neighbours have no decision in common, as where the rule has
    versions of its own for them, the kernel needs no others.
    """
    parts: list[tuple[int | None, Point, set[str]]] = []
    for part in ranges.parts:
        point = points[part.row]
        active = set[str]().union(*(keys(part.row, size) for size in part.sizes))
        if parts and (both := _both(parts[-1][1:], (point, active))) is not None:
            parts[-1] = part.bound, *both
        else:
            parts.append((part.bound, point, active))
    if len(parts) == 1:
        return parts[0][1]
    size = Var(ranges.symbol)
    made: Point = {versions_key(ranges.symbol): tuple(b for b, _, _ in parts if b is not None)}
    for bound, point, active in parts:
        name = version_name(size, bound)
        if bound == 1:
            # The symbol is 1 there, so that the rule has no versions within.
            own = f"{name}{SEPARATOR}"
            point = {k.removeprefix(own): v for k, v in point.items() if k in active}
        made |= {key_of((name,), key): value for key, value in point.items()}
    return made


def _both(
    one: tuple[Point, set[str]], other: tuple[Point, set[str]]
) -> tuple[Point, set[str]] | None:
    """A point that has the decisions of two points which make a difference for them; None where
    these are not the same ones."""
    (a, keys), (b, others) = one, other
    if any(repr(a.get(key)) != repr(b.get(key)) for key in keys & others):
        return None
    mine = {k: v for k, v in a.items() if k in keys}
    return {**mine, **{k: v for k, v in b.items() if k in others}}, keys | others
