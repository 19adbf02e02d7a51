"""Matrix products in float: register tiles of rows times vectors of columns.

The kernel's main block is one multiply-accumulate reduction over a matrix of rows (activations)
and a matrix whose columns become vector lanes. Weights are stored in panels as wide as a register
tile, so a panel is read front to back; decoding quantised weights happens once per panel, before
the rows are swept. A version for a single row decodes in the inner loop instead. Results accumulate
in registers and elementwise consumers are applied before they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    attempted,
    axis_loops,
    blocks_of,
    bound_private_buffers,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    separate_store,
    split_vector,
    sum_of_products,
    where_allowed,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.contraction import tiles_of_product
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

GROUP = 32
"""Weights that share a scale in the common block formats (Q4_0, Q8_0 and their kin)."""
SPLIT_K = 16
"""Parts of the reduction that threads share for a single row (split-K), a constant so that sums do
not depend on the number of threads. By columns instead, 1024 x 1024 took 135 microseconds, not 64
(NOTES, *Few rows*)."""
IN_PLACE_ROWS = 16
"""Most rows for which the matrix is read in place: 16 took 186 microseconds, with copied panels
268; from 24 rows on both are equal (NOTES, *Few rows*)."""
DOT_ROWS = 4
"""Most rows for which a transposed matrix is read in place, each result a dot product along its
rows: a copy would write and read the matrix once more, which few rows do not repay."""
UNROLL_K_IN_PLACE = 8
"""Steps of the reduction unrolled where the matrix is read in place: eight of its rows are read
side by side for one load and store of the sums (NOTES, *Few rows*)."""
PREFETCH_DISTANCE = 16
"""Iterations of the loop over groups by which a single row's weights are prefetched: with wider
panels and 16 groups, 3072 x 576 weights of 4 bits took 54 microseconds from memory, not 151 (NOTES,
*One stream*)."""
UNROLL_K = 4
"""Steps of the reduction unrolled in a register tile: 81 to 87 % of the peak instead of 78 to 82;
two and eight were a little slower (NOTES, *1024^3*)."""
UNROLL_K_MASKED = 2
"""The same where the matrix is read in place by vectors that may be masked: LLVM loads the vectors
of all steps first, and with four steps some of 24 sums had no register left (512 x 512 by 17, 30,
50 and 64 columns took 1.3 to 1.6 times as long as with two)."""
BLOCK_DEPTH = 256
BLOCK_COLUMNS = 64
BLOCK_TILES = 8
"""Depth, columns and tiles of rows of a block of a deep product. A copied panel of two vectors is
16 or 32 KB, which stay in a first-level cache. Of a transposed matrix of rows each step of the
depth reads another page, and a second-level TLB has room for hundreds (NOTES, *Deep products*)."""
NARROW_PANELS = (1, 2, 3, 4)
"""Widths of panels, in vectors, for which a symbolic number of columns has versions: 30 columns
took 1.8 times as long in a panel of four vectors as in one of two, 33 1.2 times as in one of
three."""
FEW_PANELS = 11
"""Vectors of columns up to which a symbolic number of them has copied panels of one vector, more
than there are threads, instead of four: by 65 columns threads would have one panel each, the second
of which is three quarters empty (NOTES, *Last panels*). An odd number, which no wider panel
divides."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The reduction block; its row and column axis numbers; the decoding producer, and which of its
    axes make columns and terms (0 without one); the matrix that is to be copied panel by panel, and
    whether its columns are the vectors' lanes there; True if the matrix of rows is transposed, so
    that the terms of a row are not neighbours."""

    product: str
    row: int
    col: int
    decode: str | None
    decoded: tuple[int, int]
    copied: Buffer | None
    contiguous: bool
    across: bool


@dataclass(frozen=True, slots=True)
class _Most:
    """Upper bounds of the three extents in one version; None where there is none."""

    rows: int | None = None
    columns: int | None = None
    depth: int | None = None


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one float32 multiply-accumulate with a row axis and a vectorisable column axis. Each of
    the extents may be a symbol."""
    # Whether the kernel fits is asked of a copy: each version inlines again, since
    # `guarded_versions` replaces symbols in the function as it was written.
    parts = _find(_inlined(sch.copy()).func, context)
    if isinstance(parts, str):
        return parts
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    rows = block.iter_vars[parts.row].dom.extent
    if parts.copied is None:
        with_versions(
            sch, context, rows, [1], lambda one, most: _schedule(one, context, _Most(rows=most))
        )
        return sch
    if parts.contiguous:
        # A single row of a square result is one number, no vector of columns.
        single = [] if rows == block.iter_vars[parts.col].dom.extent else [1]
        with_versions(
            sch, context, rows, [*single, IN_PLACE_ROWS],
            lambda one, most: _few(one, context, most) if most else _many(one, context),
        )  # fmt: skip
        return sch
    depth = constant(block.iter_vars[-1].dom.extent)
    # Where not even a panel of one vector fits a stack, the matrix is for the rules after this one.
    facts = context.target.facts
    if depth is not None and depth * facts.vector_bits // 8 > panel_bytes(facts):
        return f"{block.name}: a panel of one vector of columns fits a thread's stack"

    def version(sch: Schedule, most: int | None) -> Schedule:
        return (most and attempted(rows_apply, sch, context)) or _many(sch, context)

    with_versions(sch, context, rows, [DOT_ROWS], version)
    return sch


def _few(sch: Schedule, context: Context, rows: int) -> Schedule:
    """Schedule at most `rows` rows by a matrix that is read in place: versions for a single row by
    a small matrix and by others, whose depth threads share; else one."""
    inlined = _inlined(sch.copy())
    parts = _product_of(inlined.func, context)
    axes = found_block(inlined, inlined.get_block(parts.product)).iter_vars
    width, depth = axes[parts.col].dom.extent, axes[-1].dom.extent
    lanes = context.target.lanes("float32")
    if rows > 1 or parts.row:
        # Up to one vector of columns is no panel of 32 vectors, all but one of them masked: sums of
        # 16 rows by 4096 x 16 with symbols took 75 us so, in a panel of one vector 30.
        with_versions(
            sch, context, width, [lanes],
            lambda one, most: _sweep(_inlined(one), parts, most or constant(width), lanes, rows),
        )  # fmt: skip
        return sch
    # In a small matrix columns do not conflict, so that splitting the reduction gains nothing; nor
    # where parts have less than a step each.
    steps = SPLIT_K * UNROLL_K_IN_PLACE
    small = in_place_bytes(context.target.facts) // 4
    size = Analyzer().simplify(depth * expr.Min(width, const(small // steps)))

    def version(sch: Schedule, most: int | None) -> Schedule:
        sch = _inlined(sch)
        if most is None:
            return _share_depth(sch, parts, lanes)
        return _sweep(sch, parts, constant(width), lanes, rows)

    with_versions(sch, context, size, [small], version)
    return sch


def _many(sch: Schedule, context: Context) -> Schedule:
    """Versions for many rows by a matrix that is copied: for one column, or few that are
    rows of memory, dot products; for few columns, which are read in place, so that threads can
    share the rows; for panels that fit a thread's stack; for deeper ones, in blocks. Where columns
    and depth are constants there is one."""
    parts = _product_of(_inlined(sch.copy()).func, context)
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    width, depth = block.iter_vars[parts.col].dom.extent, block.iter_vars[-1].dom.extent
    lanes = context.target.lanes("float32")
    fits = panel_bytes(context.target.facts) // (4 * lanes * _vectors(constant(width), lanes))
    if parts.across and parts.contiguous:
        fits = BLOCK_DEPTH

    def deeper(sch: Schedule) -> Schedule:
        if parts.contiguous:
            return _in_blocks(sch, context)
        return attempted(rows_apply, sch, context) or _schedule(sch, context, _Most())

    def narrow(sch: Schedule, columns: int) -> Schedule:
        found: Schedule | None = None
        if isinstance(width, Var) and columns > 1:
            sch.declare_upper_bound(width, columns)
        # Up to one vector of rows of memory: 512 x 512 by 512 x 3 transposed took 0.3 ms as a
        # panel, 0.025 as dot products (NOTES, *Narrow products*).
        if columns == 1 or (columns == lanes and not parts.contiguous):
            found = attempted(rows_apply, sch, context)
        elif not parts.contiguous:  # a single panel, whose rows of results threads share
            found = attempted(tiles_of_product, sch, context)
        if found is not None:
            return found
        if not parts.contiguous:
            return by_depth(sch)
        return _schedule(sch, context, _Most(columns=columns))

    known = constant(width) is not None

    def copied(sch: Schedule, depth: int | None) -> Schedule:
        with_versions(
            sch, context, width, [] if known else [FEW_PANELS * lanes],
            lambda one, most: _schedule(one, context, _Most(columns=most, depth=depth)),
        )  # fmt: skip
        return sch

    def by_depth(sch: Schedule) -> Schedule:
        known_depth = constant(depth)
        if known_depth is not None:
            return deeper(sch) if parts.contiguous and known_depth > fits else copied(sch, None)
        with_versions(
            sch, context, depth, [fits],
            lambda one, most: copied(one, most) if most else deeper(one),
        )  # fmt: skip
        return sch

    # A symbol also has a version for a single panel of columns, of which threads share the rows.
    bounds = [lanes] if known else [lanes, NARROW_PANELS[-1] * lanes]
    if parts.contiguous:
        rows = block.iter_vars[parts.row].dom.extent
        # Where the symbol of the columns is another extent, too, putting 1 in its place leaves no
        # product of vectors by rows.
        single = [] if width in (rows, depth) else [1]
        bounds = [] if known else [*single, *(n * lanes for n in NARROW_PANELS)]
    with_versions(
        sch, context, width, bounds,
        lambda one, most: narrow(one, most) if most else by_depth(one),
    )  # fmt: skip
    return sch


def _product_of(func: PrimFunc, context: Context) -> _Parts:
    """Return the parts of a kernel known to be a product. Raises ScheduleError if a version is
    none."""
    parts = _find(func, context)
    if isinstance(parts, str):
        raise ScheduleError("matmul", "kernel", f"the version is still a matrix product: {parts}")
    return parts


def _inlined(sch: Schedule) -> Schedule:
    """Inline transposes and other moves of operands, and what makes an operand into one block,
    which is kept; return the schedule."""
    for block in blocks_of(sch.func):
        if is_spatial(block) and _only_moves(block):
            with suppress(ScheduleError):
                sch.compute_inline(sch.get_block(block.name))
    blocks = blocks_of(sch.func)
    operands = {r.buffer for b in blocks if not is_spatial(b) for r in b.reads}
    inline_producers(sch, keep=[b.name for b in blocks if b.writes[0].buffer in operands])
    return sch


def _only_moves(block: Block) -> bool:
    return isinstance(block.body, loops.BufferStore) and isinstance(block.body.value, BufferLoad)


def _find(func: PrimFunc, context: Context) -> _Parts | str:
    """The parts of a kernel, or why it is not a product that the rule is for."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions, not one"
    product = reductions[0]
    loads = sum_of_products(product)
    if loads is None or product.writes[0].buffer.dtype != "float32":
        return f"{product.name} is no sum of products of two loads in float32"
    spatial = [i for i, it in enumerate(product.iter_vars) if it.kind == "spatial"]
    if len(product.iter_vars) - len(spatial) != 1 or len(spatial) < 2:
        return f"{product.name} has not one reduce axis and two or more spatial axes"
    # The last two axes of the result; axes before them are a batch, whose loops stay outside.
    row, col = spatial[-2], spatial[-1]
    left, right = loads
    # `acc += a * b` may have either operand first: `right` is the one with the columns.
    if product.iter_vars[col].var not in symbols_in(right.indices):
        left, right = right, left
    row_var, col_var = product.iter_vars[row].var, product.iter_vars[col].var
    # An operand indexed by both axes would be read once per result: nothing for a register tile to
    # share.
    if row_var in symbols_in(right.indices) or col_var in symbols_in(left.indices):
        return f"{product.name}: an operand is indexed by both {row_var} and {col_var}"
    decode = next((b for b in blocks if b.writes[0].buffer is right.buffer), None)
    decoded = _axes_of(decode, right, (col_var, product.iter_vars[-1].var)) if decode else (0, 0)
    if decoded is None:
        return f"{product.name}: {right.buffer.name} is not made element by element along its axes"
    contiguous = right.indices[-1] == col_var
    transposed = right.indices[-2:] == (col_var, product.iter_vars[-1].var)
    copied = None if decode or context.is_weight(func, right.buffer) else right.buffer
    # Any other order of axes is for the rule `contraction`, which packs it.
    if copied is not None and not (contiguous or transposed):
        return f"{product.name}: {col_var} and the terms are not last in {right.buffer.name}"
    made_by = decode.name if decode else None
    across = left.indices[-1] != product.iter_vars[-1].var
    return _Parts(product.name, row, col, made_by, decoded, copied, contiguous, across)


def _axes_of(decode: Block, load: BufferLoad, read: tuple[Var, Var]) -> tuple[int, int] | None:
    """Return which of the block's axes make what a load reads along two variables; None if one of
    them does not go through consecutive elements of a dimension, or some axis is reduced."""
    made = [r.min for r in decode.writes[0].region]
    axes: list[PrimExpr] = [it.var for it in decode.iter_vars]
    if not is_spatial(decode) or not all(v in load.indices for v in read):
        return None
    found = [made[load.indices.index(v)] for v in read]
    if not all(e in axes for e in found):
        return None
    col, k = (axes.index(e) for e in found)
    return col, k


def _schedule(sch: Schedule, context: Context, most: _Most) -> Schedule:
    sch = _inlined(sch)
    parts = _product_of(sch.func, context)
    facts, lanes = context.target.facts, context.target.lanes("float32")
    product = sch.get_block(parts.product)
    block = found_block(sch, product)
    width = constant(block.iter_vars[parts.col].dom.extent)
    extent = block.iter_vars[-1].dom.extent
    depth = constant(extent)
    single = most.rows == 1
    # Narrow results and small matrices stay in the caches: copying panels would cost, not save.
    narrow = most.columns is not None and most.columns <= NARROW_PANELS[-1] * lanes
    in_place = not single and (narrow or _is_small(parts, depth, width, facts))
    keeps_panel = not single and not in_place and bool(parts.decode or parts.copied)
    room = most.depth or depth
    vectors = _vectors(width or most.columns, lanes)
    if keeps_panel:
        vectors = _vectors(width or most.columns, lanes, room, panel_bytes(facts))
    # A symbolic depth would leave a remainder loop in each tile.
    masked = in_place and width is None
    steps = UNROLL_K_MASKED if masked else UNROLL_K
    rows = 1 if single else _rows_of_tile(context, vectors)
    if masked:  # vectors of all unrolled steps are loaded at once, beside the sums
        rows = min(rows, facts.vector_registers // vectors - steps)
    store = separate_store(sch, parts.product)
    copy = None if in_place else _copy(sch, parts, product, room, vectors * lanes, facts)
    decode = sch.get_block(parts.decode) if parts.decode else None
    # Stored weights are packed as wide as any version's panel, so that all versions share one copy.
    widest = _vectors(width, lanes) * lanes
    blocks = [product, *([decode] if decode else [])]
    packed = _pack(sch, context, blocks, parts, widest, vectors * lanes)
    nest = axis_loops(sch, product)
    row, col, k = nest[parts.row], nest[parts.col], nest[-1]
    outer = nest[: parts.row]
    tile, row = sch.split(row, factors=[None, rows])
    panel, col = sch.split(col, factors=[None, vectors * lanes])
    # Panels go outside of tiles of rows where they are copied or decoded: once for all rows. In
    # place rows go outside, so that a thread writes whole rows of the result.
    first, second = (tile, panel) if in_place else (panel, tile)
    sch.reorder(*outer, first, second, k, row, col)
    if not single and decode is None and (depth or 1) % steps == 0:
        k, step = sch.split(k, factors=[None, steps])
        sch.unroll(step)
    sch.reverse_compute_at(store, second, preserve_unit_loops=True)
    start = k
    if copy is not None:
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
    if single and packed:
        sch.annotate(start, "prefetch", (PREFETCH_DISTANCE, tuple(packed)))
    for one in (init, product, store):
        _vectors_of(sch, one, lanes, rows > 1)
    sch.parallel(sch.fuse(*outer, first) if outer else first)
    # Guards on rows of the last tile would keep its sums out of registers: it took as long as six
    # whole ones (NOTES, *The last tile*).
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    bounds = {} if most.depth is None else {extent: most.depth}
    bound_private_buffers(sch, bounds)
    return sch


def _in_blocks(sch: Schedule, context: Context) -> Schedule:
    """Schedule a deep product: blocks of results, each over one block of the depth after the other,
    so that the panel that tiles of rows share stays in a cache. Between these, sums are in memory
    of the thread."""
    sch = _inlined(sch)
    parts = _product_of(sch.func, context)
    lanes = context.target.lanes("float32")
    product = sch.get_block(parts.product)
    width = constant(found_block(sch, product).iter_vars[parts.col].dom.extent)
    vectors = min(_vectors(width, lanes), 2)
    rows = _rows_of_tile(context, vectors)
    store = separate_store(sch, parts.product)
    copy = _copy(sch, parts, product, BLOCK_DEPTH, vectors * lanes, context.target.facts)
    assert copy is not None
    nest = axis_loops(sch, product)
    outer = nest[: parts.row]
    tall, tile, row = sch.split(nest[parts.row], factors=[None, BLOCK_TILES, rows])
    panels = max(BLOCK_COLUMNS // (vectors * lanes), 1)
    wide, panel, col = sch.split(nest[parts.col], factors=[None, panels, vectors * lanes])
    deep, k = sch.split(nest[-1], factors=[None, BLOCK_DEPTH])
    sch.reorder(*outer, tall, wide, deep, panel, tile, k, row, col)
    sch.reverse_compute_at(store, wide, preserve_unit_loops=True)
    _place_copy(sch, copy, panel, parts, lanes)
    init = sch.decompose_reduction(product, deep)
    _vectors_of(sch, product, lanes, rows > 1)
    for one in (init, store):
        split_vector(sch, sch.get_loops(one)[-1], lanes, unroll=True)
    sch.parallel(sch.fuse(*outer, tall, wide))
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    return sch


def _rows_of_tile(context: Context, vectors: int) -> int:
    """Return the rows of a register tile with `vectors` vectors of columns: 24 accumulators and the
    operands of one step fill 32 vector registers, 12 fill 16. With one vector there are no more
    rows than with two, as each multiply-add loads an element of a row."""
    return (24 if context.target.facts.vector_registers == 32 else 12) // max(vectors, 2)


def _place_copy(sch: Schedule, copy: BlockRV, panel: LoopRV, parts: _Parts, lanes: int) -> None:
    """Copy each panel before the rows are swept, with the columns as lanes of vectors."""
    sch.compute_at(copy, panel, preserve_unit_loops=True)
    if not parts.contiguous:
        *_, col, k = sch.get_loops(copy)
        sch.reorder(k, col)
    split_vector(sch, sch.get_loops(copy)[-1], lanes, unroll=True)


def _is_small(parts: _Parts, depth: int | None, width: int | None, facts: Facts) -> bool:
    """True if the matrix is known to stay in the caches while whole rows of results are written."""
    as_it_is = parts.decode is None and (parts.copied is None or parts.contiguous)
    if depth is None or width is None:
        return False
    return as_it_is and depth * width * 4 <= in_place_bytes(facts)


def panel_bytes(facts: Facts) -> int:
    """Return the largest panel that is decoded or copied onto a thread's stack: half of a
    second-level cache, so that it stays there while all tiles of rows sweep over it."""
    return facts.cache(2) // 2


def in_place_bytes(facts: Facts) -> int:
    """Return the largest matrix that every tile of rows reads in place: it stays in a second-level
    cache beside the rows, so that copying panels of it gains nothing."""
    return facts.cache(2) // 8


def _vectors(width: int | None, lanes: int, depth: int | None = None, room: int = 0) -> int:
    """Return the vectors per panel: the most that divide the width and, if `depth` rows of a panel
    are stored, fit into `room` bytes. Of a symbolic width only the last panel is masked, however
    many vectors it has."""
    dividing = [n for n in (4, 3, 2) if (width or 0) % (n * lanes) == 0] or [1]
    # One vector is the last resort, also where it does not divide the width: its last panel is
    # masked.
    small = (n for n in (*dividing, 1) if (depth or 0) * n * lanes * 4 <= room)
    return next(small, dividing[0])


def _copy(
    sch: Schedule, parts: _Parts, product: BlockRV, depth: int | None, width: int, facts: Facts
) -> BlockRV | None:
    """The block that copies a panel: its rows are pages apart, which few sets of the caches and
    few entries of the translation buffer serve."""
    # Without a bound on the depth the panel's size is unknown, and a thread's stack takes
    # constants.
    if parts.copied is None or depth is None or depth * width * 4 > panel_bytes(facts):
        return None
    block = found_block(sch, product)
    index = next(i for i, r in enumerate(block.reads) if r.buffer is parts.copied)
    copy = sch.cache_read(product, index, "local")
    if not parts.contiguous:
        made = found_block(sch, copy)
        sch.transform_layout(copy, made.writes[0].buffer, _swapped)
    return copy


def _swapped(*at: PrimExpr) -> tuple[PrimExpr, ...]:
    return (*at[:-2], at[-1], at[-2])


def _sweep(sch: Schedule, parts: _Parts, width: int | None, lanes: int, rows: int) -> Schedule:
    """Schedule few rows: the matrix is read once, several of its rows at a time, each for many
    columns, and the sums stay in the first-level cache. Two vectors share each load from the rows,
    else loads take longer than multiply-adds (NOTES, *Few rows by a matrix in place, again*)."""
    product = sch.get_block(parts.product)
    store = separate_store(sch, parts.product)
    nest = axis_loops(sch, product)
    row, col, k = nest[parts.row], nest[parts.col], nest[-1]
    outer = nest[: parts.row]
    # At most 32 vectors of columns: 16 rows of sums are 32 KB then, a first-level cache.
    dividing = (n for n in (32, 16, 8, 4, 2) if (width or 0) % (n * lanes) == 0)
    columns = next(dividing, 1) * lanes
    tile, row = sch.split(row, factors=[None, rows])
    panel, col = sch.split(col, factors=[None, columns])
    pair, vector, lane = sch.split(col, factors=[None, 2 if columns > lanes else 1, lanes])
    k, step = sch.split(k, factors=[None, UNROLL_K_IN_PLACE])
    sch.reorder(*outer, panel, tile, k, pair, row, step, vector, lane)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, k)
    # Unrolled, the elements of the rows are broadcast from registers.
    for loop in (row, step, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    for one in (init, store):
        split_vector(sch, sch.get_loops(one)[-1], lanes, unroll=False)
    sch.parallel(sch.fuse(*outer, panel) if outer else panel)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _share_depth(sch: Schedule, parts: _Parts, lanes: int) -> Schedule:
    """Schedule a single row by splitting the reduction (split-K): each thread reads contiguous rows
    of the matrix. Split by columns, its part would fall into half of the sets of a cache. The
    partial sums are added in the same order however many threads there are."""
    product = sch.get_block(parts.product)
    store = separate_store(sch, parts.product)
    share, *_ = sch.split(axis_loops(sch, product)[-1], factors=[SPLIT_K, None, UNROLL_K_IN_PLACE])
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


def _fits_panel(sch: Schedule, decode: BlockRV, parts: _Parts, width: int, facts: Facts) -> bool:
    """True if a decoded panel of `width` columns is known to fit. A single row uses each weight
    once, and a panel would be a detour through the caches."""
    depth = constant(found_block(sch, decode).iter_vars[parts.decoded[1]].dom.extent)
    return depth is not None and depth * width * 4 <= panel_bytes(facts)


def _place_decode(
    sch: Schedule, decode: BlockRV, parts: _Parts, panel: LoopRV, k: LoopRV, inside: bool,
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
    sch: Schedule, context: Context, blocks: list[BlockRV], parts: _Parts, width: int, panel: int
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
