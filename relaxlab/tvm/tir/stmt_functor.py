"""`tvm.tir.stmt_functor`: walks through loop functions, and rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxlab.ir import substitute as core
from relaxlab.ir.node import Node, children, map_children


def post_order_visit(stmt: Any, fvisit: Callable[[Any], object]) -> None:
    """Call a function with each node of a statement or expression once, children first."""
    seen: set[int] = set()

    def visit(n: Node) -> None:
        if id(n) in seen:
            return
        seen.add(id(n))
        for c in children(n):
            visit(c)
        fvisit(n)

    visit(stmt)


def pre_order_visit(stmt: Any, fvisit: Callable[[Any], bool]) -> None:
    """Call a function with each node, parents first; the children of one for which it returns False
    are left out."""
    if fvisit(stmt):
        for c in children(stmt):
            pre_order_visit(c, fvisit)


def substitute(node: Any, vmap: Mapping[Any, Any]) -> Any:
    """The node with other expressions for variables."""
    return core.substitute(node, dict(vmap))


def ir_transform(
    stmt: Any,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> Any:
    """The statement with nodes replaced by what the functions return: `preorder` before the
    children, which are then left as they are, `postorder` after them; None keeps a node.

    `only_enable` names the classes of nodes that the functions are asked about ("tir.For").
    """
    names = None if only_enable is None else {n.rpartition(".")[2] for n in only_enable}

    def visit(n: Node) -> Any:
        asked = names is None or type(n).__name__ in names
        before = preorder(n) if asked and preorder is not None else None
        if before is not None:
            return before
        new = map_children(n, visit)
        after = postorder(new) if asked and postorder is not None else None
        return new if after is None else after

    return visit(stmt)


