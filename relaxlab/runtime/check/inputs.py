"""Random arguments for functions: values of their symbols, then arrays, shapes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.ragged import stored, sums_of_products, totals_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.data import Constructor, DataDef, DataValue
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.arrays import ExecutionError, OutOfMemory

SIZES = (1, 2, 3, 5, 7, 16, 17)
"""Values of symbols: single rows, full vectors, and what no vector width divides."""


DEEPEST = 4
"""Levels of random values of data types, as far as the types have values so shallow."""
Data = Mapping[str, DataDef]


def random_arguments(
    fn: graph.Function,
    rng: np.random.Generator,
    sizes: Sequence[int] = SIZES,
    data: Data | None = None,
) -> tuple[Any, ...]:
    """Arguments for a function's parameters; symbols get random values from `sizes`, at most their
    declared bounds. Integers are small and not negative, so that they can be indices. `data` has
    the data types of the module.

    Raises ExecutionError for a parameter that no random value can be made for (a function, a value
    of unknown type) and for sizes that no array has, OutOfMemory for one that is too large.
    """
    bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    env = {
        s: min(int(rng.choice(sizes)), bounds.get(s.name, 1 << 30)) for s in symbols_in(fn.params)
    }
    given = {p: p.ty for p in fn.params if isinstance(p.ty, types.LengthsType)}
    for ty in given.values():
        _fit_limits(ty, env)
    lengths = {p: _random_lengths(ty, env, rng) for p, ty in given.items()}
    totals = totals_of(fn)
    types_of = {p: p.ty and stored(p.ty, totals) for p in fn.params}
    of_each = {ty.each: lengths[p] for p, ty in given.items() if ty.each is not None}
    env |= sums_of_products(totals.products(), of_each, env)
    return tuple(
        lengths[p] if p in lengths
        else random_value(types_of[p], env, rng, f"`{p.name}`", data)
        for p in fn.params
    )  # fmt: skip


def _random_lengths(
    ty: types.LengthsType, env: dict[expr.Var, int], rng: np.random.Generator
) -> Any:
    """Random lengths of sequences within their limits, which add up to the number of rows unless
    none do."""
    assert ty.shape is not None and ty.total is not None and ty.dtype is not None
    count, total = evaluate(ty.shape[0], env), evaluate(ty.total, env)
    most = total if ty.most is None else ty.most
    found = np.full(count, ty.least)
    while (rest := total - int(found.sum())) > 0 and (found < most).any():
        open_ = found < most
        found = np.minimum(found + rng.multinomial(rest, open_ / open_.sum()), most)
    return found.astype(numpy_dtype(ty.dtype))


def _fit_limits(ty: types.LengthsType, env: dict[expr.Var, int]) -> None:
    """Change the number of rows, else of sequences, where lengths within the limits add up to
    another one, if it is a symbol."""
    assert ty.shape is not None and ty.total is not None
    count, total = evaluate(ty.shape[0], env), evaluate(ty.total, env)
    if isinstance(ty.total, expr.Var):
        most = total if ty.most is None else ty.most * count
        env[ty.total] = min(max(total, ty.least * count), most) if count else 0
    elif isinstance(ty.shape[0], expr.Var):
        fewest = min(total, 1) if not ty.most else -(-total // ty.most)
        env[ty.shape[0]] = max(fewest, min(count, total // ty.least) if ty.least else count)


def random_value(
    ty: types.Type | None,
    env: dict[expr.Var, int],
    rng: np.random.Generator,
    what: str = "a value",
    data: Data | None = None,
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
            return tuple(random_value(f, env, rng, f"field {i} of {what}", data) for i, f in parts)
        case types.DataType(name) if data and name in data:
            return _random_data(data[name], data, rng, what, DEEPEST)
        case _:
            raise ExecutionError(f"there are no random values of type {ty}, which {what} has")


def _random_data(
    of: DataDef, data: Data, rng: np.random.Generator, what: str, levels: int
) -> DataValue:
    """A random value of a data type. Raises ExecutionError for one whose values have no end."""
    kinds = [c for c in of.constructors if levels > 0 or not _holds_data(c)]
    if not kinds:
        # Those with the fewest values inside, which may end further down.
        kinds = sorted(of.constructors, key=lambda c: sum(map(_is_data, c.fields)))[:1]
    if levels < -DEEPEST or not kinds:
        raise ExecutionError(f"there are no random values of type {of.name}, which {what} has")
    chosen = kinds[int(rng.integers(len(kinds)))]
    fields = [
        _random_data(data[f.name], data, rng, what, levels - 1)
        if isinstance(f, types.DataType) else random_value(f, {}, rng, what)
        for f in chosen.fields
    ]  # fmt: skip
    return chosen(*fields)


def _is_data(ty: types.Type) -> bool:
    return isinstance(ty, types.DataType)


def _holds_data(of: Constructor) -> bool:
    return any(map(_is_data, of.fields))


def nudged(value: Any, rng: np.random.Generator) -> Any:
    """A copy in which each floating-point number has moved to a neighbour, or stayed."""
    if isinstance(value, tuple):
        return tuple(nudged(v, rng) for v in value)
    if isinstance(value, DataValue):
        return replace(value, fields=nudged(value.fields, rng))
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
    if isinstance(value, DataValue):
        return replace(value, fields=copy_value(value.fields))
    return value.copy() if isinstance(value, np.ndarray) else value
