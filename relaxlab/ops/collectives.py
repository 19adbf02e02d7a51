"""Operators among workers that run the same program on parts of the data (`R.ccl.allreduce`, ...).

A program of relaxlab runs in one worker: what all workers contribute is its own value, and an
operator that counts on several has types, but no loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import te
from relaxlab.ops.define import TypesOf, attr, define, fail, normal_axis, params, tensor_arg
from relaxlab.ops.shapes import impossible, simplify

Array = np.ndarray[Any, Any]

REDUCTIONS = ("sum", "prod", "min", "max", "avg")


def _reduce_infer(call: graph.Call, tys: TypesOf) -> Type:
    if attr(call, "op_type") not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise fail(call, f"op_type {attr(call, 'op_type')!r} is not known", f"use one of {known}")
    return tensor_arg(call, tys, 0)


def _workers(call: graph.Call) -> int:
    count = attr(call, "num_workers")
    if not isinstance(count, int) or count < 1:
        raise fail(call, f"num_workers {count!r} must be a positive integer")
    return count


def _gather_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, count = tensor_arg(call, tys, 0), _workers(call)
    if x.ndim == 0:
        raise fail(call, f"x must have at least one dimension, is {x}")
    if x.shape is None:
        return x
    return TensorType((simplify(x.shape[0] * count), *x.shape[1:]), x.dtype)


def _scatter_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, count = tensor_arg(call, tys, 0), _workers(call)
    if x.ndim < 0:
        return x
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    if x.shape is None:
        return x
    claim = f"{x.shape[axis]} along axis {axis} does not divide into parts for {count} workers"
    if impossible(call, expr.EQ(x.shape[axis] % count, te.ZERO), claim):
        raise fail(call, claim)
    part = simplify(x.shape[axis] // count)
    return TensorType((*x.shape[:axis], part, *x.shape[axis + 1 :]), x.dtype)


def _own(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    count = call.attrs.get("num_workers", 1)
    if count != 1:
        raise fail(call, f"needs {count} workers, and a program runs in one")
    return te.compute(x.shape, lambda *i: x[i], "T_own")


def _value(x: Array, *, num_workers: int = 1, **_: Any) -> Array:
    if num_workers != 1:
        raise ValueError(f"needs {num_workers} workers, and a program runs in one")
    return x.copy()


for _name, _params, _infer in (
    ("ccl.allreduce", params("x", op_type="sum", in_group=True), _reduce_infer),
    ("ccl.allgather", params("x", num_workers=REQUIRED, in_group=True), _gather_infer),
    ("ccl.broadcast_from_worker0", params("x"), lambda call, tys: tensor_arg(call, tys, 0)),
    ("ccl.scatter_from_worker0", params("x", num_workers=REQUIRED, axis=0), _scatter_infer),
    (
        "dist.redistribute_replica_to_shard",
        params("input", num_workers=REQUIRED, axis=REQUIRED),
        _scatter_infer,
    ),
):
    define(_name, _params, _infer, emit=_own, reference=_value)
