"""Compute products, and the operators between them, in half precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import Attrs, map_children, replace
from relaxlab.ir.op_table import has_trait, op_row
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import is_scalar, leaf_type, map_blocks, with_bindings
from relaxlab.passes.patterns.rewrite import drop_unread, normalized
from relaxlab.passes.shadows import Shadows, with_shadows
from relaxlab.tracing import may_apply, remark

RULE = "convert_to_mixed_precision"


@dataclass(frozen=True, slots=True)
class PrecisionOptions:
    """`dtype`: "float16" or "bfloat16". `product`: the dtype in which products are computed and
    which they state, where their operator can, before their results become `dtype`; None leaves
    that to the operator. `params`: the names of the float32 parameters that callers are to give in
    `dtype`, all other signatures stay. `elementwise`: exponentials and other functions of single
    elements follow their operands, too, though they round more than once."""

    dtype: str = "float16"
    product: str | None = None
    params: tuple[str, ...] = ()
    elementwise: bool = False


@module_pass(RULE, PrecisionOptions, needs=("normalize",))
def convert_to_mixed_precision(mod: Module, options: PrecisionOptions) -> Module:
    """Convert the float32 operands of products to `dtype`; their results stay in it through
    operators that only move or combine elements, and become float32 again for everything else
    (norms, softmax, exponentials, sums, results of functions).

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
    converted = with_shadows(mod, convert, lambda e, _: _cast(e, "float32"), "_half", rewrite)
    return _with_half_params(converted, options) if options.params else converted


def _with_half_params(mod: Module, options: PrecisionOptions) -> Module:
    """The module whose functions take the parameters of the given names in half precision. Raises
    ValueError for a name that no float32 parameter has."""
    functions = mod.graph_functions()
    known = {p.name for fn in functions.values() for p in fn.params if _is_float32(p)}
    for name in options.params:
        if name not in known:
            raise ValueError(
                f"{RULE}: there is no float32 parameter {name!r}; there are: "
                f"{among(name, sorted(known))}"
            )
    updates = {name: _with_half_params_of(fn, options, mod) for name, fn in functions.items()}
    return normalized(mod.with_functions(updates))


def _with_half_params_of(
    fn: graph.Function, options: PrecisionOptions, mod: Module
) -> graph.Function:
    halves: dict[graph.Var, graph.Var] = {}
    for p in fn.params:
        if p.name in options.params and isinstance(p.ty, types.TensorType) and _is_float32(p):
            halves[p] = replace(p, ty=replace(p.ty, dtype=options.dtype))
    if not halves:
        return fn
    converted: dict[graph.Var, graph.Var] = {}

    def converts(b: graph.Binding) -> bool:
        """True for a conversion of one of the parameters, whose variable is that one from here."""
        match b:
            case graph.VarBinding(graph.Call(graph.Op("astype"), (graph.Var() as p,), attrs), v):
                if p in halves and attrs["dtype"] == options.dtype:
                    converted[v] = halves[p]
            case _:
                pass
        return b.var in converted

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [b for b in blk.bindings if not converts(b)])

    wide = {p: graph.DataflowVar(p.name, p.ty) for p in halves}
    restored = (graph.VarBinding(_cast(given, "float32"), wide[p]) for p, given in halves.items())
    body = map_blocks(fn, block).body
    body = substitute(body, values=wide | converted)
    body = replace(body, blocks=(graph.DataflowBlock(tuple(restored)), *body.blocks))
    new = replace(fn, params=tuple(halves.get(p, p) for p in fn.params), body=body)
    return drop_unread(new, set(wide.values()), mod)


def _cast(e: graph.Expr, dtype: str) -> graph.Call:
    return graph.Call(graph.Op("astype"), (e,), Attrs(dtype=dtype))


def _binding(
    options: PrecisionOptions, name: str, b: graph.VarBinding, value: graph.Call, shadows: Shadows
) -> bool:
    assert isinstance(value.op, graph.Op)
    op = value.op.name
    product = has_trait(op, "product")
    follows = has_trait(op, "rounds_once") or (
        options.elementwise and has_trait(op, "elementwise") and op != "astype"
    )
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
    apart = [e for e in floats if not shadows.has(e) and not is_scalar(e)]
    # Those save nothing by themselves: converting an operand for one would cost a pass over it.
    if follows and (apart or all(is_scalar(e) for e in floats)):
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
