"""Select columns of a product instead of columns of its operand."""

from __future__ import annotations

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

X, W, INDICES = wildcard(), wildcard(), wildcard()
TAKEN = is_op("take")(W, INDICES)
PRODUCT = is_op("matmul")(X, TAKEN)


@module_pass("reorder_take_after_matmul", needs=("normalize",))
def reorder_take_after_matmul(mod: Module, _: NoOptions) -> Module:
    """x @ take(w, i, axis=1) becomes take(x @ w, i, axis=-1), for a matrix w.

    The product then depends on nothing but x and w. It pays where w has few columns, as where the
    columns belong to the adapters of a batch of requests.
    """
    return rewrite_matches(mod, PRODUCT, _swap, "reorder_take_after_matmul")


def _swap(call: graph.Call, match: Match) -> graph.Expr | str:
    take = match.definition(TAKEN)
    assert isinstance(take, graph.Call)
    w, indices, x = (leaf_type(match[p]) for p in (W, INDICES, X))
    if not isinstance(w, types.TensorType) or w.ndim != 2:
        return "the operand is no matrix"
    if not isinstance(indices, types.TensorType) or indices.ndim != 1:
        return "the indices are no vector"
    if take.attrs.get("axis") not in (1, -1):
        return "rows of the operand are selected"
    if not isinstance(x, types.TensorType) or x.ndim < 1:
        return "the rank of the first operand is not known"
    product = replace(call, args=(match[X], match[W]))
    axis = max(x.ndim, 1) - 1
    return replace(take, args=(product, match[INDICES]), attrs=take.attrs.with_(axis=axis))
