"""Kernels without reductions: everything inlined into the last block, one flat vector loop."""

from __future__ import annotations

import math

from relaxlab.analysis.arith.analyzer import simplify
from relaxlab.ir.dtypes import bytes_of, is_float
from relaxlab.ir.expr import Call, FloorDiv, FloorMod, IntImm, PrimExpr, Var, const
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    While,
)
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.compact import loops_around_uses
from relaxlab.schedule.ranges import by_data, distance, shape_analyzer
from relaxlab.schedule.rules.base import (
    COLUMNS,
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    inline_producers,
    is_spatial,
    loops_of_axes,
    output_dtype,
    shuffle_columns,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    COLUMN_VECTORS,
    PREFETCH_DISTANCE,
    SHARE_OUT,
    VECTORS_AT_ONCE,
)
from relaxlab.schedule.rules.lanes import gains_by_lanes
from relaxlab.schedule.schedule import LoopRV, Schedule
from relaxlab.schedule.streams import stream_results
from relaxlab.schedule.vector_loops import VECTORIZE, interleaves

MAX_STATE = 3 << 12
"""Bytes of a variable of one iteration that a thread keeps: a quarter of a first-level cache, two
thirds of which are counts of the values of four bytes. Eight integers are in registers."""
MAX_VECTORS = 8
"""Vectors of a step at most whose quotients are constants: each takes registers and code."""
ROWS_AT_ONCE = 4
"""Rows that advance together: as many as leave their lines in a first-level cache of eight ways or
more where rows are whole pages. Running sums along 100 rows of 300 took 5.9 us, as lanes of a
vector 41, one by one 14 (EPYC with AVX-512)."""
LONG, ENOUGH = 32, 32
"""Vectors of a row, and rows, from which on vectors are a loop of their own: batch norm of float16
images of 56 x 56 took 0.56 times as long, its root and quotient once for each channel."""
INTERLEAVED = 256
"""Iterations of a loop whose vectors LLVM makes: many beside those that are left over."""
SMALL = 4096
"""Elements below which one thread is faster than a team: some microseconds' work, which is what
waking threads takes."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Inline, then per remaining block: vectorise the last axis, divide the rest among threads."""
    reason = not_spatial(sch)
    if reason is not None:
        return reason
    inline_producers(sch)
    if all(map(_goes_through, blocks_of(sch.func))):
        return _by_blocks(sch, context)
    # Vectors need not end where rows of an image do that share numbers of their channel: with 56 of
    # 64 lanes in use, batch norm of images of 56 x 56 took 1.5 times as long.
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule:
    """Schedule a kernel whose axes are joined. Rows of symbolic length have versions of one step,
    whose masks are the same for all rows, for those of some vectors: a swap of the middle two axes
    of 8 x 20 x 30 x 8 took 20 us, and takes 6.6, with constants 3.8; of 8 x 20 x 30 x 40 29, 20 and
    17 (EPYC with AVX-512)."""
    (block, *others) = blocks_of(sch.func)
    lanes = context.target.lanes(output_dtype(block))
    found = None if others else _length_of_rows(block)
    if found is None:
        return _by_blocks(sch, context)
    symbol, fixed, factor = found

    def version(one: Schedule, most: int | None) -> Schedule:
        if most is not None:
            one.declare_upper_bound(symbol, most)
        return _by_blocks(one, context)

    bounds = dict.fromkeys((n * lanes - fixed) // factor for n in _vectors_of_rows(block))
    with_versions(sch, context, symbol, [n for n in bounds if n > 1], version)
    return sch


def _length_of_rows(block: Block) -> tuple[Var, int, int] | None:
    """Return the symbol in the length of the rows of a block, or of the turns that rows consist of,
    the length where it is zero, and what is added with each of it; None if rows are constant, a
    loop goes across them, or all arrays are accessed in memory order."""
    if len(block.iter_vars) < 2 or _loops_in(block) or block.alloc_buffers or _goes_through(block):
        return None
    (length, *others) = _turns(block) or {block.iter_vars[-1].dom.extent}
    symbols = list(dict.fromkeys(symbols_in(length)))
    if others or len(symbols) != 1:
        return None
    at = [constant(simplify(substitute(length, {symbols[0]: const(n)}))) for n in (0, 1)]
    if at[0] is None or at[1] is None or at[1] <= at[0]:
        return None
    return symbols[0], at[0], at[1] - at[0]


def _by_blocks(sch: Schedule, context: Context) -> Schedule:
    blocks = blocks_of(sch.func)
    if len(blocks) == 1 and _chooses_columns(blocks[0]):
        return _by_columns(sch, blocks[0], context)
    for block in blocks:
        schedule_block(sch, block, context)
    sch.compact_buffers()
    return sch


def _by_columns(sch: Schedule, block: Block, context: Context) -> Schedule:
    """Schedule rows of few elements, column by column for a vector of rows."""
    rv = sch.get_block(block.name)
    rows = axis_loops(sch, rv)[0]
    many = (constant(extent_of(sch, rows)) or SMALL) >= SMALL
    tile, _ = sch.split(rows, factors=[None, context.target.lanes(output_dtype(block))])
    shuffle_columns(sch, rv, tile)
    if SHARE_OUT.of(sch, many, block.name):
        sch.parallel(tile)
        stream_results(sch, tile, context.target.facts)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _chooses_columns(block: Block) -> bool:
    """True if rows of two or four elements are made of others by the number of their column alone,
    as columns that are put side by side: lanes through several rows would gather them. (n, 1) and
    (n, 1) of int8 took 1195 us as a vector for each row, 31 so, two matrices of two columns 2.7 and
    1.9; of three columns float64 2.7 and 6.5 (EPYC with AVX-512)."""
    columns = {it.var for it in block.iter_vars[1:]}
    count = math.prod(constant(it.dom.extent) or 0 for it in block.iter_vars[1:])
    chosen = {*_choosing(block)}
    pairs = count in COLUMNS and count % 2 == 0
    return pairs and bool(chosen) and chosen <= columns and not _loops_in(block)


def _waits_for_itself(block: Block) -> bool:
    """True if what a block computes place by place is a chain of steps in its own variables, under
    no condition: an average of all before. Other places advance meanwhile."""
    inner = _loops_in(block)
    axes = {it.var for it in block.iter_vars}
    if not block.iter_vars or not inner or not block.alloc_buffers:
        return False
    if any(isinstance(n, While | IfThenElse) for n in walk(block.body)):
        return False
    if any(VECTORIZE in n.annotations or axes & set(symbols_in(n.extent)) for n in inner):
        return False
    return _vectors_of_state(block) > 1


def _vectors_of_state(block: Block) -> int:
    """Return the vectors at once of a block with variables of its own, as far as half of the
    registers hold these: two, or four where its loops load nothing and each step waits for the one
    before. Of a Mandelbrot set one, two and four vectors took 105, 80 and 60 us, of products of
    complex matrices 15, 15 and 18 (EPYC with AVX-512)."""
    inside = [n for loop in _loops_in(block) for n in walk(loop) if isinstance(n, BufferLoad)]
    loads = any(n.buffer not in block.alloc_buffers for n in inside)
    count = sum(map(_elements, block.alloc_buffers))
    return next(n for n in (2 if loads else 4, 2, 1) if n * count <= 16 or n == 1)


def _elements(buffer: Buffer) -> int:
    """The elements of a buffer; many where a dimension is not constant."""
    return math.prod(constant(d) or MAX_STATE for d in buffer.shape)


def _loops_in(block: Block) -> list[For]:
    return [n for n in walk(block.body) if isinstance(n, For)]


def _has_uneven_loops(block: Block) -> bool:
    """True if how long loops in the block are depends on where it is: work on a sequence."""
    axes = {it.var for it in block.iter_vars}
    return any(axes & set(symbols_in(n.extent)) for n in _loops_in(block))


def not_spatial(sch: Schedule) -> str | None:
    """Return which block is a reduction, or that there is none of any kind; None if all are
    spatial."""
    blocks = blocks_of(sch.func)
    if not blocks:
        return "it has no block"
    return next((f"{b.name} is a reduction" for b in blocks if not is_spatial(b)), None)


def _keep_state_private(sch: Schedule, block: Block) -> None:
    """Give each thread its own copy of the variables of a hand-written loop, which then are in
    registers: buffers that nobody else reads, with few elements for each iteration, which fills
    them before it reads them."""
    shared = {r.buffer for b in blocks_of(sch.func) if b.name != block.name for r in b.reads}
    axes = tuple(it.var for it in block.iter_vars)
    accesses = [n for n in walk(block.body) if isinstance(n, BufferLoad | BufferStore)]
    shared |= {n.buffer for n in accesses if n.indices[: len(axes)] != axes}
    for number, region in enumerate(block.writes):
        buffer = region.buffer
        sizes = [constant(dim) for dim in buffer.shape[len(axes) :]]
        size = bytes_of(buffer.dtype) * math.prod(MAX_STATE + 1 if n is None else n for n in sizes)
        own = buffer not in sch.func.params and buffer not in shared and size <= MAX_STATE
        if own and loops_around_uses(sch.func, buffer):
            sch.set_scope(sch.get_block(block.name), number, "local")


def schedule_block(sch: Schedule, block: Block, context: Context) -> None:
    """Make one block vectors along its last axis, and share the rest out to threads. The caller
    compacts its private buffers."""
    nest = loops_of_axes(sch, sch.get_block(block.name))
    if not nest:
        return
    lanes = context.target.lanes(output_dtype(block))
    if block.iter_vars and not _loops_in(block) and not block.alloc_buffers:
        where_allowed(lambda: _split_turns(sch, block, lanes))
        nest = loops_of_axes(sch, sch.get_block(block.name))
    sizes = [constant(extent_of(sch, loop)) for loop in nest]
    sizes_inside = [constant(n.extent) for n in _loops_in(block)]
    work = math.prod(SMALL if size is None else size for size in sizes + sizes_inside)
    outer = nest[-1]
    keeps_state, straight = _keeps_state(block, context), _goes_through(block)
    if keeps_state or sizes_inside:
        _keep_state_private(sch, block)
    across = not block.alloc_buffers and _goes_across(block) and not is_costly(block)
    stmts = block.body.stmts if isinstance(block.body, SeqStmt) else ()
    if not keeps_state and interleaves(stmts):
        # LLVM shuffles what it stores; lanes would scatter it: 4.9 times gcc's time.
        outer, inner = sch.split(outer, factors=[None, INTERLEAVED])
        sch.annotate(inner, VECTORIZE, True)
    elif (keeps_state and _waits_for_itself(block)) or (not keeps_state and across):
        outer, rows = sch.split(outer, factors=[None, ROWS_AT_ONCE])
        sch.unroll_and_jam(rows)
    elif not keeps_state:
        if straight:
            nest = [sch.fuse(*nest)] if len(nest) > 1 else nest
            lanes = _lanes_of_step(sch, nest[-1], lanes, context)
        elif block.alloc_buffers:
            lanes *= _vectors_of_state(block)
        elif sizes_inside:
            # A loop in the block (a scan, updates of a row) goes down several vectors at once: a
            # line of each row is on another page. Running sums down 1024 columns of float32 took
            # 3.6 ms with one vector, 1.5 with four on a busy machine; on a quieter one four, eight
            # and sixteen took 0.7 to 0.9 alike, and four leave most tiles to threads. A version of
            # one vector for as many symbolic columns gained 6 % at three.
            if not _goes_across(block):
                lanes *= COLUMN_VECTORS.of(sch, 4)
        elif period := _period_of_short_rows(block, sizes, lanes):
            nest = [sch.fuse(*nest)]
            lanes = math.lcm(lanes, period)
        else:
            lanes = _lanes_of_row(sch, block, nest[-1], _lanes_of_quotients(block, lanes))
        outer = vectorize_inner(sch, nest[-1], lanes)
    shared = nest[:-1] if _shares_values(sch, block, nest, outer) else [*nest[:-1], outer]
    fused = sch.fuse(*shared) if len(shared) > 1 else shared[0]
    # An unknown extent counts as `SMALL`: the kernel's caller decides by its work when it runs.
    if SHARE_OUT.of(sch, work >= SMALL, block.name):
        share = sch.balance if _has_uneven_loops(block) else sch.parallel
        share(fused)
        # Of an array that is read by some iterations only, the others would ask for memory outside
        # of it: a concatenation of 6 MB took 1.5 times as long.
        streams = straight and not keeps_state and not _choosing(block)
        # 32 steps are 4 KB of float32, the page at whose end hardware prefetchers stop: 16 took
        # 1.2 ms, 64 and 256 0.8 (NOTES, *Non-temporal stores*).
        ahead = PREFETCH_DISTANCE.of(sch, 32) if streams else 0
        stream_results(sch, fused, context.target.facts, ahead)


def _split_turns(sch: Schedule, block: Block, lanes: int) -> None:
    """Make two loops of the last one where loads divide it by a size, as those of rows that are
    tiled: one over the turns, and one through a turn, whose elements are neighbours. Constant sizes
    that fill no vector are left to vectors of several turns. Raises ScheduleError where the size
    does not divide the loop, or loops are no axes."""
    axis, sizes = block.iter_vars[-1], _turns(block)
    if len(sizes) == 1 and (constant(*sizes) or lanes) >= lanes:
        (size,) = sizes
        turns = shape_analyzer(sch.func).simplify(axis.dom.extent // size)
        sch.split(axis_loops(sch, sch.get_block(block.name))[-1], factors=[turns, size])


def _turns(block: Block) -> set[PrimExpr]:
    """Return the sizes that loads divide the last axis of a block by."""
    axis = block.iter_vars[-1].var
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    return {
        n.b
        for load in loads
        for index in load.indices
        for n in walk(index)
        if isinstance(n, FloorDiv | FloorMod) and n.a == axis
    }


def _shares_values(sch: Schedule, block: Block, nest: list[LoopRV], vectors: LoopRV) -> bool:
    """True if vectors along the last axis share values that the block computes of loads elsewhere,
    as those of a channel of an image do, and rows are long and enough for all threads: then the
    loop over vectors stays inside, in front of which LLVM moves these values."""
    if not block.iter_vars:
        return False
    last = block.iter_vars[-1].var
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    shared = any(last not in symbols_in(n.indices) for n in loads)
    rows = math.prod(constant(extent_of(sch, loop)) or 1 for loop in nest[:-1])
    count = constant(extent_of(sch, vectors)) or 0
    return shared and not _loops_in(block) and count >= LONG and rows >= ENOUGH


def _lanes_of_step(sch: Schedule, loop: LoopRV, lanes: int, context: Context) -> int:
    """Return the lanes of a step: some vectors, which are independent chains of arithmetic, where
    they divide the loop; else one."""
    vectors = VECTORS_AT_ONCE.of(sch, 2)
    fit = (constant(extent_of(sch, loop)) or 0) % (vectors * lanes) == 0
    return vectors * lanes if fit and lanes <= context.target.lanes("float32") else lanes


def _vectors_of_rows(block: Block) -> tuple[int, ...]:
    """Return the vectors of rows for which symbolic lengths have versions. Of functions, constants
    and temporaries of more than two exceed the registers: a sigmoid times a tangent, rows of 40,
    took 47 us by four, 32 without."""
    return (1, 2) if is_costly(block) else (1, 2, 4)


def _lanes_of_row(sch: Schedule, block: Block, row: LoopRV, lanes: int) -> int:
    """Return the lanes of a step: a whole row where it is a few vectors, else as many as given.
    Steps that are parts of a row divide by their number in one, and test which of them is masked:
    1000 rows of 100 gathered took 18.8 us so, 8.8 in steps of a row; of 16 vectors the same."""
    size = constant(extent_of(sch, row))
    most = shape_analyzer(sch.func).upper_bound(extent_of(sch, row))
    if most is None or (size is not None and size % lanes == 0 and is_costly(block)):
        return lanes
    limit = MAX_VECTORS if size is not None else _vectors_of_rows(block)[-1]
    return -(-most // lanes) * lanes if most <= limit * lanes else lanes


def _lanes_of_quotients(block: Block, lanes: int) -> int:
    """Return the lanes of a step in which quotients of the last axis are the same constants plus a
    first one, as in each step of 48 elements that are repeated three times: then a load of
    neighbours and a shuffle replace a gather, which took 2.4 times PyTorch's time."""
    axis = block.iter_vars[-1].var
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    divisors = {
        n.b.value
        for load in loads
        for index in load.indices
        for n in walk(index)
        if isinstance(n, FloorDiv) and isinstance(n.b, IntImm) and axis in symbols_in(n.a)
    }
    step, extent = math.lcm(lanes, *divisors), constant(block.iter_vars[-1].dom.extent)
    if step > MAX_VECTORS * lanes:
        return lanes
    # Masked lanes of the last step cost less than gathers in all of them: 32 rows of 150 elements
    # took 6.3 us by one vector and 0.9 by three. A single step starts at 0, however long it is.
    return step if extent is None else min(step, max(1, -(-extent // lanes)) * lanes)


def _period_of_short_rows(block: Block, sizes: list[int | None], lanes: int) -> int:
    """Return the elements of all axes but the first where the last one is at most half a vector, so
    that lanes go through several rows, whose places are the same constants in each step; 0 where
    rows are longer, or conditions and data decide what is read. With a vector for each row, rows of
    three bytes in reverse order took five times as long, transposed matrices of two columns with
    eight lanes 3.4 times, those of three bytes each in two concatenated arrays a third."""
    inner = [n for n in sizes[1:] if n]
    if not inner or len(inner) < len(sizes) - 1 or 2 * inner[-1] > lanes or _choosing(block):
        return 0
    period = math.prod(inner)
    accesses = [n for n in walk(block.body) if isinstance(n, BufferLoad | BufferStore)]
    if any(by_data(i) for n in accesses for i in n.indices):
        return 0
    return period if math.lcm(lanes, period) <= MAX_VECTORS * lanes else 0


def _goes_through(block: Block) -> bool:
    """True if the block accesses all its arrays in memory order, with the same indices (single
    elements aside), so that the loop over them may ignore where rows end. Rows of constant length
    may be chosen by their number: a concatenation reads those of one array, then of the next."""
    axes = tuple(it.var for it in block.iter_vars)
    extents = tuple(it.dom.extent for it in block.iter_vars)
    nodes = list(walk(block.body))
    stores = [n for n in nodes if isinstance(n, BufferStore)]
    accesses = stores + [n for n in nodes if isinstance(n, BufferLoad)]
    along = [(n.indices, n.buffer.shape) == (axes, extents) for n in accesses]
    used = sum(isinstance(n, Var) and n in axes for n in nodes)
    if not all(along[: len(stores)]):
        return False
    if used == len(axes) * sum(along):
        return True
    if None in map(constant, extents[1:]):
        return False
    choosing = _choosing(block)
    rows = sum(_reads_rows(n, axes, extents) for n in accesses)
    return set(choosing) == {axes[0]} and used == len(axes) * rows + len(choosing)


def _choosing(block: Block) -> list[Var]:
    """The block's axes in conditions of values, as often as they occur; those in indices of loads
    left out, as it is data then that decides."""
    axes = [it.var for it in block.iter_vars]
    values = [n for n in walk(block.body) if isinstance(n, Call) and n.op == "if_then_else"]

    def used(n: Node) -> list[Var]:
        if isinstance(n, Var):
            return [n] if n in axes else []
        return [] if isinstance(n, BufferLoad) else [v for c in children(n) for v in used(c)]

    return [v for value in values for v in used(value.args[0])]


def _reads_rows(
    access: BufferLoad | BufferStore, axes: tuple[Var, ...], extents: tuple[PrimExpr, ...]
) -> bool:
    """True if the access goes through whole rows, a fixed number of rows away."""
    if len(access.indices) != len(axes):
        return False
    apart = distance(access.indices[0], axes[0])
    same = (access.indices[1:], access.buffer.shape[1:]) == (axes[1:], extents[1:])
    return same and not set(axes) & set(symbols_in(apart))


def _keeps_state(block: Block, context: Context) -> bool:
    """True if there is no axis to become lanes, or the last one cannot, or does not pay as lanes:
    the block has buffers of its own, loops that differ between its iterations, or loops (an update
    of rows) over elements that are not neighbours along the last axis."""
    nodes = list(walk(block.body))
    inner = _loops_in(block)
    if not block.iter_vars:
        return True
    by_cost = block.alloc_buffers or any(isinstance(n, While) for n in nodes)
    innermost = [n for n in inner if not any(isinstance(x, For) for x in walk(n.body))]
    if by_cost or (innermost and all(VECTORIZE in n.annotations for n in innermost)):
        lanes = context.target.lanes(output_dtype(block))
        # Variables of all lanes stay in the first-level cache.
        size = sum(bytes_of(b.dtype) * _elements(b) for b in block.alloc_buffers)
        return size * lanes > context.target.facts.cache(1) or not gains_by_lanes(block, lanes)
    axes = {it.var for it in block.iter_vars}
    if any(axes & set(symbols_in((n.min, n.extent))) for n in inner):
        return True
    return _goes_across(block) and not (is_costly(block) or _waits_for_floats(block))


def is_costly(block: Block) -> bool:
    """True if the block has functions that take longer than gathering and scattering their operands
    and results: running logarithms of sums along 128 rows of 1024 took 11.8 ms row by row, 0.5 with
    rows as lanes."""
    rows = (INTRINSICS.get(n.op) for n in walk(block.body) if isinstance(n, Call))
    return any(row is not None and row.costly for row in rows)


def _waits_for_floats(block: Block) -> bool:
    """True if the block makes a float of each element and the one before, at places that no data
    decides: an addition or a maximum has a latency of some cycles, in which other rows advance.
    Running maxima along rows took 254 us one by one, 89 by fours; updates of places that data
    decides, sorts and scans of bytes took 1.5 to 2.5 times as long by fours."""
    nodes = list(walk(block.body))
    named = {n.var for n in nodes if isinstance(n, LetStmt)}
    places = [i for n in nodes if isinstance(n, BufferLoad | BufferStore) for i in n.indices]
    chosen = any(by_data(i) or named & set(symbols_in(i)) for i in places)
    return is_float(output_dtype(block)) and not chosen


def _goes_across(block: Block) -> bool:
    """True if a block with loops has accesses that neither go along the last axis nor are the same
    for all of it. Elements at places that data decides, as a binary search reads, are on lines of
    their own in any order."""
    nodes = list(walk(block.body))
    if not _loops_in(block):
        return False
    differing = {block.iter_vars[-1].var}
    for n in nodes:  # a name is bound before it is used
        if isinstance(n, LetStmt) and differing & set(symbols_in(n.value)):
            differing.add(n.var)
    for n in nodes:
        if not isinstance(n, BufferLoad | BufferStore):
            continue
        *outer, last = n.indices or (const(0),)
        along = last == block.iter_vars[-1].var and not differing & set(symbols_in(tuple(outer)))
        along = along or (isinstance(n, BufferLoad) and by_data(last))
        if not along and (isinstance(n, BufferStore) or differing & set(symbols_in(n.indices))):
            return True
    return False
