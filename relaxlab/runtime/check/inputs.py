"""Random arguments for functions: values of their symbols, then arrays, shapes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.arrays import ExecutionError, OutOfMemory

SIZES = (1, 2, 3, 5, 7, 16, 17)
"""Values of symbols: single rows, full vectors, and what no vector width divides."""


def random_arguments(
    fn: graph.Function, rng: np.random.Generator, sizes: Sequence[int] = SIZES
) -> tuple[Any, ...]:
    """Arguments for a function's parameters; symbols get random values from `sizes`, at most their
    declared bounds. Integers are small and not negative, so that they can be indices.

    Raises ExecutionError for a parameter that no random value can be made for (a function, a value
    of unknown type) and for sizes that no array has, OutOfMemory for one that is too large.
    """
    bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    env = {
        s: min(int(rng.choice(sizes)), bounds.get(s.name, 1 << 30)) for s in symbols_in(fn.params)
    }
    return tuple(random_value(p.ty, env, rng, f"`{p.name}`") for p in fn.params)


def random_value(
    ty: types.Type | None, env: dict[expr.Var, int], rng: np.random.Generator, what: str = "a value"
) -> Any:
    """A random value of a type, given its symbols' values. Raises ExecutionError naming `what`."""
    match ty:
        case types.TensorType(shape, dtype) if dtype is not None:
            dims = shape if shape is not None else (expr.const(3),) * max(ty.ndim, 0)
            size = tuple(evaluate(d, env) for d in dims)
            if any(d < 0 for d in size):
                raise ExecutionError(f"{what} would have the shape {size}")
            try:
                if is_float(dtype):
                    return rng.uniform(-1, 1, size).astype(numpy_dtype(dtype))
                high = 2 if dtype == "bool" else 3
                return rng.integers(0, high, size).astype(numpy_dtype(dtype))
            except (MemoryError, ValueError) as error:  # ValueError: more bytes than 63 bits count
                raise OutOfMemory.of(what, size, dtype) from error
        case types.ShapeType(values) if values is not None:
            return tuple(evaluate(v, env) for v in values)
        case types.PrimType(dtype, value):
            number = evaluate(value, env) if value is not None else int(rng.integers(1, 4))
            return numpy_dtype(dtype).type(number)
        case types.TupleType(fields):
            parts = enumerate(fields)
            return tuple(random_value(f, env, rng, f"field {i} of {what}") for i, f in parts)
        case _:
            raise ExecutionError(f"there are no random values of type {ty}, which {what} has")


def nudged(value: Any, rng: np.random.Generator) -> Any:
    """A copy in which each floating-point number has moved to a neighbour, or stayed."""
    if isinstance(value, tuple):
        return tuple(nudged(v, rng) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    if not is_float(str(value.dtype)):
        return value.copy()
    step = rng.integers(-1, 2, value.shape) * roundoff(str(value.dtype)) * 2
    return (value.astype("float64") * (1 + step)).astype(value.dtype)


def roundoff(dtype: str) -> float:
    """The largest relative error of rounding to a floating-point dtype."""
    if dtype == "bfloat16":
        return 2.0**-8
    return float(np.finfo(numpy_dtype(dtype)).eps) / 2


def copy_value(value: Any) -> Any:
    """A copy that shares no array."""
    if isinstance(value, tuple):
        return tuple(copy_value(v) for v in value)
    return value.copy() if isinstance(value, np.ndarray) else value
