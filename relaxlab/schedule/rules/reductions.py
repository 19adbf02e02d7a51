"""Schedules of one reduction: partial results per vector lane, in blocks, and per column.

A reduction over neighbours in memory (*along rows*) keeps one partial result per lane; a reduction
whose neighbours in memory are neighbours of the result (*down columns*) keeps a tile of columns in
registers while rows stream past. Either way a float sum is taken in blocks of `BLOCK` terms per
partial result: the rounding error then grows with `BLOCK` and with the number of blocks instead of
with their product, as in blocked and NumPy's pairwise summation (Higham, *Accuracy and Stability of
Numerical Algorithms*, section 4.2).
"""

from __future__ import annotations

from contextlib import suppress

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, For, IterVar, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.target import Target
from relaxlab.schedule.cascade import loads_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.intrinsics.reduce import FOLDED
from relaxlab.schedule.order import depends_on_order, keeps_order
from relaxlab.schedule.ranges import analyzer_at, shape_analyzer
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    axis_loops,
    block_loops,
    blocks_of,
    constant,
    extent_of,
    follows_axis,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    reduce_innermost,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import COLUMN_VECTORS, PARTIAL_VECTORS
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tree import find_loop

BLOCK = 256
"""Terms that are added to one partial result before it goes to the next level. Rounding errors of
blocked sums are smallest where blocks are as long as there are blocks: with 64 partial results
that is so at 4 million terms. Shorter blocks would fold their lanes more often than every 16 K
elements, which is when that costs nothing that can be measured."""
ACCUMULATORS = 4
"""Vectors of sums, unless decided otherwise: an addition has a latency of three to four cycles, and
two can begin in each."""
MANY_VECTORS = 8
"""Vectors of a row from which on steps of several vectors are worth a masked last step."""


def reduce_along_rows(
    sch: Schedule, rv: BlockRV, reduce: list[LoopRV], lanes: int
) -> BlockRV | None:
    """Keep a partial result per lane of the innermost reduce loop and combine them, by one
    intrinsic where there is one. Returns the block of the partial results; None, and nothing is
    done, where the order must be kept or rows are short."""
    block = found_block(sch, rv)
    if keeps_order(sch.func, block) or reduction_of(block) is None:
        return None
    # A row of at most half a vector is reduced element by element: most lanes would hold the
    # identity. Longer rows are vectors: 200 rows of 6, 10 and 15 took 0.3 to 0.5 of the time.
    most = _upper_bound(sch, reduce[-1])
    if most is not None and 2 * most <= lanes:
        return None
    return _by_lanes(sch, rv, lanes)


def reduce_down_columns(sch: Schedule, rv: BlockRV, reduce: list[LoopRV], lanes: int) -> None:
    """Make the columns of the block's last spatial loop, which are at most `lanes`, a vector of
    sums past which rows stream."""
    reduce = fuse_neighbours(sch, rv, reduce)
    sch.reorder(*reduce, block_loops(sch, rv)[0][-1])
    _stream(sch, rv, reduce, lanes, levels=2)  # a column has one partial result, not one per lane


def columns_at_once(sch: Schedule, block: Block, context: Context) -> int:
    """Return the columns of a tile of a reduction: several vectors, fewer where they hold all; a
    power of two where one vector does."""
    lanes = context.target.lanes(output_dtype(block))
    width = [it.dom.extent for it in block.iter_vars if it.kind == "spatial"][-1]
    most = shape_analyzer(sch.func).upper_bound(width)
    if most is None or most > lanes:
        vectors = COLUMN_VECTORS.of(sch, ACCUMULATORS)
        return lanes * (vectors if most is None else min(vectors, -(-most // lanes)))
    return 1 << (max(1, most) - 1).bit_length()


def _stream(sch: Schedule, rv: BlockRV, reduce: list[LoopRV], lanes: int, levels: int) -> None:
    """Sum vectors of `lanes` results in blocks, each with an initialisation of its own."""
    for part in (rv, *_in_blocks(sch, rv, reduce, levels)):
        spatial, reduce = block_loops(sch, part)
        # A reduction of extent one has no loop where another value has filled in its index.
        around = reduce[0] if reduce else spatial[-1]
        for one in (sch.decompose_reduction(part, around), part):
            lane = block_loops(sch, one)[0][-1]
            # Moving a block leaves it a loop over what its reader needs: of a symbolic number of
            # columns that one vector holds, as many as there are.
            if constant(extent_of(sch, lane)) is None:
                _, lane = sch.split(lane, factors=[None, lanes])
            sch.vectorize(lane)


def split_off_blocks(
    sch: Schedule, rv: BlockRV, reduce: list[LoopRV], lanes: int
) -> tuple[BlockRV, int] | None:
    """Split off the sums of blocks of `BLOCK` terms for each of `lanes` partial results; return
    their block and the number of loops around the one over blocks. None if one block has all
    terms, or there are none."""
    inside = 1
    # From the innermost axis outwards: as many whole axes as a block has room for, then part of
    # one.
    for at in reversed(range(len(reduce))):
        most, step = _upper_bound(sch, reduce[at]), lanes if at == len(reduce) - 1 else 1
        count = None if most is None else -(-most // step)
        if count == 0:
            return None
        if count is None or inside * count > BLOCK:
            break
        inside *= count
    else:
        return None
    # `lanes` only on the innermost axis, which alone is divided among them.
    size = max(1, BLOCK // inside) * (lanes if at == len(reduce) - 1 else 1)
    outer, _ = sch.split(reduce[at], factors=[None, size])
    around = [*reduce[:at], outer]
    number = sch.fuse(*around) if len(around) > 1 else outer
    depth = len(_loops_around(sch, rv, number))
    return sch.rfactor(number, 0), depth


def _in_blocks(sch: Schedule, rv: BlockRV, reduce: list[LoopRV], levels: int) -> list[BlockRV]:
    """Sum vectors in blocks and, on a second level, these in blocks of blocks, each added to the
    next level as soon as it is complete; return the blocks that make one of each, the largest
    first. None where the order of terms changes nothing or is kept, or one block has all.

    Blocks of blocks are made of whole blocks: both end where the terms do.
    """
    block = found_block(sch, rv)
    if not depends_on_order(block) or keeps_order(sch.func, block):
        return []
    made: list[BlockRV] = []
    for _ in range(levels):
        found = split_off_blocks(sch, rv, reduce, 1)
        if found is None:
            break
        inner, depth = found
        sch.set_scope(inner, 0, "local")
        _share_loops(sch, rv, sch.get_loops(inner)[:depth])
        made.insert(0, inner)
        reduce = _stream_past(sch, rv)
    # Largest first: each level is computed where the next larger one reads it.
    user = rv
    for inner in made:
        sch.compute_at(inner, block_loops(sch, user)[1][-1])
        _stream_past(sch, inner)
        user = inner
    return made


def _stream_past(sch: Schedule, rv: BlockRV) -> list[LoopRV]:
    """Put the loops over terms around the vector; return them."""
    spatial, terms = block_loops(sch, rv)
    sch.reorder(*terms, spatial[-1])
    return terms


def _loops_around(sch: Schedule, rv: BlockRV, loop: LoopRV) -> list[LoopRV]:
    """Return the loops of a block that are around one of them, outermost first."""
    nest = sch.get_loops(rv)
    return nest[: [sch.get(one) for one in nest].index(sch.get(loop))]


def _share_loops(sch: Schedule, rv: BlockRV, rows: list[LoopRV]) -> None:
    """Move the block under the loops over rows of its producer, if it has its own."""
    if rows and sch.get(rows[-1]) not in [sch.get(loop) for loop in sch.get_loops(rv)]:
        sch.reverse_compute_at(rv, rows[-1])


def _by_lanes(sch: Schedule, rv: BlockRV, lanes: int) -> BlockRV:
    """Vectorise the innermost reduce loop of a block; returns the block of the partial results."""
    block = found_block(sch, rv)
    buffer = block.writes[0].buffer
    _, (*_, last) = block_loops(sch, rv)
    # Unsplit, a loop of one vector leaves no loop over terms, and the branch without sums is taken
    # below.
    is_vector = constant(extent_of(sch, last)) == lanes
    lane = last if is_vector else sch.split(last, factors=[None, lanes])[1]
    partial = sch.rfactor(lane, buffer.ndim)
    sch.set_scope(partial, 0, "local")
    spatial, inner = block_loops(sch, partial)
    # A symbolic row of one vector leaves a loop of one iteration inside those over other terms.
    rows = _loops_around(sch, partial, inner[0]) if inner else spatial[:-1]
    # Refused, partial results of all rows are stored, which no rule takes if threads share them.
    with suppress(ScheduleError):  # then the lanes of a row live as long as its loop's body
        _share_loops(sch, rv, rows)
    if inner:
        sch.reorder(*inner, spatial[-1])
        _stream(sch, partial, inner, lanes, levels=1)
    else:  # there is one vector: nothing is summed before the lanes are
        sch.vectorize(spatial[-1])
    fold_lanes(sch, rv, lanes)
    return partial


def fold_lanes(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Combine the partial results of lanes by one intrinsic, if there is one: they are all that the
    block reduces."""
    block = found_block(sch, rv)
    combine = _combiner(block)
    if combine is not None:
        lane = reduce_innermost(sch, rv)
        sch.decompose_reduction(rv, lane)
        sch.tensorize(lane, f"reduce_{combine}_{output_dtype(block)}_{lanes}")


def _combiner(block: Block) -> str | None:
    """The operation of the intrinsic that folds lanes of the block's dtype, if there is one."""
    body = block.body
    if not isinstance(body, BufferStore) or body.buffer.dtype not in FOLDED:
        return None
    match body.value:
        case expr.Add():
            return "add"
        case expr.Mul():
            return "mul"
        case expr.Max():
            return "max"
        case expr.Min():
            return "min"
        case _:
            return None


def goes_down_columns(block: Block, target: Target) -> bool:
    """True if neighbours along the last spatial axis are neighbours in what a reduction reads, or
    the same. Rows may begin where an array of places says, and windows of neighbouring results may
    overlap. False for few windows of many terms, since these are neighbours, too, and fill more
    vectors."""
    axes = [it for it in block.iter_vars if it.kind == "spatial"]
    # An axis of one element has no neighbours to put into lanes, whatever it indexes.
    if not axes or constant(axes[-1].dom.extent) == 1 or reduction_of(block) is None:
        return False
    down = [way_of_vectors(indices, axes[-1].var) for indices in _indices_read(block)]
    if NEIGHBOURS not in down or max(down) > NEIGHBOURS:
        return False
    width = constant(axes[-1].dom.extent)
    # Sums of 1000 terms took 2.0 times as long down 8 columns as along rows, and 1.1 times down 16.
    is_narrow = width is not None and width < 2 * target.lanes(output_dtype(block))
    return not (is_narrow and goes_along_rows(block))


def prefers_columns(block: Block, target: Target) -> bool:
    """True if a reduction goes down columns, or its largest operand need not be gathered by vectors
    of them, as it must be along the innermost reduce axis."""
    axes = {it.var for it in block.iter_vars}
    spatial = [it for it in block.iter_vars if it.kind == "spatial"]
    if not spatial or constant(spatial[-1].dom.extent) == 1 or reduction_of(block) is None:
        return False
    term = [it.var for it in block.iter_vars if it.kind != "spatial"][-1]
    loads = _indices_read(block)
    used = [len(axes.intersection(symbols_in(indices))) for indices in loads]
    largest = [at for n, at in zip(used, loads, strict=True) if n == max(used)]
    down, along = (
        max((way_of_vectors(at, axis) for at in largest), default=SAME)
        for axis in (spatial[-1].var, term)
    )
    return goes_down_columns(block, target) or down < along == GATHERED


def goes_along_rows(block: Block) -> bool:
    """True if the innermost reduce axis goes through neighbours in memory."""
    last = [it.var for it in block.iter_vars if it.kind != "spatial"][-1]
    along = [indices for indices in _indices_read(block) if last in symbols_in(indices)]
    return bool(along) and all(last not in symbols_in(i[:-1]) for i in along)


SAME, NEIGHBOURS, STRIDED, GATHERED = range(4)
"""Ways to load a vector along an axis: one element for all lanes, neighbours in memory, elements
that shuffles of few vectors find, or one by one."""
SHUFFLED = 4
"""Distance of elements, in either direction, up to which loads of whole vectors have them all."""


def way_of_vectors(indices: tuple[PrimExpr, ...], axis: Var) -> int:
    """Return the way in which a vector of elements along an axis is loaded: `SAME`, `NEIGHBOURS`,
    `STRIDED` or `GATHERED`."""
    if axis not in symbols_in(indices):
        return SAME
    if axis in symbols_in(indices[:-1]):
        return GATHERED
    moved = substitute(indices[-1], {axis: axis + 1}) - indices[-1]
    step = 1 if indices[-1] == axis else constant(Analyzer().simplify(moved))
    if step == 1:
        return NEIGHBOURS
    return STRIDED if step is not None and abs(step) <= SHUFFLED else GATHERED


def _indices_read(block: Block) -> list[tuple[PrimExpr, ...]]:
    """The indices of what a block loads beside what it writes."""
    written = {w.buffer for w in block.writes}
    return [n.indices for n in loads_in(block.body) if n.buffer not in written]


def order_axes(sch: Schedule) -> None:
    """Put the axes of each reduction whose neighbours in memory are along another than its last
    ones into the order in which it goes through memory, and those of the blocks that read its
    results: a sum over a transposed matrix is then one down columns or along rows. Nothing is done
    where a block makes more elements than the reductions, in an order of its own."""
    seen = sch.copy()
    inline_producers(seen)
    blocks = blocks_of(seen.func)
    ranks = [len(b.iter_vars) for b in blocks if is_spatial(b)]
    reductions = [b for b in blocks if reduction_of(b) is not None]
    results = [sum(it.kind == "spatial" for it in b.iter_vars) for b in reductions]
    if not results or max(ranks, default=0) > min(results):
        return
    moved: dict[Buffer, list[int]] = {}
    for block in blocks:
        if is_spatial(block):
            read = [moved[n.buffer] for n in loads_in(block.body) if n.buffer in moved]
            order = read[0] if read and len(read[0]) == len(block.iter_vars) else None
        else:
            order = _order_in_memory(sch.func, block)
        if order is None:
            continue
        rv = sch.get_block(block.name)
        try:
            sch.reorder(*(axis_loops(sch, rv)[i] for i in order))
        except ScheduleError:
            continue
        sch.reorder_block_iter_var(rv, order)
        kept = [i for i in order if block.iter_vars[i].kind == "spatial"]
        moved[block.writes[0].buffer] = [sorted(kept).index(i) for i in kept]


def _order_in_memory(func: PrimFunc, block: Block) -> list[int] | None:
    """The numbers of a reduction's axes, spatial before reduced ones, as they are in what it reads;
    None where the last of either is that of neighbours already, or nothing has all axes as
    indices."""
    axes = [it.var for it in block.iter_vars]
    reduced = [it.kind != "spatial" for it in block.iter_vars]
    # Axes of one element, as of kept dimensions, are nowhere in memory.
    single = [i for i, it in enumerate(block.iter_vars) if constant(it.dom.extent) == 1]
    for indices in _indices_read(block):
        of = [[v for v in axes if v in symbols_in(index)] for index in indices]
        found = [axes.index(v) for along in of for v in along]
        found = [i for i in single if i not in found] + found
        pairs = zip(indices, of, strict=True)
        if sorted(found) != list(range(len(axes))) or not all(
            len(along) <= 1 and all(follows_axis(index, v, axes) for v in along)
            for index, along in pairs
        ):
            continue
        terms = [i for i in found if reduced[i]]
        if keeps_order(func, block):
            terms.sort()
        order = [*(i for i in found if not reduced[i]), *terms]
        last = [i for i in order if reduced[i] == reduced[found[-1]]][-1]
        alike = [i for i in range(len(axes)) if reduced[i] == reduced[last] and i not in single]
        return None if alike[-1:] == [last] else order
    return None


def fuse_neighbours(sch: Schedule, rv: BlockRV, loops: list[LoopRV]) -> list[LoopRV]:
    """Fuse reduce loops that together go through neighbours in memory (the last dimensions of an
    image), so that rows are as long as possible. Returns the loops that there are then."""
    block = found_block(sch, rv)
    axes = [it for it in block.iter_vars if it.kind != "spatial"]
    if len(axes) != len(loops):
        return loops
    result = [loops[-1]]
    for at in reversed(range(len(loops) - 1)):
        is_unit = constant(axes[at].dom.extent) == 1
        if not is_unit and _are_neighbours(block, axes[at].var, axes[at + 1]):
            result[0] = sch.fuse(loops[at], result[0])
        else:
            result.insert(0, loops[at])
    return result


def _are_neighbours(block: Block, a: Var, b: IterVar) -> bool:
    """True if each access that mentions one of two axes has both, as indices one after the other,
    the second through its whole dimension."""
    both = {a, b.var}
    for n in walk(block.body):
        if not isinstance(n, BufferLoad | BufferStore) or both.isdisjoint(symbols_in(n.indices)):
            continue
        used = [i for i, index in enumerate(n.indices) if not both.isdisjoint(symbols_in(index))]
        if [n.indices[i] for i in used] != [a, b.var] or used[1] != used[0] + 1:
            return False
        if n.buffer.shape[used[1]] != b.dom.extent:
            return False
    return True


def partial_lanes(sch: Schedule, rv: BlockRV, reduce: list[LoopRV], context: Context) -> int:
    """Return the number of partial results of a reduction along rows, those of its innermost loop:
    some vectors, or part of one where rows are shorter than a vector."""
    lanes = min(
        context.target.lanes("float32"), context.target.lanes(output_dtype(found_block(sch, rv)))
    )
    size, most = constant(extent_of(sch, reduce[-1])), _upper_bound(sch, reduce[-1])
    # Two or three elements, too: element by element, 4000 rows of three took up to 8 times as long
    # (deviations 94 us, now 14; softmax 61, now 26; EPYC with AVX-512).
    if most is not None and 1 < most < lanes:
        return 1 << (most - 1).bit_length()
    vectors = PARTIAL_VECTORS.of(sch, ACCUMULATORS)
    if size is not None and size >= MANY_VECTORS * lanes:
        return vectors * lanes
    if most is None or (size is None and most >= MANY_VECTORS * lanes):
        return vectors * lanes
    # Short rows take several vectors only where no step is masked.
    fitting = (n for n in (vectors, 2) if size and size % (n * lanes) == 0)
    return lanes * next(fitting, 1)


def _upper_bound(sch: Schedule, loop: LoopRV) -> int | None:
    """Return the largest extent of a loop, by the analysis that primitives use: they refuse to
    factor a loop that provably runs once."""
    found = sch.get(loop)
    assert isinstance(found, For)
    return analyzer_at(find_loop(sch.func, found.loop_var)).upper_bound(found.extent)
