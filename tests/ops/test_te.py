"""Tensor expressions: the loop functions they become."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import expr, loops
from relaxlab.ir.node import walk
from relaxlab.ops import te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

N, M, K = (expr.Var(name) for name in "nmk")


def _blocks(func: loops.PrimFunc) -> dict[str, loops.Block]:
    return {b.name: b for b in walk(func.body) if isinstance(b, loops.Block)}


def _matmul_then_add() -> loops.PrimFunc:
    a = te.placeholder((N, K), "float32", "A")
    b = te.placeholder((K, M), "float32", "B")
    k = te.reduce_axis(K, "k")
    c = te.compute((N, M), lambda i, j: te.te_sum(a[i, k.var] * b[k.var, j], k), "C")
    d = te.compute((N, M), lambda i, j: c[i, j] + 1.0, "D")
    return te.create_prim_func([a, b, d])


def test_stages_become_blocks_and_intermediates_are_allocated_in_the_root() -> None:
    func = _matmul_then_add()
    blocks = _blocks(func)
    assert list(blocks) == ["root", "C", "D"]
    assert [b.name for b in blocks["root"].alloc_buffers] == ["C"]
    assert [p.name for p in func.params] == ["A", "B", "D"]
    product = blocks["C"]
    assert [v.var.name for v in product.iter_vars] == ["vi", "vj", "vk"]
    assert [v.kind for v in product.iter_vars] == ["spatial", "spatial", "reduce"]
    assert product.init is not None
    assert [r.buffer.name for r in product.reads] == ["A", "B"]
    assert [w.buffer.name for w in product.writes] == ["C"]


def test_result() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    a, b = a.astype(np.float32), b.astype(np.float32)
    out = np.empty((3, 5), np.float32)
    interpret_prim_func(_matmul_then_add(), [a, b, out])
    np.testing.assert_allclose(out, a @ b + 1, rtol=1e-5)


def test_symbols_that_no_shape_binds_become_parameters_at_the_end() -> None:
    x = te.placeholder((N + 1,), "float32", "x")
    y = te.compute((N + 1,), lambda i: x[i] * 2.0, "y")
    assert te.create_prim_func([x, y]).params[-1] is N
    z = te.compute((N,), lambda i: x[i + M], "z")
    func = te.create_prim_func([x, z])
    assert func.params[2:] == (M,)
    out = np.empty(3, np.float32)
    interpret_prim_func(func, [np.arange(4, dtype=np.float32), out, 1])
    assert out.tolist() == [1, 2, 3]


def test_a_scalar_result_keeps_one_axis() -> None:
    block = _blocks(te.create_prim_func([te.compute((), lambda: expr.const(1.0), "y")]))["y"]
    assert len(block.iter_vars) == 1


def test_a_tuple_reduction_writes_both_results() -> None:
    x = te.placeholder((N, M), "float32", "x")
    r = te.reduce_axis(M, "r")
    value, index = te.compute_many(
        (N,), lambda i: te.Reduce(te.ARGMAX, (x[i, r.var], r.var), (r,)), ("value", "index"), "top"
    )
    func = te.create_prim_func([x, value, index])
    data = np.array([[1, 5, 5], [7, 2, np.nan]], np.float32)
    values, indices = np.empty(2, np.float32), np.empty(2, np.int64)
    interpret_prim_func(func, [data, values, indices])
    assert indices.tolist() == data.argmax(1).tolist()
    np.testing.assert_array_equal(values, data.max(1))


def test_an_index_that_is_data_reads_the_whole_dimension() -> None:
    table = te.placeholder((N, M), "float32", "table")
    rows = te.placeholder((K,), "int64", "rows")
    y = te.compute((K, M), lambda i, j: table[rows[i], j], "y")
    region = _blocks(te.create_prim_func([table, rows, y]))["y"].reads[0].region
    assert (region[0].extent, region[1].extent) == (N, expr.const(1))


def test_names_are_unique() -> None:
    x = te.placeholder((N,), "float32", "x")
    y = te.compute((N,), lambda i: x[i] + 1.0, "x")
    z = te.compute((N,), lambda i: y[i] + 1.0, "x")
    func = te.create_prim_func([x, z])
    names = [b.name for b in func.buffers] + [b.name for b in _blocks(func)["root"].alloc_buffers]
    assert len(set(names)) == 3
    assert set(_blocks(func)) == {"root", "x", "x_1"}


def test_errors_name_the_tensor() -> None:
    x = te.placeholder((N, M), "float32", "table")
    with pytest.raises(ValueError, match="table has 2 dimensions, indexed with 1"):
        _ = x[0]
    y = te.compute((N,), lambda i: x[i, 0], "first")
    with pytest.raises(ValueError, match="first reads table, which is not a parameter"):
        te.create_prim_func([y])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "bool"])
def test_identities_of_max_and_min(dtype: str) -> None:
    low, high = expr.lowest(dtype), expr.highest(dtype)
    if dtype == "bool":
        assert (low, high) == (expr.const(False), expr.const(True))
    elif dtype == "float32":
        assert (str(low), str(high)) == ("-inf", "inf")
    else:
        info = np.iinfo(dtype)
        assert (low, high) == (expr.const(info.min, dtype), expr.const(info.max, dtype))


def test_the_function_of_an_element_takes_as_many_indices_as_there_are_dimensions() -> None:
    with pytest.raises(ValueError, match="'y' takes 1 index, and its shape has 2 dimensions"):
        te.compute((N, M), lambda i: 1.0, "y")


def test_a_float_is_no_index() -> None:
    x = te.placeholder((N,), "float32", "x")
    with pytest.raises(TypeError, match="an index of x is float32, and indices are integers"):
        te.compute((N,), lambda i: x[x[i]], "y")
