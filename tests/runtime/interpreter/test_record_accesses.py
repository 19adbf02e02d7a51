"""The recorder: accesses in order, with values, against loops written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.interpreter.record_accesses import Recording, record_accesses, reuse_distances
from relaxlab.script import parse


def function(text: str) -> PrimFunc:
    (func,) = (f for _, f in parse("@T.prim_func\n" + text).functions)
    return func


MATMUL = """def main(a: T.handle, b: T.handle, c: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, 3))
    B = T.match_buffer(b, (3, m))
    C = T.match_buffer(c, (n, m))
    for i, j, k in T.grid(n, m, 3):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def flat(found: Recording) -> list[tuple[int, int, bool, float]]:
    return [(a.buffer, a.element, a.write, float(a.value)) for a in found.accesses]


def test_a_product_reads_and_writes_in_the_order_of_its_loops():
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.arange(6, dtype="float32").reshape(3, 2)
    c = np.zeros((2, 2), "float32")
    found = record_accesses(function(MATMUL), [a, b, c])
    want: list[tuple[int, int, bool, float]] = []
    for i in range(2):
        for j in range(2):
            total = 0.0
            want.append((2, 2 * i + j, True, 0.0))
            for k in range(3):
                want += [(2, 2 * i + j, False, total), (0, 3 * i + k, False, a[i, k])]
                want.append((1, 2 * k + j, False, b[k, j]))
                total += a[i, k] * b[k, j]
                want.append((2, 2 * i + j, True, total))
    assert flat(found) == want
    assert not found.cut and found.error is None
    assert not c.any(), "the arguments themselves are left alone"


def test_steps_name_their_statement_and_iteration():
    arrays = [np.ones(s, "float32") for s in ((2, 3), (3, 2), (2, 2))]
    found = record_accesses(function(MATMUL), arrays)
    assert [(found.statements[s.statement].block, s.values) for s in found.steps[:3]] == [
        ("C", (0, 0, 0)), ("C", (0, 0, 0)), ("C", (0, 0, 1)),
    ]  # fmt: skip
    assert [v.name for v in found.statements[1].loops] == ["i", "j", "k"]


def test_the_run_ends_after_the_most_accesses():
    arrays = [np.ones(s, "float32") for s in ((2, 3), (3, 2), (2, 2))]
    found = record_accesses(function(MATMUL), arrays, most=9)
    assert found.cut and 1 < len(found.steps) < 10


def test_a_failure_keeps_what_came_before():
    func = function("""def main(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n,), "int64")
    Y = T.match_buffer(y, (n,))
    for i in range(n):
        with T.block("Y"):
            vi = T.axis.spatial(n, i)
            Y[X[vi]] = T.float32(1)
""")
    found = record_accesses(func, [np.array([0, 2, 9]), np.zeros(3, "float32")])
    assert "index 9 of dimension 0 of Y is outside its extent 3" in (found.error or "")
    assert [a.element for a in found.accesses if a.write] == [0, 2]
    assert found.steps[-1].values == (2,)


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ExecutionError, match="dimension 0 of B is 4, expected 3"):
        record_accesses(function(MATMUL), [np.ones(s, "float32") for s in ((2, 3), (4, 2), (2, 2))])


def test_elements_of_views_are_those_of_the_whole_buffer():
    func = function("""def main(x: T.handle, y: T.handle):
    X = T.match_buffer(x, (4, 6))
    Y = T.match_buffer(y, (4, 6))
    for i in range(2):
        with T.block("tile"):
            vi = T.axis.spatial(2, i)
            T.reads(X[vi * 2 : vi * 2 + 2, 3:6])
            T.writes(Y[vi * 2 : vi * 2 + 2, 3:6])
            V = T.match_buffer(X[vi * 2 : vi * 2 + 2, 3:6], (2, 3))
            for a, b in T.grid(2, 3):
                Y[vi * 2 + a, 3 + b] = V[a, b]
""")
    x = np.arange(24, dtype="float32").reshape(4, 6)
    found = record_accesses(func, [x, np.zeros((4, 6), "float32")])
    assert [h.buffer.name for h in found.buffers] == ["X", "Y"]
    reads = [a.element for a in found.accesses if not a.write]
    assert reads == [6 * r + c for r in range(4) for c in range(3, 6)]
    assert [float(a.value) for a in found.accesses if not a.write] == reads


def test_a_buffer_that_every_iteration_allocates_is_one():
    func = function("""def main(x: T.handle, y: T.handle):
    X = T.match_buffer(x, (5,))
    Y = T.match_buffer(y, (5,))
    for i in range(5):
        with T.block("Y"):
            vi = T.axis.spatial(5, i)
            t = T.alloc_buffer((2,), scope="local")
            t[1] = X[vi] + X[vi]
            Y[vi] = t[1]
""")
    found = record_accesses(func, [np.arange(5, dtype="float32"), np.zeros(5, "float32")])
    assert [h.buffer.name for h in found.buffers] == ["X", "Y", "t"]
    assert {a.element for a in found.accesses if a.buffer == 2} == {1}


def test_conditions_that_read_memory_are_steps():
    func = function("""def main(x: T.handle, y: T.handle):
    X = T.match_buffer(x, (3,))
    Y = T.match_buffer(y, (3,))
    for i in range(3):
        if X[i] > T.float32(1):
            Y[i] = T.float32(7)
""")
    y = np.zeros(3, "float32")
    found = record_accesses(func, [np.array([0, 2, 0], "float32"), y])
    assert [len(s.accesses) for s in found.steps] == [1, 1, 1, 1]
    assert [a.element for a in found.accesses if a.write] == [1]


def test_it_computes_what_the_interpreter_computes(rng: np.random.Generator):
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((3, 5))
    arrays = [a.astype("float32"), b.astype("float32"), np.zeros((4, 5), "float32")]
    found = record_accesses(function(MATMUL), arrays)
    interpret_prim_func(function(MATMUL), arrays, vectorise=False)
    last = {a.element: a.value for a in found.accesses if a.write}
    assert [last[e] for e in range(20)] == list(arrays[2].reshape(-1))


def test_reuse_distances_count_the_other_places_in_between(rng: np.random.Generator):
    assert reuse_distances("abcab") == [None, None, None, 2, 2]
    assert reuse_distances("aab") == [None, 0, None]
    assert reuse_distances("abbba") == [None, None, 0, 0, 1]
    places = [int(p) for p in rng.integers(0, 12, 300)]
    for now, found in enumerate(reuse_distances(places)):
        before = [t for t in range(now) if places[t] == places[now]]
        want = len(set(places[before[-1] + 1 : now])) if before else None
        assert found == want
