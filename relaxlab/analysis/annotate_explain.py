"""Saying in the trace where a shape was lost, why, and what brings it back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.subtype import defined_symbols, equal_dims
from relaxlab.ir import expr, graph
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import ObjectType, TensorType, TupleType, Type
from relaxlab.tracing import remark
from relaxlab.tracing.deduction import Lost, emit


def explain_lost_shape(
    function: str, var: graph.Var, value: graph.Expr, ty: Type, analyzer: Analyzer
) -> None:
    """Record a shape that is unknown although everything it depends on is known: the result of an
    operator, of a function (its signature says no more), or of two branches."""
    if not isinstance(ty, TensorType) or ty.shape is not None:
        return
    match value:
        case graph.Call(graph.Op(name), args) if not value.ty_args:
            source, reason = f"R.{name} of", "its shape depends on the values"
        case graph.Call(graph.GlobalVar(name), args):
            source, reason = f"{name} of", f"the signature of {name} says no more"
        case graph.If(_, yes, no):
            args, source, reason = (yes.body, no.body), "one of", "which one is not known"
        case _:
            return
    known = [t for a in args for t in _tensors(a)]
    if not known or any(t.shape is None for t in known):
        return
    texts = " and ".join(dict.fromkeys(map(str, known)))
    operator = isinstance(value, graph.Call) and isinstance(value.op, graph.Op)
    pair = _unproved_pair(known, analyzer) if operator else None
    if pair is not None:
        reason = f"whether {pair[0]} equals {pair[1]} is not known"
    remedy = _remedy(var.name, ty, known, like_first=pair is not None)
    emit(Lost(f"{source} {texts}", reason, remedy))
    remark(
        "deduce", f"{function}.{var.name}",
        f"{source} {texts} gives only {ty}: {reason}; a match_cast brings it back: {remedy}",
        applied=False,
    )  # fmt: skip


def explain_lost_result(
    function: str, actual: Type, ret: Type, known: Collection[expr.Var]
) -> None:
    """Note it when a result's shape mentions symbols that are unknown to callers."""
    inner = [s.name for s in defined_symbols(actual) if s not in known]
    if not inner or structural_equal(actual, ret):
        return
    which = " and ".join(dict.fromkeys(inner))
    reason = f"callers do not know {which}, found inside {function}"
    remedy = f"value = R.match_cast(value, {_quoted(actual)})"
    emit(Lost(f"the result {actual}", reason, remedy))
    remark("deduce", f"{function}", f"returns only {ret}: {reason}", applied=False)


def _quoted(ty: Type) -> str:
    """Return a type in script, with its symbols as strings: in a `match_cast` these declare new
    symbols."""
    match ty:
        case TensorType(shape, dtype) if shape is not None:
            dims = [f'"{d}"' if symbols_in(d) else str(d) for d in shape]
            comma = "," if len(dims) == 1 else ""
            return f'R.Tensor(({", ".join(dims)}{comma}), "{dtype}")'
        case TupleType(fields):
            return f"R.Tuple({', '.join(map(_quoted, fields))})"
        case _:
            return str(ty)


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


def _remedy(name: str, ty: TensorType, known: list[TensorType], like_first: bool) -> str:
    """A line that can be added to the program as it is."""
    ranked = [t.shape for t in known if t.ndim == ty.ndim and t.shape is not None]
    if like_first and ranked:
        dims = [f'"{d}"' if symbols_in(d) else str(d) for d in ranked[0]]
    elif ty.ndim >= 0:
        dims = [f'"{name}_{i}"' for i in range(ty.ndim)]  # new symbols, of no other dimension
    else:
        dims = ["..."]
    shape = f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"
    dtype = f', "{ty.dtype}"' if ty.dtype else ""
    return f"{name} = R.match_cast({name}, R.Tensor({shape}{dtype}))"
