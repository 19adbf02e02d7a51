"""Write docs/schedule.md: every schedule primitive with a function before and after it.

    python tools/document_schedule.py

The examples are run, so the page shows what the primitives do now.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.schedule.primitive import PRIMITIVES
from relaxlab.schedule.schedule import Schedule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedule.md"

FUNCTIONS = {
    "add": """
@T.prim_func
def add(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
""",
    "chain": """
@T.prim_func
def chain(A: T.Buffer((16, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    B = T.alloc_buffer((16, 32), "float32")
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 32):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    "two": """
@T.prim_func
def two(A: T.Buffer((16,), "float32"), B: T.Buffer((24,), "float32"),
        C: T.Buffer((16,), "float32"), D: T.Buffer((24,), "float32")):
    for i in range(16):
        with T.sblock("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = A[vi] * T.float32(2)
    for j in range(24):
        with T.sblock("D"):
            vj = T.axis.spatial(24, j)
            D[vj] = B[vj] + T.float32(1)
""",
    "plain": """
@T.prim_func
def plain(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[i] = T.float32(0)
        for k in range(32):
            B[i] = B[i] + A[i, k]
""",
    "transposed": """
@T.prim_func
def transposed(A: T.Buffer((32, 16), "float32"), B: T.Buffer((16, 32), "float32")):
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi]
""",
    "padded": """
@T.prim_func
def padded(A: T.Buffer((14, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(1 <= vi and vi < 15, A[vi - 1, vj], T.float32(0))
""",
    "power": """
@T.prim_func
def power(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj]) / T.float32(3)
""",
    "odd": """
@T.prim_func
def odd(A: T.Buffer((30, 30), "float32"), C: T.Buffer((30, 30), "float32")):
    for i, j in T.grid(30, 30):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "planes": """
@T.prim_func
def planes(A: T.Buffer((16, 4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j, k in T.grid(4, 8, 16):
        with T.sblock("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + A[vk, vi, vj]
""",
    "rows": """
@T.prim_func
def rows(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 32), "float32")
    B = T.match_buffer(b, (n, 32), "float32")
    for i, j in T.grid(n, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    "bounded": """
@T.prim_func
def bounded(a: T.handle, c: T.handle):
    T.func_attr({"tir_var_upper_bound": {"n": 16}})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    B = T.alloc_buffer((n,), "float32")
    for i in range(n):
        with T.sblock("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(n):
        with T.sblock("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = B[vi] + T.float32(1)
""",
    "row_sum": """
@T.prim_func
def row_sum(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 32):
        with T.sblock("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""",
    "triangle": """
@T.prim_func
def triangle(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(32):
        for k in range(i + 1):
            with T.sblock("B"):
                vi = T.axis.spatial(32, i)
                vk = T.axis.reduce(vi + 1, k)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
""",
    "masked": """
@T.prim_func
def masked(S: T.Buffer((8, 16), "float32"), V: T.Buffer((16, 32), "float32"),
           B: T.Buffer((8, 32), "float32")):
    W = T.alloc_buffer((8, 16), "float32")
    for i, k in T.grid(8, 16):
        with T.sblock("W"):
            vi, vk = T.axis.remap("SS", [i, k])
            W[vi, vk] = T.Select(S[vi, vk] == T.float32("-inf"), T.float32(0), T.exp(S[vi, vk]))
    for i, j, k in T.grid(8, 32, 16):
        with T.sblock("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + T.Select(
                S[vi, vk] == T.float32("-inf"), T.float32(0), W[vi, vk] * V[vk, vj])
""",
    "log_sum": """
@T.prim_func
def log_sum(A: T.Buffer((16, 1000), "float32"), L: T.Buffer((16,), "float32")):
    M = T.alloc_buffer((16,), "float32")
    S = T.alloc_buffer((16,), "float32")
    for i, k in T.grid(16, 1000):
        with T.sblock("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32("-inf")
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, k in T.grid(16, 1000):
        with T.sblock("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + T.exp(A[vi, vk] - M[vi])
    for i in range(16):
        with T.sblock("L"):
            vi = T.axis.spatial(16, i)
            L[vi] = M[vi] + T.log(S[vi])
""",
    "bias": """
@T.prim_func
def bias(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32"),
         D: T.Buffer((16,), "float32")):
    C = T.alloc_buffer((16,), "float32")
    for i, k in T.grid(16, 32):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
    for i in range(16):
        with T.sblock("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = C[vi] + B[vi]
""",
    "window": """
@T.prim_func
def window(A: T.Buffer((18, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    B = T.alloc_buffer((18, 32), "float32")
    for i, j in T.grid(18, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj])
    for i, j in T.grid(16, 32):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 2, vj]
""",
    "resized": """
@T.prim_func
def resized(A: T.Buffer((16, 16), "float32"), B: T.Buffer((32, 32), "float32")):
    for i, j in T.grid(32, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi // 2, vj // 4 + vi // 4]
""",
    "updated": """
@T.prim_func
def updated(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i, j in T.grid(16, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = B[vi, vj] + A[vi, vj]
""",
    "matmul": """
@T.prim_func
def matmul(
    A: T.Buffer((30, 32), "float32"),
    B: T.Buffer((32, 16), "float32"),
    C: T.Buffer((30, 16), "float32"),
):
    for i, j, k in T.grid(30, 16, 32):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""",
    "sums": """
@T.prim_func
def sums(
    A: T.Buffer((30, 32), "float32"),
    B: T.Buffer((32, 16), "float32"),
    C: T.Buffer((30, 16), "float32"),
):
    for i, j, k in T.grid(30, 16, 32):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] + B[vk, vj]
""",
    "scaled": """
@T.prim_func
def scaled(
    A: T.Buffer((30, 32), "float32"),
    S: T.Buffer((30,), "float32"),
    B: T.Buffer((32, 16), "float32"),
    C: T.Buffer((30, 16), "float32"),
):
    for i, j, k in T.grid(30, 16, 32):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] / S[vi] * B[vk, vj]
""",
}


@dataclass(frozen=True, slots=True)
class Example:
    """Steps on one of `FUNCTIONS`, the primitive's own among them; those of `setup` come first and
    are part of what the page shows as before."""

    function: str
    steps: str
    setup: str = ""


SECTIONS: dict[str, dict[str, Example]] = {
    "Decisions": {},
    "Loops": {
        "split": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                         "jo, ji = sch.split(j, factors=[None, 8])"),
        "fuse": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\nsch.fuse(i, j)"),
        "merge": Example("chain", "i, j = sch.get_loops(sch.get_block('B'))\n"
                         "k, l = sch.get_loops(sch.get_block('C'))\nsch.merge(j, l)"),
        "reorder": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\nsch.reorder(j, i)"),
        "add_unit_loop": Example("row_sum", "sch.add_unit_loop(sch.get_block('B'))"),
        "parallel": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\nsch.parallel(i)"),
        "vectorize": Example("add", "sch.vectorize(ji)",
                             "i, j = sch.get_loops(sch.get_block('B'))\n"
                             "jo, ji = sch.split(j, factors=[None, 8])"),
        "unroll": Example("add", "sch.unroll(ji)",
                          "i, j = sch.get_loops(sch.get_block('B'))\n"
                          "jo, ji = sch.split(j, factors=[None, 8])"),
        "unroll_and_jam": Example("row_sum", "sch.unroll_and_jam(ii)",
                                  "i, k = sch.get_loops(sch.get_block('B'))\n"
                                  "io, ii = sch.split(i, factors=[None, 4])"),
        "bind": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                        "sch.bind(i, 'blockIdx.x')\nsch.bind(j, 'threadIdx.x')"),
    },
    "Axes of blocks": {
        "reorder_block_iter_var": Example("add", "sch.reorder_block_iter_var(sch.get_block('B'), "
                                          "[1, 0])"),
        "transform_block_layout": Example("add", "sch.transform_block_layout(sch.get_block('B'), "
                                          "lambda i, j: (i * 32 + j,))"),
    },
    "Loops that are not equally long": {
        "pad_loop": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\nsch.pad_loop(j, 24)"),
        "rectangularize": Example("triangle", "sch.rectangularize(k, ii)",
                                  "i, k = sch.get_loops(sch.get_block('B'))\n"
                                  "io, ii = sch.split(i, factors=[None, 8])"),
        "partition": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                             "main, rest = sch.partition(j, 24)"),
        "loop_partition": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                                  "sch.loop_partition(i, [2, None, 3])"),
        "horizontal_fuse": Example("two", "i, = sch.get_loops(sch.get_block('C'))\n"
                                   "j, = sch.get_loops(sch.get_block('D'))\n"
                                   "sch.horizontal_fuse(i, j)"),
        "balance": Example("triangle", "i, k = sch.get_loops(sch.get_block('B'))\n"
                           "sch.balance(i)"),
        "pad_dim": Example("chain", "sch.pad_dim(sch.get_block('B'), 0, 1, 24)"),
    },
    "Where blocks are computed": {
        "compute_inline": Example("chain", "sch.compute_inline(sch.get_block('B'))"),
        "reverse_compute_inline": Example("chain",
                                          "sch.reverse_compute_inline(sch.get_block('C'))"),
        "compute_at": Example("chain", "i, j = sch.get_loops(sch.get_block('C'))\n"
                              "sch.compute_at(sch.get_block('B'), i)"),
        "reverse_compute_at": Example("chain", "i, j = sch.get_loops(sch.get_block('B'))\n"
                                      "sch.reverse_compute_at(sch.get_block('C'), i)"),
        "rolling_buffer": Example("window", "sch.rolling_buffer(sch.get_block('B'), 0)",
                                  "i, j = sch.get_loops(sch.get_block('C'))\n"
                                  "sch.compute_at(sch.get_block('B'), i)"),
    },
    "Copies of buffers": {
        "cache_read": Example("row_sum", "sch.cache_read(sch.get_block('B'), 0, 'global')"),
        "cache_write": Example("row_sum", "sch.cache_write(sch.get_block('B'), 0, 'local')"),
        "cache_inplace": Example("updated", "sch.cache_inplace(sch.get_block('B'), 0, 'local')"),
        "cache_index": Example("resized", "sch.cache_index(sch.get_block('B'), 'global')"),
        "bind_expr": Example("scaled", "sch.bind_expr(sch.get_block('C'), [0, 2], 'global')"),
        "privatize": Example("triangle", "b = sch.get_block('B')\n"
                             "i, k = sch.get_loops(b)\n"
                             "ko, ki = sch.split(k, factors=[None, 8])\n"
                             "init, store = sch.privatize(b, i, ki)"),
        "pack": Example("matmul", "b = sch.get_block('C')\n"
                        "i, j, k = sch.get_loops(b)\n"
                        "sch.reorder(j, i, k)\n"
                        "sch.pack(b, 1, j)"),
        "reindex": Example("transposed", "sch.reindex(sch.get_block('B'), ('read', 0))"),
        "reindex_cache_read": Example("transposed", "sch.reindex_cache_read(sch.get_block('B'), 0, "
                                      "'shared', lambda i, j: (i, j))"),
        "reindex_cache_write": Example("add", "sch.reindex_cache_write(sch.get_block('B'), 0, "
                                       "'local', lambda i, j: (j, i))"),
        "read_at": Example("row_sum", "i, k = sch.get_loops(sch.get_block('B'))\n"
                           "sch.read_at(i, sch.get_block('B'), 0, 'shared')"),
        "write_at": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                            "sch.write_at(i, sch.get_block('B'), 0, 'local')"),
        "set_scope": Example("chain", "sch.set_scope(sch.get_block('B'), 0, 'shared')"),
        "storage_align": Example("chain", "sch.storage_align(sch.get_block('B'), 0, axis=0, "
                                 "factor=32, offset=8)"),
        "pad_axis": Example("chain", "sch.pad_axis(sch.get_block('B'), 1, multiple=24, beside=2)"),
        "swizzle": Example("chain", "sch.set_scope(sch.get_block('B'), 0, 'shared')\n"
                           "sch.swizzle(sch.get_block('B'), 0, bits=2, base=2, shift=3)"),
        "unsafe_set_dtype": Example("chain", "sch.unsafe_set_dtype(sch.get_block('B'), 0, "
                                    "'float64')"),
        "unsafe_fast_math": Example("power", "sch.unsafe_fast_math(sch.get_block('B'))"),
        "decompose_padding": Example("padded", "block = sch.get_block('B')\n"
                                     "i, j = sch.get_loops(block)\n"
                                     "sch.decompose_padding(block, i)"),
    },
    "Reductions": {
        "canonicalize_reduction": Example("sums", "sch.canonicalize_reduction(sch.get_block('C'))"),
        "decompose_reduction": Example("row_sum", "block = sch.get_block('B')\n"
                                       "i, k = sch.get_loops(block)\n"
                                       "sch.decompose_reduction(block, k)"),
        "assume_finite": Example("masked", "sch.assume_finite(sch.get_block('B'))"),
        "rfactor": Example("row_sum", "sch.rfactor(ki, factor_axis=1)",
                           "i, k = sch.get_loops(sch.get_block('B'))\n"
                           "ko, ki = sch.split(k, factors=[None, 8])"),
        "fuse_reduction_epilogue": Example("bias", "sch.fuse_reduction_epilogue("
                                           "sch.get_block('C'), sch.get_block('D'))"),
        "fuse_reductions": Example("log_sum", "sch.fuse_reductions(sch.get_block('M'), 0, "
                                   "rows=4, chunk=250)"),
    },
    "Layouts": {
        "transform_layout": Example("chain", "sch.transform_layout(sch.get_block('B'), "
                                    "('write', 0), lambda i, j: (j, i))"),
        "pad_einsum": Example("matmul", "sch.pad_einsum(sch.get_block('C'), [8, 1, 1])"),
    },
    "Hardware instructions": {
        "blockize": Example("matmul", "sch.blockize(ii)",
                            "i, j, k = sch.get_loops(sch.get_block('C'))\n"
                            "io, ii = sch.split(i, factors=[None, 5])\n"
                            "sch.reorder(io, k, ii, j)\nsch.decompose_reduction("
                            "sch.get_block('C'), k)"),
    },
    "Whole functions": {
        "form_blocks": Example("plain", "sch.form_blocks()"),
        "compact_buffers": Example("chain", "sch.compact_buffers()",
                                   "b = sch.get_block('B')\n"
                                   "sch.compute_at(b, sch.get_loops(sch.get_block('C'))[0])\n"
                                   "sch.set_scope(b, 0, 'local')"),
        "round_up_tails": Example("odd", "sch.round_up_tails()",
                                  "c = sch.cache_write(sch.get_block('B'), 0, 'local')\n"
                                  "i, j = sch.get_loops(sch.get_block('B'))\n"
                                  "io, ii = sch.split(i, factors=[None, 4])\n"
                                  "sch.reverse_compute_at(c, io)\nsch.unroll(ii)\n"
                                  "sch.compact_buffers()"),
        "join_axes": Example("planes", "def schedule(sub):\n"
                             "    sub.vectorize(sub.get_loops(sub.get_block('B'))[0])\n"
                             "    return sub\n\nsch.join_axes(schedule)"),
        "schedule_apart": Example("chain", "def schedule(sub):\n"
                                  "    sub.parallel(sub.get_loops(sub.get_block('C'))[0])\n"
                                  "    return sub\n\n"
                                  "sch.schedule_apart([sch.get_block('C')], schedule)"),
        "guarded_versions": Example("rows", "def schedule(sub, bound):\n"
                                    "    i, j = sub.get_loops(sub.get_block('B'))\n"
                                    "    if bound is None:\n"
                                    "        sub.parallel(i)\n"
                                    "    return sub\n\n"
                                    "n = sch.func.buffers[0].shape[0]\n"
                                    "sch.guarded_versions(n, [1, 8], schedule)"),
        "bound_storage": Example("bounded", "n = sch.func.buffers[0].shape[0]\n"
                                 "sch.bound_storage(n, 16)",
                                 "sch.set_scope(sch.get_block('B'), 0, 'local')"),
        "round_up_vectors": Example("odd", "sch.round_up_vectors()",
                                    "c = sch.cache_write(sch.get_block('B'), 0, 'local')\n"
                                    "i, j = sch.get_loops(sch.get_block('B'))\n"
                                    "jo, ji = sch.split(j, factors=[None, 8])\n"
                                    "sch.reverse_compute_at(c, jo)\nsch.vectorize(ji)\n"
                                    "sch.compact_buffers()"),
    },
    "Annotations": {
        "annotate": Example("add", "i, j = sch.get_loops(sch.get_block('B'))\n"
                            "sch.annotate(i, 'prefetch', (4, ('A',)))"),
        "unannotate": Example("add", "sch.unannotate(i, 'prefetch')",
                              "i, j = sch.get_loops(sch.get_block('B'))\n"
                              "sch.annotate(i, 'prefetch', (4, ('A',)))"),
        "annotate_buffer_access": Example("add", "sch.annotate_buffer_access(sch.get_block('B'), "
                                          "('read', 0),\n                           "
                                          "lambda i, j: (i, 0), lambda i, j: (i + 1, 32))"),
    },
}  # fmt: skip
WITHOUT_EXAMPLE = {
    "Decisions": {
        "sample_categorical": "`rows = sch.sample_categorical('rows', [2, 4, 8], 4)`",
        "sample_perfect_tile": "`columns = sch.sample_perfect_tile('columns', j, 2, 16, [4, 8])`",
        "sample_partitioned_tile": "`rows = sch.sample_partitioned_tile('rows', i, 3, 1, 16, "
        "[8, 1, 16])`",
        "sample_compute_location": "`at = sch.sample_compute_location('place', block)`",
    },
    "Loops that are not equally long": {
        "remap": "`sch.remap(i, 'order')`. [ragged.md](ragged.md#schedules) has a function with an "
        "order.",
    },
    "Copies of buffers": {
        "unsafe_zero_beyond": "`sch.unsafe_zero_beyond(copy)`: `X[v] = A[T.min(v, 13)]` of 14 "
        "elements becomes `X[v] = T.if_then_else(v < 14, A[v], 0)`.",
    },
    "Hardware instructions": {
        "tensorize": "[architecture.md](architecture.md#schedules) has "
        "intrinsics and what they replace.",
    },
    "Annotations": {
        "unsafe_hide_buffer_access": "`sch.unsafe_hide_buffer_access(block, 'read', [2])`",
    },
    "Whole functions": {
        "declare_upper_bound": "It changes only what later steps can prove, such as "
        "`bound_storage`, and which sizes they have to expect.",
    },
}
"""Primitives whose example needs more than a function and a step, by section, and where one is, or
a call."""

HEAD = """# Schedule primitives

<!-- Written by tools/document_schedule.py; a test compares. -->

A schedule (`rl.Schedule(func)`) changes the loops of a loop function and keeps what it computes.
Every primitive checks its conditions first; if they cannot be proved it changes nothing and raises
`ScheduleError`, which names the primitive, the place, the condition and a way out. `sch.show()`
prints the steps taken, `sch.trace_json()` writes them down, `rl.apply_trace` repeats them, and
`rl.explore.loops(sch)` goes through them in a notebook. `sch.as_python()` is a program that makes
them.

The compiler's own schedules are made of the same primitives.
`rl.schedule_of(rl.trace(module), kernel)` is that of one kernel, and
`relaxlab show FILE.py --schedule KERNEL` prints it as a program.

A program over a schedule asks for its *decisions* by `sample_categorical` and its like, which
return plain values. They are the defaults unless the schedule has a decider:
`Schedule(func, decider=Decided({"rows": 8}))` takes given values, `Sampled(seed)` draws
(both in `relaxlab.schedule.decisions`); then run the program again. `sch.decisions` has them all by
key: the versions that a decision stands in, and its name (`n ≤ 16 / rows`).

| to | use |
| --- | --- |
| keep data in the cache between uses | `split` and `reorder` (tiling) |
| use vector instructions | `split` by the number of lanes, `reorder` it innermost, `vectorize` |
| use all cores | `parallel` on the outermost loop |
| avoid writing an intermediate buffer | `compute_inline`, `reverse_compute_inline`, `compute_at` |
| accumulate in registers | `privatize`; `cache_write` and `reverse_compute_at` |
| split a long reduction over threads or lanes | `rfactor` |
| make one pass of reductions that depend on each other | `fuse_reductions` |
| read a matrix in the order of its use | `cache_read`, `transform_layout` |
| give loops of different lengths whole tiles | `pad_loop`, `partition`, `fuse` of two loops |
| run passes over the same data together | `merge`, `compute_at`, `reverse_compute_at` |
| keep the rows of a window that the next step needs | `compute_at` and `rolling_buffer` |
| share uneven work out to threads | `balance`, `remap`, `fuse`, `horizontal_fuse` |
| leave a choice open | `sample_categorical`, `sample_perfect_tile`, `sample_compute_location` |
| run on a GPU | `bind`, `cache_read` to `"shared"` |
| use a matrix instruction | `blockize`, `tensorize` |

The differences below leave out what relaxlab infers from the body (`T.reads`, `T.writes`).

## Finding blocks and loops

"""


def run(example: Example) -> tuple[Schedule, str, str]:
    """The schedule after all steps, and the function before and after the primitive's own."""
    sch = rl.Schedule(rl.parse(FUNCTIONS[example.function])[example.function])
    names = {"sch": sch}
    exec(example.setup, names)
    before = text_of(sch)
    exec(example.steps, names)
    return sch, before, text_of(sch)


def text_of(sch: Schedule) -> str:
    """The function as a script, without what is inferred."""
    module = Module.of({"function": sch.func}).script()
    body = textwrap.dedent(module.split("class Module:\n", 1)[1])
    inferred = ("T.reads(", "T.writes(", "T.func_attr(", "@T.prim_func", "def ", ") -> ")
    lines = [x for x in body.splitlines() if x.startswith(" ")]
    kept = [x for x in lines if not x.strip().startswith(inferred)]
    return textwrap.dedent("\n".join(kept)).strip()


def signature_of(name: str) -> str:
    """The primitive's call, without `self` and annotations."""
    parameters = list(inspect.signature(getattr(Schedule, name)).parameters.values())[1:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}{inspect.Signature(bare)}"


def documented(name: str) -> str:
    """The heading and the docstring of a primitive."""
    return f"### `{signature_of(name)}`\n\n{inspect.getdoc(getattr(Schedule, name))}\n"


def section_of(name: str, example: Example) -> str:
    """A primitive with its example."""
    _, before, after = run(example)
    lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), n=20, lineterm="")][3:]
    changes = "\n".join(lines)
    return f"{documented(name)}\n```python\n{example.steps}\n```\n\n```diff\n{changes}\n```\n"


def looking() -> list[str]:
    """The primitives that find blocks and loops."""
    return [name for name, row in PRIMITIVES.items() if row.looks and name.startswith("get_")]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in looking():
        parts.append(f"- `sch.{signature_of(name)}`: {inspect.getdoc(getattr(Schedule, name))}\n")
    for title, examples in SECTIONS.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("\n".join(section_of(name, e) for name, e in examples.items()))
        others = WITHOUT_EXAMPLE.get(title, {})
        parts += [f"\n{documented(n)}\n{where}\n" for n, where in others.items()]
    return "".join(parts)


def shown() -> frozenset[str]:
    """The primitives that the page describes."""
    described = [*SECTIONS.values(), *WITHOUT_EXAMPLE.values()]
    return frozenset({*looking(), *(name for section in described for name in section)})


if __name__ == "__main__":
    assert shown() == PRIMITIVES.keys(), shown() ^ PRIMITIVES.keys()
    PAGE.write_text(page(), "utf-8")
