"""Regions that are proved to be written in full, against the elements that are written."""

from __future__ import annotations

from itertools import product

import pytest

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, Buffer, BufferStore, For, Stmt
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.ranges import Span

U, V, N = (Var(name) for name in ("u", "v", "n"))
EXTENTS = {U: 3, V: 4}
C = Buffer("C", (N,))
TRUE = expr.const(True)


def _less(a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    return expr.LT(*(expr.const(x) if isinstance(x, int) else x for x in (a, b)))


INDICES = (
    U * 4 + V, U * 8 + V, V, U, U + V * 4, U + V * 3, U % 2 * 4 + V, U * 0 + 3,
)  # fmt: skip
CONDITIONS = (
    _less(U, 1), _less(U, 2), _less(U, 9), _less(U, 0), _less(V, 2), _less(U * 4 + V, 7),
    _less(U * 4 + V, N), _less(U + V, 4), _less(V % 2, 1), _less(2, N),
)  # fmt: skip


def _path(index: PrimExpr, condition: PrimExpr) -> list[Stmt]:
    """Return two loops and the block inside that stores at `index` where `condition` holds."""
    store = BufferStore(C, expr.const(1.0, "float32"), (index,))
    stmt: Stmt = BlockRealize((), condition, Block("C", (), (), (), store))
    path: list[Stmt] = [stmt]
    for var, extent in reversed(EXTENTS.items()):
        stmt = For(var, expr.const(0), expr.const(extent), "serial", stmt)
        path.insert(0, stmt)
    return path


def test_tiles_that_are_not_filled_are_no_region() -> None:
    """Four iterations fill tiles of two; of two tiles of three they leave two elements."""
    path = _path(V, TRUE)[1:]
    for tile, extents in ((2, "2, 2"), (3, None), (4, "1, 4")):
        indices = [Span(i, i) for i in (V // tile, V % tile)]
        found = exact_region(indices, path, Analyzer())
        sizes = None if found is None else ", ".join(str(s.extent(Analyzer())) for s in found)
        assert sizes == extents


def _region(index: PrimExpr, condition: PrimExpr, n: int) -> tuple[set[int], set[int]] | None:
    """Return the elements of the region that is proved, and those that are written; None if nothing
    is proved."""
    found = exact_region([Span(index, index)], _path(index, condition), Analyzer())
    if found is None:
        return None
    proved = range(evaluate(found[0].lo, {N: n}), evaluate(found[0].hi, {N: n}) + 1)
    written = set[int]()
    for point in product(*(range(extent) for extent in EXTENTS.values())):
        at = {N: n, **dict(zip(EXTENTS, point, strict=True))}
        if evaluate(condition, at):
            written.add(evaluate(index, at))
    return set(proved), written


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_proved_region_is_what_is_written(index: PrimExpr, condition: PrimExpr) -> None:
    for n in (1, 3, 7, 40):
        if (found := _region(index, condition, n)) is not None:
            assert found[0] == found[1]


@pytest.mark.parametrize(
    ("index", "condition", "elements"),
    [
        (U * 4 + V, _less(U, 1), 4),
        (U * 4 + V, _less(U, 9), 12),
        (V, _less(V, 2), 2),
        (U * 4 + V, _less(U * 4 + V, 7), 7),
    ],
    ids=str,
)
def test_a_condition_shortens_the_region(
    index: PrimExpr, condition: PrimExpr, elements: int
) -> None:
    """A split into more iterations than there are leaves such conditions on one loop."""
    found = _region(index, condition, 40)
    assert found is not None and len(found[0]) == elements


@pytest.mark.parametrize(
    ("index", "condition"),
    [(U * 4 + V, _less(V % 2, 1)), (U * 4 + V, _less(U, 0)), (U * 4 + V, _less(2, N)),
     (U * 4 + V, _less(V, 2)), (U * 8 + V, _less(U, 2))],
    ids=str,
)  # fmt: skip
def test_gaps_are_seen(index: PrimExpr, condition: PrimExpr) -> None:
    assert _region(index, condition, 40) is None
