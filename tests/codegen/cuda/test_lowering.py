"""Schedules for a GPU to launches: what each thread runs, where barriers are, what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.kernel import emit_kernel
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt_prim_func
from tests.codegen.kernels import parse_kernels


def function(text: str) -> PrimFunc:
    (func,) = parse_kernels(text).loop_functions().values()
    return func


def lowered(text: str, **options: Any) -> DeviceKernel:
    return lower_launches(function(text), "f", **options)


def code_of(text: str) -> str:
    func = function(text)
    return "\n".join(
        emit_kernel(x, CUDA_C).code for x in lower_launches(func, "f").launches
    )


def statements(text: str) -> list[str]:
    """The lines of the kernel's code without declarations and braces."""
    lines = [line.strip() for line in code_of(text).splitlines()]
    return [x for x in lines if re.match(r"(if|for|__sync|//|\w+\[)", x)]


REVERSE = """
def reverse(X: T.Buffer(("n", 64), "float32"), Y: T.Buffer(("n", 64), "float32")):
    n = T.int64()
    for i in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            S = T.alloc_buffer((64,), "float32", scope="shared")
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("fill"):
                    v = T.axis.spatial(64, t)
                    S[v] = X[vi, v]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("use"):
                    v = T.axis.spatial(64, t)
                    Y[vi, v] = S[63 - v]
"""

ROW_SUMS = """
def row_sums(X: T.Buffer(("n", 512), "float32"), Y: T.Buffer(("n",), "float32")):
    n = T.int64()
    P = T.alloc_buffer((n, 128), "float32", scope="local")
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for t in T.thread_binding(128, thread="threadIdx.x"):
            for k in range(4):
                with T.block("P"):
                    vi, vt = T.axis.remap("SS", [i, t])
                    vk = T.axis.reduce(4, k)
                    with T.init():
                        P[vi, vt] = T.float32(0)
                    P[vi, vt] = P[vi, vt] + X[vi, vk * 128 + vt]
        for t in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("Y"):
                vi = T.axis.spatial(n, i)
                vt = T.axis.reduce(128, t)
                with T.init():
                    Y[vi] = T.float32(0)
                Y[vi] = Y[vi] + P[vi, vt]
"""


def test_threads_wait_for_shared_memory() -> None:
    assert statements(REVERSE) == [
        "// fill",
        "S[tx] = X[bx * 64 + tx];",
        "__syncthreads();",
        "// use",
        "Y[bx * 64 + tx] = S[63 - tx];",
    ]


def test_no_barriers_on_request_and_none_beside_ones_own() -> None:
    (launch,) = lowered(REVERSE, synchronise=False).launches
    assert "__syncthreads" not in emit_kernel(launch, CUDA_C).code
    own = REVERSE.replace(
        '            for t in T.thread_binding(64, thread="threadIdx.x"):\n'
        '                with T.block("use")',
        '            T.evaluate(T.tvm_storage_sync("shared"))\n'
        '            for t in T.thread_binding(64, thread="threadIdx.x"):\n'
        '                with T.block("use")',
    )
    assert own != REVERSE and code_of(own).count("__syncthreads") == 1


def test_reductions_across_threads() -> None:
    code = code_of(ROW_SUMS)
    assert code.count("__shfl_xor_sync") == 10
    assert "__shared__ __align__(16) float Y_warps[4];" in code
    assert "float P[1][1];" in code
    assert re.search(r"if \(tx == 0\) \{\s*Y\[bx\] = Y_total\[0\];", code)


@pytest.mark.parametrize("text", [REVERSE, ROW_SUMS], ids=["reverse", "row_sums"])
def test_a_schedule_means_the_same_to_the_interpreter_and_to_threads(text: str) -> None:
    func = function(text)
    x = np.random.default_rng(0).normal(size=(3, func.buffers[0].shape[1].value))  # type: ignore
    shape = (3, 64) if text is REVERSE else (3,)
    mine, theirs = np.zeros(shape, "float32"), np.zeros(shape, "float32")
    interpret_prim_func(func, [x.astype("float32"), mine], name="f")
    simt_prim_func(func, [x.astype("float32"), theirs]).check()
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_nests_become_launches_and_versions_conditions() -> None:
    kernel = lowered("""
    def f(X: T.Buffer(("n",), "float32"), Y: T.Buffer(("n",), "float32")):
        n = T.int64()
        T.func_attr({"tir.noalias": True})
        if n == 1:
            for i in T.thread_binding(1, thread="blockIdx.x"):
                Y[i] = X[i]
        else:
            for i in T.thread_binding(n, thread="blockIdx.x"):
                Y[i] = X[i] + T.float32(1)
    """)
    assert [str(x.condition) for x in kernel.launches] == ["n == 1", "not(n == 1)"]
    assert [x.name for x in kernel.launches] == ["f_kernel0", "f_kernel1"]


def test_statements_outside_of_thread_loops_run_once() -> None:
    assert statements("""
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((1,), "float32", scope="shared")
        for i in T.thread_binding(1, thread="blockIdx.x"):
            with T.block("first"):
                vi = T.axis.spatial(1, i)
                S[vi] = X[vi]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("all"):
                    v = T.axis.spatial(64, t)
                    Y[v] = X[v] - S[0]
    """) == [
        "if (tx == 0) {",
        "// first",
        "S[0] = X[0];",
        "__syncthreads();",
        "// all",
        "Y[tx] = X[tx] - S[0];",
    ]  # fmt: skip


def test_threads_fill_shared_memory_together() -> None:
    """A loop over an axis that is bound already is the thread itself."""
    func = function("""
    def f(X: T.Buffer((4, 64), "float32"), Y: T.Buffer((4, 64), "float32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("part"):
                    vb, vt = T.axis.remap("SS", [b, t])
                    S = T.alloc_buffer((64,), "float32", scope="shared")
                    for u in T.thread_binding(64, thread="threadIdx.x"):
                        with T.block("fill"):
                            v = T.axis.spatial(64, u)
                            S[v] = X[vb, v]
                    with T.block("use"):
                        T.reads(S[0:64])
                        T.writes(Y[vb, vt])
                        Y[vb, vt] = S[63 - vt]
    """)
    (launch,) = lower_launches(func, "f").launches
    assert emit_kernel(launch, CUDA_C).code.count("__syncthreads") == 1
    x, y = np.arange(256, dtype="float32").reshape(4, 64), np.zeros((4, 64), "float32")
    simt_prim_func(func, [x, y]).check()
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_an_unscheduled_function_is_run_by_one_thread() -> None:
    kernel = lowered("""
    def f(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
        for i in range(8):
            Y[i] = X[i]
    """)
    (launch,) = kernel.launches
    assert launch.axes == () and [str(e) for e in launch.extents("threadIdx")] == ["1", "1", "1"]


def test_slices_that_are_filled_again_wait_for_their_readers() -> None:
    """Barriers before and after the fill: the second round may not overwrite what is read."""
    code = code_of("""
    def f(X: T.Buffer((4, 64), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for k in range(4):
                for t in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("fill"):
                        vk, v = T.axis.remap("SS", [k, t])
                        S[v] = X[vk, v]
                for t in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("use"):
                        vk, v = T.axis.remap("RS", [k, t])
                        with T.init():
                            Y[v] = T.float32(0)
                        Y[v] = Y[v] + S[63 - v]
    """)
    inside = code.split("for (int64_t k")[1]
    assert inside.count("__syncthreads") == 2


REFUSED = {
    "a shuffle of 'f' is under tx < 16, which differs": """
    def f(X: T.Buffer((32,), "float32"), Y: T.Buffer((32,), "float32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            if t < 16:
                Y[t] = T.warp_shuffle_xor(X[t], T.int32(1))
    """,
    "a barrier of 'f' is under tx < 32, which differs": """
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for t in T.thread_binding(64, thread="threadIdx.x"):
            if t < 32:
                S[t] = X[t]
                T.evaluate(T.tvm_storage_sync("shared"))
                Y[t] = S[31 - t]
    """,
    "give it the scope 'shared'": """
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="local")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                S[t] = X[t]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                Y[t] = S[63 - t]
    """,
    "give it the scope 'global'": """
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for b in T.thread_binding(64, thread="blockIdx.x"):
            S[b] = X[b]
        for b in T.thread_binding(64, thread="blockIdx.x"):
            Y[b] = S[b]
    """,
    "has extent 32, another one 64": """
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                Y[t] = X[t]
            for t in T.thread_binding(32, thread="threadIdx.x"):
                Y[t] = X[t]
    """,
    "CUDA allows 1024": """
    def f(X: T.Buffer((2048,), "float32"), Y: T.Buffer((2048,), "float32")):
        for t in T.thread_binding(2048, thread="threadIdx.x"):
            Y[t] = X[t]
    """,
    "which is not constant": """
    def f(X: T.Buffer(("n",), "float32"), Y: T.Buffer(("n",), "float32")):
        n = T.int64()
        for t in T.thread_binding(n, thread="threadIdx.x"):
            Y[t] = X[t]
    """,
    "make it the outermost one": """
    def f(X: T.Buffer((4, 64), "float32"), Y: T.Buffer((4, 64), "float32")):
        for k in range(4):
            for b in T.thread_binding(64, thread="blockIdx.x"):
                Y[k, b] = X[k, b]
    """,
    "no axis of CUDA": """
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="vthread.x"):
            Y[t] = X[t]
    """,
    "it takes threadIdx.x with": """
    def f(X: T.Buffer((48,), "float32"), Y: T.Buffer((1,), "float32")):
        for t in T.thread_binding(48, thread="threadIdx.x"):
            with T.block("Y"):
                v = T.axis.reduce(48, t)
                with T.init():
                    Y[0] = T.float32(0)
                Y[0] = Y[0] + X[v]
    """,
    "rfactor t first": """
    def f(X: T.Buffer((128,), "float32"), Y: T.Buffer((1,), "float32")):
        for k in range(4):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("Y"):
                    v = T.axis.reduce(128, k * 32 + t)
                    with T.init():
                        Y[0] = T.float32(0)
                    Y[0] = Y[0] + X[v]
    """,
}


@pytest.mark.parametrize("message", REFUSED)
def test_schedules_that_no_gpu_can_run_are_refused(message: str) -> None:
    with pytest.raises(CodegenError, match=re.escape(message)):
        lowered(REFUSED[message])


def test_too_much_shared_memory_is_refused() -> None:
    with pytest.raises(CodegenError, match="takes 131072 bytes of shared memory"):
        code_of("""
        def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
            S = T.alloc_buffer((32768,), "float32", scope="shared")
            for t in T.thread_binding(64, thread="threadIdx.x"):
                S[t] = X[t]
                Y[t] = S[t]
        """)


VECTORS_IN_TURNS = """
def doubled(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    S = T.alloc_buffer((64,), "float32", scope="local")
    for t in T.thread_binding(8, thread="threadIdx.x"):
        for j, v in T.grid(2, 4):
            with T.block("read"):
                i = T.axis.spatial(64, j * 32 + t * 4 + v)
                S[i] = X[i]
    for t in T.thread_binding(8, thread="threadIdx.x"):
        for j, v in T.grid(2, 4):
            with T.block("write"):
                i = T.axis.spatial(64, j * 32 + t * 4 + v)
                Y[i] = S[i] * T.float32(2)
"""


def test_vectors_that_threads_take_in_turns_are_their_own() -> None:
    (launch,) = lowered(VECTORS_IN_TURNS).launches
    assert [[str(d) for d in b.shape] for b in launch.local] == [["8"]]
    assert "S[j * 4 + v] = X[j * 32 + tx * 4 + v];" in statements(VECTORS_IN_TURNS)
    x = np.arange(64, dtype="float32")
    got = np.zeros_like(x)
    simt_prim_func(function(VECTORS_IN_TURNS), [x, got]).check()
    np.testing.assert_array_equal(got, 2 * x)
