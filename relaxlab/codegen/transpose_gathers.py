"""Transposes in registers instead of gathers.

A copy whose lanes read across rows,
`for r in range(16): for c in vectorized(16): B[r, c] = A[c, r]`, gathers each vector lane by lane,
one element from each of 16 cache lines. The same elements are 16 rows as vectors, which
log2(16) rounds of shuffles turn: each round interleaves the vectors of the first half with those of
the second half, which moves one bit of a lane's number into the number of its vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.dtypes import with_lanes
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import BufferLoad, BufferStore, For, LetStmt, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute, symbols_in

Access = TypeVar("Access", BufferLoad, BufferStore)

SIDES = (16, 8, 4)
"""Rows and lanes of a square. More rows than registers would not stay in them."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """`for row: for lane in vectorized: store`, whose load has neighbours in memory along `row`."""

    row: For
    lane: For
    store: BufferStore
    load: BufferLoad


def transpose_gathers(stmt: Stmt) -> Stmt:
    """Apply to every copy in a block-free statement whose vectors are a multiple of a square's
    side. Rows left over are in smaller squares; fewer than four still gather."""

    def visit(n: Node) -> Node:
        found = _copy(n)
        side = None if found is None else _side(found)
        if found is None or side is None:
            return map_children(n, visit)
        return seq(*_in_squares(found, side))

    return visit(stmt)  # type: ignore[return-value]


def _copy(n: Node) -> _Copy | None:
    match n:
        case For(
            kind="serial" | "unrolled",
            loop_var=row,
            body=For(
                kind="vectorized",
                loop_var=column,
                extent=IntImm(),
                body=BufferStore(value=BufferLoad() as load) as store,
            ) as lane,
        ):
            # Distinct buffers are distinct memory: no load of a square reads what it has stored.
            apart = load.buffer is not store.buffer
            rows = _is_contiguous(load, row) and not _is_contiguous(load, column)
            gathers = rows and column in symbols_in(load.indices)
            if apart and gathers and _is_contiguous(store, column):
                return _Copy(n, lane, store, load)
        case _:
            pass
    return None


def _is_contiguous(access: BufferLoad | BufferStore, var: Var) -> bool:
    """True if each iteration of `var` accesses the next element in memory."""
    at = _last(access)
    if at is None or var in symbols_in(access.indices[:at] + access.indices[at + 1 :]):
        return False
    difference = substitute(access.indices[at], {var: var + 1}) - access.indices[at]
    return Analyzer().simplify(difference) == const(1)


def _last(access: BufferLoad | BufferStore) -> int | None:
    """Return the last dimension that has more than one element, None where none has."""
    sizes = enumerate(access.buffer.shape)
    return max((d for d, size in sizes if size != const(1)), default=None)


def _side(copy: _Copy, below: int = SIDES[0] + 1) -> int | None:
    """Return the largest side below this of the squares of a copy, None where none fits."""
    assert isinstance(copy.lane.extent, IntImm)
    lanes, rows = copy.lane.extent.value, copy.row.extent
    most = rows.value if isinstance(rows, IntImm) else lanes
    return next((n for n in SIDES if lanes % n == 0 and n <= most and n < below), None)


def _in_squares(copy: _Copy, side: int) -> Iterator[Stmt]:
    """Yield the loop over groups of `side` rows, and those over the rows left over."""
    rows, an = copy.row, Analyzer()
    # An end that conditions gave the loop may come before its start.
    extent = an.simplify(expr.Max(rows.extent, const(0)))
    groups = an.simplify(extent // side)
    group = Var(f"{rows.loop_var.name}_square")
    assert isinstance(copy.lane.extent, IntImm)
    first = rows.min + group * side
    squares = [
        _square(copy, side, first, copy.lane.min + start)
        for start in range(0, copy.lane.extent.value, side)
    ]
    yield For(group, const(0), groups, "serial", seq(*squares))
    rest = an.simplify(extent - groups * side)
    if rest != const(0):
        left = _of_rows(copy, an.simplify(rows.min + groups * side), rest)
        smaller = _side(left, below=side)
        yield from (left.row,) if smaller is None else _in_squares(left, smaller)


def _of_rows(copy: _Copy, first: PrimExpr, extent: PrimExpr) -> _Copy:
    """The copy of some of the rows, in loops of their own."""
    again = {v: Var(v.name) for v in (copy.row.loop_var, copy.lane.loop_var)}
    lane = substitute(copy.lane, again)
    lane = replace(lane, loop_var=again[copy.lane.loop_var])
    row = replace(
        copy.row, loop_var=again[copy.row.loop_var], min=first, extent=extent, body=lane
    )
    found = _copy(row)
    assert found is not None
    return found


def _square(copy: _Copy, side: int, row: PrimExpr, lane: PrimExpr) -> Stmt:
    """One square: rows of the operand as vectors, the rounds of shuffles, and the stores."""
    at, column = copy.row.loop_var, copy.lane.loop_var
    vector = with_lanes(copy.load.dtype, side)

    def wide(access: Access, row: PrimExpr, lane: PrimExpr) -> Access:
        indices = list(substitute(access, {at: row, column: lane}).indices)
        last = _last(access)
        assert last is not None
        indices[last] = expr.Ramp(indices[last], const(1), side)
        return replace(access, indices=tuple(indices))

    loads = [wide(copy.load, row, lane + n) for n in range(side)]
    lets: list[tuple[Var, PrimExpr]] = [(Var(f"row{n}", vector), e) for n, e in enumerate(loads)]
    vectors = [v for v, _ in lets]
    while len(lets) < side * side.bit_length():
        made = _interleaved(vectors, vector)
        lets += made
        vectors = [v for v, _ in made]
    stores = [wide(copy.store, row + n, lane) for n in range(side)]
    body = seq(*(replace(s, value=v) for s, v in zip(stores, vectors, strict=True)))
    for v, e in reversed(lets):
        body = LetStmt(v, e, body)
    return body


def _interleaved(vectors: list[Var], dtype: str) -> list[tuple[Var, PrimExpr]]:
    """One round: the lanes of each vector of the first half alternate with those of its
    counterpart in the second half, and make two vectors."""
    side, half = len(vectors), len(vectors) // 2
    lanes = [
        const(n) for pair in zip(range(side), range(side, 2 * side), strict=True) for n in pair
    ]
    made: list[tuple[Var, PrimExpr]] = []
    for pair in zip(vectors[:half], vectors[half:], strict=True):
        for picks in (lanes[:side], lanes[side:]):
            call = expr.Call(dtype, "vector_shuffle", (*pair, *picks))
            made.append((Var(f"turned{len(made)}", dtype), call))
    return made
