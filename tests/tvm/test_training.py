"""Training under TVM's names: the loss goes down, wrong use is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax.training import AppendLoss, SetupTrainer, Trainer, loss, optimizer
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R


@I.ir_module
class Model:
    I.module_attrs({"param_num": 2, "state_num": 1})

    @R.function
    def backbone(
        x: R.Tensor((1, 3), "float32"),
        w: R.Tensor((3, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        count: R.Tensor((), "float32"),
    ):
        with R.dataflow():
            y = R.add(R.matmul(x, w), b)
            new = R.add(count, R.const(1, "float32"))
            R.output(y, new)
        return (y, new)


@pytest.mark.parametrize(
    "by",
    [
        optimizer.SGD(0.01),
        optimizer.MomentumSGD(0.01, 0.5, 0.1, 0.001, nesterov=True),
        optimizer.Adam(0.1),
    ],
    ids=lambda by: by.name,
)
def test_a_model_is_trained(by: Any) -> None:
    np.random.seed(0)
    ty = relax.TensorType((1, 4), "float32")
    mod = SetupTrainer(loss.MSELoss("sum"), by, [ty, ty])(Model)
    vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    trainer = Trainer(mod, vm, tvm.cpu())
    trainer.xaiver_uniform_init_params()
    x, y = np.float32([[1, 2, 3]]), np.float32([[1, 2, 3, 4]])
    losses = [float(trainer.update(x, y).numpy()) for _ in range(12)]
    assert losses[-1] < losses[0] / 4
    assert float(trainer.export_states()["count"].numpy()) == 12
    trainer.load_params({"b": y[0], "w": np.zeros((3, 4), "float32")})
    np.testing.assert_array_equal(trainer.predict(x).numpy(), y)
    with pytest.raises(ValueError, match="parameter 'v' is not among: w, b"):
        trainer.load_params({"v": y})
    with pytest.raises(ValueError, match="a list of 2 parameters, is expected"):
        trainer.load_params([y])
    with pytest.raises(ValueError, match="the model takes 1 inputs, got 2"):
        trainer.predict(x, x)


def test_values_that_are_missing() -> None:
    ty = relax.TensorType((1, 4), "float32")
    mod = SetupTrainer(loss.L1Loss(), optimizer.SGD(0.1), [ty, ty], legalize=False)(Model)
    trainer = Trainer(mod, None, tvm.cpu(), False)
    with pytest.raises(RuntimeError, match="parameter 'w' has no value yet"):
        trainer.predict(np.zeros((1, 3), "float32"))
    with pytest.raises(ValueError, match="the module needs an integer attribute 'param_num'"):
        SetupTrainer(loss.L1Loss(), optimizer.SGD(0.1), [ty, ty])(Model.without_attr("param_num"))
    with pytest.raises(RuntimeError, match=r"call init\(\)"):
        optimizer.SGD(0.1).get_function()


def _text(make: Any, ty: str, **options: Any) -> str:
    x = relax.TensorType((3, 5), "float32")
    y = relax.TensorType((3,) if ty == "classes" else (3, 5), "int64")
    y = x if ty == "floats" else y
    return make(**options)(x, y).script(show_meta=False)


def test_losses() -> None:
    assert "R.mean" in _text(loss.MSELoss, "floats")
    assert "R.nn.nll_loss" in _text(loss.CrossEntropyLoss, "classes", reduction="sum")
    assert "R.nll_loss" not in _text(loss.CategoricalCrossEntropyLoss, "vectors")
    assert "R.argmax" in _text(loss.CategoricalCrossEntropyLoss, "vectors", ignore_index=2)
    with pytest.raises(ValueError, match="reduction 'most'; known: mean, sum, none"):
        loss.L1Loss("most")
    with pytest.raises(TypeError, match="one-hot vectors of integers, not of float32"):
        _text(loss.CategoricalCrossEntropyLoss, "floats")


def test_a_loss_behind_a_model() -> None:
    ty = relax.TensorType((1, 4), "float32")
    after = AppendLoss("backbone", loss.L1Loss("sum")(ty, ty), new_func_name="both")(Model)
    assert [p.name for p in after["both"].params] == ["x", "w", "b", "count", "targets"]
    assert rl.structural_equal(after["backbone"], Model["backbone"])
