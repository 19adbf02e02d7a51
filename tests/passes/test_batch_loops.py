"""The loop function of a batch computes, row by row, what that of one instance does."""

import numpy as np
import pytest

from relaxlab.analysis.loops_check import check_loops
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.passes.batch_loops import (
    CannotBatch,
    batch_loops,
    copy_rows,
    gather_rows,
    kept_dims,
    repeat_rows,
)
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.programs import written_buffers
from relaxlab.script import parse

CALLS = [  # types of x and y, a call, and which of x and y differ between instances
    ("(1, 6)", "(6, 4)", "R.matmul(x, y)", "x"),
    ("(1, 6)", "(6, 4)", "R.matmul(x, y)", "xy"),
    ("(3, 6)", "(6, 4)", "R.matmul(x, y)", "x"),
    ("(3, 6)", "(6, 4)", "R.matmul(x, y)", "y"),
    ("(1, 6)", "(6,)", "R.add(x, y)", "x"),
    ("(2, 1)", "(1, 3)", "R.multiply(x, y)", "xy"),
    ("(1, 5)", "(1, 5)", "R.concat((x, y), axis=0)", "xy"),
    ("(1, 6)", "(6,)", "R.split(x, 3, axis=1)[1]", "x"),
    ("(2, 7)", "(7,)", "R.nn.softmax(x, axis=1)", "x"),
    ("(1, 7)", "(7,)", "R.nn.rms_norm(x, y, axes=-1)", "x"),
    ("(2, 3)", "(3,)", "R.permute_dims(x)", "x"),
    ("(2, 3)", "(3,)", "R.sum(x)", "x"),
    ("(4, 3)", "(3,)", "R.cumsum(x, axis=0)", "x"),
]


def kernel(x, y, call):
    text = f"""
@R.function
def main(x: R.Tensor({x}, "float32"), y: R.Tensor({y}, "float32")):
    z = {call}
    return z
"""
    mod = legalize_ops(normalize(parse(text)))
    (func,) = mod.loop_functions().values()
    return func


def run(func, arrays):
    interpret(Module.of({"f": func}), "f", *arrays)


def shape_of(buffer):
    return tuple(d.value for d in buffer.shape)


@pytest.mark.parametrize(("x", "y", "call", "differing"), CALLS)
def test_rows_are_what_each_instance_gives(x, y, call, differing):
    func, rng, count = kernel(x, y, call), np.random.default_rng(0), 3
    outputs = written_buffers(func)
    inputs = [b for b in func.buffers if b not in outputs]
    named = dict(zip(inputs, "xy", strict=False))
    mask = [b in outputs or named[b] in differing for b in func.buffers]
    batched = batch_loops(func, mask)
    assert not check_loops("f", batched)
    arrays = []
    for b, many in zip(func.buffers, mask, strict=True):
        kept = tuple(shape_of(b)[i] for i in kept_dims(b.shape))
        made = rng.standard_normal((count, *kept) if many else shape_of(b))
        arrays.append(made.astype(numpy_dtype(b.dtype)))
    given = [a.copy() for a in arrays]
    run(batched, arrays)
    for v in range(count):
        one = [
            np.array(a[v].reshape(shape_of(b))) if many else a.copy()
            for a, b, many in zip(given, func.buffers, mask, strict=True)
        ]
        run(func, one)
        for a, b, expected in zip(arrays, func.buffers, one, strict=True):
            if b in outputs:
                np.testing.assert_allclose(a[v].reshape(expected.shape), expected, rtol=1e-5)


def test_a_row_per_instance_is_a_product_of_rows():
    batched = batch_loops(kernel("(1, 6)", "(6, 4)", "R.matmul(x, y)"), [True, False, True])
    rows, columns, out = (b.shape for b in batched.buffers)
    assert len(rows) == len(columns) == len(out) == 2 and rows[0] is out[0]


def test_what_a_condition_on_an_instance_decides_is_batched():
    text = """
@T.prim_func
def f(x: T.Buffer((1,), "float32"), y: T.Buffer((1,), "float32")):
    t = T.alloc_buffer((1,), "float32")
    t[0] = T.float32(1)
    if x[0] > T.float32(0):
        t[0] = T.float32(2)
    y[0] = t[0]
"""
    func = parse(text)["f"]
    x, y = np.array([-1, 1, 3], "float32"), np.zeros(3, "float32")
    run(batch_loops(func, [True, True]), [x, y])
    assert y.tolist() == [1, 2, 2]


def test_strides_are_refused():
    x = loops.Buffer("x", (expr.const(4),), strides=(expr.const(2),))
    y = loops.Buffer("y", (expr.const(4),))
    store = loops.BufferStore(y, loops.BufferLoad(x, (expr.const(0),)), (expr.const(0),))
    with pytest.raises(CannotBatch, match="`x` has strides"):
        batch_loops(loops.PrimFunc((x, y), store), [True, True])


def test_rows_are_gathered_repeated_and_copied():
    shape = tuple(map(expr.const, (1, 2, 3)))
    arena, at = np.arange(20, dtype="float32"), np.array([14, 0, 3])
    rows = np.zeros((3, 2, 3), "float32")
    run(gather_rows(shape, "float32"), [arena, at, rows])
    np.testing.assert_array_equal(rows, [arena[i : i + 6].reshape(2, 3) for i in at])
    value = np.arange(6, dtype="float32").reshape(1, 2, 3)
    run(repeat_rows(shape, "float32"), [value, at, rows])
    np.testing.assert_array_equal(rows, np.repeat(value, 3, 0))
    copied = np.zeros_like(rows)
    run(copy_rows(shape[1:], "float32"), [rows, copied])
    np.testing.assert_array_equal(copied, rows)
