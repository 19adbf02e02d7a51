"""The iterations of loops: `T.serial(0, n, 4)`, `T.grid(n, m)`, `T.thread_binding(...)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relaxlab.analysis.arith import simplify
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import lanes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.convert import (
    attribute_value,
    cast,
    constant_int,
    elements,
    literal,
    promote,
    scalar_of,
    string_of,
)
from relaxlab.script.core import Arguments, Context
from relaxlab.script.ranges import extent_between
from relaxlab.script.values import Arg, LoopSpec, is_dict, is_sequence


def range_between(cx: Context, start: Arg | None, stop: Arg) -> loops.Range:
    if start is None:
        extent = scalar_of(cx, stop.value, stop.node)
        first: PrimExpr = literal(cx, 0, extent.dtype, stop.node)
        last = extent
    else:
        first, last = promote(cx, start.value, stop.value, stop.node, "range")
    if not first.dtype.startswith(("int", "uint")) or lanes_of(first.dtype) > 1:
        cx.fail(stop.node, "E0110", f"a loop runs over integers, not {first.dtype}")
    return loops.Range(first, extent_between(first, last))


def loop_of(kind: loops.ForKind) -> Callable[[Context, Arguments], LoopSpec]:
    def handler(cx: Context, c: Arguments) -> LoopSpec:
        a = c.bind()
        start, stop, thread = a["start"], a["stop"], a["thread"]
        assert start is not None
        if stop is not None and isinstance(stop.value, str):
            stop, thread = None, stop  # T.thread_binding(8, "threadIdx.x")
        ends = (start, stop) if stop is not None and stop.value is not None else (None, start)
        axis = None if thread is None else string_of(cx, thread, "the thread axis")
        if (kind == "thread_binding") != (axis is not None):
            c.wrong(
                "needs thread='threadIdx.x' or another axis"
                if axis is None
                else "has no parameter 'thread'",
                c.node,
            )
        notes, step = a["annotations"], a["step"]
        marks: dict[str, Any] = {}
        if notes is not None and notes.value is not None:
            if not is_dict(notes.value):
                cx.fail(notes.node, "E0106", "annotations are a dictionary")
            marks = attribute_value(cx, notes.value, notes.node)
        if (unroll := a.get("unroll")) is not None and unroll.value is not None:
            given = attribute_value(cx, unroll.value, unroll.node)
            marks = {**marks, **({"pragma_unroll": given} if given else {"disable_unroll": True})}
        values = range_between(cx, *ends)
        if step is None or step.value is None:
            return LoopSpec(kind, (values,), axis, marks)
        return _stepping(cx, LoopSpec(kind, (values,), axis, marks), step)

    return handler


def _stepping(cx: Context, spec: LoopSpec, step: Arg) -> LoopSpec:
    """The loop over the number of steps; its name stands for where a step begins."""
    by = constant_int(cx, step, "the step of a loop")
    if by < 1:
        cx.fail(step.node, "E0104", "the step of a loop must be positive")
    (values,) = spec.ranges
    zero = literal(cx, 0, values.extent.dtype, step.node)
    rounds = loops.Range(zero, simplify((values.extent + (by - 1)) // by))

    def start(var: expr.Var) -> PrimExpr:
        return values.min + cast(var, zero.dtype) * by

    return replace(spec, ranges=(rounds,), values=start)


def grid(cx: Context, c: Arguments) -> LoopSpec:
    args = c.no_keywords()
    if not args:
        c.wrong("needs at least one extent", c.node)
    ranges: list[loops.Range] = []
    for a in args:
        if is_sequence(a.value) and len(a.value) == 2:
            first, last = elements(a)
            ranges.append(range_between(cx, first, last))
        else:
            ranges.append(range_between(cx, None, a))
    return LoopSpec("serial", tuple(ranges))
