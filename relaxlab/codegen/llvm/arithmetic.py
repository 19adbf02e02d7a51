"""Arithmetic on emitted values: constant folding, index vectors, then LLVM instructions."""

from __future__ import annotations

import math
from typing import Any

from relaxlab.codegen.llvm.builder import (
    LARGEST_SIZE,
    Builder,
    Value,
    float_value,
    int_value,
    llvm_type,
    mangle,
    vector_literal,
)
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, element_of, is_float, is_int, is_uint, lanes_of, with_lanes
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS

_INT = {expr.Add: "add", expr.Sub: "sub", expr.Mul: "mul", expr.BitAnd: "and", expr.BitOr: "or",
        expr.BitXor: "xor"}  # fmt: skip
_FLOAT = {expr.Add: "fadd", expr.Sub: "fsub", expr.Mul: "fmul", expr.Div: "fdiv"}
_COMPARE: dict[type, tuple[str, str, str]] = {  # signed, unsigned, float
    expr.EQ: ("eq", "eq", "oeq"),
    expr.NE: ("ne", "ne", "une"),
    expr.LT: ("slt", "ult", "olt"),
    expr.LE: ("sle", "ule", "ole"),
    expr.GT: ("sgt", "ugt", "ogt"),
    expr.GE: ("sge", "uge", "oge"),
}


def binary(b: Builder, cls: type[Any], x: Value, y: Value) -> Value:
    """Emit `cls(x, y)`; the operands have one element type and equal or scalar lanes."""
    folded = _fold(cls, x, y)
    if folded is not None:
        return folded
    if (x.offsets is not None or y.offsets is not None) and element_of(x.dtype) == "int64":
        indexed = _index_vector(b, cls, x, y)
        if indexed is not None:
            return indexed
    lanes = max(x.lanes, y.lanes)
    # bfloat16 travels as its 16 bits; float32 holds both operands exactly, and the result is
    # rounded.
    if element_of(x.dtype) == "bfloat16":
        wide = [cast(b, v, with_lanes("float32", v.lanes)) for v in (x, y)]
        result = binary(b, cls, wide[0], wide[1])
        return result if issubclass(cls, expr.CmpOp) else cast(b, result, x.dtype)
    x, y = b.widen(x, lanes), b.widen(y, lanes)
    if issubclass(cls, expr.CmpOp):
        return _compare(b, cls, x, y)
    if cls in (expr.And, expr.Or):
        op = "and" if cls is expr.And else "or"
        return Value(x.dtype, b.emit(f"{op} {x.ty} {b.materialise(x)}, {b.materialise(y)}"))
    if is_float(x.dtype):
        return _float(b, cls, x, y)
    return _integer(b, cls, x, y)


def _fold(cls: type[Any], x: Value, y: Value) -> Value | None:
    if cls in (expr.And, expr.Or):
        for u, v in ((x, y), (y, x)):
            # Conditions of versions and tails often become constant; `_if` then emits one branch.
            if u.const is not None and u.lanes == 1:
                return v if bool(u.const) == (cls is expr.And) else u
        return None
    if x.lanes != 1 or y.lanes != 1 or not isinstance(y.const, int) or is_float(x.dtype):
        return _fold_zero(cls, x, y)
    if not isinstance(x.const, int):
        return _fold_unit(cls, x, y.const)
    # Folding would raise here; the instruction is only reached where the program divides by zero.
    row = SCALAR_OPERATORS[cls.__name__]
    if row.is_division and y.const == 0:
        return None
    if cls in (expr.ShiftLeft, expr.ShiftRight) and not 0 <= y.const < bits_of(x.dtype):
        return None
    value = row.exact(x.const, y.const)
    return int_value(int(value), "bool" if issubclass(cls, expr.CmpOp) else x.dtype)


MOST_LANES = 255
"""Most lanes whose numbers, and how many of them are on, fit unsigned bytes."""


def _fold_unit(cls: type[Any], x: Value, c: int) -> Value | None:
    if c == 0 and cls in (expr.Add, expr.Sub, expr.BitOr, expr.ShiftRight, expr.ShiftLeft):
        return x
    if c == 1 and cls in (expr.Mul, expr.FloorDiv, expr.Div):
        return x
    if (c == 0 and cls is expr.Mul) or (c == 1 and cls is expr.FloorMod):
        return int_value(0, x.dtype)
    if cls is expr.FloorMod and c > 0 and x.multiple % c == 0:
        return int_value(0, x.dtype)
    return None


def _fold_zero(cls: type[Any], x: Value, y: Value) -> Value | None:
    if is_float(x.dtype) or not is_int(x.dtype):
        return None
    if x.const == 0 and x.lanes == 1 and cls is expr.Add:
        return y
    if x.const == 1 and x.lanes == 1 and cls is expr.Mul:
        return y
    if x.const == 0 and x.lanes == y.lanes == 1 and cls is expr.Mul:
        return x
    return None


def _index_vector(b: Builder, cls: type[Any], x: Value, y: Value) -> Value | None:
    """The result as an index vector, when it still is one."""
    lanes = max(x.lanes, y.lanes)
    x, y = b.widen(x, lanes), b.widen(y, lanes)
    if x.offsets is None or y.offsets is None or x.base is None or y.base is None:
        return None
    xo, yo, row = x.offsets, y.offsets, SCALAR_OPERATORS[cls.__name__]
    if cls in (expr.Add, expr.Sub):
        base = binary(b, cls, x.base, y.base)
        offsets = tuple(map(row.exact, xo, yo))
    elif x.base.const == 0 and y.base.const == 0 and cls not in (expr.And, expr.Or):
        if row.is_division and 0 in yo:
            return None
        if cls in (expr.ShiftLeft, expr.ShiftRight) and not 0 <= min(yo) <= max(yo) < 64:
            return None
        values = tuple(map(row.exact, xo, yo))
        if issubclass(cls, expr.CmpOp):
            text = ", ".join(f"i1 {'true' if v else 'false'}" for v in values)
            return Value(with_lanes("bool", lanes), f"<{text}>")
        return _make_index(int_value(0), tuple(map(int, values)))
    elif cls is expr.LT and x.index and y.index and len(set(yo)) == 1:
        return _first_lanes(b, x.base, xo, binary(b, expr.Add, y.base, int_value(yo[0])))
    elif cls is expr.Mul:
        if len(set(xo)) == 1 and xo[0] == 0:
            x, y, xo, yo = y, x, yo, xo
        assert x.base is not None and y.base is not None
        if len(set(yo)) != 1:
            return None
        factor = binary(b, expr.Add, y.base, int_value(yo[0]))
        if not isinstance(factor.const, int):
            if len(set(xo)) == 1:
                total = binary(b, expr.Add, x.base, int_value(xo[0]))
                return _make_index(binary(b, expr.Mul, total, factor), (0,) * lanes)
            return None
        base = binary(b, expr.Mul, x.base, factor)
        offsets = tuple(o * factor.const for o in xo)
    elif cls in (expr.FloorDiv, expr.FloorMod) and len(set(yo)) == 1:
        divisor = binary(b, expr.Add, y.base, int_value(yo[0]))
        if len(set(xo)) == 1:
            total = binary(b, expr.Add, x.base, int_value(xo[0]))
            return _make_index(binary(b, cls, total, divisor), (0,) * lanes)
        c = divisor.const
        # Only if the base is a multiple of the divisor are quotients and remainders of lanes those
        # of their offsets.
        if not x.index or not isinstance(c, int) or c <= 0 or x.base.multiple % c:
            return None
        if cls is expr.FloorDiv:
            base, offsets = binary(b, cls, x.base, divisor), tuple(o // c for o in xo)
        else:
            base, offsets = int_value(0), tuple(o % c for o in xo)
    else:
        return None
    return _make_index(base, offsets)


def _first_lanes(b: Builder, base: Value, offsets: tuple[int, ...], bound: Value) -> Value | None:
    """Return the mask of the lanes whose index `base + offset` is below `bound`, the guard of a
    tail: bits where the target has registers for masks, else one comparison of bytes with the
    number of elements that are left, where 64 indices are eight vectors. None where offsets exceed
    a byte."""
    low, past = min(offsets), max(offsets) + 1
    # Bytes count from the base of the index, and the number of lanes that are on must fit one, too.
    if not 0 <= low < past <= MOST_LANES:
        return None
    left = binary(b, expr.Sub, bound, base)
    lanes = len(offsets)
    neighbours = offsets == tuple(range(low, past))
    if b.target.facts.mask_registers and neighbours and lanes in (8, 16, 32, 64):
        return _lowest_bits(b, lanes, binary(b, expr.Sub, left, int_value(low)))
    # Clamped before it is cut to a byte: the difference may be negative or larger than one holds.
    few = cast(b, _clamped(b, left, past), "uint8")
    at = vector_literal("i8", [str(o) for o in offsets])
    text = b.emit(f"icmp ult <{lanes} x i8> {at}, {b.materialise(b.widen(few, lanes))}")
    return Value(with_lanes("bool", lanes), text)


def _lowest_bits(b: Builder, lanes: int, count: Value) -> Value:
    """Return the mask whose first `count` lanes are on, as an integer with as many bits.

    LLVM moves comparisons to where they are used, also into loops, where they cost as much as the
    loads that they mask: sums down 1024 rows of 33 columns took 3.1 us so, 2.6 with integers.
    """
    args = [("i64", "-1"), ("i64", b.materialise(_clamped(b, count, lanes)))]
    bits = b.call("llvm.x86.bmi.bzhi.64", "i64", args)
    if lanes < 64:
        bits = b.emit(f"trunc i64 {bits} to i{lanes}")
    return Value(with_lanes("bool", lanes), b.emit(f"bitcast i{lanes} {bits} to <{lanes} x i1>"))


def _clamped(b: Builder, count: Value, most: int) -> Value:
    return binary(b, expr.Max, binary(b, expr.Min, count, int_value(most)), int_value(0))


def _make_index(base: Value, offsets: tuple[int, ...]) -> Value:
    dtype = with_lanes("int64", len(offsets))
    if isinstance(base.const, int) and base.const != 0:
        offsets = tuple(o + base.const for o in offsets)
        base = int_value(0)
    if min(offsets) < -(1 << 63) or max(offsets) >= 1 << 63:
        offsets = tuple(_wrap(o, "int64") for o in offsets)
    largest = base.largest + max(map(abs, offsets))
    index = base.index and largest <= LARGEST_SIZE
    # A sum of two values that are not negative is not negative only as long as it does not
    # overflow.
    nonneg = base.nonneg and min(offsets) >= 0 and (index or base.const == 0)
    return Value(
        dtype, None, base=base, offsets=offsets, nonneg=nonneg, index=index, largest=largest
    )


def index_vector(base: Value, lanes: int) -> Value:
    """The lanes `base, base + 1, …`."""
    return _make_index(base, tuple(range(lanes)))


def _compare(b: Builder, cls: type[Any], x: Value, y: Value) -> Value:
    signed, unsigned, floating = _COMPARE[cls]
    if is_float(x.dtype):
        op = f"fcmp {floating}"
    elif element_of(x.dtype) == "bool" or is_uint(x.dtype):
        op = f"icmp {unsigned}"
    else:
        op = f"icmp {signed}"
    text = b.emit(f"{op} {x.ty} {b.materialise(x)}, {b.materialise(y)}")
    return Value(with_lanes("bool", x.lanes), text)


def _float(b: Builder, cls: type[Any], x: Value, y: Value) -> Value:
    if cls in _FLOAT:
        # Contracting alone, but in loops that LLVM makes vectors of: elsewhere schedules say in
        # which order sums are made.
        order = " reassoc" if b.reassociates and cls in (expr.Add, expr.Sub) else ""
        how = _FLOAT[cls] + order + (" contract" if b.target.contract else "")
        return Value(x.dtype, b.emit(f"{how} {x.ty} {x.text}, {y.text}"))
    if cls in (expr.Min, expr.Max):
        for limit, other in ((x, y), (y, x)):
            number = limit.const if limit.lanes == 1 else limit.splat
            if number is not None and not math.isnan(number):
                return _limited(b, cls, limit, other)
        name = "minimum" if cls is expr.Min else "maximum"
        # As in NumPy, NaN wins and the order of zeros of different sign is open. LLVM tests the
        # first operand for NaN: a reduction's new value, which the next step does not wait for.
        args = [(y.ty, y.text or ""), (x.ty, x.text or "")]
        return Value(x.dtype, b.call(f"llvm.{name}.{mangle(x.dtype)}", x.ty, args, math="nsz"))
    if cls is expr.Mod:
        return Value(x.dtype, b.emit(f"frem {x.ty} {x.text}, {y.text}"))
    quotient = binary(b, expr.Div, x, y)
    floor_name = f"llvm.floor.{mangle(x.dtype)}"
    floor = Value(x.dtype, b.call(floor_name, x.ty, [(x.ty, quotient.text or "")]))
    if cls is expr.FloorDiv:
        return floor
    if cls is expr.FloorMod:
        return binary(b, expr.Sub, x, binary(b, expr.Mul, floor, y))
    raise NotImplementedError(f"no LLVM row for {cls.__name__} on {x.dtype}")


def _limited(b: Builder, cls: type[Any], limit: Value, other: Value) -> Value:
    """The minimum or maximum with a constant: `other` as it is where it is NaN, or equal to the
    constant. So `relu` and `clip` of -0.0 are -0.0, as in PyTorch."""
    how = "ogt" if cls is expr.Max else "olt"
    beyond = b.emit(f"fcmp {how} {limit.ty} {limit.text}, {other.text}")
    mask = llvm_type(with_lanes("bool", limit.lanes))
    picked = b.emit(f"select {mask} {beyond}, {limit.ty} {limit.text}, {limit.ty} {other.text}")
    return Value(limit.dtype, picked)


def _integer(b: Builder, cls: type[Any], x: Value, y: Value) -> Value:
    xt, yt = b.materialise(x), b.materialise(y)
    both = x.nonneg and y.nonneg
    largest = _largest(cls, x, y)
    index = x.index and y.index and largest <= LARGEST_SIZE
    unsigned = is_uint(x.dtype) or element_of(x.dtype) == "bool"
    if cls in (expr.ShiftLeft, expr.ShiftRight):
        return _shift(b, cls, x, y, unsigned)
    if cls in _INT:
        # Only on indices, which are bounded: on data an overflow would be undefined instead of
        # wrapping.
        wrap = " nsw" if index and element_of(x.dtype) == "int64" and cls in _ARITH else ""
        text = b.emit(f"{_INT[cls]}{wrap} {x.ty} {xt}, {yt}")
        multiple = 1
        if cls in (expr.Add, expr.Sub):
            multiple = math.gcd(x.multiple, y.multiple)
        elif cls is expr.Mul:
            multiple = x.multiple * y.multiple
        nonneg = both and (cls is expr.BitAnd or (index and cls in (expr.Add, expr.Mul)))
        # Where arithmetic may wrap, divisibility by anything but powers of two is lost; huge
        # multiples tell no alignment and would grow from product to product.
        if not index or multiple > 1 << 40:
            multiple = 1
        return Value(x.dtype, text, multiple=multiple, nonneg=nonneg, index=index, largest=largest)
    if cls in (expr.Min, expr.Max):
        name = ("u" if unsigned else "s") + ("min" if cls is expr.Min else "max")
        text = b.call(f"llvm.{name}.{mangle(x.dtype)}", x.ty, [(x.ty, xt), (x.ty, yt)])
        nonneg = both or (cls is expr.Max and (x.nonneg or y.nonneg))
        return Value(x.dtype, text, nonneg=nonneg, index=index, largest=largest)
    if _divides_as_floats(x, y):
        return _float_division(b, cls, x, y)
    if cls in (expr.Div, expr.Mod):
        op = ("u" if unsigned else "s") + ("div" if cls is expr.Div else "rem")
        text = b.emit(f"{op} {x.ty} {xt}, {yt}")
        return Value(x.dtype, text, nonneg=both, index=index, largest=largest)
    # Unsigned division needs no correction towards minus infinity: one instruction instead of five.
    result = _floor(b, cls, x, y, unsigned or both)
    result.index, result.largest = index, largest
    return result


def _divides_as_floats(x: Value, y: Value) -> bool:
    """True for vectors of short integers by a divisor that is not known: processors have no such
    instruction, and LLVM would divide lane by lane."""
    known = y.splat is not None or (y.offsets is not None and y.base is not None)
    return x.lanes > 1 and is_int(x.dtype) and bits_of(x.dtype) <= 32 and not known


def _float_division(b: Builder, cls: type[Any], x: Value, y: Value) -> Value:
    """Emit a quotient or remainder of short integers by a division of floats, which is exact.

    Let x / y be above an integer q and below q + 1, both positive: it is at most q + 1 - 1 / y, and
    1 / y is at least (q + 1) / (x + y). Floats below q + 1 are (q + 1) / 2**24 apart at most
    (2**53 for float64), and x + y is less than that many for 16 (32) bits, so that rounding never
    reaches q + 1; it never falls below q, which is a float itself. The other signs are symmetric.
    """
    floating, whole = ("float32", "int32") if bits_of(x.dtype) <= 16 else ("float64", x.dtype)
    quotient = binary(b, expr.Div, cast(b, x, floating), cast(b, y, floating))
    if cls in (expr.FloorDiv, expr.FloorMod) and not is_uint(x.dtype):
        name = f"llvm.floor.{mangle(quotient.dtype)}"
        floor = b.call(name, quotient.ty, [(quotient.ty, quotient.text or "")])
        quotient = Value(quotient.dtype, floor)
    result = cast(b, cast(b, quotient, whole), x.dtype)
    if cls in (expr.Mod, expr.FloorMod):
        result = binary(b, expr.Sub, x, binary(b, expr.Mul, result, y))
    return result


def _largest(cls: type[Any], x: Value, y: Value) -> int:
    """`Value.largest` of an operation on indices."""
    if cls is expr.Mul:
        return x.largest * y.largest
    if cls in (expr.Add, expr.Sub):
        return x.largest + y.largest
    if cls in (expr.Div, expr.FloorDiv):
        return -(-x.largest // abs(int(y.const))) if y.const else x.largest
    return max(x.largest, y.largest)


_ARITH = (expr.Add, expr.Sub, expr.Mul)


def _shift(b: Builder, cls: type[Any], x: Value, y: Value, unsigned: bool) -> Value:
    """Emit a shift; one by the width or more leaves the sign (in LLVM its result is undefined)."""
    bits, elem = bits_of(x.dtype), element_of(x.dtype)
    xt, yt = b.materialise(x), b.materialise(y)
    left = cls is expr.ShiftLeft
    op = "shl" if left else "lshr" if unsigned else "ashr"
    known = _known_shift(y)
    if known is not None and 0 <= known < bits:
        nonneg = x.nonneg and not left
        return Value(x.dtype, b.emit(f"{op} {x.ty} {xt}, {yt}"), nonneg=nonneg)
    last = b.materialise(b.widen(int_value(bits - 1, elem), x.lanes))
    name = f"llvm.umin.{mangle(x.dtype)}"
    shifted = b.emit(f"{op} {x.ty} {xt}, {b.call(name, x.ty, [(x.ty, yt), (x.ty, last)])}")
    if op == "ashr":
        return Value(x.dtype, shifted, nonneg=x.nonneg)
    zero = b.materialise(b.widen(int_value(0, elem), x.lanes))
    mask = llvm_type(with_lanes("bool", x.lanes))
    far = b.emit(f"icmp ugt {x.ty} {yt}, {last}")
    return Value(x.dtype, b.emit(f"select {mask} {far}, {x.ty} {zero}, {x.ty} {shifted}"))


def _known_shift(y: Value) -> int | None:
    """The count, where all lanes shift by the same constant."""
    for number in (y.const, y.splat):
        if isinstance(number, int):
            return number
    if y.base is not None and y.base.const == 0 and y.offsets and len(set(y.offsets)) == 1:
        return y.offsets[0]
    return None


def _floor(b: Builder, cls: type[Any], x: Value, y: Value, unsigned: bool) -> Value:
    """Floor division and modulus; unsigned division where both sides are known not negative."""
    xt, yt = b.materialise(x), b.materialise(y)
    is_div = cls is expr.FloorDiv
    if unsigned:
        text = b.emit(f"{'udiv' if is_div else 'urem'} {x.ty} {xt}, {yt}")
        divisor = _divisor(x, y)
        multiple = x.multiple // divisor if is_div and divisor else 1
        return Value(x.dtype, text, nonneg=True, multiple=multiple)
    rem = b.emit(f"srem {x.ty} {xt}, {yt}")
    zero = b.widen(int_value(0, element_of(x.dtype)), x.lanes)
    zt = b.materialise(zero)
    mask_ty = llvm_type(with_lanes("bool", x.lanes))
    nonzero = b.emit(f"icmp ne {x.ty} {rem}, {zt}")
    signs = b.emit(f"xor {x.ty} {xt}, {yt}")
    differ = b.emit(f"icmp slt {x.ty} {signs}, {zt}")
    fix = b.emit(f"and {mask_ty} {nonzero}, {differ}")
    if is_div:
        quotient = b.emit(f"sdiv {x.ty} {xt}, {yt}")
        one = b.emit(f"zext {mask_ty} {fix} to {x.ty}")
        return Value(x.dtype, b.emit(f"sub {x.ty} {quotient}, {one}"))
    shifted = b.emit(f"add {x.ty} {rem}, {yt}")
    picked = b.emit(f"select {mask_ty} {fix}, {x.ty} {shifted}, {x.ty} {rem}")
    return Value(x.dtype, picked, nonneg=y.nonneg)


def _divisor(x: Value, y: Value) -> int | None:
    """The constant y, where x is known to be a multiple of it."""
    if isinstance(y.const, int) and y.const > 0 and x.multiple % y.const == 0:
        return y.const
    return None


def cast(b: Builder, v: Value, to: str) -> Value:
    """Convert to dtype `to` (its lanes follow the value's when `to` is a scalar type)."""
    if lanes_of(to) == 1 and v.lanes > 1:
        to = with_lanes(to, v.lanes)
    if v.dtype == to:
        return v
    source, dest = element_of(v.dtype), element_of(to)
    if v.const is not None and v.lanes == 1 == lanes_of(to):
        folded = _cast_const(v, dest)
        if folded is not None:
            return folded
    if v.lanes == 1 and lanes_of(to) > 1:
        return b.widen(cast(b, v, dest), lanes_of(to))
    if source == dest:
        return v
    if v.offsets is not None and v.base is not None and len(set(v.offsets)) == 1:
        scalar = binary(b, expr.Add, v.base, int_value(v.offsets[0]))
        return b.widen(cast(b, scalar, dest), v.lanes)
    if source == "bfloat16":
        wide = b.emit(f"zext {v.ty} {v.text} to {llvm_type(with_lanes('uint32', v.lanes))}")
        return cast(b, Value(with_lanes("float32", v.lanes), _bits_to_float(b, wide, v.lanes)), to)
    if dest == "bfloat16":
        return _to_bfloat16(b, cast(b, v, "float32"))
    if dest == "bool":
        zero = float_value(0, source) if is_float(source) else int_value(0, source)
        return _compare(b, expr.NE, v, b.widen(zero, v.lanes))
    # Through a plain float32 it would be rounded twice: away from the value where the first makes a
    # tie.
    if (source, dest) == ("float64", "float16"):
        return cast(b, _to_odd_float32(b, v), to)
    op = _cast_op(source, dest)
    text = b.materialise(v)
    if op is not None:
        text = b.emit(f"{op} {v.ty} {text} to {llvm_type(to)}")
    keeps = is_int(dest) and bits_of(dest) > bits_of(source) and not is_float(source)
    index = keeps and v.index
    return Value(to, text, nonneg=keeps and v.nonneg, index=index, largest=v.largest)


def _cast_const(v: Value, dest: str) -> Value | None:
    assert v.const is not None
    if dest == "bool":
        return int_value(int(bool(v.const)), "bool")
    if is_int(dest) and not is_float(v.dtype):
        return int_value(_wrap(int(v.const), dest), dest)
    if is_float(dest):
        return float_value(float(v.const), dest)
    return None


def _wrap(value: int, dtype: str) -> int:
    bits = bits_of(dtype)
    value %= 1 << bits
    return value if is_uint(dtype) or value < 1 << (bits - 1) else value - (1 << bits)


def _cast_op(source: str, dest: str) -> str | None:
    """LLVM's conversion instruction, None when the bits stay."""
    if is_float(source) and is_float(dest):
        return "fpext" if bits_of(dest) > bits_of(source) else "fptrunc"
    unsigned = is_uint(source) or source == "bool"
    if is_float(dest):
        return "uitofp" if unsigned else "sitofp"
    if is_float(source):
        return "fptoui" if is_uint(dest) else "fptosi"
    narrow, wide = (1 if source == "bool" else bits_of(source)), bits_of(dest)
    if wide == narrow:
        return None
    if wide < narrow:
        return "trunc"
    return "zext" if unsigned else "sext"


def _bits_to_float(b: Builder, wide: str, lanes: int) -> str:
    ity = llvm_type(with_lanes("uint32", lanes))
    shift = b.materialise(b.widen(int_value(16, "uint32"), lanes))
    bits = b.emit(f"shl {ity} {wide}, {shift}")
    return b.emit(f"bitcast {ity} {bits} to {llvm_type(with_lanes('float32', lanes))}")


def _to_odd_float32(b: Builder, v: Value) -> Value:
    """A float32 that rounds to the same float16 as the float64: rounded towards zero, its last bit
    set where that lost something (rounding to odd, Boldo and Melquiond 2008). On processors without
    such an instruction LLVM would call a function that this process may not have."""
    lanes = v.lanes
    single, mask = llvm_type(with_lanes("float32", lanes)), llvm_type(with_lanes("bool", lanes))
    ity = llvm_type(with_lanes("uint32", lanes))
    one = b.materialise(b.widen(int_value(1, "uint32"), lanes))

    def magnitude(text: str) -> str:
        return b.call(f"llvm.fabs.{mangle(v.dtype)}", v.ty, [(v.ty, text)])

    text = b.materialise(v)
    near = b.emit(f"fptrunc {v.ty} {text} to {single}")
    back = b.emit(f"fpext {single} {near} to {v.ty}")
    bits = b.emit(f"bitcast {single} {near} to {ity}")
    larger = b.emit(f"fcmp ogt {v.ty} {magnitude(back)}, {magnitude(text)}")
    cut = b.emit(f"sub {ity} {bits}, {b.emit(f'zext {mask} {larger} to {ity}')}")
    differs = b.emit(f"fcmp one {v.ty} {back}, {text}")
    odd = b.emit(f"select {mask} {differs}, {ity} {b.emit(f'or {ity} {cut}, {one}')}, {ity} {cut}")
    return Value(with_lanes("float32", lanes), b.emit(f"bitcast {ity} {odd} to {single}"))


def _to_bfloat16(b: Builder, v: Value) -> Value:
    """Round to nearest even; NaN keeps a set mantissa bit."""
    lanes = v.lanes
    ity = llvm_type(with_lanes("uint32", lanes))

    def splat(value: int) -> str:
        return b.materialise(b.widen(int_value(value, "uint32"), lanes))

    bits = b.emit(f"bitcast {v.ty} {v.text} to {ity}")
    odd = b.emit(f"and {ity} {b.emit(f'lshr {ity} {bits}, {splat(16)}')}, {splat(1)}")
    # One less than half of the last kept bit, and one more where that bit is set: ties go to even.
    bias = b.emit(f"add {ity} {odd}, {splat(0x7FFF)}")
    rounded = b.emit(f"add {ity} {bits}, {bias}")
    nan = b.emit(f"fcmp uno {v.ty} {v.text}, {v.text}")
    # A NaN whose set bits are all in the lower half would become infinity when it is cut.
    quiet = b.emit(f"or {ity} {bits}, {splat(0x400000)}")
    mask = llvm_type(with_lanes("bool", lanes))
    picked = b.emit(f"select {mask} {nan}, {ity} {quiet}, {ity} {rounded}")
    high = b.emit(f"lshr {ity} {picked}, {splat(16)}")
    to = with_lanes("bfloat16", lanes)
    return Value(to, b.emit(f"trunc {ity} {high} to {llvm_type(to)}"))
