"""`tvm.relax.utils`: values as expressions, and functions of other variables."""

from relaxlab.ir import graph
from relaxlab.ir.node import Node, rewrite
from relaxlab.tvm.names import names

_HOMES = {
    "convert_to_expr": "relaxlab.tvm.relax.expr:convert_to_expr",
}


def copy_with_new_vars(func: graph.Function) -> graph.Function:
    """An equal function, all of whose variables are others."""
    renewed: dict[graph.Var, graph.Var] = {}

    def visit(n: Node) -> Node | None:
        if isinstance(n, graph.Var):
            return renewed.setdefault(n, type(n)(n.name, n.ty))
        return None

    copy = rewrite(func, visit)
    assert isinstance(copy, graph.Function)
    return copy


__getattr__, __dir__ = names(__name__, _HOMES)
