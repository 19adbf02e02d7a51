"""Software prefetching: ask for the memory of a later iteration while this one computes.

A loop annotated `prefetch=(iterations, (buffer name, …))` touches, at the start of each
iteration, the cache lines that the named buffers' accesses reach that many iterations later.
Streams of weights are longer than a page and the hardware's prefetchers stop at its end.
"""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Call, PrimExpr, Var
from relaxlab.ir.loops import BufferLoad, For, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.row_major import place
from relaxlab.ir.substitute import substitute, symbols_in


def insert_prefetches(stmt: Stmt, cache_line: int) -> Stmt:
    """Expand the `prefetch` annotations of a block-free statement, for lines of so many bytes."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and "prefetch" in n.annotations:
            distance, names = n.annotations["prefetch"]
            body = seq(*_prefetches(n, distance, names, cache_line), n.body)
            return replace(n, body=body, annotations=n.annotations.with_(prefetch=None))
        return n

    return visit(stmt)  # type: ignore[return-value]


def _prefetches(loop: For, distance: int, names: tuple[str, ...], cache_line: int) -> list[Stmt]:
    found: dict[str, list[BufferLoad]] = {}
    inside = [n for n in walk(loop.body) if isinstance(n, For)]
    # Inner loops at their first iterations: the address must mean something in front of them.
    inner: dict[Var, PrimExpr] = {n.loop_var: n.min for n in inside}
    last = {n.loop_var: n.min + n.extent - 1 for n in inside}
    for n in walk(loop.body):
        if isinstance(n, BufferLoad) and n.buffer.name in names:
            found.setdefault(n.buffer.name, []).append(n)
    statements: list[Stmt] = []
    for loads in found.values():
        # The first access of each buffer stands for all: those of one iteration are neighbours.
        load, start = loads[0], substitute(loads[0], inner)
        step = _step(start, loop.loop_var)
        if not step:  # not known, or always the same place
            continue
        # Past the array at the end, which a prefetch may be: it never faults.
        later = substitute(start, {loop.loop_var: loop.loop_var + distance})
        size = bytes_of(load.buffer.dtype)
        # Where rows are apart, an iteration reads less than a step.
        reached = [_elements(substitute(n, last), start) for n in loads]
        count = min(step, max(step if r is None else r + 1 for r in reached))
        # One prefetch per line that the iteration reads; the hardware drops those that are there
        # already.
        for offset in range(0, max(1, count * size), cache_line):
            *rest, column = later.indices
            line = replace(later, indices=(*rest, column + offset // size))
            address = Call("handle", "address_of", (line,))
            statements.append(loops.Evaluate(Call("void", "prefetch", (address,))))
    return statements


def _step(load: BufferLoad, var: Var) -> int | None:
    """Elements between the accesses of successive iterations, if always the same."""
    # An index from memory would have to be read that many iterations ahead, where there may be
    # none.
    indices = [n for i in load.indices for n in walk(i) if isinstance(n, BufferLoad)]
    if any(var in symbols_in(n.indices) for n in indices):
        return None
    return _elements(substitute(load, {var: var + 1}), load)


def _elements(load: BufferLoad, other: BufferLoad) -> int | None:
    """Elements from one access to another of the same buffer, if always the same."""
    index, before = (place(n.indices, n.buffer.shape) for n in (load, other))
    difference = Analyzer.for_shapes(*symbols_in(index)).simplify(index - before)
    return difference.value if isinstance(difference, expr.IntImm) else None
