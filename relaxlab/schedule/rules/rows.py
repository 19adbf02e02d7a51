"""Row kernels: softmax, norms, quantisation of activations, sums over trailing axes.

All blocks share their leading axes, the row. The first block's row loops become the kernel's
loops, divided among threads; every later block moves under them, so a row stays in cache from its
first use to its last. Within a row, spatial axes become vectors and reductions keep one partial
result per lane, combined at the end. A product that makes rows of few terms makes a vector of them
in registers, where the first block that reads them does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of, is_float
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferRegion, For, PrimFunc
from relaxlab.ir.node import Node, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import depends_on_order
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rules import windows
from relaxlab.schedule.rules.base import (
    COLUMNS,
    attempted,
    block_loops,
    blocks_of,
    bound_private_buffers,
    constant,
    extent_of,
    fitting,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import PARTIAL_VECTORS, PREFETCH_ROWS, ROWS_PER_TILE
from relaxlab.schedule.rules.elementwise import is_costly
from relaxlab.schedule.rules.reductions import (
    ACCUMULATORS,
    BLOCK,
    MANY_VECTORS,
    fuse_neighbours,
    goes_down_columns,
    order_axes,
    partial_lanes,
    reduce_along_rows,
)
from relaxlab.schedule.schedule import LoopRV, Schedule
from relaxlab.schedule.streams import stream_results

PREFETCH_ELEMENTS = 1024
"""Shortest prefetch distance: 4 KB of float32, the page at whose end the hardware's prefetchers
stop. Of rows longer than that the next row is prefetched."""
MIN_PARALLEL_ROWS = 4
"""Rows below which threads may lack work: a team of four gets one each."""
LONG_ROW = 256
"""Terms from which on what is computed of their sum takes little beside them."""
MIN_SPLIT_ROW = 1 << 16
"""Elements from which on a row is work for several threads: 256 KB of float32, some microseconds'
for one, which is what waking the others takes."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits kernels whose reductions all run over trailing axes of a common row.

    Where the width of rows is a symbol, there are versions for a few columns, by the rule
    `windows`, for rows of one vector and of few, whose lanes would mostly be idle in steps of
    several vectors, and for those whose sum is one block.
    Where a row is stored between its uses, there is one for widths that fit a thread's stack beside
    the one that computes the row again or, if a product makes it, stores it in main memory.
    """
    # A single row is an axis of one iteration, which the blocks of some kernels have to share.
    if any(constant(it.dom.extent) == 1 for b in blocks_of(sch.func) for it in b.iter_vars):
        found = attempted(lambda one, given: with_joined_axes(one, _apply, given), sch, context)
        if found is not None:
            return found
    return with_joined_axes(sch, _apply, context, units=False)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    order_axes(sch)
    func, bounds = sch.func, list[int]()
    width = _reduced_width(func)
    facts = context.target.facts
    widest = widest_row(facts)
    # Rows of three took 4.6 times as long by four vectors of partial results as by one (NOTES,
    # *Narrow rows and partial tiles of symbolic width*).
    if width is not None:
        lanes = context.target.lanes("float32")
        # One vector, without a loop; then rows for which a masked last step of several vectors
        # would be most of the work; then those whose sum needs no loop over blocks.
        step = PARTIAL_VECTORS.of(sch, ACCUMULATORS) * lanes
        many = MANY_VECTORS * lanes
        one_block = [n for n in _width_of_one_block(func, step, widest) if n >= many]
        # Half a vector where there is one reduction: sums of 4000 rows of up to eight took 5.7 us
        # in whole ones, in halves 4.1 as with constants (another tenth of compiling).
        single = sum(not is_spatial(b) for b in blocks_of(func)) == 1
        bounds += [*([lanes // 2] if single else []), lanes, many - 1, *one_block]
    found = _width_of_stored_rows(sch.copy(), facts)
    # Versions are chosen by one symbol only: a product of two lists of bounds would multiply the
    # code.
    if found is not None and width in (None, found[0]):
        width, terms = found
        # Rows of sums whose operand fits the first-level cache are made one by one, wider ones four
        # at a time: with 8 terms and 1024 columns, one by one moved 53 to 82 GB/s, four at a time
        # 44 to 60 (NOTES, *Products by a small matrix*).
        bounds += [_widest_in_l1(terms, facts), widest] if terms else [widest]
    if width is None:
        return _schedule(sch, context, {})

    exact = [] if _reduced_width(func) is None else list(COLUMNS)

    def version(sch: Schedule, most: int | None) -> Schedule | None:
        if most in exact:
            return attempted(windows.apply, sch, context)
        if most is not None:
            sch.declare_upper_bound(width, most)
            made = _schedule(sch, context, {width: most})
            return made if isinstance(made, Schedule) else None
        # Without a bound rows cannot be on a stack: they are computed again or stored in main
        # memory.
        return fitting(_schedule(sch, context, {}))

    with_versions(sch, context, width, sorted({*exact, *bounds}), version, max(exact, default=1))
    return sch


def _reduced_width(func: PrimFunc) -> Var | None:
    """Return the symbol that is the extent of the innermost axis of all reductions."""
    axes = [b.iter_vars for b in blocks_of(func) if not is_spatial(b)]
    match [*{its[-1].dom.extent for its in axes if its[-1].kind != "spatial"}]:
        case [Var() as width]:
            return width
        case _:
            return None


def _width_of_one_block(func: PrimFunc, partial: int, widest: int) -> list[int]:
    """Return the widest rows whose sum is one block for each of `partial` results, at most
    `widest`; nothing where there is no such sum, or there are several reductions: their passes over
    a row take longer than loops over blocks (a third version of a layer norm would take 0.3 s more
    to compile, 0.06 s that of a sum)."""
    reductions = [b for b in blocks_of(func) if not is_spatial(b)]
    if len(reductions) > 1 or not depends_on_order(reductions[0]):
        return []
    terms = [it.dom.extent for it in reductions[0].iter_vars if it.kind != "spatial"]
    others = math.prod(constant(n) or BLOCK for n in terms[:-1])
    return [min(widest, partial * (BLOCK // others))]


def _width_of_stored_rows(sch: Schedule, facts: Facts) -> tuple[Var, int] | None:
    """Return the symbolic width of the rows that are stored (several blocks read them, or a product
    makes them) and the number of terms of that product, or 0; None unless all of them have that
    width."""
    names = read_more_than_once(sch.func)
    inline_producers(sch, keep=names)
    blocks = blocks_of(sch.func)
    rank = row_rank(blocks) or 0
    sums = _sums_of_few(blocks, rank, facts)
    stored = [b for b in blocks if b.name in names or b.name in sums]
    buffers = [b.writes[0].buffer for b in stored]
    widths = {b.shape[rank:] for b in buffers if b not in sch.func.params}
    match [*widths - {()}]:
        case [(Var() as width,)]:
            return width, max(sums.values(), default=0)
        case _:
            return None


def _widest_in_l1(terms: int, facts: Facts) -> int:
    """Return the widest row of sums of `terms` products whose shared operand fits the first-level
    cache."""
    return facts.cache(1) // (4 * terms)


def widest_row(facts: Facts) -> int:
    """Return the most elements of a row of symbolic width of which intermediates stay near: those
    of float32 are counted."""
    return facts.fusion.row_bytes // 4


def _schedule(sch: Schedule, context: Context, bounds: Mapping[Var, int]) -> Schedule | str:
    """`bounds`: how large symbols are at most."""
    inlined = sch.copy()
    inline_producers(inlined, keep=read_more_than_once(sch.func))
    blocks = blocks_of(inlined.func)
    reductions = [b for b in blocks if not is_spatial(b)]
    rank = row_rank(blocks)
    few = _sums_of_few(blocks, rank or 0, context.target.facts)
    if rank is None:
        return "it has no reduction"
    for block in reductions:
        if goes_down_columns(block, context.target) and block.name not in few:
            return f"{block.name} reduces columns: its last axis is that of neighbours in memory"
    reason = ""
    # First the rows of the reductions; where a block cannot follow under these loops, the axes that
    # all blocks share, which may be fewer.
    for at_most in dict.fromkeys((_spatial_rank(reductions), rank)):
        try:
            return _schedule_rows(sch.copy(), context, at_most, bounds)
        except ScheduleError as error:
            reason = str(error)
    return reason


def _schedule_rows(
    sch: Schedule, context: Context, rank: int, bounds: Mapping[Var, int]
) -> Schedule | str:
    """Rows are along the first `rank` axes of reductions. Raises ScheduleError where blocks do not
    share these."""
    func = sch.func
    names = read_more_than_once(func)
    inline_producers(sch, keep=names)
    # Values that are read again are stored where a row of them has a constant bound; others are
    # computed for each reader.
    inline_producers(sch, keep=[n for n in names if _has_bounded_rows(func, n, rank, bounds)])
    # Few long rows are for the rule `fallback`, whose threads share each of them.
    if not rank or _has_few_long_rows(blocks_of(sch.func), rank):
        return f"{blocks_of(sch.func)[0].name} has too few rows for threads to share"
    facts = context.target.facts
    tile = _rows_at_once(sch, rank, bounds, facts)
    stores = separate_stores(sch, rank, facts)
    blocks = blocks_of(sch.func)
    lanes = context.target.lanes(output_dtype(blocks[-1]))
    ends = [] if stores or tile > 1 else _costly_ends(blocks, rank, bounds, lanes)
    tile = lanes if ends else tile
    # The first block's loops become the kernel's: a block that moves to its store has none to give.
    if blocks[0].name in stores:  # it follows its store
        del blocks[0]
    rows = _gather_rows(sch, blocks, rank, tile, bounds, facts)
    outer = rank if tile == 1 else rank + 1
    for block in blocks:
        if block.name in ends:
            vectorize_inner(sch, block_loops(sch, sch.get_block(block.name))[0][rank], tile)
        elif block.name not in stores:
            _inside_row(sch, block.name, outer, context)
    for name, store in stores.items():
        _in_registers(sch, name, store, rank, outer)
    _prefetch_rows(sch, outer, facts)
    if rows:
        row = sch.fuse(*rows) if len(rows) > 1 else rows[0]
        # A loop of one iteration would start a team for one thread.
        if constant(extent_of(sch, row)) != 1:
            sch.parallel(row)
            stream_results(sch, row, facts)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    bound_private_buffers(sch, bounds)
    where_allowed(sch.round_up_vectors)
    return sch


def read_more_than_once(func: PrimFunc) -> list[str]:
    """Return the producers that several blocks read, which are worth storing: not the loads of
    single elements of an input that their readers reuse, such as the first of a row."""
    blocks = blocks_of(func)
    readers: dict[Buffer, list[Block]] = {}
    for block in blocks:
        for region in block.reads:
            readers.setdefault(region.buffer, []).append(block)
    return [
        b.name
        for b in blocks
        if is_spatial(b)
        and len(found := readers.get(b.writes[0].buffer, [])) > 1
        and not (_only_loads(b, func) and all(len(r.iter_vars) > len(b.iter_vars) for r in found))
    ]


def _only_loads(block: Block, func: PrimFunc) -> bool:
    """True if the block only loads elements of an input."""
    nodes = [n for n in walk(block.body) if isinstance(n, BufferLoad | expr.BinaryOp | expr.Call)]
    values = [n for n in nodes if is_float(n.dtype) and not _chooses(n)]
    return all(isinstance(n, BufferLoad) and n.buffer in func.params for n in values)


def _chooses(n: Node) -> bool:
    return isinstance(n, expr.Call) and n.op == "if_then_else"


def _has_bounded_rows(func: PrimFunc, name: str, rank: int, bounds: Mapping[Var, int]) -> bool:
    """True if a row that the block makes may be stored on a thread's stack. Through main memory it
    would take longer than computing it again, exponentials included. What a reduction reads along
    one of the first `rank` axes is no row. On a stack rows of a symbolic length are as far apart as
    the longest: a reduction over several axes, which are one in the operand, would divide and
    gather (50 times as long for deviations of 5 x 9 x 20)."""
    blocks = blocks_of(func)
    made = next(b for b in blocks if b.name == name).writes[0].buffer
    if any(upper_bound(dim, bounds) is None for dim in made.shape[rank:]):
        return False
    reduced = {it.var for b in blocks for it in b.iter_vars if it.kind != "spatial"}
    for region in (r.region for b in blocks for r in b.reads if r.buffer is made):
        along = [d for d, at in enumerate(region) if not reduced.isdisjoint(symbols_in(at.min))]
        if any(d < rank for d in along) or None in [constant(made.shape[d]) for d in along[1:]]:
            return False
    return True


def upper_bound(dim: PrimExpr, bounds: Mapping[Var, int]) -> int | None:
    """Return the upper bound of a dimension, if it has one."""
    return bounds.get(dim) if isinstance(dim, Var) else constant(dim)


def _spatial_rank(reductions: list[Block]) -> int:
    """Return the number of axes that all reductions keep."""
    return min(sum(it.kind == "spatial" for it in b.iter_vars) for b in reductions)


def row_rank(blocks: list[Block]) -> int | None:
    """Return the number of leading axes that all blocks share; None if there is no reduction."""
    reductions = [b for b in blocks if not is_spatial(b)]
    if not reductions:
        return None
    rank = _spatial_rank(reductions)
    first = [it.dom.extent for it in blocks[0].iter_vars[:rank]]
    for block in blocks:
        spatial = [it for it in block.iter_vars if it.kind == "spatial"]
        while rank and [it.dom.extent for it in spatial[:rank]] != first[:rank]:
            rank -= 1
    return rank


def _has_few_long_rows(blocks: list[Block], rank: int) -> bool:
    """True if threads should share the elements of each row, since there are fewer rows than
    threads."""
    axes = blocks[0].iter_vars[:rank]
    rows = math.prod(constant(it.dom.extent) or MIN_PARALLEL_ROWS for it in axes)
    return rows < MIN_PARALLEL_ROWS and any(
        math.prod(constant(it.dom.extent) or 1 for it in b.iter_vars if it.kind != "spatial")
        >= MIN_SPLIT_ROW
        for b in blocks
    )


def _gather_rows(
    sch: Schedule,
    blocks: list[Block],
    rank: int,
    tile: int,
    bounds: Mapping[Var, int],
    facts: Facts,
) -> list[LoopRV]:
    """Put every block under the first block's loops over tiles of rows; returns those loops."""
    first = sch.get_block(blocks[0].name)
    spatial, _ = block_loops(sch, first)
    rows = spatial[:rank]
    if tile > 1:
        rows[-1], _ = sch.split(rows[-1], factors=[None, tile])
    for block in blocks[1:]:
        if rows:
            sch.reverse_compute_at(sch.get_block(block.name), rows[-1])
    for block in blocks[:-1]:
        _keep_local(sch, block, rank, bounds, facts)
    return rows


def separate_stores(sch: Schedule, rank: int, facts: Facts) -> dict[str, str]:
    """Sums of few terms that make rows, each with the block that stores it: the elementwise block
    that alone reads it, or a copy."""
    stores: dict[str, str] = {}
    for name in _sums_of_few(blocks_of(sch.func), rank, facts):
        rv = sch.get_block(name)
        made = found_block(sch, rv).writes[0].buffer
        readers = [(b, r) for b in blocks_of(sch.func) for r in b.reads if r.buffer is made]
        private = made not in sch.func.params
        if private and len(readers) == 1 and _is_elementwise(*readers[0]):
            sch.set_scope(rv, 0, "local")
            stores[name] = readers[0][0].name
        else:
            store = sch.cache_write(rv, 0, "local")
            stores[name] = found_block(sch, store).name
    return stores


def _sums_of_few(blocks: list[Block], rank: int, facts: Facts) -> dict[str, int]:
    """The blocks that reduce over few elements (see `FusionLimits`) for each element of a row that
    others read, a vector of its last dimension at a time; over how many."""
    few = facts.fusion.terms
    read = {r.buffer for b in blocks for r in b.reads}
    found: dict[str, int] = {}
    for block in blocks:
        # An unknown extent counts as too long: it could not be unrolled.
        terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
        count = math.prod(few + 1 if n is None else n for n in terms)
        row = [it.dom.extent for it in block.iter_vars if it.kind == "spatial"][rank:]
        # A sum of which nobody else reads a row gains nothing from registers: it is the result.
        makes_rows = row and constant(row[-1]) != 1 and block.writes[0].buffer in read
        if terms and makes_rows and 0 < count <= few:
            found[block.name] = count
    return found


def _is_elementwise(block: Block, read: BufferRegion) -> bool:
    """True if each iteration of the block reads the element at its own place."""
    return is_spatial(block) and [r.min for r in read.region] == [it.var for it in block.iter_vars]


def _rows_at_once(sch: Schedule, rank: int, bounds: Mapping[Var, int], facts: Facts) -> int:
    """Return the rows to make at once: every row of short sums reads the shared operand again,
    unless several rows are made from one read of it. Where it exceeds a first-level cache, four
    read it once for all, and their sums fit the registers (NOTES, *Products by a small matrix*)."""
    blocks = blocks_of(sch.func)
    sums = _sums_of_few(blocks, rank, facts)
    for block in (b for b in blocks if b.name in sums):
        row = [it.dom.extent for it in block.iter_vars[rank:] if it.kind == "spatial"]
        width = math.prod(upper_bound(dim, bounds) or widest_row(facts) for dim in row)
        if width > _widest_in_l1(sums[block.name], facts):
            return ROWS_PER_TILE.of(sch, 4)
    return ROWS_PER_TILE.of(sch, 1) if sums else 1


def _costly_ends(
    blocks: list[Block], rank: int, bounds: Mapping[Var, int], lanes: int
) -> list[str]:
    """Return the blocks behind reductions of short rows that compute one number of each row, among
    them functions that take as long as some terms: with a vector of rows at once, a sigmoid of
    55,000 means of 32 took 130 us, row by row 260. Nothing where a row of anything is stored, or
    there are fewer rows than lanes."""
    axes = blocks[0].iter_vars[:rank]
    if any(n is not None and n < lanes for n in (constant(it.dom.extent) for it in axes[-1:])):
        return []
    ends = [b for b in blocks if is_spatial(b)]
    numbers = all(len(b.iter_vars) == rank for b in ends) and all(
        sum(it.kind == "spatial" for it in b.iter_vars) == rank for b in blocks
    )
    widths = [it.dom.extent for b in blocks for it in b.iter_vars if it.kind != "spatial"]
    most = math.prod(upper_bound(n, bounds) or LONG_ROW + 1 for n in widths)
    short = most <= LONG_ROW
    return [b.name for b in ends] if numbers and short and any(map(is_costly, ends)) else []


def _in_registers(sch: Schedule, name: str, store: str, rank: int, row: int) -> None:
    """Compute a sum of few terms where block `store` stores a vector of its results, for all rows
    of a tile together. `rank`, `row`: how many loops are around a tile and around a row."""
    rv = sch.get_block(name)
    nest = sch.get_loops(sch.get_block(store))
    tile, outer, lane = nest[rank:row], nest[:rank] + nest[row:-1], nest[-1]
    if tile:
        sch.reorder(*nest[row:-1], *tile, lane)
        sch.unroll(*tile)
    sch.compute_at(rv, outer[-1], preserve_unit_loops=True)
    spatial, terms = block_loops(sch, rv)
    sch.reorder(*terms, *spatial[len(outer) :])
    for one in (sch.decompose_reduction(rv, terms[0]), rv):
        *inner, lane = block_loops(sch, one)[0][len(outer) :]
        sch.vectorize(lane)
        for loop in inner:
            sch.unroll(loop)
    for loop in terms:
        sch.unroll(loop)


def _keep_local(
    sch: Schedule, block: Block, rank: int, bounds: Mapping[Var, int], facts: Facts
) -> None:
    """Keep the intermediates of a row on the stack if the row is known to be so small that it stays
    in a second-level cache beside what is read."""
    buffer = block.writes[0].buffer
    if any(p is buffer for p in sch.func.params):
        return
    size = 4
    for dim in buffer.shape[rank:]:
        most = upper_bound(dim, bounds)
        if most is None:
            return
        size *= most
    if size <= facts.cache(2) // 16:
        sch.set_scope(sch.get_block(block.name), 0, "local")


def _inside_row(sch: Schedule, name: str, rank: int, context: Context) -> None:
    """Vectorise one block within its row."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    block = found_block(sch, rv)
    lanes = context.target.lanes(output_dtype(block))
    inner = [loop for loop in spatial[rank:] if constant(extent_of(sch, loop)) != 1]
    if inner and (constant(extent_of(sch, inner[-1])) or 0) % (2 * lanes) == 0:
        lanes *= 2  # two vectors at a time need not wait for each other
    if reduce:
        if not inner or not goes_down_columns(block, context.target):
            reduce = fuse_neighbours(sch, rv, reduce)
            reduce_along_rows(sch, rv, reduce, partial_lanes(sch, rv, reduce, context))
        else:
            sch.reorder(*reduce, inner[-1])
            vectorize_inner(sch, inner[-1], lanes)
        return
    if inner:
        _vectorize_row(sch, inner[-1], lanes)


def _vectorize_row(sch: Schedule, loop: LoopRV, lanes: int) -> None:
    """Make vectors of the elements of a row. One that a row does not fill has a power of two lanes:
    LLVM stores ten elements in pieces, and a load of all of them waits until these are in the cache
    (softmax over rows of ten took 2.2 times as long)."""
    width = constant(extent_of(sch, loop)) or lanes
    if width >= lanes or width.bit_count() == 1:
        vectorize_inner(sch, loop, lanes)
    else:
        _, lane = sch.split(loop, factors=[None, 1 << width.bit_length()])
        sch.vectorize(lane)


def _prefetch_rows(sch: Schedule, outer: int, facts: Facts) -> None:
    """Rows are fetched during the last pass over those before: the hardware's prefetchers stop at
    the end of a page, and no instruction of the next row starts before the results of this one's
    reductions are there. A vector by 4096 rows of 4096 went from 2.2 ms to 1.8."""
    for block in reversed(blocks_of(sch.func)):
        names = tuple(
            r.buffer.name
            for r in block.reads
            if r.buffer in sch.func.params
            and _is_last_reader(sch, block, r.buffer)
            and _streams_past(sch.func, block, r, facts)
        )
        nest = sch.get_loops(sch.get_block(block.name))[outer:]
        if not names or [_kind(sch, loop) for loop in nest] != ["serial", "vectorized"]:
            continue
        count, lanes = (constant(extent_of(sch, loop)) or 0 for loop in nest)
        if lanes and PREFETCH_ROWS.of(sch, True):  # without lanes the rows are empty
            sch.annotate(nest[0], "prefetch", (max(count, PREFETCH_ELEMENTS // lanes), names))


def _streams_past(func: PrimFunc, block: Block, region: BufferRegion, facts: Facts) -> bool:
    """True if each result of the block reads another row of the buffer than the one before, and the
    rows are not known to stay in half of a second-level cache, beside another operand. There,
    prefetches only take the place of loads: with them 512 x 512 by a symbolic number of columns
    that is 3 or 7 took 1.06 to 1.09 times as long, 100 x 2000 by 4 1.23 times."""
    lanes = {v for r in block.reads for v in symbols_in(tuple(i.min for i in r.region[-1:]))}
    spatial = [it for it in block.iter_vars if it.kind == "spatial" and it.var not in lanes]
    rows = [it.var for it in spatial if constant(it.dom.extent) != 1]
    elements = math.prod(region.buffer.shape, start=expr.const(1))
    most = shape_analyzer(func).upper_bound(elements)
    fits = most is not None and most * bytes_of(region.buffer.dtype) <= facts.cache(2) // 2
    used = symbols_in(tuple(r.min for r in region.region[:-1]))
    return bool(rows) and rows[-1] in used and not fits


def _is_last_reader(sch: Schedule, block: Block, buffer: Buffer) -> bool:
    readers = [b for b in blocks_of(sch.func) if any(r.buffer is buffer for r in b.reads)]
    return readers[-1] is block


def _kind(sch: Schedule, loop: LoopRV) -> str:
    found = sch.get(loop)
    assert isinstance(found, For)
    return found.kind
