"""Multiply three matrices in the order that takes fewer multiplications."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import dims_of
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

A, B, C = wildcard(), wildcard(), wildcard()
FIRST, LAST = is_op("matmul")(A, B), is_op("matmul")(B, C)
LEFT = is_op("matmul")(FIRST, C)
RIGHT = is_op("matmul")(A, LAST)
TURNED = is_op("matmul")(A, is_op("permute_dims")(LAST))
LINEAR = is_op("linear")(A, LAST)


@module_pass("adjust_matmul_order", needs=("normalize",))
def adjust_matmul_order(mod: Module, _: NoOptions) -> Module:
    """(a @ b) @ c and a @ (b @ c), with b and c matrices, become whichever provably takes fewer
    multiplications for all values of the symbols (from 1 to their declared upper bounds); so does
    the product of b and c transposed, and as the weight of a `linear`.

    Inner products that something else reads stay. Floats are rounded differently.
    """
    pattern = LEFT | RIGHT | TURNED | LINEAR
    return rewrite_matches(mod, pattern, _reorder, "adjust_matmul_order")


def _reorder(call: graph.Call, match: Match) -> graph.Expr | str:
    if match.leaking():
        return f"`{match.leaking()[0].name}` is read elsewhere, too"
    a, b, c = (dims_of(match[x]) for x in (A, B, C))
    if a is None or b is None or c is None or len(b) != 2 or len(c) != 2 or not a:
        return "the operands are not matrices of known shape"
    calls = [match.definition(v) for v in match.members]
    if any(isinstance(e, graph.Call) and "out_dtype" in e.attrs for e in calls):
        return "a product has another dtype than its operands"
    if TURNED in match or LINEAR in match:
        b, c = (c[1], c[0]), (b[1], b[0])
    rows: expr.PrimExpr = expr.const(1)
    for d in a[:-1]:
        rows = rows * d
    left_first = rows * b[0] * b[1] + rows * b[1] * c[1]
    right_first = b[0] * b[1] * c[1] + rows * b[0] * c[1]
    now, other = (left_first, right_first) if LEFT in match else (right_first, left_first)
    if _less(other, now, match) is not True:
        return f"it takes {now} multiplications, the other order {other}"
    return _other_order(match)


def _other_order(match: Match) -> graph.Expr:
    def product(op: str, *args: graph.Expr) -> graph.Call:
        return graph.Call(graph.Op(op), args)

    a, b, c = match[A], match[B], match[C]
    if LEFT in match:
        return product("matmul", a, product("matmul", b, c))
    if LINEAR in match:
        return product("linear", product("linear", a, c), b)
    if TURNED in match:
        b, c = product("permute_dims", c), product("permute_dims", b)
    return product("matmul", product("matmul", a, b), c)


def _less(a: expr.PrimExpr, b: expr.PrimExpr, match: Match) -> bool | None:
    analyzer = Analyzer()
    for s in symbols_in((a, b)):
        analyzer.bind(s, 1, match.scope.bounds.get(s.name))
    return analyzer.prove(expr.LT(a, b))
