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
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Block, BufferLoad, BufferStore, For, IterVar
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.target import Target
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.intrinsics.reduce import FOLDED
from relaxlab.schedule.order import depends_on_order, keeps_order
from relaxlab.schedule.ranges import analyzer_at, shape_analyzer
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    block_loops,
    constant,
    extent_of,
    found_block,
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
MIN_LANES = 4
"""Shortest rows whose elements become lanes, where several are added up together."""
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
    """True if neighbours along the last spatial axis are neighbours in what a reduction reads:
    each load has the axis in its last index alone, which it moves by one, or not at all. Rows may
    begin where an array of places says, and windows of neighbouring results may overlap. False for
    few windows of many terms, since these are neighbours, too, and fill more vectors."""
    axes = [it for it in block.iter_vars if it.kind == "spatial"]
    # An axis of one element has no neighbours to put into lanes, whatever it indexes.
    if not axes or constant(axes[-1].dom.extent) == 1 or reduction_of(block) is None:
        return False
    column, written = axes[-1].var, {w.buffer for w in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer not in written]
    moving = [load.indices for load in loads if column in symbols_in(load.indices)]
    if not moving or not all(
        column not in symbols_in(i[:-1]) and (i[-1] == column or _moves_by_one(i[-1], column))
        for i in moving
    ):
        return False
    width = constant(axes[-1].dom.extent)
    # Sums of 1000 terms took 2.0 times as long down 8 columns as along rows, and 1.1 times down 16.
    is_narrow = width is not None and width < 2 * target.lanes(output_dtype(block))
    return not (is_narrow and goes_along_rows(block))


def goes_along_rows(block: Block) -> bool:
    """True if the innermost reduce axis goes through neighbours in memory."""
    last = [it.var for it in block.iter_vars if it.kind != "spatial"][-1]
    written = {w.buffer for w in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer not in written]
    along = [load.indices for load in loads if last in symbols_in(load.indices)]
    return bool(along) and all(last not in symbols_in(i[:-1]) for i in along)


def _moves_by_one(index: expr.PrimExpr, column: Var) -> bool:
    """True if an index of the next column is the next index."""
    step = Analyzer().simplify(substitute(index, {column: column + 1}) - index)
    return constant(step) == 1


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
    if most is not None and MIN_LANES <= most < lanes:
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
