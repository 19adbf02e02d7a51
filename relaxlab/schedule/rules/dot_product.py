"""Products of quantised matrices: integer inner products per group, scaled and summed in float.

The kernel has a reduction over int8 products (`dot`, one int32 per group) whose consumer sums the
scaled groups (`y`). Weights are stored for the instruction: tiles of as many rows as it has
lanes, four bytes of a row per lane. A tile's products and sums stay in registers; decoding the
stored weights happens per tile and group. One version is made for a single row of activations (a
matrix-vector product) and one for tiles of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import loops
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.schedule.intrinsics import dot4
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    found_block,
    is_spatial,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import PREFETCH_DISTANCE, REGISTER_ROWS
from relaxlab.schedule.schedule import BlockRV, Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin


@dataclass(frozen=True, slots=True)
class QuantisedProduct:
    """The producer of the integers, the products (one per part of the activations), their sum."""

    decode: str | None
    dots: tuple[str, ...]
    total: str


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a kernel with an int8 reduction whose result a second reduction sums."""
    intrinsic = TensorIntrin.best(dot4.FAMILY, context.target)
    if intrinsic is None:
        return "the processor has no instruction for dot products of bytes"
    parts = find_quantised_product(sch.func)
    if isinstance(parts, str):
        return parts
    width = constant(blocks_named(sch.func, parts.total).iter_vars[1].dom.extent)
    if width is None or width % 16:
        return f"{parts.total} has not whole vectors of 16 columns"
    # A tile's rows have an integer and a float vector of sums each: half of the registers, so that
    # the others have room for decoded weights.
    tile = context.target.facts.vector_registers // 4
    rows = blocks_named(sch.func, parts.total).iter_vars[0].dom.extent
    with_versions(
        sch, context, rows, [1],
        lambda one, most: _schedule(
            one, parts, intrinsic, most or REGISTER_ROWS.of(one, tile)
        ),
    )  # fmt: skip
    return sch


def blocks_named(func: PrimFunc, name: str) -> Block:
    """The block of that name."""
    return next(b for b in blocks_of(func) if b.name == name)


def find_quantised_product(func: PrimFunc) -> QuantisedProduct | str:
    """The parts of a kernel, or why it is not a product that the rule is for."""
    blocks = blocks_of(func)
    dots = [b for b in blocks if _is_dot(b)]
    if not dots:
        return "no block sums products of unsigned and signed bytes over whole fours"
    after = blocks[blocks.index(dots[-1]) + 1 :]
    total = after[0] if after else None
    if total is None or is_spatial(total) or len(total.iter_vars) != 3:
        return f"no sum of groups over three axes follows {dots[-1].name}"
    read = {r.buffer for r in total.reads}
    if not all(b.writes[0].buffer in read for b in dots):
        return f"{total.name} reads not all products"
    sources = {r.buffer for b in dots for r in b.reads if r.buffer.dtype == "uint8"}
    made = [b for b in blocks if b.writes[0].buffer in sources]
    if len(sources) != 1 or not all(is_spatial(b) for b in made):
        return f"{total.name}: the unsigned bytes come from several buffers, or from a reduction"
    return QuantisedProduct(made[0].name if made else None, tuple(b.name for b in dots), total.name)


def _is_dot(block: Block) -> bool:
    """True if a block sums products of unsigned and signed bytes over whole fours."""
    if is_spatial(block) or block.writes[0].buffer.dtype != "int32":
        return False
    group = constant(block.iter_vars[-1].dom.extent)
    dtypes = {r.buffer.dtype for r in block.reads} - {"int32"}
    return dtypes == {"uint8", "int8"} and group is not None and group % 4 == 0


def _schedule(
    sch: Schedule, parts: QuantisedProduct, intrinsic: TensorIntrin, rows: int
) -> Schedule:
    lanes = constant(intrinsic.desc.buffers[0].shape[0])
    assert lanes is not None
    total = sch.get_block(parts.total)
    dots = [sch.get_block(name) for name in parts.dots]
    decode = sch.get_block(parts.decode) if parts.decode else None
    write = separate_store(sch, parts.total)
    axes = {**dict.fromkeys(dots, 2), total: 1, **({decode: 0} if decode else {})}
    packed = pack_rows(sch, axes, lanes)
    i, n, group = axis_loops(sch, total)
    tile, i = sch.split(i, factors=[None, rows])
    block, n = sch.split(n, factors=[None, lanes])
    # Tiles of rows inside of a block of weights: the block stays in the first-level cache for all
    # of them.
    sch.reorder(block, tile, group, i, n)
    sch.reverse_compute_at(write, tile, preserve_unit_loops=True)
    # The integers of a group go straight into the float sums: stored, they would take more bytes
    # than the weights.
    for dot in reversed(dots):
        sch.compute_at(dot, group, preserve_unit_loops=True)
        sch.set_scope(dot, 0, "local")
    if decode is not None:
        sch.compute_at(decode, group, preserve_unit_loops=True)
        sch.set_scope(decode, 0, "local")
        _decode_tile(sch, decode)
    for dot in dots:
        _dot_tile(sch, dot, intrinsic.name, rows)
    init = sch.decompose_reduction(total, group)
    for one in (init, total, write):
        _vector_rows(sch, one, rows)
    # Several rows reuse what is loaded and wait for arithmetic instead of memory. 64 groups are
    # 16 KB of 4-bit weights, with which a matrix-vector product went from 12.5 to 25 GB/s (NOTES,
    # *Where decoding time goes*).
    if rows == 1 and (distance := PREFETCH_DISTANCE.of(sch, 64)):
        weights = tuple(p.name for p in packed)
        sch.annotate(group, "prefetch", (distance, weights))
    sch.parallel(block)
    sch.compact_buffers()
    return sch


def pack_rows(sch: Schedule, rows: dict[BlockRV, int], lanes: int) -> list[loops.Buffer]:
    """Store the buffers indexed by weight rows in tiles of `lanes` rows: bytes as (tile, group,
    byte // 4, lane, byte % 4), scales as (tile, group, lane). `rows` gives, per block, which of its
    axes counts weight rows. Returns the buffers."""
    done: list[loops.Buffer] = []
    for rv, axis in rows.items():
        block = found_block(sch, rv)
        row = block.iter_vars[axis].var
        for region in block.reads:
            buffer = region.buffer
            if buffer in done or not region.region or region.region[0].min != row:
                continue
            done.append(buffer)
            if bits_of(buffer.dtype) == 8 and buffer.ndim == 3:
                sch.transform_layout(
                    rv, buffer,
                    lambda r, g, b: (r // lanes, g, b // 4, r % lanes, b % 4),
                )  # fmt: skip
            elif buffer.ndim == 2:
                sch.transform_layout(rv, buffer, lambda r, g: (r // lanes, g, r % lanes))
    return done


def _decode_tile(sch: Schedule, decode: BlockRV) -> None:
    """Vectorise the decoding of a tile: a vector of lanes x 4 bytes per four columns."""
    lane, _, column = sch.get_loops(decode)[-3:]
    four, byte = sch.split(column, factors=[None, 4])
    sch.reorder(four, lane, byte)
    sch.vectorize(sch.fuse(lane, byte))
    sch.unroll(four)


def _vector_rows(sch: Schedule, block: BlockRV, rows: int) -> None:
    """Vectors along the innermost loop; the tile's rows, if there are several, unrolled."""
    *_, row, lane = sch.get_loops(block)
    sch.vectorize(lane)
    if rows > 1:
        sch.unroll(row)


def _dot_tile(sch: Schedule, dot: BlockRV, intrinsic: str, rows: int) -> None:
    """Rows unrolled, four products per lane and instruction."""
    row, _, lane, column = sch.get_loops(dot)[-4:]
    four, byte = sch.split(column, factors=[None, 4])
    sch.reorder(row, four, lane, byte)
    init = sch.decompose_reduction(dot, row)
    sch.tensorize(lane, intrinsic)
    sch.unroll(row)
    sch.unroll(four)
    _vector_rows(sch, init, rows)
