"""Compute products, and the operators between them, in half precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, map_children, replace
from relaxlab.ir.op_table import has_trait, op_row
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.shadows import Shadows, with_shadows
from relaxlab.tracing import may_apply, remark

RULE = "convert_to_mixed_precision"


@dataclass(frozen=True, slots=True)
class PrecisionOptions:
    """`dtype`: "float16" or "bfloat16". `product`: the dtype in which products are computed and
    which they state, where their operator can, before their results become `dtype`; None leaves
    that to the operator."""

    dtype: str = "float16"
    product: str | None = None


@module_pass(RULE, PrecisionOptions, needs=("normalize",))
def convert_to_mixed_precision(mod: Module, options: PrecisionOptions) -> Module:
    """Convert the float32 operands of products to `dtype`; their results stay in it through
    operators that only move or combine elements, and become float32 again for everything else
    (norms, softmax, exponentials, sums, results of functions). Signatures do not change.

    Values that leave the range of `dtype` (65504 in float16) become infinite. Raises ValueError for
    another dtype.
    """
    if options.dtype not in ("float16", "bfloat16"):
        raise ValueError(f"{RULE}: dtype must be float16 or bfloat16, is {options.dtype}")

    def convert(e: graph.Expr, _: types.TensorType) -> graph.Expr:
        if isinstance(e, graph.Constant):
            return graph.Constant(e.data.astype(numpy_dtype(options.dtype)))
        return _cast(e, options.dtype)

    rewrite = partial(_binding, options)
    return with_shadows(mod, convert, lambda e, _: _cast(e, "float32"), "_half", rewrite)


def _cast(e: graph.Expr, dtype: str) -> graph.Call:
    return graph.Call(graph.Op("astype"), (e,), Attrs(dtype=dtype))


def _binding(
    options: PrecisionOptions, name: str, b: graph.VarBinding, value: graph.Call, shadows: Shadows
) -> bool:
    assert isinstance(value.op, graph.Op)
    op = value.op.name
    product, follows = has_trait(op, "product"), has_trait(op, "rounds_once")
    where = f"{name}.{b.var.name}: {op}"
    if not (product or follows):
        if any(shadows.has(e) for e in _tensors(value)):
            remark(RULE, where, "it stays in float32, for its precision", applied=False)
        return False
    floats = [e for e in _tensors(value) if _is_float32(e)]
    if not floats or not _is_float32_result(b.var.ty):
        return False
    stated = value.attrs.get("out_dtype")
    if product and stated is not None and not (options.product and stated == "float32"):
        remark(RULE, where, f"its result is stated to be {value.attrs['out_dtype']}", applied=False)
        return False
    apart = [e for e in floats if not shadows.has(e) and not _is_scalar(e)]
    # Those save nothing by themselves: converting an operand for one would cost a pass over it.
    if follows and (apart or all(_is_scalar(e) for e in floats)):
        if len(apart) < len(floats):
            text = f"`{getattr(apart[0], 'name', 'a constant')}` is in float32" if apart else ""
            remark(RULE, where, text or "its operands are constants", applied=False)
        return False

    def visit(e: graph.Expr) -> graph.Expr:
        ty = leaf_type(e)
        if isinstance(e, graph.Tuple):
            return map_children(e, visit)  # type: ignore[arg-type]
        return shadows.of(e, ty) if _is_float32(e) else e  # type: ignore[arg-type]

    reason = f"{len(apart)} operands are converted" if apart else "its operands are in it"
    if not may_apply(RULE, where, f"in half precision: {reason}"):
        return False
    args = tuple(visit(a) for a in value.args)
    new = replace(value, args=args)
    # `einsum` has no such attribute: its result has the dtype of its operands.
    states = any(p.name == "out_dtype" for p in op_row(op).params)
    if product and states and options.product is not None:
        new = replace(new, attrs=new.attrs.with_(out_dtype=options.product))
        new = new if options.product == options.dtype else _cast(new, options.dtype)
    shadows.bind(b, new)
    return True


def _tensors(call: graph.Call) -> list[graph.Expr]:
    """The tensor operands, fields of tuples included."""
    fields = [f for a in call.args for f in (a.fields if isinstance(a, graph.Tuple) else (a,))]
    return [f for f in fields if isinstance(leaf_type(f), types.TensorType)]


def _is_float32(e: graph.Expr) -> bool:
    ty = leaf_type(e)
    return isinstance(ty, types.TensorType) and ty.dtype == "float32"


def _is_float32_result(ty: types.Type | None) -> bool:
    if isinstance(ty, types.TupleType):
        return all(map(_is_float32_result, ty.fields))
    return isinstance(ty, types.TensorType) and ty.dtype == "float32"


def _is_scalar(e: graph.Expr) -> bool:
    return isinstance(e, graph.Constant) and e.data.ndim == 0
