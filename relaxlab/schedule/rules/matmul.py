"""Matrix products in float: register tiles of rows times vectors of columns.

The kernel's main block is one multiply-accumulate reduction over a matrix of rows (activations)
and a matrix whose columns become vector lanes. Weights are stored in panels as wide as a register
tile, so a panel is read front to back; decoding quantised weights happens once per panel, before
the rows are swept. A version for a single row decodes in the inner loop instead. Results accumulate
in registers and elementwise consumers are applied before they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, BufferLoad
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.annotate import PREFETCH_EARLY
from relaxlab.schedule.reindex import places_of
from relaxlab.schedule.rules.base import (
    attempted,
    axis_loops,
    blocks_of,
    bound_private_buffers,
    constant,
    extent_of,
    found_block,
    separate_store,
    split_vector,
    sum_of_products,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.columns import apply as columns_apply
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.contraction import tiles_of_product
from relaxlab.schedule.rules.decisions import (
    BLOCK_COLUMNS,
    BLOCK_DEPTH,
    BLOCK_TILES,
    COPY_OPERAND,
    DOT_ROWS,
    FEW_PANELS,
    IN_PLACE_ROWS,
    NARROW_PANELS,
    PANEL_VECTORS,
    PREFETCH_DISTANCE,
    REGISTER_ROWS,
    UNROLL_REDUCTION,
)
from relaxlab.schedule.rules.dot_tiles import dot_tiles, few_columns, narrow_dot_tiles
from relaxlab.schedule.rules.few_rows import few_rows, in_place_bytes
from relaxlab.schedule.rules.product import (
    Product,
    find_product,
    inlined,
    product_of,
    schedule_rows,
    with_rows_computed_once,
)
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

GROUP = 32
"""Weights that share a scale in the common block formats (Q4_0, Q8_0 and their kin)."""


PACKED_SUMS = 16
"""Vectors of sums of a tile beside packed weights, of the eight that two multiply-adds of four
cycles need. With 24, in tiles of six rows, seven and eight rows of 512 x 512 took 25 us, not 18;
two to four 13, not 10; five and six 13, not 18; others as long (NOTES, *Rows of packed weights*).
"""


@dataclass(frozen=True, slots=True)
class _Most:
    """Upper bounds of the three extents in one version; None where there is none."""

    rows: int | None = None
    columns: int | None = None
    depth: int | None = None


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate in float32 or float64 with a row axis and a vectorisable column
    axis. Each of the extents may be a symbol; several reduced axes have to go through memory like
    one."""
    kinds = ([it.kind for it in b.iter_vars] for b in blocks_of(sch.func))
    if any(len(some) - some.count("spatial") > 1 for some in kinds):
        return with_joined_axes(sch, _apply, context, units=False)
    return _apply(sch, context)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    """Schedule a kernel whose reduced axes are joined."""
    # Whether the kernel fits is asked of a copy: each version inlines again, since
    # `guarded_versions` replaces symbols in the function as it was written.
    parts = find_product(inlined(sch.copy()).func, context)
    if isinstance(parts, str):
        return parts
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    if parts.dtype not in ("float32", "float64") and sum_of_products(block):
        return f"{parts.product} sums products of integers"  # which the rule `contraction` takes
    rows = block.iter_vars[parts.row].dom.extent
    if parts.copied is None:
        _panel_vectors(sch, parts, context)  # for all versions, which share the layout of weights
        with_versions(
            sch, context, rows, [1], lambda one, most: _schedule(one, context, _Most(rows=most))
        )
        return sch
    if parts.contiguous:
        # A single row of a square result is one number, no vector of columns.
        single = [] if rows == block.iter_vars[parts.col].dom.extent else [1]
        # Read in place, 16 rows took 186 microseconds, with copied panels 268; from 24 rows on both
        # are equal (NOTES, *Few rows*).
        with_versions(
            sch, context, rows, [*single, IN_PLACE_ROWS.of(sch, 16)],
            lambda one, most: few_rows(one, context, most) if most else _many(one, context),
        )  # fmt: skip
        return sch
    depth = constant(block.iter_vars[-1].dom.extent)
    # Where not even a panel of one vector fits a stack, the matrix is for the rules after this one.
    facts = context.target.facts
    if depth is not None and depth * facts.vector_bits // 8 > panel_bytes(facts):
        return f"{block.name}: a panel of one vector of columns fits a thread's stack"

    def version(sch: Schedule, most: int | None) -> Schedule:
        few = (most or 0) > 1 and attempted(dot_tiles, sch, context)
        return few or (most and attempted(rows_apply, sch, context)) or _many(sch, context)

    # A transposed matrix is read in place by few rows, each result a dot product along its rows: a
    # copy would write and read the matrix once more, which few rows do not repay (NOTES,
    # *Transposes in registers*).
    with_versions(sch, context, rows, [1, DOT_ROWS.of(sch, 16)], version)
    return sch


def _many(sch: Schedule, context: Context) -> Schedule:
    """Versions for many rows by a matrix that is copied: for one column, or few that are
    rows of memory, dot products; for few columns, which are read in place, so that threads can
    share the rows; for panels that fit a thread's stack; for deeper ones, in blocks. Where columns
    and depth are constants there is one."""
    parts = product_of(inlined(sch.copy()).func, context)
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    width, depth = block.iter_vars[parts.col].dom.extent, block.iter_vars[-1].dom.extent
    lanes = context.target.lanes(parts.dtype)
    vectors = _vectors(_panel_vectors(sch, parts, context), constant(width), lanes)
    fits = _panel_elements(parts, context.target.facts) // (lanes * vectors)
    if parts.across and parts.contiguous:
        fits = _block_depth(sch)

    def narrow(sch: Schedule, columns: int) -> Schedule | None:
        if columns == 1:
            # The product is a sum down the columns of the transposed matrix.
            return attempted(columns_apply, sch, context) or attempted(rows_apply, sch, context)
        if isinstance(width, Var):
            sch.declare_upper_bound(width, columns)
        narrow_dots = partial(narrow_dot_tiles, most=columns)
        found = attempted(narrow_dots, sch, context) if columns < lanes else None
        # Up to one vector of rows of memory: 512 x 512 by 512 x 3 transposed took 0.3 ms as a
        # panel, 0.025 as dot products (NOTES, *Narrow products*).
        if columns == lanes and not parts.contiguous:
            found = attempted(rows_apply, sch, context)
        elif not parts.contiguous:  # a single panel, whose rows of results threads share
            found = attempted(tiles_of_product, sch, context)
        if found is not None:
            return found
        if not parts.contiguous:
            return by_depth(sch)
        return _schedule(sch, context, _Most(columns=columns))

    known = constant(width)
    if known is not None and known in few_columns(parts.dtype, depth, context):
        found = attempted(partial(narrow_dot_tiles, most=known), sch, context)
        if found is not None:
            return found
    few_panels: list[int] = []
    if known is None and _widest(context.target.facts) > 3:
        few_panels = [_few_panels(sch, parts) * lanes]

    def copied(sch: Schedule, depth: int | None) -> Schedule:
        with_versions(
            sch, context, width, few_panels,
            lambda one, most: _schedule(one, context, _Most(columns=most, depth=depth)),
        )  # fmt: skip
        return sch

    def by_depth(sch: Schedule) -> Schedule:
        known_depth = constant(depth)
        if known_depth is not None:
            deep = parts.contiguous and known_depth > fits
            return _deeper(sch, context, parts) if deep else copied(sch, None)
        with_versions(
            sch, context, depth, [fits],
            lambda one, most: copied(one, most) if most else _deeper(one, context, parts),
        )  # fmt: skip
        return sch

    with_versions(
        sch, context, width, _widths(sch, block, parts, context),
        lambda one, most: narrow(one, most) if most else by_depth(one),
    )  # fmt: skip
    return sch


def _deeper(sch: Schedule, context: Context, parts: Product) -> Schedule:
    """Schedule a product whose panels do not fit a thread's stack."""
    if parts.contiguous:
        return _in_blocks(sch, context)
    # Without versions the depth may as well be small: 128 x 64 by 64 x 128 took 107 us as dot
    # products, in tiles 27.
    first = rows_apply if context.versions else tiles_of_product
    return attempted(first, sch, context) or _schedule(sch, context, _Most())


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile: vectors of columns, rows, steps of the reduction that are unrolled; True if
    the matrix is read where it is, not panel by panel."""

    vectors: int
    rows: int
    steps: int
    in_place: bool


def _widths(sch: Schedule, block: Block, parts: Product, context: Context) -> list[int]:
    """Return the numbers of columns for which `_many` has versions."""
    lanes = context.target.lanes(parts.dtype)
    width, rows = (block.iter_vars[at].dom.extent for at in (parts.col, parts.row))
    known = constant(width) is not None
    if not parts.contiguous:
        # A symbol also has versions for a few vectors of columns, of which threads share the rows.
        few = _narrow_panels(sch)
        return [lanes] if known else [lanes, *(n * lanes for n in range(few - 2, few + 1) if n > 1)]
    # Where the symbol of the columns is another extent, too, putting 1 in its place leaves no
    # product of vectors by rows.
    single = [] if width in (rows, block.iter_vars[-1].dom.extent) else [1]
    narrowest = range(1, _narrow_panels(sch) + 1)
    few = few_columns(parts.dtype, block.iter_vars[-1].dom.extent, context)[-1:]
    return [] if known else [*single, *few, *(n * lanes for n in narrowest)]


def _tile_of(
    sch: Schedule, context: Context, parts: Product, size: tuple[int | None, int | None],
    most: _Most,
) -> _Tile:  # fmt: skip
    """Decide on the tile of a version; `size`: columns and depth where they are constants."""
    (width, depth), facts, lanes = size, context.target.facts, context.target.lanes(parts.dtype)
    single = most.rows == 1
    # Narrow results and small matrices stay in the caches: copying panels would cost, not save. But
    # parts of the rows of a matrix share few sets of the first level with the terms of transposed
    # rows: of 4 x 128 x 128 x 128 205 us, copied 101.
    narrow = most.columns is not None and most.columns <= _narrow_panels(sch) * lanes
    one_panel = width is not None and width <= _panel_vectors(sch, parts, context) * lanes
    apart = not parts.across or parts.copied is None or one_panel
    small = apart and _is_small(parts, depth, width, facts)
    in_place = not single and (narrow or small)
    if not single and parts.copied is not None:
        in_place = not COPY_OPERAND.of(sch, not in_place)
    packed = parts.copied is None and parts.decode is None
    at_most, columns = _panel_vectors(sch, parts, context), width or most.columns
    if packed and not single:
        # A part of a panel of weights: 64 x 576 by 1536 took 1260 us by two vectors of four, by
        # all four 1420.
        at_most = next(n for n in range(_widest(facts), 0, -1) if at_most % n == 0)
    symbolic = width is None
    vectors = _vectors(at_most, columns, lanes, symbolic=symbolic)
    if not single and not in_place and (parts.decode or parts.copied):
        room = _panel_elements(parts, facts)
        stored = most.depth or depth
        vectors = _vectors(at_most, columns, lanes, stored, room, symbolic=symbolic)
    masked = in_place and width is None
    steps = 1 if single or parts.decode else _unrolled_steps(sch, masked)
    sums = PACKED_SUMS if packed else facts.vector_registers
    rows = 1 if single else _rows_of_tile(sch, facts, vectors, sums, steps if masked else 0)
    return _Tile(vectors, rows, steps, in_place)


def _schedule(sch: Schedule, context: Context, most: _Most) -> Schedule:
    sch = inlined(sch)
    parts = product_of(sch.func, context)
    facts, lanes = context.target.facts, context.target.lanes(parts.dtype)
    product = sch.get_block(parts.product)
    block = found_block(sch, product)
    width = constant(block.iter_vars[parts.col].dom.extent)
    extent = block.iter_vars[-1].dom.extent
    depth = constant(extent)
    single, room = most.rows == 1, most.depth or depth
    plan = _tile_of(sch, context, parts, (width, depth), most)
    if not single:
        columns = width or most.columns
        parts = with_rows_computed_once(sch, parts, columns, plan.vectors * lanes, context)
    vectors, rows, steps = plan.vectors, plan.rows, plan.steps
    store = separate_store(sch, parts.product)
    copies = [] if plan.in_place else _copies(sch, parts, product, room, vectors * lanes, facts)
    decode = sch.get_block(parts.decode) if parts.decode else None
    # Stored weights are packed as wide as any version's panel, so that all versions share one copy.
    widest = _vectors(_panel_vectors(sch, parts, context), width, lanes) * lanes
    blocks = [product, *([decode] if decode else [])]
    packed = _pack(sch, context, blocks, parts, widest, vectors * lanes)
    nest = axis_loops(sch, product)
    row, col, k = nest[parts.row], nest[parts.col], nest[-1]
    outer = nest[: parts.row]
    tile, row = sch.split(row, factors=[None, rows])
    panel, col = sch.split(col, factors=[None, vectors * lanes])
    # Panels go outside of tiles of rows where they are copied or decoded: once for all rows. In
    # place rows go outside, so that a thread writes whole rows of the result.
    first, second = (tile, panel) if plan.in_place else (panel, tile)
    sch.reorder(*outer, first, second, k, row, col)
    # A symbolic depth would leave a remainder loop in each tile.
    if steps > 1 and (depth or 1) % steps == 0:
        k, step = sch.split(k, factors=[None, steps])
        sch.unroll(step)
    sch.reverse_compute_at(store, second, preserve_unit_loops=True)
    start = k
    for copy in copies:
        _place_copy(sch, copy, panel, parts, lanes)
    if decode is not None:
        # Unrolled over a group, shifts of packed weights are constants, its scale loaded once.
        if single and (constant(extent_of(sch, k)) or 1) % GROUP == 0:
            start, k = sch.split(k, factors=[None, GROUP])
            sch.unroll(k)
        inside = single or not _fits_panel(sch, decode, parts, vectors * lanes, facts)
        _place_decode(sch, decode, parts, panel, k, inside, lanes)
    init = sch.decompose_reduction(product, start)
    # Hardware prefetchers stop at the end of a page; weights of a single row stream past many.
    # With wider panels and 16 groups, 3072 x 576 weights of 4 bits took 54 microseconds from
    # memory, not 151 (NOTES, *One stream instead of four*).
    if single and packed and (distance := PREFETCH_DISTANCE.of(sch, 16)):
        sch.annotate(start, "prefetch", (distance, tuple(packed)))
    for one in (init, product, store):
        _vectors_of(sch, one, lanes, rows > 1)
    if not single:
        _fetch_added_rows(sch, store, sch.get_loops(store)[len(outer) + 2])
    sch.parallel(sch.fuse(*outer, first) if outer else first)
    # Guards on rows of the last tile would keep its sums out of registers: it took as long as six
    # whole ones (NOTES, *The last tile*).
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    schedule_rows(sch, parts, context)
    bounds = {} if most.depth is None else {extent: most.depth}
    bound_private_buffers(sch, bounds)
    return sch


def _fetch_added_rows(sch: Schedule, store: BlockRV, loop: LoopRV) -> None:
    """Have rows that a tile's sums are added to fetched before its products, where they lie at
    places that are read from memory, as in batches of networks, so that no prefetcher of the
    hardware knows them: 64 lattices of 128 features took 0.96 of the time."""
    gathered = tuple(
        r.buffer.name for r in found_block(sch, store).reads
        if any(isinstance(n, BufferLoad) for n in walk(r))
    )  # fmt: skip
    if gathered:
        sch.annotate(loop, PREFETCH_EARLY, gathered)


def _in_blocks(sch: Schedule, context: Context) -> Schedule:
    """Schedule a deep product: blocks of results, each over one block of the depth after the other,
    whose rows are copied as well as its panels, so that both stay in caches. Between these, sums
    are in memory of the thread."""
    sch = inlined(sch)
    parts = product_of(sch.func, context)
    lanes = context.target.lanes(parts.dtype)
    product = sch.get_block(parts.product)
    width = constant(found_block(sch, product).iter_vars[parts.col].dom.extent)
    vectors = _vectors(min(_panel_vectors(sch, parts, context), 2), width, lanes)
    parts = with_rows_computed_once(sch, parts, width, vectors * lanes, context)
    facts = context.target.facts
    rows = _rows_of_tile(sch, facts, vectors, facts.vector_registers)
    block_depth = _block_depth(sch)
    store = separate_store(sch, parts.product)
    copies = _copies(sch, parts, product, block_depth, vectors * lanes, context.target.facts)
    row_copy = _copy_of(sch, product, parts.rows, parts.row)
    nest = axis_loops(sch, product)
    outer = nest[: parts.row]
    # With 16 tiles the versions of a batched product of symbolic sizes do not fit a thread's stack.
    # Two products of 512 x 4096 x 512 take 35.3 ms with 8, 33.1 with 16.
    tiles = BLOCK_TILES.of(sch, 8 if outer else 16)
    tall, tile, row = sch.split(nest[parts.row], factors=[None, tiles, rows])
    # A block's rows and sums take half of the second-level cache.
    room = _panel_elements(parts, context.target.facts) // (tiles * rows) - block_depth
    columns = min(BLOCK_COLUMNS.at_most(sch, room), width or room)
    panels = max(-(-columns // (vectors * lanes)), 1)
    wide, panel, col = sch.split(nest[parts.col], factors=[None, panels, vectors * lanes])
    deep, k = sch.split(nest[-1], factors=[None, block_depth])
    sch.reorder(*outer, tall, wide, deep, panel, tile, k, row, col)
    sch.reverse_compute_at(store, wide, preserve_unit_loops=True)
    for copy in copies:
        _place_copy(sch, copy, panel, parts, lanes)
    if row_copy is not None:
        sch.compute_at(row_copy, deep, preserve_unit_loops=True)
        split_vector(sch, sch.get_loops(row_copy)[-1], lanes, unroll=True)
    init = sch.decompose_reduction(product, deep)
    _vectors_of(sch, product, lanes, rows > 1)
    for one in (init, store):
        split_vector(sch, sch.get_loops(one)[-1], lanes, unroll=True)
    sch.parallel(sch.fuse(*outer, tall, wide))
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    schedule_rows(sch, parts, context)
    return sch


def _panel_vectors(sch: Schedule, parts: Product, context: Context) -> int:
    """Return the most vectors of columns of a panel: four where weights are packed so, and else no
    more than registers serve."""
    widest = 4 if parts.copied is None else _widest(context.target.facts)
    return PANEL_VECTORS.of(sch, widest)


def _widest(facts: Facts) -> int:
    """Return the most vectors of columns, up to four, of a tile that leaves a register beside the
    sums, which fill three quarters of them, and the vectors of a step. With 16 registers 200 x 300
    by 257 took 415 us in tiles of 3 x 4, in 4 x 3 345."""
    return min(4, facts.vector_registers // 4 - 1)


def _narrow_panels(sch: Schedule) -> int:
    """Return the vectors of columns up to which a symbolic number of them has a version each: 30
    columns took 1.8 times as long in a panel of four vectors as in one of two, 33 1.2 times as in
    one of three."""
    return NARROW_PANELS.of(sch, 4)


def _few_panels(sch: Schedule, parts: Product) -> int:
    """Return the vectors of columns up to which a symbolic number of them has panels as narrow as
    divide it: by 65 columns threads would have one panel of four vectors each, the second of which
    is three quarters empty (NOTES, *Last panels*). 11, which no wider panel divides; 10, panels of
    two, where other products are there to share out: four of 128 x 128 x 128 took 100 us, not 121.
    Each panel reads transposed rows anew, whose terms are lines apart: up to 5, as the four took
    98 us in panels of four vectors, 157 of one. Where registers serve panels of three vectors at
    most there is no such version: 512 x 512 by 65 took 1.5 times as long with it (AVX2)."""
    return FEW_PANELS.of(sch, 5 if parts.across else 10 if parts.row else 11)


def _block_depth(sch: Schedule) -> int:
    """Return the depth of a block of a deep product. A copied panel of two vectors is 8 or 16 KB,
    which stay in a first-level cache beside the rows of a tile. Of a transposed matrix of rows each
    step of the depth reads another page (NOTES, *Deep products*)."""
    return BLOCK_DEPTH.of(sch, 128)


def _unrolled_steps(sch: Schedule, masked: bool) -> int:
    """Return the steps of the reduction unrolled in a register tile: with four 81 to 87 % of the
    peak instead of 78 to 82; two and eight were a little slower (NOTES, *1024^3: what did not
    help*). Two where the matrix is read in place by vectors that may be masked: LLVM loads the
    vectors of all steps first, and with four steps some of 24 sums had no register left (512 x 512
    by 17, 30, 50 and 64 columns took 1.3 to 1.6 times as long as with two)."""
    return UNROLL_REDUCTION.of(sch, 2 if masked else 4)


def _rows_of_tile(sch: Schedule, facts: Facts, vectors: int, sums: int, beside: int = 0) -> int:
    """Return the rows of a register tile with `vectors` vectors of columns, in at most so many
    vectors of `sums` and three quarters of the registers; the operands of one step have the rest.
    With one vector there are no more rows than with two, as each multiply-add loads an element of a
    row. `beside`: the steps whose vectors are loaded at once; with 16 registers, 1000 x 64 by 23 to
    31 columns took 1.0 to 1.4 times as long where these had none left."""
    registers = facts.vector_registers
    rows = min(sums, 3 * registers // 4) // max(vectors, 2)
    return REGISTER_ROWS.at_most(sch, min(rows, registers // vectors - beside))


def _place_copy(sch: Schedule, copy: BlockRV, panel: LoopRV, parts: Product, lanes: int) -> None:
    """Copy each panel before the rows are swept, with the columns as lanes of vectors."""
    sch.compute_at(copy, panel, preserve_unit_loops=True)
    if parts.contiguous:
        split_vector(sch, sch.get_loops(copy)[-1], lanes, unroll=True)
        return
    # The terms, neighbours in memory, around the lanes, so that squares are turned in registers.
    nest = sch.get_loops(copy)
    vector, lane = sch.split(nest[parts.columns], factors=[None, lanes])
    sch.reorder(vector, nest[-1], lane)
    sch.vectorize(lane)


def _is_small(parts: Product, depth: int | None, width: int | None, facts: Facts) -> bool:
    """True if the matrix is known to stay in the caches while whole rows of results are written."""
    as_it_is = parts.decode is None and (parts.copied is None or parts.contiguous)
    if depth is None or width is None:
        return False
    return as_it_is and depth * width * parts.bytes <= in_place_bytes(facts)


def panel_bytes(facts: Facts) -> int:
    """Return the largest panel that is decoded or copied onto a thread's stack: half of a
    second-level cache, so that it stays there while all tiles of rows sweep over it."""
    return facts.cache(2) // 2


def _panel_elements(parts: Product, facts: Facts) -> int:
    """Return the number of elements of the largest panel."""
    return panel_bytes(facts) // parts.bytes


def _vectors(
    at_most: int, width: int | None, lanes: int, depth: int | None = None, room: int = 0, *,
    symbolic: bool = False,
) -> int:  # fmt: skip
    """Return the vectors per panel, up to `at_most`: those that leave the fewest lanes of the last
    panel empty and, if `depth` rows of a panel are stored, fit into `room` elements. If the width
    is the upper bound of a `symbolic` one, panels divide it; without one, only the last panel is
    masked, however many vectors it has."""
    single = -(-(width or 0) // lanes)

    def cost(vectors: int) -> tuple[int, int]:
        # Each multiply-add of panels of one vector loads an element of a row: 200 x 300 by 500
        # columns of float32, 63 vectors, took 950 us one by one, 650 by three.
        return -(-single // vectors) * vectors * (5 if vectors == 1 else 4), -vectors

    counts = [n for n in range(1, at_most + 1) if not symbolic or single % n == 0]
    cheapest = sorted(counts, key=cost)
    small = (n for n in (*cheapest, 1) if (depth or 0) * n * lanes <= room)
    return next(small, cheapest[0])


def _copies(
    sch: Schedule, parts: Product, product: BlockRV, depth: int | None, width: int, facts: Facts
) -> list[BlockRV]:
    """The blocks that copy panels: their rows are pages apart, which few sets of the caches and few
    entries of the translation buffer serve. None where a panel has no place."""
    # Without a bound on the depth the panel's size is unknown, and a thread's stack takes
    # constants.
    room = _panel_elements(parts, facts) // (1 + len(parts.further))
    if parts.copied is None or depth is None or depth * width > room:
        return []
    made = (_copy_of(sch, product, b, parts.col) for b in (parts.copied, *parts.further))
    copies = [copy for copy in made if copy is not None]
    at = parts.columns

    def last(*i: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*i[:at], *i[at + 1 :], i[at])

    for copy in copies if not parts.contiguous else ():
        sch.transform_layout(copy, found_block(sch, copy).writes[0].buffer, last)
    return copies


def _copy_of(sch: Schedule, product: BlockRV, operand: Buffer, axis: int) -> BlockRV | None:
    """The block that copies an operand, whose loops are in the order of its dimensions; None where
    it is copied already. Of a matrix by itself transposed, where the operands are one buffer, only
    what is read along the axis of this number is copied: as a panel of columns, all rows would not
    fit."""
    block = found_block(sch, product)
    index = next((i for i, r in enumerate(block.reads) if r.buffer is operand), None)
    if index is None:
        return None
    places = places_of(block, operand)
    if len(places) == 1:
        return sch.cache_read(product, index, "local", [product])
    axes = [it.var for it in block.iter_vars]
    place = next(i for i, at in enumerate(places) if axes[axis] in symbols_in(at))
    order = [axes.index(i) for i in places[place] if isinstance(i, Var) and i in axes]

    def indices(*axes: PrimExpr) -> tuple[PrimExpr, ...]:
        return tuple(axes[i] for i in order)

    copy = sch.reindex_cache_read(product, index, "local", indices, place)
    nest = dict(zip(sorted(order), sch.get_loops(copy), strict=True))
    sch.reorder(*(nest[i] for i in order))
    return copy


def _fits_panel(sch: Schedule, decode: BlockRV, parts: Product, width: int, facts: Facts) -> bool:
    """True if a decoded panel of `width` columns is known to fit. A single row uses each weight
    once, and a panel would be a detour through the caches."""
    depth = constant(found_block(sch, decode).iter_vars[parts.decoded[1]].dom.extent)
    return depth is not None and depth * width <= _panel_elements(parts, facts)


def _place_decode(
    sch: Schedule, decode: BlockRV, parts: Product, panel: LoopRV, k: LoopRV, inside: bool,
    lanes: int,
) -> None:  # fmt: skip
    """Decode `inside`, under the reduce loop, or a whole panel before the rows are swept. Columns
    of one group are unrolled, so that shifts are constants and scales are loaded once per group."""
    col_axis, depth_axis = parts.decoded
    axes = found_block(sch, decode).iter_vars
    sch.compute_at(decode, k if inside else panel, preserve_unit_loops=True)
    sch.set_scope(decode, 0, "local")
    nest = sch.get_loops(decode)[-len(axes) :]
    col, deep = nest[col_axis], nest[depth_axis]
    depth = constant(axes[depth_axis].dom.extent)
    if inside or depth is None or depth % GROUP:
        sch.reorder(deep, col)
        split_vector(sch, col, lanes, unroll=True)
        return
    deep, inner = sch.split(deep, factors=[None, GROUP])
    vector, lane = sch.split(col, factors=[None, lanes])
    sch.reorder(deep, vector, inner, lane)
    sch.vectorize(lane)
    sch.unroll(vector)
    sch.unroll(inner)


def _vectors_of(sch: Schedule, block: BlockRV, lanes: int, several_rows: bool) -> None:
    *_, row, col = sch.get_loops(block)
    split_vector(sch, col, lanes, unroll=True)
    if several_rows:
        sch.unroll(row)


def _pack(
    sch: Schedule, context: Context, blocks: list[BlockRV], parts: Product, width: int, panel: int
) -> list[str]:
    """Weights with the column as one of their indices become panels: (column // width, …, column in
    the panel), which are read front to back; so does what is decoded, in panels of `panel` columns,
    unless the column is its last index. Returns the names of the weights."""
    weights = {sch.func.params[i] for i in context.weights}
    packed: list[str] = []
    for rv in blocks:
        block = found_block(sch, rv)
        is_product = block.name == parts.product
        col = block.iter_vars[parts.col if is_product else parts.decoded[0]].var
        for region in block.reads:
            buffer = region.buffer
            # What decoding makes has the layout of the weights that it is made from, panel by
            # panel.
            produced = is_product and not any(p is buffer for p in sch.func.params)
            firsts = [r.min for r in region.region]
            if buffer.ndim < 2 or col not in firsts or not (buffer in weights or produced):
                continue
            at = firsts.index(col)
            if not produced:
                packed.append(buffer.name)
            elif at == buffer.ndim - 1:
                continue
            sch.transform_layout(rv, buffer, _panels(at, panel if produced else width))
    return packed


def _panels(at: int, width: int) -> Callable[..., tuple[PrimExpr, ...]]:
    """The index map to panels of `width` columns, which are dimension `at`."""

    def panels(*index: PrimExpr) -> tuple[PrimExpr, ...]:
        return index[at] // width, *index[:at], *index[at + 1 :], index[at] % width

    return panels
