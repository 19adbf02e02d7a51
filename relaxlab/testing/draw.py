"""Random operands and attributes for calls of operators: shapes of symbols and numbers, arrays
within a range, axes, dtypes. The rules of `draw_rules` say per operator what fits together."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float, is_uint, numpy_dtype
from relaxlab.ir.types import TensorType

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *INTS)
SMALL = (1, 1, 2, 3, 4, 5, 8, 16, 17)
"""Usual extents: ones, full vectors, and what no vector width divides."""
LARGE = (0, 31, 32, 33, 64, 100, 128, 255, 300)
"""Rarer extents: none, whole tiles, several vectors and a rest."""
SYMBOL_SIZES = (0, 1, 1, 2, 3, 5, 8, 17, 33, 64, 100, 257)
"""Extents of symbols."""
ELEMENTS = 1 << 17
"""Elements of the largest tensor: 512 KiB of float32, more than the first-level cache."""
USUAL_ELEMENTS = 1 << 12
"""Elements of the largest tensor of most programs: few mistakes need more, which take longer."""
LARGE_PROGRAMS = 1 / 16
"""The share of programs that may have ELEMENTS."""
SPECIAL = (0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 1e-30, 30.0)

Shape = tuple[expr.PrimExpr, ...]


class Refused(Exception):
    """A rule found no operands that fit its operator this time."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values of an argument: between `low` and `high`, cycles of `values`, or places along the
    smallest of some `extents`, `beyond` more than there are on either side. `given` are all of
    them."""

    low: float = -2
    high: float = 2
    values: tuple[Any, ...] = ()
    extents: tuple[expr.PrimExpr, ...] = ()
    negative: bool = False
    beyond: int = 0
    rises: bool = False
    given: tuple[int, ...] = ()

    def array(self, shape: tuple[int, ...], dtype: str, sizes: Mapping[expr.Var, int],
              rng: np.random.Generator) -> Any:  # fmt: skip
        """Return a random array of such values."""
        kind = numpy_dtype(dtype)
        if self.given:
            return np.array(self.given, kind).reshape(shape)
        if self.values:
            found = np.resize(np.array(self.values, dtype=np.float64), shape).astype(kind)
            return rng.permuted(found.reshape(-1)).reshape(shape)
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        low, high = self.low, self.high
        if self.extents:
            size = min(evaluate(e, dict(sizes)) for e in self.extents)
            low = -size - self.beyond if self.negative else 0
            high = max(size - 1 + self.beyond, low)
        if is_float(dtype):
            found = rng.uniform(low, high, shape).astype(kind)
        else:
            found = rng.integers(int(low), int(high) + 1, shape).astype(kind)
        return np.sort(found) if self.rises else found


Found: TypeAlias = Callable[[Callable[[TensorType], bool], float, bool], graph.Var | None]
"""A value of the program whose type fits, of at most a magnitude, and without a rounding if that
is asked for."""


class Draw:
    """Draws operands. `inputs` are the parameters made so far with the range of their values,
    `sizes` the values of the symbols; `floats` are the dtypes of most floating-point operands,
    `most` the elements of the largest tensor."""

    def __init__(self, rng: random.Random, symbols: Sequence[expr.Var], found: Found) -> None:
        self.rng, self.symbols, self.found = rng, tuple(symbols), found
        self.sizes = {s: rng.choice(SYMBOL_SIZES) for s in self.symbols}
        self.inputs: dict[graph.Var, Range] = {}
        self.floats: tuple[str, ...] = ("float32",)
        self.most = ELEMENTS if self.chance(LARGE_PROGRAMS) else USUAL_ELEMENTS

    def chance(self, share: float) -> bool:
        """True with a probability."""
        return self.rng.random() < share

    def choice(self, items: Sequence[Any]) -> Any:
        """One of some items."""
        return self.rng.choice(items)

    # --- Extents --------------------------------------------------------------------------

    def size(self, extent: expr.PrimExpr) -> int:
        """The value of an extent."""
        return evaluate(extent, self.sizes)

    def dim(self) -> expr.PrimExpr:
        """A random extent: a symbol, an expression of one or two symbols, or a number."""
        if self.chance(0.35):
            return self.computed() if self.chance(0.2) else self.rng.choice(self.symbols)
        return expr.const(self.rng.choice(SMALL if self.chance(0.8) else LARGE))

    def computed(self) -> expr.PrimExpr:
        """An extent that is computed of symbols, as shapes after padding, joining, reshaping and
        windows have them."""
        a, b = self.rng.choice(self.symbols), self.rng.choice(self.symbols)
        by = self.rng.randint(2, 4)
        return self.rng.choice((a + 1, a * by, a // by, (a + by - 1) // by, a * b, a + b))

    def small(self) -> expr.PrimExpr:
        """A random extent that is a number, and not large."""
        return expr.const(self.rng.choice(SMALL))

    def shape(self, ndim: int, most: int = ELEMENTS) -> Shape:
        """Return a random shape of at most `most` elements, and of no more than the program's."""
        dims = [self.dim() for _ in range(ndim)]
        while self.count(dims) > min(most, self.most):
            largest = max(range(ndim), key=lambda d: self.size(dims[d]))
            dims[largest] = self.small()
        return tuple(dims)

    def count(self, shape: Sequence[expr.PrimExpr]) -> int:
        """The elements of a shape."""
        total = 1
        for d in shape:
            total *= self.size(d)
        return total

    # --- Tensors --------------------------------------------------------------------------

    def dtype(self, kinds: Sequence[str] = ("float",)) -> str:
        """One of some dtypes; "float" is one of the program's floating-point dtypes."""
        kind = self.rng.choice(kinds)
        return self.rng.choice(self.floats) if kind == "float" else kind

    def new(self, shape: Sequence[expr.ExprLike], dtype: str, low: float = -2, high: float = 2,
            values: Sequence[Any] = (), **more: Any) -> graph.Var:  # fmt: skip
        """A new parameter with values in [low, high], or out of `values`; see `Range`. Raises
        Refused if it has much more than the most elements."""
        dims = tuple(map(expr.as_expr, shape))
        if self.count(dims) > 4 * self.most:
            raise Refused
        if is_uint(dtype):
            low, high = max(low, 0), max(high, 3)
        var = graph.Var(f"p{len(self.inputs)}", TensorType(dims, dtype))
        self.inputs[var] = Range(low, high, tuple(values), **more)
        return var

    def x(self, ndim: tuple[int, int] = (0, 4), kinds: Sequence[str] = ("float",), low: float = -2,
          high: float = 2, exact: bool = False, most: int = ELEMENTS) -> graph.Var:  # fmt: skip
        """A tensor with `ndim` dimensions in a range, out of the program or new; `exact` where the
        operator is not continuous, so that a rounding would show as another result."""
        dtypes = {d for k in kinds for d in (self.floats if k == "float" else (k,))}

        def fits(ty: TensorType) -> bool:
            shape = ty.shape
            return (shape is not None and ndim[0] <= len(shape) <= ndim[1] and ty.dtype in dtypes
                    and self.count(shape) <= min(most, self.most))  # fmt: skip

        if self.chance(0.6) and (low, high) == (-2, 2):
            found = self.found(fits, 8.0, exact)
            if found is not None:
                return found
        return self.new(self.shape(self.rng.randint(*ndim), most), self.dtype(kinds), low, high)

    def like(self, x: graph.Var, low: float = -2, high: float = 2) -> graph.Var:
        """A tensor of the same shape and dtype."""
        found = self.chance(0.3) and self.found(lambda ty: ty == x.ty, 8.0, True)
        return found or self.new(shape_of(x), dtype_of(x), low, high)

    def broadcastable(self, x: graph.Var, dtype: str | None = None, low: float = -2,
                      high: float = 2) -> graph.Var:  # fmt: skip
        """A tensor whose shape broadcasts to that of `x`: the same, fewer dimensions, or ones."""
        dims = list(shape_of(x))
        if self.chance(0.4):
            dims = dims[self.rng.randint(0, len(dims)) :]
        if self.chance(0.4):
            dims = [expr.const(1) if self.chance(0.4) else d for d in dims]
        return self.new(dims, dtype or dtype_of(x), low, high)

    def indices(self, shape: Sequence[expr.ExprLike], *extents: expr.PrimExpr,
                negative: bool = False, beyond: int = 0) -> graph.Var:  # fmt: skip
        """Places along each of some extents; `negative` ones count from the end, at times."""
        dtype = self.rng.choice(("int32", "int64"))
        negative = negative and self.flag()
        return self.new(shape, dtype, extents=extents, negative=negative, beyond=beyond)

    def result_of(self, call: graph.Call) -> Shape:
        """The shape of the result of a call."""
        ty = type_of(call)
        if not isinstance(ty, TensorType) or ty.shape is None:
            raise Refused
        return ty.shape

    # --- Attributes -----------------------------------------------------------------------

    def axis(self, ndim: int) -> int:
        """One axis, counted from either end."""
        if not ndim:
            raise Refused
        return self.rng.randrange(-ndim, ndim)

    def axes(self, ndim: int, least: int = 1) -> tuple[int, ...]:
        """Distinct axes, each counted from either end."""
        if ndim < least:
            raise Refused
        some = self.rng.sample(range(ndim), self.rng.randint(least, ndim))
        return tuple(a - ndim if self.chance(0.4) else a for a in some)

    def some_axes(self, ndim: int) -> int | tuple[int, ...] | None:
        """None (all of them), an int, or a tuple of axes."""
        kind = self.rng.randrange(3)
        if kind == 0 or not ndim:
            return None
        return self.axis(ndim) if kind == 1 else self.axes(ndim)

    def flag(self) -> bool:
        """True or False."""
        return self.chance(0.5)

    def some(self, **attrs: Any) -> dict[str, Any]:
        """The attributes without some of them, whose defaults then hold."""
        return {name: value for name, value in attrs.items() if self.chance(0.75)}


def shape_of(x: graph.Var) -> Shape:
    """The shape of a tensor variable."""
    assert isinstance(x.ty, TensorType) and x.ty.shape is not None
    return x.ty.shape


def dtype_of(x: graph.Var) -> str:
    """The dtype of a tensor variable."""
    assert isinstance(x.ty, TensorType) and x.ty.dtype is not None
    return x.ty.dtype
