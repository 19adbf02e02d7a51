"""Loops over a number of iterations, which several sources have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from relaxlab.frontend.emitter import Emitter, Tensor
from relaxlab.ir import expr, graph, types
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.substitute import symbols_in
from relaxlab.ops.define import builder as operator


def counted_loop(
    b: Emitter,
    count: PrimExpr,
    body: Callable[..., Sequence[graph.Var]],
    carried: Sequence[Tensor],
    captured: Sequence[Tensor] = (),
    updated: Collection[int] = (),
) -> tuple[graph.Var, ...]:
    """The values `carried` after `body` has replaced them `count` times.

    The body gets the number of the iteration, a symbol, the carried values, then the `captured`
    ones, and may use no other variables: the loop is a private function that calls itself. It
    returns as many values as are carried, of the same types. Those whose places are `updated`
    may be overwritten: a body that writes slices of them does so in place.
    """
    bb = b.builder
    carried, captured = (
        [v if isinstance(v, graph.Var) else bb.emit(v) for v in given]
        for given in (carried, captured)
    )
    symbols = symbols_in((*bb.params, count)) if isinstance(count, PrimExpr) else ()
    at = expr.Var("i")
    tys = [v.ty or bb.type_of(v) for v in carried]
    counter = graph.Var("counter", types.ShapeType((at,)))
    params = [graph.Var(v.name, v.ty) for v in (*carried, *captured)]
    names = [f"carried_{i}" if i in updated else p.name for i, p in enumerate(params)]
    params = [graph.Var(n, p.ty) for n, p in zip(names, params, strict=True)]
    sizes = graph.Var("sizes", types.ShapeType(symbols))
    given = [counter, sizes, *params]
    name = bb.get().fresh_name("loop")
    loop, first = graph.GlobalVar(name), params[: len(carried)]
    rest = params[len(carried) :]

    def again() -> graph.Expr:
        results = body(at, *first, *rest)
        following = graph.ShapeExpr((at + 1,))
        return graph.Call(loop, (following, graph.ShapeExpr(symbols), *results, *rest))

    attrs = {"donated": tuple(names[i] for i in sorted(updated))} if updated else {}
    result_ty = types.TupleType(tuple(tys))
    with bb.function(name, given, attrs, ret_ty=result_ty, private=True):
        with bb.dataflow():
            inside = expr.LT(at, count)
            more = bb.emit(operator("full")((), graph.PrimValue(inside), dtype="bool"))
            result = bb.emit_if(more, again, lambda: tuple(first))
        bb.emit_func_output(result)
    start = (graph.ShapeExpr((expr.const(0),)), graph.ShapeExpr(symbols))
    return bb.emit_fields(graph.Call(loop, (*start, *carried, *captured)))
