"""Checks of lesson 12, search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from relaxlab.lab.verdict import Hint, exercise, value_of

Point: TypeAlias = dict[str, int]


@exercise
def verdict(answer: Callable[[float, float], str]) -> str:
    """Three answers for an interval of ratios."""
    for low, high, want, why in (
        (1.02, 1.10, "faster", "all of the interval is above 1"),
        (0.80, 0.95, "slower", "all of the interval is below 1"),
        (0.99, 1.30, "unknown", "1 is inside, so the program may as well be slower"),
        (0.70, 1.01, "unknown", "1 is inside, so the program may as well be faster"),
    ):
        got = value_of(answer, low, high)
        if got != want:
            raise Hint(f"from {low} to {high} it is {want!r}, not {got!r}: {why}")
    return "an interval with 1 inside shows nothing."


@exercise
def descend(
    answer: Callable[[dict[str, list[int]], Point, Callable[[Point], float]], Point],
) -> str:
    """A point that no single change improves, found without trying them all."""
    candidates = {"rows": [2, 4, 6, 8], "vectors": [1, 2, 3, 4], "unroll": [1, 2, 4, 8]}
    total = prod(map(len, candidates.values()))
    for start in ({"rows": 2, "vectors": 1, "unroll": 1}, {"rows": 8, "vectors": 1, "unroll": 8}):
        asked: set[tuple[int, ...]] = set()

        def time(point: Point, asked: set[tuple[int, ...]] = asked) -> float:
            asked.add(tuple(point[name] for name in candidates))
            return _seconds(point)

        found = value_of(answer, candidates, dict(start), time)
        _is_point(found, candidates)
        for name, value in ((n, v) for n, values in candidates.items() for v in values):
            other = {**found, name: value}
            if _seconds(other) < _seconds(found):
                raise Hint(
                    f"from {start} the answer is {found}, but with {name} = {value} it is faster: "
                    "go on until a round over all decisions improves nothing"
                )
        if len(asked) >= total:
            raise Hint(f"all {total} points were timed: change one decision at a time instead")
    return f"fewer than {total} points were timed, and no single change helps."


def _is_point(found: object, candidates: Mapping[str, Sequence[int]]) -> None:
    points = (dict(zip(candidates, p, strict=True)) for p in product(*candidates.values()))
    if found not in points:
        raise Hint(f"the answer must be a point with one value for each name, is {found!r}")


def _seconds(point: Point) -> float:
    """The best number of rows depends on that of vectors: no order finds both in one round."""
    rows, vectors, unroll = point["rows"], point["vectors"], point["unroll"]
    return 10 - rows / 2 + 0.35 * (rows / 2 - vectors) ** 2 + abs(unroll - 4) / 4


@exercise
def one_for_all(answer: Callable[[list[list[float]]], int]) -> str:
    """The best program that is slower at no size."""
    for table, want in (
        ([[1, 1, 1], [3.0, 0.9, 1.2], [1.3, 1.1, 1.0], [1.1, 1.1, 1.1]], 2),
        ([[1, 1], [2.0, 0.99], [0.5, 4.0]], 0),
        ([[1, 1], [1.0, 1.2], [1.15, 1.1]], 2),
        ([[1, 1], [2.0, 1.0], [1.45, 1.45]], 2),
    ):
        got = value_of(answer, [[float(r) for r in row] for row in table])
        if got not in range(len(table)):
            raise Hint(f"the answer must be the number of a program, is {got!r}")
        if min(table[got]) < 1:
            raise Hint(f"of {table} program {got} is slower than the default at a size")
        if got != want:
            raise Hint(f"of {table} program {want} has a larger product than program {got}")
    return "one program, slower nowhere."
