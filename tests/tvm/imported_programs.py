"""Programs of PyTorch and ONNX imported under TVM's names; run where PyTorch and onnx are."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax.frontend import detach_params
from relaxlab.tvm.relax.frontend.onnx import from_onnx
from relaxlab.tvm.relax.frontend.torch import from_exported_program, from_fx


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 300), torch.nn.ReLU(), torch.nn.Linear(300, 2)
    return torch.nn.Sequential(*layers).eval()


def run(mod: tvm.IRModule, *args: np.ndarray) -> np.ndarray:
    vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    found = vm["main"](*map(tvm.runtime.tensor, args))
    return found.numpy()


def exported_programs() -> None:
    """As in TVM's tutorials: weights are detached, and given again."""
    net, x = model(), torch.randn(3, 4)
    with torch.no_grad():
        program, wanted = torch.export.export(net, (x,)), net(x).numpy()
    mod = from_exported_program(
        program, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    mod, params = detach_params(mod)
    assert [tuple(p.shape) for p in params["main"]] == [tuple(p.shape) for p in net.parameters()]
    assert mod["main"].attrs["num_input"] == 1
    weights = [p.numpy() for p in params["main"]]
    np.testing.assert_allclose(run(mod, x.numpy(), *weights), wanted, rtol=1e-4, atol=1e-5)
    bound = from_exported_program(program)
    assert len(bound["main"].params) == 1 and isinstance(bound["main"].ret_ty, relax.TupleType)
    try:
        detach_params(bound)
    except ValueError as error:
        assert "before any pass" in str(error)
    else:
        raise AssertionError("weights of a module that has none")


def fx_graphs() -> None:
    net, x = model(), torch.randn(3, 4)
    mod = from_fx(torch.fx.symbolic_trace(net), [((3, 4), "float32")])
    with torch.no_grad():
        np.testing.assert_allclose(run(mod, x.numpy()), net(x).numpy(), rtol=1e-4, atol=1e-5)
    for options in ({"default_image_layout": "NHWC"}, {"custom_convert_map": {"relu": print}}):
        try:
            from_fx(torch.fx.symbolic_trace(net), [((3, 4), "float32")], **options)
        except ValueError:
            continue
        raise AssertionError(options)


def onnx_models() -> None:
    w = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", d])
            for n, d in (("x", 64), ("y", 32))]  # fmt: skip
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    made, x = helper.make_model(graph), np.ones((5, 64), "float32")
    np.testing.assert_allclose(run(from_onnx(made), x), x @ w, rtol=1e-4)
    fixed = from_onnx(made, shape_dict={"x": [5, 64]}, keep_params_in_input=True)
    mod, params = detach_params(fixed)
    assert [int(d) for d in mod["main"].params[0].ty.shape] == [5, 64]
    np.testing.assert_allclose(run(mod, x, params["main"][0].numpy()), x @ w, rtol=1e-4)


if __name__ == "__main__":
    exported_programs()
    fx_graphs()
    onnx_models()
