"""Software prefetching: fetch the memory of a later iteration while this one computes.

A loop annotated `prefetch=(iterations, (buffer name, …))` touches, at the start of each
iteration, the cache lines that the named buffers' accesses reach that many iterations later.
Streams of weights are longer than a page and the hardware's prefetchers stop at its end.

One annotated `prefetch_beside=(buffer name, …)` touches the lines behind those that an iteration
reads, as many: the same rows of the next panel of a matrix that is read panel by panel.

One annotated `prefetch_early=(buffer name, …)` has what it reads of these touched in front of the
statements that run before it: what a tile of a product adds comes while the product is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Call, PrimExpr, Var
from relaxlab.ir.loops import BufferLoad, BufferStore, For, LetStmt, Stmt, seq
from relaxlab.ir.node import Node, children, map_children, replace, walk
from relaxlab.ir.row_major import place
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import PREFETCH_BESIDE, PREFETCH_EARLY


def insert_prefetches(stmt: Stmt, cache_line: int) -> Stmt:
    """Expand the `prefetch` annotations of a block-free statement, for lines of so many bytes."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and "prefetch" in n.annotations:
            distance, names = n.annotations["prefetch"]
            body = seq(*_prefetches(n, distance, names, cache_line), n.body)
            return replace(n, body=body, annotations=n.annotations.with_(prefetch=None))
        if isinstance(n, For) and PREFETCH_BESIDE in n.annotations:
            body = seq(*_prefetches_beside(n, n.annotations[PREFETCH_BESIDE], cache_line), n.body)
            return replace(n, body=body, annotations=n.annotations.with_(**{PREFETCH_BESIDE: None}))
        if isinstance(n, loops.SeqStmt) and any(any(_early_loops(s)) for s in n.stmts[1:]):
            return seq(*_prefetched_early(n.stmts))
        return n

    return visit(stmt)  # type: ignore[return-value]


def without_prefetches(loop: For) -> For:
    """Return the loop without prefetches at the start of its iterations; itself if it has none."""
    stmts = loop.body.stmts if isinstance(loop.body, loops.SeqStmt) else (loop.body,)
    kept = [s for s in stmts if not _is_prefetch(s)]
    return loop if len(kept) == len(stmts) else replace(loop, body=seq(*kept))


def _is_prefetch(stmt: Stmt) -> bool:
    call = stmt.value if isinstance(stmt, loops.Evaluate) else None
    return isinstance(call, Call) and call.op == "prefetch"


def _prefetches(loop: For, distance: int, names: tuple[str, ...], cache_line: int) -> list[Stmt]:
    statements: list[Stmt] = []
    for start, reached in _accesses(loop, names):
        if any(loop.loop_var in symbols_in(n) for n in _guarded_parts(start)):
            continue  # it would be computed that many iterations ahead, where nothing may be
        step = _step(start, loop.loop_var)
        if not step:  # not known, or always the same place
            continue
        # Past the array at the end, which a prefetch may be: it never faults.
        later = substitute(start, {loop.loop_var: loop.loop_var + distance})
        # Where rows are apart, an iteration reads less than a step.
        count = min(step, max(step if r is None else r + 1 for r in reached))
        statements += _lines(later, 0, count, cache_line)
    return statements


def _prefetches_beside(loop: For, names: tuple[str, ...], cache_line: int) -> list[Stmt]:
    statements: list[Stmt] = []
    for start, reached in _accesses(loop, names):
        known = [r + 1 for r in reached if r is not None]
        if len(known) == len(reached):
            statements += _lines(start, max(known), max(known), cache_line)
    return statements


def _prefetched_early(stmts: Sequence[Stmt]) -> list[Stmt]:
    """Statements that run one after the other, in front of them the prefetches of those loops that
    want them early. Loops keep their annotations in front of which nothing runs."""
    early, rest = list[Stmt](), list[Stmt]()
    written = set[loops.Buffer]()
    for stmt in stmts:
        if rest and any(_early_loops(stmt)):
            early.append(_touching(stmt, set(), written))
            stmt = _without_early(stmt)  # noqa: PLW2901
        rest.append(stmt)
        written |= {n.buffer for n in walk(stmt) if isinstance(n, BufferStore)}
    return [*early, *rest]


def _early_loops(stmt: Stmt) -> Iterator[For]:
    """The loops that want prefetches early and run once at most when the statement runs."""
    match stmt:
        case For():
            if PREFETCH_EARLY in stmt.annotations:
                yield stmt
        case loops.SeqStmt(stmts):
            for s in stmts:
                yield from _early_loops(s)
        case loops.IfThenElse(_, yes, no):
            yield from _early_loops(yes)
            if no is not None:
                yield from _early_loops(no)
        case LetStmt():
            yield from _early_loops(stmt.body)
        case _:
            pass


def _touching(stmt: Stmt, names: set[str], written: set[loops.Buffer]) -> Stmt:
    """The statement with prefetches of the elements that it reads of the named buffers in place of
    its stores, one for the first lane of a vector. Elements whose places are in `written` buffers
    are left out. Without names, those of the annotations of its loops."""
    match stmt:
        case For(var, first):
            names = names or set(stmt.annotations.get(PREFETCH_EARLY, ()))
            if not names:
                return seq()
            if stmt.kind == "vectorized":
                return _touching(substitute(stmt.body, {var: first}), names, written)
            body = _touching(stmt.body, names, written)
            return replace(stmt, body=body, annotations=loops.NO_ATTRS)
        case LetStmt():
            return replace(stmt, body=_touching(stmt.body, names, written))
        case loops.IfThenElse(condition, yes, no):
            if not _is_known(condition, written):
                return seq()
            other = None if no is None else _touching(no, names, written)
            return replace(stmt, then_case=_touching(yes, names, written), else_case=other)
        case loops.SeqStmt(stmts):
            return seq(*(_touching(s, names, written) for s in stmts))
        case BufferStore(_, value):
            return seq(*(
                line for load in walk(value)
                if isinstance(load, BufferLoad) and load.buffer.name in names
                and all(_is_known(i, written) for i in load.indices)
                for line in _lines(load, 0, 1, bytes_of(load.buffer.dtype))
            ))  # fmt: skip
        case _:
            return seq()


def _is_known(value: PrimExpr, written: set[loops.Buffer]) -> bool:
    """True if a value is the same before buffers are written."""
    return not any(isinstance(n, BufferLoad) and n.buffer in written for n in walk(value))


def _without_early(stmt: Stmt) -> Stmt:
    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and PREFETCH_EARLY in n.annotations:
            return replace(n, annotations=n.annotations.with_(**{PREFETCH_EARLY: None}))
        return n

    return visit(stmt)  # type: ignore[return-value]


def _accesses(loop: For, names: tuple[str, ...]) -> Iterator[tuple[BufferLoad, list[int | None]]]:
    """The first access of each of the named buffers in an iteration, if its address can be computed
    where the iteration begins, and how many elements behind it each of its accesses ends, if always
    as many."""
    found: dict[str, list[BufferLoad]] = {}
    # Inner loops at their first iterations: the address must mean something in front of them.
    inner: dict[Var, PrimExpr] = {}
    last: dict[Var, PrimExpr] = {}
    for n in walk(loop.body):
        match n:
            case For(var, first, extent):
                inner[var] = substitute(first, inner)
                last[var] = first + extent - 1
            case LetStmt(var, value) | expr.Let(var, value):
                inner[var] = substitute(value, inner)
            case BufferLoad(buffer) if buffer.name in names:
                found.setdefault(buffer.name, []).append(n)
            case _:
                pass
    certain = set(_certain_loads(loop.body))
    written = {n.buffer for n in walk(loop.body) if isinstance(n, BufferStore)}
    for loads in found.values():
        # The first access of each buffer stands for all: those of one iteration are neighbours.
        start = substitute(loads[0], inner)
        tested = _guarded_parts(start)
        read = {n.buffer for n in tested if isinstance(n, BufferLoad)}
        if tested and (loads[0] not in certain or read & written):
            continue  # what guards the access may be what keeps its address from faulting
        yield start, [_elements(substitute(n, last), start) for n in loads]


def _guarded_parts(load: BufferLoad) -> list[Node]:
    """The parts of an address that may fault by themselves where they are computed."""
    return [n for i in load.indices for n in walk(i) if _needs_guards(n)]


def _lines(load: BufferLoad, first: int, count: int, cache_line: int) -> list[Stmt]:
    """One prefetch per line of `count` elements, the first so many behind an access; the hardware
    drops those that are there already."""
    size = bytes_of(load.buffer.dtype)
    *rest, column = load.indices
    statements: list[Stmt] = []
    for offset in range(first * size, first * size + max(1, count * size), cache_line):
        line = replace(load, indices=(*rest, column + offset // size))
        address = Call("handle", "address_of", (line,))
        statements.append(loops.Evaluate(Call("void", "prefetch", (address,))))
    return statements


def _needs_guards(n: Node) -> bool:
    """True if computing a node may fault by itself: it reads memory, calls a function, or divides
    by what may be zero."""
    match n:
        case expr.FloorDiv(_, by) | expr.FloorMod(_, by) | expr.Div(_, by) | expr.Mod(_, by):
            return not (isinstance(by, expr.IntImm) and by.value)
        case _:
            return isinstance(n, BufferLoad | Call)


def _certain_loads(n: Node) -> Iterator[BufferLoad]:
    """The loads that a statement makes whenever it runs, those of the first iterations of loops
    included: no condition, assertion or empty loop is in front of them."""
    match n:
        case loops.SeqStmt(stmts):
            for s in stmts:
                yield from _certain_loads(s)
                if any(isinstance(m, loops.AssertStmt | loops.While) for m in walk(s)):
                    return  # what follows may not be reached
        case For(_, first, extent, _, body):
            yield from (*_certain_loads(first), *_certain_loads(extent))
            if isinstance(extent, expr.IntImm) and extent.value > 0:
                yield from _certain_loads(body)
        case loops.IfThenElse(first) | loops.While(first) | loops.AssertStmt(first):
            yield from _certain_loads(first)
        case expr.Select(first) | Call(_, "if_then_else", (first, *_)):
            yield from _certain_loads(first)
        case expr.And(first) | expr.Or(first):
            yield from _certain_loads(first)
        case _:
            if isinstance(n, BufferLoad):
                yield n
            for child in children(n):
                yield from _certain_loads(child)


def _step(load: BufferLoad, var: Var) -> int | None:
    """Elements between the accesses of successive iterations, if always the same."""
    return _elements(substitute(load, {var: var + 1}), load)


def _elements(load: BufferLoad, other: BufferLoad) -> int | None:
    """Elements from one access to another of the same buffer, if always the same."""
    index, before = (place(n.indices, n.buffer.shape) for n in (load, other))
    difference = Analyzer.for_shapes(*symbols_in(index)).simplify(index - before)
    return difference.value if isinstance(difference, expr.IntImm) else None
