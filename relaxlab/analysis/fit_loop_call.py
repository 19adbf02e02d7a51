"""Matching of the arguments of a `call_tir` with the buffers that the loop function declares.

A kernel trusts its shapes, so dimensions that are not proved must be checked before it runs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import describe, fresh_symbols, type_of
from relaxlab.analysis.ragged import Totals, stored
from relaxlab.analysis.unify import DimPair, Unification, unify
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import ShapeType, TensorType, Type


@dataclass(frozen=True, slots=True)
class LoopCallPlan:
    """`conflicts` name dimensions that can never fit; `claims` are the types that values must be
    cast to (an input tensor, or a shape of output dimensions) for the call to be safe."""

    conflicts: tuple[str, ...] = ()
    claims: tuple[tuple[graph.Expr, Type], ...] = ()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value given for a buffer; `value` None: an output, allocated by the caller."""

    value: graph.Expr | None
    ty: TensorType
    buffer: loops.Buffer
    place: str


def fit_loop_call(
    call: graph.Call, mod: Module | None, analyzer: Analyzer, taken: Collection[str],
    totals: Totals,
) -> LoopCallPlan:  # fmt: skip
    """Unify the declared buffers of the called loop function with the arguments of the call.

    Number, rank and dtype of the arguments are checked by the operator; when they are wrong, or the
    callee is unknown, the plan is empty. Symbols for inputs of unknown shape get names that are not
    in `taken`. `totals` are the numbers of rows of ragged tensors.
    """
    callee = call.args[0] if call.args else None
    func = mod.get(callee.name) if mod is not None and isinstance(callee, graph.GlobalVar) else None
    if not isinstance(func, loops.PrimFunc):
        return LoopCallPlan()
    given = _given(call, func, mod, totals)
    if given is None:
        return LoopCallPlan()
    scalars = [p for p in func.params if isinstance(p, expr.Var)]
    extra = _extra_symbols(call)
    if len(extra) != len(scalars):
        return LoopCallPlan()
    declared = tuple(g.buffer.shape for g in given)
    renamed = fresh_symbols((declared, tuple(scalars)), ([g.ty for g in given], call))
    pairs = [
        DimPair(substitute(p, renamed), value, f"tir_vars {i}")
        for i, (p, value) in enumerate(zip(scalars, extra, strict=True))
    ]
    owners: list[_Given | None] = [None] * len(pairs)
    for g in given:
        for axis, d in enumerate(g.buffer.shape):
            actual = g.ty.shape[axis] if g.ty.shape is not None else None
            place = f"dimension {axis} of {g.place}"
            pairs.append(DimPair(substitute(d, renamed), actual, place))
            owners.append(g)
    found = unify(pairs, analyzer)
    if found.conflicts:
        name = getattr(callee, "name", "")
        lead = f"the arguments of loop function `{name}` do not fit"
        return LoopCallPlan(tuple(f"{lead}: {message}" for message in found.conflicts))
    if not found.unproved:
        return LoopCallPlan()
    return _claims(pairs, owners, found, set(taken))


def _extra_symbols(call: graph.Call) -> tuple[expr.PrimExpr, ...]:
    last = call.args[2] if len(call.args) > 2 else None
    return last.values if isinstance(last, graph.ShapeExpr) else ()


def _given(
    call: graph.Call, func: loops.PrimFunc, mod: Module | None, totals: Totals
) -> list[_Given] | None:
    packed = call.args[1] if len(call.args) > 1 else None
    if not isinstance(packed, graph.Tuple):
        return None
    values: list[graph.Expr | None] = list(packed.fields)
    tys = [type_of(v, mod) for v in packed.fields]
    places = [f"argument {describe(v, i)}" for i, v in enumerate(packed.fields)]
    inplace: tuple[int, ...] = call.attrs.get("inplace_indices", (-1,) * len(call.ty_args))
    for i, (ty, index) in enumerate(zip(call.ty_args, inplace, strict=False)):
        if index < 0:
            values.append(None)
            tys.append(ty)
            places.append(f"output {i}")
    if len(tys) != len(func.buffers):
        return None
    given: list[_Given] = []
    dense = [stored(ty, totals) for ty in tys]
    for value, ty, buffer, place in zip(values, dense, func.buffers, places, strict=True):
        if not isinstance(ty, TensorType) or ty.ndim not in (-1, buffer.ndim):
            return None
        given.append(_Given(value, ty, buffer, place))
    return given


def _claims(
    pairs: list[DimPair], owners: list[_Given | None], found: Unification, taken: set[str]
) -> LoopCallPlan:
    """The casts that make the call safe. A symbol that only an input of unknown shape can give
    gets a name of its own."""
    bindings = dict(found.bindings)
    for pair, expected in found.unproved:
        if expected is None:
            for s in symbols_in(pair.declared):
                if s not in bindings:
                    bindings[s] = replace(s, name=_new_name(s.name, taken))
    claims: list[tuple[graph.Expr, Type]] = []
    outputs: list[tuple[expr.PrimExpr, expr.PrimExpr]] = []
    open_pairs = {pair.place for pair, _ in found.unproved}
    for g in dict.fromkeys(o for o in owners if o is not None):
        mine = [p for p, o in zip(pairs, owners, strict=True) if o is g]
        if not any(p.place in open_pairs for p in mine):
            continue
        dims = tuple(substitute(p.declared, bindings) for p in mine)
        if g.value is not None:
            claims.append((g.value, TensorType(dims, g.buffer.dtype)))
            continue
        outputs += [
            (p.actual, d)
            for p, d in zip(mine, dims, strict=True)
            if p.place in open_pairs and p.actual is not None
        ]
    if outputs:
        actual, expected = zip(*outputs, strict=True)
        claims.append((graph.ShapeExpr(actual), ShapeType(expected)))
    return LoopCallPlan((), tuple(claims))


def _new_name(hint: str, taken: set[str]) -> str:
    name = fresh_name(hint, taken.__contains__)
    taken.add(name)
    return name
