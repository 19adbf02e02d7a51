"""Elementwise operators: one row per name in the tables below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float, is_int
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.op_table import REQUIRED, Trait
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    Arg,
    Need,
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    first_dtype,
    number,
    params,
    require_dtype,
    takes,
    tensor_arg,
    tensor_like,
    type_of_argument,
)
from relaxlab.ops.shapes import broadcast_index, broadcast_types, stated

Array: TypeAlias = np.ndarray[Any, Any]
UnaryFn: TypeAlias = Callable[[PrimExpr], PrimExpr]
BinaryFn: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]

def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function whose half-precision arguments are computed in float32; the first argument
    is an array, others may be shapes."""

    def wrapped(*arrays: Any, **attrs: Any) -> Array:
        dtype = arrays[0].dtype
        if dtype.name not in scalar.HALF:
            return fn(*arrays, **attrs)
        wide = (a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in arrays)
        result = np.asarray(fn(*wide, **attrs))
        return result.astype(dtype) if result.dtype == np.float32 else result

    return wrapped


# --- One argument -----------------------------------------------------------------------------


def unary(
    name: str,
    fn: UnaryFn,
    reference: Callable[[Array], Any],
    accepts: str = "a number",
    result: str | None = None,
    traits: Iterable[Trait] = (),
) -> None:
    """Register `y[i] = fn(x[i])`; `result` is the dtype when it is not that of x. `traits` are
    those beside `elementwise`."""

    of_floats = accepts == "floating point" and result is None  # by its rule, the result is one

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        if of_floats:
            require_dtype(call, x, accepts)
        return tensor_like(x, result)

    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        return elementwise(f"T_{name}", fn, x)

    numpy = in_float32(reference)
    define(
        name, params("x"), infer, needs=[] if of_floats else [takes(accepts)], emit=emit,
        reference=numpy, traits=["elementwise", *traits],
    )  # fmt: skip


def elementwise(name: str, fn: UnaryFn, x: te.Tensor) -> te.Tensor:
    """`fn` of each element, computed in float32 for half-precision tensors."""

    def element(*i: PrimExpr) -> PrimExpr:
        value = fn(scalar.wide(x[i]))
        narrowed = x.dtype in scalar.HALF and value.dtype == "float32"
        return scalar.cast(value, x.dtype) if narrowed else value

    return te.compute(x.shape, element, name)


def _intrinsic(op: str) -> UnaryFn:
    return lambda x: scalar.call(op, x)


def _test(op: str) -> UnaryFn:
    return lambda x: expr.Call("bool", op, (x,))


def _keep_unsigned(op: str) -> UnaryFn:
    return lambda x: x if x.dtype.startswith("uint") else scalar.call(op, x)


def _keep_integers(op: str) -> UnaryFn:
    return lambda x: x if is_int(x.dtype) else scalar.call(op, x)


def on_arrays(name: str) -> Callable[[Array], Array]:
    """The NumPy function of an intrinsic of one argument, without warnings."""
    meaning = INTRINSICS[name].meaning
    assert meaning is not None

    def computed(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return meaning(x.dtype, x)

    return computed


for _name in (
    "exp sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh log log2 log10 log1p sqrt "
    "rsqrt sigmoid erf erfc exp2 expm1 lgamma cbrt"
).split():
    unary(_name, _intrinsic(_name), on_arrays(_name), "floating point")
for _name, _op, _reference in (
    ("floor", "floor", np.floor),
    ("ceil", "ceil", np.ceil),
    ("trunc", "trunc", np.trunc),
    ("round", "nearbyint", np.round),  # halves go to the even neighbour
):
    unary(_name, _keep_integers(_op), lambda x, f=_reference: f(x).astype(x.dtype))
for _name, _reference in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
    unary(_name, _test(_name), _reference, "floating point", result="bool")
unary("abs", _keep_unsigned("abs"), np.abs, traits=["rounds_once"])
unary("negative", scalar.negative, np.negative, traits=["rounds_once"])
unary("square", lambda x: expr.Mul(x, x), np.square, traits=["rounds_once"])
unary("sign", scalar.sign, np.sign, traits=["rounds_once"])
unary("logical_not", expr.Not, np.logical_not, "bool")
unary(
    "bitwise_not",
    lambda x: expr.Not(x) if x.dtype == "bool" else scalar.call("bitwise_not", x),
    np.bitwise_not,
    "integer or bool",
)


unary("popcount", _intrinsic("popcount"), on_arrays("popcount"), "integer")


# --- Two arguments ----------------------------------------------------------------------------


def _operands(call: graph.Call, tys: TypesOf) -> tuple[list[TensorType], list[TensorType]]:
    """The arguments of a broadcasting operator, scalars (`R.prim_value`) as tensors of rank 0,
    and those that the dtype comes from: a constant scalar takes the dtype of the tensors."""
    tensors: list[TensorType] = []
    typed: list[TensorType] = []
    for i, ty in enumerate(tys):
        if isinstance(ty, types.PrimType):
            tensors.append(TensorType((), ty.dtype))
            constant = isinstance(ty.value, expr.IntImm | expr.FloatImm)
            typed += [] if constant else [tensors[-1]]
        else:
            tensors.append(tensor_arg(call, tys, i))
            typed.append(tensors[-1])
    return tensors, typed or tensors


def _computable(accepts: str, first: int = 0) -> Need:
    """The need that the operands, the arguments from `first` on, have one dtype of a kind."""

    def need(call: graph.Call, tys: TypesOf) -> None:
        operands, typed = _operands(call, tys[first:])
        dtype = common_dtype(call, *typed)
        for i, operand in enumerate(operands, first):
            require_dtype(call, tensor_like(operand, dtype), accepts, i)

    return need


def binary(
    name: str,
    fn: BinaryFn,
    reference: Callable[[Array, Array], Any],
    accepts: str = "a number",
    result: str | None = None,
    traits: Iterable[Trait] = (),
) -> None:
    """Register `y[i] = fn(x1[i], x2[i])` with NumPy's broadcasting. `traits` are those beside
    `elementwise`."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        if len(tys) != 2:
            raise fail(call, f"takes 2 arguments, got {len(tys)}")
        operands, typed = _operands(call, tys)
        known = result or first_dtype(call, *typed)
        if known is not None and all(isinstance(ty, types.PrimType) for ty in tys):
            return types.PrimType(known)  # as in Relax, a scalar with a scalar is one
        return broadcast_types(call, known, *map(stated, operands))

    def emit(call: graph.Call, out: TensorType, x1: Arg, x2: Arg) -> te.Tensor:
        dtype = next((x.dtype for x in (x1, x2) if isinstance(x, te.Tensor)), out.dtype)
        return broadcast_compute(f"T_{name}", fn, out, _typed(x1, dtype), _typed(x2, dtype))

    numpy = _same_dtype(reference)
    define(
        name, params("x1 x2"), infer, needs=[_computable(accepts)], emit=emit, reference=numpy,
        traits=["elementwise", *traits],
    )  # fmt: skip


def _same_dtype(fn: Callable[[Array, Array], Any]) -> Callable[..., Any]:
    """Results of NumPy's own promotions (floats for integer division) come back as the dtype."""

    def wrapped(x1: Any, x2: Any) -> Any:
        numbers = not any(isinstance(x, np.ndarray | np.generic) for x in (x1, x2))
        x1, x2 = _weak(x1, x2), _weak(x2, x1)
        with np.errstate(all="ignore"):
            result = np.asarray(in_float32(fn)(x1, x2))
        result = result if result.dtype == np.bool_ else result.astype(x1.dtype)
        return result.item() if numbers else result

    return wrapped


def _weak(x: Any, other: Any) -> Array:
    """A Python number takes the dtype of the other operand; two of them are float32 if one is a
    float."""
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    alone = "float32" if isinstance(x, float) or isinstance(other, float) else None
    return np.asarray(x, getattr(other, "dtype", alone))


def broadcast_compute(
    name: str, fn: Callable[..., PrimExpr], out: TensorType, *args: Arg
) -> te.Tensor:
    """`fn` of the broadcast arguments (tensors or scalars) at each element of `out`."""
    assert out.shape is not None
    shape = out.shape

    def read(arg: Arg, i: tuple[PrimExpr, ...]) -> PrimExpr:
        if isinstance(arg, te.Tensor):
            return arg[broadcast_index(i, arg.shape, shape)]
        assert isinstance(arg, PrimExpr)
        return arg

    return te.compute(shape, lambda *i: fn(*(read(a, i) for a in args)), name)


def _typed(arg: Arg, dtype: str | None) -> Arg:
    return scalar.cast(arg, dtype) if isinstance(arg, PrimExpr) and dtype else arg


def _node(cls: type[expr.BinaryOp]) -> BinaryFn:
    return lambda a, b: cls(a, b)


def _in_float32(fn: BinaryFn) -> BinaryFn:
    return lambda a, b: scalar.cast(fn(scalar.wide(a), scalar.wide(b)), a.dtype)


def _divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return expr.Div(a, b) if is_float(a.dtype) else scalar.integer_division(expr.Div, a, b)


def _floor_divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if is_float(a.dtype):
        return scalar.call("floor", expr.Div(a, b))
    return scalar.integer_division(expr.FloorDiv, a, b)


def _mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if is_float(a.dtype):
        return scalar.call("fmod", a, b)
    return scalar.integer_division(expr.Mod, a, b)


def _floor_mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if not is_float(a.dtype):
        return scalar.integer_division(expr.FloorMod, a, b)
    r, zero = scalar.call("fmod", a, b), expr.const(0, a.dtype)
    wrong_sign = expr.NE(expr.LT(r, zero), expr.LT(b, zero))
    return expr.Select(expr.And(expr.NE(r, zero), wrong_sign), expr.Add(r, b), r)


def _divide_reference(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)  # floors; truncation is one more where the signs differ
    inexact = (quotient * b != a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0)))


def _floor_divide_reference(a: Array, b: Array) -> Any:
    return np.floor(np.divide(a, b)) if a.dtype.kind == "f" else np.floor_divide(a, b)


def _logical(cls: type[expr.BinaryOp], bits: type[expr.BinaryOp]) -> BinaryFn:
    return lambda a, b: cls(a, b) if a.dtype == "bool" else bits(a, b)


for _name, _cls, _fn in (
    ("add", expr.Add, np.add), ("subtract", expr.Sub, np.subtract),
    ("multiply", expr.Mul, np.multiply), ("maximum", expr.Max, np.maximum),
    ("minimum", expr.Min, np.minimum),
):  # fmt: skip
    binary(_name, _node(_cls), _fn, traits=["rounds_once"])
binary("divide", _in_float32(_divide), _divide_reference)
binary("floor_divide", _in_float32(_floor_divide), _floor_divide_reference)
binary("mod", _in_float32(_mod), np.fmod)
binary("floor_mod", _in_float32(_floor_mod), np.mod)
binary("power", _in_float32(lambda a, b: scalar.call("pow", a, b)), np.power, "floating point")
binary("atan2", _in_float32(lambda a, b: scalar.call("atan2", a, b)), np.arctan2, "floating point")
for _name, _cls, _fn in (
    ("equal", expr.EQ, np.equal), ("not_equal", expr.NE, np.not_equal),
    ("less", expr.LT, np.less), ("less_equal", expr.LE, np.less_equal),
    ("greater", expr.GT, np.greater), ("greater_equal", expr.GE, np.greater_equal),
):  # fmt: skip
    binary(_name, _node(_cls), _fn, "anything", result="bool")
binary("logical_and", _node(expr.And), np.logical_and, "bool")
binary("logical_or", _node(expr.Or), np.logical_or, "bool")
binary("logical_xor", _node(expr.NE), np.logical_xor, "bool")
binary("bitwise_and", _logical(expr.And, expr.BitAnd), np.bitwise_and, "integer or bool")
binary("bitwise_or", _logical(expr.Or, expr.BitOr), np.bitwise_or, "integer or bool")
binary("bitwise_xor", _logical(expr.NE, expr.BitXor), np.bitwise_xor, "integer or bool")
binary("left_shift", _node(expr.ShiftLeft), np.left_shift, "integer")
binary("right_shift", _node(expr.ShiftRight), np.right_shift, "integer")


def log_add_exp(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """max + log(1 + exp(min - max)); equal infinities have no difference."""
    top = expr.Max(a, b)
    gap = scalar.negative(scalar.call("abs", expr.Sub(a, b)))
    sum_ = expr.Add(top, scalar.call("log1p", scalar.call("exp", gap)))
    return expr.Select(expr.EQ(a, b), expr.Add(a, expr.const(math.log(2), a.dtype)), sum_)


binary("log_add_exp", _in_float32(log_add_exp), np.logaddexp, "floating point")


# --- Three arguments --------------------------------------------------------------------------


def _where_infer(call: graph.Call, tys: TypesOf) -> Type:
    condition = tensor_arg(call, tys, 0)
    require_dtype(call, condition, "bool")
    operands, typed = _operands(call, tys[1:])
    return broadcast_types(call, first_dtype(call, *typed), condition, *operands)


def _where_emit(call: graph.Call, out: TensorType, c: te.Tensor, a: Arg, b: Arg) -> te.Tensor:
    sides = (_typed(a, out.dtype), _typed(b, out.dtype))

    def choose(condition: PrimExpr, x: PrimExpr, y: PrimExpr) -> PrimExpr:
        return expr.Select(condition, x, y)

    return broadcast_compute("T_where", choose, out, c, *sides)


define(
    "where",
    params("condition x1 x2"),
    _where_infer,
    needs=[_computable("anything", 1)],
    emit=_where_emit,
    reference=lambda condition, x1, x2: np.where(condition, _weak(x1, x2), _weak(x2, x1)),
    traits=["elementwise", "rounds_once"],
)


def _clip_needs(call: graph.Call, tys: TypesOf) -> None:
    x = tensor_arg(call, tys, 0)
    bounds = {name: attr(call, name) for name in ("min", "max")}
    for name, bound in bounds.items():
        number(call, name, bound)
        if x.dtype is not None and not is_float(x.dtype) and bound != bound:
            raise fail(call, f"{name} is NaN, which no {x.dtype} is above or below")


def _clip_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    low, high = (expr.const(_bound(attr(call, n), x.dtype), x.dtype) for n in ("min", "max"))
    return te.compute(x.shape, lambda *i: scalar.clamp(x[i], low, high), "T_clip")


def _bound(value: float, dtype: str) -> float:
    """A bound as the dtype has it: beyond all its integers, the last of them on that side."""
    if is_float(dtype):
        return value
    low, high = expr.lowest(dtype), expr.highest(dtype)
    assert isinstance(low, expr.IntImm) and isinstance(high, expr.IntImm)
    return int(min(max(value, low.value), high.value))


def _clip(x: Array, min: float, max: float) -> Array:  # noqa: A002 - the operator's names
    low, high = (x.dtype.type(_bound(b, str(x.dtype))) for b in (min, max))
    return np.maximum(low, np.minimum(high, x))  # a zero within the bounds keeps its sign


define(
    "clip",
    params("x", min=REQUIRED, max=REQUIRED),
    type_of_argument(0),
    needs=[takes("a number"), _clip_needs],
    emit=_clip_emit,
    reference=in_float32(_clip),
    traits=["elementwise", "rounds_once"],
)


# --- masked_fill, ewise_fma -------------------------------------------------------------------


def _masked_fill_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, mask = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    return broadcast_types(call, x.dtype, x, mask)


def _masked_fill_needs(call: graph.Call, tys: TypesOf) -> None:
    x, value = tensor_arg(call, tys, 0), attr(call, "value")
    if x.dtype is not None and isinstance(value, int | float) and not _holds(x.dtype, value):
        raise fail(call, f"{x.dtype} cannot hold the value {value}")


def _holds(dtype: str, value: float) -> bool:
    """True if a value may fill a tensor: floats are rounded, integers must be exact."""
    if is_float(dtype):
        return True
    low, high = expr.lowest(dtype), expr.highest(dtype)
    assert isinstance(low, expr.IntImm) and isinstance(high, expr.IntImm)
    return value == value // 1 and low.value <= value <= high.value


def _masked_fill_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, mask: te.Tensor
) -> te.Tensor:
    value = scalar.cast(number(call, "value", attr(call, "value")), x.dtype)
    return broadcast_compute(
        "T_masked_fill", lambda v, hidden: expr.Select(hidden, value, v), out, x, mask
    )


define(
    "masked_fill",
    params("x mask", value=REQUIRED),
    _masked_fill_infer,
    needs=[takes("bool", 1), _masked_fill_needs],
    emit=_masked_fill_emit,
    reference=lambda x, mask, value: np.where(mask, x.dtype.type(value), x),
)


def _fma_infer(call: graph.Call, tys: TypesOf) -> Type:
    operands, typed = _operands(call, tys)
    if len(operands) != 3:
        raise fail(call, f"takes 3 arguments, got {len(operands)}")
    return broadcast_types(call, common_dtype(call, *typed), *operands)


def _fma_emit(call: graph.Call, out: TensorType, a: Arg, b: Arg, c: Arg) -> te.Tensor:
    def element(x: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
        wide = expr.Add(expr.Mul(scalar.wide(x), scalar.wide(y)), scalar.wide(z))
        return scalar.cast(wide, x.dtype)

    arguments = (_typed(v, out.dtype) for v in (a, b, c))
    return broadcast_compute("T_ewise_fma", element, out, *arguments)


def _fma(x1: Any, x2: Any, x3: Any) -> Array:
    first = next(x for x in (x1, x2, x3) if isinstance(x, np.ndarray))
    with np.errstate(all="ignore"):
        result = in_float32(lambda a, b, c: a * b + c)(*(_weak(x, first) for x in (x1, x2, x3)))
    return result.astype(first.dtype)


define(
    "ewise_fma",
    params("x1 x2 x3"),
    _fma_infer,
    needs=[_computable("a number")],
    emit=_fma_emit,
    reference=_fma,
)
