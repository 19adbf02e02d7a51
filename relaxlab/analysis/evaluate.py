"""The value of a scalar expression when its variables are known, in exact Python integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_float, is_uint, numpy_dtype
from relaxlab.ir.node import walk


class CannotEvaluate(ValueError):
    """The expression mentions an unknown variable, divides by zero, or reads memory."""


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _div(a: Any, b: Any) -> Any:
    return _truncated(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


_BINARY: dict[type[expr.BinaryOp], Callable[[Any, Any], Any]] = {
    expr.Add: lambda a, b: a + b, expr.Sub: lambda a, b: a - b, expr.Mul: lambda a, b: a * b,
    expr.Div: _div, expr.Mod: lambda a, b: a - b * _truncated(a, b),
    expr.FloorDiv: lambda a, b: a // b, expr.FloorMod: lambda a, b: a % b,
    expr.Min: min, expr.Max: max,
    expr.EQ: lambda a, b: a == b, expr.NE: lambda a, b: a != b, expr.LT: lambda a, b: a < b,
    expr.LE: lambda a, b: a <= b, expr.GT: lambda a, b: a > b, expr.GE: lambda a, b: a >= b,
    expr.And: lambda a, b: a and b, expr.Or: lambda a, b: a or b,
    expr.BitAnd: lambda a, b: a & b, expr.BitOr: lambda a, b: a | b,
    expr.BitXor: lambda a, b: a ^ b, expr.ShiftLeft: lambda a, b: a << b,
    expr.ShiftRight: lambda a, b: a >> b,
}  # fmt: skip


def evaluate(e: expr.PrimExpr, env: Mapping[expr.Var, Any]) -> Any:
    """The value of `e` with its variables taken from `env`: an int, float or bool.

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


def _exact(e: expr.PrimExpr, env: Mapping[expr.Var, Any]) -> Any:
    match e:
        case expr.IntImm(value, dtype):
            return bool(value) if dtype == "bool" else value
        case expr.FloatImm(value):
            return value
        case expr.Var(name):
            if e not in env:
                raise CannotEvaluate(f"symbol {name} is not known")
            return env[e]
        case expr.BinaryOp(a, b) if type(e) in _BINARY:
            try:
                return _BINARY[type(e)](evaluate(a, env), evaluate(b, env))
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


def unknowns(e: expr.PrimExpr, env: Mapping[expr.Var, Any]) -> tuple[expr.Var, ...]:
    """The distinct variables of `e` that `env` does not have, in order."""
    found = (n for n in walk(e) if isinstance(n, expr.Var) and n not in env)
    return tuple(dict.fromkeys(found))
