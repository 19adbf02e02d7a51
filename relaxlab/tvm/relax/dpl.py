"""`tvm.relax.dpl`: the pattern language, which is the core's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes import patterns
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.patterns import language
from relaxlab.passes.patterns.match import BlockScope, Match, Matcher, NearestMiss
from relaxlab.script.type_values import as_type
from relaxlab.tvm.names import names
from relaxlab.tvm.relax.expr_functor import PyExprMutator
from relaxlab.tvm.relax.pattern_context import noted

DFPattern = language.Pattern


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> DFPattern:
    """The pattern of an operator of two tensors, with a bias added and an activation applied."""
    out: DFPattern = language.is_op(op_name)(language.wildcard(), language.wildcard())
    if with_bias:
        out = language.is_op("add")(out, language.wildcard())
    return language.is_op(activation)(out) if activation else out


def found_match(
    pattern: DFPattern, expr: graph.Expr, var2val: Mapping[graph.Var, graph.Expr] | None = None
) -> Match | None:
    """The match of a pattern at an expression; `var2val` has the values of variables."""
    known = [graph.VarBinding(value, var) for var, value in (var2val or {}).items()]
    # The matcher looks at bindings, so the expression is bound to a variable; a variable is bound
    # to a copy of itself, because a binding may not define what it reads.
    is_var = isinstance(expr, graph.Var)
    root = replace(expr) if is_var else graph.Var("matched", leaf_type(expr))
    block = graph.BindingBlock((*known, graph.VarBinding(expr, root)))
    return Matcher(BlockScope(Module.of({}), block, {}), NearestMiss(), "").at(pattern, root)


def match(
    pattern: DFPattern, expr: graph.Expr, var2val: Mapping[graph.Var, graph.Expr] | None = None
) -> bool:
    """True if an expression matches."""
    return found_match(pattern, expr, var2val) is not None


def extract_matched_expr(
    pattern: DFPattern, expr: graph.Expr, var2val: Mapping[graph.Var, graph.Expr] | None = None
) -> dict[DFPattern, graph.Expr] | None:
    """The expressions that parts of a pattern matched; None where it does not match."""
    found = found_match(pattern, expr, var2val)
    return None if found is None else {p: found.definition(p) for p in found.values}


class _Rewriting(PyExprMutator):
    """Replaces calls that match. The core's `rewrite_call` needs the whole module for types."""

    def __init__(
        self, pattern: DFPattern, rewriter: Callable[[graph.Call, Match], graph.Expr]
    ) -> None:
        super().__init__()
        self._pattern, self._rewriter = pattern, rewriter

    def visit_call_(self, call: graph.Call) -> graph.Expr:
        """Visit a call: the parts first."""
        call = self.visit_expr_post_order(call)
        found = found_match(self._pattern, call, self.builder_.values)
        return call if found is None else self._rewriter(call, found)


def rewrite_call(
    pattern: DFPattern, rewriter: Callable[[graph.Call, Match], Any], func: graph.Function
) -> graph.Function:
    """A function with each call that matches replaced by `rewriter(call, matches)`."""
    return remove_unread(_Rewriting(pattern, rewriter).visit_expr(func))


def _has_type(pattern: DFPattern, ty: Any) -> DFPattern:
    return pattern.has_type(as_type(ty))


def _has_shape(pattern: DFPattern, shape: Any) -> DFPattern:
    dims = shape.values if isinstance(shape, graph.ShapeExpr) else shape
    return _CORE_HAS_SHAPE(pattern, dims)


def _applied(
    pattern: DFPattern, *args: Any, varg_default_wildcard: bool = False, add_constraint: bool = True
) -> DFPattern:
    given = [language.wildcard() if a is None else a for a in args]
    call = _CORE_CALL(pattern, *given, *([...] if varg_default_wildcard else []))
    return noted(call) if add_constraint else call


_CORE_HAS_SHAPE, _CORE_CALL = DFPattern.has_shape, DFPattern.__call__

ACCESSORS: dict[str, Any] = {
    "match": match,
    "extract_matched_expr": extract_matched_expr,
    "dup": replace,
    "has_ty": _has_type,
    "has_struct_info": _has_type,
    "has_shape": _has_shape,
    "__call__": _applied,
}
"""Methods of patterns under TVM's names, or with its arguments."""

for _name, _value in ACCESSORS.items():
    setattr(DFPattern, _name, _value)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """A tensor of a dtype."""
    return (pattern or language.wildcard()).has_dtype(dtype)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> DFPattern:
    """A call with attributes."""
    return (pattern or language.wildcard()).has_attr(attrs)


def reject(pattern: DFPattern) -> DFPattern:
    """Anything that a pattern does not match."""
    return ~pattern


def is_expr(expr: graph.Expr) -> DFPattern:
    """The expression itself."""
    return language.wildcard().where(lambda e: e is expr, "the expression itself")


_HOMES = {
    **{
        name: f"relaxlab.passes.patterns:{name}"
        for name, value in vars(patterns).items()
        if name[0].islower() and callable(value)
    },
    **{
        name: f"relaxlab.tvm.relax.pattern_context:{name}"
        for name in (
            "ExprPatternRewriter",
            "OrRewriter",
            "PatternContext",
            "PatternMatchingRewriter",
            "rewrite_bindings",
        )
    },
    "ExternFuncPattern": "relaxlab.passes.patterns.language:ExternPattern",
    "CallPattern": "relaxlab.passes.patterns.language:CallPattern",
    "ConstantPattern": "relaxlab.passes.patterns.language:ConstPattern",
    "GlobalVarPattern": "relaxlab.passes.patterns.language:GlobalVarPattern",
    "OrPattern": "relaxlab.passes.patterns.language:OrPattern",
    "AndPattern": "relaxlab.passes.patterns.language:AndPattern",
    "NotPattern": "relaxlab.passes.patterns.language:NotPattern",
    "ExprPattern": "relaxlab.passes.patterns.language:OpPattern",
    "TuplePattern": "relaxlab.passes.patterns.language:TuplePattern",
    "TupleGetItemPattern": "relaxlab.passes.patterns.language:TupleGetItemPattern",
    "VarPattern": "relaxlab.passes.patterns.language:VarPattern",
    "WildcardPattern": "relaxlab.passes.patterns.language:Wildcard",
    "PatternSeq": "relaxlab.passes.patterns.language:Chain",
}
__path__: list[str] = []  # which lets imports look for submodules, of which `hook` has the names
__getattr__, __dir__ = names(__name__, _HOMES)
