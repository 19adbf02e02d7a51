"""`tvm.relax.frontend.onnx`: models of ONNX, by `relaxlab.from_onnx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from relaxlab.frontend.onnx.importer import from_onnx as import_onnx
from relaxlab.ir.module import Module
from relaxlab.tvm.relax.frontend.imported import module_of


def from_onnx(
    model: Any, shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32", opset: int | None = None,
    keep_params_in_input: bool = False, sanitize_input_names: bool = True,
) -> Module:  # fmt: skip
    """The module of a model, with the shapes of its inputs where they are given; their dtypes are
    what the model says. Small initialisers are constants in any case. Raises ValueError for
    another operator set than the model's."""
    if opset is not None and opset not in [o.version for o in model.opset_import]:
        raise ValueError(f"the model's operator set is not {opset}; see onnx.version_converter")
    if shape_dict:
        model = deepcopy(model)
        for value in model.graph.input:
            shape = value.type.tensor_type.shape
            if value.name in shape_dict:
                shape.ClearField("dim")
                for extent in shape_dict[value.name]:
                    shape.dim.add().dim_value = int(extent)
    return module_of(import_onnx(model), keep_params_in_input, tuple_of_one=False)
