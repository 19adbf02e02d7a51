"""Give each allocation of a tensor a storage of its own."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import replace
from relaxlab.ir.types import ObjectType
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks


@module_pass("lower_alloc_tensor", needs=("normalize",))
def lower_alloc_tensor(mod: Module, _: NoOptions) -> Module:
    """Make a storage of as many bytes for each `builtin.alloc_tensor(shape, dtype)`, and the tensor
    at its beginning. `plan_memory` lets tensors share storages; this is for those that it left."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        names = UniqueNames(b.var.name for b in all_bindings(fn))
        updates[name] = map_blocks(fn, lambda blk, n=names: _block(blk, n))
    return mod.with_functions(updates)


def _block(blk: graph.BindingBlock, names: UniqueNames) -> graph.BindingBlock:
    new = tuple(x for b in blk.bindings for x in _binding(b, names))
    return blk if len(new) == len(blk.bindings) else replace(blk, bindings=new)


def _binding(b: graph.Binding, names: UniqueNames) -> Iterator[graph.Binding]:
    match b.value:
        case graph.Call(graph.Op("builtin.alloc_tensor"), (graph.ShapeExpr(dims), dtype, *rest)):
            assert isinstance(dtype, graph.DataTypeImm | graph.StringImm)
            size = expr.const(numpy_dtype(dtype.value).itemsize)
            for d in dims:
                size = size * d
            device = rest[0] if rest else graph.PrimValue(expr.const(0))
            scope = rest[1] if len(rest) > 1 else graph.StringImm("global")
            kind = graph.DataflowVar if isinstance(b.var, graph.DataflowVar) else graph.Var
            storage = kind(names("storage"), ObjectType())
            bytes_ = (graph.ShapeExpr((size,)), device, scope, graph.DataTypeImm("uint8"))
            yield graph.VarBinding(
                graph.Call(graph.Op("memory.alloc_storage"), bytes_), storage, span=b.span
            )
            args = (storage, graph.PrimValue(expr.const(0)), b.value.args[0], dtype, device)
            yield replace(b, value=graph.Call(graph.Op("memory.alloc_tensor"), args))  # type: ignore[call-arg]
        case _:
            yield b
