"""Operators that gradients are made of (`R.grad.…`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import graph
from relaxlab.ir.op_table import VIEW
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import te
from relaxlab.ops.define import Builder, TypesOf, builder, define, params, tensor_arg

Array = np.ndarray[Any, Any]


def __getattr__(name: str) -> Builder:
    return builder(f"grad.{name}")


# --- Marks: the same value, told apart by name ------------------------------------------------


def _same_infer(call: graph.Call, tys: TypesOf) -> Type:
    return tensor_arg(call, tys, 0)


def _same_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x[i], "T_identity")


for _name in ("no_grad", "start_checkpoint", "end_checkpoint"):
    define(
        f"grad.{_name}",
        params("input"),
        _same_infer,
        emit=_same_emit,
        reference=lambda input: input,
        traits=VIEW,
    )
