"""`tvm.relax.frontend.torch`: modules of programs of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from relaxlab.frontend.pytorch.entry import from_torch
from relaxlab.ir.module import Module
from relaxlab.tvm.relax.frontend.imported import as_tvm


def from_exported_program(
    exported_program: Any, *, keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False, no_bind_return_tuple: bool = False,
    run_ep_decomposition: bool = True,
) -> Module:  # fmt: skip
    """The module of what `torch.export.export` gives; its parameters are constants, or stay
    parameters with `keep_params_as_input`."""
    program = from_torch(exported_program)
    return as_tvm(program, keep_params_as_input, unwrap_unit_return_tuple)


def from_fx(
    model: Any, input_info: Sequence[tuple[Sequence[int], str]], *,
    keep_params_as_input: bool = False, unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
) -> Module:  # fmt: skip
    """The module of a graph of `torch.fx` for inputs of these shapes and dtypes. One result is
    itself, as the graph returns it."""
    torch: Any = import_module("torch")
    inputs = [torch.zeros(tuple(s), dtype=getattr(torch, d)) for s, d in input_info]
    return as_tvm(from_torch(model, *inputs), keep_params_as_input, unwrap=True)
