"""A step that stores small floating-point numbers as integers of as many bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, element_of, lanes_of, numpy_dtype, with_lanes
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.schedule.tree import alloc_sites


def stored_as_bits(func: PrimFunc, narrow: Sequence[str]) -> PrimFunc:
    """The function whose buffers of these dtypes are unsigned integers with the same bits.

    Conversions to and from bfloat16 become operations on bits. Raises ValueError for other
    conversions, and for a function that computes with such numbers: a step that computes in wider
    ones has to come first.
    """
    swapped: dict[Buffer, Buffer] = {}
    if not any(element_of(b.dtype) in narrow for b in _buffers(func)):
        return func
    stored = _Stored(narrow, swapped)
    params = tuple(stored.visit(p) for p in func.params)
    return replace(func, params=params, body=stored.visit(func.body))  # type: ignore[arg-type]


def _buffers(func: PrimFunc) -> Sequence[Buffer]:
    return (*func.buffers, *alloc_sites(func))


class _Stored:
    def __init__(self, narrow: Sequence[str], swapped: dict[Buffer, Buffer]) -> None:
        self.narrow, self.swapped = narrow, swapped

    def is_narrow(self, n: Buffer | PrimExpr) -> bool:
        return element_of(n.dtype) in self.narrow

    def visit(self, n: Node) -> Node:
        match n:
            case Buffer() if self.is_narrow(n):
                return self.swapped.setdefault(n, replace(n, dtype=_unsigned(n.dtype)))
            case BufferStore(value=value) if self.is_narrow(value):
                at = tuple(self.whole(i) for i in n.indices)
                return replace(n, buffer=self.visit(n.buffer), value=self.bits(value), indices=at)  # type: ignore[arg-type]
            case expr.Cast(to, value) if self.is_narrow(value):
                wide = self.float32(value)
                return wide if to == wide.dtype else expr.Cast(to, wide)
            case expr.Call(op="reinterpret", args=(value,)) if self.is_narrow(value):
                bits = self.bits(value)
                return bits if n.dtype == bits.dtype else replace(n, args=(bits,))
            case PrimExpr() if self.is_narrow(n):
                raise ValueError(f"{n} is computed in {n.dtype}, which is only to be stored")
            case _:
                return map_children(n, self.visit)

    def whole(self, e: PrimExpr) -> PrimExpr:
        return self.visit(e)  # type: ignore[return-value]

    def bits(self, e: PrimExpr) -> PrimExpr:
        """The bits of a narrow value."""
        match e:
            case BufferLoad(buffer, indices):
                at = tuple(map(self.whole, indices))
                return replace(e, buffer=self.visit(buffer), indices=at)  # type: ignore[arg-type]
            case expr.FloatImm(value):
                kind = numpy_dtype(e.dtype)
                bits = np.asarray(value).astype(kind).view(f"uint{bits_of(e.dtype)}")
                return expr.const(int(bits), _unsigned(e.dtype))
            case expr.Call(op="reinterpret", args=(value,)):
                return self.whole(value)
            case expr.Call(op="if_then_else", args=(where, yes, no)):
                chosen = (self.whole(where), self.bits(yes), self.bits(no))
                return expr.Call(_unsigned(e.dtype), "if_then_else", chosen)
            case expr.Select(where, yes, no):
                return expr.Select(self.whole(where), self.bits(yes), self.bits(no))
            case expr.Broadcast(value, lanes):
                return expr.Broadcast(self.bits(value), lanes)
            case expr.Cast(_, value) if element_of(e.dtype) == "bfloat16":
                value = self.whole(value)
                return _rounded(value if value.dtype == _like(e, "float32")
                                else expr.Cast(_like(e, "float32"), value))  # fmt: skip
            case _:
                raise ValueError(f"{e} is computed in {e.dtype}, which is only to be stored")

    def float32(self, e: PrimExpr) -> PrimExpr:
        """A narrow value as a float32."""
        if element_of(e.dtype) != "bfloat16":
            raise ValueError(f"{e} is converted, while {e.dtype} is only to be stored")
        kind = _like(e, "uint32")
        shifted = expr.ShiftLeft(expr.Cast(kind, self.bits(e)), _number(kind, 16))
        return expr.Call(_like(e, "float32"), "reinterpret", (shifted,))


def _rounded(value: PrimExpr) -> PrimExpr:
    """The bits of a float32 as a bfloat16, rounded to the nearest, ties to even; those of NaN are
    of a quiet one."""
    kind = _like(value, "uint32")
    bits = expr.Call(kind, "reinterpret", (value,))
    half = _number(kind, 16)
    odd = expr.BitAnd(expr.ShiftRight(bits, half), _number(kind, 1))
    up = expr.Add(expr.Add(bits, odd), _number(kind, 0x7FFF))
    narrow = _like(value, "uint16")
    found = expr.Cast(narrow, expr.ShiftRight(up, half))
    return expr.Select(expr.NE(value, value), _number(narrow, 0x7FC0), found)


def _unsigned(dtype: str) -> str:
    return with_lanes(f"uint{bits_of(element_of(dtype))}", lanes_of(dtype))


def _like(e: PrimExpr, element: str) -> str:
    return with_lanes(element, lanes_of(e.dtype))


def _number(dtype: str, value: int) -> PrimExpr:
    one = expr.const(value, element_of(dtype))
    return one if lanes_of(dtype) == 1 else expr.Broadcast(one, lanes_of(dtype))

