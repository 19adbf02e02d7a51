"""Operators without loops, in whole programs: interpreted, stepped and native."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.errors import UserError
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.packed import register_func
from relaxlab.runtime.vm.vm import VirtualMachine

HEADER = """
@I.ir_module
class Module:
"""
X = np.arange(12, dtype=np.float32).reshape(6, 2)


def native(text: str, *args: Any) -> Any:
    return rl.compile(rl.parse(HEADER + text), use_cache=False)["main"](*args)


def stepped(text: str, *args: Any) -> Any:
    lowered = cpu_pipeline(Target.host()).run(rl.parse(HEADER + text)).result
    return VirtualMachine(lower_shapes(lowered)).run("main", *args)


def interpreted(text: str, *args: Any) -> Any:
    return rl.interpret(rl.parse(HEADER + text), "main", *args)


Run = Callable[..., Any]
EVERYWHERE = pytest.mark.parametrize("run", [native, stepped, interpreted])


@EVERYWHERE
def test_properties_of_tensors(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(dtype="bfloat16", ndim=3)):
        a = R.inspect.tensor_shape_i(x, R.prim_value(0))
        b = R.inspect.tensor_shape_i(y, R.prim_value(2))
        c = R.inspect.tensor_stride_i(y, R.prim_value(0))
        d = R.inspect.tensor_ndim(y)
        e = R.inspect.tensor_dtype_code(y)
        f = R.inspect.tensor_dtype_bits(y)
        g = R.inspect.tensor_dtype_lanes(x)
        h = R.inspect.tensor_byte_offset(x)
        i = R.inspect.tensor_elem_offset(x)
        return (a, b, c, d, e, f, g, h, i)
"""
    y = np.zeros((2, 3, 5), rl.ir.dtypes.numpy_dtype("bfloat16"))
    assert [int(v) for v in run(text, X, y)] == [6, 5, 15, 3, 4, 16, 1, 0, 0]


@EVERYWHERE
def test_views_read_the_bytes(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        a = R.memory.view(x, R.shape([n, 1]), R.dtype("int32"), R.prim_value(4))
        b = R.memory.ensure_zero_offset(x)
        return (a, b)
"""
    view, same = run(text, X)
    np.testing.assert_array_equal(view, X.reshape(-1).view(np.int32)[1:7].reshape(6, 1))
    np.testing.assert_array_equal(same, X)


@pytest.mark.parametrize(
    ("bounds", "cut"),
    [
        ("[0, 1], [5, -1], [2, 1]", np.s_[0:5:2, 1:-1]),
        ("[5, 0], [0, 2], [-2, 1]", np.s_[5:0:-2, 0:2]),
        ("[-1, 0], [-9, 9], [-1, 1]", np.s_[::-1, :]),
    ],
)
@EVERYWHERE
def test_slices_with_bounds_that_are_data(run: Run, bounds: str, cut: Any) -> None:
    begin, end, strides = (f"R.const([{b.strip('[] ')}], 'int64')" for b in bounds.split("], "))
    text = f"""
    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), b: R.Tensor((2,), "int64")):
        y = R.dynamic_strided_slice(x, R.add(b, {begin}), {end}, {strides})
        return y
"""
    np.testing.assert_array_equal(run(text, X, np.zeros(2, np.int64)), X[cut])


@pytest.mark.parametrize("run", [stepped, interpreted])
def test_the_size_of_a_tensor_of_any_rank(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(dtype="float32")):
        y = R.size(x)
        return y
"""
    assert run(text, X) == 12


@pytest.mark.parametrize("run", [stepped, interpreted])
def test_closures_keep_their_arguments(run: Run) -> None:
    text = """
    @R.function
    def mix(a: R.Tensor(("n",), "float32"), b: R.Tensor(("n",), "float32"),
            c: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.subtract(R.multiply(a, b), c)

    @R.function
    def main(x: R.Tensor(("n",), "float32"),
             y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        f = R.make_closure(Module.mix, (x,))
        return R.invoke_pure_closure(f, (y, x), ty_args=R.Tensor((n,), "float32"))
"""
    x, y = X[0], X[3]
    np.testing.assert_array_equal(run(text, x, y), x * y - x)


def test_an_absent_value() -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        y = R.null_value()
        return (x, y)
"""
    assert interpreted(text, X[0])[1] is None


@EVERYWHERE
def test_several_results_of_an_operator_without_loops(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "int64")):
        m = T.int64()
        u = R.unique(x, return_index=True, return_inverse=True, return_counts=True)
        v = R.match_cast(u[0], R.Tensor((m,), "int64"))
        return R.add(v, v), u[1], u[2], u[3]
"""
    x = np.array([3, 1, 3, 2, 1])
    twice, index, inverse, counts = run(text, x)
    values, *others = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(twice, 2 * values)
    for got, want in zip((index, inverse, counts), others, strict=True):
        np.testing.assert_array_equal(got, want)


@EVERYWHERE
def test_suppression_of_boxes(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("b", "n", 6), "float32")):
        valid = R.vision.get_valid_counts(x, 0.2)
        found = R.vision.non_max_suppression(valid[1], valid[0], valid[2], iou_threshold=0.4)
        return valid[0], found[0], found[1]
"""
    boxes = np.array([[  # class, score, and corners
        [0, 0.5, 0, 0, 2, 2], [0, 0.9, 0, 0, 2, 1.9], [1, 0.8, 0, 0, 2, 2], [0, 0.1, 5, 5, 6, 6],
        [-1, 0.7, 5, 5, 6, 6], [0, 0.3, 1.9, 1.9, 4, 4],
    ]], np.float32)  # fmt: skip
    counts, kept, number = run(text, boxes)
    assert (list(counts), list(kept[0]), number) == ([4], [1, 2, 5, -1, -1, -1], [[3]])


def test_several_workers_are_refused() -> None:
    text = """
    @R.function
    def main(x: R.Tensor((4, 2), "float32")):
        return R.ccl.allgather(x, 2)
"""
    for run in (native, interpreted):
        with pytest.raises(UserError, match="needs 2 workers, and a program runs in one"):
            run(text, X[:4])


@pytest.mark.parametrize("run", [native, stepped])
def test_a_packed_function_that_returns_too_few_results(run: Run) -> None:
    register_func("tests.too_few", lambda x: (x,))
    text = """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        t = R.call_pure_packed(
            "tests.too_few", x,
            ty_args=R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        )
        return t[1]
"""
    with pytest.raises(Exception, match="1 fields, expected 2|must be a tuple of 2 values"):
        run(text, np.ones(4, "float32"))
