"""Compute operations by other loop functions, with operands and results in layouts of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import graph, types
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import TirCall, known_shape, leaf_type, map_blocks, tir_call
from relaxlab.passes.bindings import with_bindings as rebuilt
from relaxlab.tracing import may_apply

RULE = "replace_kernels"
OPERATION = "operator_name"
"""The attribute of a loop function that names the operation that it computes."""
Layouts = Sequence[IndexMap | None]


@dataclass(frozen=True, slots=True)
class ReplaceOptions:
    """`kernels`: by the name of an operation, the loop function that computes it; `layouts`: by the
    same names, for each operand and then each result, the map from the indices that the program
    has to those of that function, None where they are the same; `padding`: the value of elements
    that a layout adds."""

    kernels: Mapping[str, PrimFunc] = field(default_factory=dict[str, PrimFunc])
    layouts: Mapping[str, Layouts] = field(default_factory=dict[str, Layouts])
    padding: float = 0.0


@module_pass(RULE, ReplaceOptions, needs=("normalize",))
def replace_kernels(mod: Module, options: ReplaceOptions) -> Module:
    """Call the loop functions `kernels` in the place of those that compute the same operations.
    Operands and results change their layouts before and after the calls.

    Raises ValueError where the number of layouts is not that of the operands and results.
    """
    state = _Replacement(mod, options)
    updates = {
        name: map_blocks(fn, lambda blk, n=name: state.block(n, blk))
        for name, fn in mod.graph_functions().items()
    }
    return mod.with_functions({**updates, **state.made}) if state.made else mod


class _Replacement:
    def __init__(self, mod: Module, options: ReplaceOptions) -> None:
        self.mod, self.options = mod, options
        self.callees = mod.loop_functions()
        self.made: dict[str, PrimFunc] = {}
        self.names: dict[str, str] = {}
        self.dataflow = False

    def block(self, caller: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        self.dataflow = isinstance(blk, graph.DataflowBlock)
        return rebuilt(blk, [new for b in blk.bindings for new in self.binding(caller, b)])

    def binding(self, caller: str, b: graph.Binding) -> list[graph.Binding]:
        call = tir_call(b.value)
        if call is None or call.inplace:
            return [b]
        callee = self.callees[call.callee]
        operation: Any = callee.attrs.get(OPERATION)
        kernel = self.options.kernels.get(operation)
        if kernel is None or kernel.body is callee.body:  # replaced already
            return [b]
        if not may_apply(RULE, f"{caller}.{b.var.name}", f"another function for {operation}"):
            return [b]
        return self.replaced(b, call, operation)

    def replaced(self, b: graph.Binding, call: TirCall, operation: str) -> list[graph.Binding]:
        count = len(call.args) + len(call.outs)
        maps = self.options.layouts.get(operation, (None,) * count)
        if len(maps) != count:
            raise ValueError(
                f"{RULE}: {operation!r} has {len(maps)} layouts, and {call.callee!r} {count} "
                "operands and results: give each of them one, or None"
            )
        split = len(call.args)
        args = tuple(map(self.moved, call.args, maps[:split]))
        outs = tuple(map(_moved_type, call.outs, maps[split:]))
        new = TirCall(self.name(operation), args, call.symbols, outs).build()
        if all(m is None for m in maps[split:]):
            return [replace(b, value=new)]
        if len(outs) == 1:
            return [replace(b, value=self.moved_back(new, call.outs[0], maps[split]))]
        kind = graph.DataflowVar if self.dataflow else graph.Var
        every = kind(f"{b.var.name}_moved", types.TupleType(outs))
        parts = (graph.TupleGetItem(every, i) for i in range(len(outs)))
        results = tuple(map(self.moved_back, parts, call.outs, maps[split:]))
        return [graph.VarBinding(new, every), replace(b, value=graph.Tuple(results))]

    def name(self, operation: str) -> str:
        """The name of the loop function for an operation, which the module has from then on."""
        if operation not in self.names:
            taken = Module.of({**dict(self.mod.functions), **self.made})
            name = taken.fresh_name(f"{operation.replace('.', '_')}_replacement")
            kernel = self.options.kernels[operation]
            attrs = kernel.attrs.with_(**{OPERATION: operation})
            self.made[name] = replace(kernel, private=True, attrs=attrs)
            self.names[operation] = name
        return self.names[operation]

    def moved(self, operand: graph.Expr, index_map: IndexMap | None) -> graph.Expr:
        """An operand in the layout of the loop function."""
        if index_map is None:
            return operand
        shape = known_shape(leaf_type(operand))
        if shape is None:
            raise ValueError(f"{RULE}: the shape of {operand} is not known, which gets a layout")
        _, _, unused = index_map.inverse_with_padding(shape)
        return _moved(operand, index_map, None if unused is None else self.options.padding)

    def moved_back(
        self, result: graph.Expr, ty: types.Type, index_map: IndexMap | None
    ) -> graph.Expr:
        """A result in the layout of the program, without the elements that the other one adds."""
        if index_map is None:
            return result
        shape = known_shape(ty)
        assert shape is not None
        back, _, unused = index_map.inverse_with_padding(shape)
        value = _moved(result, back, None)
        if unused is None:
            return value
        axes = tuple(range(len(shape)))
        attrs = Attrs(axes=axes, begin=(0,) * len(axes), end=shape)
        return graph.Call(graph.Op("strided_slice"), (value,), attrs)


def _moved(value: graph.Expr, index_map: IndexMap, pad_value: float | None) -> graph.Call:
    attrs = Attrs(index_map=index_map, pad_value=pad_value)
    return graph.Call(graph.Op("layout_transform"), (value,), attrs)


def _moved_type(ty: types.Type, index_map: IndexMap | None) -> types.Type:
    """The type of a result in the layout of the loop function."""
    if index_map is None:
        return ty
    shape = known_shape(ty)
    assert isinstance(ty, types.TensorType) and shape is not None
    return types.TensorType(index_map.map_shape(shape), ty.dtype)
