"""Scalar expressions to C: a `match` over nodes and tables over operators and intrinsics.

Values of half precision are stored as such; each operation converts to float and rounds back.
Integers of the program have the C type of their dtype, so results narrower than `int` are converted
back after every operation.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from relaxlab.codegen.cuda.prelude import C_TYPES
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_float, is_int, is_uint, lanes_of, with_lanes
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferLoad
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import walk

_RESERVED = frozenset(
    "int long short char bool float double void unsigned signed const static struct union enum "
    "auto switch case default do goto register volatile template typename class this new delete "
    "operator public private namespace using typedef sizeof extern inline and or not xor failed "
    "min max abs exp log sin cos tan pow sqrt floor ceil round erf y0 y1 yn j0 j1 jn gamma "
    "threadIdx blockIdx blockDim gridDim warpSize lane".split()
) | set(keyword.kwlist) | set(C_TYPES.values())  # fmt: skip


@dataclass(slots=True)
class Scope:
    """The state while one kernel is written.

    `values` maps variables to C text, `vectors` loads to lanes that were moved already; `failures`
    collects messages of what can go wrong at run time.
    """

    function: str
    failures: list[str]
    names: dict[Var | Buffer, str] = field(default_factory=dict[Var | Buffer, str])
    values: dict[Var, PrimExpr] = field(default_factory=dict[Var, PrimExpr])
    vectors: dict[BufferLoad, str] = field(default_factory=dict[BufferLoad, str])
    nonneg: set[Var] = field(default_factory=set[Var])
    taken: set[str] = field(default_factory=set[str])

    def name(self, of: Var | Buffer) -> str:
        """A C name for a variable or buffer, close to its own."""
        text = "".join(c if c.isalnum() and c.isascii() else "_" for c in of.name) or "v"
        text = f"v{text}" if text[0].isdigit() else text
        return self.names.setdefault(of, self.fresh(text))

    def fresh(self, text: str) -> str:
        """`text`, numbered if it is taken."""
        chosen = fresh_name(text, lambda name: name in self.taken or name in _RESERVED)
        self.taken.add(chosen)
        return chosen

    def failure(self, message: str) -> int:
        """The number (from 1) of something that can go wrong."""
        if message not in self.failures:
            self.failures.append(message)
        return self.failures.index(message) + 1


ATOM, UNARY = 20, 12
"""Levels of precedence beside those of operators: names, calls and constants; prefix operators."""
_HALF = ("float16", "bfloat16")


def c_type(dtype: str) -> str:
    """The C type of a dtype. Raises CodegenError for one without."""
    if dtype not in C_TYPES:
        raise CodegenError(f"CUDA C has no scalar type for {dtype}")
    return C_TYPES[dtype]


def text_of(s: Scope, e: PrimExpr, level: int = 0) -> str:
    """C text of `e`, in parentheses where it binds less than `level`."""
    text, mine = _emit(s, e)
    return f"({text})" if mine < level else text


def _emit(s: Scope, e: PrimExpr) -> tuple[str, int]:
    match e:
        case Var():
            if e in s.values:
                return _emit(s, s.values[e])
            if e not in s.names:
                raise CodegenError(f"variable {e.name!r} of {s.function!r} is not defined")
            return s.names[e], ATOM
        case expr.IntImm(value, dtype):
            return _integer(value, dtype)
        case expr.FloatImm(value, dtype):
            return _float(value, dtype)
        case BufferLoad():
            return s.vectors.get(e) or element(s, e.buffer, e.indices), ATOM
        case expr.Cast(to, value):
            return _convert(s, value, to)
        case expr.BinaryOp():
            return _binary(s, e)
        case expr.Not(a):
            return f"!{text_of(s, a, UNARY)}", UNARY
        case expr.Select(c, x, y) | expr.Call(_, "if_then_else", (c, x, y)):
            return f"{text_of(s, c, 1)} ? {_branch(s, x)} : {_branch(s, y)}", 0
        case expr.Let(var, value, body):
            given = f"const {c_type(var.dtype)} {s.name(var)} = {text_of(s, value)};"
            return f"[&] {{ {given} return {text_of(s, body)}; }}()", ATOM
        case expr.Call():
            return _call(s, e)
        case _:
            raise CodegenError(f"no CUDA row for {type(e).__name__} in {s.function!r}: {e}")


def _branch(s: Scope, e: PrimExpr) -> str:
    """Return one side of `?:`, with a cast if it is a constant of few bits, which would be
    `int`."""
    text = text_of(s, e, 1)
    constant = isinstance(e, expr.IntImm) and e.dtype not in ("int32", "bool")
    return f"({c_type(e.dtype)}){text_of(s, e, UNARY)}" if constant else text


def element(s: Scope, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
    """`buffer[indices]` in C: main memory is flat, the block's and the thread's has dimensions."""
    if buffer not in s.names:
        raise CodegenError(f"buffer {buffer.name!r} is not declared in {s.function!r}")
    if any(lanes_of(i.dtype) > 1 for i in indices):
        raise CodegenError(
            f"{s.function!r} accesses {buffer.name!r} by a vector of indices; CUDA threads access "
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


def _integer(value: int, dtype: str) -> tuple[str, int]:
    if dtype == "bool":
        return ("true" if value else "false"), ATOM
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)", ATOM
    if value == -(1 << 31):
        return "(-2147483647 - 1)", ATOM
    suffix = "u" if is_uint(dtype) and bits_of(dtype) >= 32 else ""
    suffix += "LL" if not -(1 << 31) < value < 1 << 31 else ""
    return f"{value}{suffix}", ATOM if value >= 0 else UNARY


def _float(value: float, dtype: str) -> tuple[str, int]:
    if math.isnan(value) or math.isinf(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    else:
        text = repr(value) + ("" if dtype == "float64" else "f")
    if dtype in ("float16", "bfloat16"):
        return f"{c_type(dtype)}({text})", ATOM
    return text, ATOM if text[0] != "-" else UNARY


def _wide(s: Scope, e: PrimExpr, level: int) -> str:
    """An operand; half precision as float."""
    if e.dtype in _HALF:
        if isinstance(e, expr.FloatImm):
            rounded, at = _float(e.value, "float32")
            return rounded if at >= level else f"({rounded})"
        return f"(float){text_of(s, e, UNARY)}"
    return text_of(s, e, level)


def _rounded(text: str, level: int, dtype: str) -> tuple[str, int]:
    """A result as its dtype: half precision is rounded, narrow integers wrap."""
    if dtype in _HALF:
        return f"{c_type(dtype)}({text})", ATOM
    if is_int(dtype) and bits_of(dtype) < 32:
        return f"({c_type(dtype)})({text})", UNARY
    return text, level


def _convert(s: Scope, value: PrimExpr, to: str) -> tuple[str, int]:
    if value.dtype == to:
        return _emit(s, value)
    if to == "bool":
        return f"{_wide(s, value, 7)} != 0", 6
    if to in _HALF:
        inner = _wide(s, value, 0)
        if value.dtype not in (*_HALF, "float32"):
            inner = f"(float)({inner})"
        return f"{c_type(to)}({inner})", ATOM
    if to == "float32" and value.dtype in _HALF:
        return _wide(s, value, UNARY), UNARY
    return f"({c_type(to)}){_wide(s, value, UNARY)}", UNARY


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
        case expr.Add(a, b) | expr.Mul(a, b) | expr.FloorDiv(a, b) | expr.Min(a, b):
            return is_nonneg(s, a) and is_nonneg(s, b)
        case expr.Cast(_, value):
            return is_uint(value.dtype)
        case _:
            return is_uint(e.dtype)


def _binary(s: Scope, e: expr.BinaryOp) -> tuple[str, int]:
    kind, dtype = type(e), e.a.dtype
    if lanes_of(dtype) > 1:
        raise CodegenError(f"{s.function!r} computes on explicit vectors: {e}; no row for CUDA")
    if isinstance(e, expr.Min | expr.Max):
        ctype = "float" if dtype in _HALF else c_type(dtype)
        fn = "minimum" if kind is expr.Min else "maximum"
        return _rounded(f"{fn}<{ctype}>({_wide(s, e.a, 0)}, {_wide(s, e.b, 0)})", ATOM, dtype)
    if e.row.is_division:
        return _division(s, e)
    if kind in (expr.ShiftLeft, expr.ShiftRight):
        return _shift(s, e)
    symbol, level = e.row.c, e.row.c_level
    left, right = _wide(s, e.a, level), _wide(s, e.b, level + 1)
    if kind is expr.Mul and isinstance(e.a, expr.IntImm) and isinstance(e.b, expr.IntImm):
        left = f"({c_type(dtype)}){left}"
    return _rounded(f"{left} {symbol} {right}", level, e.dtype)


def _shift(s: Scope, e: expr.BinaryOp) -> tuple[str, int]:
    """Plain for a constant number of places that the type has."""
    symbol, level = e.row.c, e.row.c_level
    ctype = c_type(e.dtype)
    if isinstance(e.b, expr.IntImm) and 0 <= e.b.value < bits_of(e.dtype):
        left = text_of(s, e.a, level)
        left = f"({ctype}){left}" if isinstance(e.a, expr.IntImm) else left
        return _rounded(f"{left} {symbol} {e.b.value}", level, e.dtype)
    fn = "shift_left" if isinstance(e, expr.ShiftLeft) else "shift_right"
    return f"{fn}<{ctype}>({text_of(s, e.a)}, {text_of(s, e.b)})", ATOM


def _division(s: Scope, e: expr.BinaryOp) -> tuple[str, int]:
    kind, dtype = type(e), e.dtype
    if is_float(dtype):
        return _float_division(s, e)
    by = text_of(s, e.b, 11)
    if any(isinstance(n, BufferLoad) for n in walk(e.b)):
        number = s.failure("integer division by zero")
        by = f"checked_divisor<{c_type(dtype)}>({text_of(s, e.b)}, failed, {number})"
    floors = kind in (expr.FloorDiv, expr.FloorMod)
    if floors and not (is_nonneg(s, e.a) and is_nonneg(s, e.b)):
        fn = "floordiv" if kind is expr.FloorDiv else "floormod"
        return f"{fn}<{c_type(dtype)}>({text_of(s, e.a)}, {by})", ATOM
    symbol, level = e.row.c, e.row.c_level
    return _rounded(f"{text_of(s, e.a, level)} {symbol} {by}", level, dtype)


def _float_division(s: Scope, e: expr.BinaryOp) -> tuple[str, int]:
    a, b = _wide(s, e.a, 10), _wide(s, e.b, 11)
    f = "" if e.dtype == "float64" else "f"
    match e:
        case expr.Div():
            return _rounded(f"{a} / {b}", 10, e.dtype)
        case expr.Mod():
            return _rounded(f"fmod{f}({_wide(s, e.a, 0)}, {_wide(s, e.b, 0)})", ATOM, e.dtype)
        case expr.FloorDiv():
            return _rounded(f"floor{f}({a} / {b})", ATOM, e.dtype)
        case _:
            return _rounded(f"{a} - floor{f}({a} / {b}) * {b}", 9, e.dtype)


# -- intrinsics ----------------------------------------------------------------------------------


def _call(s: Scope, e: expr.Call) -> tuple[str, int]:
    handler = _INTRINSICS.get(e.op)
    if handler is not None:
        return handler(s, e)
    row = INTRINSICS.get(e.op)
    name = "" if row is None else row.cuda or row.c
    if e.op == "fma" and is_int(e.dtype):
        a, b, c = e.args
        return _emit(s, expr.Add(expr.Mul(a, b), c))
    if is_float(e.dtype) and name and lanes_of(e.dtype) == 1:
        args = ", ".join(_wide(s, a, 0) for a in e.args)
        suffix = "" if e.dtype == "float64" else "f"
        return _rounded(f"{name}{suffix}({args})", ATOM, e.dtype)
    what = next((a.value for a in e.args if isinstance(a, expr.StringImm)), e.op)
    raise CodegenError(f"no CUDA row for {what!r} on {e.dtype} in {s.function!r}: {e}")


def _isnan(s: Scope, e: expr.Call) -> tuple[str, int]:
    x = _wide(s, e.args[0], 7)
    return f"{x} != {x}", 6


def _against_infinity(symbol: str) -> Callable[[Scope, expr.Call], tuple[str, int]]:
    def handler(s: Scope, e: expr.Call) -> tuple[str, int]:
        f = "" if e.args[0].dtype == "float64" else "f"
        return f"fabs{f}({_wide(s, e.args[0], 0)}) {symbol} INFINITY", 6

    return handler


def _absolute(s: Scope, e: expr.Call) -> tuple[str, int]:
    if is_uint(e.dtype) or e.dtype == "bool":
        return _emit(s, e.args[0])
    if is_int(e.dtype):
        return f"absolute<{c_type(e.dtype)}>({text_of(s, e.args[0])})", ATOM
    f = "" if e.dtype == "float64" else "f"
    return _rounded(f"fabs{f}({_wide(s, e.args[0], 0)})", ATOM, e.dtype)


def _bitwise_not(s: Scope, e: expr.Call) -> tuple[str, int]:
    symbol = "!" if e.dtype == "bool" else "~"
    return _rounded(f"{symbol}{text_of(s, e.args[0], UNARY)}", UNARY, e.dtype)


def _popcount(s: Scope, e: expr.Call) -> tuple[str, int]:
    bits = f"(uint{bits_of(e.dtype)}_t){text_of(s, e.args[0], UNARY)}"
    return f"({c_type(e.dtype)})__popcll({bits})", UNARY


def _pow(s: Scope, e: expr.Call) -> tuple[str, int]:
    if is_int(e.dtype):
        args = ", ".join(text_of(s, a) for a in e.args)
        return f"ipow<{c_type(e.dtype)}>({args})", ATOM
    f = "" if e.dtype == "float64" else "f"
    return _rounded(f"pow{f}({', '.join(_wide(s, a, 0) for a in e.args)})", ATOM, e.dtype)


def _sigmoid(s: Scope, e: expr.Call) -> tuple[str, int]:
    ctype = "double" if e.dtype == "float64" else "float"
    return _rounded(f"sigmoid<{ctype}>({_wide(s, e.args[0], 0)})", ATOM, e.dtype)


def _reinterpret(s: Scope, e: expr.Call) -> tuple[str, int]:
    value = e.args[0]
    return (
        f"reinterpret<{c_type(e.dtype)}>(({c_type(value.dtype)}){text_of(s, value, UNARY)})",
        ATOM,
    )


def _shuffle(s: Scope, e: expr.Call) -> tuple[str, int]:
    """Bytes and bools travel as integers."""
    value, mask = text_of(s, e.args[0]), text_of(s, e.args[1])
    narrow = e.dtype == "bool" or (is_int(e.dtype) and bits_of(e.dtype) < 32)
    text = f"__shfl_xor_sync(0xffffffffu, {f'(int32_t)({value})' if narrow else value}, {mask})"
    return (f"({c_type(e.dtype)}){text}", UNARY) if narrow else (text, ATOM)


_INTRINSICS: dict[str, Callable[[Scope, expr.Call], tuple[str, int]]] = {
    "likely": lambda s, e: _emit(s, e.args[0]),
    "isnan": _isnan,
    "isinf": _against_infinity("=="),
    "isfinite": _against_infinity("<"),
    "abs": _absolute,
    "fabs": _absolute,
    "bitwise_not": _bitwise_not,
    "popcount": _popcount,
    "pow": _pow,
    "sigmoid": _sigmoid,
    "reinterpret": _reinterpret,
    "warp_shuffle_xor": _shuffle,
}
