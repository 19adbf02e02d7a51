"""Loops over int32, as TVM writes them: read as loops over int64, values wrapping as written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.loops_check import check_loops
from relaxlab.ir import expr, loops
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule
from tests.codegen.kernels import Kernels, parse_kernels

ROWS, COLUMNS = 16, 8

KERNELS = {
    "axes": """
def axes(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i in range(T.int32(16)):
        for j in T.serial(T.int32(0), T.int32(8)):
            with T.block("C"):
                vi = T.axis.spatial(T.int32(16), i)
                vj = T.axis.spatial(T.int32(8), j)
                C[vi, vj] = A[vi, vj] + T.Cast("float32", vi * T.int32(1000000000) + vj)
""",
    "guarded": """
def guarded(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for io, ii, j in T.grid(T.int32(3), T.int32(7), T.int32(8)):
        with T.block("C"):
            vi = T.axis.spatial(T.int32(16), io * T.int32(7) + ii)
            vj = T.axis.spatial(T.int32(8), j)
            T.where(io * T.int32(7) + ii < T.int32(16))
            T.reads(A[vi, vj:vj + T.int32(1)])
            T.writes(C[vi, vj])
            C[vi, vj] = T.if_then_else(vi < T.int32(3), T.float32(0), A[vi, vj])
""",
    "sizes": """
def sizes(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, T.int32(8)), "float32")
    C = T.match_buffer(c, (n, T.int32(8)), "float32")
    for i, j in T.grid(n, T.int32(8)):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[n - T.int32(1) - vi, vj] + T.Cast("float32", vi * T.int32(3) // n)
""",
    "fused": """
def fused(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for f in T.parallel(T.int32(128)):
        C[f // T.int32(8), f % T.int32(8)] = A[f // T.int32(8), f % T.int32(8)] * T.float32(2)
""",
    "sums": """
def sums(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i in range(T.int32(16)):
        C[i, 0] = T.float32(0)
        for k in range(i % T.int32(8) + T.int32(1)):
            C[i, 0] = C[i, 0] + A[i, k]
""",
    "gathered": """
def gathered(A: T.Buffer((16, 8), "int32"), C: T.Buffer((16, 8), "int32")):
    for i, j in T.grid(T.int32(16), T.int32(8)):
        C[i, j] = A[(A[i, j] + i) % T.int32(16), j] * i
""",
}


def arrays(dtype: str) -> list[Any]:
    a = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(dtype)
    if dtype == "int32":
        a[0] = np.iinfo("int32").max
    return [a, np.zeros_like(a)]


@pytest.mark.parametrize("name", KERNELS)
def test_loops_over_int32(name: str) -> None:
    mod = parse_kernels(KERNELS[name])
    func: Any = mod[name]
    variables = [n for n in walk(func.body) if isinstance(n, expr.Var)]
    assert {v.dtype for v in variables} == {"int64"}
    assert rl.parse(mod.script()).script() == mod.script()
    given = arrays("int32" if name == "gathered" else "float32")
    with np.errstate(over="ignore"):
        Kernels(mod).agree(name, given, n=ROWS)


def test_values_wrap_as_int32() -> None:
    text = """
def f(C: T.Buffer((8,), "int64"), D: T.Buffer((8,), "bool")):
    for i in T.serial(T.int32(8)):
        C[i] = T.int64(i * T.int32(1000000000))
        D[i] = i < T.int32(3)
"""
    kernels = Kernels(parse_kernels(text))
    c, d = np.zeros(8, "int64"), np.zeros(8, "bool")
    with np.errstate(over="ignore"):
        c, d = kernels.agree("f", [c, d])
        np.testing.assert_array_equal(c, np.arange(8, dtype="int32") * np.int32(1000000000))
    np.testing.assert_array_equal(d, np.arange(8) < 3)


def test_indices_are_those_of_loops_over_int64() -> None:
    """So that schedules and proofs are the same."""
    narrow = KERNELS["guarded"]
    wide = narrow.replace("T.int32(", "T.int64(")
    assert parse_kernels(narrow).script() == parse_kernels(wide).script()
    func: Any = parse_kernels(narrow)["guarded"]
    sch = Schedule(func)
    io, ii, j = sch.get_loops(sch.get_block("C"))
    sch.vectorize(j)
    sch.parallel(sch.fuse(io, ii))
    assert isinstance(sch.func, loops.PrimFunc)


def test_narrow_data_in_an_index_wraps() -> None:
    text = """
def f(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    for i in range(T.int32(8)):
        C[i] = A[(A[i] + i) // T.int32(1000000000) + T.int32(4)]
"""
    a = np.full(8, np.iinfo("int32").max, "int32")
    with np.errstate(over="ignore"):
        Kernels(parse_kernels(text)).agree("f", [a, np.zeros_like(a)])


def test_loops_built_over_int32_are_refused() -> None:
    buffer = loops.Buffer("C", (expr.const(4),), "float32")
    i = expr.Var("i", "int32")
    store = loops.BufferStore(buffer, expr.const(0.0), (i,))
    loop = loops.For(i, expr.const(0, "int32"), expr.const(4, "int32"), "serial", store)
    found = check_loops("f", loops.PrimFunc((buffer,), loop))
    assert [d.code for d in found] == ["E0325"]


def test_scalar_parameters_of_int32_end_loops() -> None:
    text = """
def f(C: T.Buffer((8,), "int32"), k: T.int32):
    for i in range(k):
        C[i] = i * k
"""
    func: Any = parse_kernels(text)["f"]
    c = np.zeros(8, "int32")
    interpret_prim_func(func, [c, 5])
    np.testing.assert_array_equal(c, [0, 5, 10, 15, 20, 0, 0, 0])
