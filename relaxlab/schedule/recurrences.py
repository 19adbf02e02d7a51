"""Sums whose terms are in the order in which loops have them.

`X[i] = (X[i - 1] + a) + b` waits for two additions in each iteration: the first of them needs what
the iteration before has stored. With that term last, all others are added meanwhile (the height of
a recurrence; Schlansker and Kathail, *Acceleration of First and Higher Order Recurrences on
Processors with Instruction Level Parallelism*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import BufferLoad, BufferStore, For, Stmt
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute

Term = tuple[PrimExpr, bool, int]
"""A term of a sum, True if it is added, and the additions between it and the sum."""


def with_recurrences_last(s: Stmt) -> Stmt:
    """Return the statement with what the iteration before stored as the last term of each sum of
    floats that is stored. The same statement where that changes nothing."""
    return cast("Stmt", _visited(s, None))


def _visited(n: Node, loop: For | None) -> Node:
    if isinstance(n, For):
        return map_children(n, lambda child: _visited(child, n))
    if isinstance(n, BufferStore) and loop is not None and is_float(n.value.dtype):
        an, store = Analyzer(), n

        def is_carried(load: Node) -> bool:
            if not isinstance(load, BufferLoad) or load.buffer is not store.buffer:
                return False
            after = substitute(load, {loop.loop_var: loop.loop_var + 1})
            pairs = zip(after.indices, store.indices, strict=True)
            return load.indices != store.indices and all(an.prove_equal(a, b) for a, b in pairs)

        value = _reordered(n.value, is_carried)
        return n if value is n.value else replace(n, value=value)
    return map_children(n, lambda child: _visited(child, loop)) if isinstance(n, Stmt) else n


def _reordered(value: PrimExpr, is_carried: Callable[[Node], bool]) -> PrimExpr:
    """The value with its sums in order, the outermost first."""
    terms = _terms(value, True, 0)
    carried = [t for t in terms if any(map(is_carried, walk(t[0])))]
    if len(carried) != 1:
        return value
    (last,) = carried
    others = [t for t in terms if t is not last]
    first = next((t for t in others if t[1]), None)
    if last[2] > 1 and first is not None:
        total = first[0]
        for term, added, _ in (*(t for t in others if t is not first), last):
            total = total + term if added else total - term
        return total
    return map_children(value, lambda e: _reordered_in(e, is_carried))


def _reordered_in(e: Node, is_carried: Callable[[Node], bool]) -> Node:
    if isinstance(e, PrimExpr) and not isinstance(e, BufferLoad) and is_float(e.dtype):
        return _reordered(e, is_carried)
    return e


def _terms(value: PrimExpr, added: bool, depth: int) -> list[Term]:
    match value:
        case expr.Add(a, b):
            return [*_terms(a, added, depth + 1), *_terms(b, added, depth + 1)]
        case expr.Sub(a, b):
            return [*_terms(a, added, depth + 1), *_terms(b, not added, depth + 1)]
        case _:
            return [(value, added, depth)]
