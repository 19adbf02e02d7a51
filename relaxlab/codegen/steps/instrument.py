"""Steps that add checks, measurements and remarks to loop functions."""

from __future__ import annotations

from typing import cast

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var, all_of
from relaxlab.ir.loops import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)
from relaxlab.ir.node import Attrs, Node, children, map_children, replace, rewrite, walk
from relaxlab.schedule.ranges import ONE, ZERO


def accesses_checked(func: PrimFunc) -> PrimFunc:
    """The function that asserts of each store and of each value it evaluates that the elements it
    accesses are inside of their buffers. Elements that only one side of a choice reads are not
    checked."""

    def visit(n: Node) -> Node | None:
        match n:
            case BufferStore():
                return _checked(n, [n, *_loads(n)])
            case Evaluate(value) | LetStmt(value=value) | IfThenElse(condition=value):
                return _checked(cast("Stmt", n), _loads(value))
            case _:
                return None

    return rewrite(func, visit)


def _loads(n: Node) -> list[BufferLoad | BufferStore]:
    """The elements that are read whenever a part is evaluated."""
    if isinstance(n, expr.Call) and n.op in ("if_then_else", "address_of", "prefetch"):
        return _loads(n.args[0]) if n.op == "if_then_else" else []
    inside = [n.value, *n.indices] if isinstance(n, BufferStore) else children(n)
    own = [n] if isinstance(n, BufferLoad) else []
    return [*own, *(found for c in inside for found in _loads(c))]


def _checked(s: Stmt, accesses: list[BufferLoad | BufferStore]) -> Stmt | None:
    """A statement behind an assertion about what it accesses."""
    conditions: dict[PrimExpr, None] = {}
    names: dict[str, None] = {}
    for access in accesses:
        names[access.buffer.name] = None
        for i, extent in zip(access.indices, access.buffer.shape, strict=True):
            base = i.base if isinstance(i, expr.Ramp) else i
            if base.dtype != "int64":
                continue
            last = base + i.stride * (i.lanes - 1) if isinstance(i, expr.Ramp) else base
            for c in (base >= ZERO, last < extent):
                if not isinstance(c, expr.IntImm) or not c.value:
                    conditions[c] = None
    if not conditions:
        return None
    text = f"an index of {', '.join(names)} is outside"
    return seq(AssertStmt(all_of([*conditions]), text), s)


def profiled(func: PrimFunc) -> PrimFunc:
    """The function with the beginning and the end of a measurement around each outermost loop, by
    number."""
    number = 0

    def visit(n: Node) -> Node:
        nonlocal number
        if not isinstance(n, For):
            return map_children(n, visit)
        ends = [
            Evaluate(expr.Call("int32", f"{end}_profile_intrinsic", (expr.const(number, "int32"),)))
            for end in ("start", "end")
        ]
        number += 1
        return seq(ends[0], n, ends[1])

    return cast("PrimFunc", visit(func))


def in_device_scope(func: PrimFunc) -> PrimFunc:
    """The function with the attribute `device_scope` around what it does."""
    body = func.body
    root = body.block if isinstance(body, BlockRealize) and body.block.name == "root" else None
    inner = body if root is None else root.body
    notes = Attrs({"device_scope": 0})
    if isinstance(inner, For):
        noted: Stmt = replace(inner, annotations=Attrs({**inner.annotations, **notes}))
    else:
        noted = For(Var("once"), ZERO, ONE, "serial", inner, annotations=notes)
    if root is not None:
        assert isinstance(body, BlockRealize)
        noted = replace(body, block=replace(root, body=noted))
    return replace(func, body=noted)


REWRITTEN = "meta_schedule.layout_rewrite_preproc"
"""The annotation of a block that copies a parameter into another layout."""


def with_rewritten_params(func: PrimFunc) -> PrimFunc:
    """The function that takes in another layout the parameters that annotated blocks bring into
    it, which do nothing then."""
    table = {}
    for n in walk(func.body):
        if isinstance(n, Block) and n.annotations.get(REWRITTEN):
            (store,) = (p for p in walk(n.body) if isinstance(p, BufferStore))
            (load,) = (p for p in walk(store.value) if isinstance(p, BufferLoad))
            table[load.buffer] = store.buffer
    if not table:
        return func

    def visit(n: Node) -> Node | None:
        if not isinstance(n, Block):
            return None
        kept = tuple(b for b in n.alloc_buffers if b not in table.values())
        n = n if len(kept) == len(n.alloc_buffers) else replace(n, alloc_buffers=kept)
        if n.annotations.get(REWRITTEN):
            n = replace(n, reads=(), writes=(), body=Evaluate(expr.const(0, "int32")))
        return n

    body = rewrite(func.body, visit)
    params = tuple(table.get(p, p) for p in func.params)  # type: ignore[call-overload]
    return replace(func, params=params, body=body)
