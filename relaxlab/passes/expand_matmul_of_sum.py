"""A product with a sum becomes a sum of products."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, same_shape
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

X, A, B = wildcard(), wildcard(), wildcard()
SUM = is_op("add")(A, B)
TURNED = is_op("permute_dims")(SUM)
PRODUCT = is_op("matmul")(X, TURNED | SUM) | is_op("linear")(X, SUM)


@module_pass("expand_matmul_of_sum", needs=("normalize",))
def expand_matmul_of_sum(mod: Module, _: NoOptions) -> Module:
    """x @ (a + b) becomes x @ a + x @ b, for `matmul` and for `linear` without a bias.

    It pays where the parts can be used apart: with `adjust_matmul_order` after it,
    x @ (w + a @ b) does not compute a @ b (low-rank adaptation of weights). Sums that something
    else reads, and those that broadcast, stay. Floats are rounded differently.
    """
    return rewrite_matches(mod, PRODUCT, _expand, "expand_matmul_of_sum")


def _expand(call: graph.Call, match: Match) -> graph.Expr | str:
    if match.leaking():
        return f"`{match.leaking()[0].name}` is read elsewhere, too"
    if not same_shape(leaf_type(match[A]), leaf_type(match[B])):
        return "the sum broadcasts"
    terms = [match[A], match[B]]
    if TURNED in match:
        turn = match.definition(TURNED)
        assert isinstance(turn, graph.Call)
        terms = [replace(turn, args=(t,)) for t in terms]
    products = tuple(replace(call, args=(match[X], t)) for t in terms)
    return graph.Call(graph.Op("add"), products)
