"""Products of one value with several weights become one product."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ops.define import builder
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, map_blocks, use_counts
from relaxlab.passes.patterns.match import BlockScope, same_dims
from relaxlab.passes.patterns.rewrite import normalized, with_values
from relaxlab.tracing import note

RULE = "combine_parallel_matmul"


@module_pass(RULE, needs=("normalize",))
def combine_parallel_matmul(mod: Module, _: NoOptions) -> Module:
    """x @ w1, x @ w2, … become parts of x @ concat(w1, w2, …), in dataflow blocks; `linear` and
    its bias likewise.

    The weights are matrices of one height: constants, or parameters (with the attribute
    `num_input`, those after the inputs). Together with `lift_transform_params` they are
    concatenated once.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        uses = use_counts(fn)
        weights = set(fn.params[fn.attrs.get("num_input", 0) :])

        def block(
            blk: graph.BindingBlock, name: str = name, uses: dict[graph.Var, int] = uses,
            weights: set[graph.Var] = weights,
        ) -> graph.BindingBlock:  # fmt: skip
            if not isinstance(blk, graph.DataflowBlock) or BlockScope(mod, blk, uses).writes:
                return blk
            values: dict[graph.Var, graph.Expr] = {}
            for group in _groups(name, blk, weights):
                values |= _combined(name, group)
            return with_values(blk, values) if values else blk

        new = map_blocks(fn, block)
        if new is not fn:
            updates[name] = new
    return normalized(mod.with_functions(updates)) if updates else mod


Product = tuple[graph.Var, graph.Call]


def _groups(name: str, blk: graph.BindingBlock, weights: set[graph.Var]) -> list[list[Product]]:
    """Calls that differ in their weights alone, two or more together."""
    groups: list[list[Product]] = []
    for b in blk.bindings:
        call = b.value
        if not isinstance(call, graph.Call) or call.op not in (MATMUL, LINEAR):
            continue
        reason = _unsuited(call, weights)
        if reason is not None:
            note(RULE, f"{name}.{b.var.name}", reason, applied=False)
            continue
        for group in groups:
            if _together(group[0][1], call):
                group.append((b.var, call))
                break
        else:
            groups.append([(b.var, call)])
    for group in groups:
        if len(group) == 1:
            v, call = group[0]
            text = f"no other product of `{getattr(call.args[0], 'name', '')}` fits"
            note(RULE, f"{name}.{v.name}", text, applied=False)
    return [g for g in groups if len(g) > 1]


MATMUL, LINEAR = graph.Op("matmul"), graph.Op("linear")


def _unsuited(call: graph.Call, weights: set[graph.Var]) -> str | None:
    for w in call.args[1:]:
        known = isinstance(w, graph.Constant) or w in weights
        if not known:
            return f"`{getattr(w, 'name', '')}` is neither a constant nor a weight"
        if _shape(w) is None:
            return "the shape of a weight is not known"
    first = _shape(call.args[1]) or ()
    if len(first) != 2 or len(_shape(call.args[0]) or ()) < 2:
        return "the operands are not matrices"
    out = first[1] if call.op == MATMUL else first[0]
    if len(call.args) == 3 and not same_dims(_shape(call.args[2]) or (), (out,)):
        return "the bias is broadcast"
    return None


def _together(a: graph.Call, b: graph.Call) -> bool:
    if a.op != b.op or a.attrs != b.attrs or a.args[0] is not b.args[0]:
        return False
    if len(a.args) != len(b.args):
        return False
    axis = 0 if a.op == MATMUL else 1
    one, other = _shape(a.args[1]) or (), _shape(b.args[1]) or ()
    dtypes = {getattr(leaf_type(w), "dtype", None) for c in (a, b) for w in c.args[1:]}
    return same_dims(one[axis : axis + 1], other[axis : axis + 1]) and len(dtypes) == 1


def _combined(name: str, group: Sequence[Product]) -> dict[graph.Var, graph.Expr]:
    first = group[0][1]
    axis = 1 if first.op == MATMUL else 0
    widths = [(_shape(c.args[1]) or ())[axis] for _, c in group]
    parts: list[graph.Expr] = [_concat([c.args[1] for _, c in group], axis)]
    if len(first.args) == 3:
        parts.append(_concat([c.args[2] for _, c in group], 0))
    whole = graph.DataflowVar(f"{group[0][0].name}_all")
    values: dict[graph.Var, graph.Expr] = {
        whole: graph.Call(first.op, (first.args[0], *parts), first.attrs)
    }
    start: expr.PrimExpr = expr.const(0)
    for (v, _), width in zip(group, widths, strict=True):
        end = start + width
        cut = builder("strided_slice")
        values[v] = cut(whole, axes=[-1], begin=[start], end=[end], assume_inbound=True)
        start = end
    names = ", ".join(f"`{v.name}`" for v, _ in group)
    note(RULE, f"{name}.{whole.name}", f"{names} become one product with {start} columns")
    return values


def _concat(items: list[graph.Expr], axis: int) -> graph.Expr:
    return builder("concat")(graph.Tuple(tuple(items)), axis=axis)


def _shape(e: graph.Expr) -> tuple[expr.PrimExpr, ...] | None:
    ty = leaf_type(e)
    return ty.shape if isinstance(ty, types.TensorType) else None
