"""Products of float32 activations with quantised weights become products of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.row_major import product
from relaxlab.ops.block_formats import FORMATS
from relaxlab.ops.define import builder
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import dims_of, leaf_type, vars_in
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.eliminate_common_subexpr import eliminate_common_subexpr
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

X, BIAS = wildcard(), wildcard()
DECODED = is_op("decode_blocks")(wildcard())
PRODUCT = is_op("linear")(X, DECODED) | is_op("matmul")(X, is_op("permute_dims")(DECODED))
BIASED = is_op("linear")(X, DECODED, BIAS)


@dataclass(frozen=True, slots=True)
class ActivationOptions:
    """`parts`: the 8-bit integers that stand for an activation, 1 or 2 (15 bits); `results`: the
    same in products that a function returns, such as logits, whose errors no layer after them
    evens out."""

    parts: int = 1
    results: int = 2


@module_pass("quantize_activations", ActivationOptions, needs=("normalize",))
def quantize_activations(mod: Module, options: ActivationOptions) -> Module:
    """Replace `linear(x, decode_blocks(w))`, and `matmul` with its transpose, by `quantized_linear`
    of the stored blocks, and of x quantised at run time, by row and group of weights: once for all
    products that read it. Results change by the rounding of x.

    Raises ValueError for numbers of parts other than 1 and 2.
    """
    if not {options.parts, options.results} <= {1, 2}:
        found = f"{options.parts} and {options.results}"
        raise ValueError(f"quantize_activations: parts and results are 1 or 2, not {found}")
    returned = {v for fn in mod.graph_functions().values() for v in vars_in(fn.body.body)}

    def rewrite(call: graph.Call, match: Match) -> graph.Expr | str:
        return _quantized(call, match, options.results if match.root in returned else options.parts)

    made = rewrite_matches(mod, PRODUCT | BIASED, rewrite, "quantize_activations")
    return mod if made is mod else canonicalize(eliminate_common_subexpr(made))


def _quantized(call: graph.Call, match: Match, parts: int) -> graph.Expr | str:
    decoded = match.definition(DECODED)
    assert isinstance(decoded, graph.Call)
    x, shape, result = match[X], dims_of(match[X]), dims_of(match.root)
    if shape is None or result is None or len(shape) < 2:
        return "the activations are no matrix of known shape"
    if call.attrs.get("out_dtype") is not None:
        return f"its result is stated to be {call.attrs['out_dtype']}"
    ty = leaf_type(decoded.args[0])
    if not isinstance(ty, types.TupleType) or len(ty.fields) == 1:
        return "its weight is stored in whole blocks, not in fields"
    format = decoded.attrs["format"]
    rows = _reshaped(x, shape, (product(shape[:-1]), shape[-1]))
    integers = builder("dynamic_quantize")(rows, group=FORMATS[format].group, parts=parts)
    fields = (graph.TupleGetItem(integers, i) for i in range(3))
    made = builder("quantized_linear")(*fields, decoded.args[0], format=format, parts=parts)
    made = _reshaped(made, (product(shape[:-1]), result[-1]), result)
    return graph.Call(graph.Op("add"), (made, match[BIAS])) if BIASED in match else made


def _reshaped(
    x: graph.Expr, shape: Sequence[expr.PrimExpr], wanted: Sequence[expr.PrimExpr]
) -> graph.Expr:
    """A value of a shape in another one."""
    if len(shape) == len(wanted):
        return x
    return graph.Call(graph.Op("reshape"), (x, graph.ShapeExpr(tuple(wanted))))
