"""Further steps of schedules that TVM and relaxlab are to make alike: places with an index, padded
layouts, annotations, refusals; as `schedule_cases`, of which this is a part."""
# ruff: noqa: E501

from __future__ import annotations

from tests.tvm.schedule_cases import PROGRAMS as PROGRAMS

CASES: tuple[tuple[str, str], ...] = (
    ('chain', 'l0, l1 = sch.get_loops("D"); sch.compute_at("C", l0, index=0)'),
    ('chain', 'l0, l1 = sch.get_loops("D"); sch.compute_at("C", l0, index=-2)'),
    ('chain', 'l0, l1 = sch.get_loops("D"); sch.compute_at("C", l1, preserve_unit_loops=True)'),
    ('elementwise', 'l0, l1 = sch.get_loops("B"); sch.reverse_compute_at("C", l0, preserve_unit_loops=True, index=-1)'),
    ('elementwise', 'l0, l1 = sch.get_loops("B"); a,b=sch.split(l1,[None,4]); sch.reverse_compute_at("C", a)'),
    ('matmul_relu', 'l0, l1, l2 = sch.get_loops("C"); a,b=sch.split(l0,[None,8]); c,d=sch.split(l1,[None,8]); sch.reorder(a,c,b,d,l2); sch.reverse_compute_at("D", c)'),
    ('row_sum', 'l0, l1, l2 = sch.get_loops("B"); a,b=sch.split(l2,[None,32]); sch.rfactor(a, 0)'),
    ('row_sum', 'l0, l1, l2 = sch.get_loops("B"); f=sch.fuse(l0,l1); sch.rfactor(l2, 0)'),
    ('padded', 'l0, l1 = sch.get_loops("B"); sch.decompose_padding("B", l0); print(len(sch.get_loops("B")))'),
    ('half', 'sch.pad_einsum("C",[32,32,32]); sch.compute_inline("A_pad")'),
    ('half', 'sch.pad_einsum("C",[8,8])'),
    ('transposed', 'sch.reindex("B", ("read", 0)); sch.compute_inline("A_reindex")'),
    ('matmul', 'sch.reindex("C", ("write", 0))'),
    ('matmul', 'sch.reindex("C", ("read", 0)); sch.transform_layout("C", ("read", 0), lambda i, k: (i // 16, k // 16, i % 16, k % 16))'),
    ('elementwise', 'sch.transform_layout("B", ("write", 0), lambda i, j: (i // 48, j, i % 48))'),
    ('elementwise', 'sch.transform_layout("B", ("write", 0), lambda i, j: (i // 48, j, i % 48), pad_value=0.0)'),
    ('elementwise', 'sch.transform_layout("C", ("write", 0), lambda i, j: (j, i))'),
    ('elementwise', 'sch.transform_layout("B", ("write", 0), lambda i, j: (i, 0))'),
    ('elementwise', 'sch.set_scope("B", 0, "local"); sch.set_scope("B", 0, "global")'),
    ('elementwise', 'sch.set_scope("B", 1, "shared")'),
    ('elementwise', 'sch.storage_align("B", 0, axis=-2, factor=16, offset=8); sch.storage_align("B", 0, axis=-2, factor=32, offset=8)'),
    ('elementwise', 'sch.storage_align("B", 0, axis=5, factor=16, offset=8)'),
    ('elementwise', 'sch.storage_align("C", 0, axis=0, factor=16, offset=8)'),
    ('elementwise', 'l0, l1 = sch.get_loops("B"); sch.annotate(l0, "pragma_x", {"a": 1})'),
    ('elementwise', 'l0, l1 = sch.get_loops("B"); sch.annotate(l0, "k", [1, [2, "x"]])'),
    ('elementwise', 'b = sch.get_sblock("B"); sch.annotate(b, "meta_schedule.tiling_structure", "SSRSRS"); sch.annotate(b, "k", 1.5)'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); sch.tensorize(l0, "missing")'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); sch.blockize(l0); print(len(sch.get_loops("C_o")))'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); a,b=sch.split(l2,[None,4]); sch.unroll(b); sch.vectorize(l1)'),
    ('odd', 'l0, l1 = sch.get_loops("B"); a,b=sch.split(l0,[None,8]); c,d=sch.split(l1,[None,8]); sch.reorder(a,c,b,d); sch.fuse(a,c); sch.fuse(b,d)'),
    ('odd', 'l0, l1 = sch.get_loops("B"); a,b=sch.split(l0,[8,None]); sch.parallel(a); sch.unroll(b)'),
    ('softmax', 'sch.cache_read("X", 0, "shared"); sch.cache_write("S", 0, "local")'),
    ('softmax', 'l0, l1 = sch.get_loops("X"); sch.compute_at("M", l0); sch.reverse_compute_at("S", l0)'),
    ('softmax', 'l0, l1 = sch.get_loops("S"); sch.decompose_reduction("S", l1); sch.vectorize(l0)'),
    ('softmax', 'l0, l1 = sch.get_loops("S"); a,b=sch.split(l1,[None,8]); sch.rfactor(b,0); sch.rfactor(a,0)'),
    ('pool', 'l0, l1, l2 = sch.get_loops("C"); sch.reorder(l2,l0,l1); sch.decompose_reduction("C", l2)'),
    ('conv', 'l0, l1, l2, l3, l4, l5, l6 = sch.get_loops("Y"); sch.fuse(l0,l1,l2,l3); sch.fuse(l4,l5,l6)'),
    ('symbolic', 'l0, l1 = sch.get_loops("C"); sch.reverse_compute_at("C", sch.get_loops("B")[0])'),
    ('symbolic', 'l0, l1 = sch.get_loops("B"); a,b=sch.split(l0,[None,16]); sch.reorder(a,l1,b); sch.parallel(a); sch.vectorize(b)'),
    ('opaque', 'l0, l1 = sch.get_loops("B"); sch.compute_inline("B")'),
    ('updated', 'sch.cache_read("B", 0, "local")'),
    ('updated', 'sch.cache_read("B", 1, "local"); sch.cache_write("B", 0, "local")'),
    ('chain', 'print([sch.get(b).name_hint for b in sch.get_producers("D")], [sch.get(b).name_hint for b in sch.get_consumers("C")])'),
    ('chain', 'sch2 = sch.copy(); sch2.compute_inline("B"); print(len(sch.get_child_blocks(sch.get_sblock("root"))))'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); print(sch.get(l0).extent, sch.get(l2).loop_var.name)'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); sch.remove_rv(l0); sch.split(l1, [2, 64])'),
    ('matmul', 'b = sch.get_sblock("C"); l = sch.get_loops(b); t = sch.sample_perfect_tile(l[0], 4, decision=[2, 4, 4, 4]); sch.split(l[0], t)'),
    ('matmul', 'v = sch.sample_categorical([1, 2, 4], [0.2, 0.3, 0.5], decision=1); sch.annotate(sch.get_sblock("C"), "u", v)'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); sch.add_unit_loop(l2); sch.add_unit_loop(sch.get_sblock("C"))'),
    ('matmul', 'l0, l1, l2 = sch.get_loops("C"); sch.bind(l0,"vthread.x"); sch.bind(l1,"threadIdx.y")'),
)

DIFFERENT = (
    ("elementwise", "pad_value=0.0", "the form of the condition on the padding"),
    ("elementwise", 'sch.annotate(l0, "k", [1, [2, "x"]])', "lists hold lists here"),
    ("softmax", 'sch.decompose_reduction("S", l1); sch.vectorize(l0)', "TVM does not prove it"),
    ("softmax", "sch.rfactor(b,0); sch.rfactor(a,0)", "loops keep their handles here"),
    ("updated", "sch.cache_read", "what a block updates is not staged as if it only read it"),
)
"""The cases in which relaxlab differs, by program and a part of the steps, and how."""
