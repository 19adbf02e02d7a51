"""`tvm.relax.frontend.onnx`: modules of models of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.frontend.onnx.importer import from_onnx as imported_onnx
from relaxlab.ir.module import Module
from relaxlab.tvm.relax.frontend.imported import as_tvm


def from_onnx(
    model: Any, shape_dict: Mapping[str, Sequence[int]] | None = None, dtype_dict: Any = None,
    opset: int | None = None, keep_params_in_input: bool = False, sanitize_input_names: bool = True,
) -> Module:  # fmt: skip
    """The module of a model, whose inputs have the shapes that `shape_dict` gives; its parameters
    are constants, or stay parameters with `keep_params_in_input`."""
    if shape_dict:
        model = type(model).FromString(model.SerializeToString())
        for value in model.graph.input:
            given = shape_dict.get(value.name)
            for dim, size in zip(value.type.tensor_type.shape.dim, given or (), strict=False):
                dim.dim_value = int(size)
    return as_tvm(imported_onnx(model), keep_params_in_input, unwrap=True)
