"""`rl.from_torch`, which loads PyTorch when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from relaxlab.frontend.program import ImportedProgram
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError, brief


class PyTorchMissing(UserError, ImportError):
    """PyTorch is not installed in this environment."""


def torch_module(name: str) -> Any:
    """A module of this package that imports PyTorch. Raises PyTorchMissing."""
    try:
        import_module("torch")
    except ImportError as error:
        text = "programs of PyTorch need PyTorch itself: pip install torch"
        raise PyTorchMissing(text) from error
    return import_module(f"relaxlab.frontend.pytorch.{name}")


@names_arguments
def torch_backend(graph_module: Any, example_inputs: Any) -> Any:
    """The backend of `torch.compile(model, backend="relaxlab")`; installing relaxlab registers it.

    With `dynamic=True` a graph is compiled once for all sizes. Gradients are graphs of their own.
    Without gradients, weights are packed when they are first seen, and again after a change that
    PyTorch counts (all but those through `weight.data`). Operators that cannot be imported are
    reported together, in the error of `torch.compile`.
    """
    return torch_module("backend").compiled(graph_module, example_inputs)


@names_arguments
@brief
def from_torch(
    program: Any, *args: Any, dynamic_shapes: Any = None, kwargs: Any = None
) -> ImportedProgram:
    """A module of relaxlab from a module of PyTorch, with its parameters and buffers.

    program: a `torch.nn.Module`, which is exported by `torch.export` for the arguments `args` (and
    `kwargs` by name), or an `ExportedProgram`. dynamic_shapes: the dimensions that are symbols, as
    `torch.export.export` takes them; all others are fixed as in `args`.

    Raises UnsupportedOperators with all operators that cannot be imported, PyTorch's own errors
    where it cannot export the module.

    >>> dims = {"x": {0: torch.export.Dim("batch")}}                        # doctest: +SKIP
    >>> exe = rl.from_torch(model, x, dynamic_shapes=dims).compile()        # doctest: +SKIP
    >>> y = exe(x)                                                          # doctest: +SKIP
    """
    return torch_module("export").exported(program, args, kwargs, dynamic_shapes)
