"""Cube roots of vectors, and square roots of float32 without the processor's instruction.

That one takes twelve cycles for 16 lanes. An estimate of 1 / sqrt(x), a step of Newton's
method for it and for the root, and a correction by what the root's square leaves of x take seven
(P. Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, 1990).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaxlab.codegen.llvm.arithmetic import cast
from relaxlab.codegen.llvm.builder import Builder, Value, mangle
from relaxlab.codegen.llvm.formula import Formula
from relaxlab.ir import expr
from relaxlab.ir.dtypes import element_of

LANES = 16
"""Lanes of the instruction that estimates."""
LEAST = 2.0**-100
"""The least number whose remainder, down to 2**-48 of it, is still a normal number."""


def square_root(m: Formula, x: Value) -> Value:
    """The root, rounded as IEEE 754 asks for: with the estimates of `Facts.root_estimates` it was
    compared with the instruction's for every float32 from `LEAST` on."""
    if m.lanes % LANES or not m.b.target.facts.root_estimates:
        return m.call("sqrt", x)
    inverse = _estimate(m.b, x)
    root, half = m.mul(x, inverse), m.mul(inverse, 0.5)
    error = m.fma(m.negative(root), half, 0.5)
    root, half = m.fma(root, error, root), m.fma(half, error, half)
    remainder = m.fma(m.negative(root), root, x)
    root = m.fma(remainder, half, root)
    is_usual = m.iop(expr.And, m.op(expr.GE, x, LEAST), m.op(expr.LT, x, math.inf))
    return m.unless(is_usual, root, lambda: m.call("sqrt", x))


def _estimate(b: Builder, x: Value) -> Value:
    """1 / sqrt(x) with an error of 2**-14 of it."""
    part, whole = f"<{LANES} x float>", "poison"
    for first in range(0, x.lanes, LANES):
        picked = b.select_lanes(b.materialise(x), "float", x.lanes, range(first, first + LANES))
        arguments = [(part, picked), (part, "zeroinitializer"), ("i16", "-1")]
        made = b.call("llvm.x86.avx512.rsqrt14.ps.512", part, arguments)
        into = f"llvm.vector.insert.{mangle(x.dtype)}.v{LANES}f32"
        whole = b.call(into, x.ty, [(x.ty, whole), (part, made), ("i64", str(first))])
    return Value(x.dtype, whole)


@dataclass(frozen=True, slots=True)
class _Root:
    """Constants of the cube roots of a dtype. The bits of about the inverse of a root are `start`
    less a third of the bits of the number, as integers, and the number times the cube of that is at
    most 0.103 off 1. Below `small` the remainder would be subnormal; the cube of `scale` scales up
    to it. `steps` for the inverse leave so little that one for the root makes it exact."""

    start: float
    small: float
    scale: float
    steps: int


CUBE_ROOTS = {
    "float32": _Root(0x54A1F000, 2.0**-60, 2.0**32, 1),
    "float64": _Root((0x54A1F000 / 2.0**23 + 896 * 4 / 3) * 2.0**52, 2.0**-900, 2.0**100, 2),
}


def cube_root(m: Formula, x: Value) -> Value:
    """Steps for the inverse of the root, from the series of (1 - r)**(-1/3), of which the first
    leaves 2e-5, and one of Newton's for the root."""
    of, size = CUBE_ROOTS[element_of(m.dtype)], m.call("fabs", x)
    small = m.op(expr.LT, size, of.small)
    a = m.select(small, m.mul(size, of.scale**3), size)
    third = m.fma(cast(m.b, m.bits(a), m.dtype), -1 / 3, of.start)
    inverse = m.from_bits(m.to_int(third))
    for _ in range(of.steps):
        r = m.fma(m.negative(a), m.mul(m.mul(inverse, inverse), inverse), 1.0)
        inverse = m.fma(m.mul(inverse, r), m.poly(r, [14 / 81, 2 / 9, 1 / 3]), inverse)
    square = m.mul(inverse, inverse)
    root = m.mul(a, square)
    rest = m.fma(m.negative(m.mul(root, root)), root, a)
    root = m.fma(m.mul(rest, square), 1 / 3, root)
    root = m.select(small, m.mul(root, 1 / of.scale), root)
    # Zero, infinity and NaN are their own roots.
    usual = m.op(expr.And, m.op(expr.GT, size, 0.0), m.op(expr.LT, size, math.inf))
    return m.call("copysign", m.select(usual, root, size), x)
