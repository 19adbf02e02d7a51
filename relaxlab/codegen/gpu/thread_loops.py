"""Helpers of the lowering steps for thread loops and barriers."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr
from relaxlab.ir.expr import Call, StringImm, Var
from relaxlab.ir.loops import BlockRealize, Evaluate, For, Stmt
from relaxlab.ir.node import Node, walk
from relaxlab.ir.substitute import symbols_in

SYNC = Evaluate(Call("void", "tvm_storage_sync", (StringImm("shared"),)))
"""The threads of a block meet here."""


def is_sync(n: Node) -> bool:
    """True if a statement or call is a barrier."""
    if isinstance(n, Evaluate):
        n = n.value
    return isinstance(n, Call) and n.op == "tvm_storage_sync"


def is_thread_loop(n: Node) -> bool:
    """True if the statement is a loop over the threads of a block."""
    return isinstance(n, For) and (n.thread or "").startswith("threadIdx")


def thread_loops(s: Stmt) -> Iterator[For]:
    """The loops below `s` that are bound to blocks or threads."""
    return (n for n in walk(s) if isinstance(n, For) and n.kind == "thread_binding")


def reduces_across(realize: BlockRealize, threads: set[Var]) -> bool:
    """True if a reduce axis of the block is bound to one of the variables `threads`."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return any(it.kind == "reduce" and threads & set(symbols_in(v)) for it, v in pairs)


def comment(text: str) -> Evaluate:
    """Return a statement without effect that names the statements after it."""
    return Evaluate(expr.StringImm(text))
