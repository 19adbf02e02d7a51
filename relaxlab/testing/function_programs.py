"""Random programs that recurse, have functions as values, and claim shapes that only some arguments
have, beside the calls of `table_programs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.types import FuncType, ObjectType, TensorType
from relaxlab.ops.define import builder
from relaxlab.testing.mixed_operators import MOST, Made, Value
from relaxlab.testing.table_programs import TableProgram

SHARE = 0.06
"""The share of programs that have a block of each kind; calls among others are rarer."""
BOUND = 3.0
"""The largest magnitude of what such functions are given and return: they may be called often."""
COUNT = TensorType((), "int64")


class FunctionProgram(TableProgram):
    """A program whose local functions capture what is in scope; its functions take and return
    values of one type."""

    def makers(self) -> list[Callable[[], Made | None]]:
        """At times a call of such a function, also within arms and within other functions."""
        return [*super().makers(), self.counted, self.shrinking, self.mutual, self.applied,
                self.claimed]  # fmt: skip

    def parts(self, length: int) -> list[graph.BindingBlock]:
        """A block of each kind in some."""
        blocks = super().parts(length)
        recursive = (self.counted, self.counted, self.shrinking, self.mutual)
        for makers in (recursive, (self.applied,), (self.claimed,)):
            if self.rng.random() < SHARE:
                self.bindings = []
                made = self.rng.choice(makers)()
                if made is not None and self.add(*made):
                    blocks.append(graph.BindingBlock(tuple(self.bindings)))
        return blocks

    # --- Functions --------------------------------------------------------------------------

    def start(self, ndim: int = 0) -> Value | None:
        """A value that functions may be called with again and again, of `ndim` dimensions or
        more."""
        return self.pick(lambda v: v.most <= BOUND and self._sized(v.ty) and len(v.shape) >= ndim)

    def parameter(self, v: Value) -> Value:
        """A parameter for values like `v`, whose dimensions are those of `v` or symbols of its
        own."""
        ty = self.own_symbols(v.ty) if self.rng.random() < 0.5 else v.ty
        return Value(graph.Var(self.name("y"), ty), BOUND, not is_float(v.dtype))

    def own_symbols(self, ty: TensorType) -> TensorType:
        """The type with a new symbol for each dimension."""
        assert ty.shape is not None
        symbols = tuple(expr.Var(f"d{len(self.derived) + i}") for i in range(len(ty.shape)))
        for s, extent in zip(symbols, ty.shape, strict=True):
            self.derived[s] = extent
            self.draw.sizes[s] = self.draw.size(extent)
        return TensorType(symbols, ty.dtype)

    def name(self, stem: str) -> str:
        """A name that no other variable has."""
        self.count += 1
        return f"{stem}{self.count}"

    def inside(self, values: Sequence[Value], make: Callable[[], graph.Expr]) -> graph.SeqExpr:
        """The bindings and the result of `make`, with more values in scope."""
        kept, around = self.values, self.bindings
        self.values, self.bindings = [*kept, *values], []
        try:
            result = make()
            blocks = (graph.BindingBlock(tuple(self.bindings)),) if self.bindings else ()
            return graph.SeqExpr(blocks, result)
        finally:
            self.values, self.bindings = kept, around

    def advanced(self, x: Value) -> graph.Var:
        """A value of the type of `x` that is computed of it, and of others in scope."""
        known = len(self.values)
        for _ in range(self.rng.randrange(3)):
            self.step()
        made = [v for v in self.values[known:] if v.ty == x.ty and v.most <= MOST]
        other = self.rng.choice(made) if made else x
        if x.dtype == "bool":
            return self.bind(builder("not_equal")(x.var, builder("logical_not")(other.var)))
        both = self.bind(builder(self.rng.choice(("add", "multiply", "maximum")))(x.var, other.var))
        if is_float(x.dtype):
            return self.bind(builder("tanh")(both))
        return self.bind(builder("clip")(both, min=0, max=3))

    def local(self, v: Value, *more: graph.Var) -> graph.Var:
        """A local function from values like `v` to such values; `more` are its last
        parameters."""
        y = self.parameter(v)
        extra = [Value(p, BOUND, False) for p in more]
        body = self.inside([*extra, y], lambda: self.advanced(y))
        return self.bind(graph.Function((y.var, *more), body, y.ty))

    # --- Recursion --------------------------------------------------------------------------

    def counted(self) -> Made | None:
        """A local function that calls itself a number of times, and works before and after that
        call."""
        v = self.start()
        if v is None:
            return None
        y, counts = self.parameter(v), self.rng.random() < 0.5
        symbol = expr.Var(self.name("c"))
        ty = types.PrimType("int64", symbol) if counts else COUNT
        left = graph.Var(self.name("left"), ty)
        itself = graph.Var(self.name("again"), FuncType((y.ty, ty), y.ty))

        def last() -> graph.Var:
            return y.var if self.rng.random() < 0.5 else self.advanced(y)

        def further() -> graph.Var:
            before = self.advanced(y) if self.rng.random() < 0.7 else y.var
            less = graph.PrimValue(symbol - 1) if counts else builder("subtract")(left, _count(1))
            result = self.bind(graph.Call(itself, (before, self.bind(less))))
            if self.rng.random() < 0.5:
                return result
            return self.advanced(Value(result, BOUND, y.exact))

        def body() -> graph.Var:
            done = (graph.PrimValue(expr.LE(symbol, expr.const(0))) if counts
                    else builder("less_equal")(left, _count(0)))  # fmt: skip
            arms = self.inside([], last), self.inside([], further)
            return self.bind(graph.If(self.bind(done), *arms))

        function = graph.Function((y.var, left), self.inside([y], body), y.ty)
        self.bindings.append(graph.VarBinding(function, itself))
        times: graph.Expr
        if counts:
            times = graph.PrimValue(self.rng.choice((expr.const(3), self.n % 4)))
        elif self.rng.random() < 0.3:
            times = _count(self.rng.randrange(4))
        else:
            times = self.draw.new((), "int64", 0, 4)
            self.extra.append(times)
        return graph.Call(itself, (v.var, times)), BOUND, y.exact

    def shrinking(self) -> Made | None:
        """A function that takes the first row off and calls itself with the others."""
        v = self.start(1)
        if v is None:
            return None
        rest = tuple(expr.Var(f"b{i}") for i in range(len(v.shape) - 1))
        name = f"rows_{v.dtype}_{len(rest)}"
        self.functions[name] = _by_rows(name, v.dtype, rest)
        result = graph.Var(self.name("v"), TensorType(v.shape[1:], v.dtype))
        call = graph.Call(graph.GlobalVar(name), (v.var,))
        self.bindings.append(graph.VarBinding(call, result))
        self.values.append(Value(result, BOUND, not is_float(v.dtype)))
        return builder("negative")(result) if v.dtype != "bool" else result, BOUND, v.exact

    def mutual(self) -> Made | None:
        """Two functions of the module that call each other."""
        v = self.start()
        if v is None or not is_float(v.dtype):
            return None
        names = [f"{parity}_{v.dtype}_{len(v.shape)}" for parity in ("even", "odd")]
        for name, other, op in zip(names, names[::-1], ("sin", "negative"), strict=True):
            self.functions[name] = _in_turn(other, op, v.dtype, len(v.shape))
        times = self.draw.new((), "int64", 0, 4)
        self.extra.append(times)
        result = graph.Var(self.name("v"), v.ty)
        call = graph.Call(graph.GlobalVar(self.rng.choice(names)), (v.var, times))
        self.bindings.append(graph.VarBinding(call, result))
        return builder("negative")(result), BOUND, False

    # --- Functions as values ----------------------------------------------------------------

    def applied(self) -> Made | None:
        """A call of a function that is passed on, chosen, bound, taken out of a tuple, returned by
        another, or captured."""
        v = self.start()
        if v is None:
            return None
        f = self.local(v)
        match self.rng.choice(("called", "passed", "chosen", "field", "bound", "captured",
                               "returned")):  # fmt: skip
            case "passed":
                stated = self.rng.random() < 0.5
                name = f"twice_{v.dtype}_{len(v.shape)}{'_stated' if stated else ''}"
                self.functions[name] = _twice(v.dtype, len(v.shape), stated)
                result = graph.Var(self.name("v"), v.ty)
                call = graph.Call(graph.GlobalVar(name), (f, v.var))
                self.bindings.append(graph.VarBinding(call, result))
                return self.copy(result)
            case "chosen":
                arms = (graph.SeqExpr((), f), graph.SeqExpr((), self.local(v)))
                f = self.bind(graph.If(self.condition(), *arms))
            case "field":
                both = self.bind(graph.Tuple((v.var, f)))
                f = self.bind(graph.TupleGetItem(both, 1))
            case "bound":
                other = self.start()
                assert other is not None
                first = graph.Var(self.name("a"), other.ty)
                given = graph.Tuple((other.var,))
                f = self.bind(graph.Call(graph.Op("make_closure"), (self.local(v, first), given)))
            case "captured":
                y, g = self.parameter(v), f
                body = self.inside([], lambda: self.call_of(g, self.call_of(g, y.var, y.ty), y.ty))
                f = self.bind(graph.Function((y.var,), body, y.ty))
            case "returned":
                name = f"composed_{v.dtype}_{len(v.shape)}"
                self.functions[name] = _composed(v.dtype, len(v.shape))
                composed = graph.Var(self.name("f"), ObjectType())
                call = graph.Call(graph.GlobalVar(name), (f, self.local(v)))
                self.bindings.append(graph.VarBinding(call, composed))
                f = composed
            case _:
                pass
        return self.copy(self.call_of(f, v.var, v.ty))

    def copy(self, result: graph.Var) -> Made:
        """A value that was computed by a function, read once more."""
        assert isinstance(result.ty, TensorType) and result.ty.dtype is not None
        op = "logical_not" if result.ty.dtype == "bool" else "negative"
        return graph.Call(graph.Op(op), (result,)), BOUND, not is_float(result.ty.dtype)

    def call_of(self, f: graph.Var, x: graph.Var, ty: TensorType) -> graph.Var:
        """The result of a function value, of type `ty`."""
        if isinstance(f.ty, ObjectType) or self.rng.random() < 0.5:
            return self.bind(_invoked(f, x, ty))
        result = self.bind(graph.Call(f, (x,)))
        if result.ty == ty:
            return result
        known = graph.Var(self.name("v"), ty)
        self.bindings.append(graph.MatchCast(result, ty, known))
        return known

    # --- Claims -----------------------------------------------------------------------------

    def claimed(self) -> Made | None:
        """A value under a shape that it need not have: other symbols, sums, products, one symbol
        twice, or the extents that were drawn."""
        v = self.pick(lambda v: len(v.shape) > 0 and self._sized(v.ty))
        if v is None:
            return None
        hidden = graph.Var(self.name("v"), TensorType(None, v.dtype, len(v.shape)))
        self.bindings.append(graph.MatchCast(v.var, type_of(hidden), hidden))
        symbols = self.own_symbols(v.ty).shape
        assert symbols is not None
        dims = tuple(self.dimension(d, symbols) for d in v.shape)
        known = graph.Var(self.name("v"), TensorType(dims, v.dtype))
        self.bindings.append(graph.MatchCast(hidden, type_of(known), known))
        return self.copy(known)[0], v.most, v.exact

    def dimension(self, d: expr.PrimExpr, symbols: tuple[expr.PrimExpr, ...]) -> expr.PrimExpr:
        """The claim for an extent; `symbols` are new ones."""
        rng = self.rng
        if rng.random() < 0.5:
            return d
        one = rng.choice(symbols)
        return rng.choice(
            (
                one,
                one,
                one * 2,
                one + 1,
                d + 1,
                d * 2,
                expr.const(self.draw.size(d)),
                rng.choice((self.n, self.m, self.k)),
            )
        )


def _count(value: int) -> graph.Constant:
    return graph.Constant(np.asarray(value, "int64"))


def _typed(dtype: str, ndim: int, name: str) -> tuple[graph.Var, TensorType]:
    """A parameter with symbols of its own, and its type."""
    ty = TensorType(tuple(expr.Var(f"{name}{i}") for i in range(ndim)), dtype)
    return graph.Var(name, ty), ty


def _function(
    params: Sequence[graph.Var], bindings: Sequence[graph.Binding], result: graph.Var,
) -> graph.Function:  # fmt: skip
    """A private function of the module."""
    body = graph.SeqExpr((graph.BindingBlock(tuple(bindings)),), result)
    return graph.Function(tuple(params), body, result.ty, private=True)


def _arm(value: graph.Expr, ty: types.Type, *before: graph.Binding) -> graph.SeqExpr:
    """An arm of an `If` that binds and returns a value of type `ty`."""
    result = graph.Var("r", ty)
    block = graph.BindingBlock((*before, graph.VarBinding(value, result)))
    return graph.SeqExpr((block,), result)


def _by_rows(name: str, dtype: str, rest: tuple[expr.Var, ...]) -> graph.Function:
    """(a, *rest) to (*rest,): the function called `name`, which folds the rows from the last to the
    first."""
    a = expr.Var("a")
    x, ty = graph.Var("x", TensorType((a, *rest), dtype)), TensorType(rest, dtype)
    others, first = (
        builder("strided_slice")(x, axes=[0], begin=[b], end=[e], assume_inbound=True)
        for b, e in ((expr.const(1), a), (expr.const(0), expr.const(1)))
    )
    y, row = graph.Var("others", type_of(others)), graph.Var("first", type_of(first))
    below, flat = graph.Var("below", ty), graph.Var("row", ty)
    before = (
        graph.VarBinding(others, y), graph.VarBinding(first, row),
        graph.VarBinding(builder("squeeze")(row, axis=[0]), flat),
        graph.VarBinding(graph.Call(graph.GlobalVar(name), (y,)), below),
    )  # fmt: skip
    op = "logical_or" if dtype == "bool" else "maximum"
    both = graph.Call(graph.Op(op), (below, flat))
    none = builder("zeros")(graph.ShapeExpr(rest), dtype=dtype)
    some = graph.PrimValue(expr.GT(a, expr.const(0)))
    condition, chosen = graph.Var("some", type_of(some)), graph.Var("chosen", ty)
    either = graph.If(condition, _arm(both, ty, *before), _arm(none, ty))
    bindings = (graph.VarBinding(some, condition), graph.VarBinding(either, chosen))
    return _function((x,), bindings, chosen)


def _in_turn(other: str, op: str, dtype: str, ndim: int) -> graph.Function:
    """A function of a tensor and a count: `op` of the tensor is given to the function `other`
    unless the count is 0."""
    x, ty = _typed(dtype, ndim, "x")
    left, less, done = graph.Var("left", COUNT), graph.Var("less", COUNT), builder("less_equal")
    condition, y = graph.Var("done", TensorType((), "bool")), graph.Var("y", ty)
    before = (
        graph.VarBinding(builder("subtract")(left, _count(1)), less),
        graph.VarBinding(builder(op)(x), y),
    )
    further = _arm(graph.Call(graph.GlobalVar(other), (y, less)), ty, *before)
    chosen = graph.Var("chosen", ty)
    bindings = (
        graph.VarBinding(done(left, _count(0)), condition),
        graph.VarBinding(graph.If(condition, graph.SeqExpr((), x), further), chosen),
    )
    return _function((x, left), bindings, chosen)


def _invoked(f: graph.Var, x: graph.Var, ty: TensorType) -> graph.Call:
    """A call of a function value that states the type of the result."""
    op = graph.Op("invoke_pure_closure")
    return graph.Call(op, (f, graph.Tuple((x,))), ty_args=(ty,))


def _twice(dtype: str, ndim: int, stated: bool) -> graph.Function:
    """A function that applies its first argument to its second one, and again to the result; the
    type of the first is `stated`, or an object."""
    (x, ty), (_, inner) = _typed(dtype, ndim, "x"), _typed(dtype, ndim, "z")
    f = graph.Var("f", FuncType((inner,), inner) if stated else ObjectType())
    bindings: list[graph.Binding] = []
    value = x
    for i in range(2):
        made, known = graph.Var(f"made{i}", TensorType(None, dtype, ndim)), graph.Var(f"y{i}", ty)
        if stated:
            bindings += [graph.VarBinding(graph.Call(f, (value,)), made),
                         graph.MatchCast(made, ty, known)]  # fmt: skip
        else:
            bindings.append(graph.VarBinding(_invoked(f, value, ty), known))
        value = known
    return _function((f, x), bindings, value)


def _composed(dtype: str, ndim: int) -> graph.Function:
    """A function of two functions: a function that applies the first and then the second."""
    x, ty = _typed(dtype, ndim, "x")
    f, g, both = (graph.Var(name, ObjectType()) for name in ("f", "g", "both"))
    y, z = graph.Var("y", ty), graph.Var("z", ty)
    bindings = (graph.VarBinding(_invoked(f, x, ty), y), graph.VarBinding(_invoked(g, y, ty), z))
    body = graph.SeqExpr((graph.BindingBlock(bindings),), z)
    inner = graph.Function((x,), body, ty)
    return _function((f, g), (graph.VarBinding(inner, both),), both)
