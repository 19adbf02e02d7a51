"""Make every allocation explicit: calls in destination-passing style (section 4.3).

`y = call_tir(f, (x,), ty)` becomes `y = builtin.alloc_tensor(shape, dtype)` and `f(x, y)`. The
functions have no dataflow blocks afterwards: calls now have effects.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import known_shape, map_blocks, replace_body, tir_call
from relaxlab.tracing import may_apply

VOID = types.TupleType(())
ALLOC_TENSOR = graph.Op("builtin.alloc_tensor")
DEVICE = graph.PrimValue(expr.const(0))
SCOPE = graph.StringImm("global")


GRAPH_LEVEL = (
    "eliminate_common_subexpr",
    "fuse_ops",
    "fuse_ops_by_pattern",
    "fuse_tir",
    "inline_functions",
    "legalize_ops",
    "lift_transform_params",
    "lift_workspace",
    "lower_to_libraries",
    "rewrite_layouts",
)
"""Passes on calls that return their results; they find none after this one."""


@dataclass(frozen=True, slots=True)
class ExpandOptions:
    """`copies`: a result has a name of its own, of which that in the program is a copy, and what
    registered functions return besides has any type."""

    copies: bool = False


@module_pass("expand_calls", ExpandOptions, needs=("normalize",), ends=GRAPH_LEVEL)
def expand_calls(mod: Module, options: ExpandOptions) -> Module:
    """Expand `call_tir`, `call_dps_packed` and their in-place forms into allocations and calls.

    An output that overwrites an argument becomes that argument.
    """
    graphs = mod.graph_functions().items()
    return mod.with_functions({name: _function(name, fn, options) for name, fn in graphs})


def _function(name: str, fn: graph.Function, options: ExpandOptions) -> graph.Function:
    local: dict[graph.Var, graph.Expr] = {}

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        new = [x for b in blk.bindings for x in _binding(name, b, options)]
        flow = isinstance(blk, graph.DataflowBlock)
        if not flow and all(a is b for a, b in zip(new, blk.bindings, strict=False)):
            return blk
        for b in new:
            var = b.var
            if isinstance(var, graph.DataflowVar):
                local[var] = graph.Var(var.name, var.ty, span=var.span)
        return graph.BindingBlock(tuple(new), span=blk.span)

    expanded = map_blocks(fn, block)
    # Writing into fresh memory is impure call by call; from outside, the function still has no
    # effect.
    if expanded is not fn and fn.is_pure:
        expanded = replace(expanded, attrs=fn.attrs.with_(**{"relax.force_pure": True}))
    if not local:
        return expanded
    return replace_body(expanded, substitute(expanded.body, values=local))


def _binding(name: str, b: graph.Binding, options: ExpandOptions) -> list[graph.Binding]:
    if not isinstance(b, graph.VarBinding):
        return [b]
    value, subject = b.value, f"{name}.{b.var.name}"
    call = tir_call(value)
    if call is not None:
        reason = f"`{call.callee}` writes into memory given to it"
        if not may_apply("expand_calls", subject, reason):
            return [b]
        extra = tuple(graph.PrimValue(s) for s in call.symbols)
        sources = call.inplace or (-1,) * len(call.outs)
        callee: graph.Expr = graph.GlobalVar(call.callee)
        return _allocated(b, callee, call.args, call.outs, sources, extra, options)
    match value:
        case graph.Call(graph.Op("call_dps_packed"), (callee, packed, *_)):
            reason = "what it calls writes into memory given to it"
            if not may_apply("expand_calls", subject, reason):
                return [b]
            args = packed.fields if isinstance(packed, graph.Tuple) else (packed,)
            sources = (-1,) * len(value.ty_args)
            return _allocated(b, callee, args, value.ty_args, sources, (), options)
        case graph.Call(graph.Op("call_inplace_packed"), (callee, *args)):
            return _overwriting(b, value, callee, tuple(args))
        case graph.Call(graph.Op("builtin.stop_lift_params"), (same,)):
            return [replace(b, value=same)]
        case _:
            return [b]


def _overwriting(
    b: graph.VarBinding, call: graph.Call, callee: graph.Expr, args: tuple[graph.Expr, ...]
) -> list[graph.Binding]:
    """A packed call that overwrites arguments: they are its results then. What else it returns
    are new tensors, for which it returns all results as a tuple."""
    indices: tuple[int, ...] = call.attrs["inplace_indices"]
    attrs = Attrs(overwrites=tuple(sorted({i for i in indices if i >= 0})))
    made = min(indices) < 0
    out = types.TupleType(call.ty_args) if made else VOID
    packed = graph.Call(callee, args, attrs, (out,), span=call.span)
    whole = graph.Var(f"{b.var.name}_packed" if made else "_", out)
    new: list[graph.Binding] = [graph.VarBinding(packed, whole, span=b.span)]
    results: list[graph.Expr] = []
    for k, (i, ty) in enumerate(zip(indices, call.ty_args, strict=True)):
        if i >= 0:
            results.append(args[i])
            continue
        results.append(field := graph.Var(f"{b.var.name}_{k}", ty))
        new.append(graph.VarBinding(graph.TupleGetItem(whole, k), field, span=b.span))
    value = results[0] if len(results) == 1 else graph.Tuple(tuple(results))
    return [*new, graph.VarBinding(value, b.var, span=b.span)]


def _allocated(
    b: graph.VarBinding,
    callee: graph.Expr,
    args: tuple[graph.Expr, ...],
    outs: tuple[types.Type, ...],
    sources: tuple[int, ...],
    extra: tuple[graph.Expr, ...],
    options: ExpandOptions,
) -> list[graph.Binding]:
    """The allocations, the call, and the binding of `b`'s variable to the outputs."""
    new: list[graph.Binding] = []
    results: list[graph.Expr] = []
    fresh: list[graph.Expr] = []
    for i, (ty, source) in enumerate(zip(outs, sources, strict=True)):
        if source >= 0:
            results.append(args[source])
            continue
        named = len(outs) == 1 and not options.copies
        var = b.var if named else graph.Var(f"{b.var.name}_{i}", ty)
        new.append(graph.VarBinding(alloc_tensor(ty), var, span=b.span))
        results.append(var)
        fresh.append(var)
    # A registered function may return something, which nothing reads.
    stated = () if isinstance(callee, graph.GlobalVar) or options.copies else (VOID,)
    call = graph.Call(callee, (*args, *fresh, *extra), ty_args=stated, span=b.value.span)
    nothing = VOID if isinstance(callee, graph.GlobalVar) or stated else types.ObjectType()
    new.append(graph.VarBinding(call, graph.Var("_", nothing), span=b.span))
    if len(outs) != 1:
        new.append(graph.VarBinding(graph.Tuple(tuple(results)), b.var, span=b.span))
    elif results[0] is not b.var:
        new.append(graph.VarBinding(results[0], b.var, span=b.span))
    return new


def alloc_tensor(ty: types.Type) -> graph.Call:
    """`R.builtin.alloc_tensor` of a tensor type."""
    shape = known_shape(ty)
    assert shape is not None and isinstance(ty, types.TensorType) and ty.dtype is not None
    args = (graph.ShapeExpr(shape), graph.DataTypeImm(ty.dtype), DEVICE, SCOPE)
    return graph.Call(ALLOC_TENSOR, args)
