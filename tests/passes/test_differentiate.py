"""differentiate: the functions that it adds, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ops.gradients import NotDifferentiable
from relaxlab.passes.differentiate import differentiate
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Network:
    @R.function
    def main(
        x: R.Tensor(("n", 10), "float32"),
        w: R.Tensor((10, 5), "float32"),
        b: R.Tensor((5,), "float32"),
        t: R.Tensor(("n",), "int64"),
    ):
        with R.dataflow():
            pair = (R.add(R.matmul(x, w), b), x)
            unread = R.exp(b)
            h = R.nn.log_softmax(R.nn.gelu(pair[0]))
            loss = R.nn.nll_loss(h, t)
            R.output(loss, h)
        return (loss, h)


def test_the_gradient_of_a_network_with_a_symbolic_batch() -> None:
    mod = differentiate(normalize(Network))
    assert not check_well_formed(mod)
    assert sorted(mod) == ["main", "main_adjoint"]
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((3, 10), (10, 5), (5,)))
    t = np.array([0, 4, 2])
    exe = rl.compile(mod)
    (loss, _), gradients = exe["main_adjoint"](x, w, b, t)
    np.testing.assert_allclose(loss, exe["main"](x, w, b, t)[0], rtol=1e-5)
    assert [g.shape for g in gradients] == [(3, 10), (10, 5), (5,), (3,)]
    for i, of in enumerate((x, w, b)):
        direction = rng.standard_normal(of.shape).astype("float32")
        ahead, behind = ([x, w, b, t] for _ in range(2))
        ahead[i], behind[i] = of + 1e-2 * direction, of - 1e-2 * direction
        slope = (exe["main"](*ahead)[0] - exe["main"](*behind)[0]) / 2e-2
        assert float(np.sum(gradients[i] * direction)) == pytest.approx(float(slope), abs=1e-2)


def test_by_which_variables_and_which_result() -> None:
    @I.ir_module
    class Sums:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                z = R.multiply(x, y)
                a = R.sum(x)
                b = R.sum(R.multiply(z, z))
                R.output(a, b)
            return (a, b)

    mod = differentiate.with_options(by=("z", "x"), target=1)(normalize(Sums))
    x, y = np.array([1, 2], "float32"), np.array([3, 4], "float32")
    _, (by_z, by_x) = rl.interpret(mod, "main_adjoint", x, y)
    np.testing.assert_allclose(by_z, 2 * x * y)
    np.testing.assert_allclose(by_x, 2 * x * y * y)


def test_what_is_refused() -> None:
    network = normalize(Network)
    for options, text in (
        ({"by": ("q",)}, "`main` has no variable `q`"),
        ({"target": 2}, "there is no result 2, there are 2"),
        ({"target": 1}, "must be a scalar tensor of floats"),
    ):
        with pytest.raises(ValueError, match=text):
            differentiate.with_options(**options)(network)

    @I.ir_module
    class Calls:
        @R.function(private=True)
        def square(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y = R.multiply(x, x)
            return y

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((), "float32"):
            s = R.sum(Calls.square(x))
            return s

        @R.function
        def sorted(x: R.Tensor((2,), "float32")) -> R.Tensor((), "float32"):
            s = R.sum(R.sort(x))
            return s

    with pytest.raises(NotDifferentiable, match="a call of `square`: inline it first"):
        differentiate(normalize(Calls))
    with pytest.raises(NotDifferentiable, match=r"R\.sort, .* has no gradient"):
        differentiate.with_options(function="sorted")(normalize(Calls))
