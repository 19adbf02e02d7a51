"""Printing scalar expressions and buffer regions."""

from __future__ import annotations

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.tvm_intrinsics import DTYPE_LAST, tvm_rows
from relaxlab.script.ranges import extent_between
from relaxlab.script.writer import Writer, plain, string

_NOT_LEVEL = 3


def scalar(w: Writer, e: PrimExpr, path: str = "", level: int = 0) -> str:
    """`e` as script text, in parentheses where it binds less tightly than `level`."""
    match e:
        case expr.Var(name):
            return w.mark(path, w.names.of(e, name))
        case expr.IntImm() | expr.FloatImm() | expr.StringImm():
            return w.mark(path, immediate(e))
        case expr.OuterIndex(count):
            named = None if w.outer is None or w.outer[0] != e else w.outer[1]
            of = scalar(w, count, path + ".count")
            return w.mark(path, named or f"R.outer_index({of})")
        case expr.InnerLength(each):
            lengths = w.names.of(each, each.name).partition("[")[0]
            return w.mark(path, f"{lengths}[{expr.OUTER}, {expr.INNER}]")
        case expr.Cast(_, value) if w.implied is not None and id(e) in w.implied:
            return w.mark(path, scalar(w, value, path + ".value", level))
        case expr.BinaryOp():
            text, own = _binary(w, e, path)
        case expr.Not(a):
            text, own = f"not {scalar(w, a, path + '.a', _NOT_LEVEL)}", _NOT_LEVEL
        case loops.BufferLoad(buffer, indices):
            return w.mark(
                path, f"{w.names.of(buffer, buffer.name)}[{index_list(w, indices, path)}]"
            )
        case _:
            return w.mark(path, _function(w, e, path))
    return w.mark(path, f"({text})" if own < level else text)


def argument(w: Writer, e: PrimExpr, path: str) -> str:
    """`e` as an argument of a function, where TVM takes bare integers for int32."""
    return scalar(w, e, path) if w.implied is not None else _typed_constant(w, e, path)


def _typed_constant(w: Writer, e: PrimExpr, path: str) -> str:
    if isinstance(e, expr.IntImm) and e.dtype == "int64":
        return w.mark(path, f"T.int64({e.value})")
    return scalar(w, e, path)


def immediate(e: PrimExpr) -> str:
    """A constant: bare for int64, otherwise with its dtype."""
    match e:
        case expr.IntImm(value, "int64"):  # TVM takes a bare number for int32
            return str(value) if -(1 << 31) <= value < 1 << 31 else f"T.int64({value})"
        case expr.IntImm(value, "bool"):
            return f"T.bool({bool(value)})"
        case expr.IntImm(value, dtype):
            return f"T.{dtype}({value})"
        case expr.FloatImm(value, dtype):
            return f"T.{dtype}({_float(value)})"
        case expr.StringImm(value):
            return string(value)
        case _:
            raise TypeError(f"{e} is not a constant")


def _float(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else f'"{value}"'


def _binary(w: Writer, e: expr.BinaryOp, path: str) -> tuple[str, int]:
    a, b = e.a, e.b
    whole = isinstance(e, expr.Div) and not is_float(e.dtype)  # `/` of Python gives a fraction
    if whole or not e.row.infix:
        args = f"{argument(w, a, path + '.a')}, {argument(w, b, path + '.b')}"
        return f"T.{e.row.function}({args})", 20
    symbol, level = e.row.infix, e.row.level
    if isinstance(a, expr.IntImm) and isinstance(b, expr.IntImm) and a.dtype == "int64":
        left, right = (_typed_constant(w, s, path + p) for s, p in ((a, ".a"), (b, ".b")))
    else:  # a comparison does not chain: both its operands bind tighter
        left = scalar(w, a, path + ".a", level + isinstance(e, expr.CmpOp))
        right = scalar(w, b, path + ".b", level + 1)
    return f"{left} {symbol} {right}", level


def index_list(w: Writer, indices: tuple[PrimExpr, ...], path: str) -> str:
    """The indices of an element access."""
    texts = [scalar(w, i, f"{path}.indices[{k}]") for k, i in enumerate(indices)]
    return ", ".join(typed(w, t) if w.typed_shapes else t for t in texts) or "()"


def typed(w: Writer, text: str) -> str:
    """The text of an index, which says that it is int64 where it is a bare number."""
    return f"T.int64({text})" if plain(text).removeprefix("-").isdecimal() else text


def _function(w: Writer, e: PrimExpr, path: str) -> str:
    match e:
        case expr.Cast(to, value):
            return f'T.Cast("{to}", {argument(w, value, path + ".value")})'
        case expr.Select(condition, yes, no):
            parts = [
                scalar(w, condition, path + ".condition"),
                argument(w, yes, path + ".true_value"),
                argument(w, no, path + ".false_value"),
            ]
            return f"T.Select({', '.join(parts)})"
        case expr.Let(var, value, body):
            bound = argument(w, value, path + ".value")
            name = w.names.declare(var, var.name, everywhere=True)
            w.before(f"{name} = T.{var.dtype}()")
            return f"T.Let({argument(w, body, path + '.body')}, where={{{name}: {bound}}})"
        case expr.Ramp(base, stride, lanes):
            parts = [scalar(w, base, path + ".base"), scalar(w, stride, path + ".stride")]
            return f"T.Ramp({', '.join(parts)}, {lanes})"
        case expr.Broadcast(value, lanes):
            return f"T.Broadcast({argument(w, value, path + '.value')}, {lanes})"
        case expr.Call():
            return _call(w, e, path)
        case _:
            raise TypeError(f"the script has no spelling for the scalar {type(e).__name__}")


_DTYPE_FIRST = {
    **{name: name for name, _, dtype in tvm_rows() if dtype == "given"},
    "call_extern": "call_extern",
    "call_pure_extern": "call_pure_extern",
    "llvm_intrin": "call_llvm_pure_intrin",
    "reinterpret": "reinterpret",
}
"""The functions that write intrinsics whose result dtype is given at the call, before the other
arguments."""


def _call(w: Writer, e: expr.Call, path: str) -> str:
    match e:
        case expr.Call("handle", "address_of", (loops.BufferLoad(buffer, indices),)) if all(
            i == expr.const(0, i.dtype) for i in indices
        ):
            return f"{w.names.of(buffer, buffer.name)}.data"
        case _:
            pass
    args = [argument(w, a, f"{path}.args[{i}]") for i, a in enumerate(e.args)]
    if e.op == "call_function" and isinstance(e.args[0], expr.StringImm):
        name = e.args[0].value
        callee = f"{w.module_name}.{name}" if w.in_module else f"I.GlobalVar({string(name)})"
        return f"{callee}({', '.join(args[1:])})"
    if e.op == "shuffle" and isinstance(e.args[0], expr.IntImm):
        of = 1 + e.args[0].value
        picks = [str(a.value) for a in e.args[of:] if isinstance(a, expr.IntImm)]
        return f"T.Shuffle([{', '.join(args[1:of])}], [{', '.join(picks)}])"
    if e.op in DTYPE_LAST:
        return f"T.{e.op}({', '.join([*args, string(e.dtype)])})"
    if e.op in _DTYPE_FIRST:
        return f"T.{_DTYPE_FIRST[e.op]}({', '.join([string(e.dtype), *args])})"
    if e.op in INTRINSICS and e.dtype == INTRINSICS[e.op].dtype(e.args):
        return f"T.{e.op}({', '.join(args)})"
    # TVM does not know this intrinsic; as an external function its parser takes it.
    return f"T.call_pure_extern({', '.join([string(e.dtype), string(e.op), *args])})"


def slice_of(w: Writer, r: loops.Range, path: str) -> str:
    """A range as an index or as `start:stop`; `extent_between` reads it back."""
    if r.extent == expr.const(1, r.min.dtype):
        return scalar(w, r.min, path + ".min")
    return w.mark(path, ":".join(bounds(w, r.min, r.extent, path)))


def bounds(w: Writer, first: PrimExpr, extent: PrimExpr, path: str) -> tuple[str, str]:
    """Text of the start and the (exclusive) stop of `extent` integers from `first`."""
    start = scalar(w, first, path + ".min")
    match first, extent:
        case expr.IntImm(0, "int64"), _:
            return start, scalar(w, extent, path + ".extent")
        case expr.IntImm(a, "int64"), expr.IntImm(b, "int64"):
            return start, str(a + b)
        case _, expr.Sub(stop, b) if b == first and extent_between(first, stop) == extent:
            return start, scalar(w, stop, path + ".extent.a")
        case _:
            size = scalar(w, extent, path + ".extent", 10)
            return start, f"{scalar(w, first, path + '.min', 9)} + {size}"


def region(w: Writer, r: loops.BufferRegion, path: str) -> str:
    """A box of a buffer, as in `T.reads(A[i, 0:4])`."""
    texts = [slice_of(w, x, f"{path}.region[{i}]") for i, x in enumerate(r.region)]
    return w.mark(path, f"{w.names.of(r.buffer, r.buffer.name)}[{', '.join(texts) or '()'}]")
