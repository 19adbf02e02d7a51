"""differentiate: the functions that it adds, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.node import replace
from relaxlab.ops.gradients import NotDifferentiable
from relaxlab.passes.differentiate import differentiate
from relaxlab.passes.normalize import normalize
from relaxlab.passes.rename_functions import rename_functions
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
    class Middle:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((), "float32"):
            s = R.sum(R.median(x))
            return s

    with pytest.raises(NotDifferentiable, match=r"R\.median, .* has no gradient"):
        differentiate(normalize(Middle))


@I.ir_module
class Branches:
    @R.function(private=True)
    def scaled(
        x: R.Tensor(("n",), "float32"),
        pair: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((), "int64")),
    ) -> R.Tensor(("n",), "float32"):
        y = R.multiply(x, pair[0])
        return y

    @R.function
    def main(
        x: R.Tensor(("n",), "float32"), w: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((), "float32"):
        h = R.sin(x)
        if c:
            a = Branches.scaled(h, (w, R.const(1, "int64")))
            y = R.exp(Branches.scaled(a, (x, R.const(2, "int64"))))
        else:
            y = R.multiply(h, R.const(3.0))
        s = R.sum(R.multiply(y, w))
        return s


@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_that_was_taken_and_the_functions_it_calls(taken: bool) -> None:
    mod = differentiate(normalize(Branches))
    assert not check_well_formed(mod)
    assert sorted(mod) == ["main", "main_adjoint", "scaled", "scaled_pullback"]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3)).astype("float32")
    _, (by_x, by_w, _) = rl.compile(mod)["main_adjoint"](x, w, np.array(taken))
    sin, cos = np.sin(x), np.cos(x)
    y = np.exp(sin * w * x) if taken else 3 * sin
    slope = y * w * (cos * x + sin) if taken else 3 * cos
    np.testing.assert_allclose(by_x, slope * w, rtol=1e-4)
    np.testing.assert_allclose(by_w, y + w * (y * sin * x if taken else 0), rtol=1e-4)


def test_a_function_that_calls_itself() -> None:
    @I.ir_module
    class Powers:
        @R.function(private=True)
        def power(x: R.Tensor((), "float32"), k: R.Tensor((), "int64")) -> R.Tensor((), "float32"):
            if R.equal(k, R.const(0, "int64")):
                y = R.const(1.0)
            else:
                y = R.multiply(x, Powers.power(x, R.subtract(k, R.const(1, "int64"))))
            return y

        @R.function
        def main(x: R.Tensor((), "float32"), k: R.Tensor((), "int64")):
            y = Powers.power(x, k)
            return y

    exe = rl.compile(differentiate(normalize(Powers)))
    for k in (0, 1, 5):
        value, (by_x, _) = exe["main_adjoint"](np.float32(1.5), np.array(k))
        np.testing.assert_allclose((value, by_x), (1.5**k, k * 1.5 ** (k - 1)), rtol=1e-6)


def test_a_local_function_is_to_be_lifted_first() -> None:
    @I.ir_module
    class Local:
        @R.function
        def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
            @R.function
            def twice(a: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
                b = R.add(a, x)
                return b

            y = twice(x)
            return y

    with pytest.raises(NotDifferentiable, match="local function `twice`: make it a function of"):
        differentiate(normalize(Local))
    lifted = differentiate(rl.passes.lambda_lifting.lambda_lifting(normalize(Local)))
    assert float(rl.interpret(lifted, "main_adjoint", np.float32(3))[1][0]) == 2


def test_nothing_flows_back_through_integers() -> None:
    @I.ir_module
    class Rounded:
        @R.function
        def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
            i = R.astype(x, "int64")
            y = R.multiply(x, R.astype(i, "float32"))
            return y

    mod = differentiate(normalize(Rounded))
    assert float(rl.interpret(mod, "main_adjoint", np.float32(2.5))[1][0]) == 2


def test_a_function_of_tensors_whose_shape_is_not_known() -> None:
    @I.ir_module
    class Unknown:
        @R.function(private=True)
        def curve(x: R.Tensor(dtype="float32", ndim=1)) -> R.Tensor(dtype="float32", ndim=1):
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((), "float32"):
            y = R.match_cast(Unknown.curve(x), R.Tensor((2,), "float32"))
            s = R.sum(y)
            return s

    x = np.array([0, 1], np.float32)
    _, (by_x,) = rl.interpret(differentiate(normalize(Unknown)), "main_adjoint", x)
    np.testing.assert_allclose(by_x, np.exp(x), rtol=1e-5)


def test_attention_of_a_query_that_sees_no_key() -> None:
    @I.ir_module
    class Hidden:
        @R.function
        def main(
            q: R.Tensor((1, 2, 1, 2), "float32"), k: R.Tensor((1, 2, 1, 2), "float32"),
            v: R.Tensor((1, 2, 1, 2), "float32"), bias: R.Tensor((1, 1, 2, 2), "float32"),
        ) -> R.Tensor((), "float32"):
            s = R.sum(R.nn.attention_bias(q, k, v, bias))
            return s

    q, k, v = np.zeros((3, 1, 2, 1, 2), np.float32)
    bias = np.array([[[[-np.inf, -np.inf], [0, 0]]]], np.float32)
    mod = differentiate(normalize(Hidden))
    _, gradients = rl.interpret(mod, "main_adjoint", q, k, v, bias)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_allclose(gradients[2], np.full_like(v, 0.5))


def test_norms_of_half_precision_have_squares_in_float32() -> None:
    def of(dtype: str) -> rl.Module:
        text = f"""
@R.function
def main(
    x: R.Tensor((4,), "{dtype}"), w: R.Tensor((4,), "{dtype}"), b: R.Tensor((4,), "{dtype}")
):
    s = R.sum(R.multiply(R.nn.layer_norm(x, w, b, axes=[-1]), w))
    return s
"""
        return differentiate(normalize(rl.parse(text)))

    x, w = [600, -500, 0, 40], [1, 2, 3, 5]
    half, single = (
        rl.interpret(of(d), "main_adjoint", *(np.array(a, d) for a in (x, w, w)))[1]
        for d in ("float16", "float32")
    )
    assert half[0].any()
    for got, expected in zip(half, single, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-2, atol=1e-4)


def test_the_adjoint_has_a_symbol_of_its_own() -> None:
    mod = normalize(Network)
    main = mod.graph_functions()["main"]
    main = replace(main, attrs=main.attrs.with_(global_symbol="main"))
    made = rename_functions(differentiate(mod.with_functions({"main": main})))
    assert sorted(made) == ["main", "main_adjoint"]
