"""Schedule every loop function by rule, in a context that has its weights and the bounds of its
symbols."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph
from relaxlab.ir.errors import counted
from relaxlab.ir.graph import Call, Constant, GlobalVar, Op
from relaxlab.ir.loops import IS_SCHEDULED, BlockRealize, For, PrimFunc, SeqStmt, Stmt
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.processes import map_forked
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.ir.types import TensorType
from relaxlab.passes.base import module_pass
from relaxlab.passes.lift_transform_params import depending_on_weights
from relaxlab.schedule.bounds import UPPER_BOUNDS
from relaxlab.schedule.decisions import SEPARATOR, Decided, Made, Sampled
from relaxlab.schedule.known_schedules import KnownSchedules, key_of, source_stamp
from relaxlab.schedule.rules import replay_kernel, schedule_kernel
from relaxlab.schedule.rules.context import FACTS, Context
from relaxlab.tracing import Remark, recording, remark
from relaxlab.tracing.limit import Rewrites, first_rewrites, limits_steps, may_repeat

Scheduled: TypeAlias = tuple[PrimFunc, list[Remark], list[Remark]]
"""A kernel, the remarks of the rules on it, and those of these remarks that may be left out."""
KNOWN = KnownSchedules()
SECONDS = 2e-4
"""Time to schedule a node of a loop function: 100 to 500 microseconds, more where it gets many
versions."""


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """target: the machine to schedule for; None: this one. versions: whether kernels may have
    versions for single values of their symbols, such as one row, beside the general one. decisions:
    the schedules of kernels by name: values for some of the decisions, or a trace; tuned: the same
    by `Context.key_of` of the kernel, where `decisions` have no other; seed: the rest is drawn from
    the candidates, None: they are the defaults."""

    target: Target | None = None
    versions: bool = True
    decisions: Mapping[str, Made] = field(default_factory=dict[str, Made])
    tuned: Mapping[str, Made] = field(default_factory=dict[str, Made])
    seed: int | None = None

    def follows_rules(self, kernel: str) -> bool:
        """True if nothing but the rules decides on the schedule of a kernel."""
        decided = self.tuned or self.decisions.get(kernel) or self.seed is not None
        return not (decided or limits_steps())

    def schedule(self, kernel: str, func: PrimFunc, context: Context) -> PrimFunc:
        """Return the kernel scheduled."""
        others = None if self.seed is None else Sampled(f"{self.seed}{SEPARATOR}{kernel}")
        given = self.decisions.get(kernel, {})
        tuned = self.tuned.get(context.key_of(func)) if self.tuned else None
        if isinstance(tuned, str) and not given:
            remark("schedule_kernels", kernel, "tuned: by a trace")
            given = tuned
        elif tuned and not isinstance(tuned, str) and not isinstance(given, str):
            remark("schedule_kernels", kernel, f"tuned: {counted(len(tuned), 'decision')}")
            given = {**tuned, **given}
        if isinstance(given, str):
            made, given = replay_kernel(kernel, func, context, given), {}
            if made is not None:
                return made
        return schedule_kernel(kernel, func, context, Decided(given, others))


@module_pass("schedule_kernels", ScheduleOptions)
def schedule_kernels(mod: Module, options: ScheduleOptions) -> Module:
    """Schedule each loop function once, by the first rule that fits; it has the attribute
    `tir.is_scheduled` afterwards."""
    target = options.target or Target.host()
    weights, bounds = _weight_params(mod), _upper_bounds(mod)
    # The pass runs twice in the pipeline, and a user's own schedules are not to be undone.
    found = [
        (name, f)
        for name, f in mod.items()
        if isinstance(f, PrimFunc) and not f.attrs.get(IS_SCHEDULED)
    ]

    def context_of(name: str) -> Context:
        given = frozenset(weights.get(name, ()))
        return Context(target, given, bounds.get(name, {}), options.versions)

    def scheduled(item: tuple[str, PrimFunc]) -> Scheduled:
        name, f = item
        # A limited schedule depends on the rewrites and steps before it. Without a limit on steps
        # each kernel is scheduled once, and left out where the rewrites are limited.
        in_order = nullcontext(Rewrites()) if limits_steps() else first_rewrites(None)
        with recording() as remarks, in_order as rewrites:
            if not _runs(f.body):
                remark("schedule_kernels", name, "its loops have no iterations", applied=False)
                return _marked(f), remarks, []
            new = options.schedule(name, f, context_of(name))
            restored: dict[str, Any] = {name: f.attrs.get(name) for name in FACTS}
            return _marked(new, **restored), remarks, rewrites.made

    seconds = [0.0 if limits_steps() else SECONDS * sum(1 for _ in walk(f)) for _, f in found]
    stamp, by_rule = source_stamp(), [(n, f) for n, f in found if options.follows_rules(n)]
    keys = {n: (stamp, key_of(n, f, context_of(n))) for n, f in by_rule}
    results = {n: KNOWN.find(keys[n], f) for n, f in found if n in keys}
    left = [i for i, (name, _) in enumerate(found) if results.get(name) is None]
    made = map_forked(
        scheduled, [found[i] for i in left], [seconds[i] for i in left], [f for _, f in found]
    )
    for i, result in zip(left, made, strict=True):
        name, f = found[i]
        results[name] = result
        if name in keys:
            KNOWN.keep(keys[name], f, result)
    updates: dict[str, PrimFunc] = {}
    for name, f in found:
        new, remarks, rewrites = results[name]
        updates[name] = new if may_repeat(remarks, rewrites) else _marked(f)
    return mod.with_functions(updates)


def _marked(f: PrimFunc, **attrs: Any) -> PrimFunc:
    """The function with these attributes, and as one that is scheduled."""
    return replace(f, attrs=f.attrs.with_(**attrs, **{IS_SCHEDULED: True}))


def _runs(s: Stmt) -> bool:
    """False if a statement is known to do nothing: loops without iterations have no values that
    their variables could be split into."""
    match s:
        case For(_, _, expr.IntImm(extent)) if extent <= 0:
            return False
        case SeqStmt(stmts):
            return any(map(_runs, stmts))
        case For(body=body):
            return _runs(body)
        case BlockRealize(block=block):
            return _runs(block.body)
        case _:
            return True


def _weight_params(mod: Module) -> dict[str, set[int]]:
    """Per loop function, the parameters that every call passes a weight, a constant, or a value of
    these alone."""
    found: dict[str, set[int]] = {}
    for f in mod.graph_functions().values():
        count = f.attrs.get("num_input")
        given = set(f.params[count:]) if count is not None else set[graph.Var]()
        given |= {b.var for b in depending_on_weights(f, mod)}
        for call in walk(f):
            match call:
                case Call(
                    Op("call_tir" | "call_tir_inplace"), (GlobalVar(name), graph.Tuple(args), *_)
                ):
                    # Only what every call passes as a weight is packed, once and ahead of all
                    # calls; an activation would be packed at each.
                    mine = {i for i, a in enumerate(args) if isinstance(a, Constant) or a in given}
                    found[name] = found.get(name, mine) & mine
                case _:
                    pass
    return found


def _upper_bounds(mod: Module) -> dict[str, dict[str, int]]:
    """Per loop function, how large its symbols get at most, by the bounds that the graph functions
    declare for theirs; symbols that some call does not bound are left out."""
    found: dict[str, dict[str, int]] = {}
    for f in mod.graph_functions().values():
        declared: Mapping[str, int] = f.attrs.get(UPPER_BOUNDS, {})
        seen: set[object] = set()  # the layers of a model call the same functions alike
        for call in walk(f):
            match call:
                case Call(
                    Op("call_tir" | "call_tir_inplace"), (GlobalVar(name), graph.Tuple(args), *_)
                ):
                    shapes = tuple(map(_shape, args))
                    if (name, shapes) in seen:
                        continue
                    seen.add((name, shapes))
                    callee = mod[name]
                    assert isinstance(callee, PrimFunc)
                    mine = _bounds_in_call(callee, shapes, declared)
                    known = found.get(name, mine)
                    # One call without a bound takes it from all: the kernel is the same for every
                    # call.
                    found[name] = {n: max(mine[n], known[n]) for n in mine if n in known}
                case _:
                    pass
    return found


def _shape(arg: graph.Expr) -> tuple[expr.PrimExpr, ...]:
    """The dimensions of an argument, none where they are not known."""
    ty = arg.ty if isinstance(arg, graph.Var) else None
    return (ty.shape if isinstance(ty, TensorType) else None) or ()


def _bounds_in_call(
    callee: PrimFunc, shapes: tuple[tuple[expr.PrimExpr, ...], ...], declared: Mapping[str, int]
) -> dict[str, int]:
    """Upper bounds of the symbols that are dimensions of the callee's parameters, by name."""
    found: dict[expr.Var, int] = {}
    for buffer, shape in zip(callee.buffers, shapes, strict=False):
        for dim, actual in zip(buffer.shape, shape, strict=False):
            upper = Analyzer.for_shapes(actual, upper=declared).upper_bound(actual)
            if isinstance(dim, expr.Var) and upper is not None:
                # Several arguments may have the symbol: each bound holds, so the smallest does.
                found[dim] = min(upper, found.get(dim, upper))
    by_name: dict[str, int] = {}
    unknown: set[str] = set()
    for symbol in symbols_in(tuple(b.shape for b in callee.buffers)):
        if symbol in found:
            by_name[symbol.name] = max(found[symbol], by_name.get(symbol.name, 0))
        else:
            unknown.add(symbol.name)
    return {name: upper for name, upper in by_name.items() if name not in unknown}
