"""Tiles that threads of a block copy together, and blocks that write tiles of their own."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import Block, Buffer
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.schedule.error import ScheduleError
from relaxlab.script import tir as T


@T.prim_func
def product(
    A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"),
    C: T.Buffer((64, 64), "float32"),
):  # fmt: skip
    for i, j, k in T.grid(64, 64, 64):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def shared(sch: rl.Schedule) -> dict[str, tuple[str, ...]]:
    blocks = (n for n in walk(sch.func.body) if isinstance(n, Block))
    made: list[Buffer] = [b for block in blocks for b in block.alloc_buffers]
    return {b.name: tuple(map(str, b.shape)) for b in made if b.scope == "shared"}


def test_copies_hold_what_all_threads_of_a_block_read(rng: np.random.Generator) -> None:
    """The copies are placed under a loop of each thread, after threads are bound."""
    sch = rl.Schedule(product)
    block = sch.get_block("C")
    sums = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 4, 8])
    j0, j1, j2 = sch.split(j, factors=[None, 4, 8])
    k0, k1 = sch.split(k, factors=[None, 8])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(sums, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(sch.fuse(i1, j1), "threadIdx.x")
    for number in range(2):
        copy = sch.cache_read(block, number, "shared")
        sch.compute_at(copy, k0)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, thread, lane = sch.split(fused, factors=[None, 16, 4])
        sch.vectorize(lane)
        sch.bind(thread, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    sch.compact_buffers()
    assert shared(sch) == {"A_shared": ("32", "8"), "B_shared": ("8", "32")}
    a, b = (rng.normal(size=(64, 64)).astype("float32") for _ in range(2))
    c = np.zeros((64, 64), "float32")
    report = simt_prim_func(sch.func, [a, b, c])
    assert not report.problems
    np.testing.assert_allclose(c, a @ b, 1e-4, 1e-4)


def tiles(inner: int) -> rl.Schedule:
    """A product in blocks of 16 x 16 results, of which `inner` rows are computed."""
    mod = rl.parse(f"""
@T.prim_func
def f(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for i0, j0 in T.grid(4, 4):
        with T.sblock("tile"):
            vi, vj = T.axis.remap("SS", [i0, j0])
            T.reads(A[vi * 16 : vi * 16 + 16, vj * 16 : vj * 16 + 16])
            T.writes(C[vi * 16 : vi * 16 + 16, vj * 16 : vj * 16 + 16])
            for i1, j1 in T.grid({inner}, 16):
                with T.sblock("element"):
                    wi, wj = T.axis.remap("SS", [i1, j1])
                    C[vi * 16 + wi, vj * 16 + wj] = A[vi * 16 + wi, vj * 16 + wj] + T.float32(1)
""")
    return rl.Schedule(mod["f"])


def test_tiles_are_written_to_another_memory(rng: np.random.Generator) -> None:
    sch = tiles(16)
    sch.cache_write(sch.get_block("tile"), 0, "global.accumulator")
    a, c = rng.normal(size=(64, 64)).astype("float32"), np.zeros((64, 64), "float32")
    interpret_prim_func(sch.func, [a, c])
    np.testing.assert_array_equal(c, a + 1)


def test_tiles_with_gaps_are_refused() -> None:
    """The copy back would overwrite what no block has written."""
    sch = tiles(15)
    with pytest.raises(ScheduleError, match="the block writes a whole region of C"):
        sch.cache_write(sch.get_block("tile"), 0, "global.accumulator")
