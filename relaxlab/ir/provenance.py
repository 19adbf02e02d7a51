"""Provenance of statements that the compiler made: the spans of their sources."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, cast

from relaxlab.ir.loops import BufferLoad, PrimFunc, Stmt
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.span import Span

S = TypeVar("S", Stmt, PrimFunc)


def stamp(root: S, origin: Span | None, by: str) -> S:
    """Return `root`, whose statements and reads of buffers come from `origin` by the pass `by` (see
    `Span.via`). Reads keep their own when statements are inlined into each other.

    Statements of the user keep their span; earlier stamps are replaced, since functions that passes
    make may be shared by several calls.
    """
    if origin is None:
        return root

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if not isinstance(n, (Stmt, PrimFunc, BufferLoad)):
            return n
        if n.span is not None and not n.span.via:
            return n
        via = (*(n.span.via if n.span is not None else origin.via), by)
        return replace(n, span=dataclasses.replace(origin, via=via))

    return cast("S", visit(root))


def relocate(root: S, origin: Span | None) -> S:
    """Return `root`, whose statements and reads of buffers come from `origin`, wherever their own
    text stands."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        return replace(n, span=origin) if isinstance(n, (Stmt, BufferLoad)) else n

    return cast("S", visit(root))
