"""Square roots of float32 vectors without the processor's instruction for them.

The instruction takes twelve cycles for 16 lanes. An estimate of 1 / sqrt(x), a step of Newton's
method for it and for the root, and a correction by what the root's square leaves of x take seven
(P. Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, 1990).
"""

from __future__ import annotations

import math

from relaxlab.codegen.llvm.builder import Builder, Value, mangle
from relaxlab.codegen.llvm.formula import Formula
from relaxlab.ir import expr

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
