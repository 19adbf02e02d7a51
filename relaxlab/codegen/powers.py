"""Powers with small constant exponents, as products or square roots."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float, lanes_of
from relaxlab.ir.expr import PrimExpr, Var

MOST_FACTORS = 8
"""Largest exponent of a power that is a product: three squarings, each rounded once."""
_HALF = ("float16", "bfloat16")


def known_power(e: expr.Call) -> PrimExpr | None:
    """Return the power of a float by a constant as a product or a square root, as in NumPy,
    where the root of -inf is NaN; None for other exponents. The C library takes a hundred times as
    long (NOTES, *Powers*)."""
    if e.op != "pow" or not is_float(e.dtype) or lanes_of(e.dtype) > 1:
        return None
    x, exponent = e.args
    # A constant in half precision is widened together with the base.
    exponent = exponent.value if isinstance(exponent, expr.Cast) else exponent
    if not isinstance(exponent, expr.FloatImm):
        return None
    if e.dtype in _HALF:  # rounded once, as everything in half precision is
        wider = (expr.Cast("float32", x), expr.const(exponent.value, "float32"))
        found = known_power(expr.Call("float32", "pow", wider))
        return None if found is None else expr.Cast(e.dtype, found)
    if exponent.value == 0.5:
        return expr.Call(e.dtype, "sqrt", (x,))
    if exponent.value not in range(1, MOST_FACTORS + 1):
        return None
    base = Var("base", e.dtype)
    result: PrimExpr = base
    for bit in bin(int(exponent.value))[3:]:
        square = Var("square", e.dtype)
        result = expr.Let(square, result, expr.Mul(square, square))
        result = expr.Mul(result, base) if bit == "1" else result
    return expr.Let(base, x, result)
