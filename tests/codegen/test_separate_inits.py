"""Reductions over nothing: interpreter, virtual machine and native code agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.separate_inits import separate_inits
from relaxlab.ir import loops
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import free_symbols
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.schedule import Schedule
from tests.codegen.kernels import Kernels, parse_kernels
from tests.schedule.programs import random_inputs, run
from tests.schedule.ragged_cases import RAGGED_CASES

SUM = """
def rows(A: T.Buffer(("n", "k"), "float32"), C: T.Buffer(("n",), "float32")):
    for i, j in T.grid(n, k):
        with T.block("C"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vj]
"""
MATMUL = """
def matmul(A: T.Buffer(("n", "k"), "float32"), B: T.Buffer(("k", "m"), "float32"),
           C: T.Buffer(("n", "m"), "float32")):
    for i, j, p in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vp = T.axis.remap("SSR", [i, j, p])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vp] * B[vp, vj]
"""
SIZES = [(3, 0, 4), (0, 0, 0), (0, 5, 3), (3, 5, 0), (1, 0, 1), (17, 0, 33), (18, 35, 20)]


def operands(n: int, k: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n + k + m)
    a, b = (rng.integers(-4, 4, s).astype("float32") for s in ((n, k), (k, m)))
    return [a, b, np.full((n, m), 7, "float32")]


def check_matmul(func: PrimFunc) -> None:
    """Whatever was done to it, it multiplies matrices, those of no columns too."""
    kernels = Kernels(rl.Module.of({"matmul": func}))
    for n, k, m in SIZES:
        a, b, c = operands(n, k, m)
        for vectorise in (True, False):
            out = c.copy()
            interpret_prim_func(func, [a, b, out], vectorise=vectorise)
            np.testing.assert_array_equal(out, a @ b)
        assert kernels("matmul", [a, b, c], n=n, k=k, m=m) == 0
        np.testing.assert_array_equal(c, a @ b)


def matmul() -> Schedule:
    func = parse_kernels(MATMUL)["matmul"]
    return Schedule(func)


def plain(sch: Schedule) -> None:
    pass


def reduction_outside(sch: Schedule) -> None:
    i, j, p = sch.get_loops(sch.get_block("C"))
    sch.reorder(p, i, j)


def between(sch: Schedule) -> None:
    i, j, p = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, p, j)
    sch.parallel(i)


def tiles(sch: Schedule) -> None:
    """Every axis is split into parts that do not divide it."""
    i, j, p = sch.get_loops(sch.get_block("C"))
    (io, ii), (jo, ji), (po, pi) = (sch.split(x, [None, f]) for x, f in ((i, 4), (j, 8), (p, 3)))
    sch.reorder(io, jo, po, ii, pi, ji)
    sch.parallel(io)
    sch.vectorize(ji)


def rows_as_lanes(sch: Schedule) -> None:
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.vectorize(sch.split(i, [None, 4])[1])


def fused_tiles(sch: Schedule) -> None:
    i, j, _ = sch.get_loops(sch.get_block("C"))
    (io, ii), (jo, ji) = (sch.split(x, [None, f]) for x, f in ((i, 4), (j, 8)))
    sch.reorder(io, jo, ii, ji)
    sch.parallel(sch.fuse(io, jo))
    sch.vectorize(ji)


def accumulate_privately(sch: Schedule) -> None:
    block = sch.get_block("C")
    store = sch.cache_write(block, 0, "local")
    sch.compute_at(block, sch.get_loops(store)[1])
    *_, p = sch.get_loops(block)
    sch.split(p, [None, 4])


def blocks_of_blocks(sch: Schedule) -> None:
    i, j, p = sch.get_loops(sch.get_block("C"))
    io, ii = sch.split(i, [None, 1])
    sch.reorder(io, j, p, ii)
    sch.blockize(ii)


SCHEDULES = [
    plain, reduction_outside, between, tiles, rows_as_lanes, fused_tiles, accumulate_privately,
    blocks_of_blocks,
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_scheduled_products_of_empty_matrices(schedule) -> None:  # type: ignore[no-untyped-def]
    sch = matmul()
    schedule(sch)
    check_matmul(compact_buffers(sch.func))


def test_every_initialisation_is_closed_and_unique() -> None:
    sch = matmul()
    tiles(sch)
    body = separate_inits(sch.func.body)
    assert set(free_symbols(body)) == set(free_symbols(sch.func.body))
    bound = [n.loop_var for n in walk(body) if isinstance(n, loops.For)]
    assert len(bound) == len(set(bound)) == 6 + 2
    assert not any(isinstance(n, loops.SeqStmt) and any(isinstance(s, loops.SeqStmt)
                   for s in n.stmts) for n in walk(body))  # fmt: skip


@pytest.mark.parametrize("extent", ["8", "n * n + 2"])
def test_reductions_that_are_not_empty_stay_as_they_are(extent: str) -> None:
    text = SUM.replace("k", extent, 1).replace("k)", f"{extent})")
    func = parse_kernels(text)["rows"]
    assert separate_inits(func.body) is func.body


def test_functions_without_such_reductions_stay_as_they_are() -> None:
    sch = matmul()
    block = sch.get_block("C")
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    assert separate_inits(sch.func.body) is sch.func.body


def test_conditions_between_loops() -> None:
    text = """
    def chosen(A: T.Buffer(("n", "k"), "float32"), C: T.Buffer(("n",), "float32"), q: T.int64):
        for j, i in T.grid(k, n):
            if i < q:
                with T.block("C"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + A[vi, vj]
            else:
                with T.block("D"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        C[vi] = T.float32(1)
                    C[vi] = C[vi] * A[vi, vj]
    """
    kernels = Kernels(parse_kernels(text))
    for k in (0, 3):
        a = np.random.default_rng(k).integers(-4, 4, (5, k)).astype("float32")
        _, c = kernels.agree("chosen", [a, np.full(5, 7, "float32")], (2,), n=5, k=k, q=2)
        np.testing.assert_array_equal(c[:2], a[:2].sum(1))
        np.testing.assert_array_equal(c[2:], a[2:].prod(1))


def test_lets_and_outer_blocks() -> None:
    text = """
    def nested(A: T.Buffer(("n", "k"), "float32"), C: T.Buffer(("n",), "float32")):
        for i in range(n):
            with T.block("outer"):
                vi = T.axis.spatial(n, n - 1 - i)
                for p, q in T.grid(k, 1):
                    with T.LetStmt(vi + q) as row:
                        with T.block("C"):
                            wi = T.axis.spatial(n, row)
                            wp = T.axis.reduce(k, p + q)
                            with T.init():
                                C[wi] = T.float32(0)
                            C[wi] = C[wi] + A[wi, wp]
    """
    kernels = Kernels(parse_kernels(text))
    for n, k in ((4, 0), (4, 3), (0, 2)):
        a = np.random.default_rng(k).integers(-4, 4, (n, k)).astype("float32")
        _, c = kernels.agree("nested", [a, np.full(n, 7, "float32")], n=n, k=k)
        np.testing.assert_array_equal(c, a.sum(1))


def test_axes_of_one_value_or_none() -> None:
    """Simplified, an axis of one value is that value, and mentions no loop."""
    text = """
    def once(A: T.Buffer(("n", "k"), "float32"), C: T.Buffer(("n",), "float32")):
        for i, j, u in T.grid(n, k, 1):
            with T.block("C"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.reduce(k, 0)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj]
    """
    kernels = Kernels(parse_kernels(text))
    for n, k in ((4, 0), (4, 1), (0, 1)):
        a = np.random.default_rng(k).integers(-4, 4, (n, k)).astype("float32")
        _, c = kernels.agree("once", [a, np.full(n, 7, "float32")], n=n, k=k)
        np.testing.assert_array_equal(c, a.sum(1))


def test_several_reductions_share_a_loop() -> None:
    text = """
    def both(A: T.Buffer(("n", "k"), "int32"), S: T.Buffer((), "int32"),
             M: T.Buffer(("n",), "int32")):
        for j in range(k):
            for i in range(n):
                with T.block("S"):
                    vi, vj = T.axis.remap("RR", [i, j])
                    with T.init():
                        S[()] = 0
                    S[()] = S[()] + A[vi, vj]
            for i in range(n):
                with T.block("M"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        M[vi] = -100
                    M[vi] = T.max(M[vi], A[vi, vj])
    """
    kernels = Kernels(parse_kernels(text))
    for n, k in ((4, 0), (0, 4), (0, 0), (4, 3)):
        a = np.random.default_rng(k).integers(-9, 9, (n, k)).astype("int32")
        out = [np.full((), 7, "int32"), np.full(n, 7, "int32")]
        _, s, m = kernels.agree("both", [a, *out], n=n, k=k)
        assert s == a.sum()
        np.testing.assert_array_equal(m, a.max(1, initial=-100))


def test_loops_that_mix_axes_refuse_empty_reductions() -> None:
    sch = matmul()
    i, j, p = sch.get_loops(sch.get_block("C"))
    sch.fuse(j, p)
    func = sch.func
    kernels = Kernels(rl.Module.of({"matmul": func}))
    a, b, c = operands(3, 5, 4)
    kernels.agree("matmul", [a, b, c], n=3, k=5, m=4)
    a, b, c = operands(3, 0, 4)
    assert kernels("matmul", [a, b, c], n=3, k=0, m=4) == 1
    assert "the reduction in block 'C' is over nothing" in kernels.kernels["matmul"].failures[0]
    with pytest.raises(ExecutionError, match="the reduction in block 'C' is over nothing"):
        interpret_prim_func(func, [a, b, c])


TRIANGLE = """
def triangle(x: T.Buffer(("n",), "int32"), y: T.Buffer(("n",), "int32")):
    for k in range(n):
        for i in range(FIRST, n):
            with T.block("y"):
                v = T.axis.spatial((FIRST, n - FIRST), i)
                vk = T.axis.reduce(v, k)
                T.where(k < i and GUARD)
                with T.init():
                    y[v] = 0
                y[v] = y[v] + x[vk]
"""


@pytest.mark.parametrize("guard", ["k + i < n + n", "x[i] >= 0"])
def test_elements_without_terms_are_refused_where_they_are_not_told_apart(guard: str) -> None:
    """How many terms there are depends on loops inside of the one over terms: row 0 has none."""
    text = TRIANGLE.replace("GUARD", guard)
    kernels = Kernels(parse_kernels(text.replace("FIRST", "0")))
    x = np.arange(5, dtype="int32")
    assert kernels("triangle", [x, x.copy()], n=5) == 1
    assert "the reduction in block 'y' is over nothing" in kernels.kernels["triangle"].failures[0]
    with pytest.raises(ExecutionError, match="the reduction in block 'y' is over nothing"):
        interpret_prim_func(parse_kernels(text.replace("FIRST", "0"))["triangle"], [x, x.copy()])
    kernels = Kernels(parse_kernels(text.replace("FIRST", "1")))
    _, y = kernels.agree("triangle", [x, np.full(5, 7, "int32")], n=5)
    np.testing.assert_array_equal(y, [7, 0, 1, 3, 6])


def test_numbers_of_terms_that_loops_inside_read_are_refused() -> None:
    text = """
    def rows(x: T.Buffer(("m",), "int32"), count: T.Buffer(("n",), "int64"),
             y: T.Buffer(("n",), "int32")):
        for k, i in T.grid(m, n):
            with T.LetStmt(count[i]) as most:
                with T.block("y"):
                    v = T.axis.spatial(n, i)
                    vk = T.axis.reduce(most, k)
                    T.where(k < most and k + i < n + m)
                    with T.init():
                        y[v] = 0
                    y[v] = y[v] + x[vk]
    """
    func = parse_kernels(text)["rows"]
    with pytest.raises(CodegenError, match="'y' may be over nothing for some of its elements"):
        rl.compile(func)


def test_a_guard_on_terms_leaves_out_no_element(rng: np.random.Generator) -> None:
    """Where a loop inside decides how many terms there are, the guard of their last tile depends on
    both; products of matrices without common rows are 0 all the same."""
    func = RAGGED_CASES["vgemm"]()
    sch = Schedule(func)
    i, r, c, k = sch.get_loops(sch.get_block("C"))
    far, near, one = sch.split(k, factors=[None, 2, 8])
    sch.reorder(near, i, c, far, r, one)
    for size in (1, 2, 5) * 8:  # a fifth of the lengths are 0
        inputs, shape = random_inputs(func, rng, size)
        expected = run(func, inputs, shape)
        np.testing.assert_allclose(run(sch.func, inputs, shape), expected, 1e-4, 1e-5)
