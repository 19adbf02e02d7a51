"""Column kernels: sums, softmax and norms over leading or middle axes.

All reductions keep the axis of neighbours in memory. A tile of columns (some vectors wide) is to
these kernels what a row is to the rule `rows`: the unit of work for a thread, which goes down it
once for each block. Partial results are in registers, and a tile is in the second-level cache from
its first use to its last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.bind_expr import parts_of
from relaxlab.schedule.cascade import loads_in
from relaxlab.schedule.nested import versions_for
from relaxlab.schedule.rules import fallback
from relaxlab.schedule.rules.base import (
    attempted,
    block_loops,
    blocks_of,
    bound_private_buffers,
    constant,
    extent_of,
    fitting,
    inline_producers,
    is_spatial,
    output_dtype,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.reductions import (
    columns_at_once,
    order_axes,
    prefers_columns,
    reduce_down_columns,
)
from relaxlab.schedule.rules.rows import read_more_than_once, upper_bound
from relaxlab.schedule.schedule import LoopRV, Schedule
from relaxlab.schedule.streams import stream_results

MIN_PARALLEL_TILES = 4
"""Tiles up to which threads split a long reduction instead of sharing out tiles: fewer than four
leave threads idle."""
MIN_SPLIT_REDUCTION = 1 << 12
"""Reduction extent from which on splitting pays: with 64 columns of float32, 1 MB, whose reading
takes longer than waking a team and adding up its partial results."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits kernels whose reductions all keep the same axes, the innermost among them. Axes that go
    through memory like one are columns together."""
    order_axes(sch)
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    """Schedule a kernel whose axes are joined.

    Where the number of columns is a symbol, there is a version for those that one vector holds,
    and one for half a vector, which the rule `fallback` schedules where it would with constants.
    Where intermediates are read again and a symbol is the number of rows, there is a version for as
    many as a thread's stack keeps beside the one that computes them again.
    """
    reductions = _reductions(sch.func)
    width = _symbolic_width(reductions)
    if width is None:
        return _for_any_rows(sch, context, {})
    most = min(context.target.lanes(output_dtype(b)) for b in reductions)
    # One sum waits longer for 512 bits than for 256: down 100,000 rows of three columns 79 us, as
    # half a vector 51 (Xeon). Several reductions gain less (deviations 14 %) and would take 0.3 s
    # more to compile.
    is_bound_by_sums = len(reductions) == 1 and context.target.facts.vector_bits == 512
    bounds = [most // 2, most] if is_bound_by_sums else [most]
    # The general version says whether the rule fits. Where a declared bound leaves none, it is
    # tried on a copy.
    if versions_for(sch.func, width, bounds).general is not None:
        general = _for_any_rows(sch.copy(), context, {})
        if isinstance(general, str):
            return general

    def version(sch: Schedule, bound: int | None) -> Schedule:
        if bound is None:
            return fitting(_for_any_rows(sch, context, {}))
        sch.declare_upper_bound(width, bound)
        made = attempted(lambda s, c: _for_any_rows(s, c, {width: bound}), sch, context)
        return made or fitting(fallback.apply(sch, context))

    with_versions(sch, context, width, bounds, version)
    return sch


def _for_any_rows(
    sch: Schedule, context: Context, bounds: Mapping[Var, int]
) -> Schedule | str:
    """Schedule for any number of rows, with a version for few. `bounds`: how large other symbols
    are at most."""
    rows = _symbolic_rows(sch.func)
    if rows is None or not read_more_than_once(sch.func):
        return _schedule(sch, context, bounds)
    if not all(map(_result_shape, _reductions(sch.func))):
        return "its reductions have no columns"
    most = _most_rows(sch, context)

    def version(sch: Schedule, bound: int | None) -> Schedule | None:
        if bound is None:
            return fitting(_schedule(sch, context, bounds))
        # The declared bound lets the analyses see one block of terms where there are at most 256.
        sch.declare_upper_bound(rows, bound)
        made = _schedule(sch, context, {**bounds, rows: bound})
        return made if isinstance(made, Schedule) else None

    with_versions(sch, context, rows, [most], version)
    return sch


def _schedule(sch: Schedule, context: Context, bounds: Mapping[Var, int]) -> Schedule | str:
    """`bounds`: how large symbols are at most."""
    func = sch.func
    stored = read_more_than_once(func)
    inline_producers(sch, keep=stored)
    reductions = _reductions(sch.func)
    if not reductions:
        return "it has no reduction"
    for block in reductions:
        if not prefers_columns(block, context.target):
            return f"{block.name}: its last spatial axis is not that of neighbours in memory"
    lanes = _lanes(sch, reductions, context)
    most_rows, rows = _most_rows(sch, context), max(_row_count(b, bounds) for b in reductions)
    # Computing exponentials again takes 1.3 ms where 256 KB of them on a stack took 3.6 (NOTES,
    # *Reductions over any axis*).
    # A symbolic number of rows counts as `MIN_SPLIT_REDUCTION`, so the general version computes
    # again.
    if rows > most_rows:
        inline_producers(sch)
    else:  # tiles are those of the first reduction
        first = blocks_of(sch.func).index(reductions[0])
        # Blocks before the first reduction have no loops of tiles yet to be stored under.
        leading = [b.name for b in blocks_of(sch.func)[:first]]
        inline_producers(sch, keep=[name for name in stored if name not in leading])
    shapes = [_result_shape(b) for b in reductions]
    # Every block follows the first one's loops over tiles, which must be those of a reduction and
    # of all.
    if is_spatial(blocks_of(sch.func)[0]) or any(k != shapes[0] for k in shapes):
        return f"{reductions[0].name} is not first, or not all reductions keep its axes"
    # Few long columns are for the rule `fallback`, which splits their reductions.
    if rows >= MIN_SPLIT_REDUCTION and _tile_count(shapes[0], lanes, bounds) <= MIN_PARALLEL_TILES:
        return f"{reductions[0].name} has too few columns for threads to share"
    _bind_column_values(sch, reductions)
    for block in reductions:
        _keep_private(sch, block)
    for block in blocks_of(sch.func)[:-1]:
        if block.writes[0].buffer not in func.params:
            sch.set_scope(sch.get_block(block.name), 0, "local")
    tiles = _gather_tiles(sch, lanes)
    if not tiles:
        return f"{reductions[0].name} has one tile of columns"
    for block in blocks_of(sch.func):
        rv = sch.get_block(block.name)
        spatial, reduce = block_loops(sch, rv)
        if reduce:
            reduce_down_columns(sch, rv, reduce, lanes)
        else:
            vector = context.target.lanes(output_dtype(block))
            width = upper_bound(_result_shape(block)[-1], bounds)
            # Two vectors at a time, where there are: one need not wait for the other.
            count = 1 if width is not None and width <= vector else 2
            vectorize_inner(sch, spatial[-1], count * vector)
    tile = sch.fuse(*tiles) if len(tiles) > 1 else tiles[0]
    sch.parallel(tile)
    stream_results(sch, tile, context.target.facts)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    bound_private_buffers(sch, bounds)
    return sch


def _bind_column_values(sch: Schedule, reductions: list[Block]) -> None:
    """Compute what results are made of that depends on reductions alone, such as the logarithm of a
    sum, once for each column, not for each of its rows: log_softmax over 96 rows of 64 columns took
    150 us, not 76. Out of loops over terms the compiler moves it."""
    made = {b.writes[0].buffer for b in reductions}
    for block in filter(is_spatial, blocks_of(sch.func)):
        rv = sch.get_block(block.name)
        read = (n.indices for n in loads_in(block.body) if n.buffer in made)
        columns = {v for indices in read for v in symbols_in(indices)}
        kept = [i for i, it in enumerate(block.iter_vars) if it.var in columns]
        if kept and len(kept) < len(block.iter_vars):
            for _ in parts_of(block, columns):
                where_allowed(lambda kept=kept, rv=rv: sch.bind_expr(rv, kept, "local", 0))


def _reductions(func: PrimFunc) -> list[Block]:
    return [b for b in blocks_of(func) if not is_spatial(b)]


def _lanes(sch: Schedule, reductions: list[Block], context: Context) -> int:
    """The columns of a tile."""
    return min(columns_at_once(sch, b, context) for b in reductions)


def _most_rows(sch: Schedule, context: Context) -> int:
    """Return the most rows of a tile whose intermediates a thread's stack holds: they must leave
    room in the second-level cache for what is read. Larger ones are computed again."""
    row_bytes = 4 * _lanes(sch, _reductions(sch.func), context)
    return context.target.facts.cache(2) // 16 // row_bytes


def _symbolic_rows(func: PrimFunc) -> Var | None:
    """The symbol that all reductions run over, each over it alone."""
    extents = {
        it.dom.extent for b in _reductions(func) for it in b.iter_vars if it.kind != "spatial"
    }
    match [*extents]:
        case [Var() as rows]:
            return rows
        case _:
            return None


def _symbolic_width(reductions: list[Block]) -> Var | None:
    """The symbol that is the number of columns of all reductions."""
    match [*{tuple(_result_shape(b)[-1:]) for b in reductions}]:
        case [(Var() as width,)]:
            return width
        case _:
            return None


def _result_shape(block: Block) -> list[PrimExpr]:
    return [it.dom.extent for it in block.iter_vars if it.kind == "spatial"]


def _row_count(block: Block, bounds: Mapping[Var, int]) -> int:
    """The terms of each of the block's reductions at most; many where it is not known."""
    counts = [upper_bound(it.dom.extent, bounds) for it in block.iter_vars if it.kind != "spatial"]
    return math.prod(MIN_SPLIT_REDUCTION if n is None else n for n in counts)


def _tile_count(shapes: list[PrimExpr], lanes: int, bounds: Mapping[Var, int]) -> int:
    """Tiles of columns; many where it is not known."""
    *outer, width = (upper_bound(dim, bounds) for dim in shapes)
    tiles = MIN_PARALLEL_TILES + 1 if width is None else -(-width // lanes)
    return tiles * math.prod(MIN_PARALLEL_TILES + 1 if n is None else n for n in outer)


def _keep_private(sch: Schedule, block: Block) -> None:
    """Sum in memory of the thread, and store a tile of results when it is complete."""
    if block.writes[0].buffer in sch.func.params:
        sch.cache_write(sch.get_block(block.name), 0, "local")


def _gather_tiles(sch: Schedule, lanes: int) -> list[LoopRV]:
    """Put every block under the first block's loops over tiles of columns; returns those."""
    first, *others = (sch.get_block(b.name) for b in blocks_of(sch.func))
    tiles, _ = block_loops(sch, first)
    width = constant(extent_of(sch, tiles[-1]))
    if width is None or width > lanes:
        tiles[-1], _ = sch.split(tiles[-1], factors=[None, lanes])
    else:
        # One tile has all columns: only the loops outside of it are left to be shared out.
        tiles.pop()
    for block in others if tiles else []:
        sch.reverse_compute_at(block, tiles[-1], preserve_unit_loops=True)
    return tiles
