"""Steps of schedules about regions, tables, parts and windows, that TVM and relaxlab are to make
alike: as `schedule_cases`, of which this is a part."""
# ruff: noqa: E501

from __future__ import annotations

from tests.tvm import schedule_cases as base

PROGRAMS: dict[str, str] = dict(base.PROGRAMS)
PROGRAMS["bias"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 16), "float32"), bias: T.Buffer((16,), "float32"), D: T.Buffer((16, 16), "float32")):
    C = T.sblock_alloc_buffer((16, 16), "float32")
    for i, j, k in T.grid(16, 16, 32):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 16):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + bias[vj]
"""
PROGRAMS["bias_left"] = PROGRAMS["bias"].replace("C[vi, vj] + bias[vj]", "bias[vj] + C[vi, vj]")
PROGRAMS["bias_int"] = PROGRAMS["bias"].replace("float32", "int32").replace("T.int32(0)", "0")
PROGRAMS["bias_relu"] = PROGRAMS["bias"].replace("C[vi, vj] + bias[vj]", "T.max(C[vi, vj] + bias[vj], T.float32(0))")
PROGRAMS["relu"] = PROGRAMS["bias"].replace("C[vi, vj] + bias[vj]", "T.max(C[vi, vj], T.float32(0))")
PROGRAMS["clip"] = PROGRAMS["bias"].replace("C[vi, vj] + bias[vj]", "T.min(T.max(C[vi, vj], T.float32(-5)), T.float32(5))")
PROGRAMS["scale"] = PROGRAMS["bias"].replace("C[vi, vj] + bias[vj]", "C[vi, vj] * bias[vj]")
PROGRAMS["maxpool_max"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 32), "float32"), D: T.Buffer((16,), "float32")):
    C = T.sblock_alloc_buffer((16,), "float32")
    for i, k in T.grid(16, 32):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.min_value("float32")
            C[vi] = T.max(C[vi], A[vi, vk])
    for i in range(16):
        with T.sblock("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = T.max(C[vi], T.float32(0))
"""
PROGRAMS["resize"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1, 3, 40, 40), "float32"), B: T.Buffer((1, 3, 80, 80), "float32")):
    for i0, i1, i2, i3 in T.grid(1, 3, 80, 80):
        with T.sblock("A"):
            n, c, vi, vj = T.axis.remap("SSSS", [i0, i1, i2, i3])
            B[n, c, vi, vj] = A[n, c, vi // 4 + vj // 4, vj // 2]
"""
PROGRAMS["resize2"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((32, 32), "float32")):
    for i, j in T.grid(32, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi * 2, vj * 2] + A[vi * 2 + 1, vj * 2] + A[vi * 2, vj * 2 + 1] + A[vi * 2 + 1, vj * 2 + 1]
"""
PROGRAMS["stencil"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((12, 12), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.sblock_alloc_buffer((10, 10), "float32")
    for i, j, k, l in T.grid(10, 10, 3, 3):
        with T.sblock("B"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                B[vi, vj] = T.float32(-1000)
            B[vi, vj] = T.max(B[vi, vj], A[vi + vk, vj + vl])
    for i, j, k, l in T.grid(8, 8, 3, 3):
        with T.sblock("C"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                C[vi, vj] = T.float32(-1000)
            C[vi, vj] = T.max(C[vi, vj], B[vi + vk, vj + vl])
"""
PROGRAMS["rows"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((18, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    B = T.sblock_alloc_buffer((18, 32), "float32")
    for i, j in T.grid(18, 32):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj])
    for i, j in T.grid(16, 32):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + B[vi + 2, vj]
"""
PROGRAMS["inplace"] = """
@T.prim_func(s_tir=True)
def main(data: T.Buffer((64,), "int32")):
    for i0 in T.serial(1):
        with T.sblock("A"):
            T.reads(data[0:64])
            T.writes(data[0:64])
            T.evaluate(T.call_extern("int32", "call_impl", data.data))
"""
CASES: tuple[tuple[str, str], ...] = (
 ("elementwise", 'sch.annotate_buffer_access(sch.get_sblock("B"), 0, "read", lambda vi, vj: ((vi - 1, vi + 1), (vj - 1, vj + 1)))'),
 ("elementwise", 'sch.annotate_buffer_access(sch.get_sblock("B"), 0, "write", lambda vi, vj: ((vi, vi + 2), (vj, vj + 2)))'),
 ("elementwise", 'b = sch.get_sblock("B"); sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: (vi, vj)); sch.annotate_buffer_access(b, 0, "write", lambda vi, vj: (vi, vj))'),
 ("matmul", 'b = sch.get_sblock("C"); sch.annotate_buffer_access(b, 0, "read", lambda vi, vj, vk: (vi, vk, vk))'),
 ("bias", 'b = sch.get_sblock("D"); sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: ((vi, vi+1), (0, 16))); sch.annotate_buffer_access(b, 1, "read", lambda vi, vj: (vj, vi))'),
 ("chain", 'b = sch.get_sblock("D"); sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: ((vi, vi+1), (0, 64))); sch.annotate_buffer_access(b, 1, "read", lambda vi, vj: ((vi, vi + 1), (0, 64)))'),
 ("chain", 'b = sch.get_sblock("D"); sch.annotate_buffer_access(b, 0, "read", lambda vi, vj: ((vi, vi+1), (0, 64))); l = sch.get_loops("D"); sch.compute_at("C", l[1])'),
 ("matmul", 'sch.unsafe_hide_buffer_access(sch.get_sblock("C"), "read", [0])'),
 ("matmul", 'sch.unsafe_hide_buffer_access(sch.get_sblock("C"), "read", [0, 1])'),
 ("matmul", 'sch.unsafe_hide_buffer_access(sch.get_sblock("C"), "read", [2])'),
 ("matmul", 'sch.unsafe_hide_buffer_access(sch.get_sblock("C"), "write", [0])'),
 ("resize", 'sch.cache_index("A", "global", 1)'),
 ("resize", 'sch.cache_index("A", "global")'),
 ("resize", 'r = sch.cache_index("A", "local"); print(len(r))'),
 ("resize2", 'sch.cache_index("B", "global")'),
 ("resize2", 'sch.cache_index("B", "global", 2)'),
 ("resize2", 'sch.cache_index("B", "global", 3)'),
 ("padded", 'sch.cache_index("C", "global")'),
 ("elementwise", 'r = sch.cache_index("B", "global"); print(len(r))'),
 ("conv", 'sch.cache_index("Y", "global")'),
 ("inplace", 'sch.cache_inplace("A", 0, "local")'),
 ("updated", 'sch.cache_inplace("B", 1, "local")'),
 ("updated", 'sch.cache_inplace("B", "B", "shared")'),
 ("matmul", 'sch.cache_inplace("C", 0, "local")'),
 ("bias", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("bias_left", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("bias_int", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("bias_relu", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("relu", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("clip", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("scale", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("maxpool_max", 'sch.fuse_reduction_epilogue("C", "D")'),
 ("elementwise", 'sch.fuse_reduction_epilogue("B", "C")'),
 ("elementwise", 'i, j = sch.get_loops("B"); sch.loop_partition(i, [2, 64])'),
 ("elementwise", 'i, j = sch.get_loops("B"); r = sch.loop_partition(i, [2, None, 64]); print(len(r))'),
 ("elementwise", 'i, j = sch.get_loops("B"); r = sch.loop_partition(i, [64, 64]); print(len(r))'),
 ("elementwise", 'i, j = sch.get_loops("B"); sch.loop_partition(j, [8, None])'),
 ("elementwise", 'i, j = sch.get_loops("B"); r = sch.loop_partition(j, [8, None]); sch.vectorize(r[0]); print([len(sch.get_loops(x)) for x in sch.get_child_blocks(sch.get_sblock("root"))])'),
 ("elementwise", 'i, j = sch.get_loops("B"); sch.loop_partition(i, [100, 100])'),
 ("elementwise", 'i, j = sch.get_loops("B"); sch.loop_partition(i, [2, None, None])'),
 ("elementwise", 'i, j = sch.get_loops("B"); sch.parallel(i); sch.loop_partition(i, [2, None])'),
 ("matmul", 'i, j, k = sch.get_loops("C"); sch.loop_partition(i, [32, None])'),
 ("matmul", 'i, j, k = sch.get_loops("C"); sch.loop_partition(k, [32, None])'),
 ("matmul", 'i, j, k = sch.get_loops("C"); sch.decompose_reduction("C", k); sch.loop_partition(k, [32, None])'),
 ("matmul", 'i, j, k = sch.get_loops("C"); a = sch.loop_partition(i, [32, None]); b = sch.split(a[1], [None, 16])'),
 ("symbolic", 'i, j = sch.get_loops("B"); sch.loop_partition(i, [32, None])'),
 ("stencil", 'i, j, k, l = sch.get_loops("C"); a, b = sch.split(i, [2, 4]); c, d = sch.split(j, [2, 4]); sch.reorder(a, c, b, d, k, l); sch.compute_at("B", c); sch.rolling_buffer("B", 0)'),
 ("stencil", 'i, j, k, l = sch.get_loops("C"); a, b = sch.split(i, [2, 4]); sch.compute_at("B", a); sch.rolling_buffer("B", 0)'),
 ("stencil", 'i, j, k, l = sch.get_loops("C"); sch.compute_at("B", i); sch.rolling_buffer("B", 0)'),
 ("stencil", 'i, j, k, l = sch.get_loops("C"); sch.reorder(j, i); sch.compute_at("B", i); sch.rolling_buffer("B", 0)'),
 ("rows", 'i, j = sch.get_loops("C"); sch.compute_at("B", i); sch.rolling_buffer("B", 0)'),
 ("rows", 'i, j = sch.get_loops("C"); sch.compute_at("B", j); sch.rolling_buffer("B", 0)'),
 ("rows", 'sch.rolling_buffer("B", 0)'),
 ("rows", 'i, j = sch.get_loops("C"); sch.compute_at("B", i); sch.rolling_buffer("C", 0)'),
 ("elementwise", 'i, j = sch.get_loops("C"); sch.compute_at("B", i); sch.rolling_buffer("B", 0)'),
 ("matmul", 'i, j, k = sch.get_loops("C"); print(sorted([sch.get(x) for x in sch.sample_partitioned_tile(i, 3, 1, 16, decision=[8, 1, 16])]))'),
 ("matmul", 'i, j, k = sch.get_loops("C"); t = sch.sample_partitioned_tile(i, 3, 1, 16, decision=[4, 2, 16]); sch.split(i, t)'),
 ("matmul", 'i, j, k = sch.get_loops("C"); t = sch.sample_partitioned_tile(i, 3, 1, 16); v = [sch.get(x) for x in t]; print(v[0]*v[1]*v[2], v[1]*v[2] % 16)'),
)

DIFFERENT = (
    ("resize", "sch.cache_index", "tables are of int64, and declared as read"),
    ("resize2", "sch.cache_index", "tables are of int64, and declared as read"),
    ("padded", "sch.cache_index", "tables are of int64, and declared as read"),
    ("conv", "sch.cache_index", "tables are of int64, and declared as read"),
    ("elementwise", "sch.cache_index", "TVM stops with an internal error where there is nothing to do"),
    ("updated", 'sch.cache_inplace("B", "B"', "TVM asserts that no block writes a buffer given by name"),
    ("bias", "sch.fuse_reduction_epilogue", "TVM leaves the buffer of the results allocated"),
    ("bias_left", "sch.fuse_reduction_epilogue", "TVM leaves the buffer of the results allocated"),
    ("bias_int", "sch.fuse_reduction_epilogue", "TVM leaves the buffer of the results allocated"),
    ("bias_relu", "sch.fuse_reduction_epilogue", "TVM applies the maximum to sums that are not complete"),
    ("relu", "sch.fuse_reduction_epilogue", "TVM applies the maximum to sums that are not complete"),
    ("clip", "sch.fuse_reduction_epilogue", "TVM applies the limits to sums that are not complete"),
    ("maxpool_max", "sch.fuse_reduction_epilogue", "TVM takes the second maximum in each step"),
    ("elementwise", "sch.loop_partition(i, [2, 64])", "TVM declares no regions of the parts"),
    ("elementwise", "sch.loop_partition(i, [2, None, 64])", "TVM declares no regions of the parts"),
    ("elementwise", "sch.loop_partition(j, [8, None])", "TVM declares no regions of the parts"),
    ("elementwise", "sch.parallel(i); sch.loop_partition", "marked loops are not split here"),
    ("matmul", "sch.loop_partition(i, [32, None])", "TVM declares no regions of the parts"),
    ("matmul", 'sch.get_loops("C"); sch.loop_partition(k, [32, None])', "TVM initialises sums in each part"),
    ("matmul", "sch.decompose_reduction", "TVM declares no regions of the parts"),
    ("rows", 'i); sch.rolling_buffer("B", 0)', "the region of two elements in a circle"),
    ("rows", 'j); sch.rolling_buffer("B", 0)', "the region of two elements in a circle"),
)
"""The cases in which relaxlab differs, by program and a part of the steps, and how."""
