"""Signs and monotonicity of expressions, by their form.

Sizes are not negative, and a loop whose body runs has an extent above zero.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.substitute import symbols_in


def sizes_of(func: PrimFunc) -> list[Var]:
    """Return the symbols that are sizes of arrays, hence not negative. A scalar parameter that is
    no size may be negative."""
    dims = tuple(d for buffer in func.buffers for d in buffer.shape)
    return [v for v in symbols_in(dims) if v in dims or v not in func.params]


def is_nondecreasing(e: PrimExpr, v: Var) -> bool:
    """True if `e`, by its form, never falls as `v` grows."""
    match e:
        case expr.Add(a, b):
            return is_nondecreasing(a, v) and is_nondecreasing(b, v)
        case expr.Mul(a, expr.IntImm(value)) | expr.FloorDiv(a, expr.IntImm(value)):
            return value >= 0 and is_nondecreasing(a, v)
        case _:
            return e == v or v not in symbols_in(e)


def positive_factors(extent: PrimExpr) -> set[PrimExpr]:
    """Return expressions that are positive if `extent` is, given that no variable is negative:
    factors of products, dividends, minuends, sides of minima."""
    found: set[PrimExpr] = {extent}
    match extent:
        case expr.Mul(a, b) | expr.Min(a, b):
            found |= positive_factors(a) | positive_factors(b)
        case expr.Max(a, expr.IntImm(0)):
            found |= positive_factors(a)
        case expr.FloorDiv(expr.Add(a, expr.IntImm(up)), expr.IntImm(by)) if 0 <= up < by:
            found |= positive_factors(a)
        case expr.FloorDiv(a, expr.IntImm(by)) if by > 0:
            found |= positive_factors(a)
        case expr.Sub(a, expr.IntImm(less)) if less >= 0:
            found |= positive_factors(a)
        case expr.Add(a, expr.IntImm(more)) if more <= 0:
            found |= positive_factors(a)
        case _:
            pass
    return found


def is_positive(e: PrimExpr, positive: Set[PrimExpr], sizes: Set[Var]) -> bool:
    """True if `e` is provably above zero, where `positive` are and `sizes` are not negative."""
    if e in positive or _is_positive_by_form(e, positive, sizes):
        return True
    return any(_divides(e, p, sizes) for p in positive)


def _is_positive_by_form(e: PrimExpr, positive: Set[PrimExpr], sizes: Set[Var]) -> bool:
    match e:
        case expr.IntImm(value):
            return value > 0
        case expr.Mul(a, b):
            return is_positive(a, positive, sizes) and is_positive(b, positive, sizes)
        case expr.Max(a, b):
            return is_positive(a, positive, sizes) or is_positive(b, positive, sizes)
        case expr.Min(a, b):
            return is_positive(a, positive, sizes) and is_positive(b, positive, sizes)
        case expr.Add(a, b):
            return any(
                is_positive(x, positive, sizes) and is_size(y, positive, sizes)
                for x, y in ((a, b), (b, a))
            )
        # A quotient rounded up, the number of tiles.
        case expr.FloorDiv(expr.Add(a, expr.IntImm(up)), expr.IntImm(by)) if up == by - 1:
            return is_positive(a, positive, sizes)
        case _:
            return False


def _divides(e: PrimExpr, product: PrimExpr, sizes: Set[Var]) -> bool:
    """True if `e`, of sizes alone, is a factor of a product that was multiplied out, as (h - 1) and
    w of h * w - w."""
    if not isinstance(product, expr.Add | expr.Sub) or product == e or product.dtype != e.dtype:
        return False
    names = set(symbols_in(e))
    if not names or not names <= sizes & set(symbols_in(product)):
        return False
    return _is_multiple(product, e)


# Every quotient of a kernel asks of the same extents: of 15,929 questions in the tests of operators
# 985 differed, at 1 ms each.
@lru_cache(maxsize=4096)
def _is_multiple(product: PrimExpr, of: PrimExpr) -> bool:
    """True if the remainder of `product` by `of` is provably zero."""
    analyzer = Analyzer.for_shapes(of, product)
    return analyzer.prove_equal(product % of, expr.const(0)) is True


def is_size(e: PrimExpr, positive: Set[PrimExpr], sizes: Set[Var]) -> bool:
    """True if `e` is provably not negative."""
    match e:
        case Var():
            return e in positive or e in sizes
        case expr.IntImm(value):
            return value >= 0
        case expr.Add(a, b) | expr.Mul(a, b) | expr.FloorDiv(a, b) | expr.Min(a, b):
            return is_size(a, positive, sizes) and is_size(b, positive, sizes)
        case expr.Max(a, b):
            return is_size(a, positive, sizes) or is_size(b, positive, sizes)
        case _:
            return False
