"""The memory that a function has planned."""

from relaxlab.ir import expr, graph
from relaxlab.passes.bindings import all_bindings


def bytes_planned(fn: graph.Function) -> expr.PrimExpr:
    """The bytes of all storages of a planned function."""
    total: expr.PrimExpr = expr.const(0)
    for b in all_bindings(fn):
        match b:
            case graph.VarBinding(
                graph.Call(graph.Op("memory.alloc_storage"), (graph.ShapeExpr((size,)), *_))
            ):
                total = total + size
            case _:
                pass
    return total
