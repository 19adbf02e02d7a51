"""Steps of schedules that TVM and relaxlab are to make alike: programs, and calls on a schedule."""
# ruff: noqa: E501

from __future__ import annotations

ELEMENTWISE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 64), "float32"), C: T.Buffer((128, 64), "float32")):
    B = T.sblock_alloc_buffer((128, 64), "float32")
    for i, j in T.grid(128, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(128, 64):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
"""

MATMUL = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 128):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

MATMUL_RELU = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):
    C = T.sblock_alloc_buffer((64, 64), "float32")
    for i, j, k in T.grid(64, 64, 64):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(64, 64):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))
"""

ROW_SUM = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128, 128), "float32"), B: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 128):
        with T.sblock("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
"""

ODD = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((127, 61), "float32"), B: T.Buffer((127, 61), "float32")):
    for i, j in T.grid(127, 61):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""

PADDED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((14, 14), "float32"), C: T.Buffer((14, 14), "float32")):
    B = T.sblock_alloc_buffer((16, 16), "float32")
    for i, j in T.grid(16, 16):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vi >= 1 and vi < 15 and vj >= 1 and vj < 15, A[vi - 1, vj - 1], T.float32(0))
    for i, j, k in T.grid(14, 14, 9):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vi + vk // 3, vj + vk % 3]
"""

TRANSPOSED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 64), "float32"), B: T.Buffer((64, 128), "float32")):
    for i, j in T.grid(64, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi]
"""

UPDATED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(64, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = B[vi, vj] + A[vi, vj]
"""

PROGRAMS = {
    "elementwise": ELEMENTWISE, "matmul": MATMUL, "matmul_relu": MATMUL_RELU, "row_sum": ROW_SUM,
    "odd": ODD, "padded": PADDED, "transposed": TRANSPOSED, "updated": UPDATED,
}  # fmt: skip

_LOOPS_B = 'i, j = sch.get_loops("B"); '
_LOOPS_C = 'i, j, k = sch.get_loops("C"); '

CASES: tuple[tuple[str, str], ...] = (
    ("elementwise", _LOOPS_B + "sch.split(i, [None, 16])"),
    ("elementwise", _LOOPS_B + "sch.split(i, factors=[4, None, 2])"),
    ("elementwise", _LOOPS_B + "sch.split(i, factors=[1, 128])"),
    ("elementwise", _LOOPS_B + "sch.split(i, factors=[None, 1])"),
    ("odd", _LOOPS_B + "sch.split(i, [None, 16]); sch.split(j, [2, None, 8])"),
    ("odd", _LOOPS_B + "f = sch.fuse(i, j); sch.split(f, [None, 64])"),
    ("elementwise", _LOOPS_B + "sch.fuse(i, j)"),
    ("elementwise", _LOOPS_B + "a, b = sch.split(i, [8, 16]); sch.fuse(b, j)"),
    ("elementwise", _LOOPS_B + "sch.reorder(j, i)"),
    ("elementwise", _LOOPS_B + "sch.fuse(j, i)"),
    ("elementwise", _LOOPS_B + "sch.add_unit_loop(i)"),
    ("elementwise", 'sch.add_unit_loop(sch.get_sblock("B"))'),
    ("matmul", _LOOPS_C + "a, b = sch.split(i, [None, 8]); c, d = sch.split(k, [None, 4]); sch.reorder(a, j, c, b, d)"),
    ("matmul", _LOOPS_C + "sch.reorder(k, i)"),
    ("matmul", _LOOPS_C + "sch.parallel(i); sch.vectorize(j)"),
    ("matmul", _LOOPS_C + "sch.parallel(k)"),
    ("matmul", _LOOPS_C + "sch.vectorize(k)"),
    ("matmul", _LOOPS_C + "sch.unroll(k)"),
    ("matmul", _LOOPS_C + 'sch.bind(i, "blockIdx.x"); sch.bind(j, "threadIdx.x")'),
    ("matmul", _LOOPS_C + 'sch.bind(k, "threadIdx.x")'),
    ("matmul", _LOOPS_C + 'sch.decompose_reduction("C", k)'),
    ("matmul", _LOOPS_C + 'sch.decompose_reduction("C", i)'),
    ("matmul", _LOOPS_C + 'sch.decompose_reduction("C", j)'),
    ("matmul", _LOOPS_C + 'a, b = sch.split(j, [None, 4]); sch.reorder(i, a, k, b); sch.decompose_reduction("C", k)'),
    ("row_sum", 'i, j, k = sch.get_loops("B"); a, b = sch.split(k, [None, 32]); sch.rfactor(b, 2)'),
    ("row_sum", 'i, j, k = sch.get_loops("B"); sch.rfactor(k, 0)'),
    ("row_sum", 'i, j, k = sch.get_loops("B"); a, b = sch.split(k, [4, 32]); sch.rfactor(a, 1)'),
    ("elementwise", 'sch.compute_inline("B")'),
    ("elementwise", 'sch.compute_inline("C")'),
    ("elementwise", 'sch.reverse_compute_inline("C")'),
    ("matmul_relu", 'sch.reverse_compute_inline("D")'),
    ("matmul_relu", 'sch.compute_inline("C")'),
    ("padded", 'sch.compute_inline("B")'),
    ("elementwise", 'i, j = sch.get_loops("C"); sch.compute_at("B", i)'),
    ("elementwise", 'i, j = sch.get_loops("C"); sch.compute_at("B", j)'),
    ("elementwise", 'i, j = sch.get_loops("C"); sch.compute_at("B", i, preserve_unit_loops=True)'),
    ("elementwise", 'i, j = sch.get_loops("C"); a, b = sch.split(i, [None, 16]); sch.compute_at("B", a)'),
    ("elementwise", _LOOPS_B + 'sch.reverse_compute_at("C", i)'),
    ("elementwise", _LOOPS_B + 'sch.reverse_compute_at("C", j)'),
    ("elementwise", _LOOPS_B + 'a, b = sch.split(i, [None, 16]); sch.reverse_compute_at("C", a)'),
    ("matmul_relu", _LOOPS_C + 'a, b = sch.split(i, [None, 8]); sch.reorder(a, j, k, b); sch.reverse_compute_at("D", a)'),
    ("matmul_relu", _LOOPS_C + 'sch.reverse_compute_at("D", k)'),
    ("padded", 'i, j, k = sch.get_loops("C"); sch.compute_at("B", i)'),
    ("padded", 'i, j, k = sch.get_loops("C"); a, b = sch.split(i, [7, 2]); sch.compute_at("B", a)'),
    ("matmul", 'sch.cache_read("C", 0, "global")'),
    ("matmul", 'sch.cache_read("C", 1, "shared")'),
    ("matmul", 'sch.cache_read("C", "A", "local")'),
    ("matmul", 'sch.cache_write("C", 0, "local")'),
    ("elementwise", 'sch.cache_read("C", 0, "shared")'),
    ("elementwise", 'sch.cache_write("B", 0, "local")'),
    ("elementwise", 'sch.cache_read("B", 0, "local", consumer_blocks=["B"])'),
    ("matmul_relu", 'sch.cache_write("C", 0, "local"); sch.cache_read("C", 0, "shared")'),
    ("matmul", _LOOPS_C + 'a, b = sch.split(i, [None, 8]); c = sch.cache_read("C", 0, "shared"); sch.compute_at(c, a)'),
    ("matmul", _LOOPS_C + 'c = sch.cache_read("C", 0, "shared"); sch.compute_at(c, k)'),
    ("matmul", _LOOPS_C + 'a, b = sch.split(i, [None, 8]); c = sch.cache_write("C", 0, "local"); sch.reverse_compute_at(c, a)'),
    ("padded", 'sch.reindex("C", ("read", 0))'),
    ("transposed", 'sch.reindex("B", ("read", 0))'),
    ("transposed", 'sch.reindex("B", ("write", 0))'),
    ("matmul", 'sch.reindex("C", ("read", 1))'),
    ("matmul", 'sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (k, i))'),
    ("matmul", 'sch.reindex_cache_write("C", 0, "shared", lambda i, j, k: (j, i))'),
    ("elementwise", 'sch.set_scope("B", 0, "shared")'),
    ("elementwise", 'sch.set_scope("C", 0, "shared")'),
    ("elementwise", 'sch.storage_align("B", 0, axis=0, factor=32, offset=4)'),
    ("elementwise", 'sch.unsafe_set_dtype("B", 0, "float16")'),
    ("elementwise", 'sch.annotate(sch.get_sblock("B"), "key", "value")'),
    ("elementwise", _LOOPS_B + 'sch.annotate(i, "key", 1)'),
    ("elementwise", _LOOPS_B + 'sch.annotate(i, "key", [1, 2]); sch.unannotate(i, "key")'),
    ("elementwise", 'sch.unannotate(sch.get_sblock("B"), "key")'),
    ("matmul", _LOOPS_C + "a, b = sch.split(i, [None, 16]); c, d = sch.split(j, [None, 16]); e, f = sch.split(k, [None, 16]); sch.reorder(a, c, e, b, d, f); sch.blockize(b)"),
    ("elementwise", _LOOPS_B + "sch.blockize(j)"),
    ("elementwise", _LOOPS_B + "a, b = sch.split(i, [None, 16]); sch.blockize(b)"),
    ("elementwise", 'sch.transform_layout("B", ("write", 0), lambda i, j: (j, i))'),
    ("elementwise", 'sch.transform_layout("B", "B", lambda i, j: (i // 16, j, i % 16))'),
    ("matmul", 'sch.transform_layout("C", "A", lambda i, j: (i // 16, j // 16, i % 16, j % 16))'),
    ("elementwise", 'sch.transform_layout("B", ("write", 0), lambda i, j: i * 64 + j)'),
    ("elementwise", 'sch.transform_block_layout("B", lambda i, j: (i * 64 + j,))'),
    ("elementwise", 'sch.transform_block_layout("B", lambda i, j: (i // 8, j, i % 8))'),
    ("matmul", 'sch.reorder_block_iter_var(sch.get_sblock("C"), [2, 0, 1])'),
    ("matmul", 'sch.reorder_block_iter_var(sch.get_sblock("C"), [0, 0, 1])'),
    ("padded", 'i, j = sch.get_loops("B"); sch.decompose_padding("B", i)'),
    ("padded", 'i, j = sch.get_loops("B"); sch.decompose_padding("B", j)'),
    ("elementwise", 'sch.get_sblock("missing")'),
    ("elementwise", 'print(len(sch.get_output_blocks("root")))'),
    ("elementwise", 'print(len(sch.get_consumers("B")), len(sch.get_producers("B")), len(sch.get_child_blocks(sch.get_sblock("root"))))'),
    ("matmul", 'sch.pad_einsum("C", [32, 32, 32])'),
    ("odd", _LOOPS_B + 'sch.compute_inline("B")'),
)  # fmt: skip

DIFFERENT: dict[tuple[str, str], str] = {
    (
        "matmul_relu",
        _LOOPS_C + 'sch.reverse_compute_at("D", k)',
    ): "applies the maximum to sums that are not complete",
    ("padded", 'sch.reindex("C", ("read", 0))'): "adds in another order in an index",
}
"""The cases in which relaxlab differs on purpose, with the reason."""
