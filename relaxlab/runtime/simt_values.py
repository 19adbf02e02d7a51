"""Expressions on simulated threads: NumPy scalars where all points agree, else arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter_helpers import NAMES
from relaxlab.runtime.interpreter_intrinsics import meaning_of

BINARY: dict[type[expr.PrimExpr], Callable[[Any, Any], Any]] = {
    expr.Add: operator.add, expr.Sub: operator.sub, expr.Mul: operator.mul,
    expr.Min: np.minimum, expr.Max: np.maximum, expr.And: np.logical_and, expr.Or: np.logical_or,
    expr.EQ: operator.eq, expr.NE: operator.ne, expr.LT: operator.lt, expr.LE: operator.le,
    expr.GT: operator.gt, expr.GE: operator.ge, expr.BitAnd: operator.and_,
    expr.BitOr: operator.or_, expr.BitXor: operator.xor, expr.ShiftLeft: operator.lshift,
    expr.ShiftRight: operator.rshift,
}  # fmt: skip

DIVISIONS: dict[type[expr.PrimExpr], str] = {
    expr.Div: "div", expr.Mod: "mod", expr.FloorDiv: "floordiv", expr.FloorMod: "floormod",
}  # fmt: skip


def divide(e: expr.BinaryOp, a: Any, b: Any) -> Any:
    """One of the divisions; for integers `b` is not zero."""
    prefix = "float_" if is_float(e.dtype) else ""
    return NAMES[prefix + DIVISIONS[type(e)]](a, b)


def intrinsic(e: expr.Call, args: list[Any]) -> Any:
    """A call of an intrinsic that needs nothing but values."""
    meaning = meaning_of(e.op)
    if meaning is None:
        raise ExecutionError(f"the SIMT interpreter has no meaning for {e.op}")
    return meaning(numpy_dtype(e.result_dtype), *args)
