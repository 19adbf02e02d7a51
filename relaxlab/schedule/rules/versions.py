"""Several scheduled versions of one kernel, guarded by predicates on its symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.ir import expr, loops
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.tracing.limit import Stopped

ONE_VERSION = "one_version"
"""The attribute of a loop function that is to have its general version only."""


def guarded_versions(
    func: PrimFunc,
    cases: Sequence[tuple[expr.Var, int]],
    schedule: Callable[[PrimFunc, bool], PrimFunc],
) -> PrimFunc:
    """`if symbol == value: version for that value … else: general version`.

    `schedule(func, fixed)` schedules one version; `fixed` says that a symbol was given a value.
    All versions must change the layouts of the parameters alike. With the attribute `ONE_VERSION`
    there is the general one alone.
    """
    if func.attrs.get(ONE_VERSION):
        cases = ()
    general = _scheduled(schedule, func, False)
    body: loops.Stmt = general.body
    for symbol, value in reversed(cases):
        fixed = _scheduled(schedule, substitute(func, {symbol: expr.const(value)}), True)
        same = {
            a: b
            for a, b in zip(fixed.params, general.params, strict=True)
            if isinstance(a, Buffer) and isinstance(b, Buffer)
        }
        version = substitute(fixed.body, buffers=same)
        body = loops.IfThenElse(expr.EQ(symbol, expr.const(value)), version, body)
    return replace(general, body=body)


def _scheduled(
    schedule: Callable[[PrimFunc, bool], PrimFunc], func: PrimFunc, fixed: bool
) -> PrimFunc:
    """One version; as far as it came where the number of steps is limited."""
    try:
        return schedule(func, fixed)
    except Stopped as stop:
        return stop.state
