"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

A tile of query rows of one head is a unit of work for a thread: its scores stay in the thread's
own memory from the first product through the softmax to the second product, so nothing of size
rows x positions ever reaches main memory. Scores are made a vector of positions at a time, and
results a vector of features at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    found_block,
    is_spatial,
    reduce_by_lanes,
    split_vector,
    sum_of_products,
)
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.rules.versions import ONE_VERSION, guarded_versions
from relaxlab.schedule.rules.whole_tiles import compute_whole_tiles
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.tracing.limit import as_step

ROWS = 8
"""Query rows per tile."""
SKEW = 16
"""Elements added to a row of scores, so that a tile's rows fall into different cache sets."""
LOCAL_BYTES = 1 << 19
"""Largest buffer of one tile's scores on a thread's stack."""


POSITIONS = 8192
"""Positions that the scores of a tile have room for where nothing bounds their number."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The scores' product and its epilogue, row maximum, weights, their sum, the product with the
    values and its epilogue."""

    dot: str
    score: str
    top: str
    weight: str
    total: str
    mix: str
    out: str


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits exactly the seven blocks of `_Parts`.

    Where nothing bounds the number of positions there is a version for as many as fit a thread's
    stack; for more, each row is a kernel's row (`rows`).
    """
    parts = _find(func)
    if parts is None:
        return None
    positions = _named(func, parts.score).iter_vars[-1].dom.extent
    if _with_bounded_rows(func, {}) is not None or func.attrs.get(ONE_VERSION):
        return _tiles(func, {}, parts, target)

    def version(func: PrimFunc, most: int | None) -> PrimFunc:
        bounds = {} if most is None else {positions: most}
        scheduled = _tiles(func, bounds, parts, target) if bounds else rows_apply(func, target)
        if scheduled is None:
            raise ScheduleError("attention", "kernel", "a tile's scores have a bound that fits")
        return scheduled

    return guarded_versions(func, positions, [POSITIONS], version)


def _tiles(
    func: PrimFunc, bounds: Mapping[PrimExpr, int], parts: _Parts, target: Target
) -> PrimFunc | None:
    """Tiles of rows, their scores on the stack; `bounds`: how large extents are at most."""
    bounded = _with_bounded_rows(func, bounds)
    if bounded is None:
        return None
    *_, count, positions = (it.dom.extent for it in _named(bounded, parts.score).iter_vars)

    def version(func: PrimFunc, most: int | None) -> PrimFunc:
        # Alone, a row has one position to look at: vectors of positions would be empty.
        alone = rows_apply(func, target) if most == 1 and count == positions else None
        return alone or _schedule(func, parts, target, most or ROWS)

    return guarded_versions(bounded, count, [1], version)


def _find(func: PrimFunc) -> _Parts | None:
    blocks = blocks_of(func)
    spatial = [is_spatial(b) for b in blocks]
    if spatial != [False, True, False, True, False, False, True]:
        return None
    is_product = [sum_of_products(b) is not None for b in blocks]
    if is_product == [True, False, False, False, True, False, False]:
        blocks[4], blocks[5] = blocks[5], blocks[4]
    elif is_product != [True, False, False, False, False, True, False]:
        return None
    if any(len(blocks[i].iter_vars) != 4 for i in (1, 3, 6)):
        return None
    return _Parts(*(b.name for b in blocks))


def _named(func: PrimFunc, name: str) -> Block:
    return next(b for b in blocks_of(func) if b.name == name)


def _with_bounded_rows(func: PrimFunc, known: Mapping[PrimExpr, int]) -> PrimFunc | None:
    """Intermediates get constant row lengths: what is `known`, what the symbols' upper bounds
    allow, or the size of a dimension of a parameter that an axis indexes directly."""
    bounds = dict(known)
    an = shape_analyzer(func)
    params = set(func.buffers)
    for block in blocks_of(func):
        for it in block.iter_vars:
            upper = an.upper_bound(it.dom.extent)
            if upper is not None:
                bounds[it.dom.extent] = upper
        extents = {it.var: it.dom.extent for it in block.iter_vars}
        for load in walk(block.body):
            if not isinstance(load, BufferLoad) or load.buffer not in params:
                continue
            for index, dim in zip(load.indices, load.buffer.shape, strict=True):
                size = constant(dim)
                if size is not None and isinstance(index, Var) and index in extents:
                    extent = extents[index]
                    bounds[extent] = min(size, bounds.get(extent, size))
    wider: dict[Buffer, Buffer] = {}
    for node in walk(func.body):
        for buffer in node.alloc_buffers if isinstance(node, Block) else ():
            last = buffer.shape[-1] if buffer.shape else None
            if last is None or constant(last) is not None or buffer.ndim < 4:
                continue
            if last not in bounds or bounds[last] * 4 * ROWS > LOCAL_BYTES:
                return None
            shape = (*buffer.shape[:-1], expr.const(bounds[last] + SKEW))
            wider[buffer] = replace(buffer, shape=shape)
    # The rest is scheduled for any length: a bound near the width of a tile would shape the tile.
    attrs = func.attrs.with_(tir_var_upper_bound=None)
    return replace(func, body=substitute(func.body, buffers=wider), attrs=attrs)


def _schedule(func: PrimFunc, parts: _Parts, target: Target, rows: int) -> PrimFunc:
    sch = Schedule(func)
    lanes = target.lanes("float32")
    dot, score, top, weight, total, mix, out = (
        sch.get_block(name)
        for name in (
            parts.dot, parts.score, parts.top, parts.weight, parts.total, parts.mix, parts.out,
        )
    )  # fmt: skip
    if rows > 1:
        _pack_keys(sch, dot, lanes)
    batch, row, head, _ = sch.get_loops(out)
    tile, row = sch.split(row, factors=[None, rows])
    sch.reorder(batch, head, tile, row)
    for block in (mix, total, weight, top, score):
        sch.compute_at(block, tile, preserve_unit_loops=True)
        sch.set_scope(block, 0, "local")
    sch.parallel(sch.fuse(batch, head, tile))
    vectors = 2 if rows > 1 else 4
    step = _score_tile(sch, parts.score, vectors, lanes, rows)
    sch.compute_at(dot, step, preserve_unit_loops=True)
    sch.set_scope(dot, 0, "local")
    _product_tile(sch, parts.dot, lanes, rows)
    for block in (top, total):
        *_, deep = sch.get_loops(block)
        reduce_by_lanes(sch, block, [deep], vectors * lanes)
    *_, position = sch.get_loops(weight)
    split_vector(sch, position, vectors * lanes, unroll=False)
    _mix_tile(sch, parts.mix, lanes, rows)
    *_, row, feature = sch.get_loops(out)
    split_vector(sch, feature, lanes, unroll=True)
    if rows > 1:
        sch.unroll(row)
    whole = compute_whole_tiles(compact_buffers(sch.func))
    return _without_masked_steps(whole, parts.score, vectors * lanes)


def _pack_keys(sch: Schedule, dot: BlockRV, lanes: int) -> None:
    """Keys whose positions are rows apart are copied first, with a vector of positions side by
    side, feature by feature: every tile of queries makes vectors of positions."""
    block = found_block(sch, dot)
    position, feature = (it.var for it in block.iter_vars[-2:])
    reads = [[r.min for r in region.region] for region in block.reads]
    number = next((i for i, at in enumerate(reads) if position in at and at[-1] == feature), None)
    if number is None:
        return
    p = reads[number].index(position)
    others = [i for i in range(len(reads[number]) - 1) if i != p]

    def packed(*a: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(a[i] for i in others), a[p] // lanes, a[-1], a[p] % lanes)

    copy = sch.cache_read(dot, number, "global")
    sch.transform_layout(copy, ("write", 0), packed)
    nest = sch.get_loops(copy)
    vector, lane = sch.split(nest[p], factors=[None, lanes])
    outer = [*(nest[i] for i in others), vector]
    sch.reorder(*outer, nest[-1], lane)
    sch.vectorize(lane)
    sch.parallel(sch.fuse(*outer))


@as_step
def _without_masked_steps(func: PrimFunc, score: str, step: int) -> PrimFunc:
    """Loops over positions begin with the first one and stop after the last one that the mask
    leaves to any row of the tile.

    The mask is `position <= limit(row)`, and maybe `floor(row) < position`, with bounds that do
    not fall from row to row; a masked score is minus infinity, its weight zero, and neither
    changes a maximum or a sum.
    """
    realize = next(
        n for n in walk(func.body) if isinstance(n, BlockRealize) and n.block.name == score
    )
    *_, row, position = realize.block.iter_vars
    an = Analyzer.for_shapes(*symbols_in(func))
    limit, floor = _mask_bounds(realize.block, position.var)

    def rises(bound: PrimExpr) -> bool:
        return bool(an.prove(expr.LE(bound, substitute(bound, {row.var: row.var + 1}))))

    if limit is None or not rises(limit) or (floor is not None and not rises(floor)):
        return func
    loops = [n for n in walk(func.body) if isinstance(n, For)]
    parallel = next(n for n in loops if n.kind == "parallel" and realize in walk(n))
    inside = [n for n in walk(parallel.body) if isinstance(n, For)]
    fixed = {n.loop_var: n.extent - 1 for n in inside if constant(n.extent) is not None}
    at_first = substitute(realize.iter_values[-2], dict.fromkeys(fixed, expr.const(0)))
    at_last = substitute(realize.iter_values[-2], fixed)
    end = substitute(limit, {row.var: at_last}) + 1
    begin = None if floor is None else substitute(floor, {row.var: at_first}) + 1
    shorter: dict[Var, tuple[PrimExpr, PrimExpr]] = {}
    for loop in inside:
        if constant(loop.extent) is not None:
            continue
        for count in (1, step):
            if an.prove_equal(loop.extent, (position.dom.extent + (count - 1)) // count):
                stop = (end + (count - 1)) // count
                is_all = an.prove_equal(loop.extent, stop)  # that a single row sees
                stop = loop.extent if is_all else expr.Min(loop.extent, stop)
                first = expr.const(0) if begin is None else expr.Max(begin, expr.const(0)) // count
                shorter[loop.loop_var] = first, stop
                break
        else:
            return func

    def shortened(n: Node) -> Node | None:
        if not isinstance(n, For) or n.loop_var not in shorter:
            return None
        first, stop = shorter[n.loop_var]
        if begin is None:
            return replace(n, extent=stop)
        body = substitute(n.body, {n.loop_var: n.loop_var + first})
        return replace(n, extent=stop - first, body=body)

    return replace(func, body=rewrite(func.body, shortened))


def _mask_bounds(block: Block, position: Var) -> tuple[PrimExpr | None, PrimExpr | None]:
    """`limit` and `floor` where the block stores `select(position <= limit, score, -inf)`, or that
    with `position <= limit and floor < position`."""
    match block.body:
        case BufferStore(_, expr.Select(mask, _, expr.FloatImm(value))) if value == float("-inf"):
            pass
        case _:
            return None, None
    limit, floor = (mask.a, mask.b) if isinstance(mask, expr.And) else (mask, None)
    match limit:
        case expr.LE(at, upper) if at == position and position not in symbols_in(upper):
            pass
        case _:
            return None, None
    match floor:
        case None:
            return upper, None
        case expr.LT(lower, at) if at == position and position not in symbols_in(lower):
            return upper, lower
        case _:
            return None, None


def _score_tile(sch: Schedule, name: str, vectors: int, lanes: int, rows: int) -> LoopRV:
    """Positions in steps of some vectors; a step's rows are inside."""
    *_, row, position = sch.get_loops(sch.get_block(name))
    step, position = sch.split(position, factors=[None, vectors * lanes])
    sch.reorder(step, row, position)
    split_vector(sch, position, lanes, unroll=True)
    if rows > 1:
        sch.unroll(row)
    return step


def _product_tile(sch: Schedule, name: str, lanes: int, rows: int) -> None:
    """rows x vectors sums in registers over the features."""
    block = sch.get_block(name)
    *_, row, position, feature = sch.get_loops(block)
    sch.reorder(feature, row, position)
    init = sch.decompose_reduction(block, feature)
    for one in (init, block):
        *_, row, position = sch.get_loops(one)
        split_vector(sch, position, lanes, unroll=True)
        if rows > 1:
            sch.unroll(row)


def _mix_tile(sch: Schedule, name: str, lanes: int, rows: int) -> None:
    """Sums over the positions: rows x vectors of features in registers."""
    block = sch.get_block(name)
    nest = sch.get_loops(block)
    row, feature, position = nest[-4], nest[-2], nest[-1]
    vectors = 2 if rows > 1 else 4
    part, feature = sch.split(feature, factors=[None, vectors * lanes])
    sch.reorder(part, position, row, feature)
    init = sch.decompose_reduction(block, position)
    for one in (init, block):
        *_, row, feature = sch.get_loops(one)
        split_vector(sch, feature, lanes, unroll=True)
        if rows > 1:
            sch.unroll(row)
