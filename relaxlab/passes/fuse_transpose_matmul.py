"""Products of a transposed matrix read it as it is stored."""

from __future__ import annotations

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

A, WEIGHT = wildcard(), wildcard()
TRANSPOSED = is_op("permute_dims")(WEIGHT)


@module_pass("fuse_transpose_matmul", needs=("normalize",))
def fuse_transpose_matmul(mod: Module, _: NoOptions) -> Module:
    """x @ permute_dims(w), with a matrix w, becomes linear(x, w), which transposes nothing."""
    pattern = is_op("matmul")(A, TRANSPOSED)
    return rewrite_matches(mod, pattern, _as_linear, "fuse_transpose_matmul")


def _as_linear(call: graph.Call, match: Match) -> graph.Expr | str:
    ty = leaf_type(match[WEIGHT])
    transposed = match.definition(TRANSPOSED)
    assert isinstance(transposed, graph.Call)
    if not isinstance(ty, types.TensorType) or ty.ndim != 2:
        return "the transposed operand is not a matrix"
    if tuple(transposed.attrs.get("axes") or (1, 0)) != (1, 0):
        return "the axes of the matrix are not exchanged"
    return graph.Call(graph.Op("linear"), (match[A], match[WEIGHT]), call.attrs)
