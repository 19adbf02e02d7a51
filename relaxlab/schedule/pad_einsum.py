"""pad_einsum: round the extents of a product up, by zeros around its operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nest_over_axes,
)
from relaxlab.ir.node import replace, walk
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_unrestricted
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import redirect, refreshed, with_alloc
from relaxlab.schedule.scope import require_computed_alone
from relaxlab.schedule.tree import (
    TRUE,
    BlockPlace,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    realizes_under,
    vars_in,
)
from relaxlab.schedule.zero_divisors import division_by_data

Extents = dict[Var, PrimExpr]


def pad_einsum(func: PrimFunc, name: str, padding: Sequence[int]) -> PrimFunc:
    """Round the extent of each axis of the block up to a multiple of its `padding`.

    Operands are copied into buffers with zeros beyond their edges (blocks `X_pad`), the result is
    computed in a larger buffer and copied from there (block `X_pad`). Loops are made anew, one
    per axis.
    """
    place = find_block(func, name, "pad_einsum")
    block = place.block
    require_computed_alone("pad_einsum", place)
    require_unrestricted("pad_einsum", place)
    if len(padding) != len(block.iter_vars) or any(p < 1 for p in padding):
        count = len(block.iter_vars)
        raise _refused(block, f"there is one positive padding for each of the {count} axes")
    top = _nest_of(place)
    an = analyzer_at(place)
    extents = {
        iv.var: an.simplify((iv.dom.extent + (p - 1)) // p * p)
        for iv, p in zip(block.iter_vars, padding, strict=True)
    }
    padded = {
        iv.var: extents[iv.var]
        for iv in block.iter_vars
        if not an.prove_equal(iv.dom.extent, extents[iv.var])
    }
    _require_einsum(block, padded, an)
    before: list[Stmt] = []
    after: list[Stmt] = []
    iter_vars = tuple(replace(iv, dom=Range(ZERO, extents[iv.var])) for iv in block.iter_vars)
    body: Stmt = replace(block, iter_vars=iter_vars)
    made: list[Buffer] = []
    for buffer, indices in _accesses(block):
        # A buffer without padded axes is used as it is.
        if not any(i in padded for i in indices):
            continue
        large = Buffer(
            fresh_buffer_name(func, f"{buffer.name}_pad"),
            tuple(padded.get(i, d) for i, d in zip(indices, buffer.shape, strict=True)),  # type: ignore[arg-type]
            buffer.dtype,
        )
        made.append(large)
        body = redirect(body, buffer, large)
        if any(w.buffer is buffer for w in block.writes):
            after.append(_copy(func, large, buffer, f"{buffer.name}_pad", pad=False))
        else:
            before.append(_copy(func, buffer, large, f"{buffer.name}_pad", pad=True))
    assert isinstance(body, Block)
    nest = _around(place, refreshed(body))
    func = place.replaced(loops.seq(*before, nest, *after), top)
    for buffer in made:
        func = with_alloc(func, place.scope.name, buffer)
    return func


def _refused(block: Block, condition: str) -> ScheduleError:
    return ScheduleError("pad_einsum", describe_block(block), condition, about=(block.name,))


def _nest_of(place: BlockPlace) -> int:
    """The depth of the outermost loop around the block. Raises ScheduleError unless the block is
    alone in its loops."""
    depth = place.scope_depth + 1
    while depth < len(place.path) - 1 and not isinstance(place.path[depth], For):
        depth += 1
    if len(realizes_under(place.path[depth])) != 1:
        raise _refused(place.block, "the block is alone in its loops")
    return depth


def _accesses(block: Block) -> list[tuple[Buffer, tuple[PrimExpr, ...]]]:
    """The buffers of the block's store with the indices they are accessed at, the result last."""
    store = block.body
    assert isinstance(store, BufferStore)
    found: dict[Buffer, tuple[PrimExpr, ...]] = {store.buffer: store.indices}
    for n in walk(store.value):
        if isinstance(n, BufferLoad) and found.setdefault(n.buffer, n.indices) != n.indices:
            raise _refused(block, f"each buffer is accessed at one place; {n.buffer.name} is not")
    del found[store.buffer]
    return [*found.items(), (store.buffer, store.indices)]


def _require_einsum(block: Block, padded: Extents, an: Analyzer) -> None:
    """Zeros around the operands must not change the result."""
    store = block.body
    extents = {iv.var: iv.dom.extent for iv in block.iter_vars}
    if not isinstance(store, BufferStore):
        raise _refused(block, "the body is one store")
    division = division_by_data(block)
    if division is not None:
        raise _refused(block, f"no operand that gets zeros is a divisor, as in {division}")
    for buffer, indices in _accesses(block):
        axes = [i for i in indices if isinstance(i, Var) and i in extents]
        if len(axes) != len(indices) or len(set(axes)) != len(axes):
            raise _refused(block, f"{buffer.name} is accessed at distinct axes, nothing else")
        for i, dim in zip(axes, buffer.shape, strict=True):
            # Behind the last element that is read there must be zeros, not the rest of the buffer.
            if i in padded and not an.prove_equal(dim, extents[i]):
                raise _refused(block, f"axis {i.name} runs over all of {buffer.name}")
    for iv in block.iter_vars:
        if iv.dom.min != ZERO:
            raise _refused(block, f"axis {iv.var.name} starts at 0")
        if iv.kind == "reduce" and iv.var in padded and not _vanishes(store, iv.var):
            raise _refused(
                block,
                f"what is summed over {iv.var.name} is a product of operands that depend on it",
            )


def _vanishes(store: BufferStore, axis: Var) -> bool:
    """True if the value added is 0 where the operands that depend on `axis` are."""
    accumulator = BufferLoad(store.buffer, store.indices)
    match store.value:
        case expr.Add(a, b) if a == accumulator:
            return _factor(b, axis)
        case expr.Add(a, b) if b == accumulator:
            return _factor(a, axis)
        case _:
            return False


def _factor(e: PrimExpr, axis: Var) -> bool:
    """True if a product has operands that depend on `axis`, and no other factor that may be
    infinite: zero times infinity is no zero."""
    factors = list(_factors(e))
    depends = [isinstance(f, BufferLoad) and axis in vars_in(f) for f in factors]
    finite = (isinstance(f, expr.FloatImm) and math.isfinite(f.value) for f in factors)
    safe = (d or not is_float(f.dtype) for f, d in zip(factors, depends, strict=True))
    return any(depends) and all(a or b for a, b in zip(safe, finite, strict=True))


def _factors(e: PrimExpr) -> Iterator[PrimExpr]:
    match e:
        case expr.Mul(a, b):
            yield from _factors(a)
            yield from _factors(b)
        case expr.Cast(_, value):
            yield from _factors(value)
        case _:
            yield e


def _copy(func: PrimFunc, src: Buffer, dst: Buffer, name: str, *, pad: bool) -> Stmt:
    """A nest that copies `src` to `dst`; with `pad`, `dst` is larger and gets zeros beyond."""
    axes = tuple(Var(f"v{d}") for d in range(dst.ndim))
    value: PrimExpr = BufferLoad(src, axes)
    if pad:
        dims = zip(axes, src.shape, dst.shape, strict=True)
        inside = expr.all_of([expr.LT(v, s) for v, s, d in dims if s != d])
        value = expr.Call(dst.dtype, "if_then_else", (inside, value, expr.const(0, dst.dtype)))
    iter_vars = tuple(
        IterVar(v, Range(ZERO, d), "spatial") for v, d in zip(axes, dst.shape, strict=True)
    )
    block = Block(fresh_block_name(func, name), iter_vars, (), (), BufferStore(dst, value, axes))
    return nest_over_axes(refreshed(block), "i")


def _around(place: BlockPlace, block: Block) -> Stmt:
    """The block with larger axes in the loops that are around it, or in new ones where these are
    not one for each axis. The loops run over the axes and nothing else, which no guard is about."""
    axes = dict(zip(place.realize.iter_values, block.iter_vars, strict=True))
    if axes.keys() != {s.loop_var for s in place.loops} or len(axes) < len(block.iter_vars):
        return nest_over_axes(block, "i")
    nest: Stmt = replace(place.realize, predicate=TRUE, block=block)
    for s in reversed(place.loops):
        nest = replace(s, min=ZERO, extent=axes[s.loop_var].dom.extent, body=nest)
    return nest
