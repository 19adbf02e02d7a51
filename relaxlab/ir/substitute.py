"""Substitution and free variables, for both levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.node import Atom, Attrs, Node, binder_names, field_names, map_children, replace

N = TypeVar("N", bound=Node)


def substitute(
    root: N,
    symbols: Mapping[expr.Var, expr.PrimExpr] | None = None,
    buffers: Mapping[loops.Buffer, loops.Buffer] | None = None,
    values: Mapping[graph.Var, graph.Expr] | None = None,
) -> N:
    """`root` with scalar variables, buffers and graph variables replaced.

    Buffers whose shape, strides or offset mention a replaced symbol, and graph variables whose
    type does, are redeclared once and consistently. A variable in a defining position is replaced
    only by another variable. Arithmetic folds as it is rebuilt.
    """
    table: dict[Node, Node] = {**(symbols or {}), **(buffers or {}), **(values or {})}
    if not table:
        return root
    has_symbols = bool(symbols)

    def visit(n: Node) -> Node:
        if isinstance(n, Atom):
            if n in table:
                return table[n]
            if has_symbols and isinstance(n, loops.Buffer | graph.Var):
                new = _redeclare(n, visit)
                table[n] = new
                return new
            return n
        new = map_children(n, visit)
        if new is not n and isinstance(new, expr.BinaryOp):
            folded = expr.binary(type(new), new.a, new.b)
            return folded if type(folded) is not type(new) else new
        return new

    return visit(root)  # type: ignore[return-value]


def _redeclare(n: Any, visit: Any) -> Any:
    changes: dict[str, Any] = {}
    for name in field_names(type(n)):
        old = getattr(n, name)
        if isinstance(old, tuple):
            new: Any = tuple(visit(v) for v in old)  # type: ignore
            if all(a is b for a, b in zip(new, old, strict=True)):  # type: ignore
                continue
        elif isinstance(old, Node):
            new = visit(old)
            if new is old:
                continue
        else:
            continue
        changes[name] = new
    return replace(n, **changes) if changes else n


def atoms_of(root: Any) -> Iterator[Atom]:
    """Every occurrence of a variable or buffer in `root`, in field order, declarations included:
    a buffer is followed by the symbols of its shape, a graph variable by those of its type."""
    if isinstance(root, Node):
        if isinstance(root, Atom):
            yield root
        for name in field_names(type(root)):
            yield from atoms_of(getattr(root, name))
    elif isinstance(root, tuple):
        for item in root:  # type: ignore[reportUnknownVariableType]
            yield from atoms_of(item)
    elif isinstance(root, Attrs):
        for item in root.values():
            yield from atoms_of(item)


def symbols_in(root: Any) -> tuple[expr.Var, ...]:
    """The distinct scalar variables mentioned anywhere in `root`, bound or free, in order."""
    return tuple(dict.fromkeys(a for a in atoms_of(root) if isinstance(a, expr.Var)))


def free_symbols(root: Any) -> tuple[expr.Var, ...]:
    """The scalar variables of `root` that no enclosing loop, let, block or parameter defines."""
    bound: set[Atom] = set()
    for n in _all_nodes(root):
        for name in binder_names(type(n)):
            value = getattr(n, name)
            items = value if isinstance(value, tuple) else (value,)
            bound.update(a for item in items for a in ([item] if isinstance(item, Atom) else []))
    return tuple(s for s in symbols_in(root) if s not in bound)


def _all_nodes(root: Any) -> Iterator[Node]:
    if isinstance(root, Node):
        yield root
        for name in field_names(type(root)):
            yield from _all_nodes(getattr(root, name))
    elif isinstance(root, tuple):
        for item in root:  # type: ignore[reportUnknownVariableType]
            yield from _all_nodes(item)
