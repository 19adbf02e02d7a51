"""Arithmetic on values of one vector shape, in which formulas are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Builder, Value, float_value, int_value, llvm_type, mangle
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, element_of, with_lanes


def per_lane(b: Builder, symbol: str, args: list[Value], element: str | None = None) -> Value:
    """A scalar C function on each lane; the result has elements of the dtype `element`, or else of
    that of the first argument."""
    lanes = max(a.lanes for a in args)
    dtype = with_lanes(element or element_of(args[0].dtype), lanes)
    types = [llvm_type(element_of(a.dtype)) for a in args]
    elem, args = llvm_type(element_of(dtype)), [b.widen(a, lanes) for a in args]
    texts = [b.materialise(a) for a in args]
    if lanes == 1:
        return Value(dtype, b.call(symbol, elem, list(zip(types, texts, strict=True))))
    result = "poison"
    for i in range(lanes):
        scalars = [
            b.emit(f"extractelement {a.ty} {text}, i64 {i}")
            for a, text in zip(args, texts, strict=True)
        ]
        one = b.call(symbol, elem, list(zip(types, scalars, strict=True)))
        if elem != "void":
            result = b.emit(f"insertelement {llvm_type(dtype)} {result}, {elem} {one}, i64 {i}")
    return Value(dtype, result) if elem != "void" else Value("void", "")


def all_lanes(b: Builder, mask: Value) -> str:
    """True if every lane of a vector of bools (or the bool itself) is set, as an i1."""
    text = b.materialise(mask)
    if mask.lanes == 1:
        return text
    bits = b.emit(f"bitcast {mask.ty} {text} to i{mask.lanes}")
    return b.emit(f"icmp eq i{mask.lanes} {bits}, -1")


class Formula:
    """Arithmetic on one vector shape, for writing formulas."""

    def __init__(self, b: Builder, x: Value) -> None:
        self.b, self.lanes, self.dtype = b, x.lanes, x.dtype
        self.itype = with_lanes(f"int{bits_of(x.dtype)}", x.lanes)

    def num(self, c: float) -> Value:
        return self.b.widen(float_value(c, element_of(self.dtype)), self.lanes)

    def int(self, c: int) -> Value:
        return self.b.widen(int_value(c, element_of(self.itype)), self.lanes)

    def op(self, cls: type[Any], x: Value, y: Value | float) -> Value:
        return binary(self.b, cls, x, y if isinstance(y, Value) else self.num(y))

    def add(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Add, x, y)

    def sub(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Sub, x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Mul, x, y)

    def div(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Div, x, y)

    def fma(self, x: Value, y: Value | float, z: Value | float) -> Value:
        args = [v if isinstance(v, Value) else self.num(v) for v in (x, y, z)]
        return self.call("fma", *args)

    def call(self, name: str, *args: Value) -> Value:
        pairs = [(v.ty, v.text or "") for v in args]
        text = self.b.call(f"llvm.{name}.{mangle(self.dtype)}", args[0].ty, pairs)
        return Value(self.dtype, text)

    def poly(self, x: Value, coefficients: list[float]) -> Value:
        """Horner's rule, highest power first."""
        acc = self.num(coefficients[0])
        for c in coefficients[1:]:
            acc = self.fma(acc, x, c)
        return acc

    def select(self, cond: Value, x: Value, y: Value | float) -> Value:
        other = y if isinstance(y, Value) else self.num(y)
        text = self.b.emit(
            f"select {cond.ty} {cond.text}, {x.ty} {x.text}, {other.ty} {other.text}"
        )
        return Value(x.dtype, text)

    def bits(self, x: Value) -> Value:
        text = self.b.emit(f"bitcast {x.ty} {x.text} to {llvm_type(self.itype)}")
        return Value(self.itype, text)

    def from_bits(self, x: Value) -> Value:
        text = self.b.emit(f"bitcast {x.ty} {x.text} to {llvm_type(self.dtype)}")
        return Value(self.dtype, text)

    def to_int(self, x: Value) -> Value:
        return cast(self.b, x, self.itype)

    def iop(self, cls: type[Any], x: Value, y: Value | int) -> Value:
        return binary(self.b, cls, x, y if isinstance(y, Value) else self.int(y))

    def bound(self, x: Value, lo: float, hi: float) -> Value:
        """Between bounds; NaN stays NaN."""
        # Comparisons with NaN are false, so it passes; LLVM's `minnum` would drop it.
        x = self.select(self.op(expr.LT, x, lo), self.num(lo), x)
        return self.select(self.op(expr.GT, x, hi), self.num(hi), x)

    def keep_nan(self, x: Value, y: Value) -> Value:
        nan = self.b.emit(f"fcmp uno {x.ty} {x.text}, {x.text}")
        return self.select(Value(with_lanes("bool", self.lanes), nan), x, y)

    def negative(self, x: Value) -> Value:
        return self.sub(self.num(-0.0), x)

    def unless(self, usual: Value, result: Value, other: Callable[[], Value]) -> Value:
        """`result` in the lanes where `usual` holds; `other` is only computed if some lane needs
        it."""
        b, before = self.b, self.b.block
        with b.detour(all_lanes(b, usual)):
            chosen = self.select(usual, result, other())
            after = b.block
        ends = f"[ {result.text}, %{before} ], [ {chosen.text}, %{after} ]"
        return Value(self.dtype, b.emit(f"phi {result.ty} {ends}"))
