"""Primitives that set the kind of a loop: parallel, balance, vectorize, unroll, unroll_and_jam,
bind."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import ForKind, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.annotate import BALANCED, UNROLL_AND_JAM, annotate
from relaxlab.schedule.dependence import require_order_free, require_own_elements
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.scope import axes_bound_to
from relaxlab.schedule.tree import LoopPlace, describe_loop, find_loop

_THREADS = {f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"}
_OF_A_THREAD = ("global", "local")
"""Scopes that lanes, and iterations that are jammed, share: unlike threads, they are of one."""


def parallel(func: PrimFunc, var: Var) -> PrimFunc:
    """Run the iterations of a loop on several threads; they must not accumulate together."""
    return _concurrent(func, var, "parallel", "parallel")


def balance(func: PrimFunc, var: Var, inner: Var | None) -> PrimFunc:
    """Run the iterations of a loop on several threads, each with an equal part of the work; with
    `inner`, the loop that is all of its body, shares end between iterations of that one."""
    if inner is not None:
        place, within = find_loop(func, var, "balance"), find_loop(func, inner, "balance")
        if place.loop.body is not within.loop:
            raise ScheduleError(
                "balance", describe_loop(within.loop),
                f"the loop is all that is in {describe_loop(place.loop)}", about=(inner,),
            )  # fmt: skip
        _require_concurrent(within, "balance")
    func = _concurrent(func, var, "parallel", "balance")
    return annotate(func, var, BALANCED, 1 if inner is None else 2)


def vectorize(func: PrimFunc, var: Var) -> PrimFunc:
    """Run the iterations of a loop as the lanes of vectors; the extent must be a constant."""
    _of_constant_extent(func, var, "vectorize")
    return _concurrent(func, var, "vectorized", "vectorize", _OF_A_THREAD)


def unroll(func: PrimFunc, var: Var) -> PrimFunc:
    """Repeat the body of a loop in the code instead of jumping back."""
    place = find_loop(func, var, "unroll")
    if place.loop.kind == "thread_binding":
        raise ScheduleError(
            "unroll", describe_loop(place.loop), "the loop is not bound to threads", about=(var,)
        )
    return place.replaced(replace(place.loop, kind="unrolled"))


def unroll_and_jam(func: PrimFunc, var: Var) -> PrimFunc:
    """Repeat the body of a loop whose iterations are independent inside of the loops in it: each
    step of these is made for all iterations at once."""
    _of_constant_extent(func, var, "unroll_and_jam")
    func = _concurrent(func, var, "unrolled", "unroll_and_jam", _OF_A_THREAD)
    return annotate(func, var, UNROLL_AND_JAM, 1)


def _of_constant_extent(func: PrimFunc, var: Var, primitive: str) -> LoopPlace:
    place = find_loop(func, var, primitive)
    if not isinstance(place.loop.extent, expr.IntImm):
        raise ScheduleError(
            primitive, describe_loop(place.loop),
            f"the extent is a constant; it is {place.loop.extent}",
            suggestion=f"split({var.name}, factors=[None, 16]) and {primitive} the inner loop",
            about=(var,),
        )  # fmt: skip
    return place


def bind(func: PrimFunc, var: Var, thread: str) -> PrimFunc:
    """Spread the iterations of a loop over a GPU thread axis such as `threadIdx.x`."""
    place = find_loop(func, var, "bind")
    if thread not in _THREADS | {"vthread"}:
        raise ScheduleError(
            "bind", describe_loop(place.loop), f"{thread!r} is a thread axis",
            suggestion="use blockIdx.x/y/z, threadIdx.x/y/z or vthread.x/y/z",
        )  # fmt: skip
    require_order_free("bind", place)
    reduced = [r for r, axis in axes_bound_to(var, place.loop.body) if axis.kind != "spatial"]
    for realize in reduced:
        require_reassociable("bind", func, realize.block)
    if not thread.startswith("threadIdx"):
        _require_no_reduction(place, "bind")
        require_own_elements("bind", place)
    elif not reduced:  # a reduction is one across threads
        require_own_elements("bind", place, ("global", "shared"))
    return place.replaced(replace(place.loop, kind="thread_binding", thread=thread))


def _concurrent(
    func: PrimFunc, var: Var, kind: ForKind, primitive: str, shared: tuple[str, ...] = ("global",)
) -> PrimFunc:
    """The loop with iterations that run at once, and share the buffers of some scopes."""
    place = find_loop(func, var, primitive)
    _require_concurrent(place, primitive, shared)
    return place.replaced(replace(place.loop, kind=kind))


def _require_concurrent(
    place: LoopPlace, primitive: str, shared: tuple[str, ...] = ("global",)
) -> None:
    """Raise ScheduleError unless the iterations of the loop may run at once."""
    require_order_free(primitive, place, shared)
    _require_no_reduction(place, primitive)
    require_own_elements(primitive, place, shared)


def _require_no_reduction(place: LoopPlace, primitive: str) -> None:
    var = place.loop.loop_var
    for realize, axis in axes_bound_to(var, place.loop.body):
        if axis.kind != "spatial":
            block = realize.block.name
            raise ScheduleError(
                primitive, describe_loop(place.loop),
                f"the loop runs over spatial axes only; {axis.kind} axis {axis.var.name} of block "
                f"{block!r} is bound to it, so its iterations accumulate into one element",
                suggestion=f"rfactor({var.name}), or {primitive} a spatial loop",
                about=(var,),
            )  # fmt: skip
