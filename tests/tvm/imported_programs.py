"""Runs in `.venv-reference`: TVM's importers on programs of PyTorch and ONNX, whose results are
compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax.frontend import detach_params
from relaxlab.tvm.relax.frontend.onnx import from_onnx
from relaxlab.tvm.relax.frontend.torch import from_exported_program, from_fx


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def run(mod: Any, *args: Any) -> Any:
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](*args)


def compare(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def programs_of_pytorch() -> None:
    torch.manual_seed(0)
    model, x = Layers().eval(), torch.randn(2, 6)
    want, given = model(x).detach().numpy(), tvm.runtime.tensor(x.numpy())
    exported = torch.export.export(model, (x,))
    (got,) = run(from_exported_program(exported), given)
    compare(got, want)
    compare(run(from_exported_program(exported, unwrap_unit_return_tuple=True), given), want)
    mod, params = detach_params(from_exported_program(exported, keep_params_as_input=True))
    assert mod["main"].attrs["num_input"] == 1 and [*params] == ["main"]
    assert [p.shape for p in params["main"]] == [(5, 6), (5,), (3, 5), (3,)]
    (got,) = run(mod, given, *params["main"])
    compare(got, want)
    compare(run(from_fx(torch.fx.symbolic_trace(model), [((2, 6), "float32")]), given), want)


def a_model_of_onnx() -> None:
    x, w = np.random.default_rng(0).random((2, 40), "float32"), np.ones((40, 30), "float32")
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
        [onnx.helper.make_tensor_value_info("x", float32, ["n", 40])],
        [onnx.helper.make_tensor_value_info("y", float32, ["n", 30])],
        [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    mod = from_onnx(model, shape_dict={"x": (2, 40)})
    assert [str(p.ty) for p in mod["main"].params] == ["R.Tensor((2, 40), 'float32')"]
    compare(run(mod, tvm.runtime.tensor(x)), x @ w)
    mod, params = detach_params(from_onnx(model, keep_params_in_input=True))
    compare(run(mod, tvm.runtime.tensor(x), *params["main"]), x @ w)


programs_of_pytorch()
a_model_of_onnx()
print("all agree")
