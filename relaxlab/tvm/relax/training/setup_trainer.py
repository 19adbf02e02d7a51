"""`SetupTrainer`, which makes of a model what trains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.tvm.accessors import with_attr
from relaxlab.tvm.relax.training.loss import Loss
from relaxlab.tvm.relax.training.optimizer import Optimizer
from relaxlab.tvm.relax.training.utils import AppendLoss
from relaxlab.tvm.relax.transform import (
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    Gradient,
    LegalizeOps,
)
from relaxlab.tvm.transform import Pass, PassContext, PassInfo

BACKBONE, LOSS = "backbone", "backbone_loss"
"""The names of the model, and of the model with its loss."""


class SetupTrainer(Pass):
    """Adds to a module with `backbone(inputs, parameters, states)`, whose attributes `param_num`
    and `state_num` say how many there are of each, the functions `backbone_loss`,
    `backbone_loss_adjoint` and `optimizer`, and the attributes `input_num` and `optim_state`."""

    def __init__(
        self, loss: Loss, optimizer: Optimizer, loss_args: Sequence[Any], legalize: bool = True
    ) -> None:
        super().__init__(self._run, PassInfo(0, "SetupTrainer"))
        self._loss, self._optimizer = loss, optimizer
        self._loss_args, self._legalize = loss_args, legalize

    def _run(self, mod: Module, _: PassContext) -> Module:
        fn, params, states = _checked(mod)
        loss: Any = self._loss
        appended = AppendLoss(BACKBONE, loss(*self._loss_args), loss.num_backbone_outputs, LOSS)
        mod = _decomposed(appended(mod))
        inputs = len(fn.params) - params - states
        with_loss: Any = mod[LOSS]
        trained = with_loss.params[inputs : inputs + params]
        mod = Gradient(LOSS, require_grads=list(trained), target_index=0)(mod)
        self._optimizer.init(list(trained))
        made = self._optimizer.get_function()
        mod = mod.with_functions({"optimizer": made})
        noted = {"input_num": inputs, "optim_state": self._optimizer.state}
        mod = with_attr(mod, noted)
        return LegalizeOps()(mod) if self._legalize else mod


def _decomposed(mod: Module) -> Module:
    """Norms as inference needs them in the model, and as training does in the model with loss."""
    model = DecomposeOpsForInference(BACKBONE)(mod)
    return DecomposeOpsForTraining(LOSS)(model)


def _checked(mod: Module) -> tuple[graph.Function, int, int]:
    """The model, and the number of its parameters and states. Raises ValueError where the module
    does not state them, or the model does not fit them."""
    fn = mod.get(BACKBONE)
    if not isinstance(fn, graph.Function):
        raise ValueError(f"SetupTrainer: the module has no graph function {BACKBONE!r}")
    counts: list[int] = []
    for key in ("param_num", "state_num"):
        value = getattr(mod.attrs.get(key), "value", mod.attrs.get(key))
        if not isinstance(value, int):
            raise ValueError(f"SetupTrainer: the module needs an integer attribute {key!r}")
        counts.append(value)
    params, states = counts
    if len(fn.params) < params + states:
        raise ValueError(
            f"SetupTrainer: {BACKBONE!r} takes {len(fn.params)} values, fewer than {params} "
            f"parameters and {states} states"
        )
    result = fn.body.body
    if states and not (isinstance(result, graph.Tuple) and len(result.fields) > states):
        raise ValueError(
            f"SetupTrainer: {BACKBONE!r} has to return a tuple that ends in its states"
        )
    return fn, params, states
