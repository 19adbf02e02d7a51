"""Making a function of bindings, and the call that takes their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.ir import expr, graph, types
from relaxlab.ir.node import Attrs, Node, rewrite
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.bindings import leaf_type, vars_in


def is_scalar(constant: graph.Constant) -> bool:
    """True for a constant without dimensions."""
    return constant.data.ndim == 0


def outline_bindings(
    members: Sequence[graph.VarBinding],
    results: Sequence[graph.Var],
    attrs: Attrs,
    inside: Callable[[graph.Constant], bool] = is_scalar,
) -> tuple[graph.Function, tuple[graph.Expr, ...]]:
    """Return a private function of the bindings, in order, with the values of `results` as its
    result (one: that value; several: a tuple); and the arguments of its call.

    Its parameters are the variables and the constants that the bindings read from outside, but for
    the constants that stay `inside`: scalars, if nothing else is said. Symbols that no
    parameter's dimension alone determines are a last parameter `R.Shape([...])` (the paper's
    Figure 8).
    """
    params: dict[object, tuple[graph.Expr, graph.Var]] = {}
    local = {m.var for m in members}
    inner: dict[graph.Var, graph.Expr] = {}
    for m in members:
        for v in vars_in(m.value):
            if v not in local and v not in params:
                params[v] = (v, graph.Var(v.name, v.ty))
                inner[v] = params[v][1]

    def constant(n: Node) -> Node | None:
        if not isinstance(n, graph.Constant) or inside(n):
            return None
        name = f"const{len(params)}"
        return params.setdefault(id(n.data), (n, graph.Var(name, leaf_type(n))))[1]

    body: list[graph.Binding] = []
    for m in members:
        kind = graph.Var if m.var in results else graph.DataflowVar
        value = substitute(rewrite(m.value, constant), values=inner)
        inner[m.var] = kind(m.var.name, m.var.ty)
        body.append(graph.VarBinding(value, inner[m.var], span=m.span))  # type: ignore[arg-type]
    args = tuple(given for given, _ in params.values())
    variables = [p for _, p in params.values()]
    free = _undetermined(variables, body)
    if free:
        variables.append(graph.Var("symbols", types.ShapeType(free)))
        args += (graph.ShapeExpr(free),)
    result = (
        graph.Tuple(tuple(inner[r] for r in results)) if len(results) > 1 else inner[results[0]]
    )
    seq = graph.SeqExpr((graph.DataflowBlock(tuple(body)),), result)
    fn = graph.Function(tuple(variables), seq, leaf_type(result), private=True, attrs=attrs)
    fresh = {s: expr.Var(s.name, s.var_dtype) for s in symbols_in(fn)}
    return substitute(fn, symbols=fresh), args


def _undetermined(
    params: Sequence[graph.Var], body: Sequence[graph.Binding]
) -> tuple[expr.Var, ...]:
    determined = {
        d
        for p in params
        if isinstance(p.ty, types.TensorType)
        for d in p.ty.shape or ()
        if isinstance(d, expr.Var)
    }
    return tuple(s for s in symbols_in((tuple(params), tuple(body))) if s not in determined)
