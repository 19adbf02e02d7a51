"""Matrix products: tiles in shared memory, a square of sums per thread; single rows by warps.

A block of 16 x 16 threads makes a tile of 64 x 64 results, by default. In steps of 16 along the
reduced axis the threads copy a slice of both operands into shared memory together, computing there
what produces them (decoding of quantised weights, transposes), and each adds the products of its
4 x 4 results, 16 rows and columns apart, in registers. Edges of tiles are guarded, so the number of
rows may be a symbol; a version for a single row gives each result to a warp instead, or, where the
columns of the matrix are neighbours in memory, parts of each to a thread (`reductions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    block_loops,
    constant,
    extent_of,
    found_block,
    inline_producers,
    loops_inside,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    COLUMN_THREADS,
    COPY_WIDTH,
    OPERAND_IN_SHARED_MEMORY,
    REDUCTION_STEP,
    RESULTS_PER_BLOCK,
    ROW_THREADS,
    ROWS_BY_WARPS,
    THREAD_COLUMNS,
    THREAD_ROWS,
    THREADS_PER_RESULT,
    UNROLL_REDUCTION,
    VECTOR_WIDTH,
)
from relaxlab.schedule.rules_gpu import reductions
from relaxlab.schedule.rules_gpu.base import (
    Product,
    find_product,
    fits_a_block,
    fused,
    unroll_all,
    unrolled,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

SIDE = 16
"""Threads along each side of a tile, and the depth of a slice: 256 threads, and slices of both
operands of 64 rows, 8 KB of shared memory together."""
SQUARE = 4
"""Results per thread along each side: 16 accumulators for 8 loads from shared memory."""
FEW_ROWS = 4
"""Most rows for which a warp computes a column of the results together; from then on tiles reuse
what they load."""
MOST_ROWS = 8
"""Most rows whose sums are in registers while a column of the matrix is read."""
WARPS = 8
"""Warps per block: 256 threads."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile of results: `y` by `x` threads, each with `rows` by `cols` of them, and the depth of
    the slices of the operands."""

    y: int
    x: int
    rows: int
    cols: int
    depth: int


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate of a matrix of rows and a matrix of columns."""
    found = _find(sch.func)
    if isinstance(found, str):
        return found
    block, facts = found.block, context.target.facts
    rows = block.iter_vars[found.row].dom.extent
    square = set(symbols_in(rows)) & set(symbols_in(block.iter_vars[found.col].dom.extent))
    # The lanes of a warp would share a sum; few rows would be few columns, too.
    if keeps_order(sch.func, block) or square:
        return _by_tiles(sch, found, facts)
    known = constant(rows)
    few = known is not None and known <= ROWS_BY_WARPS.of(sch, FEW_ROWS)
    down = _has_columns_together(sch.copy(), found)

    def version(sch: Schedule, most: int | None) -> Schedule:
        if not (most or few):
            return _by_tiles(sch, found, facts)
        if down:  # a thread goes down a column, neighbours down neighbouring ones
            return reductions.by_columns(sch.copy(), context)
        return _by_warps(sch, found, facts)

    with_versions(sch, context, rows, [1], version)
    return sch


def _has_columns_together(sch: Schedule, found: Product) -> bool:
    """True if neighbours in memory of the matrix of columns are of different columns."""
    inline_producers(sch)
    block = found_block(sch, sch.get_block(found.name))
    col, reduce = (block.iter_vars[n].var for n in (found.col, found.reduce))
    last = [
        set(symbols_in(load.indices[-1]))
        for load in walk(block.body)
        if isinstance(load, BufferLoad)
        and col in symbols_in(load.indices)
        # The sum itself, which is loaded to add to it, has no index along the reduced axis.
        and reduce in symbols_in(load.indices)
    ]
    return any(col in symbols and reduce not in symbols for symbols in last)


def _find(func: PrimFunc) -> Product | str:
    """The product, or why the kernel is none that the rule is for."""
    found = find_product(func)
    if isinstance(found, str):
        return found
    axes = found.block.iter_vars
    row, col = axes[found.row].var, axes[found.col].var
    sides = [set(symbols_in(load.indices)) for load in found.loads]
    if col not in sides[1]:
        sides.reverse()
    left, right = sides
    if row not in left or col not in right or row in right or col in left:
        return f"{found.name}: {row} and {col} do not each index one operand"
    # A product with a vector has no tile to share.
    if constant(axes[found.col].dom.extent) == 1:
        return f"{found.name} has one column"
    return found


def _by_tiles(sch: Schedule, found: Product, facts: Facts) -> Schedule:
    product = sch.get_block(found.name)
    copies = [sch.cache_read(product, i, "shared") for i in _copied(sch, product)]
    inline_producers(sch, keep=[found_block(sch, c).name for c in copies])
    store = separate_store(sch, found.name)
    nest = axis_loops(sch, product)
    row, col, depth = nest[found.row], nest[found.col], nest[found.reduce]
    outer = [x for i, x in enumerate(nest) if i not in (found.row, found.col, found.reduce)]
    tile = _tile(sch, found_block(sch, product), (row, col), len(copies), facts)
    row_tile, row, y = sch.split(row, factors=[None, tile.rows, tile.y])
    col_tile, col, x = sch.split(col, factors=[None, tile.cols, tile.x])
    slice_, depth = sch.split(depth, factors=[None, tile.depth])
    # The results of a thread lie innermost: each value that it loads from shared memory is used for
    # a row or column of them.
    sch.reorder(*outer, row_tile, col_tile, slice_, y, x, depth, row, col)
    for copy in copies:
        sch.compute_at(copy, slice_, preserve_unit_loops=True)
    sch.reverse_compute_at(store, col_tile, preserve_unit_loops=True)
    # The sums stay in registers across slices, so they start from zero outside of that loop.
    init = sch.decompose_reduction(product, slice_)
    zeros = sch.get_loops(init)[len(outer) + 2 :]  # without `col` where a thread has one column
    for square in ([y, x, row, col], zeros):
        sch.bind(square[0], "threadIdx.y")
        sch.bind(square[1], "threadIdx.x")
        unroll_all(sch, *square[2:])
    unrolled(sch, depth, UNROLL_REDUCTION.of(sch, 1))
    for copy in copies:
        _together(sch, copy, slice_, tile, facts)
    _squares(sch, store, tile)
    sch.bind(fused(sch, [*outer, row_tile, col_tile]), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _copied(sch: Schedule, product: BlockRV) -> list[int]:
    """Decide which of the operands are copied into shared memory: the numbers of their regions."""
    block = found_block(sch, product)
    names = {i: block.reads[i].buffer.name for i in _operands(block)}
    return [i for i, name in names.items() if OPERAND_IN_SHARED_MEMORY.of(sch, True, name)]


def _left(product: Block, found: Product) -> int:
    """The number of the operand of rows."""
    row = product.iter_vars[found.row].var
    return next(i for i in _operands(product) if row in symbols_in(product.reads[i]))


def _operands(product: Block) -> list[int]:
    """The numbers of the regions that the product reads and does not write."""
    written = product.writes[0].buffer
    return [i for i, region in enumerate(product.reads) if region.buffer is not written]


def _tile(
    sch: Schedule, product: Block, loops: tuple[LoopRV, LoopRV], copies: int, facts: Facts
) -> _Tile:
    """Decide on the tile. Half of the registers hold results; no side is longer than the product's.
    """
    # Threads of a tile along each side, full warps together.
    y = ROW_THREADS.where(
        lambda n: any(fits_a_block(n * x, facts) for x in COLUMN_THREADS.candidates)
    ).of(sch, SIDE)
    x = COLUMN_THREADS.where(lambda n: fits_a_block(n * y, facts)).of(sch, SIDE)
    size = bytes_of(product.writes[0].buffer.dtype)
    most = facts.registers // 2 // (x * y * max(1, size // 4))
    high, wide = (constant(extent_of(sch, loop)) for loop in loops)
    longest = most if high is None else min(most, -(-high // y))
    rows = THREAD_ROWS.where(lambda n: n == 1 or n <= longest).at_most(sch, SQUARE)
    longest = most // rows if wide is None else min(most // rows, -(-wide // x))
    cols = THREAD_COLUMNS.where(lambda n: n == 1 or n <= longest).at_most(sch, SQUARE)
    sizes = [bytes_of(r.buffer.dtype) for r in product.reads]

    def fits(depth: int) -> bool:
        # By which rows are padded at most: two words of a bank.
        pad = 2 * max(facts.bank_bytes, *sizes) // min(sizes)
        side = max(rows * y, cols * x)
        return copies * (side + pad) * (depth + pad) * max(sizes) <= facts.shared

    return _Tile(y, x, rows, cols, REDUCTION_STEP.where(fits).at_most(sch, SIDE))


def _together(sch: Schedule, copy: BlockRV, outside: LoopRV, tile: _Tile, facts: Facts) -> None:
    """Copy a slice by all threads of the block, neighbours by neighbours. Its rows are an odd
    number of words long, so that threads that read a column of it use different banks."""
    buffer = found_block(sch, copy).writes[0].buffer
    size = bytes_of(buffer.dtype)
    words = max(1, facts.bank_bytes // size)
    sch.storage_align(copy, 0, -2, 2 * words, words)
    inner = loops_inside(sch, copy, outside)
    choice = COPY_WIDTH.where(lambda n: n * size <= facts.vector_bits // 8)
    width = choice.of(sch, 1, buffer.name)
    lanes = [width] if width > 1 else []
    _, y, x, *lane = sch.split(fused(sch, inner), factors=[None, tile.y, tile.x, *lanes])
    for loop in lane:
        sch.vectorize(loop)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")


def _squares(sch: Schedule, store: BlockRV, tile: _Tile) -> None:
    """Bind the store so that each thread stores the results that it has summed."""
    *_, row, col = sch.get_loops(store)
    row, y = sch.split(row, factors=[tile.rows, tile.y])
    col, x = sch.split(col, factors=[tile.cols, tile.x])
    sch.reorder(y, x, row, col)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    unroll_all(sch, row, col)


def _by_warps(sch: Schedule, found: Product, facts: Facts) -> Schedule:
    """A warp per result, or as many threads as are decided on: each thread has every 32nd group of
    products, and their sums are added across the threads. A group is what an access of 16 bytes
    loads of an operand that lies along the reduced axis."""
    product = sch.get_block(found.name)
    width = _group(sch, product, facts)
    operands = _operands(found_block(sch, product)) if width > 1 else []
    copies = [sch.cache_read(product, i, "local") for i in operands]
    inline_producers(sch, keep=[found_block(sch, c).name for c in copies])
    store = separate_store(sch, found.name)
    *spatial, depth = axis_loops(sch, product)
    if len(spatial) != len(sch.get_loops(store)):
        raise ScheduleError("matmul", "kernel", "what stores the results has the product's axes")
    buffer = found_block(sch, product).writes[0].buffer
    *outer, col = spatial
    # Threads that share a result exchange registers: they are part of a warp, or full warps.
    threads = THREADS_PER_RESULT.where(lambda n: n <= facts.warp or fits_a_block(n, facts)).of(
        sch, facts.warp
    )
    choice = RESULTS_PER_BLOCK.where(lambda n: fits_a_block(n * threads, facts))
    results = choice.at_most(sch, WARPS)
    # Results of a thread that share what is loaded of one operand: the rows that of the matrix,
    # columns that of the rows.
    few = bool(copies) and 1 < (constant(extent_of(sch, outer[-1])) or 1) <= MOST_ROWS
    columns = _columns_of_a_warp(sch, product, found, col, results) if copies and not few else 1
    col, warp, *own = sch.split(col, factors=[None, results, *([columns] if columns > 1 else [])])
    if few:
        own = [outer.pop()]
        sch.reorder(col, warp, *own)
    sch.reverse_compute_at(store, warp, preserve_unit_loops=True)
    group = [width] if width > 1 else []
    _, lane, *_ = sch.split(depth, factors=[None, threads, *group])
    partial = sch.rfactor(lane, buffer.ndim)
    # No other lane reads a lane's partial sum: a register holds it.
    sch.set_scope(partial, 0, "local")
    along, inside = block_loops(sch, partial)
    if inside:
        if group and len(inside) == 1:  # all terms are one group for each lane
            inside = [sch.add_unit_loop(inside[0]), *inside]
        each = along[-2:-1] if own else []
        sch.reorder(lane, inside[0], *each, *inside[1:])
        for number, copy in zip(operands, copies, strict=True):
            left = number == _left(found_block(sch, product), found)
            sch.compute_at(copy, each[0] if own and left == few else inside[0])
            *_, neighbour = sch.get_loops(copy)
            if constant(extent_of(sch, neighbour)) == width:
                sch.vectorize(neighbour)
        init = sch.decompose_reduction(partial, inside[0])
        unroll_all(sch, *each, *inside[1:], *(sch.get_loops(init)[-1:] if own else ()))
    sch.bind(lane, "threadIdx.x")
    *_, last = sch.get_loops(product)
    sch.bind(last, "threadIdx.x")
    unroll_all(sch, *own)
    sch.bind(warp, "threadIdx.y")
    sch.bind(fused(sch, [*outer, col]), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _columns_of_a_warp(
    sch: Schedule, product: BlockRV, found: Product, col: LoopRV, warps: int
) -> int:
    """Decide on the columns whose results a warp adds together: as many as let it load no more of a
    row than of the matrix, such as four where weights of four bits are multiplied by float32."""
    block = found_block(sch, product)
    row = bytes_of(block.reads[_left(block, found)].buffer.dtype)
    narrowest = min((bytes_of(b.dtype) for b in sch.func.buffers if b.ndim > 1), default=row)
    count = constant(extent_of(sch, col)) or 1
    fitting = THREAD_COLUMNS.where(lambda n: n == 1 or count % (n * warps) == 0)
    return fitting.at_most(sch, max(1, row // narrowest), block.name)


def _group(sch: Schedule, product: BlockRV, facts: Facts) -> int:
    """Decide on the neighbours along the reduced axis that a thread loads together: 16 bytes of the
    narrowest operand, and no more than leave every lane of a warp some."""
    block = found_block(sch, product)
    terms = next(it.dom.extent for it in block.iter_vars if it.kind != "spatial")
    sizes = [bytes_of(b.dtype) for b in sch.func.buffers if b.ndim > 1]
    most = facts.vector_bits // 8 // min(sizes, default=4)
    known = constant(terms)
    if known is not None:
        most = min(most, max(1, known // facts.warp))
    return VECTOR_WIDTH.at_most(sch, most, block.name)
