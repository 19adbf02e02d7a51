"""Scalar expressions to text: a `match` over nodes; operators and intrinsics are spelled by the
dialect.

Values of half precision are stored as such; each operation converts to float and rounds back.
Integers of the program have the type of their dtype; where the language computes narrow ones in 32
bits, results are converted back after every operation.
"""

from __future__ import annotations

import math

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.dialect import ATOM, UNARY, Scope, Text
from relaxlab.codegen.powers import known_power
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_float, is_int, is_uint, lanes_of, with_lanes
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferLoad
from relaxlab.ir.node import walk

HALF = ("float16", "bfloat16")
TRUE, FALSE = expr.IntImm(1, "bool"), expr.IntImm(0, "bool")


def text_of(s: Scope, e: PrimExpr, level: int = 0) -> str:
    """Text of `e`, in parentheses where it binds less than `level`."""
    text, mine = emit(s, e)
    return f"({text})" if mine < level else text


def emit(s: Scope, e: PrimExpr) -> Text:
    """Text of `e`, and how tightly it binds."""
    match e:
        case Var():
            if e in s.values:
                return emit(s, s.values[e])
            if e not in s.names:
                raise CodegenError(f"variable {e.name!r} of {s.function!r} is not defined")
            return s.names[e], ATOM
        case expr.IntImm(value, dtype):
            return s.dialect.integer(value, dtype)
        case expr.FloatImm(value, dtype):
            return _float(s, value, dtype)
        case BufferLoad():
            return _loaded(s, e)
        case expr.BitAnd() | expr.BitOr() | expr.BitXor() | expr.Cast() if e in s.vectors:
            return s.vectors[e], ATOM
        case expr.Cast(to, value):
            return _convert(s, value, to)
        case expr.BinaryOp():
            return _binary(s, e)
        case expr.Not(a):
            return f"!{text_of(s, a, UNARY)}", UNARY
        case expr.Select(c, x, y) | expr.Call(_, "if_then_else", (c, x, y)):
            return s.dialect.choose(s, c, x, y)
        case expr.Let(var, value, body):
            return s.dialect.bind(s, var, value, body)
        case expr.Call():
            return _call(s, e)
        case _:
            raise _no_row(s, type(e).__name__, e)


def _no_row(s: Scope, what: str, e: PrimExpr) -> CodegenError:
    return CodegenError(f"no {s.dialect.name} row for {what} in {s.function!r}: {e}")


def cast(s: Scope, value: PrimExpr, dtype: str) -> Text:
    """Text of `value` as the type of a dtype; halves are made of floats."""
    truncates = is_float(value.dtype) and is_int(dtype)
    form = s.dialect.truncate if truncates else s.dialect.cast
    text = form.text.format(type=s.dialect.type(dtype), value=wide(s, value, form.operand))
    return text, form.level


def _loaded(s: Scope, e: BufferLoad) -> Text:
    if e in s.vectors:
        return s.vectors[e], ATOM
    text = element(s, e.buffer, e.indices)
    if e.buffer.scope == "global" and e.dtype in s.dialect.loaded:
        form, level = s.dialect.loaded[e.dtype]
        return form.format(element=text), level
    return text, ATOM


def element(s: Scope, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
    """`buffer[indices]`: main memory is flat, the block's and the thread's has dimensions."""
    if buffer not in s.names:
        raise CodegenError(f"buffer {buffer.name!r} is not declared in {s.function!r}")
    if any(lanes_of(i.dtype) > 1 for i in indices):
        raise CodegenError(
            f"{s.function!r} accesses {buffer.name!r} by a vector of indices; threads access "
            "one element each: vectorize the loop instead"
        )
    if buffer.scope != "global":
        places = "".join(f"[{text_of(s, i)}]" for i in indices) or "[0]"
        return f"{s.names[buffer]}{places}"
    return f"{s.names[buffer]}[{text_of(s, flat_index(buffer, indices))}]"


def flat_index(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The number of an element, row by row: int64 from integers of any width."""
    index: PrimExpr = expr.const(0)
    for i, dim in zip(indices, buffer.shape, strict=True):
        wide = with_lanes("int64", lanes_of(i.dtype))
        index = index * dim + (i if i.dtype == wide else expr.Cast(wide, i))
    return index


def _float(s: Scope, value: float, dtype: str) -> Text:
    if math.isnan(value) or math.isinf(value):
        text = s.dialect.special[str(value)]
    else:
        text = repr(value) + ("" if dtype == "float64" else "f")
    if dtype in HALF:
        return f"{s.dialect.type(dtype)}({text})", ATOM
    return text, ATOM if text[0] != "-" else UNARY


def wide(s: Scope, e: PrimExpr, level: int) -> str:
    """An operand; half precision as float."""
    if e.dtype in HALF:
        if isinstance(e, expr.FloatImm):
            text, at = _float(s, e.value, "float32")
            return text if at >= level else f"({text})"
        form = s.dialect.cast
        return form.text.format(type=s.dialect.type("float32"), value=text_of(s, e, form.operand))
    return text_of(s, e, level)


def rounded(s: Scope, text: str, level: int, dtype: str) -> Text:
    """A result as its dtype: half precision is rounded, narrow integers wrap."""
    if dtype in HALF:
        return f"{s.dialect.type(dtype)}({text})", ATOM
    if is_int(dtype) and bits_of(dtype) < 32:
        form = s.dialect.cast
        return form.text.format(type=s.dialect.type(dtype), value=f"({text})"), form.level
    return text, level


def _convert(s: Scope, value: PrimExpr, to: str) -> Text:
    if value.dtype == to:
        return emit(s, value)
    if to == "bool":
        return f"{wide(s, value, 7)} != 0", 6
    if to in HALF:
        inner = wide(s, value, 0)
        if value.dtype not in (*HALF, "float32"):
            inner = s.dialect.cast.text.format(type=s.dialect.type("float32"), value=f"({inner})")
        return f"{s.dialect.type(to)}({inner})", ATOM
    if to == "float32" and value.dtype in HALF:
        return wide(s, value, UNARY), UNARY
    return cast(s, value, to)


def is_nonneg(s: Scope, e: PrimExpr) -> bool:
    """True if an index is not negative, by its form."""
    match e:
        case Var():
            return e in s.nonneg or (e in s.values and is_nonneg(s, s.values[e]))
        case expr.IntImm(value):
            return value >= 0
        case expr.Max(a, b):
            return is_nonneg(s, a) or is_nonneg(s, b)
        case expr.FloorMod(_, b):
            return is_nonneg(s, b)
        case (
            expr.Add(a, b) | expr.Mul(a, b) | expr.FloorDiv(a, b) | expr.Min(a, b)
            | expr.BitXor(a, b)
        ):  # fmt: skip
            return is_nonneg(s, a) and is_nonneg(s, b)
        case expr.Cast(_, value):
            return is_uint(value.dtype)
        case _:
            return is_uint(e.dtype)


def _binary(s: Scope, e: expr.BinaryOp) -> Text:
    kind, dtype = type(e), e.a.dtype
    if lanes_of(dtype) > 1:
        raise CodegenError(
            f"{s.function!r} computes on explicit vectors: {e}; no row for {s.dialect.name}"
        )
    if isinstance(e, expr.Min | expr.Max):
        fn = s.dialect.function(
            "minimum" if kind is expr.Min else "maximum", "float32" if dtype in HALF else dtype
        )
        return rounded(s, f"{fn}({wide(s, e.a, 0)}, {wide(s, e.b, 0)})", ATOM, dtype)
    if e.row.is_division:
        return _division(s, e)
    if kind in (expr.ShiftLeft, expr.ShiftRight):
        return _shift(s, e)
    symbol, level, first, second = s.dialect.operator(e)
    if kind is expr.Mul and isinstance(e.a, expr.IntImm) and isinstance(e.b, expr.IntImm):
        left, _ = cast(s, e.a, dtype)
    else:
        left = wide(s, e.a, first)
    before = len(s.before)
    right = wide(s, e.b, second)
    if len(s.before) > before and isinstance(e, expr.And | expr.Or):
        # The lines for the right side belong to it alone.
        del s.before[before:]
        both = isinstance(e, expr.And)
        return s.dialect.choose(s, e.a, *((e.b, FALSE) if both else (TRUE, e.b)))
    return rounded(s, f"{left} {symbol} {right}", level, e.dtype)


def _shift(s: Scope, e: expr.BinaryOp) -> Text:
    """Plain for a constant number of places that the type has."""
    symbol, level, first, _ = s.dialect.operator(e)
    if isinstance(e.b, expr.IntImm) and 0 <= e.b.value < bits_of(e.dtype):
        constant = isinstance(e.a, expr.IntImm)
        left = cast(s, e.a, e.dtype)[0] if constant else text_of(s, e.a, first)
        places = s.dialect.places.format(count=e.b.value)
        return rounded(s, f"{left} {symbol} {places}", level, e.dtype)
    name = "shift_left" if isinstance(e, expr.ShiftLeft) else "shift_right"
    fn = s.dialect.function(name, e.dtype)
    return f"{fn}({text_of(s, e.a)}, {text_of(s, e.b)})", ATOM


def _division(s: Scope, e: expr.BinaryOp) -> Text:
    kind, dtype = type(e), e.dtype
    if is_float(dtype):
        return _float_division(s, e)
    symbol, level, first, second = s.dialect.operator(e)
    if any(isinstance(n, BufferLoad) for n in walk(e.b)):
        by = s.dialect.divisor(s, e.b, s.failure("integer division by zero"))
    else:
        by = text_of(s, e.b, second)
    floors = kind in (expr.FloorDiv, expr.FloorMod)
    if floors and not (is_nonneg(s, e.a) and is_nonneg(s, e.b)):
        fn = s.dialect.function("floordiv" if kind is expr.FloorDiv else "floormod", dtype)
        return f"{fn}({text_of(s, e.a)}, {by})", ATOM
    return rounded(s, f"{text_of(s, e.a, first)} {symbol} {by}", level, dtype)


def _float_division(s: Scope, e: expr.BinaryOp) -> Text:
    a, b = wide(s, e.a, 10), wide(s, e.b, 11)
    floor = s.dialect.functions(INTRINSICS["floor"], e.dtype)
    match e:
        case expr.Div():
            return rounded(s, f"{a} / {b}", 10, e.dtype)
        case expr.Mod():
            fmod = s.dialect.functions(INTRINSICS["fmod"], e.dtype)
            return rounded(s, f"{fmod}({wide(s, e.a, 0)}, {wide(s, e.b, 0)})", ATOM, e.dtype)
        case expr.FloorDiv():
            return rounded(s, f"{floor}({a} / {b})", ATOM, e.dtype)
        case _:
            return rounded(s, f"{a} - {floor}({a} / {b}) * {b}", 9, e.dtype)


def _call(s: Scope, e: expr.Call) -> Text:
    if (power := known_power(e)) is not None:
        return emit(s, power)
    handler = s.dialect.intrinsics.get(e.op)
    if handler is not None:
        return handler(s, e)
    if e.op == "likely":
        return emit(s, e.args[0])
    if e.op == "bitwise_not":
        symbol = "!" if e.dtype == "bool" else "~"
        return rounded(s, f"{symbol}{text_of(s, e.args[0], UNARY)}", UNARY, e.dtype)
    if e.op == "fma" and is_int(e.dtype):
        a, b, c = e.args
        return emit(s, expr.Add(expr.Mul(a, b), c))
    row = INTRINSICS.get(e.op)
    if row is not None and row.formula is not None and s.dialect.name.lower() not in row.absent:
        made = row.formula(*e.args)
        if made is not None:
            return emit(s, made)
    name = s.dialect.functions(row, e.dtype) if row is not None and is_float(e.dtype) else ""
    if name and lanes_of(e.dtype) == 1:
        return rounded(s, f"{name}({arguments(s, e)})", ATOM, e.dtype)
    what = next((a.value for a in e.args if isinstance(a, expr.StringImm)), e.op)
    raise _no_row(s, f"{what!r} on {e.dtype}", e)


def arguments(s: Scope, e: expr.Call) -> str:
    """The arguments of a call; half precision as float."""
    return ", ".join(wide(s, a, 0) for a in e.args)
