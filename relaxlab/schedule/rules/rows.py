"""Row kernels: softmax, norms, quantisation of activations, sums over trailing axes.

All blocks share their leading axes, the row. The first block's row loops become the kernel's
loops, divided among threads; every later block moves under them, so a row stays in cache from its
first use to its last. Within a row, spatial axes become vectors and reductions keep one partial
result per lane, combined at the end. A product that makes rows of few terms makes a vector of them
in registers, where the first block that reads them does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferRegion, For, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    reduce_by_lanes,
    vectorize_inner,
)
from relaxlab.schedule.rules.versions import guarded_versions
from relaxlab.schedule.rules.whole_tiles import compute_whole_tiles
from relaxlab.schedule.schedule import LoopRV, Schedule
from relaxlab.schedule.streams import stream_results

AHEAD = 1024
"""Elements to fetch ahead, at least."""
STACKED = 8192
"""The widest row of symbolic width of which a thread's stack keeps intermediates."""
TERMS = 16
"""Terms of a sum that are unrolled at most."""
TILE = 4
"""Rows that are made at once where what they share is too large for a first-level cache."""
NEAR_BYTES = 32 * 1024
"""What is not too large for it."""
LOCAL_BYTES = 64 * 1024
"""Largest intermediate of one row that is kept on a thread's stack."""


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits kernels whose reductions all run over trailing axes of a common row.

    Where a row is stored between its uses and its width is a symbol, there is a version for widths
    that fit a thread's stack beside the one that computes the row again or, if a product makes it,
    stores it in main memory.
    """
    general = _schedule(func, target, {})
    found = None if general is None else _width_of_stored_rows(func)
    if found is None:
        return general
    width, terms = found

    def version(func: PrimFunc, most: int | None) -> PrimFunc:
        scheduled = _schedule(func, target, {} if most is None else {width: most})
        assert scheduled is not None
        return scheduled

    near = [_near_width(terms)] if terms else []
    return guarded_versions(func, width, sorted({*near, STACKED}), version)


def _width_of_stored_rows(func: PrimFunc) -> tuple[Var, int] | None:
    """The symbol that is the width of all rows which several blocks read or a product makes, and
    of nothing else that would be stored; and of how many terms the product makes them, or 0."""
    sch = Schedule(func)
    names = read_more_than_once(func)
    inline_producers(sch, keep=names)
    blocks = blocks_of(sch.func)
    rank = row_rank(blocks) or 0
    sums = _sums_of_few(blocks, rank)
    stored = [b for b in blocks if b.name in names or b.name in sums]
    buffers = [b.writes[0].buffer for b in stored]
    widths = {b.shape[rank:] for b in buffers if b not in func.params}
    match [*widths - {()}]:
        case [(Var() as width,)]:
            return width, max(sums.values(), default=0)
        case _:
            return None


def _near_width(terms: int) -> int:
    """The widest row for which what rows of sums of so many terms share, stays near."""
    return NEAR_BYTES // (4 * terms)


def _schedule(func: PrimFunc, target: Target, bounds: Mapping[Var, int]) -> PrimFunc | None:
    """`bounds`: how large symbols are at most."""
    sch = Schedule(func)
    names = read_more_than_once(func)
    inline_producers(sch, keep=names)
    rank = row_rank(blocks_of(sch.func)) or 0
    inline_producers(sch, keep=[n for n in names if _has_bounded_rows(func, n, rank, bounds)])
    rank = row_rank(blocks_of(sch.func))
    if rank is None or (rank == 0 and len(blocks_of(sch.func)) > 1):
        return None
    tile = _rows_at_once(blocks_of(sch.func), rank, bounds)
    stores = separate_stores(sch, rank)
    blocks = blocks_of(sch.func)
    if blocks[0].name in stores:  # it follows its store
        del blocks[0]
    try:
        rows = _gather_rows(sch, blocks, rank, tile, bounds)
    except ScheduleError:
        return None
    outer = rank if tile == 1 else rank + 1
    for block in blocks:
        if block.name not in stores:
            _inside_row(sch, block.name, outer, target)
    for name, store in stores.items():
        _in_registers(sch, name, store, rank, outer)
    _prefetch_rows(sch, rank, outer)
    if rows:
        row = sch.fuse(*rows) if len(rows) > 1 else rows[0]
        if constant(extent_of(sch, row)) != 1:
            sch.parallel(row)
            stream_results(sch, row)
    return _with_room(compute_whole_tiles(compact_buffers(sch.func)), bounds)


def _with_room(func: PrimFunc, bounds: Mapping[Var, int]) -> PrimFunc:
    """Private buffers whose dimensions are bounded symbols have room for the bounds."""
    private = [b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers]
    sizes = {v: expr.const(most) for v, most in bounds.items()}
    wider = {
        b: replace(b, shape=tuple(substitute(dim, sizes) for dim in b.shape))
        for b in private
        if b.scope == "local"
    }
    return replace(func, body=substitute(func.body, buffers=wider))


def read_more_than_once(func: PrimFunc) -> list[str]:
    """Producers that several blocks read: they are worth storing."""
    blocks = blocks_of(func)
    readers: dict[Buffer, int] = {}
    for block in blocks:
        for region in block.reads:
            readers[region.buffer] = readers.get(region.buffer, 0) + 1
    return [b.name for b in blocks if is_spatial(b) and readers.get(b.writes[0].buffer, 0) > 1]


def _has_bounded_rows(
    func: PrimFunc, name: str, rank: int, bounds: Mapping[Var, int]
) -> bool:
    """Whether a row of what the block makes may be kept on a thread's stack. Else it would go
    through main memory, which takes longer than to compute it again, exponentials included."""
    block = next(b for b in blocks_of(func) if b.name == name)
    return all(_most(dim, bounds) is not None for dim in block.writes[0].buffer.shape[rank:])


def _most(dim: PrimExpr, bounds: Mapping[Var, int]) -> int | None:
    """How large a dimension is at most."""
    return bounds.get(dim) if isinstance(dim, Var) else constant(dim)


def row_rank(blocks: list[Block]) -> int | None:
    """How many leading axes all blocks share; None where there is no reduction."""
    reductions = [b for b in blocks if not is_spatial(b)]
    if not reductions:
        return None
    rank = min(sum(it.kind == "spatial" for it in b.iter_vars) for b in reductions)
    first = [it.dom.extent for it in blocks[0].iter_vars[:rank]]
    for block in blocks:
        spatial = [it for it in block.iter_vars if it.kind == "spatial"]
        while rank and [it.dom.extent for it in spatial[:rank]] != first[:rank]:
            rank -= 1
    return rank


def _gather_rows(
    sch: Schedule, blocks: list[Block], rank: int, tile: int, bounds: Mapping[Var, int]
) -> list[LoopRV]:
    """Put every block under the first block's loops over tiles of rows; returns those loops."""
    first = sch.get_block(blocks[0].name)
    spatial, _ = block_loops(sch, first)
    rows = spatial[:rank]
    if tile > 1:
        rows[-1], _ = sch.split(rows[-1], factors=[None, tile])
    for block in blocks[1:]:
        if rows:
            sch.reverse_compute_at(sch.get_block(block.name), rows[-1])
    for block in blocks[:-1]:
        _keep_local(sch, block, rank, bounds)
    return rows


def separate_stores(sch: Schedule, rank: int) -> dict[str, str]:
    """Sums of few terms that make rows, each with the block that stores it: the elementwise block
    that alone reads it, or a copy."""
    stores: dict[str, str] = {}
    for name in _sums_of_few(blocks_of(sch.func), rank):
        rv = sch.get_block(name)
        made = found_block(sch, rv).writes[0].buffer
        readers = [(b, r) for b in blocks_of(sch.func) for r in b.reads if r.buffer is made]
        private = made not in sch.func.params
        if private and len(readers) == 1 and _is_elementwise(*readers[0]):
            sch.set_scope(rv, 0, "local")
            stores[name] = readers[0][0].name
        else:
            store = sch.cache_write(rv, 0, "local")
            stores[name] = found_block(sch, store).name
    return stores


def _sums_of_few(blocks: list[Block], rank: int) -> dict[str, int]:
    """The blocks that reduce over at most `TERMS` elements for each element of a row that others
    read, a vector of its last dimension at a time; over how many."""
    read = {r.buffer for b in blocks for r in b.reads}
    found: dict[str, int] = {}
    for block in blocks:
        terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
        count = math.prod(TERMS + 1 if n is None else n for n in terms)
        row = [it.dom.extent for it in block.iter_vars if it.kind == "spatial"][rank:]
        makes_rows = row and constant(row[-1]) != 1 and block.writes[0].buffer in read
        if terms and makes_rows and count <= TERMS:
            found[block.name] = count
    return found


def _is_elementwise(block: Block, read: BufferRegion) -> bool:
    """Whether each iteration of the block reads the element at its own place."""
    return is_spatial(block) and [r.min for r in read.region] == [it.var for it in block.iter_vars]


def _rows_at_once(blocks: list[Block], rank: int, bounds: Mapping[Var, int]) -> int:
    """How many rows are made at once: each row of a sum of few terms reads again what they share,
    which is as large as its iterations are many."""
    sums = _sums_of_few(blocks, rank)
    for block in (b for b in blocks if b.name in sums):
        row = [it.dom.extent for it in block.iter_vars[rank:] if it.kind == "spatial"]
        width = math.prod(_most(dim, bounds) or STACKED for dim in row)
        if width > _near_width(sums[block.name]):
            return TILE
    return 1


def _in_registers(sch: Schedule, name: str, store: str, rank: int, row: int) -> None:
    """Compute a sum of few terms where block `store` stores a vector of its results, for all rows
    of a tile together. `rank`, `row`: how many loops are around a tile and around a row."""
    rv = sch.get_block(name)
    nest = sch.get_loops(sch.get_block(store))
    tile, outer, lane = nest[rank:row], nest[:rank] + nest[row:-1], nest[-1]
    if tile:
        sch.reorder(*nest[row:-1], *tile, lane)
        sch.unroll(*tile)
    sch.compute_at(rv, outer[-1], preserve_unit_loops=True)
    spatial, terms = block_loops(sch, rv)
    sch.reorder(*terms, *spatial[len(outer) :])
    for one in (sch.decompose_reduction(rv, terms[0]), rv):
        *inner, lane = block_loops(sch, one)[0][len(outer) :]
        sch.vectorize(lane)
        for loop in inner:
            sch.unroll(loop)
    for loop in terms:
        sch.unroll(loop)


def _keep_local(sch: Schedule, block: Block, rank: int, bounds: Mapping[Var, int]) -> None:
    """Intermediates of a row that is known to be small stay on the stack."""
    buffer = block.writes[0].buffer
    if any(p is buffer for p in sch.func.params):
        return
    size = 4
    for dim in buffer.shape[rank:]:
        most = _most(dim, bounds)
        if most is None:
            return
        size *= most
    if size <= LOCAL_BYTES:
        sch.set_scope(sch.get_block(block.name), 0, "local")


def _inside_row(sch: Schedule, name: str, rank: int, target: Target) -> None:
    """Vectorise one block within its row."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    block = found_block(sch, rv)
    lanes = target.lanes(output_dtype(block))
    inner = [loop for loop in spatial[rank:] if constant(extent_of(sch, loop)) != 1]
    if inner and (constant(extent_of(sch, inner[-1])) or 0) % (2 * lanes) == 0:
        lanes *= 2  # two vectors at a time need not wait for each other
    if reduce:
        if not inner:
            reduce_by_lanes(sch, rv, reduce, _partial_sums(sch, reduce[-1], target))
        else:
            sch.reorder(*reduce, inner[-1])
            vectorize_inner(sch, inner[-1], lanes)
        return
    if inner:
        vectorize_inner(sch, inner[-1], lanes)


def _prefetch_rows(sch: Schedule, rank: int, outer: int) -> None:
    """Rows are fetched during the last pass over those before: the hardware's prefetchers stop at
    the end of a page, and no instruction of the next row starts before the results of this one's
    reductions are there."""
    for block in reversed(blocks_of(sch.func)):
        last = [r.buffer for r in block.reads if _is_last_reader(sch, block, r.buffer)]
        names = tuple(b.name for b in last if b in sch.func.params and b.ndim == rank + 1)
        nest = sch.get_loops(sch.get_block(block.name))[outer:]
        if not names or [_kind(sch, loop) for loop in nest] != ["serial", "vectorized"]:
            continue
        count, lanes = (constant(extent_of(sch, loop)) or 0 for loop in nest)
        sch.annotate(nest[0], "prefetch", (max(count, AHEAD // lanes), names))


def _is_last_reader(sch: Schedule, block: Block, buffer: Buffer) -> bool:
    readers = [b for b in blocks_of(sch.func) if any(r.buffer is buffer for r in b.reads)]
    return readers[-1] is block


def _kind(sch: Schedule, loop: LoopRV) -> str:
    found = sch.get(loop)
    assert isinstance(found, For)
    return found.kind


def _partial_sums(sch: Schedule, loop: LoopRV, target: Target) -> int:
    """Up to four vectors of them, so that additions need not wait for each other."""
    lanes, extent = target.lanes("float32"), extent_of(sch, loop)
    size = constant(extent) or 0  # none if symbolic
    most = Analyzer.for_shapes(extent).upper_bound(extent)
    fitting = (n for n in (4, 2) if size % (n * lanes) == 0 and (most is None or n * lanes <= most))
    return lanes * next(fitting, 1)
