"""Loops determined by expressions, against all pairs of iterations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Range
from relaxlab.schedule.determined import determines, in_common
from relaxlab.schedule.ranges import Span

X, Y, Z, N, M, Q = (Var(name) for name in "xyznmq")


def proves(values: list[PrimExpr], var: Var, extents: Mapping[Var, PrimExpr | int]) -> bool:
    an = Analyzer()
    for symbol in (N, M, Q):
        an.bind_shape(symbol)
    env: dict[Var, Span | None] = {}
    for v, extent in extents.items():
        an.bind_range(v, Range(expr.const(0), expr.as_expr(extent)))
        env[v] = Span(expr.const(0), expr.as_expr(extent) - 1)
    return determines(values, var, env, an)


DETERMINED: list[tuple[list[PrimExpr], Var, dict[Var, PrimExpr | int]]] = [
    ([X * 4 + Y], X, {X: (N + 3) // 4, Y: 4}),
    ([X * 5 + Y], X, {X: 8, Y: 3}),
    ([Y - X * 4], Y, {X: 3, Y: 4}),
    ([X + Z * 4], X, {X: 4, Y: 100}),
    ([X * N + Y], X, {X: M, Y: N}),
    ([X // M, X % M], X, {X: N * M}),
    ([(X * 16 + Y) // M, (X * 16 + Y) % M], Y, {X: (N * M + 15) // 16, Y: 16}),
    ([X // (N * M), X // M % N, X % M], X, {X: Q * N * M}),
    ([X // M // 8, X // M % 8, X % M], X, {X: M * 16}),
    ([X // 4, X % 4 * 2 + Y], Y, {X: 16, Y: 2}),
    ([X // M * 4 + Y, X % M * 8 + Z], X, {X: N * M, Y: 4, Z: 8}),
    ([X + Y, Y], X, {X: 7, Y: 7}),
]
LEFT_OPEN: list[tuple[list[PrimExpr], Var, dict[Var, PrimExpr | int]]] = [
    ([X * 4 + Y], X, {X: 8, Y: 5}),
    ([X * 4 + Y], Y, {X: 8, Y: 5}),
    ([X // 2], X, {X: 8}),
    ([X % 4], X, {X: N}),
    ([X // 4, X % 2], X, {X: 16}),
    ([Y], X, {X: 2, Y: 2}),
    ([X * Y], X, {X: 4, Y: 4}),
    ([X * N], X, {X: 4}),
]


@pytest.mark.parametrize(("values", "var", "extents"), DETERMINED)
def test_determined(values: list[PrimExpr], var: Var, extents: dict[Var, PrimExpr | int]) -> None:
    assert proves(values, var, extents)


@pytest.mark.parametrize(("values", "var", "extents"), LEFT_OPEN)
def test_left_open(values: list[PrimExpr], var: Var, extents: dict[Var, PrimExpr | int]) -> None:
    assert not proves(values, var, extents)


def test_random_values_agree_with_all_iterations(rng: np.random.Generator) -> None:
    def random_value(depth: int) -> PrimExpr:
        if depth == 0:
            return (X, Y, Z)[rng.integers(3)]
        kind, c = rng.integers(5), int(rng.integers(1, 7))
        a = random_value(depth - 1)
        if kind < 2:
            b = random_value(depth - 1)
            return a * c + b if kind == 0 else a - b * c
        return (a * c, a // c, a % c)[kind - 2]

    proved = 0
    for _ in range(150):
        values = [random_value(int(rng.integers(3))) for _ in range(rng.integers(1, 4))]
        extents: dict[Var, PrimExpr | int] = {v: int(rng.integers(2, 7)) for v in (X, Y, Z)}
        if not proves(values, X, extents):
            continue
        proved += 1
        seen: dict[tuple[int, ...], int] = {}
        for point in product(*(range(int(e)) for e in extents.values())):  # type: ignore[arg-type]
            at = dict(zip(extents, point, strict=True))
            key = tuple(evaluate(e, at) for e in values)
            assert seen.setdefault(key, point[0]) == point[0], (values, extents, at)
    assert proved > 0


def test_parts_of_two_dtypes_have_no_common_span() -> None:
    env: dict[Var, Span | None] = {}
    found = in_common(Var("x"), expr.const(0, "int32"), env, Analyzer())
    assert env == {found: None}
