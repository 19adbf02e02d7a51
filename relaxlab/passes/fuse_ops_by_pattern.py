"""Group what patterns match into functions, beside the grouping by kinds of `fuse_ops`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, tir_call, use_counts, with_bindings
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.passes.outline import is_scalar, outline_bindings
from relaxlab.passes.patterns import Match, Pattern
from relaxlab.passes.patterns.match import BlockScope, Matcher, NearestMiss
from relaxlab.tracing import may_apply, remark


@dataclass(frozen=True, slots=True)
class FusionPattern:
    """A pattern whose matches become functions with the attribute `Composite` = `name`. `check` may
    refuse a match with a reason; `attrs` returns further attributes of its function."""

    name: str
    pattern: Pattern
    check: Callable[[Match], str | None] | None = None
    attrs: Callable[[Match], Mapping[str, object]] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class PatternFusionOptions:
    """`patterns`: in order of priority; an earlier one takes calls from later ones. `functions`:
    the names of those that are searched, all where there are none. `inside`: which constants stay
    in the functions that are made, scalars if that is not said; the others become arguments."""

    patterns: tuple[FusionPattern, ...] = ()
    functions: tuple[str, ...] | None = None
    inside: Callable[[graph.Constant], bool] | None = None


@module_pass("fuse_ops_by_pattern", PatternFusionOptions, needs=("normalize",))
def fuse_ops_by_pattern(mod: Module, options: PatternFusionOptions) -> Module:
    """Outline what matches as private functions with the attribute `Composite`; equal groups share
    a function. Nothing but the last value of a match may be read outside of it.

    The calls in a group are lowered like others; `merge_composites` then makes it one kernel.
    """
    if not options.patterns:
        return mod
    state = _Grouping(mod, options, NewFunctions(mod))
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        searched = options.functions is None or name in options.functions
        if searched and "Composite" not in fn.attrs and not fn.attrs.get("Primitive"):
            uses = use_counts(fn)
            updates[name] = map_blocks(fn, lambda b, n=name, u=uses: state.block(n, b, u))
    for one in options.patterns:
        if one.name not in state.matched:
            text = f"matched nothing; {state.misses[one.name]}"
            remark("fuse_ops_by_pattern", one.name, text, applied=False)
    return mod.with_functions({**updates, **state.outlined.made})


@dataclass(slots=True)
class _Grouping:
    mod: Module
    options: PatternFusionOptions
    outlined: NewFunctions[graph.Function]
    misses: dict[str, NearestMiss] = field(default_factory=dict[str, NearestMiss])
    matched: set[str] = field(default_factory=set[str])

    def block(
        self, name: str, blk: graph.BindingBlock, uses: dict[graph.Var, int]
    ) -> graph.BindingBlock:
        scope = BlockScope(self.mod, blk, uses)
        taken: set[graph.Var] = set()
        calls: dict[graph.Var, graph.Call] = {}
        for one in self.options.patterns:
            miss = self.misses.setdefault(one.name, NearestMiss())
            matcher = Matcher(scope, miss, name)
            for b in blk.bindings:
                found = matcher.at(one.pattern, b.var)
                if found is None:
                    continue
                self.matched.add(one.name)
                reason = self.refusal(one, found, scope, taken)
                members = ", ".join(f"`{v.name}`" for v in found.members)
                subject = f"{name}.{b.var.name}"
                if reason is not None:
                    remark("fuse_ops_by_pattern", subject, reason, applied=False)
                elif may_apply(
                    "fuse_ops_by_pattern", subject, f"{one.name}: {members} become one function"
                ):
                    taken |= set(found.members)
                    calls[b.var] = self.outline(one, found, scope)
        kept: list[graph.Binding] = []
        for b in blk.bindings:
            if b.var in calls:
                b = replace(b, value=calls[b.var])  # type: ignore[call-arg]
            elif b.var in taken:
                continue
            kept.append(b)
        return with_bindings(blk, kept)

    def refusal(
        self, one: FusionPattern, found: Match, scope: BlockScope, taken: set[graph.Var]
    ) -> str | None:
        for v in found.members:
            if v in taken:
                return f"{one.name}: `{v.name}` is in a group already"
        for v in found.leaking():
            return f"{one.name}: `{v.name}` is read outside the group, too"
        stale = scope.overwritten(found.members, scope.position[found.root])
        if stale is not None:
            return f"{one.name}: what `{stale.name}` reads is overwritten in between"
        return one.check(found) if one.check is not None else None

    def outline(self, one: FusionPattern, found: Match, scope: BlockScope) -> graph.Call:
        members = [scope.bindings[scope.position[v]] for v in found.members]
        attrs = Attrs(Composite=one.name)
        if one.attrs is not None:
            attrs = attrs.with_(**one.attrs(found))
        inside = self.options.inside or is_scalar
        fn, args = outline_bindings(members, [found.root], attrs, inside)  # type: ignore[arg-type]
        hint = "fused_" + "".join(c if c.isalnum() else "_" for c in one.name)
        return graph.Call(graph.GlobalVar(self.outlined.name_of(fn, hint)), args)


@module_pass("merge_composites", needs=("normalize",))
def merge_composites(mod: Module, _: NoOptions) -> Module:
    """Make kernels of `Composite` functions: one whose body has become calls of loop functions gets
    the attribute `Primitive`, which `fuse_tir` turns into one loop function."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if "Composite" not in fn.attrs or fn.attrs.get("Primitive"):
            continue
        reason = _not_a_kernel(fn)
        if reason is not None:
            remark("merge_composites", name, reason, applied=False)
        elif may_apply("merge_composites", name, "is one kernel"):
            updates[name] = replace(fn, attrs=fn.attrs.with_(Primitive=True))
    return mod.with_functions(updates)


def _not_a_kernel(fn: graph.Function) -> str | None:
    """Return the reason why the body cannot be one loop function, if there is one."""
    for b in all_bindings(fn):
        call = tir_call(b.value)
        if call is None or len(call.outs) != 1 or call.inplace:
            return f"`{b.var.name}` is no call of a loop function with one result"
        if any(not isinstance(a, graph.Var) for a in call.args):
            return f"`{b.var.name}` reads a constant"
    return None if isinstance(fn.body.body, graph.Var) else "its result is a tuple"
