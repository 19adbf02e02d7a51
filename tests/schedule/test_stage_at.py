"""read_at and write_at: the results stay, compiled and interpreted, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import tir as T


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 12), "float32")
    B = T.match_buffer(b, (12, 8), "float32")
    C = T.match_buffer(c, (n, 8), "float32")
    for i, j, k in T.grid(n, 8, 12):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def neighbours(A: T.Buffer((10,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + A[vi + 2]


def rows(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, _, _ = sch.get_loops(block)
    sch.read_at(i, block, 0, "local")
    sch.read_at(i, block, 1, "local")


def tiles(sch: Schedule) -> None:
    block = sch.get_block("C")
    _, _, k = sch.get_loops(block)
    ko, _ = sch.split(k, factors=[3, 4])
    sch.read_at(ko, block, 0, "local")
    sch.read_at(ko, block, 1, "local")


def results(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    jo, ji = sch.split(j, factors=[2, 4])
    sch.reorder(jo, k, ji)
    sch.write_at(jo, block, 0, "local")
    sch.read_at(i, block, 1, "local")


@pytest.mark.parametrize("steps", [rows, tiles, results])
@pytest.mark.parametrize("n", [1, 5])
def test_results_stay(steps: Callable[[Schedule], None], n: int) -> None:
    sch = Schedule(product)
    steps(sch)
    sch.compact_buffers()
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((n, 12), (12, 8)))
    for run in (lambda *x: interpret_prim_func(sch.func, list(x)), rl.compile(sch.func)):
        c = np.full((n, 8), np.nan, "float32")
        run(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def under_sums(sch: Schedule) -> None:
    block = sch.get_block("C")
    sch.write_at(sch.get_loops(block)[2], block, 0, "local")


def between_tiles(sch: Schedule) -> None:
    block = sch.get_block("B")
    sch.read_at(sch.get_loops(block)[0], block, 0, "local")


def elsewhere(sch: Schedule) -> None:
    block = sch.get_block("C")
    loop = sch.get_loops(block)[2]
    copy = sch.cache_read(block, 0, "local")
    sch.read_at(loop, copy, 0, "local")


@pytest.mark.parametrize(
    ("func", "steps", "text"),
    [(product, under_sums, "the sums of block 'C' are complete inside"),
     (neighbours, between_tiles, "it touches 3 elements from i"),
     (product, elsewhere, "the loop is around block 'A_local'")],
)  # fmt: skip
def test_what_is_refused(func: PrimFunc, steps: Callable[[Schedule], None], text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        steps(Schedule(func))
