"""Inline graph functions into their callers."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import dim_pairs
from relaxlab.analysis.subtype import Verdict, check_subtype
from relaxlab.analysis.unify import unify
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import all_bindings, leaf_type, map_blocks
from relaxlab.passes.effects import is_pure
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import may_apply, remark


@dataclass(frozen=True, slots=True)
class InlineOptions:
    """`functions`: the names of those to inline; none: all private ones."""

    functions: tuple[str, ...] = ()


@module_pass("inline_functions", InlineOptions, needs=("normalize",))
def inline_functions(mod: Module, options: InlineOptions) -> Module:
    """Replace calls of graph functions by their bodies, callees first.

    Checks of a callee on entry, and claims of its signature about its result, become `match_cast`s,
    unless they are proved at the call. Not inlined are functions that call themselves, declare
    upper bounds or take lengths of sequences, groups that are to become kernels (`Primitive`,
    `Composite`), and, in a dataflow block, bodies with branches or effects.
    `dead_code_elimination` removes functions without callers. Raises ValueError for a name that
    no graph function has.
    """
    graphs = mod.graph_functions()
    for name in options.functions:
        if name not in graphs:
            raise ValueError(
                f"inline_functions: no graph function `{name}`; the module has: {', '.join(graphs)}"
            )
    chosen = set(options.functions) or {n for n, f in graphs.items() if f.private}
    bodies: dict[str, graph.Function] = {}
    for name in _callees_first(graphs):
        bodies[name] = _Inliner(name, mod, bodies, chosen).function(graphs[name])
    changed = mod.with_functions(bodies)
    return normalized(changed) if changed is not mod else mod


def _callees_first(graphs: dict[str, graph.Function]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen or name not in graphs:
            return
        seen.add(name)
        for n in walk(graphs[name].body):
            if isinstance(n, graph.GlobalVar):
                visit(n.name)
        order.append(name)

    for name in graphs:
        visit(name)
    return order


@dataclass(slots=True)
class _Inliner:
    """Inlines into one function; `done` are the functions that calls may be replaced by."""

    name: str
    mod: Module
    done: dict[str, graph.Function]
    chosen: set[str]

    def function(self, fn: graph.Function) -> graph.Function:
        return map_blocks(fn, self.block)

    def block(self, blk: graph.BindingBlock) -> graph.BindingBlock:
        new: list[graph.Binding] = []
        changed = False
        for b in blk.bindings:
            body = self.body(b, isinstance(blk, graph.DataflowBlock))
            changed = changed or body is not None
            new += [b] if body is None else body
        return replace(blk, bindings=tuple(new)) if changed else blk

    def body(self, b: graph.Binding, dataflow: bool) -> list[graph.Binding] | None:
        """Return the bindings that replace `b`; None if nothing is inlined."""
        call = b.value
        if not isinstance(b, graph.VarBinding) or not isinstance(call, graph.Call):
            return None
        if not isinstance(call.op, graph.GlobalVar) or call.op.name not in self.chosen:
            return None
        callee = call.op.name
        reason = self.refusal(callee, dataflow)
        subject = f"{self.name}.{b.var.name}: {callee}"
        if reason is not None:
            remark("inline_functions", subject, reason, applied=False)
        elif may_apply("inline_functions", subject, "inlined"):
            return _inlined(b, call, self.done[callee], dataflow)
        return None

    def refusal(self, callee: str, dataflow: bool) -> str | None:
        fn = self.done.get(callee)
        if fn is None:
            return "it calls itself"
        if fn.attrs.get("Primitive") or "Composite" in fn.attrs:
            return "it is a group that becomes a kernel"
        if fn.attrs.get("tir_var_upper_bound"):
            return "it declares upper bounds, which are checked when it is called"
        if any(isinstance(p.ty, types.LengthsType) for p in fn.params):
            return "it takes lengths of sequences, which are checked when it is called"
        bindings = list(all_bindings(fn))
        if not dataflow:
            return None
        if any(isinstance(x.value, graph.If) for x in bindings):
            return "it branches, which a dataflow block cannot"
        calls = [x.value for x in bindings if isinstance(x.value, graph.Call)]
        pure = all(is_pure(c, self.mod) for c in calls)
        return None if pure else "it has effects, which a dataflow block cannot have"


def _inlined(
    b: graph.VarBinding, call: graph.Call, fn: graph.Function, dataflow: bool
) -> list[graph.Binding]:
    """Arguments fitted to the parameters, the body under new names, and the result as `b.var`."""
    # A function inlined twice has two sizes where it had one symbol.
    fresh = {s: replace(s) for s in symbols_in(fn)}
    fn = substitute(fn, symbols=fresh)
    kind = graph.DataflowVar if dataflow else graph.Var
    new: list[graph.Binding] = []
    values: dict[graph.Var, graph.Expr] = {}
    known = symbols_at(call, fn)
    fn = substitute(fn, symbols=known)
    given: list[graph.Expr] = []
    for param, arg in zip(fn.params, call.args, strict=True):
        given.append(_fitted(param, arg, kind, new))
    values |= dict(zip(fn.params, given, strict=True))
    for x in all_bindings(fn):
        values[x.var] = kind(x.var.name, x.var.ty)
    body = substitute(fn.body, values=values)
    new += [x for blk in body.blocks for x in blk.bindings]
    ret = fn.ret_ty
    actual = leaf_type(body.body)
    claims = ret is not None and not _proved(actual, ret)
    last = graph.MatchCast(body.body, ret, b.var) if claims else None  # type: ignore[arg-type]
    new.append(last or graph.VarBinding(body.body, b.var, span=b.span))
    return new


def symbols_at(call: graph.Call, fn: graph.Function) -> dict[expr.Var, expr.PrimExpr]:
    """The callee's symbols as far as the arguments' types give them."""
    tys = [leaf_type(a) or types.ObjectType() for a in call.args]
    pairs = [
        pair
        for p, ty in zip(fn.params, tys, strict=True)
        for pair in dim_pairs(p.ty or types.ObjectType(), ty, p.name)
    ]
    return dict(unify(pairs, Analyzer.for_shapes(tuple(tys), fn)).bindings)


def _fitted(
    param: graph.Var, arg: graph.Expr, kind: type[graph.Var], new: list[graph.Binding]
) -> graph.Expr:
    """Return the argument, or a `match_cast` of it to the type of the parameter."""
    claim = param.ty or types.ObjectType()
    if _proved(leaf_type(arg), claim):
        return arg
    var = kind(param.name, claim)
    new.append(graph.MatchCast(arg, claim, var))
    return var


def _proved(actual: types.Type | None, claim: types.Type) -> bool:
    if isinstance(claim, types.FuncType | types.ObjectType):
        return True
    if actual is None:
        return False
    analyzer = Analyzer.for_shapes(actual, claim)
    return check_subtype(actual, claim, analyzer) is Verdict.PASS
