"""Analyses of loop functions, under TVM's names."""

from __future__ import annotations

from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.script import parse
from relaxlab.tvm.tir import analysis

TEXT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), D: T.Buffer((128, 128), "float32")):
    C = T.sblock_alloc_buffer((128, 128), "float32")
    S = T.sblock_alloc_buffer((16, 4), "float16", scope="shared")
    for i, j, k in T.grid(128, 128, 128):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in range(128):
        for j in range(128):
            with T.sblock("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi % 16, vj % 4] = T.float16(1)
                D[vi, vj] = T.max(C[vi, vj], T.float32(0)) * T.Cast("float32", S[vi % 16, vj % 4])
"""  # noqa: E501
MOD = parse(TEXT)
FUNC = MOD["main"]


def test_costs() -> None:
    assert isinstance(FUNC, PrimFunc)
    assert analysis.estimate_tir_flops(MOD) == 2 * 128**3 + 2 * 128**2  # as TVM counts
    assert analysis.calculate_allocated_bytes(FUNC) == {"main": {"global": 65536, "shared": 128}}
    anchor = analysis.find_anchor_sblock(MOD)
    assert anchor is not None and anchor.name == "C"


def test_places_of_accesses() -> None:
    assert isinstance(FUNC, PrimFunc)
    found = analysis.detect_buffer_access_lca(FUNC)
    names = {b.name: s.name for b, s in found.items() if isinstance(s, Block)}
    assert names == {"A": "C", "B": "C", "D": "D", "C": "root", "S": "D"}
    assert analysis.verify_ssa(FUNC)


def test_regions_of_a_block() -> None:
    anchor = analysis.find_anchor_sblock(MOD)
    assert anchor is not None
    reads, writes = analysis.get_sblock_read_write_region(anchor, {})
    assert [r.buffer.name for r in reads] == ["A", "B"]
    assert [w.buffer.name for w in writes] == ["C"]
    parts = analysis.get_sblock_access_region(anchor, {})
    assert [[r.buffer.name for r in part] for part in parts] == [["A", "B"], ["C"], []]
