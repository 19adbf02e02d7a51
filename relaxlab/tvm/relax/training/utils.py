"""`AppendLoss`, which puts a loss behind a model."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.passes.append_loss import LossOptions
from relaxlab.tvm.relax.transform import core_pass
from relaxlab.tvm.transform import Pass


def AppendLoss(  # noqa: N802
    func_name: str,
    loss_function: graph.Function,
    num_backbone_outputs: int = 1,
    new_func_name: str | None = None,
) -> Pass:
    """Add the function that computes the loss of the first results of a function."""
    options = LossOptions(func_name, loss_function, num_backbone_outputs, new_func_name or "")
    return core_pass("AppendLoss", "append_loss", options=options)
