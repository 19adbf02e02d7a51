"""Products of quantised weights and activations that are quantised at run time."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.base import Pipeline
from relaxlab.passes.normalize import normalize
from relaxlab.passes.quantize_activations import quantize_activations
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_module, check_pass


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("b", "n", 64), "float32"),
        bias: R.Tensor((6,), "float32"),
        vd: R.Tensor((6, 2), "float16"),
        vq: R.Tensor((6, 2, 32), "int8"),
        wd: R.Tensor((64, 2), "float16"),
        wq: R.Tensor((64, 2, 32), "int8"),
    ):
        with R.dataflow():
            w = R.decode_blocks((wd, wq), format="Q8_0")
            v = R.decode_blocks((vd, vq), format="Q8_0")
            y = R.linear(x, w)
            z = R.linear(x, v, bias)
            u = R.matmul(R.nn.relu(y), R.permute_dims(w))
            R.output(z, u)
        return (z, u)


def test_before_and_after() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("b", "n", 64), "float32"),
            bias: R.Tensor((6,), "float32"),
            vd: R.Tensor((6, 2), "float16"),
            vq: R.Tensor((6, 2, 32), "int8"),
            wd: R.Tensor((64, 2), "float16"),
            wq: R.Tensor((64, 2, 32), "int8"),
        ):
            with R.dataflow():
                rows = R.reshape(x, (b * n, 64))  # noqa: F821
                q = R.dynamic_quantize(rows, group=32, parts=1)
                y2 = R.quantized_linear(q[0], q[1], q[2], (wd, wq), format="Q8_0", parts=1)
                y = R.reshape(y2, (b, n, 64))  # noqa: F821
                fine = R.dynamic_quantize(rows, group=32, parts=2)
                z2 = R.quantized_linear(fine[0], fine[1], fine[2], (vd, vq), format="Q8_0", parts=2)
                z = R.add(R.reshape(z2, (b, n, 6)), bias)  # noqa: F821
                relu = R.reshape(R.nn.relu(y), (b * n, 64))  # noqa: F821
                last = R.dynamic_quantize(relu, group=32, parts=2)
                u2 = R.quantized_linear(last[0], last[1], last[2], (wd, wq), format="Q8_0", parts=2)
                u = R.reshape(u2, (b, n, 64))  # noqa: F821
                R.output(z, u)
            return (z, u)

    check_pass(quantize_activations, Layer, Expected, compare=False)


def arguments(rng: np.random.Generator) -> list[np.ndarray]:
    def blocks(rows: int) -> list[np.ndarray]:
        scales = rng.uniform(0.01, 0.02, (rows, 2)).astype("float16")
        return [scales, rng.integers(-127, 128, (rows, 2, 32)).astype("int8")]

    x, bias = (rng.standard_normal(s).astype("float32") for s in ((2, 3, 64), (6,)))
    return [x, bias, *blocks(6), *blocks(64)]


@pytest.mark.parametrize(("parts", "error"), [(1, 0.02), (2, 2e-4)])
def test_results_change_by_the_rounding_of_activations(
    parts: int, error: float, rng: np.random.Generator
) -> None:
    quantize = quantize_activations.with_options(parts=parts, results=parts)
    after = quantize(normalize(Layer))
    args = arguments(rng)
    exact, rounded = interpret(Layer, "main", *args), interpret(after, "main", *args)
    compiled = rl.compile(after)["main"](*args)
    for want, got, fast in zip(exact, rounded, compiled, strict=True):
        scale = np.abs(want).max()
        assert 0 < np.abs(got - want).max() < error * scale
        # What is compiled rounds like the interpreter but for halves.
        assert np.abs(fast - got).max() < error / 4 * scale


def test_products_that_stay_and_reasons() -> None:
    @I.ir_module
    class Other:
        @R.function
        def main(
            x: R.Tensor(("n", 64), "float32"),
            v: R.Tensor((64,), "float32"),
            w: R.Tensor((6, 64), "float32"),
            whole: R.Tensor((6, 2, 34), "uint8"),
            d: R.Tensor((6, 2), "float16"),
            q: R.Tensor((6, 2, 32), "int8"),
        ):
            with R.dataflow():
                plain = R.linear(x, w)
                a = R.linear(x, R.decode_blocks((whole,), format="Q8_0"))
                blocks = R.decode_blocks((d, q), format="Q8_0")
                b = R.linear(x, blocks, out_dtype="float32")
                c = R.linear(v, blocks)
                R.output(plain, a, b, c)
            return (plain, a, b, c)

    start = normalize(Other)
    after = quantize_activations(start)
    assert after is start
    check_module(quantize_activations, start, after)
    (record,) = Pipeline((quantize_activations,)).run(start).passes
    assert {w.subject: w.reason for w in record.remarks if not w.applied} == {
        "main.a": "its weight is stored in whole blocks, not in fields",
        "main.b": "its result is stated to be float32",
        "main.c": "the activations are no matrix of known shape",
    }
    with pytest.raises(ValueError, match="parts and results are 1 or 2, not 3 and 2"):
        quantize_activations.with_options(parts=3)(start)
