"""Checking values against types while a program runs, and binding the symbols that they define."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import in_dtype, unknowns
from relaxlab.analysis.ragged import Totals, mentions_ragged, stored, sums_of_products
from relaxlab.analysis.unify import bind_values
from relaxlab.ir import expr
from relaxlab.ir.data import DataValue
from relaxlab.ir.dtypes import is_float, is_int
from relaxlab.ir.graph import Expr, Function
from relaxlab.ir.types import (
    DataType,
    FuncType,
    Length,
    LengthsType,
    ObjectType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)
from relaxlab.runtime.arrays import Array, ExecutionError, as_array, dtype_name
from relaxlab.runtime.interpreter.outside_functions import outside

Dim = tuple[expr.PrimExpr, int, str]
"""A declared dimension, the actual size, and its place."""


@dataclass(slots=True)
class Symbols:
    """The symbols of one call of a function: their values and where each was bound; the lengths of
    sequences, the symbols of how many rows they have, and what is stated of them."""

    values: dict[expr.Var, int] = field(default_factory=dict[expr.Var, int])
    origins: dict[expr.Var, str] = field(default_factory=dict[expr.Var, str])
    lengths: dict[Length, Array] = field(default_factory=dict[Length, Array])
    totals: Totals = field(default_factory=Totals)
    known: tuple[LengthsType, ...] = ()
    of_one: bool = False
    """They are those of one sequence, in whose place all others are."""
    signed: Container[str] = ()
    """Names of those that may be negative."""

    def copy(self) -> Symbols:
        """Return a copy of the symbols, to be added to independently."""
        return Symbols(
            dict(self.values), dict(self.origins), dict(self.lengths), self.totals.copy(),
            self.known, self.of_one, self.signed,
        )

    def define_lengths(self, value: Any, ty: Type | None, where: str) -> list[Dim]:
        """Take the lengths of a parameter, and return the number of rows beside the declared one.
        Raises ExecutionError for lengths that there are not."""
        if not isinstance(ty, LengthsType) or ty.each is None or ty.total is None:
            return []
        if not isinstance(value, np.ndarray) or value.ndim != 1:
            return []  # refused with what else has another rank or kind
        most = max(value, default=0) if ty.most is None else ty.most
        for at in np.flatnonzero((value < ty.least) | (value > most))[:1]:
            limits = f"not in {ty.least} to {most}"
            raise ExecutionError(f"{where}: length {at} is {value[at]}, {limits}")
        self.lengths[ty.each] = value
        self.totals.define(ty)
        self.known = (*self.known, ty)
        return [(ty.total, int(value.sum(dtype="int64")), f"the number of rows of {where}")]

    def analyzer(self, e: Expr) -> Analyzer:
        """Return an analyzer for the type of an expression, with the limits of the lengths."""
        an = Analyzer.for_shapes(e)
        for ty in self.known:
            if ty.each is not None:
                an.bind(ty.each, ty.least, ty.most)
        return an

    def stored(self, ty: Type) -> Type:
        """The type of the arrays that values of type `ty` are."""
        if not self.totals and not mentions_ragged(ty):
            return ty
        found = stored(ty, self.totals)
        new = {p: s for p, s in self.totals.products().items() if s not in self.values}
        for symbol, size in sums_of_products(new, self.lengths, self.values).items():
            self.values[symbol], self.origins[symbol] = size, "products of the lengths"
        return found

    def bind(self, dims: Sequence[Dim]) -> None:
        """Bind the symbols of declared dimensions and check all of them.

        Raises ExecutionError naming the place, the expected and the actual size, and where the
        symbol got its value.
        """
        known = set(self.values)
        wrong = bind_values([(d, size) for d, size, _ in dims], self.values)
        for d, _, place in dims:
            if isinstance(d, expr.Var) and d not in known:
                self.origins.setdefault(d, place)
                if self.values[d] < 0 and is_int(d.dtype) and d.name not in self.signed:
                    raise ExecutionError(
                        f"`{d}` is {self.values[d]} ({place}); a symbol must not be negative"
                    )
        for at, expected in wrong:
            declared, size, place = dims[at]
            if isinstance(declared, expr.Var):
                raise ExecutionError(
                    f"`{declared}` is {self.values[declared]} in "
                    f"{self.origins.get(declared, 'the shapes before')} and {size} in {place}"
                )
            raise ExecutionError(f"{place} is {size}, expected {expected}")

    def bind_known(self, dims: Sequence[Dim]) -> None:
        """Check the dimensions whose symbols all have values; the others claim nothing."""
        self.bind([d for d in dims if not unknowns(d[0], self.values)])


def match_value(value: Any, ty: Type, where: str) -> list[Dim]:
    """Check the kind, dtype and rank of `value`, and return its dimensions beside the declared
    ones.

    Raises ExecutionError naming `where`.
    """
    match ty:
        case TensorType(shape, dtype, ndim):
            if not isinstance(value, np.ndarray):
                raise _kind(where, "a tensor", value)
            if dtype is not None and dtype_name(value) != dtype:
                raise ExecutionError(f"{where} has dtype {value.dtype}, expected {dtype}")
            _rank(where, value.ndim, ndim, f" (shape {value.shape})")
            return _dims(shape, value.shape, "dimension", where)
        case ShapeType(values, ndim):
            if not (isinstance(value, tuple) and all(isinstance(v, int) for v in value)):
                raise _kind(where, "a shape (a tuple of int)", value)
            _rank(where, len(value), ndim, f" {value}")
            return _dims(values, value, "value", where)
        case PrimType(dtype, stated):
            if not isinstance(value, int | float):
                raise _kind(where, "a number", value)
            if not is_float(dtype) and not isinstance(value, int):
                raise _kind(where, "an integer", value)
            if value == value and value != in_dtype(value, dtype):
                raise ExecutionError(f"{where} is {value}, outside of the range of {dtype}")
            return [] if stated is None else [(stated, value, f"the value of {where}")]  # type: ignore[list-item]
        case TupleType(fields):
            if not isinstance(value, tuple) or len(value) != len(fields):
                raise _kind(where, f"a tuple of {len(fields)}", value)
            both = enumerate(zip(value, fields, strict=True))
            return [d for i, (v, t) in both for d in match_value(v, t, f"field {i} of {where}")]
        case DataType(name):
            if not isinstance(value, DataValue) or value.data != name:
                raise _kind(where, f"a value of the data type `{name}`", value)
            return []
        case FuncType():
            if not callable(value):
                raise _kind(where, "a function", value)
            return []
        case _:
            return []


def _kind(where: str, expected: str, value: Any) -> ExecutionError:
    got = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
    return ExecutionError(f"{where} must be {expected}, got {got}")


def _rank(where: str, got: int, ndim: int, detail: str) -> None:
    if ndim >= 0 and got != ndim:
        raise ExecutionError(f"{where} has {got} dimensions{detail}, expected {ndim}")


def _dims(
    declared: tuple[expr.PrimExpr, ...] | None, actual: Sequence[int], what: str, where: str
) -> list[Dim]:
    if declared is None:
        return []
    both = enumerate(zip(declared, actual, strict=True))
    return [(d, int(size), f"{what} {i} of {where}") for i, (d, size) in both]


def arguments(given: tuple[Any, ...], fn: Function, name: str) -> tuple[Any, ...]:
    """Return the interpreter's values for the arguments that Python passes to `fn`, called `name`,
    one for each parameter; see `to_value`."""
    both = zip(given, fn.params, strict=True)
    return tuple(to_value(a, p.ty, f"parameter `{p.name}` of `{name}`") for a, p in both)


def to_value(value: Any, ty: Type | None, where: str) -> Any:
    """An argument given in Python as the interpreter's value for a parameter of type `ty`:
    arrays for tensors, tuples of int for shapes, numbers for scalars, functions that may not write
    to their arguments.

    Raises ExecutionError naming `where` for a shape with what is no size.
    """
    match ty:
        case TensorType():
            return value if isinstance(value, tuple | Callable) else as_array(value)
        case ShapeType():
            return _sizes(value, where) if isinstance(value, list | tuple) else value  # type: ignore[reportUnknownArgumentType]
        case PrimType(dtype):
            number = value.item() if isinstance(value, np.generic | np.ndarray) else value
            known = isinstance(number, int | float) and is_float(dtype)
            return in_dtype(number, dtype) if known else number
        case TupleType(fields) if isinstance(value, list | tuple) and len(value) == len(fields):
            both = enumerate(zip(value, fields, strict=True))
            return tuple(to_value(v, t, f"field {i} of {where}") for i, (v, t) in both)
        case FuncType():
            return outside(value)
        case ObjectType() | None:
            return as_array(value) if isinstance(value, int | float) else value
        case _:
            return value


def _sizes(shape: Sequence[Any], where: str) -> tuple[int, ...]:
    for size in shape:
        if not isinstance(size, int | np.integer):
            raise ExecutionError(f"{where} must be a shape of integers, got {shape!r}")
        if not 0 <= size < 1 << 63:
            raise ExecutionError(f"{where} must be a shape; {size} in {shape!r} is no size")
    return tuple(map(int, shape))
