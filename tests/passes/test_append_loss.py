"""A loss behind a model."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.module import Module
from relaxlab.passes.append_loss import append_loss
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@R.function
def Squares(predictions: R.Tensor(("m", 2), "float32"), targets: R.Tensor(("m", 2), "float32")):
    with R.dataflow():
        d = R.subtract(predictions, targets)
        s = R.sum(R.multiply(d, d))
        R.output(s)
    return s


@I.ir_module
class Model:
    I.module_attrs({"kept": 1})

    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), state: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            new = R.add(state, R.sum(x, axis=[0]))
            R.output(y, new)
        return (y, new)


def test_results_that_are_no_predictions_stay() -> None:
    @I.ir_module
    class Expected:
        I.module_attrs({"kept": 1})

        @R.function
        def main(x: R.Tensor(("n", 2), "float32"), state: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = R.exp(x)
                new = R.add(state, R.sum(x, axis=[0]))
                R.output(y, new)
            return (y, new)

        @R.function
        def main_loss(
            x: R.Tensor(("n", 2), "float32"),
            state: R.Tensor((2,), "float32"),
            targets: R.Tensor(("n", 2), "float32"),
        ):
            with R.dataflow():
                y = R.exp(x)
                new = R.add(state, R.sum(x, axis=[0]))
                d = R.subtract(y, targets)
                s = R.sum(R.multiply(d, d))
                R.output(s, new)
            return (s, new)

    loss = normalize(Module.of({"loss": Squares}))["loss"]
    after = append_loss.with_options(loss=loss)(normalize(Model))
    assert rl.structural_equal(after, normalize(Expected))
    assert not check_well_formed(after)
    with pytest.raises(ValueError, match="has a function 'main_loss' already"):
        append_loss.with_options(loss=loss)(after)


def test_refused_losses() -> None:
    given = append_loss.with_options(loss=Squares)
    with pytest.raises(ValueError, match=r"returns 2 values, the loss takes 2, and 3 are to be"):
        given.with_options(outputs=3)(normalize(Model))
    with pytest.raises(ValueError, match=r"the loss takes `targets`"):
        given.with_options(outputs=2)(normalize(Model))
    with pytest.raises(ValueError, match="the body of `loss` has to be one dataflow block"):
        plain = normalize(Module.of({"main": _plain()}))["main"]
        append_loss.with_options(loss=plain)(normalize(Model))


def _plain() -> object:
    @R.function
    def loss(predictions: R.Tensor(("n", 2), "float32")):
        s = R.sum(predictions)
        return s

    return loss
