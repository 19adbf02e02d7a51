"""Repack arguments for loop functions whose schedule changed the layout of a parameter."""

from __future__ import annotations

import functools

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ops import te
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import (
    TirCall,
    known_shape,
    leaf_type,
    map_blocks,
    tir_call,
    with_bindings,
)
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.tracing import may_apply, remark

Rewrites = tuple[tuple[int, IndexMap], ...]
"""Parameter numbers with the map from the old to the new indices."""


@module_pass("rewrite_layouts", needs=("schedule_kernels",))
def rewrite_layouts(mod: Module, _: NoOptions) -> Module:
    """Relayout the arguments of loop functions with the attribute `layout_rewrites` (pairs of
    parameter and index map) by a call before theirs, and drop the attribute.

    The relayout of a weight depends on nothing else, so `lift_transform_params` then moves it out
    of the function. Elements that the map leaves unused are zero.
    """
    changed = {
        n: f
        for n, f in mod.loop_functions().items()
        if (rewrites := f.attrs.get("layout_rewrites"))
        and may_apply("rewrite_layouts", n, f"its callers repack {len(rewrites)} arguments")
    }
    if not changed:
        return mod
    state = _Rewriter(mod, changed)
    graphs = {
        name: map_blocks(fn, lambda blk, n=name: state.block(n, blk))
        for name, fn in mod.graph_functions().items()
    }
    plain = {n: replace(f, attrs=f.attrs.with_(layout_rewrites=None)) for n, f in changed.items()}
    return mod.with_functions({**graphs, **plain, **state.functions.made})


class _Rewriter:
    def __init__(self, mod: Module, changed: dict[str, loops.PrimFunc]) -> None:
        self.mod = mod
        self.changed = changed
        self.functions = NewFunctions[loops.PrimFunc](mod)
        # Layers call the same functions with matrices of the same shape over and over.
        self.known: dict[object, tuple[str, loops.PrimFunc, types.Type]] = {}

    def block(self, name: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
        known: dict[tuple[graph.Expr, str], graph.Var] = {}
        new: list[graph.Binding] = []
        for b in blk.bindings:
            call = tir_call(b.value)
            if call is None or call.callee not in self.changed:
                new.append(b)
                continue
            args: list[graph.Expr] = list(call.args)
            rewrites: Rewrites = self.changed[call.callee].attrs["layout_rewrites"]
            for at, index_map in rewrites:
                param = self.changed[call.callee].params[at]
                assert isinstance(param, loops.Buffer)
                relayout = self.relayout(args[at], index_map, param.shape)
                key = (args[at], relayout.callee)
                if key not in known:
                    source = getattr(args[at], "name", "const")
                    known[key] = kind(f"{source}_packed", relayout.outs[0])
                    new.append(graph.VarBinding(relayout.build(), known[key], span=b.span))
                    remark("rewrite_layouts", f"{name}.{source}", f"{index_map} for {call.callee}")
                args[at] = known[key]
            value = call.with_args(tuple(args)).build()
            new.append(replace(b, value=replace(value, span=b.value.span)))
        return with_bindings(blk, new)

    def relayout(
        self, arg: graph.Expr, index_map: IndexMap, held: tuple[expr.PrimExpr, ...]
    ) -> TirCall:
        ty = leaf_type(arg)
        shape = known_shape(ty)
        assert shape is not None and isinstance(ty, types.TensorType) and ty.dtype is not None
        # The identity of the map is enough: attributes of one function share theirs, and
        # `NewFunctions` joins equal functions in any case.
        key = (shape, ty.dtype, id(index_map))
        if key not in self.known:
            func, new_shape = relayout_function(shape, ty.dtype, index_map, held)
            made = self.functions.name_of(func, "relayout")
            self.known[key] = made, func, types.TensorType(new_shape, ty.dtype)
        name, func, out = self.known[key]
        symbols = tuple(p for p in func.params if isinstance(p, expr.Var))
        return TirCall(name, (arg,), symbols, (out,))


def relayout_function(
    shape: tuple[expr.PrimExpr, ...], dtype: str, index_map: IndexMap,
    held: tuple[expr.PrimExpr, ...],
) -> tuple[loops.PrimFunc, tuple[expr.PrimExpr, ...]]:
    """The loop function that copies an array of `shape` into the layout of `index_map` for a
    parameter of shape `held`, and the new shape. Raises NotInvertible for a map that is none."""
    back, used, padding = index_map.inverse_with_padding(shape)
    new_shape = repacked_shape(used, held)
    pairs = zip(back.initial_indices, used, new_shape, strict=True)
    conditions: list[expr.PrimExpr] = [expr.GE(i, n) for i, n, whole in pairs if whole != n]
    conditions += [] if padding is None else [padding]
    source = te.placeholder(shape, dtype, "A")

    def element(*indices: expr.PrimExpr) -> expr.PrimExpr:
        value = source[back.apply(indices)]
        if not conditions:
            return value
        # Zeros, since kernels compute whole panels: what is multiplied there must not be NaN.
        condition = functools.reduce(expr.Or, conditions)
        (unused,) = IndexMap(back.initial_indices, (condition,)).apply(indices)
        return expr.if_then_else(unused, expr.const(0, dtype), value)

    packed = te.compute(new_shape, element, "relayout")
    return te.create_prim_func([source, packed]), new_shape


def repacked_shape(
    used: tuple[expr.PrimExpr, ...], held: tuple[expr.PrimExpr, ...]
) -> tuple[expr.PrimExpr, ...]:
    """The shape of a repacked array: constant extents are those of the parameter, whose shape is
    `held`, symbolic ones those that the map gives, `used`.

    The parameter's are larger where the map joins dimensions with fewer elements than a tile has.
    Its symbols are another function's.
    """
    return tuple(
        mine if isinstance(mine, expr.IntImm) and isinstance(n, expr.IntImm) else n
        for n, mine in zip(used, held, strict=True)
    )
