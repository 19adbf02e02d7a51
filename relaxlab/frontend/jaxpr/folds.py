"""Primitives on values that are known while a program is imported; see `rows.Known`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.frontend.jaxpr.rows import fold
from relaxlab.frontend.known import MOST_KNOWN, Array, elementwise
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr

for _name, _fn in {"add": operator.add, "sub": operator.sub, "mul": operator.mul}.items():
    fold(_name)(elementwise(_fn, 2))
fold("neg")(elementwise(lambda a: -a, 1))


def _extreme(cls: type[expr.BinaryOp]) -> Callable[..., Any]:
    def chosen(a: Any, b: Any) -> Any:
        value = expr.binary(cls, expr.as_expr(a), expr.as_expr(b))
        return value.value if isinstance(value, expr.IntImm) else value

    return chosen


fold("max")(elementwise(_extreme(expr.Max), 2))
fold("min")(elementwise(_extreme(expr.Min), 2))


def _proved(cls: type[expr.BinaryOp]) -> Callable[..., Any]:
    """A comparison, where it holds for all sizes or for none; JAX's dimensions are at least 1."""

    def compared(a: Any, b: Any) -> Any:
        condition = cls(expr.as_expr(a), expr.as_expr(b))
        return analyzer_of(condition).prove(condition)

    return compared


def analyzer_of(*values: PrimExpr) -> Analyzer:
    """Return an analyzer in which the symbols of some expressions are sizes."""
    return Analyzer.for_shapes(*values)


for _name, _cls in {
    "lt": expr.LT, "le": expr.LE, "gt": expr.GT, "ge": expr.GE, "eq": expr.EQ, "ne": expr.NE,
}.items():  # fmt: skip
    fold(_name)(elementwise(_proved(_cls), 2))


def _quotient(a: Any, b: Any) -> Any:
    """Rounded toward zero, which is down where neither is negative."""
    positive = expr.GE(expr.as_expr(a), expr.const(0))
    if not isinstance(b, int) or b <= 0 or analyzer_of(positive).prove(positive) is not True:
        return None
    return a // b


def _remainder(a: Any, b: Any) -> Any:
    return None if _quotient(a, b) is None else a % b


fold("div")(elementwise(_quotient, 2))
fold("rem")(elementwise(_remainder, 2))


@fold("select_n")
def _select(which: Array, *cases: Array, **_: Any) -> Any:
    if which.shape:
        # `i, ...` keeps arrays: what `which[i]` gives of one dimension is a number.
        parts = [_select(which[i, ...], *(c[i, ...] for c in cases)) for i in range(len(which))]
        return None if any(p is None for p in parts) else np.stack(parts)
    chosen = which.item()
    return None if isinstance(chosen, PrimExpr) else cases[int(chosen)]


@fold("convert_element_type", "copy")
def _convert(values: Array, dtype: str, **_: Any) -> Any:
    integers = all(isinstance(v, int | bool | PrimExpr) for v in values.reshape(-1))
    to_float = dtype.startswith(("float", "bfloat"))
    symbolic = any(isinstance(v, PrimExpr) for v in values.reshape(-1))
    if to_float or dtype == "bool":
        return None if symbolic else values
    return values if integers else None


@fold("dim_as_value")
def _dim(*, dim: Any, **_: Any) -> Any:
    return np.array(dim, dtype=object)


@fold("platform_index")
def _platform(*, platforms: Any, **_: Any) -> Any:
    """The first choice for the CPU, or the one for whatever has none of its own."""
    fits = [i for i, names in enumerate(platforms) if names is None or "cpu" in names]
    return np.array(fits[0], dtype=object) if fits else None


@fold("broadcast_in_dim")
def _broadcast(values: Array, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    if not all(isinstance(d, int) for d in shape) or np.prod(shape, initial=1) > MOST_KNOWN:
        return None
    dims = {int(d): i for i, d in enumerate(broadcast_dimensions)}
    extents = [values.shape[dims[d]] if d in dims else 1 for d in range(len(shape))]
    return np.broadcast_to(values.reshape(extents), shape)


@fold("reshape")
def _reshape(values: Array, new_sizes: Any, **_: Any) -> Any:
    return values.reshape([int(d) for d in new_sizes])


@fold("squeeze")
def _squeeze(values: Array, dimensions: Any, **_: Any) -> Any:
    return values.squeeze(tuple(int(d) for d in dimensions))


@fold("concatenate")
def _concatenate(*values: Array, dimension: int, **_: Any) -> Any:
    return np.concatenate(values, dimension)


@fold("slice")
def _slice(
    values: Array, start_indices: Any, limit_indices: Any, strides: Any = None, **_: Any
) -> Any:
    steps = strides or [1] * values.ndim
    each = zip(start_indices, limit_indices, steps, strict=True)
    return values[tuple(slice(a, b, c) for a, b, c in each)]
