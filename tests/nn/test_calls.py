"""Layers and programs called with arrays, as users of PyTorch try first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.runtime.native.arguments import ArgumentError


@pytest.mark.parametrize("model", [nn.Linear(4, 8), nn.Sequential(nn.Linear(4, 8), nn.ReLU())])
def test_layers_say_that_they_are_exported_before_they_run(model: nn.Module) -> None:
    with pytest.raises(TypeError, match=r"tensors instead of arrays\. Export and compile"):
        model(np.zeros((2, 4), "float32"))
    mod, _ = model.export({"forward": {"x": nn.spec.Tensor(("n", 4), "float32")}})
    assert rl.compile(mod).load(model.state_dict())(np.zeros((2, 4), "float32")).shape == (2, 8)


def test_a_module_is_compiled_before_it_is_called() -> None:
    mod = rl.parse(
        """
@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.exp(x)
"""
    )
    with pytest.raises(TypeError, match=r"Layer is a program: .*`rl.compile\(Layer\)\(\.\.\.\)`"):
        mod(np.zeros(4, "float32"))


class Odd(nn.Module):
    """A model whose method is given."""

    def __init__(self, forward: Any) -> None:
        self.layer, self.method = nn.Linear(4, 4), forward

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.method(self, x)


def exported(forward: Any, spec: Any) -> rl.Module:
    return Odd(forward).export({"forward": {"x": spec}})[0]


@pytest.mark.parametrize(
    ("forward", "error", "message"),
    [
        (lambda m, x: x.view(-1), AttributeError, "operator 'view'; did you mean 'reshape'"),
        (lambda m, x: x.sum(dim=1), TypeError, r"R.sum\(x, axis=.* keyword argument 'dim'"),
        (lambda m, x: nn.Linear(4, 4)(x), KeyError, "make its layer in `__init__`"),
        (lambda m, x: x if x > 0 else -x, TypeError, "a tensor has no truth value"),
    ],
    ids=["view", "dim", "a layer made here", "if"],
)  # fmt: skip
def test_habits_of_pytorch_get_advice(forward: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        exported(forward, nn.spec.Tensor((2, 4)))


def test_comparisons_of_tensors_are_tensors() -> None:
    mod = exported(lambda m, x: (x > 1.0).where(x, 0.5), nn.spec.Tensor((4,)))
    x = np.array([0, 1, 2, 3], "float32")
    got = rl.interpret(mod, "forward", x, np.eye(4, dtype="float32"))
    np.testing.assert_array_equal(got, [0.5, 0.5, 2, 3])


@pytest.mark.parametrize("spec", [("n", 4), np.zeros(4), "n", None])
def test_what_is_no_specification_is_refused(spec: Any) -> None:
    with pytest.raises(TypeError, match=r"the specification of `x(_0)?` is .*nn\.spec\.Tensor"):
        exported(lambda m, x: x, spec)


def test_models_and_weights_in_the_wrong_place() -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(TypeError, match="methods is a dictionary of dictionaries.*not None"):
        model.export(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got a Linear; `mod, names = model.export"):
        rl.compile(model)  # type: ignore[arg-type]
    mod, _ = model.export({"forward": {"x": nn.spec.Tensor((2, 4))}})
    with pytest.raises(ArgumentError, match=r"no weights \(weight_data\): `exe.load"):
        rl.compile(mod)(np.zeros((2, 4), "float32"))
    with pytest.raises(TypeError, match="weights are a dictionary of arrays by name.*not None"):
        rl.compile(mod).load(None)  # type: ignore[arg-type]
