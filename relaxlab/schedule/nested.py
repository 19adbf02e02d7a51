"""Versions of a function, each with a schedule of its own, in one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.tree import all_blocks


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a size has. general: the bound that the last one may rely on, where a
    declared bound leaves no larger sizes; guarded: the bounds of those before it, ascending."""

    general: int | None
    guarded: tuple[int, ...]


def versions_for(
    func: PrimFunc, size: PrimExpr, bounds: Sequence[int], exact: int = 1
) -> Versions:
    """Return the versions of a function for sizes up to each of the bounds and for any other; those
    up to `exact` are for one size each.

    Of a constant size there is one. Raises ScheduleError where the bounds do not ascend, or the
    size is not known when the function is called.
    """
    if any(b < 1 for b in bounds) or list(bounds) != sorted({*bounds}):
        raise ScheduleError("guarded_versions", f"size {size}", "bounds are positive and ascend")
    if isinstance(size, IntImm):
        fits = (b for b in bounds if size.value == b or size.value <= b > exact)
        return Versions(next(fits, None), ())
    known = {*func.params, *symbols_in(tuple(b.shape for b in func.buffers))}
    if not known.issuperset(symbols_in(size)):
        raise ScheduleError(
            "guarded_versions", f"size {size}", "its symbols are arguments or their dimensions"
        )
    most = shape_analyzer(func).upper_bound(size)
    largest = next((b for b in bounds if b > exact and most is not None and most <= b), None)
    smaller = [b for b in bounds if largest is None or b < largest]
    # Exact sizes are put in the place of a symbol; there is no place for them in other sizes.
    return Versions(largest, tuple(b for b in smaller if b > exact or isinstance(size, Var)))


def with_size(func: PrimFunc, size: PrimExpr, value: int) -> PrimFunc:
    """The function where a symbol is a number; a parameter of that name stays one."""
    if not isinstance(size, Var):
        return func
    made = substitute(func, {size: const(value)})
    kept = (p if p is size else q for p, q in zip(func.params, made.params, strict=True))
    return replace(made, params=tuple(kept))


def chosen_by_size(
    size: PrimExpr, general: PrimFunc, guarded: Sequence[tuple[int, PrimFunc]], exact: int
) -> PrimFunc:
    """Return `if size <= bound: its version … else: general version`, `size == bound` for bounds up
    to `exact`.

    Raises ScheduleError where versions have parameters in different layouts.
    """
    body: loops.Stmt = general.body
    taken = _allocated(body)
    for bound, version in reversed(guarded):
        same: dict[Buffer, Buffer] = {}
        for a, b in zip(version.params, general.params, strict=True):
            if isinstance(a, Buffer) and isinstance(b, Buffer):
                _require_same_layout(size, bound, exact, a, b)
                same[a] = b
        # Steps before this one may have allocated for all versions: each has buffers of its own.
        own = _allocated(version.body)
        same |= {b: replace(b, name=b.name) for b in own & taken}
        taken |= own
        guard = (expr.EQ if bound <= exact else expr.LE)(size, const(bound))
        body = loops.IfThenElse(guard, substitute(version.body, buffers=same), body)
    return replace(general, body=body)


def _allocated(body: loops.Stmt) -> set[Buffer]:
    return {b for block in all_blocks(body) for b in block.alloc_buffers}


def _require_same_layout(size: PrimExpr, bound: int, exact: int, a: Buffer, b: Buffer) -> None:
    known = {size: const(bound)} if bound <= exact and isinstance(size, Var) else {}
    an = Analyzer()
    shape = tuple(substitute(d, known) for d in b.shape)
    if a.ndim != b.ndim or not all(map(an.prove_equal, a.shape, shape)):
        raise ScheduleError(
            "guarded_versions", f"parameter {a.name}",
            "all versions change the layout of a parameter alike", about=(a,),
        )  # fmt: skip
