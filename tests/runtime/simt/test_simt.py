"""The SIMT interpreter: right programs run right, wrong ones are reported where they are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import expr
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.simt.simt import SimtReport, simt_device_kernel, simt_prim_func
from relaxlab.script import tir as T
from tests.runtime.simt import programs

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def run(func: PrimFunc, *args: object, **options: object) -> SimtReport:
    return simt_prim_func(func, args, name="f", **options)  # type: ignore[arg-type]


def problem_of(report: SimtReport, kind: str):
    found = [p for p in report.problems if p.kind == kind]
    assert found, str(report)
    return found[0]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000, 40000])
def test_vector_add(n: int):
    a, b, c = floats(n), floats(n), np.zeros(n, "float32")
    report = run(programs.vector_add, a, b, c)
    assert report.check().ok
    np.testing.assert_array_equal(c, a + b)
    assert sum(launch.geometry.blocks for launch in report.launches) == -(-n // 64)


@pytest.mark.parametrize(("n", "m", "k"), [(1, 1, 1), (16, 16, 16), (17, 33, 5), (40, 7, 50)])
def test_tiled_matmul(n: int, m: int, k: int):
    a, b, c = floats(n, k), floats(k, m), np.zeros((n, m), "float32")
    report = run(programs.tiled_matmul, a, b, c).check()
    expected = np.zeros((n, m), "float32")
    for i in range(-(-k // 16) * 16):  # in the order of the program, zeros included
        expected += a[:, i, None] * b[i] if i < k else 0
    np.testing.assert_array_equal(c, expected)
    assert report.launches[0].barriers == 2 * -(-k // 16)


def test_reductions():
    # Sums of whole numbers have no rounding.
    a, b = np.round(8 * floats(5, 128)), np.zeros(5, "float32")
    run(programs.tree_sum, a, b).check()
    np.testing.assert_array_equal(b, a.sum(1))
    a, b = np.round(8 * floats(5, 32)), np.zeros((5, 32), "float32")
    run(programs.shuffle_sum, a, b).check()
    np.testing.assert_array_equal(b, np.repeat(a.sum(1)[:, None], 32, 1))


@pytest.mark.parametrize("name", ["transpose", "transpose_padded", "transpose_naive"])
@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (33, 70), (100, 5)])
def test_transposes(name: str, shape: tuple[int, int]):
    a, b = floats(*shape), np.zeros(shape[::-1], "float32")
    run(getattr(programs, name), a, b).check()
    np.testing.assert_array_equal(b, a.T)


def test_off_by_one():
    a, b, c = floats(100), floats(100), np.zeros(100, "float32")
    report = run(programs.vector_add_off_by_one, a, b, c)
    assert {p.kind for p in report.problems} == {"out of bounds"}
    problem = report.problems[0]
    assert (problem.buffer, problem.index, problem.count) == ("A", (100,), 1)
    assert str(problem.threads[0]) == "thread (36, 0, 0) of block (1, 0, 0)"
    assert {p.buffer for p in report.problems} == {"A", "B", "C"}
    np.testing.assert_array_equal(c, a + b)  # the rest is right
    assert "reads A[100], outside of its shape (100,)" in str(report)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("tiled_matmul", [(40, 40), (40, 40), (40, 40)]),
        ("tree_sum", [(3, 128), (3,)]),
        ("transpose", [(40, 70), (70, 40)]),
    ],
)
def test_every_barrier_is_needed(name: str, shapes: list[tuple[int, ...]]):
    func = getattr(programs, name)
    kernel = lower_launches(func, name)
    assert programs.barriers(kernel) >= 1
    for which in range(programs.barriers(kernel)):
        args = [floats(*s) for s in shapes]
        broken = programs.change_barrier(kernel, which, None)
        problem = problem_of(simt_device_kernel(func, broken, args), "data race")
        assert problem.threads[0] != problem.threads[1]
        assert problem.threads[0].block == problem.threads[1].block
        assert problem.site is not None and problem.other is not None
        assert problem.site.write or problem.other.write


@pytest.mark.parametrize("which", [0, 1])
def test_a_barrier_that_only_some_threads_reach(which: int):
    kernel = lower_launches(programs.tiled_matmul, "matmul")
    tx = next(a.var for a in kernel.launches[0].axes if a.name == "threadIdx.x")
    broken = programs.change_barrier(kernel, which, expr.LT(tx, expr.const(3)))
    args = [floats(16, 16) for _ in range(3)]
    report = simt_device_kernel(programs.tiled_matmul, broken, args)
    problem = problem_of(report, "barrier divergence")
    missing, waiting = problem.threads
    assert (missing.index[0], waiting.index[0]) == (3, 0)
    assert "48 of 256 threads do" in problem.message
    assert "those for which `if tx < 3` goes on" in problem.message


def test_a_barrier_that_whole_blocks_skip_is_fine():
    kernel = lower_launches(programs.transpose, "transpose")
    bx = next(a.var for a in kernel.launches[0].axes if a.name == "blockIdx.x")
    broken = programs.change_barrier(kernel, 0, expr.LT(bx, expr.const(1)))
    args = [floats(32, 64), np.zeros((64, 32), "float32")]
    report = simt_device_kernel(programs.transpose, broken, args)
    assert {p.kind for p in report.problems} == {"data race"}
    assert problem_of(report, "data race").threads[0].block == (1, 0, 0)


def test_blocks_that_add_to_one_element_race():
    a, b = floats(4, 32), np.zeros(1, "float32")
    problem = problem_of(run(programs.everybody_counts, a, b), "data race")
    assert problem.threads[0].block != problem.threads[1].block
    assert "blocks run in any order" in problem.message
    run(programs.everybody_counts, a[:1], b).check()


@T.prim_func
def several_things(a: T.handle, b: T.handle, k: T.int64):
    A, B = T.match_buffer(a, (64,), "int64"), T.match_buffer(b, (64,), "int64")
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.block("scratch"):
            S = T.alloc_buffer((32,), "int64", scope="shared")
            own = T.alloc_buffer((2,), "int64", scope="local")
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("first"):
                    own[0] = A[bx * 32 + tx]
                    if tx >= k:
                        own[1] = 0
                    while own[0] % 2 == 0:
                        own[0] = own[0] // 2
                    if tx < 30:
                        S[tx] = own[0]
                with T.block("second"):
                    assert own[0] != 7, "seven"
                    for _i in range(tx % 3):
                        own[0] = own[0] + 100
                    B[bx * 32 + tx] = T.truncdiv(S[tx] + own[1], A[bx * 32 + tx] - 9) + own[0]


def test_faults_of_a_single_thread():
    a = np.arange(1, 65)
    b = np.zeros(64, "int64")
    report = run(several_things, a, b, 4)
    found = {(p.kind, p.buffer, p.index): p for p in report.problems}
    missing = found["uninitialised read", "S", (30,)]
    assert (missing.count, missing.threads[0].index, missing.site.block) == (
        4,
        (30, 0, 0),
        "second",
    )
    assert found["uninitialised read", "own", (1,)].count == 8
    zero = found["division by zero", "", ()]
    assert zero.threads[0].index == (8, 0, 0) and "9" in zero.site.text
    assert found["assertion failed", "", ()].message.endswith("seven")
    assert found["assertion failed", "", ()].count == 4  # 7, 14, 28, 56
    assert len(found) == 4
    odd = a // (a & -a)
    right = np.arange(64) % 32
    right = (right >= 4) & (right < 30) & (a != 9)
    with np.errstate(divide="ignore"):
        expected = np.trunc(odd / (a - 9)) + odd + 100 * (np.arange(64) % 32 % 3)
    np.testing.assert_array_equal(b[right], expected[right])


@T.prim_func
def scatter_rows(i: T.handle, b: T.handle):
    n = T.int64()
    N, B = T.match_buffer(i, (n, 5), "int64"), T.match_buffer(b, (n, 5), "int64")
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("row"):
            to = T.alloc_buffer((1,), "int64", scope="local")
            for _tx in T.thread_binding(1, thread="threadIdx.x"):
                to[0] = 0
                for step in range(5):
                    B[bx, to[0]] = step
                    to[0] = N[bx, to[0]]


def test_an_index_that_is_loaded_is_loaded_every_time():
    chains = np.stack([RNG.permutation(np.arange(1, 5)) for _ in range(20)])
    follow, expected = np.zeros((20, 5), np.int64), np.zeros((20, 5), np.int64)
    for row, chain in enumerate(chains):
        follow[row, [0, *chain[:-1]]] = chain
        expected[row, chain] = np.arange(1, 5)
    got = np.zeros((20, 5), np.int64)
    run(scatter_rows, follow, got).check()
    np.testing.assert_array_equal(got, expected)


def test_arguments():
    a, b, c = floats(65), floats(65), np.zeros(65, "float32")
    with pytest.raises(ExecutionError, match="takes 3 arguments, got 2"):
        run(programs.vector_add, a, b)
    with pytest.raises(ExecutionError, match="dimension 0 of C is 65, expected n = 64"):
        run(programs.vector_add, a[:64], b[:64], c)
    with pytest.raises(ExecutionError, match="A and C overlap in part"):
        run(programs.vector_add, a[:64], b[:64], a[1:])
    with pytest.raises(ExecutionError, match="C is written but the array is read-only"):
        c.flags.writeable = False
        run(programs.vector_add, a, b, c)


def test_one_array_for_two_parameters_is_one_memory():
    a = floats(64, 64)
    b = a.copy()
    run(programs.vector_add, a[0], a[1], a[0]).check()
    np.testing.assert_array_equal(a[0], b[0] + b[1])
    problem = problem_of(run(programs.transpose_naive, a, a), "data race")
    assert (problem.site.buffer.name, problem.other.buffer.name) == ("B", "A")


def test_strided_arguments():
    a, b = floats(40, 66)[:, ::2], np.zeros((33, 80), "float32")
    run(programs.transpose, a, b[:, ::2]).check()
    np.testing.assert_array_equal(b[:, ::2], a.T)
    assert not b[:, 1::2].any()


def test_limits_of_a_launch():
    kernel = lower_launches(programs.vector_add, "add")
    launch = kernel.launches[0]
    axes = tuple(replace(a, extent=expr.const(2048)) if a.name == "threadIdx.x" else a
                 for a in launch.axes)  # fmt: skip
    wide = replace(kernel, launches=(replace(launch, axes=axes),))
    report = simt_device_kernel(programs.vector_add, wide, [floats(5) for _ in range(3)])
    assert "a block has 2048 threads, 1024 at most are possible" in str(report)


def test_a_shuffle_with_a_thread_that_is_not_there():
    kernel = lower_launches(programs.shuffle_sum, "sum")
    launch = kernel.launches[0]
    axes = tuple(replace(a, extent=expr.const(24)) if a.name == "threadIdx.x" else a
                 for a in launch.axes)  # fmt: skip
    short = replace(kernel, launches=(replace(launch, axes=axes),))
    args = [floats(2, 32), np.zeros((2, 32), "float32")]
    problem = problem_of(
        simt_device_kernel(programs.shuffle_sum, short, args), "shuffle divergence"
    )
    assert (problem.threads[0].index, problem.count) == (
        (8, 0, 0),
        32,
    )  # 8 to 15 by 16, 16 to 23 by 8


def test_a_module_and_its_errors():
    mod = rl.Module.of({"off": programs.vector_add_off_by_one, "add": programs.vector_add})
    a, b, c = floats(3), floats(3), np.zeros(3, "float32")
    assert rl.simt(mod, "add", a, b, c).ok
    with pytest.raises(KeyError, match="no function named 'sub'"):
        rl.simt(mod, "sub", a, b, c)
    with pytest.raises(rl.SimtError, match="out of bounds") as error:
        rl.simt(mod, "off", a, b, c).check()
    assert error.value.report.problems[0].kernel == "off_kernel"


@T.prim_func
def doubled(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] * T.float32(2)


def test_a_function_that_is_not_bound_runs_as_one_thread():
    a, b = floats(8), np.zeros(8, "float32")
    (launch,) = run(doubled, a, b).check().launches
    assert (launch.geometry.blocks, launch.geometry.threads) == (1, 1)
    np.testing.assert_array_equal(b, 2 * a)


def test_the_text_of_a_report():
    kernel = programs.change_barrier(lower_launches(programs.transpose, "transpose"), 0, None)
    args = [floats(32, 32), np.zeros((32, 32), "float32")]
    text = str(simt_device_kernel(programs.transpose, kernel, args))
    assert text.startswith("transpose: ")
    assert "transpose_kernel: 1 block of 256 threads (grid (1, 1, 1), block (32, 8, 1))" in text
    assert "data race: thread (" in text
    assert "in block 'B' (" in text and "in block 'S' (" in text
    assert "programs.py:" in text


NEGATIVE = """
@T.prim_func(s_tir=True)
def f(A: T.Buffer(("n", "m"), "float32")):
    B = T.sblock_alloc_buffer((n - 1, 1), "float32")
    for i in T.thread_binding(n - 1, thread="blockIdx.x"):
        for j in T.thread_binding(m - 1, thread="blockIdx.y"):
            A[i, j] = T.float32(1)
    for i in T.thread_binding(n - 1, thread="blockIdx.x"):
        B[i, 0] = A[i, 0]
    for i in T.thread_binding(n - 1, thread="blockIdx.x"):
        A[i, 0] = B[i, 0] + T.float32(1)
"""


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (3, 2)])
def test_a_negative_extent_is_none(shape: tuple[int, int]) -> None:
    a = np.zeros(shape, "float32")
    rl.simt(rl.parse(NEGATIVE), "f", a).check()
    wanted = np.zeros(shape, "float32")
    wanted[:-1, :-1] = 1
    wanted[:-1, :1] += 1
    np.testing.assert_array_equal(a, wanted)
