"""GPU programs written by hand, each with its own barriers, and ways to break them."""

from __future__ import annotations

from dataclasses import replace

from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.thread_loops import SYNC, is_sync
from relaxlab.ir.expr import PrimExpr, const
from relaxlab.ir.loops import Evaluate, IfThenElse
from relaxlab.ir.node import Node, map_children, walk
from relaxlab.script import tir as T


@T.prim_func
def vector_add(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A, B, C = T.match_buffer(a, (n,)), T.match_buffer(b, (n,)), T.match_buffer(c, (n,))
    for bx in T.thread_binding((n + 63) // 64, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("C"):
                i = T.axis.spatial(n, bx * 64 + tx)
                T.where(bx * 64 + tx < n)
                C[i] = A[i] + B[i]


@T.prim_func
def vector_add_off_by_one(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A, B, C = T.match_buffer(a, (n,)), T.match_buffer(b, (n,)), T.match_buffer(c, (n,))
    for bx in T.thread_binding((n + 63) // 64, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            if bx * 64 + tx <= n:
                C[bx * 64 + tx] = A[bx * 64 + tx] + B[bx * 64 + tx]


@T.prim_func
def tiled_matmul(a: T.handle, b: T.handle, c: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A, B, C = T.match_buffer(a, (n, k)), T.match_buffer(b, (k, m)), T.match_buffer(c, (n, m))
    for by in T.thread_binding((n + 15) // 16, thread="blockIdx.y"):
        for bx in T.thread_binding((m + 15) // 16, thread="blockIdx.x"):
            with T.block("tile"):
                A_shared = T.alloc_buffer((16, 16), scope="shared")
                B_shared = T.alloc_buffer((16, 16), scope="shared")
                total = T.alloc_buffer((1,), scope="local")
                for ty in T.thread_binding(16, thread="threadIdx.y"):
                    for tx in T.thread_binding(16, thread="threadIdx.x"):
                        total[0] = T.float32(0)
                        for t in range((k + 15) // 16):
                            with T.block("A_shared"):
                                A_shared[ty, tx] = T.if_then_else(
                                    by * 16 + ty < n and t * 16 + tx < k,
                                    A[by * 16 + ty, t * 16 + tx],
                                    T.float32(0),
                                )
                            with T.block("B_shared"):
                                B_shared[ty, tx] = T.if_then_else(
                                    t * 16 + ty < k and bx * 16 + tx < m,
                                    B[t * 16 + ty, bx * 16 + tx],
                                    T.float32(0),
                                )
                            T.evaluate(T.tvm_storage_sync("shared"))
                            for i in range(16):
                                with T.block("C"):
                                    total[0] = total[0] + A_shared[ty, i] * B_shared[i, tx]
                            T.evaluate(T.tvm_storage_sync("shared"))
                        if by * 16 + ty < n and bx * 16 + tx < m:
                            C[by * 16 + ty, bx * 16 + tx] = total[0]


@T.prim_func
def tree_sum(a: T.handle, b: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n, 128)), T.match_buffer(b, (n,))
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("row"):
            S = T.alloc_buffer((128,), scope="shared")
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                S[tx] = A[bx, tx]
                for step in range(7):
                    T.evaluate(T.tvm_storage_sync("shared"))
                    if tx < T.shift_right(64, step):
                        with T.block("halve"):
                            S[tx] = S[tx] + S[tx + T.shift_right(64, step)]
                if tx == 0:
                    B[bx] = S[0]


@T.prim_func
def shuffle_sum(a: T.handle, b: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n, 32)), T.match_buffer(b, (n, 32))
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        with T.block("row"):
            total = T.alloc_buffer((1,), scope="local")
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                total[0] = A[bx, tx]
                for step in range(5):
                    total[0] = total[0] + T.warp_shuffle_xor(total[0], T.shift_right(16, step))
                B[bx, tx] = total[0]


@T.prim_func
def transpose(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A, B = T.match_buffer(a, (n, m)), T.match_buffer(b, (m, n))
    for by in T.thread_binding((n + 31) // 32, thread="blockIdx.y"):
        for bx in T.thread_binding((m + 31) // 32, thread="blockIdx.x"):
            with T.block("tile"):
                S = T.alloc_buffer((32, 32), scope="shared")
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(32, thread="threadIdx.x"):
                        for r in range(4):
                            with T.block("S"):
                                if by * 32 + r * 8 + ty < n and bx * 32 + tx < m:
                                    S[r * 8 + ty, tx] = A[by * 32 + r * 8 + ty, bx * 32 + tx]
                        T.evaluate(T.tvm_storage_sync("shared"))
                        for r in range(4):
                            with T.block("B"):
                                if bx * 32 + r * 8 + ty < m and by * 32 + tx < n:
                                    B[bx * 32 + r * 8 + ty, by * 32 + tx] = S[tx, r * 8 + ty]


@T.prim_func
def transpose_padded(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A, B = T.match_buffer(a, (n, m)), T.match_buffer(b, (m, n))
    for by in T.thread_binding((n + 31) // 32, thread="blockIdx.y"):
        for bx in T.thread_binding((m + 31) // 32, thread="blockIdx.x"):
            with T.block("tile"):
                S = T.alloc_buffer((32, 33), scope="shared")
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(32, thread="threadIdx.x"):
                        for r in range(4):
                            if by * 32 + r * 8 + ty < n and bx * 32 + tx < m:
                                S[r * 8 + ty, tx] = A[by * 32 + r * 8 + ty, bx * 32 + tx]
                        T.evaluate(T.tvm_storage_sync("shared"))
                        for r in range(4):
                            if bx * 32 + r * 8 + ty < m and by * 32 + tx < n:
                                B[bx * 32 + r * 8 + ty, by * 32 + tx] = S[tx, r * 8 + ty]


@T.prim_func
def transpose_naive(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A, B = T.match_buffer(a, (n, m)), T.match_buffer(b, (m, n))
    for by in T.thread_binding((n + 7) // 8, thread="blockIdx.y"):
        for bx in T.thread_binding((m + 31) // 32, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in T.thread_binding(32, thread="threadIdx.x"):
                    if by * 8 + ty < n and bx * 32 + tx < m:
                        B[bx * 32 + tx, by * 8 + ty] = A[by * 8 + ty, bx * 32 + tx]


@T.prim_func
def everybody_counts(a: T.handle, b: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n, 32)), T.match_buffer(b, (1,))
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            if tx == 0:
                B[0] = B[0] + A[bx, 0]


def barriers(kernel: DeviceKernel) -> int:
    """Return the number of barriers in the first launch."""
    return sum(is_sync(n) and isinstance(n, Evaluate) for n in walk(kernel.launches[0].body))


def change_barrier(kernel: DeviceKernel, which: int, condition: PrimExpr | None) -> DeviceKernel:
    """The first launch with one barrier under a condition, or without it."""
    seen = -1

    def visit(n: Node) -> Node:
        nonlocal seen
        if isinstance(n, Evaluate) and is_sync(n):
            seen += 1
            if seen == which:
                gone = Evaluate(const(0))
                return gone if condition is None else IfThenElse(condition, SYNC)
        return map_children(n, visit)

    launch = kernel.launches[0]
    return replace(kernel, launches=(replace(launch, body=visit(launch.body)),))
