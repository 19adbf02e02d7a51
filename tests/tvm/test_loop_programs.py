"""Loop programs in TVM's spelling: tensor expressions, schedules, compiled modules, arrays."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import nd, te, tir
from relaxlab.tvm.tir.schedule.testing import verify_trace_roundtrip


def _matmul_relu(m: int = 32, n: int = 48, k: int = 16):
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: tir.max(c[i, j], 0.0), name="D")
    return te.create_prim_func([a, b, d])


def test_a_scheduled_product_computes_what_numpy_does() -> None:
    sch = tir.Schedule(_matmul_relu())
    block = sch.get_block("C", "main")
    i, j, k = sch.get_loops(block=block)
    outer, inner = sch.split(loop=j, factors=[None, 4])
    sch.reorder(i, outer, k, inner)
    sch.reverse_compute_at("D", outer)
    sch.decompose_reduction(block, k)
    verify_trace_roundtrip(sch, _matmul_relu())
    built = tvm.build(sch.mod, target="llvm -num-cores=2")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 16)).astype("float32")
    y = rng.standard_normal((16, 48)).astype("float32")
    out = nd.empty((32, 48), dtype="float32")
    built["main"](nd.array(x), nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ y, 0), rtol=1e-5, atol=1e-5)
    assert built.time_evaluator("main", tvm.cpu(), number=1)(nd.array(x), nd.array(y), out).mean > 0


def test_a_reducer_of_pairs_finds_the_place_of_the_maximum() -> None:
    def combine(x, y):
        better = x[1] >= y[1]
        return tir.Select(better, x[0], y[0]), tir.Select(better, x[1], y[1])

    argmax = te.comm_reducer(combine, lambda i, v: (tir.const(-1, i), te.min_value(v)))
    a = te.placeholder((5, 7), name="A")
    k = te.reduce_axis((0, 7), "k")
    index, value = te.compute((5,), lambda i: argmax((k.var, a[i, k]), axis=k), name="T")
    func = te.create_prim_func([a, index, value])
    x = np.random.default_rng(1).standard_normal((5, 7)).astype("float32")
    places, maxima = nd.empty((5,), "int64"), nd.empty((5,))
    tvm.build(func)(nd.array(x), places, maxima)
    np.testing.assert_array_equal(places.numpy(), x.argmax(1))
    np.testing.assert_array_equal(maxima.numpy(), x.max(1))


def test_a_condition_that_python_decided_is_refused() -> None:
    with pytest.raises(TypeError, match=r"tvm\.tir\.EQ"):
        te.compute((4, 4), lambda i, j: te.if_then_else(i == j, 1.0, 0.0))


def test_newer_names_are_the_same_packages() -> None:
    from relaxlab.tvm.s_tir.schedule.schedule import Schedule

    from relaxlab.tvm import s_tir, tirx

    assert s_tir is tir and tirx is tir
    assert Schedule is tir.Schedule
