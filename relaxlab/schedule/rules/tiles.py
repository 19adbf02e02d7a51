"""Matrix products of bfloat16 values in matrix tiles, 32 rows by 32 columns at a time.

The weights of 32 columns are decoded once, into a panel that fits the caches, and multiplied with
all rows; sums stay in tile registers over the whole reduction. The rows are laid out for the tiles
in a first step, with rows of zeros up to a multiple of 32. Stored
weights are packed as for the integer products of single rows, so that one copy serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.schedule.intrinsics import amx
from relaxlab.schedule.intrinsics.amx import SIZE, TILE_SCOPE
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    found_block,
    is_spatial,
    separate_store,
    split_vector,
    sum_of_products,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.dot_product import pack_rows
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin

Layout = Callable[[PrimExpr, PrimExpr], tuple[PrimExpr, ...]]

COLUMNS = 16
"""Columns of one tile register: a row of it has 64 bytes, 16 pairs of bfloat16."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The product, the producer of its columns and the block that decodes them."""

    product: str
    columns: str
    decode: str | None


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a sum of products of bfloat16 values: rows that are stored, and columns that the kernel
    computes from weights."""
    if TensorIntrin.best(amx.FAMILY, context.target) is None:
        return "the processor has no tile registers"
    parts = _find(sch.func)
    return parts if isinstance(parts, str) else _schedule(sch, parts)


def _find(func: PrimFunc) -> _Parts | str:
    """The parts of a kernel, or why it is not a product that the rule is for."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if len(reductions) != 1 or reductions[0].writes[0].buffer.dtype != "float32":
        return "it has not one reduction, in float32"
    product = reductions[0]
    loads = sum_of_products(product)
    axes = product.iter_vars
    if loads is None or len(axes) != 3 or [it.kind for it in axes[:2]] != ["spatial"] * 2:
        return f"{product.name} is no sum of products of two loads over row, column and depth"
    row, col, k = (it.var for it in axes)
    columns, depth = (constant(it.dom.extent) for it in axes[1:])
    if not columns or not depth or columns % SIZE or depth % SIZE:
        return f"{product.name}: columns and depth are not multiples of {SIZE}"
    by_index = {load.indices: load for load in loads if load.dtype == "bfloat16"}
    left, right = by_index.get((row, k)), by_index.get((col, k))
    if left is None or right is None:
        return f"{product.name} does not read bfloat16 values by row and depth, column and depth"
    rows, weights = (_producer(blocks, load) for load in (left, right))
    if rows is not None or weights is None:
        return f"{product.name}: its rows are not stored, or its columns not computed in the kernel"
    return _Parts(product.name, weights, _source(blocks, weights))


def _producer(blocks: list[Block], load: BufferLoad) -> str | None:
    made = (b.name for b in blocks if is_spatial(b) and b.writes[0].buffer is load.buffer)
    return next(made, None)


def _source(blocks: list[Block], name: str) -> str | None:
    """The block whose result the block `name` rounds."""
    block = next(b for b in blocks if b.name == name)
    for other in blocks:
        if other is not block and any(r.buffer is other.writes[0].buffer for r in block.reads):
            return other.name
    return None


def _schedule(sch: Schedule, parts: _Parts) -> Schedule:
    product, weights = sch.get_block(parts.product), sch.get_block(parts.columns)
    decode = sch.get_block(parts.decode) if parts.decode else None
    # Tile registers are loaded whole; columns and depth are multiples of a tile already.
    sch.pad_einsum(product, [SIZE, 1, 1])
    _rows_in_tiles(sch, product)
    pack_rows(sch, {decode or weights: 0}, COLUMNS)
    sch.transform_layout(weights, found_block(sch, weights).writes[0].buffer, columns_in_tiles)
    loops = _split_into_tiles(sch, product)
    sch.compute_at(weights, loops.panel, preserve_unit_loops=True)
    sch.set_scope(weights, 0, "local")
    _decode_panel(sch, weights, decode)
    return _multiplied(sch, product, loops)


def schedule_stored(sch: Schedule, name: str, weights: Buffer, layout: Layout) -> Schedule:
    """The product `name` of bfloat16 rows, which are laid out for the tiles first, by a parameter
    `weights`, whose `layout` has tiles as `columns_in_tiles` makes them."""
    product = sch.get_block(name)
    sch.pad_einsum(product, [SIZE, 1, 1])
    sch.transform_layout(product, weights, layout)
    _rows_in_tiles(sch, product)
    return _multiplied(sch, product, _split_into_tiles(sch, product))


def _rows_in_tiles(sch: Schedule, product: BlockRV) -> None:
    """Copy the rows that a product reads, padding included, into tiles of 32 by 32."""
    block = found_block(sch, product)
    at = (block.iter_vars[0].var, block.iter_vars[2].var)
    read = next(n for n, r in enumerate(block.reads) if tuple(x.min for x in r.region) == at)
    buffer = block.reads[read].buffer
    made = sch.get_producers(product)
    padding = [p for p in made if found_block(sch, p).writes[0].buffer is buffer]
    rows = padding[0] if padding else sch.cache_read(product, read, "global")
    sch.transform_layout(
        rows, found_block(sch, rows).writes[0].buffer,
        lambda i, k: (i // SIZE, k // SIZE, i % SIZE, k % SIZE),
    )  # fmt: skip
    i, k = axis_loops(sch, rows)
    split_vector(sch, k, SIZE, unroll=False)
    sch.parallel(i)


@dataclass(frozen=True, slots=True)
class _Loops:
    """Over panels of columns, steps of the depth, rows of a tile; the blocks after the product."""

    panel: LoopRV
    step: LoopRV
    row: LoopRV
    sums: BlockRV
    store: BlockRV


def _split_into_tiles(sch: Schedule, product: BlockRV) -> _Loops:
    store = separate_store(sch, found_block(sch, product).name)
    sums = sch.cache_write(product, 0, TILE_SCOPE)
    i, n, k = axis_loops(sch, product)
    panel, n = sch.split(n, factors=[None, SIZE])
    tile, i = sch.split(i, factors=[None, SIZE])
    step, k = sch.split(k, factors=[None, SIZE])
    sch.reorder(panel, tile, step, i, n, k)
    sch.reverse_compute_at(sums, tile, preserve_unit_loops=True)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    return _Loops(panel, step, i, sums, store)


def _multiplied(sch: Schedule, product: BlockRV, loops: _Loops) -> Schedule:
    """The product by tile registers."""
    init = sch.decompose_reduction(product, loops.step)
    sch.tensorize(sch.get_loops(init)[-2], "tile_zero")
    sch.tensorize(loops.row, "tile_dot_bf16")
    sch.tensorize(sch.get_loops(loops.sums)[-2], "tile_store")
    split_vector(sch, sch.get_loops(loops.store)[-1], COLUMNS, unroll=True)
    sch.parallel(loops.panel)
    sch.compact_buffers()
    return sch


def columns_in_tiles(n: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
    """Index map of weight k of column n in tiles: panel, step, half of the panel, pair, column, one
    of the pair, so that pairs of a column are adjacent."""
    half, pair = n % SIZE // COLUMNS, k % SIZE // 2
    return n // SIZE, k // SIZE, half, pair, n % COLUMNS, k % 2


def _decode_panel(sch: Schedule, weights: BlockRV, decode: BlockRV | None) -> None:
    """Schedule the decoding of a panel, a row of a tile at a time: pairs of 16 columns. Rows are
    unrolled, so that shifts are constants and scales are read once."""
    n, k = sch.get_loops(weights)[-2:]
    half, n = sch.split(n, factors=[None, COLUMNS])
    step, row, pair = sch.split(k, factors=[None, SIZE // 2, 2])
    sch.reorder(step, half, row, n, pair)
    if decode is not None:
        sch.compute_at(decode, row, preserve_unit_loops=True)
        sch.set_scope(decode, 0, "local")
        made = found_block(sch, decode)
        sch.transform_layout(decode, made.writes[0].buffer, lambda n, k: (k, n))
        lane, one = sch.get_loops(decode)[-2:]
        sch.reorder(one, lane)
        sch.vectorize(lane)
        sch.unroll(one)
    sch.tensorize(n, "round_bf16_pairs")
    sch.unroll(row)
