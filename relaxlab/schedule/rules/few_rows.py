"""Products of few rows by a matrix that is read in place, once."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import const
from relaxlab.ir.facts import Facts
from relaxlab.schedule.rules.base import (
    axis_loops,
    constant,
    found_block,
    separate_store,
    split_vector,
    where_allowed,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import SPLIT_K, SWEEP_VECTORS, UNROLL_IN_PLACE, UNROLL_ROWS
from relaxlab.schedule.rules.product import Product, inlined, product_of
from relaxlab.schedule.schedule import Schedule


def few_rows(sch: Schedule, context: Context, rows: int) -> Schedule:
    """Schedule at most `rows` rows by a matrix that is read in place: versions for a single row by
    a small matrix and by others, whose depth threads share; else one."""
    one = inlined(sch.copy())
    parts = product_of(one.func, context)
    axes = found_block(one, one.get_block(parts.product)).iter_vars
    width, depth = axes[parts.col].dom.extent, axes[-1].dom.extent
    lanes = context.target.lanes(parts.dtype)
    if rows > 1 or parts.row:
        # Up to one vector of columns is no panel of 32 vectors, all but one of them masked: sums of
        # 16 rows by 4096 x 16 with symbols took 75 us so, in a panel of one vector 30.
        with_versions(
            sch, context, width, [lanes],
            lambda one, most: _sweep(inlined(one), parts, most or constant(width), lanes, rows),
        )  # fmt: skip
        return sch
    # In a small matrix columns do not conflict, so that splitting the reduction gains nothing; nor
    # where parts have less than a step each.
    steps = _shares(sch) * _unrolled_rows(sch)
    small = in_place_bytes(context.target.facts) // parts.bytes
    size = Analyzer().simplify(depth * expr.Min(width, const(small // steps)))

    def version(sch: Schedule, most: int | None) -> Schedule:
        sch = inlined(sch)
        if most is None:
            return _share_depth(sch, parts, lanes)
        return _sweep(sch, parts, constant(width), lanes, rows)

    with_versions(sch, context, size, [small], version)
    return sch


def _sweep(sch: Schedule, parts: Product, width: int | None, lanes: int, rows: int) -> Schedule:
    """Schedule few rows: the matrix is read once, several of its rows at a time, each for many
    columns, and the sums stay in the first-level cache. Two vectors share each load from the rows,
    else loads take longer than multiply-adds (NOTES, *Few rows by a matrix in place, again*)."""
    product = sch.get_block(parts.product)
    known = constant(found_block(sch, product).iter_vars[parts.row].dom.extent)
    store = separate_store(sch, parts.product)
    nest = axis_loops(sch, product)
    row, col, k = nest[parts.row], nest[parts.col], nest[-1]
    outer = nest[: parts.row]
    # At most 32 vectors of columns: 16 rows of sums are 32 KB then, a first-level cache.
    most = SWEEP_VECTORS.of(sch, 32)
    dividing = (n for n in (32, 16, 8, 4, 2) if n <= most and (width or 0) % (n * lanes) == 0)
    columns = next(dividing, 1) * lanes
    tile, row = sch.split(row, factors=[None, rows])
    panel, col = sch.split(col, factors=[None, columns])
    pair, vector, lane = sch.split(col, factors=[None, 2 if columns > lanes else 1, lanes])
    k, step = sch.split(k, factors=[None, _unrolled_rows(sch)])
    sch.reorder(*outer, panel, tile, k, pair, row, step, vector, lane)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, k)
    for loop in (step, vector):
        sch.unroll(loop)
    # Unrolled, the elements of the rows are broadcast from registers. Rows of a symbolic number
    # would each have a guard: 4 by 512 x 512 took 31 us so, in a loop 23, and the version 18,900
    # lines of LLVM IR, not 1,100 (NOTES, *Rows of a symbolic number*).
    if known is not None and known <= UNROLL_ROWS.of(sch, 8):
        sch.unroll(row)
    sch.vectorize(lane)
    for one in (init, store):
        split_vector(sch, sch.get_loops(one)[-1], lanes, unroll=False)
    sch.parallel(sch.fuse(*outer, panel) if outer else panel)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _share_depth(sch: Schedule, parts: Product, lanes: int) -> Schedule:
    """Schedule a single row by splitting the reduction (split-K): each thread reads contiguous rows
    of the matrix. Split by columns, its part would fall into half of the sets of a cache. The
    partial sums are added in the same order however many threads there are."""
    product = sch.get_block(parts.product)
    store = separate_store(sch, parts.product)
    factors = [_shares(sch), None, _unrolled_rows(sch)]
    share, *_ = sch.split(axis_loops(sch, product)[-1], factors=factors)
    partial = sch.rfactor(share, 0)
    row, col, share, k, step = sch.get_loops(partial)
    vector, lane = sch.split(col, factors=[None, lanes])
    sch.reorder(share, row, k, vector, step, lane)
    init = sch.decompose_reduction(partial, k)
    sch.unroll(step)
    sch.parallel(share)
    row, col, share = sch.get_loops(product)
    vector, last = sch.split(col, factors=[None, lanes])
    sch.reorder(row, vector, share, last)
    sch.reverse_compute_at(store, vector, preserve_unit_loops=True)
    total = sch.decompose_reduction(product, share)
    sch.unroll(share)
    for one in (init, partial, total, product, store):
        sch.vectorize(sch.get_loops(one)[-1])
    sch.compact_buffers()
    return sch


def _shares(sch: Schedule) -> int:
    """Return the parts of the reduction that threads share for a single row, a constant so that
    sums do not depend on the number of threads. By columns instead, 1024 x 1024 took 135
    microseconds, not 64 (NOTES, *Few rows*)."""
    return SPLIT_K.of(sch, 16)


def _unrolled_rows(sch: Schedule) -> int:
    """Return the steps of the reduction that are unrolled: eight rows of the matrix are read side
    by side for one load and store of the sums (NOTES, *Few rows*)."""
    return UNROLL_IN_PLACE.of(sch, 8)


def in_place_bytes(facts: Facts) -> int:
    """Return the largest matrix that every tile of rows reads in place: it stays in a second-level
    cache beside the rows, so that copying panels of it gains nothing."""
    return facts.cache(2) // 8
