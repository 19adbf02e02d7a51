"""Kernels that read across the rows that they write: in tiles, each copied to a thread's stack.

A row of results takes one element of each of many cache lines, which are evicted before the next
row needs their other elements. A tile reads and writes whole lines, and because it is copied first,
lines that are a power of two apart do not conflict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BufferLoad, BufferStore
from relaxlab.ir.node import Node, children
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.cascade import loads_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules import elementwise
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    extent_of,
    fitting,
    follows_axis,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import SQUARE, TILE_SIDE
from relaxlab.schedule.rules.elementwise import SMALL
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.streams import stream_results

SHORT = 3
"""Extents up to which there are no squares to turn: the smallest has four rows."""
LEAST = 512
"""Elements below which gathers take as long, and compile sooner."""
CORNER = 16
"""The side of a tile along three axes: a cache line of float32."""


@dataclass(frozen=True, slots=True)
class _Across:
    """A load whose neighbours in memory are `row` iterations of the block, which stores those of
    its last axis side by side: the axis that dimension `column` of the operand goes along."""

    load: BufferLoad
    row: Var
    column: int


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits kernels that read across the rows they write."""
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    """Schedule a kernel whose axes are joined. Where it would be a copy if a symbolic axis had one
    element, there is a version for that: a row of 4096 took 9.6 us as a transpose, 0.8 so."""
    parts = _find(sch.copy())
    if isinstance(parts, str):
        return parts
    return _apart_from_copies(sch, context, parts, list(dict.fromkeys(_single(parts))))


def _apart_from_copies(
    sch: Schedule, context: Context, parts: _Parts, symbols: list[Var]
) -> Schedule:
    """Schedule copies, where one of the symbols is one, apart from all else."""
    if not symbols:
        return _by_length(sch, context, parts)
    first, *others = symbols
    with_versions(
        sch, context, first, [1],
        lambda one, most: fitting(elementwise.apply(one, context)) if most == 1
        else _apart_from_copies(one, context, parts, others),
    )  # fmt: skip
    return sch


def _single(parts: _Parts) -> Iterator[Var]:
    """Yield the symbolic extents of axes without which operands have their axes in order."""
    axes = parts.block.iter_vars
    for at in (parts.column, *parts.rows):
        size, others = axes[at].dom.extent, [it.var for it in axes if it is not axes[at]]
        loads = (a.load.indices for a in parts.found)
        along = ([v for i in at for v in symbols_in(i) if v in others] for at in loads)
        if isinstance(size, Var) and all(found == others for found in along):
            yield size


def _by_length(sch: Schedule, context: Context, parts: _Parts) -> Schedule:
    """Schedule a transpose in tiles. Rows of results of symbolic length have versions for those of
    a vector or two, which are then stored without asking in each row which lanes it has."""
    width = parts.block.iter_vars[parts.column].dom.extent
    # Of float32 16 KB, a third of a first-level cache of 48 KB. 64 x 64 took 30 ms where 16 x 16
    # took 40 (NOTES, *Moving and ordering data*).
    dtype = output_dtype(parts.block)
    side = TILE_SIDE.of(sch, 64 if bytes_of(dtype) > 1 else 128)

    def version(one: Schedule, most: int | None) -> Schedule:
        if most is None:
            return _in_tiles(one, context, side, side)
        assert isinstance(width, Var)
        one.declare_upper_bound(width, most)
        return _in_tiles(one, context, most, side)

    lanes = context.target.lanes(dtype)
    widths = {SQUARE.candidates[-1], lanes // 2, lanes, 2 * lanes}
    bounds = sorted(n for n in widths if n < side) if isinstance(width, Var) else []
    with_versions(sch, context, width, bounds, version)
    return sch


@dataclass(frozen=True, slots=True)
class _Parts:
    """The one block left when producers are inlined, its loads across rows, the numbers of the axes
    of neighbours in the operands and in the result, and all extents where they are constant."""

    block: Block
    found: list[_Across]
    rows: list[int]
    column: int
    sizes: list[int | None]


def _find(sch: Schedule) -> _Parts | str:
    """Inline producers and return the parts of the kernel, or why it is not to be tiled."""
    for block in blocks_of(sch.func):
        if not is_spatial(block):
            return f"{block.name} is a reduction"
    inline_producers(sch)
    if len(blocks_of(sch.func)) != 1:
        return "its blocks cannot be inlined into one"
    (block,) = blocks_of(sch.func)
    found = _loads_across(block)
    axes = [it.var for it in block.iter_vars]
    nest = sch.get_loops(sch.get_block(block.name))
    if not found or len(nest) != len(axes):
        return f"{block.name} does not read across the rows that it writes"
    sizes = [constant(extent_of(sch, loop)) for loop in nest]
    rows, column = list(dict.fromkeys(axes.index(a.row) for a in found)), len(axes) - 1
    work = math.prod(SMALL if size is None else size for size in sizes)
    short = [axes[at].name for at in (*rows, column) if (sizes[at] or SHORT + 1) <= SHORT]
    if work < LEAST or short:
        return f"{block.name} is too small, or short along {' and '.join(short)}"
    return _Parts(block, found, rows, column, sizes)


def _in_tiles(sch: Schedule, context: Context, width: int, side: int) -> Schedule:
    """Schedule tiles of the axis of neighbours in the result and of the axes of neighbours in the
    operands, divided among threads: `side` elements, `width` of a symbolic axis of the former."""
    parts = _find(sch)
    if isinstance(parts, str):
        raise ScheduleError("transpose", "this version", parts)
    block, sizes, column = parts.block, parts.sizes, parts.column
    if len(parts.rows) > 1:  # a cache line of each operand along each of three axes
        width, side = min(width, CORNER), min(side, CORNER)
    rv = sch.get_block(block.name)
    nest = sch.get_loops(rv)
    inner: list[LoopRV] = []
    for at in (*parts.rows, column):
        most = sizes[at] or (width if at == column else side)
        nest[at], one = sch.split(nest[at], factors=[None, min(most, side)])
        inner.append(one)
    sch.reorder(*nest, *inner)
    tiles = sch.fuse(*nest)
    for across in parts.found:
        index = next(i for i, r in enumerate(block.reads) if r.buffer is across.load.buffer)
        copy = sch.cache_read(rv, index, "local")
        most = context.target.lanes(across.load.dtype)
        whole = [n for n in SQUARE.candidates if (sizes[column] or n) % n == 0]
        side = SQUARE.at_most(sch, min(most, whole[0] if whole else most, width))
        _transposed_copy(sch, copy, tiles, across.column, side)
    lanes = context.target.lanes(output_dtype(found_block(sch, rv)))
    # The lanes of a short row are the same in all.
    vectorize_inner(sch, inner[-1], width if width <= 2 * lanes else lanes)
    sch.parallel(tiles)
    stream_results(sch, tiles, context.target.facts)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _transposed_copy(sch: Schedule, copy: BlockRV, tiles: LoopRV, column: int, side: int) -> None:
    """Copy tiles of an operand with dimension `column` last, along which results are neighbours.
    Its lanes are around by the rows of the operand, so that squares are turned in registers."""
    made = found_block(sch, copy).writes[0].buffer

    def last(*at: PrimExpr) -> tuple[PrimExpr, ...]:
        return *at[:column], *at[column + 1 :], at[column]

    sch.transform_layout(copy, made, last)
    sch.compute_at(copy, tiles, preserve_unit_loops=True)
    nest = sch.get_loops(copy)[-made.ndim :]
    outer = [loop for n, loop in enumerate(nest[:-1]) if n != column]
    vector, lane = sch.split(nest[column], factors=[None, side])
    sch.reorder(*outer, vector, nest[-1], lane)
    sch.vectorize(lane)


def _loads_across(block: Block) -> list[_Across]:
    """Return the loads of a block that stores one element per iteration, the last axis contiguous.
    None of a conditional one: a copy would read what the block does not."""
    store, axes = block.body, [it.var for it in block.iter_vars]
    if not isinstance(store, BufferStore) or list(store.indices) != axes:
        return []
    loads = dict.fromkeys(_certain_loads(store.value))
    found = [a for load in loads if (a := _across(load, axes)) is not None]
    buffers = [load.buffer for load in dict.fromkeys(loads_in(store.value))]
    return [a for a in found if buffers.count(a.load.buffer) == 1]


def _certain_loads(value: Node) -> Iterator[BufferLoad]:
    """Yield the loads that no condition may leave out."""
    if isinstance(value, BufferLoad):
        yield value
    elif isinstance(value, expr.Call) and value.op == "if_then_else":
        yield from _certain_loads(value.args[0])
    else:
        for child in children(value):
            yield from _certain_loads(child)


def _across(load: BufferLoad, axes: list[Var]) -> _Across | None:
    """The load with its row and column where each index is an axis, or a constant, or so far from
    an axis as where a slice begins."""
    along = [{*symbols_in(index)} & {*axes} for index in load.indices]
    shifted = all(
        follows_axis(i, v, axes) for i, of in zip(load.indices, along, strict=True) for v in of
    )
    if not shifted or not along:
        return None
    column = next((d for d, of in enumerate(along) if axes[-1] in of), None)
    row = next(iter(along[-1]), None)
    return None if row in (None, axes[-1]) or column is None else _Across(load, row, column)
