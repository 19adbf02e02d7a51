"""Tests of guards once per tile, outside of its unrolled loops.

What `hoist_guards` does for processors, where no thread waits for another: a barrier, an exchange
of registers or a tensor instruction would be in two places, and the threads of a warp could meet in
neither. Loads without guards between them are all under way before the first is waited for.
"""

from __future__ import annotations

from relaxlab.codegen.gpu.thread_reduction import has_shuffle
from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.ir.expr import StringImm
from relaxlab.ir.loops import Evaluate, For, Stmt
from relaxlab.ir.node import Node, map_children, walk


def whole_tiles(body: Stmt) -> Stmt:
    """The program of a thread, whose loops test whole tiles where it does so alone."""

    def visit(n: Node) -> Node:
        if isinstance(n, For) and _is_alone(n):
            return hoist_guards(n)
        return map_children(n, visit) if isinstance(n, Stmt) else n

    return visit(body)  # type: ignore[return-value]


def _is_alone(s: Stmt) -> bool:
    """True if a statement only loads, computes and stores."""
    evaluated = (n.value for n in walk(s) if isinstance(n, Evaluate))
    return all(isinstance(v, StringImm) for v in evaluated) and not has_shuffle(s)
