"""Upper bounds of symbols: for analyses, and for the sizes of private buffers."""

from __future__ import annotations

from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import Attrs, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError

UPPER_BOUNDS = "tir_var_upper_bound"
"""The attribute that has the largest values of symbols, by name."""
RANGES = "tir_var_range"
"""The attribute that has the ranges of scalar parameters that stand for variables of loops, by
name."""
SIGNED = "signed_scalars"
"""The attribute of a function with the names of scalar parameters that may be negative although
buffers have them as extents: those of its own nests, which then have no elements."""


def with_upper_bound(func: PrimFunc, symbol: Var, most: int) -> PrimFunc:
    """The function, of whose symbol analyses know that it is at most `most`, or a tighter bound
    that they knew before."""
    known = func.attrs.get(UPPER_BOUNDS, {})
    bounds = Attrs({**known, symbol.name: min(most, known.get(symbol.name, most))})
    return replace(func, attrs=func.attrs.with_(**{UPPER_BOUNDS: bounds}))


def bound_storage(func: PrimFunc, size: PrimExpr, most: int) -> PrimFunc:
    """The function whose `local` buffers have `most` in place of a symbol or dimension `size`: a
    thread's stack has room for constant sizes only. Raises ScheduleError where none has that size.
    """

    def bounded(dim: PrimExpr) -> PrimExpr:
        if dim == size:
            return const(most)
        return substitute(dim, {size: const(most)}) if isinstance(size, Var) else dim

    private = [b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers]
    shapes = {b: tuple(map(bounded, b.shape)) for b in private if b.scope == "local"}
    buffers = {b: replace(b, shape=shape) for b, shape in shapes.items() if shape != b.shape}
    if not buffers:
        raise ScheduleError("bound_storage", f"size {size}", "a local buffer has that size")
    return replace(func, body=substitute(func.body, buffers=buffers))
