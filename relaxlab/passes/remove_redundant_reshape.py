"""Remove reshapes of reshapes, and those to the same shape."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.types import TensorType
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, same_shape
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

X, INNER_SHAPE, SHAPE = wildcard(), wildcard(), wildcard()
INNER = is_op("reshape")(X, INNER_SHAPE)
NESTED = is_op("reshape")(INNER, SHAPE)
PLAIN = is_op("reshape")(wildcard(), wildcard())
RULE = "remove_redundant_reshape"


@module_pass(RULE, needs=("normalize",))
def remove_redundant_reshape(mod: Module, _: NoOptions) -> Module:
    """A reshape of a reshape becomes one reshape; one to the shape that a value has goes away."""
    mod = rewrite_matches(mod, NESTED, _direct, RULE)
    return rewrite_matches(mod, PLAIN, _without, RULE)


def _direct(call: graph.Call, match: Match) -> graph.Expr | str:
    return replace(call, args=(match[X], call.args[1]))


def _without(call: graph.Call, _: Match) -> graph.Expr | str:
    given = leaf_type(call.args[0])
    wanted = call.args[1]
    if not isinstance(wanted, graph.ShapeExpr) or not isinstance(given, TensorType):
        return "the shapes are not known"
    same = same_shape(given, TensorType(wanted.values, given.dtype))
    return call.args[0] if same else "the shape changes"
