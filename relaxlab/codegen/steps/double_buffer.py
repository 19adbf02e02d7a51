"""A step that fills the memory of the next iteration while this one works with its own."""

from __future__ import annotations

from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.annotate import DOUBLE_BUFFER
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.regions import with_alloc_as
from relaxlab.schedule.tree import alloc_sites, describe_loop, with_fresh_binders


def double_buffered(func: PrimFunc) -> PrimFunc:
    """The function in which a buffer whose filling is marked is there twice: before a loop it is
    filled for the first iteration, and each iteration fills the other half for the next one before
    it goes on.

    Raises ValueError for a marked statement that does not begin an iteration of a loop, or whose
    buffer is used outside of it, and for what would be read before it is written.
    """
    for buffer in alloc_sites(func):
        func = _doubled(func, buffer)
    return func


def _doubled(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    marked = [n for n in walk(func.body) if isinstance(n, For) and _is_marked(n, buffer)]
    if not marked:
        return func
    found: list[For] = []

    def visit(n: Node) -> Node:
        if isinstance(n, For) and isinstance(n.body, SeqStmt) and n.body.stmts[0] in marked:
            found.append(n)
            return _pipelined(n, buffer, new)
        return map_children(n, visit)

    new = replace(buffer, shape=(buffer.shape[0] * 2, *buffer.shape[1:]))
    body = visit(func.body)
    everywhere, inside = _accesses(func.body, buffer), sum(_accesses(f, buffer) for f in found)
    if len(found) != len(marked) or everywhere != inside or buffer.strides:
        raise ValueError(
            f"{buffer.name} is filled for the next iteration of a loop that begins with this, and "
            "is used in it alone"
        )
    return with_alloc_as(replace(func, body=body), buffer, new)  # type: ignore[arg-type]


def _is_marked(loop: For, buffer: Buffer) -> bool:
    """True if an attribute says that a statement fills the buffer, by its name."""
    match loop.annotations.get(DOUBLE_BUFFER):
        case (str(name), _):
            return name == buffer.name
        case _:
            return False


def _accesses(n: Node, buffer: Buffer) -> int:
    return sum(isinstance(p, BufferLoad | BufferStore) and p.buffer is buffer for p in walk(n))


def _pipelined(loop: For, old: Buffer, new: Buffer) -> Stmt:
    """The loop in which each iteration fills its half for the next one, behind the first
    filling."""
    assert isinstance(loop.body, SeqStmt)
    first, *rest = loop.body.stmts
    assert isinstance(first, For)
    _check(loop, first, rest)
    fill = replace(first, annotations=first.annotations.with_(**{DOUBLE_BUFFER: None}))

    def at(s: Stmt, iteration: PrimExpr) -> Stmt:
        half = (iteration - loop.min) % 2 * old.shape[0]

        def visit(n: Node) -> Node | None:
            if isinstance(n, BufferLoad | BufferStore) and n.buffer is old:
                return replace(n, buffer=new, indices=(n.indices[0] + half, *n.indices[1:]))
            return None

        return with_fresh_binders(rewrite(substitute(s, {loop.loop_var: iteration}), visit))

    var = Var(loop.loop_var.name, loop.loop_var.dtype)
    following: PrimExpr = var + 1
    inside = IfThenElse(following < loop.min + loop.extent, at(fill, following))
    body = seq(inside, *(at(s, var) for s in rest))
    begin: Stmt = at(fill, loop.min)
    if not _is_positive(loop.extent):
        begin = IfThenElse(loop.extent > const(0), begin)
    return seq(begin, replace(loop, loop_var=var, body=body))


def _is_positive(e: PrimExpr) -> bool:
    return (e > ZERO) == const(1, "bool")


def _check(loop: For, first: Stmt, rest: list[Stmt]) -> None:
    """Raise ValueError unless the filling may run before the rest of the iteration before."""
    filled = {n.buffer for n in walk(first) if isinstance(n, BufferStore)}
    read = {n.buffer for n in walk(first) if isinstance(n, BufferLoad)}
    stored = {n.buffer for s in rest for n in walk(s) if isinstance(n, BufferStore)}
    if filled & read or stored & (read | filled) or loop.kind != "serial":
        raise ValueError(
            f"{describe_loop(loop)}: what fills the memory of an iteration reads what the one "
            "before stores, or the loop is not serial"
        )
