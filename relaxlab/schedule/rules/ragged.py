"""Loops that are not equally long: batches of sequences and matrices of different sizes, triangles.

Each block is scheduled by itself (CoRa, MLSys 2022, section 4). Results that are neighbours in
memory become vectors; of a product, rows by vectors are a tile in registers. Terms that are
neighbours become partial results, one for each lane. Threads get equal parts of the work of the
outer loops, whatever the lengths are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.loops import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    attempted,
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import COLUMN_VECTORS, PARTIAL_VECTORS, REGISTER_ROWS
from relaxlab.schedule.rules.ragged_product import schedule_product, tile_width
from relaxlab.schedule.rules.reductions import fold_lanes
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tree import realizes_under, vars_in, walk_stmts


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits functions of blocks one element each, some of them in loops whose extents depend on
    loops around them."""
    reason = not_ragged(sch.func)
    if reason is not None:
        return reason
    inline_producers(sch)
    for block in blocks_of(sch.func):
        packed = attempted(lambda s, c, n=block.name: _packed_product(s, n, c), sch, context)
        if packed is not None:
            sch = packed
        else:
            _schedule_block(sch, sch.get_block(block.name), context)
    for loop in outermost_loops(sch):
        share_out(sch, loop)
    sch.compact_buffers()
    return sch


def not_ragged(func: PrimFunc) -> str | None:
    """The reason why no loop around a block depends on another, or a block is more than an element;
    None if one does, and none is."""
    blocks = blocks_of(func)
    if not blocks:
        return "it has no block"
    written = next((b for b in blocks if any(isinstance(n, For) for n in walk(b.body))), None)
    if written is not None:
        return f"{written.name} has loops written by hand"
    loops = [s for s in walk_stmts(func.body) if isinstance(s, For)]
    # Steps in order, as those of an elimination, are for the rule `parts`.
    steps = _bound_to_opaque_axes(func)
    around = {s.loop_var: s for s in loops if s.loop_var not in steps}
    uneven = [s for s in loops if (vars_in(s.min) | vars_in(s.extent)) & around.keys()]
    if not uneven:
        return "no extent of a loop depends on another loop"
    if all(_is_nearly_even(s, around) for s in uneven):
        return "no loops differ by more than one iteration"
    return None


def _bound_to_opaque_axes(func: PrimFunc) -> set[Var]:
    realizes = [n for n in walk(func.body) if isinstance(n, BlockRealize)]
    pairs = [p for n in realizes for p in zip(n.block.iter_vars, n.iter_values, strict=True)]
    return {v for it, value in pairs if it.kind == "opaque" for v in vars_in(value)}


def _is_nearly_even(loop: For, around: Mapping[Var, For]) -> bool:
    """True if the iterations of a loop differ by one at most between those of another, which are
    few, as those over the elements of a kernel do between the phases of a stride."""
    (outer, *others) = vars_in(loop.extent) & around.keys() or (None,)
    count = constant(around[outer].extent) if outer is not None else None
    if others or outer is None or count is None or count > PHASES or vars_in(loop.min):
        return False
    if any(isinstance(n, BufferLoad) for n in walk(loop.extent)):
        return False
    first, *rest = (substitute(loop.extent, {outer: const(i)}) for i in range(count))
    an = Analyzer()
    return all(an.prove(first - n <= 1) and an.prove(n <= first) for n in rest)


MOST_STEP = 4
"""Most elements between those that neighbouring results read for which these become vectors where
rows share them: of a convolution with strides, say, which took 3.6 times as long without."""
PHASES = 16
"""Most iterations of a loop between which another may differ by one and count as even."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The loops around a block alone, and which of them are of use.

    outer: loops around other blocks, too; results and terms: those of results, and of terms.
    column: over results that are neighbours in memory, and neighbours or the same in all that is
    read; where there are rows, up to `MOST_STEP` elements apart there. row: over results that share
    what they read with all others of a column, or the other way round. lane: over terms that are
    neighbours in memory. product: rows and columns of a product, and the operand that the columns
    index, wherever its elements are.
    """

    outer: list[LoopRV]
    results: list[LoopRV]
    terms: list[LoopRV]
    column: LoopRV | None
    row: LoopRV | None
    lane: LoopRV | None
    product: tuple[LoopRV, LoopRV, Buffer] | None = None


def axes_of(sch: Schedule, rv: BlockRV) -> Axes:
    """The loops of a block whose axes have a loop each."""
    block, nest = found_block(sch, rv), axis_loops(sch, rv)
    pairs = list(zip(nest, block.iter_vars, strict=True))
    results = [x for x, iv in pairs if iv.kind == "spatial"]
    terms = [x for x in nest if x not in results]
    alone = [loop for loop in nest if len(realizes_under(sch.get(loop))) == 1]  # type: ignore
    steps = [
        (loop, _steps(sch.func, block, iv.var))
        for loop, iv in pairs
        if constant(extent_of(sch, loop)) != 1 and loop in alone
    ]
    def rows_of(column: LoopRV | None) -> list[LoopRV]:
        by_column = next((s.reads for x, s in steps if x is column), ())
        return [
            x for x, s in steps
            if x in results and x is not column and terms
            and any(a == 0 and b != 0 for a, b in zip(s.reads, by_column, strict=False))
            and any(a != 0 and b == 0 for a, b in zip(s.reads, by_column, strict=False))
        ]  # fmt: skip

    def columns_with(near: set[int]) -> list[LoopRV]:
        return [x for x, s in steps if x in results and s.write == 1 and near >= set(s.reads)]

    columns = columns_with({0, 1})
    if not columns:
        columns = [x for x in columns_with({*range(MOST_STEP + 1)}) if rows_of(x)]
    column = columns[-1] if columns else None
    rows = rows_of(column)
    lanes = [x for x, s in steps if x in terms[-1:] and 1 in s.reads and {0, 1} >= set(s.reads)]
    return Axes(
        [x for x in nest if x not in alone], [x for x in results if x in alone],
        [x for x in terms if x in alone], column, rows[-1] if rows else None,
        lanes[-1] if lanes else None, _product_of(steps, results),
    )  # fmt: skip


def _product_of(
    steps: list[tuple[LoopRV, _Steps]], results: list[LoopRV]
) -> tuple[LoopRV, LoopRV, Buffer] | None:
    """Rows and columns of a product of two loads, each of which one of the loads does not depend
    on, and the operand that the columns index; the columns are neighbours in memory."""
    found = [(x, s) for x, s in steps if x in results and len(s.reads) == 2]
    for column, c in reversed(found):
        for row, r in reversed(found):
            for packed, other in ((0, 1), (1, 0)):
                of_columns = c.reads[packed] != 0 == c.reads[other]
                of_rows = r.reads[packed] == 0 != r.reads[other]
                if c.write == 1 and of_columns and of_rows:
                    return row, column, c.buffers[packed]
    return None


def _packed_product(sch: Schedule, name: str, context: Context) -> Schedule | str:
    """The schedule of a product in register tiles with a packed operand."""
    rv = sch.get_block(name)
    axes = axes_of(sch, rv)
    if axes.product is None or len(axes.terms) != 1:
        return "it is no product over one axis of terms"
    row, column, packed = axes.product
    outside = [x for x in axes.results if x not in (row, column)]
    schedule_product(sch, rv, (row, column, axes.terms[0]), packed, outside, context)
    return sch


@dataclass(frozen=True, slots=True)
class _Steps:
    """By how many elements accesses move from one value of an axis to the next: None where that is
    another row, or is not known. reads: those of loads, index functions and the result left out, of
    `buffers`."""

    write: int | None
    reads: tuple[int | None, ...]
    buffers: tuple[Buffer, ...]


def _steps(func: PrimFunc, block: Block, axis: Var) -> _Steps:
    an = shape_analyzer(func)
    stores = [n for n in walk(block.body) if isinstance(n, BufferStore)]
    written = {n.buffer for n in stores}
    loads = dict.fromkeys(
        n for n in walk(block.body)
        if isinstance(n, BufferLoad) and n.buffer not in written and not n.buffer.facts
    )  # fmt: skip
    moves = {_step(n.indices, axis, an) for n in stores}
    return _Steps(moves.pop() if len(moves) == 1 else None,
                  tuple(_step(n.indices, axis, an) for n in loads),
                  tuple(n.buffer for n in loads))  # fmt: skip


def _step(indices: tuple[PrimExpr, ...], axis: Var, an: Analyzer) -> int | None:
    moved = [an.simplify(substitute(i, {axis: axis + 1}) - i) for i in indices]
    if any(d != const(0, d.dtype) for d in moved[:-1]):
        return None
    return constant(moved[-1]) if moved else 0


def _schedule_block(sch: Schedule, rv: BlockRV, context: Context) -> None:
    """Make vectors of one block. One that has neighbours along no axis keeps its loops."""
    axes, block = axes_of(sch, rv), found_block(sch, rv)
    lanes = context.target.lanes(output_dtype(block))
    if is_spatial(block):
        if axes.column is not None:
            _, inner = sch.split(axes.column, factors=[None, tile_width(sch, axes.column, lanes)])
            sch.vectorize(inner)
    elif reduction_of(block) is None:
        return
    elif axes.column is not None and not (axes.lane and _is_narrow(sch, axes.column, lanes)):
        _tile(sch, rv, axes, context)
    elif axes.lane is not None and not keeps_order(sch.func, block):
        _partial_results(sch, rv, axes, lanes)


def _is_narrow(sch: Schedule, loop: LoopRV, lanes: int) -> bool:
    size = constant(extent_of(sch, loop))
    return size is not None and 2 * size < lanes


def _tile(sch: Schedule, rv: BlockRV, axes: Axes, context: Context) -> None:
    """Rows by vectors of results in registers, past which the terms stream."""
    assert axes.column is not None
    facts, lanes = context.target.facts, context.target.lanes(output_dtype(found_block(sch, rv)))
    # Two vectors of columns for each row, which take half of the registers.
    rows = 1 if axes.row is None else REGISTER_ROWS.of(sch, facts.vector_registers // 4)
    vectors = COLUMN_VECTORS.of(sch, 4 if axes.row is None else 2)
    row = None
    outside = [x for x in axes.results if x not in (axes.row, axes.column)]
    if axes.row is not None:
        tiles, row = sch.split(axes.row, factors=[None, tile_width(sch, axes.row, rows)])
        outside.append(tiles)
        for loop in axes.terms:
            where_allowed(lambda loop=loop: sch.rectangularize(loop, row))
    width = tile_width(sch, axes.column, vectors * lanes)
    tiles, column = sch.split(axes.column, factors=[None, width])
    inside = [x for x in (row, column) if x is not None]
    sch.reorder(*outside, tiles, *axes.terms, *inside)
    for block in (rv, *sch.privatize(rv, tiles)):
        *_, loop = sch.get_loops(block)
        sch.vectorize(loop)
        if row is not None:
            sch.unroll(sch.get_loops(block)[-2])


def _partial_results(sch: Schedule, rv: BlockRV, axes: Axes, lanes: int) -> None:
    """A partial result for each lane of some vectors of terms, added up at the end."""
    assert axes.lane is not None
    around = [*axes.outer, *axes.results]
    loop = around[-1] if around else sch.add_unit_loop(axes.terms[0])
    width = tile_width(sch, axes.lane, PARTIAL_VECTORS.of(sch, 2) * lanes)
    _, lane = sch.split(axes.lane, factors=[None, width])
    init, store = sch.privatize(rv, loop, lane)
    for block in (init, rv):
        sch.vectorize(sch.get_loops(block)[-1])
    where_allowed(lambda: fold_lanes(sch, store, width))


def outermost_loops(sch: Schedule) -> list[LoopRV]:
    """The outermost loop of each nest of the function."""
    found = list[LoopRV]()
    for block in blocks_of(sch.func):
        nest = sch.get_loops(sch.get_block(block.name))
        if nest and sch.get(nest[0]) not in [sch.get(x) for x in found]:
            found.append(nest[0])
    return found


def share_out(sch: Schedule, loop: LoopRV) -> None:
    """Give threads equal parts of the work of a nest: between iterations of the second loop where
    it is all that is in the first. A nest whose order matters stays one thread's."""
    around = sch.get(loop)
    assert isinstance(around, For)
    if around.kind != "serial":
        return
    if isinstance(around.body, For) and around.body.kind == "serial":
        inside = sch.get_loops(sch.get_block(realizes_under(around.body)[0].block.name))
        inner = next(x for x in inside if sch.get(x) is around.body)
        try:
            sch.balance(loop, inner)
        except ScheduleError:
            pass
        else:
            return
    where_allowed(lambda: sch.balance(loop))
