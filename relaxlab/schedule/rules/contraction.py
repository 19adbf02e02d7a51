"""Contractions over any axes in any order, convolutions among them: register tiles of
sums of products.

The columns of a tile are an axis of one operand alone, best the last of the result, and that
operand is packed in panels of vectors; the rows are an axis of the other. Of a convolution, the
columns are output channels where they fill vectors, in any layout, and the rows positions, whose
windows are read where they lie: no matrix of windows is stored (an implicit GEMM). Otherwise
vectors are neighbours along the last axis of the result, and the rows of a tile are channels, or
positions where each channel has its own weights (the direct way). Operands that are computed, such
as padded data, are stored first.
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from functools import partial

from relaxlab.analysis.arith import simplify
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import FloorDiv, IntImm, Max, PrimExpr, Var, const
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferRegion, PrimFunc, Range
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import PREFETCH_BESIDE
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rules.base import (
    attempted,
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    fitting,
    found_block,
    output_dtype,
    separate_store,
    split_vector,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.contraction_parts import (
    ROWS,
    SCATTER_TERMS,
    WASTE,
    Parts,
    deciding_axes,
    find_parts,
    window_places,
)
from relaxlab.schedule.rules.decisions import (
    DOT_ROWS,
    PREFETCH_PANEL,
    REGISTER_ROWS,
    TERMS_COPIED,
    TILE_VECTORS,
)
from relaxlab.schedule.rules.deep_contraction import SHALLOW, in_blocks, is_deep
from relaxlab.schedule.rules.dot_tiles import few_columns, narrow_dot_tiles
from relaxlab.schedule.rules.elementwise import schedule_block
from relaxlab.schedule.rules.fallback import apply as fallback_apply
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

FEW_VECTORS = 4
"""Vectors of columns for which there are versions of a product by a transposed matrix."""
WIDE = 4
"""Vectors of columns of a tile where memory is what takes the time (`_is_wide`): a convolution of
1 x 1 from 512 to 2048 channels of 7 x 7 took 0.9 times as long; elsewhere products took up to 1.3
times."""
STREAMED = 3
"""The same where the columns come from memory (`_streams_columns`)."""
CHANNELS = 8
"""Channels that are computed of a tile of an image, which stays in the first-level cache, before
the next one is read: 16 outputs of each of four groups of 8 inputs, 3 x 3, took 0.86 times as
long with constants, with symbolic sizes 0.76 times (NOTES, *Tiles that channels share*)."""
MIN_IMAGES = 8
"""Images that threads share out at least, each of which pads its own."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """The block that copies an operand to panels, and which of the operand's dimensions are
    indexed by the batch, the columns and the terms, the latter in the order of a panel."""

    copy: BlockRV
    batch: list[int]
    column: int
    terms: list[int]


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate over any axes that has columns, an axis that only one
    operand depends on, and rows, another axis that one of the operands does not depend on."""
    return with_joined_axes(sch, _apply, context, units=False)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    """Schedule a kernel whose axes are joined."""
    parts = find_parts(sch.func, context)
    if isinstance(parts, str):
        return parts
    if not parts.is_einsum:  # what pads data would be compiled for few rows, too
        return _by_terms(sch, parts, context)
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    width, depth = constant(block.iter_vars[parts.col].dom.extent), block.iter_vars[-1].dom.extent
    if width is not None and width in few_columns(output_dtype(block), depth, context):
        found = attempted(partial(narrow_dot_tiles, most=width), sch, context)
        if found is not None:
            return found
    rows = block.iter_vars[parts.row].dom.extent
    # Panels would have to be copied first: for 4 rows of float32 or int32, 16 of int8 and 2 of
    # float64 dot products took the same time or less, for twice as many rows the copy was repaid
    # (except of int8).
    few = max(1, 16 // bytes_of(output_dtype(block)))
    with_versions(
        sch, context, rows, [1 if _is_in_place(block, parts) else DOT_ROWS.of(sch, few)],
        lambda one, most: _for_few_rows(one, context) if most else _by_terms(one, parts, context),
    )  # fmt: skip
    return sch


def _is_in_place(block: Block, parts: Parts) -> bool:
    """True if columns are neighbours in memory, so that no panels of them are copied."""
    at = next(r.region for r in block.reads if r.buffer is parts.vectors)
    return at[-1].min == block.iter_vars[parts.col].var


def _by_terms(sch: Schedule, parts: Parts, context: Context) -> Schedule:
    """Return the schedule by `parts`; where the number of terms is unknown and sums of few would
    have other columns, a version for those as well (NOTES, *Symbolic channels*)."""
    if is_deep(sch, parts):
        deep = found_block(sch, sch.get_block(parts.product))
        with_versions(
            sch, context, deep.iter_vars[parts.reduce[0]].dom.extent, [SHALLOW],
            lambda one, most: (_schedule if most else in_blocks)(one, parts, context),
        )  # fmt: skip
        return sch
    few = find_parts(sch.func, context, few_terms=True)
    # All versions read a weight in the same layout.
    packable = _is_packable_weight(sch.func, parts.vectors, context)
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    if isinstance(few, str) or few == parts or packable or deciding_axes(block):
        return _by_columns(sch, parts, context)
    terms: PrimExpr = const(1)
    for it in block.iter_vars:
        terms = terms if it.kind == "spatial" else terms * it.dom.extent
    with_versions(
        sch, context, simplify(terms), [SCATTER_TERMS - 1],
        lambda one, most: _by_columns(one, few if most else parts, context, bool(most)),
    )  # fmt: skip
    return sch


def _by_columns(
    sch: Schedule, parts: Parts, context: Context, few_terms: bool = False
) -> Schedule:
    """Return the schedule by `parts`; where a symbol decides the columns of a convolution, with a
    version for those of one vector."""
    block = next(b for b in blocks_of(sch.func) if b.name == parts.product)
    columns = block.iter_vars[parts.col].dom.extent
    symbols = _sizes_in((columns,), block)
    few = find_parts(sch.func, context, few_terms=few_terms, few_columns=True)
    if parts.is_einsum or len(symbols) != 1 or isinstance(few, str):
        return _by_images(sch, parts, context)

    def version(one: Schedule, most: int | None) -> Schedule:
        if most is not None:
            one.declare_upper_bound(symbols[0], most)
        return _by_images(one, few if most else parts, context)

    most = _most_for(columns, symbols[0], _lanes(block, parts.col, context))
    with_versions(sch, context, symbols[0], [most] if most > 0 else [], version)
    return sch


def _most_for(extent: PrimExpr, symbol: Var, most: int) -> int:
    """Return the largest value of a symbol for which an extent that grows with it, as the width of
    a result does with that of an image, is at most `most`; -1 where the symbol alone does not
    decide, as on the lengths of sequences."""

    def fits(n: int) -> bool:
        value = constant(simplify(substitute(extent, {symbol: const(n)})))
        return value is not None and value <= most

    return bisect.bisect_left(range(1 << 16), True, key=lambda n: not fits(n)) - 1


def _sizes_in(extents: tuple[PrimExpr, ...], block: Block) -> list[Var]:
    """Return the symbols in extents of a block's axes; others of its axes, on which extents of
    phases of a transposed convolution depend, are none."""
    axes = [it.var for it in block.iter_vars]
    return [v for v in symbols_in(extents) if v not in axes]


def _by_images(sch: Schedule, parts: Parts, context: Context) -> Schedule:
    """Return the schedule by `parts`; where operands are images of symbolic sizes that are computed
    first, such as padded ones, with a version for images that each iteration computes for itself
    (see `_computed_per_image`)."""
    sizes = _image_sizes(sch.func, parts)
    if not sizes:
        return _schedule(sch, parts, context)

    def version(one: Schedule, most: int | None) -> Schedule | None:
        if most is None:
            return _schedule(one, parts, context)
        for size in sizes:
            one.declare_upper_bound(size, most)
        return _schedule_tiles(one, parts, context, per_image=True)

    # A square image of float32, padded for a window of at most `ROWS`, takes half of the cache.
    most = math.isqrt(context.target.facts.cache(1) // 8) - ROWS
    with_versions(sch, context, functools.reduce(Max, sizes), [most], version)
    return sch


def _image_sizes(func: PrimFunc, parts: Parts) -> list[Var]:
    """Return the symbols in extents of places of windows in an operand that is computed."""
    block = next(b for b in blocks_of(func) if b.name == parts.product)
    computed = [r.region for r in block.reads if r.buffer not in func.params]
    places = window_places(at.min for region in computed for at in region)
    extents = tuple(it.dom.extent for it in block.iter_vars if it.var in places)
    return _sizes_in(extents, block)


def tiles_of_product(sch: Schedule, context: Context) -> Schedule | str:
    """Return the schedule in tiles, for any number of rows, or why the rule does not fit."""
    parts = find_parts(sch.func, context)
    return parts if isinstance(parts, str) else _schedule(sch, parts, context)


def _for_few_rows(sch: Schedule, context: Context) -> Schedule:
    """Return the version for few rows, without packed panels: too few rows would share them."""
    return attempted(rows_apply, sch, context) or fitting(fallback_apply(sch, context))


def _lanes(block: Block, column: int, context: Context) -> int:
    """Return the lanes of a vector of sums: of small integers, whose vectors have many, no more
    than twice the columns."""
    lanes, width = (
        context.target.lanes(output_dtype(block)),
        constant(block.iter_vars[column].dom.extent),
    )
    while width is not None and lanes > max(context.target.lanes("float32"), 2 * width):
        lanes //= 2
    return lanes


def _schedule(sch: Schedule, parts: Parts, context: Context) -> Schedule:
    made = _schedule_tiles(sch, parts, context, per_image=False)
    assert made is not None
    return made


def _schedule_tiles(
    sch: Schedule, parts: Parts, context: Context, *, per_image: bool
) -> Schedule | None:
    """The schedule in tiles. With `per_image`, None where no operand is computed for each image."""
    product = sch.get_block(parts.product)
    lanes = _lanes(found_block(sch, product), parts.col, context)
    own = _panels_of_large(found_block(sch, product), parts, context)
    streams = _streams_columns(found_block(sch, product), parts, context)
    is_wide = _is_wide(found_block(sch, product), parts, lanes, context)
    sharing = _sharing(found_block(sch, product), parts)
    stored = _stored_operands(sch, parts.product)
    most = TILE_VECTORS.of(sch, WIDE if is_wide else STREAMED if streams else 2)
    width = _known_width(sch, product, parts.col, lanes)
    vectors = _tile_vectors(width, most, lanes)
    packed = _pack(sch, product, parts, lanes, vectors, context)
    spread = _spreading(sch, parts.product)
    store = sch.cache_write(product, 0, "local") if spread else separate_store(sch, parts.product)
    _columns_last(sch, product, parts)
    nest = axis_loops(sch, product)
    row, col, reduce = nest[parts.row], nest[parts.col], [nest[i] for i in parts.reduce]
    phases = [nest[i] for i in parts.phases]
    inside = (parts.row, parts.col, *parts.reduce, *parts.phases)
    outer = [n for i, n in enumerate(nest) if i not in inside]
    # Results between neighbours of which others lie are written by the same thread, soon after.
    between = [outer.pop()] if nest[-len(reduce) - 1] in outer else []
    near = _computed_per_image(sch, product, parts, stored, vectors * lanes, context)
    if per_image and not near:
        return None
    rows = _rows_of_a_tile(sch, constant(extent_of(sch, row)), vectors, context)
    if not near:
        _pad_operands(sch, product, stored, {parts.col: vectors * lanes, parts.row: rows})
    again = [] if near or sharing is None else _channels_of_a_tile(sch, nest[sharing], outer)
    tile, row = sch.split(row, factors=[None, rows])
    panel, col = sch.split(col, factors=[None, vectors * lanes])
    # All tiles of rows by one packed panel, which stays in the second-level cache meanwhile.
    first = outer if own is None else [n for n in outer if n in [nest[i] for i in own]]
    shared = [*first, panel, *(n for n in outer if n not in first)]
    around = [tile, *again, *phases, *between]
    sch.reorder(*shared, *around, *reduce, row, col)
    sch.reverse_compute_at(store, around[-1], preserve_unit_loops=True)
    for loop in (*phases, *(reduce[-1:] if parts.unroll_last else ())):
        sch.unroll(loop)
    if streams and PREFETCH_PANEL.of(sch, True):
        sch.annotate(reduce[-1], PREFETCH_BESIDE, (parts.vectors.name,))
    init = sch.decompose_reduction(product, reduce[0])
    spatial = sch.get_loops(store)[-len(nest) + len(reduce) :]
    results = (spatial[parts.row], spatial[parts.col])
    sch.reorder(*results)
    for inner in (sch.get_loops(init)[-2:], sch.get_loops(product)[-2:], results):
        split_vector(sch, inner[1], lanes, unroll=True)
        sch.unroll(inner[0])
    if near:
        _compute_per_image(sch, near, outer, lanes)
    else:
        # Without others around them, panels may be fewer than threads.
        sch.parallel(sch.fuse(*shared) if outer else sch.fuse(panel, tile))
    for block in (b for b in stored if b not in near):
        _copy(sch, block, lanes)
    if spread is not None:
        schedule_block(sch, found_block(sch, spread), context)
    if packed is not None:
        _copy_panels(sch, packed, lanes)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    return sch


def _sharing(block: Block, parts: Parts) -> int | None:
    """Return the axis that divides into whole runs of `CHANNELS` values, each of which reads the
    same vectors of an image, as output channels (of a group) do; None if there is none."""
    places = next(r.region for r in block.reads if r.buffer is parts.vectors)
    column = block.iter_vars[parts.col].var
    if column not in window_places(r.min for r in places):
        return None

    def runs(n: Node) -> Node | None:
        match n:
            case FloorDiv(Var(), IntImm(value)) if value % CHANNELS == 0:
                return const(0)
            case _:
                return None

    used = {v for r in places for v in symbols_in(rewrite(r.min, runs))}
    inner = (parts.row, parts.col, *parts.phases)
    for i, it in enumerate(block.iter_vars):
        size = constant(it.dom.extent) or 1
        if it.kind == "spatial" and i not in inner and it.var not in used and size % CHANNELS == 0:
            return i
    return None


def _pad_operands(
    sch: Schedule, product: BlockRV, stored: list[BlockRV], tiles: dict[int, int]
) -> None:
    """Store zeros behind the ends of operands that are computed, such as padded images, as far as
    whole tiles of symbolic axes read: masked loads take ports of the multiply-adds, and places that
    are not beyond the last one registers. `tiles`: the elements of a tile along each axis."""
    for axis, tile in tiles.items():
        if constant(found_block(sch, product).iter_vars[axis].dom.extent) is None:
            _pad_along(sch, product, axis, stored, tile)


def _pad_along(
    sch: Schedule, product: BlockRV, axis: int, stored: list[BlockRV], tile: int
) -> None:
    block = found_block(sch, product)
    var = block.iter_vars[axis].var
    an = shape_analyzer(sch.func)
    for it in block.iter_vars:
        an.bind_range(it.var, it.dom)
    for rv in stored:
        made = found_block(sch, rv).writes[0].buffer
        for region in (r.region for r in block.reads if r.buffer is made):
            dims = [d for d, r in enumerate(region) if var in symbols_in(r.min)]
            linear = an.linear_in(region[dims[0]].min, (var,)) if len(dims) == 1 else None
            stride = None if linear is None else constant(linear[0])
            if linear is None or stride is None or stride < 1:
                continue
            furthest = an.upper_bound(linear[1])
            if furthest is not None:
                where_allowed(partial(sch.pad_axis, rv, dims[0], stride * tile, furthest))


def _channels_of_a_tile(sch: Schedule, channels: LoopRV, outer: list[LoopRV]) -> list[LoopRV]:
    """Return the loop over channels that read the same tile of an image, and leave the one over
    runs of them in its place among the outer loops."""
    if channels not in outer:  # they are neighbours in memory
        return []
    at = outer.index(channels)
    outer[at], again = sch.split(channels, factors=[None, CHANNELS])
    return [again]


def _compute_per_image(
    sch: Schedule, near: dict[BlockRV, int], outer: list[LoopRV], lanes: int
) -> None:
    """Divide images among threads, each of which computes its operands for itself: `near` are these
    and how many elements of their rows are read."""
    image = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    sch.parallel(image)
    for block, width in near.items():
        _compute_under(sch, block, image, -(-width // lanes) * lanes)


def _compute_under(sch: Schedule, rv: BlockRV, images: LoopRV, width: int) -> None:
    """Compute an operand in each iteration of a loop, its rows as vectors of `width` elements, so
    that lanes past their ends read zeros."""
    sch.set_scope(rv, 0, "local")
    sch.compute_at(rv, images, preserve_unit_loops=True)
    _, lane = sch.split(sch.get_loops(rv)[-1], factors=[None, width])
    sch.vectorize(lane)


def _computed_per_image(
    sch: Schedule, product: BlockRV, parts: Parts, stored: list[BlockRV], columns: int,
    context: Context,
) -> dict[BlockRV, int]:  # fmt: skip
    """Return the operands, out of those that are stored first, that are computed by each iteration
    of the loops around the tiles: it needs a part of its own, as the padded image of a channel in a
    depthwise convolution is, that fits half of a first-level cache. The value is how many elements
    of a row tiles of so many columns read, whole ones at the end, too."""
    block = found_block(sch, product)
    sizes = {it.var: constant(it.dom.extent) for it in block.iter_vars}
    inner = {parts.row, parts.col, *parts.reduce}
    around = {
        it.var: sizes[it.var]
        for i, it in enumerate(block.iter_vars)
        if i not in inner and sizes[it.var] != 1
    }
    if math.prod(n or 1 for n in around.values()) < MIN_IMAGES:
        return {}
    an = shape_analyzer(sch.func)
    for i, it in enumerate(block.iter_vars):
        tiles = (it.dom.extent + (columns - 1)) // columns * columns
        an.bind_range(it.var, Range(it.dom.min, tiles if i == parts.col else it.dom.extent))
    found: dict[BlockRV, int] = {}
    for rv in stored:
        made = found_block(sch, rv).writes[0].buffer
        region, *others = (r.region for r in block.reads if r.buffer is made)
        if others:  # both operands are read of it, in parts of their own
            continue
        own = [
            {v for v in symbols_in(r.min) if sizes.get(v, 1) != 1} <= around.keys() for r in region
        ]
        size = [an.upper_bound(dim) for dim, mine in zip(made.shape, own, strict=True) if not mine]
        last = an.upper_bound(region[-1].min)
        if sum(own) != len(around) or None in size or last is None or own[-1]:
            continue
        elements = math.prod(n or 0 for n in size)
        if 2 * elements * bytes_of(made.dtype) <= context.target.facts.cache(1):
            found[rv] = max(last + 1, size[-1] or 0)
    return found


def _panels_of_large(block: Block, parts: Parts, context: Context) -> set[int] | None:
    """Return the axes of the block that choose a matrix of columns, such as groups, if one is known
    not to fit the second-level cache beside others: a panel of it is then used for all images
    before the next one is read. 512 channels by 3 x 3 over four images of 7 x 7 took 3.4 times as
    long when all panels were read for each row of each image."""
    region = next(r for r in block.reads if r.buffer is parts.vectors)
    size, own = _matrix_of(region, block, {parts.col, *parts.reduce})
    return own if 2 * size > context.target.facts.cache(2) else None


def _matrix_of(region: BufferRegion, block: Block, inner: set[int]) -> tuple[int, set[int]]:
    """Return the bytes of the part of an operand that the inner axes of a block read, 0 where they
    are unknown, and the other axes, which choose it."""
    outer = {it.var: i for i, it in enumerate(block.iter_vars) if i not in inner}
    size, own = bytes_of(region.buffer.dtype), set[int]()
    for r, dim in zip(region.region, region.buffer.shape, strict=True):
        choosing = {outer[v] for v in symbols_in(r.min) if v in outer}
        own |= choosing
        size *= 1 if choosing else constant(dim) or 0
    return size, own


def _is_wide(block: Block, parts: Parts, lanes: int, context: Context) -> bool:
    """True if tiles of all columns, read where they lie, read an operand once that does not fit the
    second-level cache."""
    width = constant(block.iter_vars[parts.col].dom.extent)
    if width is None or width > WIDE * lanes or not parts.is_einsum:
        return False
    used = (parts.vectors, block.writes[0].buffer)
    sizes = [
        _matrix_of(r, block, {parts.row, *parts.reduce})[0]
        for r in block.reads if r.buffer not in used
    ]  # fmt: skip
    large = any(2 * size > context.target.facts.cache(2) for size in sizes)
    return large and _is_in_place(block, parts)


def _streams_columns(block: Block, parts: Parts, context: Context) -> bool:
    """True if vectors of columns are read where they lie from a matrix that does not fit the
    second-level cache: each panel comes from memory, a few lines of each row, where nothing but
    prefetches of the next panel overlaps with arithmetic. 1 x 1 from 256 to 64 channels of 56 x 56
    took 0.6 times as long with them and three vectors in a tile, which share loads of weights."""
    region = next(r for r in block.reads if r.buffer is parts.vectors)
    size, _ = _matrix_of(region, block, {parts.col, *parts.reduce})
    large = size > context.target.facts.cache(2)
    return large and parts.is_einsum and _is_in_place(block, parts)


def _tile_vectors(width: int | None, most: int, lanes: int) -> int:
    """Return the vectors of columns of a tile, at most `most`: fewer where lanes of the last tile
    would be more than an eighth of all, and three where there are three. 196 columns are 14 vectors
    in pairs, 13 one by one, which read a factor for each of their own. Where the width is unknown,
    only the last is masked."""
    if width is None:
        return most
    single = -(-width // lanes)
    if single == 3:
        return 3
    fitting = (n for n in (most, 2) if n <= most and -(-single // n) * n <= WASTE * single)
    return next(fitting, 1)


def _known_width(sch: Schedule, product: BlockRV, column: int, lanes: int) -> int | None:
    """Return the number of columns, or the bound of a symbolic one if it is a few vectors: these
    are filled, or else there are tiles of one. 33 columns in two tiles of two vectors took 1.3
    times as long as in three."""
    extent = found_block(sch, product).iter_vars[column].dom.extent
    width = shape_analyzer(sch.func).upper_bound(extent)
    is_known = constant(extent) is not None or (width or 0) <= FEW_VECTORS * lanes
    return width if is_known else None


def _spreading(sch: Schedule, product: str) -> BlockRV | None:
    """The last consumer, the others inlined into it, if it reads sums elsewhere than at its axes
    (results of a transposed convolution lie between those of other phases): no tile of sums is all
    that a tile of its results needs. None if it does not."""
    names = [b.name for b in blocks_of(sch.func)]
    consumers = names[names.index(product) + 1 :]
    made = found_block(sch, sch.get_block(product)).writes[0].buffer
    for name in consumers[:-1]:
        sch.compute_inline(sch.get_block(name))
    if not consumers:
        return None
    last = found_block(sch, sch.get_block(consumers[-1]))
    read = [n.indices for n in walk(last.body) if isinstance(n, BufferLoad) and n.buffer is made]
    plain = all(isinstance(i, Var | IntImm) for indices in read for i in indices)
    return None if plain else sch.get_block(last.name)


def _columns_last(sch: Schedule, product: BlockRV, parts: Parts) -> None:
    """Make the columns the last dimension of the sums, so that they are vectors in registers."""
    buffer = found_block(sch, product).writes[0].buffer
    if parts.col == buffer.ndim - 1:
        return
    axes = [Var(f"i{d}") for d in range(buffer.ndim)]
    others = [v for d, v in enumerate(axes) if d not in (parts.row, parts.col)]
    # Allowed on a private buffer of sums only: a result in main memory keeps its layout.
    finals = (*others, axes[parts.row], axes[parts.col])
    sch.transform_layout(product, buffer, IndexMap(tuple(axes), finals))


def _rows_of_a_tile(sch: Schedule, extent: int | None, vectors: int, context: Context) -> int:
    """Return the rows of a register tile: as many as registers hold, fewer if the last tile has
    fewer idle ones then."""
    # Eight times two vectors of columns are 16 of the 32 accumulators, the others hold operands:
    # six times four leave room for a row of them. Eight sums at least, or they wait for each other:
    # with 16 registers 512 x 512 by 17 transposed columns took twice as long in tiles of 4 x 1.
    registers = context.target.facts.vector_registers
    rows = registers // 4 if vectors < WIDE else 3 * registers // (4 * vectors)
    rows = max(rows, 8 // vectors)
    most = REGISTER_ROWS.of(sch, rows)
    if extent is None or extent <= most:
        return extent or most
    return min(range(most, most // 2, -1), key=lambda n: -(-extent // n) * n)


def _stored_operands(sch: Schedule, product: str) -> list[BlockRV]:
    """The last producer of each operand; those before are inlined into it."""
    names = [b.name for b in blocks_of(sch.func)]
    read = found_block(sch, sch.get_block(product)).reads
    kept: list[BlockRV] = []
    for name in names[: names.index(product)]:
        rv = sch.get_block(name)
        if any(found_block(sch, rv).writes[0].buffer is r.buffer for r in read):
            kept.append(rv)
        else:
            sch.compute_inline(rv)
    return kept


def _pack(
    sch: Schedule, product: BlockRV, parts: Parts, lanes: int, vectors: int, context: Context
) -> _Packed | None:
    """Pack an operand whose last axis is not the columns, so that neighbouring columns are adjacent
    in the order in which they are read: by a layout transformation if the operand is a weight, else
    in a copy of whole tiles of `vectors` vectors, which is returned."""
    block = found_block(sch, product)
    number = next(i for i, r in enumerate(block.reads) if r.buffer is parts.vectors)
    indices = [r.min for r in block.reads[number].region]
    col = block.iter_vars[parts.col].var
    # Columns that are last already are read as vectors; windows (`i + di`) cannot be permuted as
    # axes.
    if col not in indices[:-1] or not all(isinstance(i, Var | IntImm) for i in indices):
        return None
    copy: BlockRV | None = None
    buffer = parts.vectors
    # Copying an activation costs one pass per call, which tiles of rows repay; a weight is repacked
    # once.
    if buffer in sch.func.params and not _is_packable_weight(sch.func, buffer, context):
        copy = sch.cache_read(product, number, "global")
        number = next(
            i
            for i, r in enumerate(found_block(sch, product).reads)
            if r.buffer is found_block(sch, copy).writes[0].buffer
        )
        buffer = found_block(sch, product).reads[number].buffer
    axes = [Var(f"i{d}") for d in range(len(indices))]
    at = indices.index(col)
    if copy is not None:
        # Whatever else the memory holds may be denormal numbers, by which a multiply-add takes 50
        # times as long. Tiles without a guard leave a register more to sums: 512 x 512 by 17 with
        # symbols took 2.2 times the time of constants where one of 12 had none.
        where_allowed(partial(sch.pad_axis, copy, at, vectors * lanes))
        buffer = found_block(sch, copy).writes[0].buffer
    place: dict[PrimExpr, int] = {block.iter_vars[a].var: n for n, a in enumerate(parts.reduce)}
    batch = [d for d, i in enumerate(indices) if d != at and i not in place]
    terms = [d for _, d in sorted((place[i], d) for d, i in enumerate(indices) if i in place)]
    # Terms inside of a panel, in the order of the loops over them: a panel is read front to back.
    panel = (axes[at] // lanes, *(axes[d] for d in terms), axes[at] % lanes)
    finals = (*(axes[d] for d in batch), *panel)
    sch.transform_layout(product, buffer, IndexMap(tuple(axes), finals))
    return None if copy is None else _Packed(copy, batch, at, terms)


def _is_packable_weight(func: PrimFunc, buffer: Buffer, context: Context) -> bool:
    """True if the buffer is a weight whose shape is known."""
    sizes = [constant(dim) for dim in buffer.shape]
    return None not in sizes and context.is_weight(func, buffer)


def _copy(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Schedule a copy that runs first: by all threads, a vector at a time."""
    nest = sch.get_loops(rv)
    outer = vectorize_inner(sch, nest[-1], lanes)
    sch.parallel(sch.fuse(*nest[:-1], outer) if len(nest) > 1 else outer)


def _copy_panels(sch: Schedule, packed: _Packed, lanes: int) -> None:
    """Schedule a copy to panels that runs first, in the order of the panels: were rows of the
    operand scattered into them, threads would write to the same lines at the same time (a product
    by 17 symbolic rows of 512 took as long on two threads as on one). The terms are around the
    lanes, so that squares are turned in registers where terms are neighbours in memory."""
    nest = sch.get_loops(packed.copy)
    panel, lane = sch.split(nest[packed.column], factors=[None, lanes])
    outer = [*(nest[d] for d in packed.batch), panel]
    sch.reorder(*outer, *(nest[d] for d in packed.terms), lane)
    sch.vectorize(lane)
    terms = sch.fuse(*(nest[d] for d in packed.terms))
    chunk, _ = sch.split(terms, factors=[None, TERMS_COPIED.of(sch, 64)])
    sch.parallel(sch.fuse(*outer, chunk))
