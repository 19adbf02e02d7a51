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
    ("elementwise", 'i, j = sch.get_loops("C"); sch.read_at(i, sch.get_sblock("C"), 0, "shared")'),
    ("elementwise", 'i, j = sch.get_loops("B"); sch.write_at(i, sch.get_sblock("B"), 0, "shared")'),
    ("matmul", _LOOPS_C + 'a, b = sch.split(k, [None, 32]); sch.read_at(a, sch.get_sblock("C"), 0, "shared"); sch.read_at(a, sch.get_sblock("C"), 1, "shared")'),
    ("matmul", _LOOPS_C + 'a, b = sch.split(i, [None, 16]); c, d = sch.split(j, [None, 16]); sch.reorder(a, c, b, d, k); sch.write_at(c, sch.get_sblock("C"), 0, "shared")'),
    ("elementwise", _LOOPS_B + 'k, l = sch.get_loops("C"); sch.merge(i, k)'),
    ("elementwise", _LOOPS_B + 'k, l = sch.get_loops("C"); sch.merge(j, l)'),
    ("elementwise", _LOOPS_B + 'k, l = sch.get_loops("C"); sch.merge(i, l)'),
    ("matmul_relu", _LOOPS_C + 'a, b = sch.get_loops("D"); sch.merge(j, b)'),
    ("padded", _LOOPS_C.replace("i, j, k", "c, d, e") + 'a, b = sch.get_loops("B"); sch.merge(a, c)'),
)  # fmt: skip


CHAIN = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32"), E: T.Buffer((64, 64), "float32")):
    B = T.sblock_alloc_buffer((64, 64), "float32")
    C = T.sblock_alloc_buffer((64, 64), "float32")
    for i, j in T.grid(64, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(64, 64):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.exp(B[vi, vj])
    for i, j in T.grid(64, 64):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + B[vi, vj]
    for i, j in T.grid(64, 64):
        with T.sblock("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = C[vj, vi]
"""
SYMBOLIC = """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle, c: T.handle, n: T.int64):
    A = T.match_buffer(a, (n, 128), "float32")
    B = T.match_buffer(b, (n, 128), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i, j in T.grid(n, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, k in T.grid(n, 128):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + B[vi, vk]
"""
CONV = """
@T.prim_func(s_tir=True)
def main(X: T.Buffer((1, 16, 16, 8), "float32"), W: T.Buffer((3, 3, 8, 16), "float32"), Y: T.Buffer((1, 14, 14, 16), "float32")):
    for n, h, w, c, rh, rw, rc in T.grid(1, 14, 14, 16, 3, 3, 8):
        with T.sblock("Y"):
            vn, vh, vw, vc, vrh, vrw, vrc = T.axis.remap("SSSSRRR", [n, h, w, c, rh, rw, rc])
            with T.init():
                Y[vn, vh, vw, vc] = T.float32(0)
            Y[vn, vh, vw, vc] = Y[vn, vh, vw, vc] + X[vn, vh + vrh, vw + vrw, vrc] * W[vrh, vrw, vrc, vc]
"""
POOL = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((32, 32), "float32"), C: T.Buffer((30, 30), "float32")):
    B = T.sblock_alloc_buffer((32, 32), "float32")
    for i, j in T.grid(32, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j, k in T.grid(30, 30, 3):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(-1000)
            C[vi, vj] = T.max(C[vi, vj], B[vi + vk, vj + vk])
"""
HALF = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 127), "float16"), B: T.Buffer((127, 126), "float16"), C: T.Buffer((128, 126), "float32")):
    for i, j, k in T.grid(128, 126, 127):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
"""
OPAQUE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.sblock("B"):
            vi = T.axis.opaque(16, i)
            vj = T.axis.spatial(16, j)
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj]
"""
SOFTMAX = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((32, 64), "float32"), O: T.Buffer((32, 64), "float32")):
    M = T.sblock_alloc_buffer((32,), "float32")
    S = T.sblock_alloc_buffer((32,), "float32")
    X = T.sblock_alloc_buffer((32, 64), "float32")
    for i, k in T.grid(32, 64):
        with T.sblock("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32(-1000)
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, j in T.grid(32, 64):
        with T.sblock("X"):
            vi, vj = T.axis.remap("SS", [i, j])
            X[vi, vj] = T.exp(A[vi, vj] - M[vi])
    for i, k in T.grid(32, 64):
        with T.sblock("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + X[vi, vk]
    for i, j in T.grid(32, 64):
        with T.sblock("O"):
            vi, vj = T.axis.remap("SS", [i, j])
            O[vi, vj] = X[vi, vj] / S[vi]
"""
PROGRAMS |= {
    "chain": CHAIN, "symbolic": SYMBOLIC, "conv": CONV, "pool": POOL, "half": HALF,
    "opaque": OPAQUE, "softmax": SOFTMAX,
}  # fmt: skip


def _all(block: str, count: int) -> str:
    names = ", ".join(f"l{i}" for i in range(count))
    return f'{names} = sch.get_loops("{block}"); '


CASES += (
    ("chain", 'sch.compute_inline("B")'),
    ("chain", 'sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1], sch.get_loops("D")[1])'),
    ("chain", 'sch.merge(sch.get_loops("D")[0], sch.get_loops("E")[0])'),
    ("chain", 'sch.compute_inline("C")'),
    ("chain", 'sch.compute_inline("C"); sch.compute_inline("B")'),
    ("chain", _all("D", 2) + 'sch.compute_at("C", l0)'),
    ("chain", _all("C", 2) + 'sch.compute_at("B", l0)'),
    ("chain", _all("B", 2) + 'sch.reverse_compute_at("C", l0); sch.reverse_compute_at("D", l0)'),
    ("chain", _all("B", 2) + 'sch.reverse_compute_at("D", l0)'),
    ("chain", 'sch.cache_read("C", 0, "local", consumer_blocks=["D"])'),
    ("chain", 'sch.cache_read("D", 1, "local", consumer_blocks=["C","D"])'),
    ("chain", 'sch.cache_write("C", 0, "local", consumer_blocks=["D"])'),
    ("chain", 'sch.cache_write("B", 0, "shared")'),
    ("chain", 'sch.transform_layout("C", ("write",0), lambda i,j: (i//8, j//8, i%8, j%8))'),
    ("chain", 'sch.reindex("E", ("read",0))'),
    ("chain", 'sch.set_scope("B", 0, "shared"); sch.storage_align("C", 0, 0, 32, 8)'),
    ("chain", _all("C", 2) + 'a,b=sch.split(l0,[None,8]); sch.compute_at("B", b)'),
    ("chain", _all("E", 2) + 'a,b=sch.split(l0,[None,8]); sch.compute_at("C", a)'),
    ("symbolic", _all("B", 2) + 'sch.split(l0,[None,32])'),
    ("symbolic", _all("B", 2) + 'f=sch.fuse(l0,l1); sch.split(f,[None,256])'),
    ("symbolic", _all("C", 2) + 'sch.rfactor(l1, 0)'),
    ("symbolic", _all("C", 2) + 'a,b=sch.split(l1,[None,32]); sch.rfactor(b, 1)'),
    ("symbolic", _all("C", 2) + 'a,b=sch.split(l0,[None,32]); sch.decompose_reduction("C", l1)'),
    ("symbolic", 'sch.cache_read("C", 0, "shared")'),
    ("symbolic", _all("B", 2) + 'sch.bind(l0,"blockIdx.x"); sch.vectorize(l1)'),
    ("conv", _all("Y", 7) + 'sch.reorder(l4,l5,l6,l2,l3); sch.decompose_reduction("Y", l4)'),
    ("conv", _all("Y", 7) + 'c=sch.cache_read("Y",0,"shared"); sch.compute_at(c,l2)'),
    ("conv", _all("Y", 7) + 'c=sch.cache_read("Y",0,"shared"); a,b=sch.split(l1,[7,2]); sch.compute_at(c,a)'),
    ("conv", _all("Y", 7) + 'c=sch.cache_read("Y",1,"shared"); sch.compute_at(c,l4)'),
    ("conv", _all("Y", 7) + 'f=sch.fuse(l1,l2); a,b=sch.split(f,[None,14])'),
    ("conv", 'sch.reindex("Y",("read",0)); sch.reindex("Y",("read",1)); sch.reindex("Y",("write",0))'),
    ("conv", 'sch.reindex("Y",("read",0)); sch.transform_layout("Y",("read",0), lambda n,h,w,rh,rw,rc: (n*196+h*14+w, rh*24+rw*8+rc))'),
    ("conv", 'sch.transform_block_layout("Y", lambda n,h,w,c,rh,rw,rc: (n*196+h*14+w, c, rh*24+rw*8+rc))'),
    ("conv", _all("Y", 7) + 'f=sch.fuse(l4,l5,l6); sch.rfactor(f,4)'),
    ("conv", 'sch.transform_layout("Y",("read",1), lambda h,w,i,o: (o//4,h,w,i,o%4))'),
    ("pool", 'sch.compute_inline("B")'),
    ("pool", _all("C", 3) + 'sch.compute_at("B",l0)'),
    ("pool", _all("C", 3) + 'a,b=sch.split(l0,[None,8]); c,d=sch.split(l1,[None,8]); sch.reorder(a,c,b,d); sch.compute_at("B",c)'),
    ("pool", 'sch.rfactor(sch.get_loops("C")[2], 0)'),
    ("half", 'sch.pad_einsum("C",[16,16,16])'),
    ("half", 'sch.pad_einsum("C",[1,16,16])'),
    ("half", _all("C", 3) + 'a,b=sch.split(l1,[None,16]); c,d=sch.split(l2,[None,16]); sch.reorder(l0,a,c,b,d); sch.decompose_reduction("C",c)'),
    ("half", _all("C", 3) + 'a,b=sch.split(l2,[None,16]); sch.rfactor(b,2)'),
    ("half", 'sch.cache_write("C",0,"local"); sch.cache_read("C",0,"shared"); sch.cache_read("C",1,"shared")'),
    ("opaque", _all("B", 2) + 'sch.split(l0,[4,4])'),
    ("opaque", _all("B", 2) + 'sch.parallel(l0)'),
    ("opaque", _all("B", 2) + 'sch.vectorize(l1)'),
    ("opaque", _all("B", 2) + 'sch.fuse(l0,l1)'),
    ("opaque", _all("B", 2) + 'sch.reorder(l1,l0)'),
    ("softmax", 'sch.compute_inline("X")'),
    ("softmax", _all("O", 2) + 'sch.compute_at("S",l0); sch.compute_at("X",l0); sch.compute_at("M",l0)'),
    ("softmax", _all("M", 2) + 'sch.reverse_compute_at("X",l0); sch.reverse_compute_at("S",l0); sch.reverse_compute_at("O",l0)'),
    ("softmax", _all("S", 2) + 'sch.compute_at("X",l1)'),
    ("softmax", 'l=sch.get_loops("M"); a,b=sch.split(l[1],[None,16]); sch.bind(b,"threadIdx.x"); sch.bind(l[0],"blockIdx.x")'),
    ("softmax", 'l=sch.get_loops("S"); sch.bind(l[0],"blockIdx.x"); sch.set_scope("S",0,"shared"); sch.compute_at("M", l[0])'),
    ("matmul", _LOOPS_C + 'x=sch.split(i,[1,1,16,8]); y=sch.split(j,[4,1,1,32]); z=sch.split(k,[16,8]); sch.reorder(x[0],y[0],x[1],y[1],z[0],x[2],y[2],z[1],x[3],y[3]); sch.decompose_reduction("C", z[0])'),
    ("matmul", _LOOPS_C + 'x=sch.split(i,[1,1,16,8]); y=sch.split(j,[4,1,1,32]); sch.reorder(x[0],y[0],x[1],y[1]); sch.fuse(x[0],y[0]); sch.fuse(x[1],y[1])'),
    ("matmul", _LOOPS_C + 'sch.fuse(i,j,k)'),
    ("matmul", _LOOPS_C + 'sch.fuse(j,k)'),
    ("matmul", _LOOPS_C + 'f=sch.fuse(i,j); sch.parallel(f); sch.rfactor(k,1)'),
    ("matmul", _LOOPS_C + 'a,b=sch.split(i,[None,32]); c,d=sch.split(j,[None,32]); sch.reorder(a,c,b,d,k); w=sch.cache_write("C",0,"local"); sch.reverse_compute_at(w,c); r=sch.cache_read("C",0,"shared"); sch.compute_at(r,c); q=sch.cache_read("C",1,"shared"); sch.compute_at(q,c)'),
    ("matmul", _LOOPS_C + 'a,b=sch.split(i,[None,16]); c,d=sch.split(j,[None,16]); e,f=sch.split(k,[None,16]); sch.reorder(a,c,e,b,d,f); blk=sch.blockize(b); sch.decompose_reduction(blk,e); sch.annotate(blk,"k",True)'),
    ("matmul", _LOOPS_C + 'a,b=sch.split(k,[None,16]); sch.blockize(b)'),
    ("matmul", _LOOPS_C + 'sch.blockize(i)'),
    ("matmul", _LOOPS_C + 'sch.annotate(k,"pragma_auto_unroll_max_step",16); sch.annotate(k,"pragma_unroll_explicit",False)'),
    ("matmul", _LOOPS_C + 'sch.split(i,[3,None,5])'),
    ("matmul", _LOOPS_C + 'sch.split(i,[None,None])'),
    ("matmul", _LOOPS_C + 'sch.split(i,[2,3])'),
    ("matmul", _LOOPS_C + 'sch.vectorize(j); sch.split(j,[None,4])'),
    ("matmul", _LOOPS_C + 'sch.reorder(i,i)'),
    ("matmul", 'sch.cache_read("C",2,"shared")'),
    ("matmul", 'sch.compute_inline("C")'),
    ("matmul", _LOOPS_C + 'sch.bind(i,"threadIdx.x"); sch.bind(j,"threadIdx.x")'),
    ("matmul", 'import tvm; sch.cache_read("C", 0, "shared"); print(sch.get(sch.get_sblock("A_shared")).name_hint)'),
)  # fmt: skip

DIFFERENT = (
    ("matmul_relu", 'sch.reverse_compute_at("D", k)', "TVM applies the maximum to sums that are not complete"),
    ("padded", 'sch.reindex("C", ("read", 0))', "the order of the terms of an index"),
    ("symbolic", "sch.split(f,[None,256])", "the form of an extent"),
    ("symbolic", "sch.rfactor(l1, 0)", "a declared offset of 0"),
    ("pool", "sch.rfactor", "TVM takes a maximum from minus infinity alone"),
    ("half", "sch.rfactor(b,2)", "partial results beyond the end are initialised here"),
    ("matmul", "sch.fuse(x[1],y[1])", "loops of one iteration in the binding of a fused loop"),
    ("matmul", "sch.vectorize(j); sch.split(j", "marked loops are not split here"),
)
"""The cases in which relaxlab differs, by program and a part of the steps, and how."""
