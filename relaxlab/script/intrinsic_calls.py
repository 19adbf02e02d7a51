"""Calls of intrinsics and of functions by their names, in loop functions."""

from __future__ import annotations

import ast
from collections.abc import Callable

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, is_dtype, lanes_of
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.tvm_intrinsics import DTYPE_LAST
from relaxlab.script.convert import (
    default_dtype,
    dtype_of,
    is_number,
    is_single,
    literal,
    scalar_of,
    string_of,
)
from relaxlab.script.core import Arguments, Context
from relaxlab.script.values import Arg
from relaxlab.script.views import member


def _scalar_args(cx: Context, args: list[Arg], op: str = "") -> tuple[PrimExpr, ...]:
    return tuple(_scalar_arg(cx, a, op) for a in args)


def _scalar_arg(cx: Context, arg: Arg, op: str) -> PrimExpr:
    if isinstance(arg.value, str):
        return expr.StringImm(arg.value, span=cx.span(arg.node))
    if isinstance(arg.value, loops.Buffer) and op in _REGISTERED and not is_single(arg.value):
        return _array(cx, arg.value, arg.node)
    return scalar_of(cx, arg.value, arg.node)


_REGISTERED = ("call_packed", "call_cpacked", "tvm_call_packed", "tvm_call_cpacked")
"""The calls of functions by name that take arrays: memory and its description."""


def _array(cx: Context, buffer: loops.Buffer, node: ast.AST) -> PrimExpr:
    """A buffer as a function that is registered gets it."""
    zero = literal(cx, 0, "int32", node)
    data = scalar_of(cx, member(cx, buffer, "data", node), node)
    shape, strides = (
        expr.Call("handle", "tvm_stack_make_shape", dims) if dims else zero
        for dims in (buffer.shape, buffer.strides)
    )
    ndim, like = literal(cx, buffer.ndim, "int32", node), literal(cx, 0, buffer.dtype, node)
    fields = (data, shape, strides, ndim, like, buffer.elem_offset or zero)
    return expr.Call("handle", "tvm_stack_make_array", fields, span=cx.span(node))


def _given_dtype(cx: Context, op: str, args: list[Arg]) -> str | None:
    """The dtype of the result that is among the arguments, which it is taken from: first or, in
    older programs and for a few, last."""
    at = 0 if op not in DTYPE_LAST and _is_dtype(args[:1]) else -1
    return dtype_of(cx, args.pop(at)) if len(args) > 1 and _is_dtype(args[at:][:1]) else None


def _is_dtype(args: list[Arg]) -> bool:
    return all(isinstance(a.value, str) and is_dtype(a.value) for a in args)


_MEANT = {"tvm_storage_sync": 1}
"""The number of arguments of an intrinsic that have a meaning here; TVM's lowering adds others."""


def intrinsic(cx: Context, op: str, c: Arguments, stated: str | None) -> PrimExpr:
    """A call of an intrinsic. Where it decides nothing itself, its dtype is the one `stated`."""
    row = INTRINSICS[op]
    args = c.no_keywords()[: _MEANT.get(op)]
    if stated is None and row.result == "given" and row.meaning is None:
        stated = _given_dtype(cx, op, args)
    if row.arity not in (-1, len(args)):
        c.wrong(f"takes {counted(row.arity, 'argument')}, got {len(args)}", c.node)
    numbers = [default_dtype(a.value) if is_number(a.value) else None for a in args]
    values = _scalar_args(cx, args, op)
    if row.arity in (2, 3) and row.result == "same":  # arithmetic on several operands of one dtype
        typed = [v.dtype for v, n in zip(values, numbers, strict=True) if n is None]
        alone = "float32" if row.floats else values[0].dtype
        like = typed[0] if typed else alone
        values = tuple(
            v if n is None else scalar_of(cx, a.value, a.node, like)
            for v, n, a in zip(values, numbers, args, strict=True)
        )
        mixed = {v.dtype for v in values}
        if len(mixed) > 1:
            cx.fail(c.node, "E0110", f"{c.name} of {' and '.join(sorted(mixed))}")
    elif numbers[:1] == ["int64"] and row.floats:
        values = (scalar_of(cx, float(args[0].value), args[0].node), *values[1:])
    dtype = (stated if row.meaning is None else None) or row.dtype(values)
    if dtype is None:
        c.wrong("needs its result dtype", c.node, f"write `T.call_intrin(dtype, {op!r}, ...)`")
    return expr.Call(dtype, op, values, span=cx.span(c.node))


def _dtype_by_name(c: Arguments) -> list[Arg]:
    """The arguments of a call whose first one, the dtype, older programs write by its name."""
    dtype = c.kwargs.pop("dtype", None)
    if dtype is not None:
        c.args.insert(0, dtype)
    return c.no_keywords()


def call_by_name(op: str) -> Callable[[Context, Arguments], PrimExpr]:
    def handler(cx: Context, c: Arguments) -> PrimExpr:
        args = _dtype_by_name(c)
        if len(args) < 2:
            c.wrong("needs a dtype and what to call", c.node)
        name = expr.StringImm(string_of(cx, args[1], "the name of what is called"))
        values = (name, *_scalar_args(cx, args[2:]))
        return expr.Call(dtype_of(cx, args[0]), op, values, span=cx.span(c.node))

    return handler


def reinterpret(cx: Context, c: Arguments) -> PrimExpr:
    args = _dtype_by_name(c)
    if len(args) != 2:
        c.wrong("needs a dtype and a value", c.node)
    dtype, (value,) = dtype_of(cx, args[0]), _scalar_args(cx, args[1:])
    if value.dtype != "handle" and _all_bits(dtype) != _all_bits(value.dtype):
        numbers = f"{value.dtype} and {dtype} have different numbers"
        c.wrong(f"keeps the bits, of which {numbers}", c.node)
    return expr.Call(dtype, "reinterpret", (value,), span=cx.span(c.node))


def _all_bits(dtype: str) -> int:
    return bits_of(dtype) * lanes_of(dtype)


def call_intrin(cx: Context, c: Arguments) -> PrimExpr:
    args = _dtype_by_name(c)
    if len(args) < 2:
        c.wrong("needs a dtype and the name of an intrinsic", c.node)
    name = _registered(string_of(cx, args[1], "the intrinsic"))
    if name not in INTRINSICS:
        cx.fail(
            args[1].node,
            "E0103",
            f"unknown intrinsic {name!r}",
            help=cx.suggest(name, INTRINSICS),
        )
    row = INTRINSICS[name]
    if row.arity not in (-1, len(args) - 2):
        c.wrong(f"({name}) takes {counted(row.arity, 'argument')}, got {len(args) - 2}", c.node)
    values = _scalar_args(cx, args[2:])
    return expr.Call(dtype_of(cx, args[0]), name, values, span=cx.span(c.node))


def _registered(name: str) -> str:
    """The name of an intrinsic without the package before it: `tirx.exp`, `tirx.metal.x`."""
    home, _, rest = name.partition(".")
    return rest if home in ("tir", "tirx") else name if name in INTRINSICS else rest or name


def call_pure_extern(cx: Context, c: Arguments) -> PrimExpr:
    """An intrinsic by its name, or else a C function."""
    args = _dtype_by_name(c)
    if len(args) > 1 and args[1].value in INTRINSICS:
        return call_intrin(cx, c)
    return call_by_name("call_pure_extern")(cx, c)


def type_annotation(cx: Context, c: Arguments) -> PrimExpr:
    """A dtype among the arguments of a call."""
    dtype = c.bind({"dtype": False})["dtype"]
    assert dtype is not None
    name = expr.StringImm(dtype_of(cx, dtype), span=cx.span(dtype.node))
    return expr.Call("void", "type_annotation", (name,), span=cx.span(c.node))
