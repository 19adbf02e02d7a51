"""Layers and programs called with arrays, as users of PyTorch try first."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn


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
