"""Several scheduled versions of one kernel, guarded by predicates on its number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.substitute import substitute
from relaxlab.tracing.limit import Stopped

ONE_VERSION = "one_version"
"""The attribute of a loop function that is to have its general version only."""
UPPER_BOUNDS = "tir_var_upper_bound"
"""The attribute that has the largest values of symbols, by name."""


def guarded_versions(
    func: PrimFunc,
    rows: PrimExpr,
    bounds: Sequence[int],
    schedule: Callable[[PrimFunc, int | None], PrimFunc],
) -> PrimFunc:
    """Return `if rows <= bound: version for at most that many rows … else: general version`.

    `bounds` ascend; a bound of 1 means one row exactly, and the version has the symbol replaced
    by it. `schedule(func, bound)` schedules one version, the general one for None; where it returns
    that one for a bound, too, the next larger version takes these sizes. Where the rows are
    constant there is one version only; with the attribute `ONE_VERSION`, the general one. All must
    change the layouts of the parameters alike.
    """

    def version(func: PrimFunc, bound: int | None) -> PrimFunc:
        try:
            return schedule(func, bound)
        except Stopped as stop:  # as far as it came where the number of steps is limited
            return stop.state

    if isinstance(rows, IntImm):
        return version(func, next((b for b in bounds if rows.value <= b), None))
    # Where declared bounds leave no larger sizes, the version for the bound is the general one.
    known = Analyzer.for_shapes(rows, upper=func.attrs.get(UPPER_BOUNDS, {})).upper_bound(rows)
    largest = next((b for b in bounds if b > 1 and known is not None and known <= b), None)
    general = version(func, largest)
    if func.attrs.get(ONE_VERSION):
        return general
    bounds = [b for b in bounds if largest is None or b < largest]
    body: loops.Stmt = general.body
    for bound in reversed(bounds):
        if bound == 1 and not isinstance(rows, Var):  # nothing could be replaced by it
            continue
        one = bound == 1
        single = substitute(func, {rows: const(1)}) if one and isinstance(rows, Var) else func
        fixed = version(single, bound)
        if fixed is general:  # copies of its private buffers would be those of several threads
            continue
        same = {
            a: b
            for a, b in zip(fixed.params, general.params, strict=True)
            if isinstance(a, Buffer) and isinstance(b, Buffer)
        }
        guard = expr.EQ(rows, const(1)) if one else expr.LE(rows, const(bound))
        body = loops.IfThenElse(guard, substitute(fixed.body, buffers=same), body)
    return replace(general, body=body)


def with_upper_bound(func: PrimFunc, size: Var, most: int) -> PrimFunc:
    """The function, of whose symbol `size` analyses know that it is at most `most`."""
    known = func.attrs.get(UPPER_BOUNDS, {})
    bounds = Attrs({**known, size.name: most})
    return replace(func, attrs=func.attrs.with_(tir_var_upper_bound=bounds))
