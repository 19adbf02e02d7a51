"""The end of a search: what was the best, over all sizes or at some, is measured beside the default
once more, and made one program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relaxlab.ir.brief import Brief
from relaxlab.schedule.trace import Instruction
from relaxlab.tuning.matrix import Matrix, Ranges, Row, Sizes, joined, ranges_of
from relaxlab.tuning.measured import Measured
from relaxlab.tuning.points import Point
from relaxlab.tuning.search import keys_at
from relaxlab.tuning.statistics import Interval
from relaxlab.tuning.workshop import Built

AS_DEFAULT = Interval(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True, repr=False)
class Final(Brief):
    """A program that was measured beside the default, at the sizes, by number, at which the two may
    differ. trace: of its schedule."""

    built: Built
    sizes: tuple[int, ...]
    measured: Measured
    trace: Sequence[Instruction]

    def row(self, count: int) -> Row:
        """The row of a matrix for so many sizes."""
        at = {size: self.measured.at(i) for i, size in enumerate(self.sizes)}
        return Row(self.built.point, tuple(at.get(i, AS_DEFAULT) for i in range(count)))

    def among(self, sizes: Collection[int]) -> Measured:
        """The measurement of some of the sizes, by number."""
        return self.measured.over([i for i, s in enumerate(self.sizes) if s in sizes])

    def is_faster_at(self, sizes: Collection[int]) -> bool:
        """True if it is faster over these sizes, by their numbers, and slower at none at all."""
        here = self.among(sizes)
        return bool(here.ratios) and here.is_faster and not self.measured.is_slower_somewhere


@dataclass(frozen=True, slots=True, repr=False)
class Contest(Brief):
    """The finals of a search beside each other. ranges: the sizes for which each is to be used."""

    sizes: Sizes
    finals: tuple[Final, ...]
    default: Sequence[Instruction]
    ranges: Ranges

    @staticmethod
    def of(sizes: Sizes, finals: Sequence[Final], default: Sequence[Instruction]) -> Contest:
        """The contest of programs that were measured. default: the trace of what they were measured
        beside."""
        return Contest(sizes, tuple(finals), default, ranges_of(sizes, _rows(sizes, finals)))

    def winner(self) -> tuple[Point, list[int]]:
        """The point of the program that has the best for each size, and the numbers of the sizes at
        which it is not the default."""

        traces = [self.default, *(final.trace for final in self.finals)]
        points: list[Point] = [{}, *(final.built.point for final in self.finals)]
        changed = [i for i, row in enumerate(self.ranges.chosen) if row]
        made = joined(self.ranges, points, lambda row, i: keys_at(traces[row], self.sizes[i]))
        return made, changed

    def matrix(self, last: Final | None = None) -> Matrix:
        """The matrix of the finals; `last` has its own row where it is none of them."""
        every = [*self.finals]
        if last is not None and all(last.built.point != f.built.point for f in every):
            every.append(last)
        return Matrix(self.sizes, _rows(self.sizes, every), self.ranges.chosen)


def _rows(sizes: Sizes, finals: Sequence[Final]) -> tuple[Row, ...]:
    count = len(sizes)
    return (Row({}, (AS_DEFAULT,) * count), *(final.row(count) for final in finals))
