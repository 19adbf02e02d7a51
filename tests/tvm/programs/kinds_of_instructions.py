"""The steps of traces by the kinds of their primitives."""

from collections import Counter

import tvm
from tvm import s_tir, te


def product():
    a, b = (te.placeholder((32, 32), name=n) for n in "AB")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((32, 32), lambda i, j: c[i, j] + 1.0, name="D")
    return s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([a, b, d])}))


def kinds(sch):
    return [inst.kind.name for inst in sch.trace.insts]


sch = product()
block = sch.get_sblock("C")
i, j, k = sch.get_loops(block)
outer, inner = sch.split(i, [None, 8])
sch.reorder(outer, j, inner, k)
sch.cache_read(block, 0, "local")
sch.cache_write(block, 0, "local")
sch.unroll(inner)
sch.annotate(outer, "note", 1)
sch.decompose_reduction(block, k)
print(kinds(sch))

sch = product()
sch.compute_at(sch.get_sblock("C"), sch.get_loops(sch.get_sblock("D"))[0])
print(kinds(sch), Counter(kinds(sch))["GetSBlock"])

sch = product()

sch.split(sch.get_loops(sch.get_sblock("C"))[2], [4, None])
print("Split" in kinds(sch), sch.trace.insts[-1].kind.name)

sch = product()
sch.rfactor(sch.split(sch.get_loops(sch.get_sblock("C"))[2], [4, None])[0], 0)
sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock("D"))))
print(kinds(sch))
