"""Products of one value with several weights become one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ops.define import builder
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import dims_of, leaf_type, map_blocks, same_dims, with_bindings
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import may_apply, remark

RULE = "combine_parallel_matmul"


@dataclass(frozen=True, slots=True)
class CombineOptions:
    """`split`: the products are the fields of a `split` where their widths are constant, not
    slices, which fuse into what reads them. `check` is given the operand that products share, and
    their weights and biases; if it returns False they stay apart."""

    split: bool = False
    check: Callable[[graph.Expr, list[graph.Expr], list[graph.Expr]], bool] | None = None


@module_pass(RULE, CombineOptions, needs=("normalize",))
def combine_parallel_matmul(mod: Module, options: CombineOptions) -> Module:
    """Replace x @ w1, x @ w2, … in one block by parts of x @ concat(w1, w2, …), computed where the
    first of them was; `linear` and its bias likewise.

    The weights are matrices of one height, or stacks of as many of them: constants, or parameters
    (with the attribute `num_input`, those after the inputs); or transposes of such matrices, or
    decoded blocks of one format. Together with `lift_transform_params` they are concatenated once.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        weights = set(fn.params[fn.attrs.get("num_input", 0) :])
        new = combined(RULE, name, fn, weights, options)
        if new is not None:
            updates[name] = new
    return normalized(mod.with_functions(updates)) if updates else mod


def combined(
    rule: str, name: str, fn: graph.Function, weights: set[graph.Var], options: CombineOptions
) -> graph.Function | None:
    """The function with its products combined, of which the rewrite `rule` is asked for; None where
    there is nothing to combine."""
    whole = map_blocks(fn, lambda b: b)  # neighbouring plain blocks as one
    new = map_blocks(whole, partial(_block, rule, name, weights, options))
    return None if new is whole else new


def _block(
    rule: str,
    name: str,
    weights: set[graph.Var],
    options: CombineOptions,
    blk: graph.BindingBlock,
) -> graph.BindingBlock:
    kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
    first: dict[graph.Var, list[graph.Binding]] = {}
    values: dict[graph.Var, graph.Expr] = {}
    for group in _groups(rule, name, blk, weights):
        product, parts, columns = _combined(group, kind)
        names = ", ".join(f"`{v.name}`" for v, _ in group)
        if not _accepted(options, group):
            remark(rule, f"{name}.{product.var.name}", f"{names}: the check refuses", applied=False)
            continue
        reason = f"{names} become one product with {columns} columns"
        if not may_apply(rule, f"{name}.{product.var.name}", reason):
            continue
        first[group[0][0]] = [product]
        if options.split and all(isinstance(_width(v), expr.IntImm) for v, _ in group):
            first[group[0][0]], parts = _as_split(product, group, kind)
        values |= parts
    new: list[graph.Binding] = []
    for b in blk.bindings:
        new += first.get(b.var, [])
        new.append(replace(b, value=values[b.var]) if b.var in values else b)  # type: ignore
    return with_bindings(blk, new)


Product = tuple[graph.Var, graph.Call]


def _groups(
    rule: str, name: str, blk: graph.BindingBlock, weights: set[graph.Var]
) -> list[list[Product]]:
    """Calls that differ in their weights alone, two or more together."""
    groups: list[list[Product]] = []
    made = {
        b.var: b.value
        for b in blk.bindings
        if isinstance(b.value, graph.Call)
        and b.value.op in (TURNED, DECODED)
        and len(dims_of(b.var) or ()) == 2
        and all(_is_weight(f, weights) for f in _stored(b.value))
    }
    for b in blk.bindings:
        call = b.value
        if not isinstance(call, graph.Call) or call.op not in (MATMUL, LINEAR):
            continue
        reason = _unsuited(call, weights | set(made))
        if reason is not None:
            remark(rule, f"{name}.{b.var.name}", reason, applied=False)
            continue
        for group in groups:
            if _together(group[0][1], call, made):
                group.append((b.var, call))
                break
        else:
            groups.append([(b.var, call)])
    for group in groups:
        if len(group) == 1:
            v, call = group[0]
            text = f"no other product of `{getattr(call.args[0], 'name', '')}` fits"
            remark(rule, f"{name}.{v.name}", text, applied=False)
    # What makes a weight may stand after the first product: it is written anew where it is read.
    return [[(v, _inlined(c, made)) for v, c in g] for g in groups if len(g) > 1]


def _accepted(options: CombineOptions, group: Sequence[Product]) -> bool:
    if options.check is None:
        return True
    calls = [call for _, call in group]
    biases = [bias for c in calls for bias in c.args[2:]]
    return options.check(calls[0].args[0], [c.args[1] for c in calls], biases)


def _inlined(call: graph.Call, values: dict[graph.Var, graph.Call]) -> graph.Call:
    args = (values.get(a, a) if isinstance(a, graph.Var) else a for a in call.args[1:])
    return replace(call, args=(call.args[0], *args))


MATMUL, LINEAR = graph.Op("matmul"), graph.Op("linear")
TURNED, DECODED = graph.Op("permute_dims"), graph.Op("decode_blocks")


def _stored(call: graph.Call) -> tuple[graph.Expr, ...]:
    """The arrays that a weight is made of."""
    return call.args[0].fields if isinstance(call.args[0], graph.Tuple) else call.args[:1]


def _unsuited(call: graph.Call, weights: set[graph.Var]) -> str | None:
    for w in call.args[1:]:
        if not _is_weight(w, weights):
            return f"`{getattr(w, 'name', '')}` is neither a constant nor a weight"
        if dims_of(w) is None:
            return "the shape of a weight is not known"
    first = dims_of(call.args[1]) or ()
    if len(first) < 2 or len(dims_of(call.args[0]) or ()) < 2:
        return "the operands are not matrices"
    out = first[-1] if call.op == MATMUL else first[0]
    # A broadcast bias could not be concatenated with the others.
    if len(call.args) == 3 and not same_dims(dims_of(call.args[2]) or (), (out,)):
        return "the bias is broadcast"
    return None


def _is_weight(e: graph.Expr, weights: set[graph.Var]) -> bool:
    return isinstance(e, graph.Constant) or e in weights


def _together(a: graph.Call, b: graph.Call, made: Mapping[graph.Var, graph.Call]) -> bool:
    formats = {_format(made.get(w)) for c in (a, b) for w in c.args[1:2]}  # type: ignore[arg-type]
    if len(formats) > 1 or a.op != b.op or a.attrs != b.attrs or a.args[0] is not b.args[0]:
        return False
    if len(a.args) != len(b.args):
        return False
    one, other = dims_of(a.args[1]) or (), dims_of(b.args[1]) or ()
    one, other = (w[:-1] if a.op == MATMUL else w[1:] for w in (one, other))
    dtypes = {getattr(leaf_type(w), "dtype", None) for c in (a, b) for w in c.args[1:]}
    return same_dims(one, other) and len(dtypes) == 1


def _format(weight: graph.Call | None) -> str | None:
    """The format of the blocks that a weight is decoded from; None for others."""
    return weight.attrs["format"] if weight is not None and weight.op == DECODED else None


def _combined(
    group: Sequence[Product], kind: type[graph.Var]
) -> tuple[graph.VarBinding, dict[graph.Var, graph.Expr], expr.PrimExpr]:
    """Return the binding of the combined product, the slice of it for each of the group, and its
    columns."""
    first = group[0][1]
    axis = len(dims_of(first.args[1]) or (0, 0)) - 1 if first.op == MATMUL else 0
    widths = [_width(v) for v, _ in group]
    operands: list[graph.Expr] = [_concat([c.args[1] for _, c in group], axis)]
    if len(first.args) == 3:
        operands.append(_concat([c.args[2] for _, c in group], 0))
    whole = kind(f"{group[0][0].name}_all")
    product = graph.VarBinding(replace(first, args=(first.args[0], *operands)), whole)
    parts: dict[graph.Var, graph.Expr] = {}
    start: expr.PrimExpr = expr.const(0)
    for (v, _), width in zip(group, widths, strict=True):
        end = start + width
        # The parts are known to be inside, so their bounds need not be clamped.
        cut = builder("strided_slice")
        parts[v] = cut(whole, axes=[-1], begin=[start], end=[end], assume_inbound=True)
        start = end
    return product, parts, start


def _as_split(
    product: graph.VarBinding, group: Sequence[Product], kind: type[graph.Var]
) -> tuple[list[graph.Binding], dict[graph.Var, graph.Expr]]:
    """Return the bindings of the combined product, whose dtype it states, and of its split; and the
    fields that are the products of the group."""
    shape, ty = dims_of(group[0][0]), leaf_type(group[0][0])
    call = product.value
    assert isinstance(call, graph.Call) and shape is not None and isinstance(ty, types.TensorType)
    stated = replace(product, value=replace(call, attrs=call.attrs.with_(out_dtype=ty.dtype)))
    ends = list(accumulate(int(_width(v).value) for v, _ in group))  # type: ignore[attr-defined]
    cut = builder("split")(product.var, ends[:-1], axis=len(shape) - 1)
    parts = kind(f"{product.var.name}_parts")
    fields = {v: graph.TupleGetItem(parts, i) for i, (v, _) in enumerate(group)}
    return [stated, graph.VarBinding(cut, parts)], dict(fields)


def _width(v: graph.Var) -> expr.PrimExpr:
    """The columns of a product."""
    shape = dims_of(v)
    assert shape is not None
    return shape[-1]


def _concat(items: list[graph.Expr], axis: int) -> graph.Expr:
    first = items[0]
    if isinstance(first, graph.Call) and first.op == DECODED:
        # Blocks are concatenated as they are stored, a row of them after the other.
        fields = zip(*(_stored(i) for i in items if isinstance(i, graph.Call)), strict=True)
        whole = graph.Tuple(tuple(_concat(list(f), 0) for f in fields))
        return replace(first, args=(whole,))
    return builder("concat")(graph.Tuple(tuple(items)), axis=axis)
