"""Kernels written by tiles: an outer block whose iterations are independent, and inside it blocks
over private buffers, one after the other or in a loop (attention with a running maximum).

An iteration of the outer block is a unit of work for a thread. The blocks inside stay where they
are; each is made of vectors along its last axis, sums of products in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, BlockRealize, BufferLoad, For, PrimFunc, Stmt
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.assume_finite import masked_product
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    block_loops,
    constant,
    extent_of,
    found_block,
    is_spatial,
    loops_inside,
    split_vector,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import NESTED_VECTORS, PREFETCH_DISTANCE, UNROLL_ROWS
from relaxlab.schedule.rules.reductions import reduce_along_rows
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

NO_TILES = "its root block does not hold one spatial block, with blocks over its own buffers"
"""The reason why a kernel is not written by tiles."""


def outer_block(func: PrimFunc) -> Block | None:
    """The block of the tiles: spatial, alone in the root block, with blocks over its own private
    buffers inside. None where the function is not written so."""
    root = func.body
    if not isinstance(root, BlockRealize):
        return None
    inner: Stmt = root.block.body
    while isinstance(inner, For):
        inner = inner.body
    if not isinstance(inner, BlockRealize) or not is_spatial(inner.block):
        return None
    block = inner.block
    holds = any(isinstance(n, BlockRealize) for n in walk(block.body))
    return block if holds and block.alloc_buffers else None


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a function whose body is one such nest."""
    outer = outer_block(sch.func)
    if outer is None:
        return NO_TILES
    schedule_tiles(sch, outer, context)
    sch.compact_buffers()
    return sch


def schedule_tiles(
    sch: Schedule, outer: Block, context: Context, around: LoopRV | None = None,
    own: Callable[[Schedule, BlockRV], bool] = lambda _, __: False,
) -> None:  # fmt: skip
    """Schedule the block of the tiles and the blocks inside it, but those that `own` schedules, for
    which it returns True. Threads share out the tiles, or the work of those in an iteration of the
    loop `around` them."""
    lanes = context.target.lanes("float32")
    for block in _leaves_of(outer):
        rv = sch.get_block(block.name)
        if own(sch, rv):
            continue
        if masked_product(block) is not None:
            block = without_mask(sch, rv, lanes)
        if is_spatial(block):
            _elementwise(sch, rv, lanes)
        elif _is_product(block) and _is_along_rows(block):
            _dot_products(sch, rv, lanes)
        elif _is_product(block):
            product(sch, rv, context)
        else:
            _, reduce = block_loops(sch, rv)
            reduce_along_rows(sch, rv, reduce, _vectors(sch, reduce[-1], lanes) * lanes)
    rv = sch.get_block(outer.name)
    nest = sch.get_loops(rv) if around is None else loops_inside(sch, rv, around)
    # Each piece has a number of tiles of its own, which an index function tells.
    tables = [n for n in walk(extent_of(sch, nest[-1])) if isinstance(n, BufferLoad)]
    of_each = [nest.pop()] if tables and len(nest) > 1 else []
    tiles = sch.fuse(*nest) if len(nest) > 1 else nest[0]
    (sch.balance if around is not None or of_each else sch.parallel)(tiles, *of_each)


def without_mask(sch: Schedule, rv: BlockRV, lanes: int) -> Block:
    """Let a sum of masked products be one of products, whose results are seldom not finite and then
    computed again; returns its block."""
    asked, *again = sch.assume_finite(rv)
    _, loops = block_loops(sch, asked)
    reduce_along_rows(sch, asked, loops, _vectors(sch, loops[-1], lanes) * lanes)
    for one in again:
        *_, column = sch.get_loops(one)
        if _multiple(sch, column) % lanes == 0:
            split_vector(sch, column, lanes, unroll=False)
    return found_block(sch, rv)


def _leaves_of(outer: Block) -> list[Block]:
    """The blocks inside that hold no others, in program order."""
    inside = [n.block for n in walk(outer.body) if isinstance(n, BlockRealize)]
    return [b for b in inside if not any(isinstance(n, BlockRealize) for n in walk(b.body))]


def _is_product(block: Block) -> bool:
    """True if the block sums products of two loads, whose conversions and guards cost no more than
    they do."""
    found = reduction_of(block)
    if found is None or found.op is not expr.Add or not isinstance(found.value, expr.Mul):
        return False
    return all(isinstance(_unguarded(side), BufferLoad) for side in (found.value.a, found.value.b))


def _is_along_rows(block: Block) -> bool:
    """True if neighbours in memory are terms of one sum, in both of what the block multiplies."""
    found = reduction_of(block)
    assert found is not None
    terms = {it.var for it in block.iter_vars if it.kind == "reduce"}
    loads = [n for n in walk(found.value) if isinstance(n, BufferLoad)]
    return all(terms & set(symbols_in(n.indices[-1])) for n in loads)


def _unguarded(e: PrimExpr) -> PrimExpr:
    """The value without conversion, or zero in its place."""
    e = e.value if isinstance(e, expr.Cast) else e
    match e:
        case expr.Call(_, "if_then_else", (_, value, expr.IntImm(0) | expr.FloatImm(0))):
            return value
        case _:
            return e


def _multiple(sch: Schedule, loop: LoopRV) -> int:
    """A number that the loop's extent is a multiple of; the extent where it is constant."""
    match extent_of(sch, loop):
        case expr.IntImm(size) | expr.Mul(_, expr.IntImm(size)):
            return size
        case _:
            return 1


def _vectors(sch: Schedule, loop: LoopRV, lanes: int) -> int:
    """Vectors at a time: two need not wait for each other."""
    most = NESTED_VECTORS.of(sch, 2)
    return 1 if _multiple(sch, loop) % (most * lanes) else most


def _elementwise(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Vectors along the last of the block's axes, if it has enough elements."""
    loops, _ = block_loops(sch, rv)
    if not loops or _multiple(sch, loops[-1]) % lanes:
        return
    size = constant(extent_of(sch, loops[-1]))
    width = _vectors(sch, loops[-1], lanes) * lanes
    # With a vector each, 16 rows fill half of the registers, and LLVM's time grows with the code.
    rows = UNROLL_ROWS.of(sch, 16)
    split_vector(sch, loops[-1], width, unroll=size is not None and size <= rows * lanes)


def _dot_products(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Partial sums per lane: of all rows with one column, which is loaded once. Short ones without
    a loop, whose end would cost as much as some of its steps."""
    (*_, row, column), (depth,) = block_loops(sch, rv)
    rows, size = constant(extent_of(sch, row)), constant(extent_of(sch, depth))
    sch.reorder(column, row)
    partial = reduce_along_rows(sch, rv, [depth], _vectors(sch, depth, lanes) * lanes)
    is_short = size is not None and size <= UNROLL_ROWS.of(sch, 16) * lanes
    if partial is None or rows is None or not is_short:
        return
    (*_, row, _), steps = block_loops(sch, partial)
    for loop in (row, *steps):
        sch.unroll(loop)


def product(sch: Schedule, rv: BlockRV, context: Context) -> None:
    """Rows by vectors of columns in registers over the whole reduction: their sums take half of
    the registers, operands the others."""
    lanes, most = context.target.lanes("float32"), context.target.facts.vector_registers // 2
    (*_, row, column), (depth,) = block_loops(sch, rv)
    rows, vectors = _multiple(sch, row), _multiple(sch, column) // lanes
    if vectors * lanes != _multiple(sch, column):
        return
    fitting = (n for n in range(2, vectors + 1) if vectors % n == 0 and n * rows <= most)
    at_once = max(fitting, default=1)
    part, column = sch.split(column, factors=[None, at_once * lanes])
    sch.reorder(part, depth, row, column)
    init = sch.decompose_reduction(rv, depth)
    apart = _rows_apart(found_block(sch, rv))
    # The hardware fetches what follows in memory. Tiles otherwise wait for the values of one of
    # several heads: 1024 positions took 1.19 times as long (NOTES, *Sequences of different
    # lengths*).
    if apart and (distance := PREFETCH_DISTANCE.of(sch, 16)):
        sch.annotate(depth, "prefetch", (distance, apart))
    for one in (init, rv):
        *_, row, column = sch.get_loops(one)
        split_vector(sch, column, lanes, unroll=True)
        sch.unroll(row)


def _rows_apart(block: Block) -> tuple[str, ...]:
    """The operands in main memory of which a product reads a row for each term, where rows are not
    next to each other."""
    *_, column = (it.var for it in block.iter_vars if it.kind == "spatial")
    terms = {it.var for it in block.iter_vars if it.kind == "reduce"}

    def apart(n: BufferLoad) -> bool:
        *rows, last = n.indices
        at = [p for p, i in enumerate(rows) if terms & set(symbols_in(i))]
        between = n.buffer.shape[max(at) + 1 : -1] if at else ()
        return column in symbols_in(last) and any(constant(d) != 1 for d in between)

    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    found = (n.buffer.name for n in loads if n.buffer.scope == "global" and apart(n))
    return tuple(dict.fromkeys(found))
