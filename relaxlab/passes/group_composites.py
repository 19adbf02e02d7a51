"""Group what patterns outlined for one compiler into functions for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.ir import graph, types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import NO_ATTRS, Attrs, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, map_blocks, use_counts, vars_in
from relaxlab.passes.dead_code_elimination import reachable
from relaxlab.tracing import may_apply

RULE = "group_composites"


@module_pass(RULE, needs=("normalize",))
def group_composites(mod: Module, _: NoOptions) -> Module:
    """Put calls of functions with the attribute `Composite` that follow each other, and whose names
    begin with the same compiler ("cc.relu"), into one function with the attribute `Codegen` = "cc",
    which holds them as local functions. A group never reads what is computed from its own values
    outside of it.
    """
    state = _Grouping(mod)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if "Composite" not in fn.attrs:
            uses = use_counts(fn)
            updates[name] = map_blocks(fn, lambda b, n=name, u=uses: state.block(n, b, u))
    after = mod.with_functions({**updates, **state.made})
    kept = reachable(after, [k for k in after if k not in state.composites])
    return after.without(*(k for k in state.composites if k not in kept))


@dataclass(slots=True)
class _Group:
    """Calls for one compiler. `after` are the groups, and single bindings, whose values it needs,
    directly or not."""

    compiler: str
    members: list[graph.VarBinding] = field(default_factory=list[graph.VarBinding])
    after: set[int] = field(default_factory=set[int])


class _Grouping:
    """The module, the functions made so far, and the names of the composite ones."""

    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self.made: dict[str, graph.Function] = {}
        self.names: dict[str, str] = {}
        functions = mod.graph_functions()
        self.composites = {k for k, f in functions.items() if "Composite" in f.attrs}

    def block(
        self, name: str, blk: graph.BindingBlock, uses: Mapping[graph.Var, int]
    ) -> graph.BindingBlock:
        if not isinstance(blk, graph.DataflowBlock):
            return blk
        groups = [g for g in self.groups(blk) if g.compiler]
        new: dict[graph.Var, list[graph.Binding]] = {}
        gone: set[graph.Var] = set()
        for group in groups:
            parts = ", ".join(f"`{b.var.name}`" for b in group.members)
            subject = f"{name}.{group.members[-1].var.name}"
            if may_apply(RULE, subject, f"{parts} are one function for {group.compiler}"):
                new[group.members[0].var] = self.outline(group, uses)
                gone |= {b.var for b in group.members}
        listed = [b for old in blk.bindings
                  for b in new.get(old.var, [] if old.var in gone else [old])]  # fmt: skip
        return replace(blk, bindings=_sorted(listed)) if gone else blk

    def groups(self, blk: graph.BindingBlock) -> list[_Group]:
        """All bindings of a block in groups; those that are no such calls are in one of their own,
        without a compiler."""
        found: list[_Group] = []
        home: dict[graph.Var, int] = {}
        for b in blk.bindings:
            compiler = self.compiler(b)
            read = {home[v] for v in vars_in(b.value) if v in home}
            behind = {i for r in read for i in found[r].after}
            joined = sorted(
                r for r in read if compiler and found[r].compiler == compiler and r not in behind
            )
            at = joined[0] if joined else len(found)
            if not joined:
                found.append(_Group(compiler))
            for other in joined[1:]:
                found[at].members += found[other].members
                found[at].after |= found[other].after
                home |= {m.var: at for m in found[other].members}
                for group in found:
                    group.after = {at if i == other else i for i in group.after}
                found[other] = _Group("")
            found[at].members.append(b)  # type: ignore[arg-type]
            needed = (read | behind) - {*joined}
            found[at].after |= needed
            for group in found:  # what comes after the group comes after what it now needs
                if at in group.after:
                    group.after |= needed
            home[b.var] = at
        return found

    def compiler(self, b: graph.Binding) -> str:
        """The compiler of a call; empty for other bindings."""
        match b:
            case graph.VarBinding(graph.Call(graph.GlobalVar(name))) if name in self.composites:
                return str(self.mod.graph_functions()[name].attrs["Composite"]).partition(".")[0]
            case _:
                return ""

    def outline(self, group: _Group, uses: Mapping[graph.Var, int]) -> list[graph.Binding]:
        """Make the function of a group; return its call, and the reads of its results."""
        inside = {b.var for b in group.members}
        within = [v for b in group.members for v in vars_in(b.value)]
        results = [b.var for b in group.members if uses[b.var] > within.count(b.var)]
        params = {v: graph.Var(v.name, v.ty) for v in within if v not in inside}
        fn = self.function(group, params, results)
        name = self.names.setdefault(structural_key(fn), self.name(group))
        self.made[name] = fn
        call = graph.Call(graph.GlobalVar(name), tuple(params))
        if len(results) == 1:
            return [graph.VarBinding(call, results[0])]
        whole = graph.DataflowVar(name, fn.ret_ty)
        fields = [graph.VarBinding(graph.TupleGetItem(whole, i), v) for i, v in enumerate(results)]
        return [graph.VarBinding(call, whole), *fields]

    def name(self, group: _Group) -> str:
        """`fused_relu_add_cc` for a group of `fused_relu` and `fused_add` for cc."""
        ops = [m.value.op for m in group.members if isinstance(m.value, graph.Call)]
        callees = [op.name for op in ops if isinstance(op, graph.GlobalVar)]
        hint = "_".join(["fused", *(c.removeprefix("fused_") for c in callees)])
        taken = {*self.mod, *(n.removesuffix(f"_{group.compiler}") for n in self.made)}
        number, free = 0, hint
        while free in taken or f"{free}_{group.compiler}" in self.mod:
            number += 1
            free = f"{hint}{number}"
        return f"{free}_{group.compiler}"

    def function(
        self, group: _Group, params: Mapping[graph.Var, graph.Var], results: Sequence[graph.Var]
    ) -> graph.Function:
        """The function of a group: its composite functions, each before its first call."""
        names = UniqueNames(p.name for p in params.values())
        values = dict(params)
        local: dict[str, graph.Var] = {}
        bindings: list[graph.Binding] = []
        for b in group.members:
            call = b.value
            assert isinstance(call, graph.Call) and isinstance(call.op, graph.GlobalVar)
            callee = call.op.name
            if callee not in local:
                inner = self.mod.graph_functions()[callee]
                attrs = Attrs(Composite=inner.attrs["Composite"])
                local[callee] = graph.Var(names(callee))
                body = replace(inner, private=False, attrs=attrs)
                bindings.append(graph.VarBinding(body, local[callee]))
            values[b.var] = graph.Var(names(b.var.name), b.var.ty)
            args = tuple(substitute(a, values=values) for a in call.args)
            bindings.append(
                graph.VarBinding(replace(call, op=local[callee], args=args), values[b.var])
            )
        fields = tuple(values[r] for r in results)
        result = fields[0] if len(fields) == 1 else graph.Tuple(fields)
        body = graph.SeqExpr((graph.BindingBlock(tuple(bindings)),), result)
        ty = leaf_type(result) or types.ObjectType()
        attrs = NO_ATTRS.with_(Codegen=group.compiler)
        return graph.Function(tuple(params.values()), body, ty, attrs=attrs)


def _sorted(bindings: Sequence[graph.Binding]) -> tuple[graph.Binding, ...]:
    """The bindings of a block, each after those that it reads."""
    known = {b.var: b for b in bindings}
    order: dict[graph.Var, graph.Binding] = {}

    def visit(b: graph.Binding) -> None:
        if b.var not in order:
            for v in vars_in(b.value):
                if v in known:
                    visit(known[v])
            order[b.var] = b

    for b in bindings:
        visit(b)
    return tuple(order.values())
