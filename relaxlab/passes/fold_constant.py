"""Evaluate calls whose arguments are all constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.deduce import is_computable
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import OpRow, find_op
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import known_shape, map_blocks, replace_body, with_bindings
from relaxlab.passes.effects import overwritten_vars
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """`max_bytes`: a result larger than this, and than its arguments, is left to run time: it would
    be stored with the program."""

    max_bytes: int = 1 << 20


@module_pass("fold_constant", FoldOptions, needs=("normalize",))
def fold_constant(mod: Module, options: FoldOptions) -> Module:
    """Replace pure calls on constants by their value, computed with the operators' NumPy meaning.

    Loop functions and functions of the module are not evaluated here. A value that is overwritten
    in place stays a value of its own.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        apart = overwritten_vars(fn, mod)
        updates[name] = _function(name, fn, options.max_bytes, apart)
    return mod.with_functions(updates)


def _function(name: str, fn: graph.Function, limit: int, apart: set[graph.Var]) -> graph.Function:
    values: dict[graph.Var, graph.Expr] = {}

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        remaining: list[graph.Binding] = []
        for b in blk.bindings:
            new = substitute(b, values=values) if values else b
            folded: graph.Expr | None = None
            if isinstance(new, graph.VarBinding) and new.var not in apart:
                folded = _fold(new, limit)
            subject, reason = f"{name}.{b.var.name}", "all its arguments are constants"
            if folded is None or not may_apply("fold_constant", subject, reason):
                remaining.append(new)
                continue
            values[b.var] = folded
        return with_bindings(blk, remaining)

    new = map_blocks(fn, block)
    return replace_body(new, substitute(new.body, values=values)) if values else new


def _fold(b: graph.VarBinding, limit: int) -> graph.Expr | None:
    match b.value:
        case graph.TupleGetItem(graph.Tuple(fields), index):
            return fields[index] if isinstance(fields[index], graph.Constant) else None
        case graph.Call(graph.Op(name), args):
            row = find_op(name)
            if row is None or row.reference is None or not row.pure:
                return None
            values = [_value(a) for a in args]
            if any(v is None for v in values) or not _small(b, args, limit):
                return None
            if not is_computable(b.value):
                return None
            value = _evaluate(row, b.value, values)
            if isinstance(b.var.ty, types.TensorType) and b.var.ty.dtype and _numbers(args):
                value = np.asarray(value).astype(numpy_dtype(b.var.ty.dtype))
            return _constants(value, b.var.ty)
        case _:
            return None


def _value(e: graph.Expr) -> Any:
    """The NumPy value of a constant argument; None when it is not constant."""
    match e:
        case graph.Constant(data):
            return data
        case graph.ShapeExpr(dims):
            known = [d.value for d in dims if isinstance(d, expr.IntImm)]
            return tuple(known) if len(known) == len(dims) else None
        case graph.PrimValue(expr.IntImm(value) | expr.FloatImm(value)):
            return value
        case graph.Tuple(fields):
            items = [_value(f) for f in fields]
            return None if any(i is None for i in items) else tuple(items)
        case _:
            return None


def _numbers(args: tuple[graph.Expr, ...]) -> bool:
    """True if some argument is a scalar, which as a Python number has no dtype of its own."""
    return any(isinstance(a, graph.PrimValue) for a in args)


def _small(b: graph.VarBinding, args: tuple[graph.Expr, ...], limit: int) -> bool:
    size = _static_bytes(b.var.ty)
    given = sum(a.data.nbytes for a in args if isinstance(a, graph.Constant))
    # A value that is no larger than its arguments replaces them at no cost, whatever its size.
    return size is not None and size <= max(limit, given)


def _static_bytes(ty: types.Type | None) -> int | None:
    """Bytes of a value of static shape, tuples summed; None when a dimension is symbolic."""
    if isinstance(ty, types.TupleType):
        sizes = [_static_bytes(f) for f in ty.fields]
        known = [s for s in sizes if s is not None]
        return sum(known) if len(known) == len(sizes) else None
    shape = known_shape(ty)
    if shape is None or not isinstance(ty, types.TensorType) or ty.dtype is None:
        return None
    size = bytes_of(ty.dtype)
    for d in shape:
        if not isinstance(d, expr.IntImm):
            return None
        size *= d.value
    return size


def _evaluate(row: OpRow, call: graph.Call, values: list[Any]) -> Any:
    assert row.reference is not None
    with np.errstate(all="ignore"):  # what run time computes without a warning, so does this
        return row.reference(*values, **call.attrs)


def _constants(value: Any, ty: types.Type | None) -> graph.Expr:
    if isinstance(ty, types.TupleType):
        parts = zip(value, ty.fields, strict=True)
        return graph.Tuple(tuple(_constants(v, t) for v, t in parts))
    assert isinstance(ty, types.TensorType) and ty.dtype is not None
    array = np.asarray(value)
    if array.dtype != numpy_dtype(ty.dtype):
        raise TypeError(f"an operator's reference gave {array.dtype}, its type says {ty.dtype}")
    return graph.Constant(array)
