"""`tvm.relax.frontend.torch`: programs of PyTorch, by `relaxlab.from_torch`.

Operators stay whole where TVM takes them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from relaxlab.frontend.pytorch.entry import from_torch
from relaxlab.ir.module import Module
from relaxlab.tvm.relax.frontend.imported import module_of


def from_exported_program(
    exported_program: Any, *, keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False, no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    run_ep_decomposition: bool = True,
) -> Module:  # fmt: skip
    """The module of an exported program, which returns a tuple unless that has one field and
    `unwrap_unit_return_tuple` says so. Raises ValueError for conversions of one's own."""
    _refuse(custom_convert_map)
    return module_of(
        from_torch(exported_program), keep_params_as_input, not unwrap_unit_return_tuple
    )


def from_fx(
    model: Any, input_info: Sequence[tuple[Sequence[int], str]], *,
    keep_params_as_input: bool = False, unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[Any, Callable[..., Any]] | None = None,
    default_image_layout: str = "NCHW",
) -> Module:  # fmt: skip
    """The module of a `torch.fx.GraphModule`, or of another module, for inputs of these shapes and
    dtypes. Raises ValueError for conversions of one's own, and for images in another layout."""
    _refuse(custom_convert_map)
    if default_image_layout != "NCHW":
        raise ValueError(f"images are NCHW in PyTorch, not {default_image_layout}; convert_layout "
                         "is the pass for others")  # fmt: skip
    torch = import_module("torch")
    inputs = [torch.zeros(tuple(s), dtype=getattr(torch, str(d))) for s, d in input_info]
    in_tuple = _returns_unit_tuple(model) and not unwrap_unit_return_tuple
    return module_of(from_torch(model, *inputs), keep_params_as_input, in_tuple)


def _returns_unit_tuple(model: Any) -> bool:
    outputs = [n.args[0] for n in getattr(model, "graph", model).nodes if n.op == "output"]
    return isinstance(outputs[0], list | tuple) and len(outputs[0]) == 1


def _refuse(custom: Mapping[Any, Any] | None) -> None:
    if custom:
        raise ValueError("operators of your own are rows of relaxlab.frontend.pytorch.rows.TABLE")
