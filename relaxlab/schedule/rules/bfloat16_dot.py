"""Products of bfloat16 rows and bfloat16 weights by dot products of pairs, summed in float32.

Weights are stored as matrix tiles want them: 32 columns by 32 elements of depth, in each 16 columns
of pairs per vector. A version for a single row streams them; one for several rows keeps its sums in
registers over the whole reduction, in tile registers where there are some.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.schedule.intrinsics import amx, dot2
from relaxlab.schedule.intrinsics.amx import SIZE
from relaxlab.schedule.intrinsics.dot2 import LANES
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    is_spatial,
    separate_store,
    split_vector,
    sum_of_products,
    where_allowed,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import PREFETCH_DISTANCE, REGISTER_ROWS, UNROLL_PAIRS
from relaxlab.schedule.rules.tiles import Layout, columns_in_tiles, schedule_stored
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin


@dataclass(frozen=True, slots=True)
class _Parts:
    """The product's block, the weights, and how they are stored."""

    product: Block
    weights: Buffer
    layout: Layout


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one sum of products of bfloat16 rows and a bfloat16 weight, in whole blocks."""
    if TensorIntrin.best(dot2.FAMILY, context.target) is None:
        return "the processor has no instruction for dot products of bfloat16"
    parts = _find(sch.func, context)
    if isinstance(parts, str):
        return parts
    rows = blocks_of(sch.func)[0].iter_vars[0].dom.extent
    with_versions(sch, context, rows, [1], lambda one, most: _schedule(one, most, context))
    return sch


def _find(func: PrimFunc, context: Context) -> _Parts | str:
    """The parts of a kernel, or why it is not a product that the rule is for."""
    blocks = blocks_of(func)
    if [is_spatial(b) for b in blocks] != [False, *(True for _ in blocks[1:])]:
        return "it is not one reduction followed by elementwise blocks"
    product = blocks[0]
    loads, axes = sum_of_products(product), product.iter_vars
    if loads is None or [it.kind for it in axes] != ["spatial", "spatial", "reduce"]:
        return f"{product.name} is no sum of products of two loads over row, column and depth"
    if product.writes[0].buffer.dtype != "float32":
        return f"{product.name} does not sum in float32"
    row, col, k = (it.var for it in axes)
    columns, depth = (constant(it.dom.extent) for it in axes[1:])
    if not columns or not depth or columns % SIZE or depth % SIZE:
        return f"{product.name}: columns and depth are not multiples of {SIZE}"
    rows, weights = sorted(loads, key=lambda load: col in load.indices)
    if rows.indices != (row, k) or weights.indices not in ((col, k), (k, col)):
        return f"{product.name} does not read its operands by row, column and depth alone"
    if rows.dtype != "bfloat16" or weights.dtype != "bfloat16":
        return f"{product.name} multiplies {rows.dtype} and {weights.dtype}, not bfloat16"
    if not context.is_weight(func, weights.buffer):
        return f"{product.name}: {weights.buffer.name} is no weight at every call"
    layout = columns_in_tiles if weights.indices == (col, k) else _deep_first
    return _Parts(product, weights.buffer, layout)


def _schedule(sch: Schedule, most: int | None, context: Context) -> Schedule:
    parts = _find(sch.func, context)
    assert isinstance(parts, _Parts)
    # Matrix tiles need many rows; a single row is a stream of weights, which vectors keep up with.
    if TensorIntrin.best(amx.FAMILY, context.target) and most is None:
        return schedule_stored(sch, parts.product.name, parts.weights, parts.layout)
    # With two vectors of columns, 24 of the 32 registers hold sums.
    rows = most or REGISTER_ROWS.of(sch, 12)
    product = sch.get_block(parts.product.name)
    store = separate_store(sch, parts.product.name)
    sch.transform_layout(product, parts.weights, parts.layout)
    i, n, k = axis_loops(sch, product)
    tile, i = sch.split(i, factors=[None, rows])
    block, half, n = sch.split(n, factors=[None, SIZE // LANES, LANES])
    step, pair, k = sch.split(k, factors=[None, SIZE // 2, 2])
    if rows == 1:  # as the weights lie in memory
        sch.reorder(block, tile, step, half, pair, i, n, k)
        # Eight blocks of 32 by 32 weights are 16 KB, at which matrix-vector products of bytes ran
        # fastest.
        if distance := PREFETCH_DISTANCE.of(sch, 8):
            sch.annotate(step, "prefetch", (distance, (parts.weights.name,)))
    else:  # a pair of a row serves two vectors of columns
        # All 16 pairs of a block took LLVM five seconds a kernel, four one, and were as fast
        # (NOTES, *A processor without matrix tiles*).
        some, pair = sch.split(pair, factors=[None, UNROLL_PAIRS.of(sch, 4)])
        sch.reorder(block, tile, step, some, pair, i, half, n, k)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, step)
    sch.tensorize(n, f"{dot2.FAMILY}_{LANES}")
    *_, outer, inner, lane = sch.get_loops(init)
    sch.vectorize(lane)
    *_, row, column = sch.get_loops(store)
    split_vector(sch, column, LANES, unroll=True)
    for loop in (half, pair, i, outer, inner, row):
        sch.unroll(loop)
    sch.parallel(block)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    return sch


def _deep_first(k: PrimExpr, n: PrimExpr) -> tuple[PrimExpr, ...]:
    return columns_in_tiles(n, k)
