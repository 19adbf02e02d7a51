"""Loop functions whose loops are not equally long, to schedule at random: sequences, triangles, and
products with masks."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir.loops import PrimFunc
from relaxlab.script import parse
from relaxlab.testing.ragged_programs import (
    MIX,
    NESTED,
    SCORES,
    SOFTMAX,
    TRIANGULAR_ADD,
    TRMM,
    VGEMM,
)

HEADER = '''
@T.prim_func
def main(s_: T.handle, o_: T.handle, r_: T.handle, p_: T.handle, q: T.Buffer(("b",), "int64"),
         x: T.Buffer(("t", 4), "float32"), c: T.Buffer(("b",), "float32"), y_: T.handle):
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    r = T.index_function(r_, (t,), "int64", facts=[T.segment_ids(lambda i: o[i])])
    p = T.index_function(p_, (b,), "int64", facts=[T.permutation(lambda i: q[i])])
'''

SCALED = HEADER + '''
    y = T.match_buffer(y_, (t, 4), "float32")
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(4, k)
                    y[o[vi] + vj, vk] = x[o[vi] + vj, vk] * c[vi]
'''
"""Rows of each sequence by a factor of the sequence."""

SUMMED = HEADER + '''
    y = T.match_buffer(y_, (b, 4), "float32")
    for i in range(b):
        for k in range(4):
            for j in range(s[i]):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vk = T.axis.spatial(4, k)
                    vj = T.axis.reduce(s[vi], j)
                    with T.init():
                        y[vi, vk] = T.float32(0)
                    y[vi, vk] = y[vi, vk] + x[o[vi] + vj, vk] * c[vi]
'''
"""Sums of the rows of each sequence."""

CENTRED = HEADER + '''
    y = T.match_buffer(y_, (t, 4), "float32")
    z = T.alloc_buffer((b, 4), "float32")
    w = T.alloc_buffer((t, 4), "float32")
    for i in range(b):
        for k in range(4):
            for j in range(s[i]):
                with T.sblock("z"):
                    vi = T.axis.spatial(b, i)
                    vk = T.axis.spatial(4, k)
                    vj = T.axis.reduce(s[vi], j)
                    with T.init():
                        z[vi, vk] = T.float32(0)
                    z[vi, vk] = z[vi, vk] + x[o[vi] + vj, vk]
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                with T.sblock("w"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(4, k)
                    w[o[vi] + vj, vk] = x[o[vi] + vj, vk] - z[vi, vk]
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(4, k)
                    y[o[vi] + vj, vk] = w[o[vi] + vj, vk] * c[vi]
'''
"""Rows less the sum of their sequence, by way of two intermediate buffers."""

MASKED = '''
@T.prim_func
def main(S: T.Buffer(("n", "m"), "float32"), V: T.Buffer(("m", 6), "float32"),
         O: T.Buffer(("n", 6), "float32")):
    M = T.alloc_buffer((n, m), "float32")
    W = T.alloc_buffer((n, m), "float32")
    for i, k in T.grid(n, m):
        with T.sblock("M"):
            vi, vk = T.axis.remap("SS", [i, k])
            M[vi, vk] = T.if_then_else(vk <= vi, S[vi, vk], T.float32("-inf"))
    for i, k in T.grid(n, m):
        with T.sblock("W"):
            vi, vk = T.axis.remap("SS", [i, k])
            W[vi, vk] = T.Select(M[vi, vk] == T.float32("-inf"), T.float32(0), T.exp(M[vi, vk]))
    for i, j, k in T.grid(n, 6, m):
        with T.sblock("O"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                O[vi, vj] = T.float32(0)
            O[vi, vj] = O[vi, vj] + T.Select(
                M[vi, vk] == T.float32("-inf"), T.float32(0), W[vi, vk] * V[vk, vj])
'''
"""Products with weights that a mask leaves out."""

TWO_NESTS = '''
@T.prim_func
def main(X: T.Buffer(("n", 5), "float32"), Y: T.Buffer(("n", 8), "float32"),
         Z: T.Buffer(("n",), "float32")):
    A = T.alloc_buffer((n,), "float32")
    B = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.sblock("A"):
            vi = T.axis.spatial(n, i)
            A[vi] = X[vi, 0] * T.float32(2)
    for j in range(n):
        with T.sblock("B"):
            vj = T.axis.spatial(n, j)
            B[vj] = Y[vj, 7] + T.float32(1)
    for k in range(n):
        with T.sblock("Z"):
            vk = T.axis.spatial(n, k)
            Z[vk] = A[vk] * B[vk]
'''
"""Two loops that have nothing to do with each other, and one that needs both."""


LOG_SUM = """
@T.prim_func
def main(A: T.Buffer(("n", 17), "float32"), L: T.Buffer(("n",), "float32")):
    M = T.alloc_buffer((n,), "float32")
    S = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 17):
        with T.sblock("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32("-inf")
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, k in T.grid(n, 17):
        with T.sblock("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + T.exp(A[vi, vk] - M[vi])
    for i in range(n):
        with T.sblock("L"):
            vi = T.axis.spatial(n, i)
            L[vi] = M[vi] + T.log(S[vi])
"""
"""Logarithms of sums of exponentials: a reduction whose terms depend on another's result."""

PLAIN = HEADER + """
    y = T.match_buffer(y_, (t, 4), "float32")
    for i in range(b):
        for j in range(s[i]):
            for k in range(4):
                y[o[i] + j, k] = x[o[i] + j, k] * c[i]
"""
"""The same as the first, without blocks."""


def _made(text: str) -> Callable[[], PrimFunc]:
    def make() -> PrimFunc:
        ((_, func),) = parse(text).functions
        return func

    return make


RAGGED_CASES: dict[str, Callable[[], PrimFunc]] = {
    "scaled": _made(SCALED),
    "summed": _made(SUMMED),
    "centred": _made(CENTRED),
    "scores": _made(SCORES),
    "ragged_softmax": _made(SOFTMAX),
    "mix": _made(MIX),
    "vgemm": _made(VGEMM),
    "nested": _made(NESTED),
    "trmm": _made(TRMM),
    "triangular_add": _made(TRIANGULAR_ADD),
    "masked": _made(MASKED),
    "two_nests": _made(TWO_NESTS),
    "log_sum": _made(LOG_SUM),
    "plain": _made(PLAIN),
}
