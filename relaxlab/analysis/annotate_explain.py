"""Saying in the trace where a shape was lost, why, and what brings it back."""

from __future__ import annotations

from collections.abc import Iterable

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.subtype import equal_dims
from relaxlab.ir import expr, graph
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import ObjectType, TensorType, TupleType, Type
from relaxlab.tracing import note


def explain_lost_shape(
    function: str, var: graph.Var, value: graph.Expr, ty: Type, analyzer: Analyzer
) -> None:
    """Note it when a call of an operator on tensors of known shape gives an unknown shape."""
    if not isinstance(value, graph.Call) or not isinstance(value.op, graph.Op):
        return
    if value.ty_args or not _lost(ty):
        return
    args = [t for a in value.args for t in _tensors(a)]
    if not args or any(t.shape is None for t in args):
        return
    texts = " and ".join(dict.fromkeys(map(str, args)))
    open_pair = _unproved_pair(args, analyzer)
    if open_pair is None:
        why = "its shape depends on the values"
    else:
        why = f"whether {open_pair[0]} equals {open_pair[1]} is not known"
    note(
        "deduce",
        f"{function}.{var.name}",
        f"R.{value.op.name} of {texts} gives only {ty}: {why}; "
        f"a match_cast brings it back: {_remedy(var.name, ty, args, open_pair is not None)}",
        applied=False,
    )


def _lost(ty: Type) -> bool:
    return isinstance(ty, TensorType) and ty.shape is None


def _tensors(a: graph.Expr) -> Iterable[TensorType]:
    ty: Type = type_of(a) if not isinstance(a, graph.Op | graph.GlobalVar) else ObjectType()
    stack = [ty]
    while stack:
        top = stack.pop()
        if isinstance(top, TensorType):
            yield top
        elif isinstance(top, TupleType):
            stack += reversed(top.fields)


def _unproved_pair(
    args: list[TensorType], analyzer: Analyzer
) -> tuple[expr.PrimExpr, expr.PrimExpr] | None:
    """Two dimensions at the same place, counted from the last, that may or may not be equal."""
    for i, a in enumerate(args):
        for b in args[i + 1 :]:
            for x, y in zip(reversed(a.shape or ()), reversed(b.shape or ()), strict=False):
                if equal_dims(x, y, analyzer) is None:
                    return x, y
    return None


def _remedy(name: str, ty: Type, args: list[TensorType], like_first: bool) -> str:
    assert isinstance(ty, TensorType)
    if like_first:
        ranked = [a for a in args if a.ndim == ty.ndim]
        claim: Type = TensorType(ranked[0].shape, ty.dtype) if ranked else ty
    elif ty.ndim >= 0:
        used = {s.name for a in args for s in symbols_in(a)}
        fresh = [s for s in "mkpqrstuvw" if s not in used]
        claim = TensorType(tuple(expr.Var(fresh[i]) for i in range(ty.ndim)), ty.dtype)
    else:
        claim = ty
    return f"{name} = R.match_cast({name}, {claim})"
