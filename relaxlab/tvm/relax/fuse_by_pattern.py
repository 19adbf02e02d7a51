"""`FuseOpsByPattern` with TVM's patterns, checks, and names of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.passes import fuse_ops_by_pattern as core
from relaxlab.passes.patterns import Match, Pattern
from relaxlab.tvm.relax.dpl import DFPattern


@dataclass(frozen=True)
class PatternCheckContext:
    """The argument of the check of a fusion pattern."""

    matched_expr: graph.Expr
    annotated_expr: Mapping[str, graph.Expr]
    matched_bindings: Mapping[graph.Var, graph.Expr]
    var_usages: Mapping[graph.Var, Sequence[graph.Var]]
    value_to_bound_var: Mapping[graph.Expr, graph.Var]


@dataclass(frozen=True)
class FusionPattern:
    """A pattern under a name; `check` may refuse a match, and sees what the patterns in
    `annotation_patterns` matched."""

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] | None = None
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[Mapping[str, graph.Expr]], Mapping[str, str]] | None = None

    def in_core(self) -> core.FusionPattern:
        """The pattern as the core has it."""
        attrs = None if self.attrs_getter is None else self._attrs
        return core.FusionPattern(self.name, self.pattern, self._refusal, attrs)

    def _attrs(self, match: Match) -> Mapping[str, str]:
        assert self.attrs_getter is not None
        return self.attrs_getter(_context(match, self.annotation_patterns or {}).annotated_expr)

    def _refusal(self, match: Match) -> str | None:
        if self.check is None or self.check(_context(match, self.annotation_patterns or {})):
            return None
        return f"{self.name}: the check of the pattern refuses it"


def _context(match: Match, annotations: Mapping[str, Pattern]) -> PatternCheckContext:
    bindings = {v: match.scope.definitions[v] for v in match.members}
    return PatternCheckContext(
        match.definition(match.root),
        {name: match.definition(p) for name, p in annotations.items() if p in match},
        bindings,
        match.scope.readers,
        {value: var for var, value in bindings.items()},
    )


def as_fusion_pattern(given: Any) -> FusionPattern:
    """A fusion pattern from a tuple of its parts."""
    return given if isinstance(given, FusionPattern) else FusionPattern(*given)


def fuse(
    mod: Module,
    given: Sequence[Any],
    functions: Sequence[str] | None,
    *,
    bind_constants: bool,
    annotate_codegen: bool,
) -> Module:
    """Outline what patterns match as functions that TVM's passes name and mark as these do."""
    patterns = tuple(as_fusion_pattern(p).in_core() for p in given)
    chosen = None if functions is None else tuple(functions)
    options = core.PatternFusionOptions(patterns, chosen, lambda _: bind_constants)
    after = core.fuse_ops_by_pattern.function(mod, options)
    new = {k: f for k, f in after.graph_functions().items() if k not in mod}
    kept = after.without(*new)
    renamed: dict[str, str] = {}
    made: dict[str, graph.Function] = {}
    for name, fn in new.items():
        taken = kept.with_functions(made)
        compiler = _compiler_of(fn) if annotate_codegen else ""
        hint = "_".join(filter(None, [_name_of(fn), compiler]))
        renamed[name] = taken.fresh_name(hint)
        marked = replace(fn, attrs=fn.attrs.with_(Primitive=True), name_hint=renamed[name])
        made[renamed[name]] = _with_codegen(fn) if annotate_codegen else marked

    def visit(n: Node) -> Node:
        if isinstance(n, graph.GlobalVar):
            return graph.GlobalVar(renamed.get(n.name, n.name), span=n.span)
        return map_children(n, visit)

    callers = {k: visit(f) for k, f in kept.graph_functions().items()} if renamed else {}
    return kept.with_functions({**callers, **made})  # type: ignore[dict-item]


def _name_of(fn: graph.Function) -> str:
    ops = [n.op.name for n in walk(fn) if isinstance(n, graph.Call) and isinstance(n.op, graph.Op)]
    return "_".join(["fused", *(f"relax_{op.replace('.', '_')}" for op in ops)])


def _compiler_of(fn: graph.Function) -> str:
    """The compiler that the name of a pattern begins with."""
    return str(fn.attrs["Composite"]).partition(".")[0]


def _with_codegen(fn: graph.Function) -> graph.Function:
    """A function that calls a composite one inside it, for a compiler that its name begins with."""
    params = tuple(graph.Var(p.name, p.ty) for p in fn.params)
    inner, result = graph.Var("local_func"), graph.Var("output", fn.ret_ty)
    bindings = (
        graph.VarBinding(replace(fn, private=False), inner),
        graph.VarBinding(graph.Call(inner, params), result),
    )
    body = graph.SeqExpr((graph.BindingBlock(bindings),), result)
    attrs = fn.attrs.with_(Composite=None, Codegen=_compiler_of(fn))
    return graph.Function(params, body, fn.ret_ty, attrs=attrs)
