"""Loop programs in TVM's spelling: tensor expressions, schedules, compiled modules, arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import arith, nd, te, tir, topi
from relaxlab.tvm import meta_schedule as ms
from relaxlab.tvm.script import tir as T
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
    n = te.var("n")
    with pytest.raises(TypeError, match=r"tvm\.tir\.EQ"):
        te.compute((4,), lambda i: te.if_then_else(n + 1 == 2, 1.0, 0.0))


def test_equal_indices_are_a_condition() -> None:
    eye = te.compute((4, 4), lambda i, j: te.if_then_else(i == j, 1.0, 0.0), name="eye")
    a = te.placeholder((4, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    rows = te.compute(
        (4,), lambda i: te.sum(tir.Select(k == i, 0.0, a[i, k] * eye(i, i)), axis=k), name="rows"
    )
    x = np.arange(16, dtype="float32").reshape(4, 4)
    found = nd.empty((4,))
    tvm.build(te.create_prim_func([a, rows]))(nd.array(x), found)
    np.testing.assert_array_equal(found.numpy(), x.sum(1) - x.diagonal())


def test_expressions_as_tvm_constructs_them() -> None:
    x = tir.Var("x", "int64")
    assert tir.Add(x, 1) == x + 1 and isinstance(x + 1, tir.Add)
    assert tir.IntImm("int32", 3).value == 3
    swap = tir.IndexMap.from_func(lambda i, j: (j, i))
    assert swap.map_indices([x, x + 1]) == [x + 1, x]


def test_newer_names_are_the_same_packages() -> None:
    from relaxlab.tvm.s_tir.schedule.schedule import Schedule

    from relaxlab.tvm import s_tir, tirx

    assert s_tir is tir and tirx is tir
    assert Schedule is tir.Schedule


def test_topi_applies_operators_to_tensor_expressions() -> None:
    a = te.placeholder((5, 7), name="A")
    w = te.placeholder((3, 7), name="W")
    b = te.placeholder((3,), name="b")
    out = topi.nn.softmax(topi.nn.relu(topi.nn.dense(a, w, b)), axis=-1)
    func = te.create_prim_func([a, w, b, out])
    rng = np.random.default_rng(2)
    x, y, z = (rng.standard_normal(s).astype("float32") for s in ((5, 7), (3, 7), (3,)))
    found = nd.empty((5, 3))
    tvm.build(func)(nd.array(x), nd.array(y), nd.array(z), found)
    e = np.exp(np.maximum(x @ y.T + z, 0))
    np.testing.assert_allclose(found.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_an_intrinsic_of_strided_buffers_gets_the_strides_of_those_given() -> None:
    @T.prim_func
    def desc(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4, 4), "float32", offset_factor=1)
        B = T.match_buffer(b, (4, 4), "float32", offset_factor=1)
        with T.block("root"):
            T.reads(A[0:4, 0:4])
            T.writes(B[0:4, 0:4])
            for i, j in T.grid(4, 4):
                with T.block("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]

    @T.prim_func
    def impl(a: T.handle, b: T.handle):
        sa = T.int32()
        sb = T.int32()
        A = T.match_buffer(a, (4, 4), "float32", offset_factor=1, strides=[sa, 1])
        B = T.match_buffer(b, (4, 4), "float32", offset_factor=1, strides=[sb, 1])
        with T.block("root"):
            T.reads(A[0:4, 0:4])
            T.writes(B[0:4, 0:4])
            for i, j in T.grid(4, 4):
                B[i, j] = A[i, j] + T.Cast("float32", sa * 100 + sb)

    @T.prim_func
    def copy(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
        for i, j in T.grid(8, 12):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    tir.TensorIntrin.register("test.copy_4x4", desc, impl)
    sch = tir.Schedule(copy)
    i, j = sch.get_loops("copy")
    (io, ii), (jo, ji) = sch.split(i, [None, 4]), sch.split(j, [None, 4])
    sch.reorder(io, jo, ii, ji)
    sch.tensorize(ii, "test.copy_4x4")
    out = nd.empty((8, 12))
    tvm.build(sch.mod)["copy"](nd.array(np.zeros((8, 12), "float32")), out)
    np.testing.assert_array_equal(out.numpy(), np.full((8, 12), 1212, "float32"))


def test_visits_and_substitutions() -> None:
    func = _matmul_relu()
    loops = []
    tir.stmt_functor.post_order_visit(
        func.body, lambda n: loops.append(n.loop_var.name) if isinstance(n, tir.For) else None
    )
    assert loops == ["r", "j", "i", "j", "i"]
    x, y = tir.Var("x", "int64"), tir.Var("y", "int64")
    assert tir.stmt_functor.substitute(x + 1, {x: y}) == y + 1


def test_an_analyzer_simplifies_and_proves() -> None:
    x = tir.Var("x", "int64")
    an = arith.Analyzer()
    an.bind(x, tvm.ir.Range(0, 10))
    assert an.simplify(x // 10) == 0 or an.can_prove_equal(x // 10, 0)
    assert an.can_prove(x < 10) and not an.can_prove(x < 9)
    assert an.const_int_bound(x * 2) == arith.ConstIntBound(0, 18)


def test_targets_as_texts_and_dictionaries() -> None:
    from relaxlab.tvm.target import Target

    assert Target("llvm -num-cores=2") == Target({"kind": "llvm", "num-cores": 2})
    assert Target("cuda -arch=sm_80").arch == "sm_80"
    with Target("cuda"):
        assert Target.current() == Target("cuda")
    with pytest.raises(ValueError, match="known"):
        Target("abacus")


def test_a_parameter_of_int32_may_be_a_dimension() -> None:
    @T.prim_func
    def fill(a: T.handle, n: T.int32, x: T.int32):
        A = T.match_buffer(a, (n, 4), "int32")
        for i, j in T.grid(n, 4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = n + x

    out = nd.empty((3, 4), "int32")
    tvm.build(fill)(out, 3, 5)
    np.testing.assert_array_equal(out.numpy(), np.full((3, 4), 8))


def test_tuning_searches_the_space_of_a_user(tmp_path: Path) -> None:
    """Functions have their names in the module, and the result is a schedule of that space."""

    def space(sch: tir.Schedule) -> None:
        block = sch.get_block("C", "product")
        _, j, _ = sch.get_loops(block)
        sch.split(j, factors=sch.sample_perfect_tile(j, n=2))

    mod = tvm.IRModule({"product": _matmul_relu()})
    database = ms.tune_tir(
        mod, "llvm -num-cores=1", work_dir=str(tmp_path), max_trials_global=8,
        space=ms.space_generator.ScheduleFn(space),
    )  # fmt: skip
    sch = ms.tir_integration.compile_tir(database, mod, "llvm -num-cores=1")
    assert len(sch.get_loops(sch.get_block("C"))) == 4
