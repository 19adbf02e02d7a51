"""Loops without divisions, from a part of a fused loop.

Fused loops take their variable apart: with `f` over `n*m`, rows are `f // m` and columns `f % m`.
Where `m` is a symbol these are divisions, two for each vector of a copy; where it is a constant
they are multiplications, which take as long as a copy of a vector, and LLVM cannot move what a row
shares in front of its vectors. The iterations from `first` to `past` that a thread makes are a nest
instead, `for q: for r:` with `f = q*m + r`: the first and the last row may be parts of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import For, IfThenElse, LetStmt, Range, Stmt
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in

SHORT = 8
"""Iterations of a constant number below which a loop of their own costs more than the divisions.
From there on a slice of 500 x 500 takes 0.30 times as long, a permutation of 20 x 30 x 64 0.44, a
gather of rows 0.54 (NOTES, *Quotients of fused loops*)."""


def unfuse(
    loop: For, first: Var, past: Var, is_positive: Callable[[PrimExpr], bool]
) -> Stmt | None:
    """Return loops that make the iterations from `first` to `past` of a loop without dividing its
    variable; None if the loop does not divide it. `is_positive` holds of expressions that are
    above zero if the loop runs at all."""
    nest = _nest(loop, loop.loop_var, first, past, loop.body, is_positive)
    if nest is None:
        return None
    return IfThenElse(expr.LT(first, past), nest, None)


def _nest(
    loop: For, var: Var, first: PrimExpr, past: PrimExpr, body: Stmt,
    is_positive: Callable[[PrimExpr], bool],
) -> Stmt | None:  # fmt: skip
    """Return the nest over `first <= var < past`, which is not empty; None if nothing is gained."""
    size = _innermost(var, body, is_positive)
    if size is None:
        return None
    outer, inner = Var(f"{var.name}_o"), Var(f"{var.name}_i")
    an = Analyzer.for_shapes(loop.extent)
    an.bind_range(inner, Range(expr.const(0), size))
    # First: a quotient by a product is the outer variable's only once it is divided in steps.
    body = rewrite(body, lambda n: _divided_twice(n, var, size))
    body = _divided(substitute(body, {var: outer * size + inner}), inner, an)
    # A thread's share may begin and end within a row.
    low = expr.Max(expr.const(0), first - outer * size)
    high = expr.Min(size, past - outer * size)
    row = For(inner, low, high - low, "serial", body, span=loop.span)
    start, end = expr.FloorDiv(first, size), expr.FloorDiv(past - 1, size) + 1
    # More than two loops may have been fused: the quotient is divided again.
    nest = _nest(loop, outer, start, end, row, is_positive)
    return nest or For(outer, start, end - start, "serial", row, span=loop.span)


def _innermost(var: Var, body: Stmt, is_positive: Callable[[PrimExpr], bool]) -> PrimExpr | None:
    """Return the size of the innermost of the loops that were fused: what the variable is divided
    by, with a remainder. Short loops of constant extents within it belong to it."""
    nodes = list(walk(body))
    defined = {n.var for n in nodes if isinstance(n, LetStmt | expr.Let)}
    defined |= {n.loop_var for n in nodes if isinstance(n, For)}
    # In front of a loop over the vectors of a row, constant quotients cost nothing.
    has_loops = any(isinstance(n, For) and n.kind == "serial" for n in nodes)
    found: dict[int, PrimExpr] = {}
    for n in nodes:
        match n:
            case expr.FloorMod(expr.FloorDiv(a, IntImm(steps)), size) if a == var:
                pass
            case expr.FloorMod(a, size) if a == var:
                steps = 1
            case _:
                continue
        count = size * steps if steps > 1 else size
        is_cheap = isinstance(count, IntImm) and (count.value < SHORT or has_loops)
        if steps > 0 and not defined & set(symbols_in(size)) and not is_cheap and is_positive(size):
            found.setdefault(steps, count)
    return found[min(found)] if found else None


def _divided_twice(n: Node, var: Var, size: PrimExpr) -> PrimExpr | None:
    """Return `var // size // n` for `var // (size*n)`, and for a division in such steps: the
    quotient by `size` is the outer variable."""
    if not isinstance(n, expr.FloorDiv) or n.dtype != var.dtype:
        return None
    by: PrimExpr = expr.const(1)
    quotient: PrimExpr = n
    while isinstance(quotient, expr.FloorDiv):
        by, quotient = by * quotient.b, quotient.a
    if quotient != var or by == size:
        return None
    rest = _exact_quotient(by, size)
    return None if rest is None else expr.FloorDiv(expr.FloorDiv(var, size), rest)


@lru_cache(maxsize=4096)
def _exact_quotient(product: PrimExpr, size: PrimExpr) -> PrimExpr | None:
    """Return `product` over `size`, also of a product that was multiplied out; None where it is not
    provably a multiple."""
    an = Analyzer.for_shapes(product, size)
    rest = an.simplify(expr.FloorDiv(product, size))
    return rest if an.prove_equal(rest * size, product) is True else None


def _divided(body: Stmt, inner: Var, an: Analyzer) -> Stmt:
    """Simplify the divisions in which the inner variable occurs."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, expr.FloorDiv | expr.FloorMod) and inner in symbols_in(n):
            return an.simplify(n)
        return None

    return rewrite(body, visit)
