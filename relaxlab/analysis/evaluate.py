"""The value of a scalar expression when its variables are known, in exact Python integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_float, is_uint, numpy_dtype
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in


class CannotEvaluate(ValueError):
    """The expression mentions an unknown variable, divides by zero, or reads memory."""


def evaluate(e: expr.PrimExpr, env: Mapping[Any, Any]) -> Any:
    """The value of `e` with its variables, and the index along the outermost dimension, taken from
    `env`: an int, float or bool.

    Shapes are small: int64 does not wrap. Narrower integers do, and floats are rounded to their
    dtype, as in memory. Raises `CannotEvaluate`.
    """
    value = _exact(e, env)
    if isinstance(e, expr.BinaryOp | expr.Cast | expr.FloatImm) and type(value) is not bool:
        dtype = e.dtype
        return value if dtype in ("int64", "float64") else in_dtype(value, dtype)
    return value


def in_dtype(value: float, dtype: str) -> Any:
    """Return a number as a scalar of `dtype` holds it: rounded, or wrapped."""
    if is_float(dtype):
        with np.errstate(over="ignore"):
            return float(np.float64(value).astype(numpy_dtype(dtype)))
    if dtype == "bool":
        return bool(value)
    bits = bits_of(dtype)
    low = 0 if is_uint(dtype) else -(1 << (bits - 1))
    return (int(value) - low) % (1 << bits) + low


def _exact(e: expr.PrimExpr, env: Mapping[Any, Any]) -> Any:
    match e:
        case expr.IntImm(value, dtype):
            return bool(value) if dtype == "bool" else value
        case expr.FloatImm(value):
            return value
        case expr.Var() | expr.OuterIndex() | expr.InnerLength():
            if e not in env:
                raise CannotEvaluate(f"symbol {e} is not known")
            return env[e]
        case expr.BinaryOp(a, b):
            try:
                return e.row.exact(evaluate(a, env), evaluate(b, env))
            except ZeroDivisionError:
                raise CannotEvaluate(f"division by zero in {e}") from None
        case expr.Not(a):
            return not evaluate(a, env)
        case expr.Cast(to, value):
            inner = evaluate(value, env)
            return float(inner) if to.startswith(("float", "bfloat")) else int(inner)
        case expr.Select(test, yes, no) | expr.Call(op="if_then_else", args=(test, yes, no)):
            return evaluate(yes if evaluate(test, env) else no, env)
        case expr.Let(var, value, body):
            return evaluate(body, {**env, var: evaluate(value, env)})
        case _:
            raise CannotEvaluate(f"{e} is not an expression of symbols")


def evaluator(e: expr.PrimExpr) -> Callable[[Mapping[expr.Var, Any]], Any]:
    """Return `evaluate` of one expression, prepared for many calls."""
    match e:
        case expr.IntImm():
            value = evaluate(e, {})
            return lambda env: value
        case expr.Var():
            return lambda env: env[e] if e in env else evaluate(e, env)
        case expr.BinaryOp(a, b) if e.dtype in ("int64", "bool") and not _divides(e):
            compute, left, right = e.row.exact, evaluator(a), evaluator(b)
            return lambda env: compute(left(env), right(env))
        case _:
            return lambda env: evaluate(e, env)


Value = TypeVar("Value")


def remembered(
    compute: Callable[[Mapping[expr.Var, Any]], Value], root: Any
) -> Callable[[Mapping[expr.Var, Any]], Value]:
    """Return a function of the values of variables that remembers its last result: most calls of a
    program have the sizes of the call before. It depends on the variables in `root` alone."""
    needed = symbols_in(root)
    if any(is_float(v.dtype) for v in needed):
        return compute  # 0.0 and -0.0 are equal, and are not the same
    last: tuple[tuple[Any, ...], Value] | None = None

    def found(env: Mapping[expr.Var, Any]) -> Value:
        nonlocal last
        key = tuple(map(env.get, needed))
        known = last  # calls of other threads change it
        if known is None or known[0] != key:
            last = known = key, compute(env)
        return known[1]

    return found


def values_of(exprs: Sequence[expr.PrimExpr]) -> Callable[[Mapping[expr.Var, Any]], list[Any]]:
    """Return a function that evaluates expressions, and remembers their last values."""
    each = [evaluator(e) for e in exprs]
    return remembered(lambda env: [one(env) for one in each], tuple(exprs))


def _divides(e: expr.BinaryOp) -> bool:
    """True for divisions whose divisor may be 0, which `evaluate` gives an error for."""
    division = isinstance(e, expr.Div | expr.Mod | expr.FloorDiv | expr.FloorMod)
    return division and not (isinstance(e.b, expr.IntImm) and e.b.value != 0)


def unknowns(e: expr.PrimExpr, env: Mapping[expr.Var, Any]) -> tuple[expr.Var, ...]:
    """The distinct variables of `e` that `env` does not have, in order."""
    found = (n for n in walk(e) if isinstance(n, expr.Var) and n not in env)
    return tuple(dict.fromkeys(found))
