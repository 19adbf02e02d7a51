"""`tvm.tir.transform`: passes over loop functions, the user's and some of the core's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.compact import compact_buffers
from relaxlab.tvm.transform import Pass, PassContext, PassInfo, decorator


def _each_loop_function(body: Callable[..., Any], mod: Module, context: PassContext) -> Module:
    updates = {name: body(func, mod, context) for name, func in mod.loop_functions().items()}
    kept = mod.without(*(name for name, func in updates.items() if func is None))
    return kept.with_functions({k: f for k, f in updates.items() if f is not None})


prim_func_pass = decorator(_each_loop_function, "transform_function")
"""Makes a pass of a function `(func, mod, context) -> func`; None takes a function out."""


def _pass(name: str, transform: Callable[[PrimFunc], PrimFunc | None]) -> Pass:
    def run(mod: Module, context: PassContext) -> Module:
        return _each_loop_function(lambda func, *_: transform(func), mod, context)

    return Pass(run, PassInfo(0, name))


def Apply(ftransform: Callable[[PrimFunc], PrimFunc | None]) -> Pass:  # noqa: N802
    """A pass that applies a function to each loop function."""
    return _pass("Apply", ftransform)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """A pass that keeps the loop functions for which a function returns True."""
    return _pass("Filter", lambda func: func if fcond(func) else None)


def CompactBufferAllocation(is_strict: bool = True) -> Pass:  # noqa: N802
    """Make private buffers as small as one iteration of the loops around them needs."""
    if not is_strict:
        raise NotImplementedError("CompactBufferAllocation(is_strict=False)")
    return _pass("CompactBufferAllocation", compact_buffers)


def StmtSimplify() -> Pass:  # noqa: N802
    """Simplify indices, conditions and bounds; conditions that always hold disappear."""

    def simplify(func: PrimFunc) -> PrimFunc:
        return replace(func, body=simplify_indices(func.body, symbols_in(func.params)))

    return _pass("StmtSimplify", simplify)


Simplify = StmtSimplify
"""The older name."""
