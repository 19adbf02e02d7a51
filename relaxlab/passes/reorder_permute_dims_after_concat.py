"""Concatenate matrices before they are transposed."""

from __future__ import annotations

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, map_blocks
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import may_apply

RULE = "reorder_permute_dims_after_concat"


@module_pass(RULE, needs=("normalize",))
def reorder_permute_dims_after_concat(mod: Module, _: NoOptions) -> Module:
    """concat([permute_dims(a), permute_dims(b)]) becomes permute_dims(concat([a, b])), where all
    are permuted in the same way: a product with the result then sees one transposed operand, which
    `matmul` can read as it is."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        found: dict[graph.Expr, graph.Call] = {}
        new = map_blocks(fn, lambda blk, n=name, f=found: _block(n, blk, f))
        if new is not fn:
            updates[name] = remove_unread(new, mod)
    return normalized(mod.with_functions(updates)) if updates else mod


def _block(
    name: str, blk: graph.BindingBlock, permuted: dict[graph.Expr, graph.Call]
) -> graph.BindingBlock:
    bindings: list[graph.Binding] = []
    for b in blk.bindings:
        match b.value:
            case graph.Call(graph.Op("permute_dims")):
                permuted[b.var] = b.value
            case graph.Call(graph.Op("concat"), (graph.Tuple(parts),)) if len(parts) > 1:
                new = _swapped(b.value, [permuted.get(p) for p in parts])
                subject = f"{name}.{b.var.name}"
                if new is not None and may_apply(RULE, subject, "transposed after it"):
                    b = replace(b, value=new)  # type: ignore[call-arg]
            case _:
                pass
        bindings.append(b)
    changed = any(a is not b for a, b in zip(bindings, blk.bindings, strict=True))
    return replace(blk, bindings=tuple(bindings)) if changed else blk


def _swapped(concat: graph.Call, turns: list[graph.Call | None]) -> graph.Expr | None:
    """The transposed concatenation; None where the parts are not permuted alike."""
    calls = [t for t in turns if t is not None]
    rank = leaf_type(calls[0].args[0]) if calls else None
    if len(calls) < len(turns) or not isinstance(rank, types.TensorType) or rank.ndim < 0:
        return None
    orders = {_order(t, rank.ndim) for t in calls}
    if len(orders) != 1:
        return None
    (order,) = orders
    axis = order[(concat.attrs.get("axis") or 0) % rank.ndim]
    inner = graph.Tuple(tuple(t.args[0] for t in calls))
    joined = replace(concat, args=(inner,), attrs=concat.attrs.with_(axis=axis))
    return replace(calls[0], args=(joined,))


def _order(turn: graph.Call, ndim: int) -> tuple[int, ...]:
    axes = turn.attrs.get("axes")
    return tuple(reversed(range(ndim))) if axes is None else tuple(a % ndim for a in axes)
