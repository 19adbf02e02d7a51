"""Substitution and free variables, for both levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.node import (
    Atom,
    Attrs,
    Node,
    binder_names,
    field_names,
    map_children,
    replace,
    values_with_nodes,
)

N = TypeVar("N", bound=Node)


def substitute(
    root: N,
    symbols: Mapping[expr.Var, expr.PrimExpr] | None = None,
    buffers: Mapping[loops.Buffer, loops.Buffer] | None = None,
    values: Mapping[graph.Var, graph.Expr] | None = None,
) -> N:
    """`root` with scalar variables, buffers and graph variables replaced.

    Buffers whose declarations mention a replaced symbol or buffer, and graph variables whose type
    mentions a symbol, are redeclared once and consistently. A variable in a defining position is
    replaced only by another variable. Arithmetic folds as it is rebuilt.
    """
    table: dict[Node, Node] = {}
    for given in cast("tuple[Mapping[Node, Node] | None, ...]", (symbols, buffers, values)):
        table.update(given or {})
    if not table:
        return root
    has_symbols = bool(symbols)
    # Indices share their parts: of the nodes of a kernel half or more occur several times.
    made: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        if isinstance(n, Atom):
            if n in table:
                return table[n]
            if (has_symbols and isinstance(n, (loops.Buffer, graph.Var))) or _has_facts(n):
                new = _redeclare(n, visit)
                table[n] = new
                return new
            return n
        known = made.get(id(n))
        if known is not None:
            return known
        new = map_children(n, visit)
        if new is not n and isinstance(new, expr.BinaryOp):
            folded = expr.binary(type(new), new.a, new.b)
            new = folded if type(folded) is not type(new) else new
        made[id(n)] = new
        return new

    return visit(root)  # type: ignore[return-value]


def _has_facts(n: Atom) -> bool:
    return isinstance(n, loops.Buffer) and bool(n.facts)  # which mention other buffers


def _redeclare(n: Any, visit: Any) -> Any:
    changes: dict[str, Any] = {}
    for name in field_names(cast("type[Node]", type(n))):
        old = getattr(n, name)
        if isinstance(old, tuple):
            items = cast("tuple[Any, ...]", old)
            new: Any = tuple(visit(v) for v in items)
            if all(a is b for a, b in zip(new, items, strict=True)):
                continue
        elif isinstance(old, Node):
            new = visit(old)
            if new is old:
                continue
        else:
            continue
        changes[name] = new
    return replace(n, **changes) if changes else n


def symbols_in(root: Any) -> tuple[expr.Var, ...]:
    """The distinct scalar variables mentioned anywhere in `root`, bound or free, in order."""
    return tuple(n for n in _nodes_once(root) if isinstance(n, expr.Var))


def free_symbols(root: Any) -> tuple[expr.Var, ...]:
    """The scalar variables of `root` that no enclosing loop, let, block or parameter defines."""
    bound: set[Atom] = set()
    symbols: list[expr.Var] = []
    for n in _nodes_once(root):
        if isinstance(n, expr.Var):
            symbols.append(n)
        for name in binder_names(type(n)):
            value: Any = getattr(n, name)
            items = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            bound.update(item for item in items if isinstance(item, Atom))
    return tuple(s for s in symbols if s not in bound)


def _nodes_once(root: Any) -> Iterator[Node]:
    """Yield every node in `root`, parents first; an atom and its declaration once."""
    seen: set[Atom] = set()
    stack: list[Any] = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, Node):
            if isinstance(top, Atom):
                if top in seen:
                    continue
                seen.add(top)
            yield top
            stack += reversed(values_with_nodes[type(top)](top))
        elif isinstance(top, tuple):
            stack.extend(reversed(top))  # type: ignore[reportUnknownArgumentType]
        elif type(top) is Attrs:
            stack.extend(reversed(tuple(top.values())))
