"""Products of bfloat16 rows and bfloat16 weights by dot products of pairs, summed in float32.

Weights are stored in blocks of 32 columns by 32 elements of depth, in each 16 columns of pairs per
vector. A version for a single row streams them; one for tiles of rows keeps its sums in registers
over the whole reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.intrinsics import DOT2_LANES, has_dot2
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    is_spatial,
    separate_store,
    split_vector,
    sum_of_products,
    weight_params,
)
from relaxlab.schedule.rules.versions import guarded_versions
from relaxlab.schedule.rules.whole_tiles import compute_whole_tiles
from relaxlab.schedule.schedule import Schedule

SIZE = 32
"""Columns and depth of a block of weights."""
ROWS = 12
"""Rows per register tile: with two vectors of columns, 24 of the 32 registers hold sums."""
PAIRS = 4
"""Pairs of a row that are unrolled."""
AHEAD = 8
"""Blocks of weights to prefetch ahead where they are only streamed."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The product's block, the weights, and whether their first axis is the depth."""

    product: Block
    weights: Buffer
    deep_first: bool


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits one sum of products of bfloat16 rows and a bfloat16 weight, in whole blocks."""
    if not has_dot2(target) or _find(func) is None:
        return None
    rows = blocks_of(func)[0].iter_vars[0].dom.extent
    return guarded_versions(func, rows, [1], lambda f, most: _schedule(f, most or ROWS))


def _find(func: PrimFunc) -> _Parts | None:
    product, *consumers = blocks_of(func)
    loads, axes = sum_of_products(product), product.iter_vars
    if loads is None or [it.kind for it in axes] != ["spatial", "spatial", "reduce"]:
        return None
    if product.writes[0].buffer.dtype != "float32" or not all(map(is_spatial, consumers)):
        return None
    row, col, k = (it.var for it in axes)
    columns, depth = (constant(it.dom.extent) for it in axes[1:])
    if not columns or not depth or columns % SIZE or depth % SIZE:
        return None
    rows, weights = sorted(loads, key=lambda load: col in load.indices)
    if rows.indices != (row, k) or weights.indices not in ((col, k), (k, col)):
        return None
    if rows.dtype != "bfloat16" or weights.dtype != "bfloat16":
        return None
    if not any(func.params[i] is weights.buffer for i in weight_params(func)):
        return None
    return _Parts(product, weights.buffer, weights.indices == (k, col))


def _schedule(func: PrimFunc, rows: int) -> PrimFunc:
    parts = _find(func)
    assert parts is not None
    sch = Schedule(func)
    product = sch.get_block(parts.product.name)
    store = separate_store(sch, parts.product.name)
    sch.transform_layout(product, parts.weights, _swapped if parts.deep_first else _packed)
    i, n, k = sch.get_loops(product)
    tile, i = sch.split(i, factors=[None, rows])
    block, half, n = sch.split(n, factors=[None, SIZE // DOT2_LANES, DOT2_LANES])
    step, pair, k = sch.split(k, factors=[None, SIZE // 2, 2])
    if rows == 1:  # as the weights lie in memory
        sch.reorder(block, tile, step, half, pair, i, n, k)
        sch.annotate(step, "prefetch", (AHEAD, (parts.weights.name,)))
    else:  # a pair of a row serves two vectors of columns
        some, pair = sch.split(pair, factors=[None, PAIRS])
        sch.reorder(block, tile, step, some, pair, i, half, n, k)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, step)
    sch.tensorize(n, f"dot2_bf16_{DOT2_LANES}")
    *_, outer, inner, lane = sch.get_loops(init)
    sch.vectorize(lane)
    *_, row, column = sch.get_loops(store)
    split_vector(sch, column, DOT2_LANES, unroll=True)
    for loop in (half, pair, i, outer, inner, row):
        sch.unroll(loop)
    sch.parallel(block)
    return compute_whole_tiles(compact_buffers(sch.func))


def _packed(n: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
    """Block of columns, block of depth, half of the columns, pair, column, one of the pair."""
    half, pair = n % SIZE // DOT2_LANES, k % SIZE // 2
    return n // SIZE, k // SIZE, half, pair, n % DOT2_LANES, k % 2


def _swapped(k: PrimExpr, n: PrimExpr) -> tuple[PrimExpr, ...]:
    return _packed(n, k)
