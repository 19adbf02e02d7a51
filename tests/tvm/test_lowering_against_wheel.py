"""Passes of loop functions, after each other, make what TVM's make."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import replace
from relaxlab.tvm.ir.equal import structural_equal
from tests.schedule.programs import assert_same
from tests.tvm.schedule_cases import PROGRAMS
from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel

LOCAL = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    B = T.sblock_alloc_buffer((16, 16), "float32", scope="local")
    for i in range(16):
        for j in range(16):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in T.unroll(4):
            with T.sblock("C"):
                vi = T.axis.spatial(16, i)
                vj = T.axis.spatial(4, j)
                C[vi, vj] = B[vi, vj] + T.float32(1)
"""
SHIFTED = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(2, 14):
        C[i] = A[i]
    for i in T.vectorized(8):
        C[i] = A[i] + T.float32(1)
    for i in range(4):
        T.evaluate(0)
"""
CONDITIONS = """
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32"), n: T.int32):
    for i in range(16):
        for j in range(8):
            if i < n:
                C[i, j] = A[i, j]
    for i in range(16):
        for j in range(8):
            if n % 4 == 0:
                C[i, j] = A[i, j] + T.float32(1)
            else:
                for k in range(2):
                    C[i, j] = T.Cast("float32", k)
    for i in range(16):
        for j in range(8):
            if A[i, 0] < T.float32(0):
                C[i, j] = T.float32(2)
"""
CHOICES = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        C[i] = T.Select(i > 0, A[i - 1], T.float32(0)) + T.Select(i > 3, T.float32(2), T.float32(1))
"""
HOISTED = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32"), n: T.int64):
    for i in range(T.int64(16)):
        for j in range(T.int64(4)):
            if i < n and j < T.int64(3):
                C[i] = C[i] + A[j]
    for i in range(T.int64(16)):
        for j in range(T.int64(4)):
            C[i] = C[i] + T.if_then_else(i < n, A[j], T.float32(1))
    for i in range(T.int64(16)):
        C[i] = A[i]
        if n < T.int64(3):
            C[i] = T.float32(0)
"""
THREADS = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in T.thread_binding(2, thread="blockIdx.x"):
        for j in range(2):
            for k in T.thread_binding(2, thread="threadIdx.y"):
                for l in T.thread_binding(2, thread="threadIdx.x", annotations={"note": 1}):
                    C[i * 8 + j * 4 + k * 2 + l] = A[i * 8 + j * 4 + k * 2 + l]
        for l in T.thread_binding(2, thread="threadIdx.x"):
            for k in T.thread_binding(4, thread="vthread.x"):
                C[i * 8 + k * 2 + l] = C[i * 8 + k * 2 + l] + T.float32(1)
    for i in T.thread_binding(4, thread="threadIdx.x"):
        C[i] = A[i]
"""
REPEATED = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "int64"), n: T.int64, m: T.int64, c: T.float32):
    for i in range(T.int64(8)):
        for j in range(T.int64(8)):
            A[i * T.int64(8) + j] = A[i * T.int64(8) + j] * (c + T.float32(1)) + (c + T.float32(1))
            if (n + m) * T.int64(2) > i:
                A[(n + m) * T.int64(2)] = T.exp(c * c) + T.exp(c * c) + A[i] + A[i]
    C[n + m] = (n * m + T.int64(1)) * (n * m + T.int64(2))
    C[0] = (n * m + T.int64(2)) * m + n * m * m
    if n > T.int64(0):
        C[1] = m * n + T.Select(n < m, m, n - T.int64(1))
    else:
        C[2] = m * n - T.Select(n < m, m, n - T.int64(1))
    while C[0] < n + m + T.int64(9):
        C[0] = C[0] + (n + m + T.int64(9))
"""  # noqa: E501
TAILS = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(60):
        if T.likely(i >= 1):
            C[i] = A[i - 1]
        else:
            C[i] = T.float32(0)
    for i in range(7):
        for j in range(10):
            if T.likely(i * 10 + j < 64):
                C[i * 10 + j] = A[i * 10 + j]
"""
SPLIT = """
@T.prim_func
def main(A: T.Buffer((64,), "int64"), n: T.int64, m: T.int64):
    A[0] = n % T.int64(32) // T.int64(4)
    A[1] = n // T.int64(4) % T.int64(8) + n % T.int64(12) // T.int64(4) * T.int64(2)
    A[2] = (n * T.int64(2) + m) % T.int64(16) // T.int64(2)
    A[3] = n % T.int64(30) // T.int64(4)
    A[4] = (n * T.int64(8) + m) // T.int64(4)
    A[5] = (n + T.int64(7)) % T.int64(32) // T.int64(8) * T.int64(8)
    for i in range(T.int64(64)):
        A[i % T.int64(16) // T.int64(4)] = i // T.int64(16)
"""
LIFTED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for i in range(2):
            for t in T.thread_binding(8, thread="threadIdx.x", annotations={"note": 1}):
                for u in T.thread_binding(2, thread="threadIdx.y"):
                    C[b * 16 + i * 8 + t] = A[b * 16 + i * 8 + u]
            for u in T.thread_binding(2, thread="threadIdx.y"):
                C[b * 16 + u] = C[b * 16 + u] + T.float32(1)
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for i in range(2):
            for t in T.thread_binding(8, thread="threadIdx.x"):
                C[b * 16 + i * 8 + t] = A[b * 16 + i * 8 + t]
        for t in T.thread_binding(8, thread="threadIdx.x"):
            C[b * 16 + t] = C[b * 16 + t] + T.float32(1)
"""
STAGES = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for tx in T.thread_binding(16, thread="threadIdx.x"):
        for i in T.serial(
            16,
            annotations={"software_pipeline_stage": [0, 2], "software_pipeline_order": [0, 1]},
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i])
                T.writes(C[tx, i])
                B = T.sblock_alloc_buffer((16, 1), scope="shared")
                with T.sblock("a"):
                    T.reads(A[tx, i])
                    T.writes(B[tx, 0])
                    B[tx, 0] = A[tx, i] * T.float32(2)
                with T.sblock("b"):
                    T.reads(B[tx, 0])
                    T.writes(C[tx, i])
                    C[tx, i] = B[tx, 0] + T.float32(1)
"""
BUFFERS = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32")):
    B = T.alloc_buffer((64,), "float32")
    C = T.alloc_buffer((64,), "float32")
    E = T.alloc_buffer((64,), "float32")
    for i in range(64):
        B[i] = A[i] + T.float32(1)
    for i in range(64):
        C[i] = B[63 - i] * T.float32(2)
    for i in range(64):
        E[i] = C[i // 2]
    for i in range(64):
        D[i] = E[63 - i] + C[i]
"""
SHORT = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(4):
        for j in range(3):
            C[i * 3 + j] = A[i * 3 + j]
    for i in T.unroll(4):
        C[i] = A[i]
        C[i + 1] = A[i]
    for i in range(1):
        C[i] = A[i]
    for i in range(5):
        for j in range(4):
            C[i * 4 + j] = A[i * 4 + j]
"""
LEFT_OUT = """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    assert n > 3, "n is small"
    for i in range(16):
        T.evaluate(T.assume(A[i] == 0))
    for i in range(16):
        A[i] = T.undef(dtype="int32")
    for i in range(16):
        A[i] = n
"""
VIRTUAL = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(4):
        vx = T.launch_thread("vthread.x", 4)
        C[i * 4 + vx] = A[vx * 4 + i]
        C[i * 4 + vx] = C[i * 4 + vx] + T.float32(1)
"""
STRIDED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("tile"):
            T.reads(A[i * 16:i * 16 + 16, j * 16:j * 16 + 16])
            T.writes(C[i * 16:i * 16 + 16, j * 16:j * 16 + 16])
            s = T.int32()
            X = T.match_buffer(
                A[i * 16:i * 16 + 16, j * 16:j * 16 + 16], (16, 16), strides=[s, 1],
                offset_factor=1,
            )
            C[i * 16, j * 16] = X[0, 1] * T.Cast("float32", s)
"""
COMPUTED = """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        A[i] = 5 + i - i
        C[i] = T.Cast("float32", i * 4 // 4 + T.max(i, 0))
"""
STEPS = (
    "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque",
    "CompactBufferAllocation", "LowerMatchBuffer", "LowerOpaqueBlock", "FlattenBuffer",
    "VectorizeLoop", "UnrollLoop", "StmtSimplify", "RemoveNoOp",
)  # fmt: skip
CONSTANT = "{'partition_const_loop': True}"
UNROLLED = (
    "", "{'auto_max_step': 16}", "{'auto_max_step': 16; 'explicit_unroll': False}",
    "{'auto_max_extent': 1}", "{'auto_max_step': 3}", "{'explicit_unroll': False}",
)  # fmt: skip
TEXTS = {
    "local": LOCAL, "shifted": SHIFTED, "conditions": CONDITIONS, "choices": CHOICES,
    "left out": LEFT_OUT, "hoisted": HOISTED, "threads": THREADS,
    "repeated": REPEATED, "tails": TAILS, "split": SPLIT, "lifted": LIFTED,
    "stages": STAGES, "buffers": BUFFERS, "short": SHORT, "virtual": VIRTUAL,
    "strided": STRIDED, "computed": COMPUTED, **PROGRAMS,
}  # fmt: skip
CASES = (
    *((name, ", ".join(STEPS[:count])) for name in ("local", "matmul", "chain", "conv")
      for count in range(1, len(STEPS) + 1)),
    ("conditions", "HoistIfThenElse"), ("choices", "RewriteUnsafeSelect"),
    ("hoisted", "HoistExpression"), ("threads", "UnifyThreadBinding"),
    ("repeated", "CommonSubexprElim"),
    ("tails", f"LoopPartition{CONSTANT}, StmtSimplify, RemoveNoOp"),
    ("split", "RenormalizeSplitPattern"), ("lifted", "LiftThreadBinding"),
    *(("short", f"UnrollLoop{options}, StmtSimplify") for options in UNROLLED),
    ("stages", "InjectSoftwarePipeline"), ("buffers", "StorageRewrite"),
    ("shifted", "AnnotateEntryFunc"), ("shifted", "ForceNarrowIndexToInt32"),
    *(("left out", name) for name in ("SkipAssert", "RemoveAssume", "RemoveStoreUndef")),
    ("left out", "SkipAssert, RemoveAssume, RemoveStoreUndef"),
    ("virtual", "InjectVirtualThread"), ("strided", "LowerMatchBuffer"),
    ("computed", "StmtSimplify"),
    *(("shifted", name) for name in ("CanonicalizeLoop", "VectorizeLoop", "RemoveNoOp")),
)  # fmt: skip
DIFFERENT = {
    "matmul": ("StmtSimplify", "RemoveNoOp"),  # the order of the sides of a comparison
    "conv": STEPS[6:],  # the order of the terms of an index
    "strided": ("LowerMatchBuffer",),  # a stride is converted where it was a symbol
    "virtual": ("InjectVirtualThread",),  # the turns of a thread are loops
    "stages": ("InjectSoftwarePipeline",),  # first and last iterations without loops and blocks
}
"""The last steps after which relaxlab differs, by program."""


def function_of(result: dict[str, str]) -> PrimFunc:
    func: PrimFunc = rl.parse(result["script"])["main"]  # type: ignore[assignment]
    return replace(func, attrs=func.attrs.with_(**dict.fromkeys(func.attrs)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1][-40:]}")
def test_passes_make_the_same_program(case: tuple[str, str], rng: np.random.Generator) -> None:
    texts = tuple((TEXTS[name], passes) for name, passes in CASES)
    theirs, ours = (
        results(which, "lower", texts)[CASES.index(case)] for which in ("tvm", "relaxlab")
    )
    assert "script" in ours and "script" in theirs, (theirs, ours)
    same = structural_equal(function_of(theirs), function_of(ours))
    different = case[1].rpartition(", ")[2] in DIFFERENT.get(case[0], ())
    assert same != different, f"TVM: {theirs['script']}\nrelaxlab: {ours['script']}"
    if different:
        assert_same(function_of(theirs), function_of(ours), rng, [5])
