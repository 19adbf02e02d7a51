"""Reductions of arrays without elements, through all executors, by every rule and without rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES, cpu_pipeline
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Reductions:
    @R.function
    def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", "m"), "float32")):
        with R.dataflow():
            a = R.sum(x, axis=[1])
            b = R.max(x, axis=[1])
            c = R.mean(x, axis=[1])
            d = R.matmul(x, w)
            e = R.nn.softmax(x, axis=-1)
            f = R.sum(x, axis=[0])
            g = R.sum(x)
            h = R.prod(x, axis=[0, 1])
            i = R.min(x, axis=[0])
            j = R.variance(x, axis=[1])
            k = R.nn.relu(R.add(R.matmul(R.exp(x), w), R.sum(w, axis=[0])))
            q = R.sum(R.astype(x, "int32"), axis=[1])
            R.output(a, b, c, d, e, f, g, h, i, j, k, q)
        return (a, b, c, d, e, f, g, h, i, j, k, q)


@np.errstate(all="ignore")
def expected(x: Any, w: Any) -> list[Any]:
    inf = np.float32(np.inf)
    high = x.max(1, keepdims=True, initial=-inf)
    e = np.exp(x - high)
    count = np.float32(x.shape[1])
    mean = x.sum(1) / count
    return [
        x.sum(1), high[:, 0], mean, x @ w, e / e.sum(1, keepdims=True), x.sum(0), x.sum(),
        x.prod(), x.min(0, initial=inf), np.square(x - mean[:, None]).sum(1) / count,
        np.maximum(np.exp(x) @ w + w.sum(0), 0), x.astype("int32").sum(1, dtype="int32"),
    ]  # fmt: skip


def runner(name: str) -> Any:
    if name == "interpreter":
        return lambda *args: rl.interpret(Reductions, "main", *args)
    unscheduled = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES))
    passes = unscheduled if "unscheduled" in name else cpu_pipeline()
    if "native" in name:
        return rl.compile(Reductions, pipeline=passes)["main"]
    vm = VirtualMachine(lower_shapes(passes.run(Reductions).result))
    return lambda *args: vm.run("main", *args)


EXECUTORS = ["interpreter", "unscheduled vm", "vm", "unscheduled native", "native"]
SIZES = [(3, 0, 4), (0, 0, 0), (0, 5, 3), (3, 5, 0), (1, 0, 1), (17, 0, 33), (4, 40, 6)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_executors_agree_with_numpy(executor: str) -> None:
    run = runner(executor)
    for n, k, m in SIZES:
        rng = np.random.default_rng(n + k + m)
        x, w = (rng.standard_normal(s).astype("float32") for s in ((n, k), (k, m)))
        for got, want in zip(run(x, w), expected(x, w), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=f"{n}, {k}, {m}")


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("op", ["sum", "max", "mean", "variance", "std", "prod"])
def test_an_extent_of_zero_and_bounded_symbols(op: str, axis: int) -> None:
    shape: list[str | int] = ["m", "k"]
    shape.insert(axis, 0)
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor({tuple(shape)}, "float32")):
    R.func_attr({{"tir_var_upper_bound": {{"m": 33, "k": 17}}}})
    with R.dataflow():
        y = R.{op}(x, axis={axis})
        R.output(y)
    return y
""")
    x = np.zeros(np.insert([33, 17], axis, 0), "float32")
    with np.errstate(all="ignore"):
        want = rl.interpret(mod, "main", x)
    np.testing.assert_array_equal(rl.compile(mod)(x), want)


@pytest.mark.parametrize("call", ["sort(x, axis=-1)", "renormalize_top_p_top_k(x, p, k)"])
def test_rows_that_are_known_to_be_empty(call: str) -> None:
    """Loops over their elements have nothing in them."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((3, 0), "float32"), p: R.Tensor((3, 1), "float32"),
         k: R.Tensor((3, 1), "int64")):
    return R.{call}
""")
    x, ones = np.zeros((3, 0), "float32"), np.ones((3, 1))
    assert rl.compile(mod)(x, ones.astype("float32"), ones.astype("int64")).shape == (3, 0)


@pytest.mark.parametrize("shape", ["(k, d * d, 128, 1)", "(1, k, 1)", "(k, 1)", "(1, 1, k)"])
def test_axes_of_one_element_beside_empty_ones(shape: str) -> None:
    """A loop over the only result was taken for that of such an axis, and the sum was refused."""
    mod = rl.parse(f"""
@R.function
def main(v: R.Tensor(("d",), "float32"), x: R.Tensor({shape.replace("k", '"k"', 1)}, "float32")):
    return R.clip(R.sum(x, keepdims=True), min=-2.0, max=1e4)
""")
    main = rl.compile(mod)["main"]
    for k in (0, 1, 3):
        dims: tuple[int, ...] = eval(shape, {"k": k, "d": 2})
        found = main(np.zeros(2, "float32"), np.ones(dims, "float32"))
        np.testing.assert_array_equal(found, np.full((1,) * len(dims), np.prod(dims)))
