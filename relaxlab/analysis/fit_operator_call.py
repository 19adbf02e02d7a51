"""Conditions that operators place on the shapes of their arguments.

An operator refuses shapes that can never fit. Where fitting depends on the symbols, its row gives
the condition, and what is not proved must be checked before the call.
"""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import Condition, TypeDeductionError, find_op, infer_with_conditions
from relaxlab.ir.types import ShapeType, Type


def unproved_conditions(
    call: graph.Call, mod: Module | None, analyzer: Analyzer
) -> tuple[Condition, ...]:
    """The conditions of an operator's call that the analyzer cannot prove. None for a call that
    the operator refuses: that is reported where its type is deduced."""
    row = find_op(call.op.name) if isinstance(call.op, graph.Op) else None
    if row is None:
        return ()
    arg_types = tuple(type_of(a, mod, analyzer) for a in call.args)
    try:
        _, conditions = infer_with_conditions(row, call, arg_types, mod)
    except TypeDeductionError:
        return ()
    claims = ((as_claim(c), c, m) for c, m in conditions)
    return tuple((c, m) for claim, c, m in claims if not _known(claim, analyzer))


def as_claim(condition: expr.PrimExpr) -> tuple[graph.ShapeExpr, ShapeType]:
    """A shape and the type it has exactly when the condition holds: what `match_cast` checks."""
    if isinstance(condition, expr.EQ):
        return graph.ShapeExpr((condition.a,)), ShapeType((condition.b,))
    holds = expr.Select(condition, expr.const(1), expr.const(0))
    return graph.ShapeExpr((holds,)), ShapeType((expr.const(1),))


def claimed_condition(value: graph.Expr, ty: Type | None) -> expr.PrimExpr | None:
    """The condition that `as_claim` made a claim of, unless it is an equality."""
    match value, ty:
        case (
            graph.ShapeExpr((expr.Select(condition, expr.IntImm(1), expr.IntImm(0)),)),
            ShapeType((expr.IntImm(1),)),
        ):
            return condition
        case _:
            return None


def _known(claim: tuple[graph.ShapeExpr, ShapeType], analyzer: Analyzer) -> bool:
    value, ty = claim
    assert ty.values is not None
    return analyzer.prove(expr.EQ(value.values[0], ty.values[0])) is True
