"""Group calls of loop functions that should become one kernel, and outline each group.

The paper's section 4.2, on its Algorithm 1's pattern kinds. A value may move into the call that
consumes it when every path from the value leads there (the consumer post-dominates it), so that
nothing outside the group needs the value any more. Which groups are worth having is decided by
`fusion_rules`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.target import Target
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    leaf_type,
    map_blocks,
    tir_call,
    use_counts,
    vars_in,
    with_bindings,
)
from relaxlab.passes.effects import Aliases, Cell, overlaps, summary_of
from relaxlab.passes.fusion_rules import (
    Call,
    KernelSummary,
    bytes_in,
    call_of,
    describe,
    shape_of_group,
    why_not,
)
from relaxlab.passes.lift_transform_params import depending_on_weights
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.tracing import may_apply, remark


@dataclass(frozen=True, slots=True)
class FuseOptions:
    """`target`: the machine whose limits count; None: this one. `max_group`: the most calls in one
    kernel. A chain of 256 elementwise calls takes half the time in kernels of 32 that it takes in
    kernels of 64, whose dependent steps fill the window in which a core finds independent ones;
    kernels of 16 pass through memory more often (NOTES, *Long chains*)."""

    target: Target | None = None
    max_group: int = 32


@module_pass("fuse_ops", FuseOptions, needs=("annotate_pattern_kind",))
def fuse_ops(mod: Module, options: FuseOptions) -> Module:
    """Outline groups of `call_tir` bindings as private functions with the attribute `Primitive`.

    A group's call takes the place of its last member, so it never runs before a `match_cast` that
    one of its shapes needs. Symbols that no argument's shape binds are passed as a shape (Figure
    8). Equal groups share one function. Needs `annotate_pattern_kind`.

    Remarks are about `source` and the variable `target` that it would be computed in, of the
    `members` of the kernel that this makes (all variables; the last one's value leaves it); of a
    decode that is copied, about `source` and its `copies`, pairs of a reader and the copy it reads.
    """
    state = _Fuser(mod, options)
    updates = {
        name: state.function(name, fn)
        for name, fn in mod.graph_functions().items()
        if not fn.attrs.get("Primitive")
    }
    return mod.with_functions({**updates, **state.outlined.made})


class _Fuser:
    def __init__(self, mod: Module, options: FuseOptions) -> None:
        self.mod = mod
        self.options = options
        self.limits = (options.target or Target.host()).facts.fusion
        self.summaries: dict[str, KernelSummary] = {}
        self.verdicts: dict[object, str | None] = {}
        self.outlined = NewFunctions[graph.Function](mod)

    def function(self, name: str, fn: graph.Function) -> graph.Function:
        uses = use_counts(fn)
        # Copies first: a decode with several readers has no single kernel that it could move into.
        split = map_blocks(fn, lambda blk: _Block(self, name, blk, uses).split_decodes())
        uses = use_counts(split)
        at_load = frozenset(b.var for b in depending_on_weights(split, self.mod))
        return map_blocks(split, lambda blk: _Block(self, name, blk, uses, at_load).fuse())

    def outline(self, members: list[graph.VarBinding]) -> graph.Call:
        """The call of the function that does what `members` do, in order."""
        fn, args = outline(members)
        name = self.outlined.name_of(fn, _group_name(members, self.mod))
        return graph.Call(graph.GlobalVar(name), args)


Group: TypeAlias = "tuple[Call, ...]"
"""Calls in program order; the last one's value leaves the group."""


class _Block:
    """A binding block: the readers of each value, the groups found so far, and which values depend
    on weights alone."""

    def __init__(
        self, fuser: _Fuser, name: str, blk: graph.BindingBlock, uses: Counter[graph.Var],
        at_load: frozenset[graph.Var] = frozenset(),
    ) -> None:  # fmt: skip
        self.fuser = fuser
        self.name = name
        self.block = blk
        self.uses = uses
        self.at_load = at_load
        self.calls = [call_of(i, b, fuser.mod, fuser.summaries) for i, b in enumerate(blk.bindings)]
        self.readers: dict[graph.Var, list[Call]] = {}
        self.reads: Counter[graph.Var] = Counter()
        for c in self.calls:
            read = Counter(vars_in(c.binding.value))
            self.reads.update(read)
            for v in read:
                self.readers.setdefault(v, []).append(c)
        self.aliases = Aliases(summary_of(fuser.mod))
        self.writes: list[tuple[int, set[Cell]]] = []
        for c in self.calls:
            self.aliases.note(c.binding)
            cells = set(self.aliases.overwritten(c.binding.value))
            if cells:
                self.writes.append((c.index, cells))

    def label(self, c: Call) -> str:
        kernel = "" if c.tir is None else f" ({c.callee})"
        return f"{self.name}.{c.var.name}{kernel}"

    def escapes(self, c: Call) -> bool:
        """True if the value is used outside the block."""
        return self.reads[c.var] != self.uses[c.var]

    # --- Cheap decodes with several readers ---------------------------------------------------

    def split_decodes(self) -> graph.BindingBlock:
        """Give each reader of a cheap decode its own copy, which can then move into the reader."""
        copies: dict[Call, list[tuple[Call, graph.Var]]] = {}
        split: set[Call] = set()
        for c in reversed(self.calls):
            readers = self.readers.get(c.var, [])
            # A reader that is itself copied has no single place to compute its argument in.
            if len(readers) < 2 or self.escapes(c) or not split.isdisjoint(readers):
                continue
            reason = f"copied for its {len(readers)} readers: it is cheap to repeat, and what "
            reason += "it reads has fewer bytes than its value"
            if not self._is_decode(c, readers):
                continue
            own = [replace(c.var, name=f"{c.var.name}_{i}") if i else c.var
                   for i in range(len(readers))]  # fmt: skip
            pairs = tuple((r.var, v) for r, v in zip(readers, own, strict=True))
            if may_apply("fuse_ops", self.label(c), reason, source=c.var, copies=pairs):
                split.add(c)
                for reader, copy in zip(readers, own, strict=True):
                    copies.setdefault(reader, []).append((c, copy))
        new: list[graph.Binding] = []
        for c in self.calls:
            mine = copies.get(c, [])
            new += [self._copy(source, copy) for source, copy in mine]
            if c not in split:
                new.append(substitute(c.binding, values={s.var: v for s, v in mine}))
        return with_bindings(self.block, new)

    def _copy(self, source: Call, var: graph.Var) -> graph.Binding:
        if var is source.var:
            return source.binding
        return replace(source.binding, var=var)  # type: ignore[call-arg]

    def _is_decode(self, c: Call, readers: list[Call]) -> bool:
        if c.summary is None or c.tir is None or c.summary.costly or c.kind > PatternKind.INJECTIVE:
            return False
        if self._overwritten(c, len(self.calls)):
            return False
        given = sum((bytes_in(leaf_type(a)) for a in dict.fromkeys(c.tir.args)), expr.const(0))
        made = bytes_in(c.tir.outs[0])
        fewer = Analyzer.for_shapes((given, made)).prove(expr.LT(given, made))
        return fewer is True and all(why_not((c, r), self.fuser.limits) is None for r in readers)

    # --- Grouping -----------------------------------------------------------------------------

    def fuse(self) -> graph.BindingBlock:
        """The block with each group of two or more calls replaced by one call."""
        groups: dict[Call, Group] = {c: (c,) for c in self.calls}
        targets = self._post_dominators()
        for c in self.calls:
            target = targets[c]
            # A call in the middle of a group goes where the group goes; only its last one can be
            # extended.
            if c.tir is None or groups[c][-1] is not c:
                continue
            subject = self.label(c)
            if target is None:
                if self.escapes(c) and self.reads[c.var]:
                    reason = "its value is used outside, too"
                    remark("fuse_ops", subject, reason, applied=False, source=c.var)
                continue
            subject = f"{subject} into {self.label(target)}"
            # All calls on the way to the post-dominator join, so that no value of the kernel is
            # read outside of it.
            parts = [groups[x] for x in (c, *self._between(c, target), target)]
            # By place in the program, an order in which each value is made before it is read.
            merged = tuple(sorted({m for g in parts for m in g}, key=lambda m: m.index))
            about = {"source": c.var, "target": target.var, "members": [m.var for m in merged]}
            reason = self._refusal(merged)
            if reason is None and self._is_for_load(groups[c], target):
                reason = "it depends on weights alone, so that it is computed once"
            if reason is not None:
                remark("fuse_ops", subject, reason, applied=False, **about)
            elif may_apply("fuse_ops", subject, describe(merged), **about):
                groups.update(dict.fromkeys(merged, merged))
        return self._rebuild(groups)

    def _refusal(self, members: Group) -> str | None:
        if len(members) > self.fuser.options.max_group:
            return f"the kernel would do more than {self.fuser.options.max_group} calls"
        sink = members[-1]
        for m in members:
            if self._overwritten(m, sink.index):
                return f"what {m.var.name} reads is overwritten before {sink.var.name} is computed"
        # The layers of a model ask the same question over and over: its verdict is kept.
        key = shape_of_group(members)
        if key not in self.fuser.verdicts:
            self.fuser.verdicts[key] = why_not(members, self.fuser.limits)
        return self.fuser.verdicts[key]

    def _is_for_load(self, group: Group, target: Call) -> bool:
        """True if what a group makes of weights alone is for a call that needs more, and stored
        instead of the weights it takes no more bytes. A permutation of one weight is left to the
        layout that the kernel chooses for it."""
        if group[-1].var not in self.at_load or target.var in self.at_load:
            return False
        made_inside = {m.var for m in group}
        taken = dict.fromkeys(
            a for m in group for a in (m.tir.args if m.tir else ()) if a not in made_inside
        )
        weights = [a for a in taken if isinstance(a, graph.Var)]
        read = (r.var for w in weights for r in self.readers[w])
        if not self.at_load.issuperset(read) or any(self.reads[w] != self.uses[w] for w in weights):
            return False
        given = sum((bytes_in(leaf_type(a)) for a in taken), expr.const(0))
        made = bytes_in(leaf_type(group[-1].var))
        an = Analyzer.for_shapes((given, made))
        permuted = len(taken) == 1 and all(m.summary and m.summary.moves for m in group)
        if permuted and an.prove(expr.EQ(given, made)):
            return False
        return an.prove(expr.LE(made, given)) is True

    def _overwritten(self, c: Call, until: int) -> bool:
        """True if something `c` reads is overwritten between it and position `until`."""
        later = [cells for at, cells in self.writes if c.index < at < until]
        return bool(later) and any(
            overlaps(cell, cells) for cell in self.aliases.read(c.binding.value) for cells in later
        )

    def _post_dominators(self) -> dict[Call, Call | None]:
        """Return, for each call, the first one that every use of its value leads to (None: the
        value is used outside the block, or not at all)."""
        targets: dict[Call, Call | None] = {}
        depth: dict[Call, int] = {}

        def meet(a: Call | None, b: Call | None) -> Call | None:
            while a is not b and a is not None and b is not None:
                if depth[a] >= depth[b]:
                    a = targets[a]
                else:
                    b = targets[b]
            return a if a is b else None

        for c in reversed(self.calls):
            readers = self.readers.get(c.var, [])
            found = readers[0] if readers and not self.escapes(c) else None
            for r in readers[1:]:
                found = meet(found, r)
            targets[c] = found
            depth[c] = 0 if found is None else depth[found] + 1
        return targets

    def _between(self, c: Call, target: Call) -> list[Call]:
        """The calls on the paths from `c` to `target`, both left out."""
        seen: dict[Call, None] = {}
        pending = [c]
        while pending:
            for r in self.readers.get(pending.pop().var, []):
                if r is not target and r not in seen:
                    seen[r] = None
                    pending.append(r)
        return list(seen)

    def _rebuild(self, groups: dict[Call, Group]) -> graph.BindingBlock:
        new: list[graph.Binding] = []
        for c in self.calls:
            group = groups[c]
            if len(group) == 1:
                new.append(c.binding)
            # At the place of the last member: every shape that the group needs is matched by then.
            elif group[-1] is c:
                call = self.fuser.outline([m.binding for m in group])  # type: ignore[misc]
                value = replace(call, span=c.binding.span)
                new.append(replace(c.binding, value=value))  # type: ignore[call-arg]
        return with_bindings(self.block, new)


def _group_name(members: list[graph.VarBinding], mod: Module) -> str:
    names: list[str] = []
    for m in members:
        call = tir_call(m.value)
        assert call is not None
        plain = call.callee.rstrip("0123456789")  # of `add` and `add3`, say `add`
        names.append(plain if plain in mod else call.callee)
    text = "fused_" + "_".join(names)
    return text if len(text) <= 80 else text[:60].rstrip("_") + f"_and_{len(names)}_calls"


def outline(members: list[graph.VarBinding]) -> tuple[graph.Function, tuple[graph.Expr, ...]]:
    """Return a function of the bindings that returns the last one's value, and the arguments of its
    call."""
    local = {m.var for m in members}
    args: dict[object, graph.Expr] = {}
    for m in members:
        call = tir_call(m.value)
        assert call is not None
        for a in call.args:
            if a not in local:
                # Constants by identity: comparing elements would read all weights.
                args.setdefault(id(a.data) if isinstance(a, graph.Constant) else a, a)
    given = list(args.values())
    params = [graph.Var(_param_name(a, i), leaf_type(a)) for i, a in enumerate(given)]
    inner: dict[graph.Var, graph.Expr] = {}
    constants: dict[int, graph.Var] = {}
    for a, p in zip(given, params, strict=True):
        if isinstance(a, graph.Var):
            inner[a] = p
        elif isinstance(a, graph.Constant):
            constants[id(a.data)] = p
    body, result = _inner_bindings(members, inner, constants)
    bound = {d for p in params for d in _bare_dims(p.ty)}
    free = tuple(s for s in symbols_in((params, body)) if s not in bound)
    free += tuple(s for s in _call_symbols(members) if s not in bound and s not in free)
    call_args = tuple(given)
    if free:
        params.append(graph.Var("symbols", types.ShapeType(free)))
        call_args += (graph.ShapeExpr(free),)
    seq = graph.SeqExpr((graph.DataflowBlock(tuple(body)),), result)
    attrs = Attrs(Primitive=True)
    fn = graph.Function(tuple(params), seq, result.ty, private=True, attrs=attrs)
    # Symbols belong to one function: sharing them would tie the outlined function to this caller.
    fresh = {s: expr.Var(s.name) for s in symbols_in(fn)}
    return substitute(fn, symbols=fresh), call_args


def _inner_bindings(
    members: list[graph.VarBinding],
    inner: dict[graph.Var, graph.Expr],
    constants: dict[int, graph.Var],
) -> tuple[list[graph.Binding], graph.Var]:
    body: list[graph.Binding] = []
    var = members[-1].var
    for m in members:
        kind = graph.Var if m is members[-1] else graph.DataflowVar
        var = kind(m.var.name, m.var.ty)
        call = tir_call(m.value)
        assert call is not None
        args = tuple(
            constants[id(a.data)] if isinstance(a, graph.Constant) else inner[a]  # type: ignore
            for a in call.args
        )
        inner[m.var] = var
        value = replace(call.with_args(args).build(), span=m.value.span)
        body.append(graph.VarBinding(value, var, span=m.span))
    return body, var


def _call_symbols(members: list[graph.VarBinding]) -> tuple[expr.Var, ...]:
    return symbols_in(tuple(m.value for m in members))


def _param_name(a: graph.Expr, index: int) -> str:
    return a.name if isinstance(a, graph.Var) else f"const{index}"


def _bare_dims(ty: types.Type | None) -> list[expr.Var]:
    shape = ty.shape if isinstance(ty, types.TensorType) else None
    return [d for d in shape or () if isinstance(d, expr.Var)]
