"""Parts of random programs: values in scope, and calls of operators on them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import relaxlab.ops  # noqa: F401  the rows of the operators
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.types import TensorType
from relaxlab.ops.define import builder

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16")
INTS = ("int32", "int64", "int8")
EXACT_UNARY = ("negative", "abs", "nn.relu", "square")
SMOOTH = ("exp", "tanh", "sigmoid", "nn.silu", "nn.gelu", "sin", "cos", "erf", "nn.softplus")
STEPS = ("floor", "ceil", "round", "sign", "trunc")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARE = ("less", "less_equal", "greater", "equal", "not_equal")
MOST = 64.0
"""Values larger than this are squashed: half precision overflows early."""


@dataclass(frozen=True, slots=True)
class Value:
    """A variable; `most` bounds its magnitude; `exact` values have seen no rounding, so that
    comparing them has one answer."""

    var: graph.Var
    most: float = 1.0
    exact: bool = True

    @property
    def ty(self) -> TensorType:
        """Its type, of known shape and dtype."""
        assert isinstance(self.var.ty, TensorType)
        return self.var.ty

    @property
    def dtype(self) -> str:
        assert self.ty.dtype is not None
        return self.ty.dtype

    @property
    def shape(self) -> tuple[expr.PrimExpr, ...]:
        assert self.ty.shape is not None
        return self.ty.shape


Made = tuple[graph.Expr, float, bool]
"""An expression, the bound of its magnitude, and whether it is exact."""


class Operators:
    """Makes calls of operators on values it made before, each right for its operands."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values: list[Value] = []
        self.bindings: list[graph.Binding] = []
        self.count = 0
        self.floats: tuple[str, ...] = FLOATS

    def step(self) -> None:
        """One more value, of known shape."""
        for _ in range(30):
            kept, known = len(self.bindings), len(self.values)
            try:
                made = self.rng.choice(self.makers())()
                if made is not None and self.add(*made):
                    return
            except DiagnosticError:
                pass
            del self.bindings[kept:], self.values[known:]

    def add(self, value: graph.Expr, most: float = 1.0, exact: bool = False) -> bool:
        """Bind an expression and keep it, if it has a shape and dtype that can be used."""
        ty = self.type_of(value)
        if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype is None or ty.ndim > 5:
            return False
        new = Value(self.bind(value), most, exact)
        if is_float(new.dtype) and most > MOST:
            new = Value(self.bind(builder("tanh")(new.var)), 1.0, False)
        self.values.append(new)
        return True

    def bind(self, value: graph.Expr) -> graph.Var:
        self.count += 1
        var = graph.Var(f"v{self.count}", self.type_of(value))
        self.bindings.append(graph.VarBinding(value, var))
        return var

    def type_of(self, value: graph.Expr) -> types.Type:
        """The type of an expression over the values in scope."""
        return type_of(value)

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value that fits, later ones more often."""
        found = [v for v in self.values if fits(v)]
        if not found:
            return None
        late = found[-4:] if self.rng.random() < 0.5 else found
        return self.rng.choice(late)

    def floating(self, ndim: int = 0) -> Value | None:
        return self.pick(lambda v: is_float(v.dtype) and len(v.shape) >= ndim)

    def number(self, value: float, dtype: str) -> graph.Constant:
        return graph.Constant(np.asarray(value).astype(numpy_dtype(dtype)))

    # --- Makers -------------------------------------------------------------------------------

    def makers(self) -> list[Callable[[], Made | None]]:
        often = [self.unary, self.smooth, self.binary, self.binary, self.constant, self.matmul,
                 self.reduce, self.cast]  # fmt: skip
        return often * 2 + [
            self.norm, self.softmax, self.attention, self.linear, self.where, self.compare,
            self.move, self.move, self.joined, self.slices, self.gather, self.scan, self.order,
            self.steps, self.positive, self.integer, self.topk, self.scatter, self.creation,
            self.einsum,
        ]  # fmt: skip

    def unary(self) -> Made | None:
        v = self.pick(lambda v: v.dtype not in ("bool", "int8"))
        if v is None:
            return None
        op = self.rng.choice(EXACT_UNARY)
        squares = op == "square"
        exact = v.exact and not (squares and is_float(v.dtype))
        return builder(op)(v.var), v.most ** (2 if squares else 1), exact

    def smooth(self) -> Made | None:
        v = self.floating()
        if v is None:
            return None
        op = self.rng.choice(SMOOTH)
        if op == "exp":
            return builder("exp")(v.var), math.exp(min(v.most, 20.0)), False
        return builder(op)(v.var), max(1.0, v.most + 1), False

    def steps(self) -> Made | None:
        v = self.pick(lambda v: is_float(v.dtype) and v.exact)
        if v is None:
            return None
        return builder(self.rng.choice(STEPS))(v.var), v.most + 1, True

    def positive(self) -> Made | None:
        v = self.floating()
        if v is None:
            return None
        shifted = self.bind(builder("abs")(v.var))
        shifted = self.bind(builder("add")(shifted, self.number(0.5, v.dtype)))
        op = self.rng.choice(("sqrt", "rsqrt", "log", "log2", "divide", "power"))
        if op == "divide":
            other = self.pick(lambda o: o.dtype == v.dtype)
            assert other is not None
            return builder("divide")(other.var, shifted), 2 * other.most, False
        if op == "power":
            return builder("power")(shifted, self.number(1.5, v.dtype)), (v.most + 1) ** 1.5, False
        return builder(op)(shifted), v.most + 2, False

    def binary(self) -> Made | None:
        a = self.pick(lambda v: v.dtype != "bool")
        b = a and self.pick(lambda v: v.dtype == a.dtype)
        if a is None or b is None:
            return None
        op = self.rng.choice(BINARY)
        most = {"add": a.most + b.most, "subtract": a.most + b.most, "multiply": a.most * b.most}
        exact = a.exact and b.exact and (op in ("maximum", "minimum") or not is_float(a.dtype))
        return builder(op)(a.var, b.var), most.get(op, max(a.most, b.most)), exact

    def constant(self) -> Made | None:
        v = self.pick(lambda v: v.dtype != "bool")
        if v is None:
            return None
        op, c = self.rng.choice(BINARY), self.rng.choice((2.0, -1.0, 0.5, 3.0))
        c = float(int(c)) if not is_float(v.dtype) else c
        args: list[graph.Expr] = [v.var, self.number(c, v.dtype)]
        if self.rng.random() < 0.3:
            args.reverse()
        exact = v.exact and (op in ("maximum", "minimum") or not is_float(v.dtype))
        return builder(op)(*args), v.most * 3 + 3, exact

    def integer(self) -> Made | None:
        v = self.pick(lambda v: v.dtype in INTS)
        if v is None:
            return None
        ops = ("floor_divide", "floor_mod", "left_shift", "bitwise_and", "bitwise_xor")
        op = self.rng.choice(ops)
        return builder(op)(v.var, self.number(self.rng.choice((2, 3)), v.dtype)), v.most * 8, True

    def cast(self) -> Made | None:
        to = self.rng.choice((*self.floats, *INTS[:2]))
        v = self.pick(lambda v: v.dtype != to and (v.exact or is_float(to)))
        if v is None or v.most > 1000 or (v.dtype == "int64" and v.most > 100):
            return None
        narrower = is_float(v.dtype) and v.dtype != to and to != "float32"
        return builder("astype")(v.var, to), v.most, v.exact and not narrower

    def compare(self) -> Made | None:
        a = self.pick(lambda v: v.exact and v.dtype != "bool")
        b = a and self.pick(lambda v: v.exact and v.dtype == a.dtype)
        if a is None or b is None:
            return None
        return builder(self.rng.choice(COMPARE))(a.var, b.var), 1.0, True

    def where(self) -> Made | None:
        c, a = self.pick(lambda v: v.dtype == "bool"), self.pick()
        b = a and self.pick(lambda v: v.dtype == a.dtype)
        if a is None or b is None or c is None:
            return None
        most, exact = max(a.most, b.most), a.exact and b.exact
        return builder("where")(c.var, a.var, b.var), most, exact

    def reduce(self) -> Made | None:
        v = self.pick(lambda v: len(v.shape) > 0 and v.dtype not in ("bool", "int8"))
        if v is None:
            return None
        op = self.rng.choice(("sum", "mean", "max", "min", "variance", "std", "sum", "argmax"))
        if op in ("mean", "variance", "std") and not is_float(v.dtype):
            op = "max"
        if op == "argmax" and not v.exact:
            op = "min"
        axis = self.rng.choice((-1, 0, None, len(v.shape) - 1))
        call = builder(op)(v.var, axis=axis, keepdims=self.rng.random() < 0.5)
        large = {"sum": v.most * 64, "variance": v.most**2 * 4, "std": v.most * 2, "argmax": 1e4}
        exact = v.exact and (op in ("max", "min", "argmax") or not is_float(v.dtype))
        return call, large.get(op, v.most), exact

    def softmax(self) -> Made | None:
        v = self.floating(1)
        op = self.rng.choice(("nn.softmax", "nn.softmax", "nn.log_softmax"))
        axis = self.rng.choice((-1, -1, 0))
        return v and (builder(op)(v.var, axis=axis), v.most * 2 + 8, False)

    def norm(self) -> Made | None:
        v = self.floating(2)
        if v is None:
            return None
        width, dtype = v.shape[-1], v.dtype
        weight = self.pick(lambda o: o.dtype == dtype and o.shape == (width,))
        if weight is None:
            shape = graph.ShapeExpr((width,))
            made = self.bind(builder("full")(shape, self.number(1.5, dtype), dtype))
            weight = Value(made, 2.0)
        if self.rng.random() < 0.5:
            return builder("nn.rms_norm")(v.var, weight.var, axes=[-1]), 8 * weight.most, False
        call = builder("nn.layer_norm")(v.var, weight.var, weight.var, axes=[-1])
        return call, 8 * weight.most, False

    def matmul(self) -> Made | None:
        a = self.floating(1)
        b = a and self.pick(lambda v: v.dtype == a.dtype and len(v.shape) >= 2
                            and v.shape[-2] == a.shape[-1])  # fmt: skip
        if a is None or b is None:
            return None
        half = a.dtype != "float32"
        out = self.rng.choice((None, "float32")) if half else None
        return builder("matmul")(a.var, b.var, out_dtype=out), 16 * a.most * b.most, False

    def linear(self) -> Made | None:
        w = self.pick(lambda v: is_float(v.dtype) and len(v.shape) == 2)
        x = w and self.pick(lambda v: v.dtype == w.dtype and v.shape[-1:] == w.shape[-1:]
                            and len(v.shape) >= 2)  # fmt: skip
        if w is None or x is None:
            return None
        return builder("linear")(x.var, w.var), 16 * x.most * w.most, False

    def einsum(self) -> Made | None:
        a = self.pick(lambda v: v.dtype == "float32" and len(v.shape) == 2)
        b = a and self.pick(lambda v: v.dtype == "float32" and v.shape[:1] == a.shape[:1]
                            and len(v.shape) == 2)  # fmt: skip
        if a is None or b is None:
            return None
        return builder("einsum")((a.var, b.var), "ij,ik->jk"), 20 * a.most * b.most, False

    def attention(self) -> Made | None:
        """Heads of 8 features; keys and values may have another length than queries."""
        q = self.pick(lambda v: is_float(v.dtype) and len(v.shape) == 2
                      and v.shape[-1] == expr.const(8))  # fmt: skip
        k = q and self.pick(lambda v: v.dtype == q.dtype and len(v.shape) == 2
                            and v.shape[-1] == expr.const(8))  # fmt: skip
        if q is None or k is None:
            return None
        wide = [graph.ShapeExpr((expr.const(1), v.shape[0], expr.const(1), expr.const(8)))
                for v in (q, k)]  # fmt: skip
        a, b = (self.bind(builder("reshape")(v.var, s)) for v, s in zip((q, k), wide, strict=True))
        causal = self.rng.choice((None, "TopLeft")) if q.shape[0] == k.shape[0] else None
        call = builder("nn.attention")(a, b, b, causal_mask=causal)
        return call, k.most, False

    def move(self) -> Made | None:
        v = self.pick()
        if v is None:
            return None
        ndim, kind = len(v.shape), self.rng.choice(("turn", "flat", "wide", "flip", "tile", "rep"))
        match kind:
            case "turn":
                axes = self.rng.sample(range(ndim), ndim)
                call = builder("permute_dims")(v.var, axes=axes)
            case "flat":
                call = builder("flatten")(v.var)
            case "wide":
                call = builder("expand_dims")(v.var, self.rng.randint(0, ndim))
            case "flip" if ndim:
                call = builder("flip")(v.var, self.rng.randrange(ndim))
            case "tile" if 0 < ndim < 3:
                call = builder("tile")(v.var, [2] + [1] * (ndim - 1))
            case "rep" if ndim:
                call = builder("repeat")(v.var, 2, self.rng.randrange(ndim))
            case _:
                return None
        return call, v.most, v.exact

    def joined(self) -> Made | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        b = a and self.pick(lambda v: v.dtype == a.dtype and v.shape[1:] == a.shape[1:]
                            and len(v.shape) == len(a.shape))  # fmt: skip
        if a is None or b is None:
            return None
        if a.shape == b.shape and self.rng.random() < 0.3:
            call = builder("stack")((a.var, b.var), axis=self.rng.randint(0, 1))
        else:
            call = builder("concat")((a.var, b.var), axis=0)
        return call, max(a.most, b.most), a.exact and b.exact

    def slices(self) -> Made | None:
        v = self.pick(lambda v: expr.const(8) in v.shape)
        if v is None:
            return None
        axis = v.shape.index(expr.const(8))
        if self.rng.random() < 0.5:
            begin, stride = self.rng.choice(((1, 1), (0, 2), (3, 3)))
            call = builder("strided_slice")(
                v.var, axes=[axis], begin=[begin], end=[7], strides=[stride]
            )
            return call, v.most, v.exact
        parts = self.bind(builder("split")(v.var, 2, axis=axis))
        return graph.TupleGetItem(parts, self.rng.randint(0, 1)), v.most, v.exact

    def gather(self) -> Made | None:
        ids = self.pick(lambda v: v.var.name == "i")
        v = self.pick(lambda v: expr.const(8) in v.shape)
        if ids is None or v is None:
            return None
        return builder("take")(v.var, ids.var, v.shape.index(expr.const(8))), v.most, v.exact

    def scatter(self) -> Made | None:
        v = self.pick(lambda v: v.shape[:1] == (expr.const(8),) and len(v.shape) == 2)
        if v is None:
            return None
        places = graph.Constant(np.asarray([[1], [5]], "int64"))
        width = graph.ShapeExpr((expr.const(2), *v.shape[1:]))
        new = self.bind(builder("full")(width, self.number(1.0, v.dtype), v.dtype))
        call = builder("scatter_nd")(v.var, places, new, reduction="update")
        return call, v.most, v.exact

    def scan(self) -> Made | None:
        v = self.pick(lambda v: v.dtype in ("float32", "int32", "int64") and len(v.shape) > 0)
        if v is None:
            return None
        axis = self.rng.randrange(len(v.shape))
        return builder("cumsum")(v.var, axis=axis), v.most * 64, v.exact and v.dtype != "float32"

    def order(self) -> Made | None:
        v = self.pick(lambda v: v.exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
        if v is None:
            return None
        op = self.rng.choice(("sort", "argsort"))
        call = builder(op)(v.var, axis=-1, descending=self.rng.random() < 0.5)
        return call, 1e4 if op == "argsort" else v.most, True

    def topk(self) -> Made | None:
        v = self.pick(lambda v: v.exact and v.shape[-1:] == (expr.const(8),)
                      and v.dtype in ("float32", "int32"))  # fmt: skip
        if v is None:
            return None
        both = self.bind(builder("topk")(v.var, k=3, axis=-1))
        at = self.rng.randint(0, 1)
        return graph.TupleGetItem(both, at), 8.0 if at else v.most, True

    def creation(self) -> Made | None:
        v = self.pick(lambda v: len(v.shape) == 2)
        if v is None:
            return None
        kind = self.rng.choice(("tril", "triu", "zeros_like", "arange"))
        if kind == "arange":
            return builder("arange")(0, v.shape[0], 1, "int32"), 300.0, True
        return builder(kind)(v.var), v.most, v.exact
