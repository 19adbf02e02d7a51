"""Vectorized loops: neighbouring elements of main or shared memory move together.

`for j in vectorized(4): y[i*4 + j] = f(x[i*4 + j])` loads four elements of x by one access,
computes lane by lane in registers and stores four elements of y by one access, where the first
element's address is a multiple of the access's size. A condition on the last lane chooses between
that and a loop over single elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.codegen.gpu.bytes_in_words import LANES, Bytes, bytes_in_words, whole_in_words
from relaxlab.codegen.gpu.expressions import flat_index
from relaxlab.codegen.positive import is_nondecreasing
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, StringImm, Var, all_of, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.tree import conjuncts

TRUE = IntImm(1, "bool")


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A vectorized loop taken apart: where `full` holds, all lanes do `store`, and `loads` and
    perhaps the store itself (`wide_store`) are of neighbours; `start` is each access's first
    element. `agree`: where it does not hold, no lane does anything. `parts` of the value, or the
    `whole` of it where it goes to registers, are bytes of four lanes in a word."""

    full: PrimExpr
    agree: bool
    store: BufferStore
    loads: tuple[BufferLoad, ...]
    wide_store: bool
    parts: tuple[Bytes, ...]
    whole: Bytes | None

    def start(self, access: BufferLoad | BufferStore, loop: For) -> PrimExpr:
        """The number of the element that lane 0 accesses."""
        return substitute(flat_index(access.buffer, access.indices), {loop.loop_var: loop.min})


def vector_loop(loop: For, an: Analyzer, facts: Facts) -> VectorLoop | None:
    """Return how a vectorized loop moves neighbours together; None if it does not. `an` knows the
    variables in scope."""
    if not isinstance(loop.extent, IntImm) or loop.extent.value < 2:
        return None
    full, body, agree = _full(loop)
    if not isinstance(body, BufferStore):
        return None
    inside, body = _without_edges(loop, full, body)
    agree, full = agree and inside == full, inside
    lanes = loop.extent.value
    loads: list[BufferLoad] = []
    for load in _eager_loads(body.value):
        if load not in loads and _together(load, loop.loop_var, lanes, an, facts):
            loads.append(load)
    wide_store = _together(body, loop.loop_var, lanes, an, facts)
    if not loads and not wide_store:
        return None
    parts = bytes_in_words(body.value, loads, loop, an)
    to_registers = body.buffer.scope == "local" and _whole_words(body, loop.loop_var, an)
    whole = whole_in_words(body.value, loads, loop, an) if to_registers else None
    return VectorLoop(full, agree, body, tuple(loads), wide_store, parts, whole)


def _full(loop: For) -> tuple[PrimExpr, Stmt, bool]:
    """The condition under which every lane runs the statement within the loop's conditions, that
    statement, and True if no lane does where it does not hold."""
    tests: list[PrimExpr] = []
    agree = True
    body = loop.body
    last = loop.min + loop.extent - 1
    while True:
        body = _without_comments(body)
        if not isinstance(body, IfThenElse) or body.else_case is not None:
            break
        for part in conjuncts(body.condition):
            if loop.loop_var not in symbols_in(part):
                tests.append(part)
            elif (
                isinstance(part, expr.LT)
                and loop.loop_var not in symbols_in(part.b)
                and is_nondecreasing(part.a, loop.loop_var)
                and not wraps(part.a)
            ):
                tests.append(expr.LT(substitute(part.a, {loop.loop_var: last}), part.b))
                agree = False
            else:
                return TRUE, loop, False
        body = body.then_case
    return all_of(list(dict.fromkeys(tests))), body, agree


def _without_edges(loop: For, tests: PrimExpr, body: BufferStore) -> tuple[PrimExpr, BufferStore]:
    """A store of `if_then_else(inside, x, y)` as one of x, under the condition that all lanes are
    inside; as it is where that is unknown."""
    match body.value:
        case expr.Call(_, "if_then_else", (inside, x, _)):
            inner = replace(loop, body=IfThenElse(inside, replace(body, value=x)))
            more, store, _ = _full(inner)
            if isinstance(store, BufferStore):
                return all_of(list(dict.fromkeys([*conjuncts(tests), *conjuncts(more)]))), store
        case _:
            pass
    return tests, body


def _without_comments(s: Stmt) -> Stmt:
    if not isinstance(s, SeqStmt):
        return s
    rest = [p for p in s.stmts if not (isinstance(p, Evaluate) and isinstance(p.value, StringImm))]
    return seq(*rest) if rest else s


def _eager_loads(e: Node) -> Iterator[BufferLoad]:
    """Yield the loads that are executed whatever the conditions in the expression evaluate to."""
    match e:
        case BufferLoad():
            yield e
        case expr.Call(_, "if_then_else", (condition, _, _)):
            yield from _eager_loads(condition)
        case expr.Select(condition):
            yield from _eager_loads(condition)
        case expr.And(a) | expr.Or(a):
            yield from _eager_loads(a)
        case expr.Let(_, value):
            yield from _eager_loads(value)
        case _:
            for c in children(e):
                yield from _eager_loads(c)


def _together(
    access: BufferLoad | BufferStore, lane: Var, lanes: int, an: Analyzer, facts: Facts
) -> bool:
    """True if the lanes access neighbours, the first at a multiple of the access's size."""
    buffer: Buffer = access.buffer
    # Where a thread's own are lies with the compiler.
    if buffer.scope == "local":
        return False
    size = bytes_of(buffer.dtype)
    unit = min(lanes, facts.vector_bits // 8 // size)
    if unit < 2 or lanes % unit or unit & (unit - 1):
        return False
    return _neighbours(access, lane, unit, an)


def _whole_words(store: BufferStore, lane: Var, an: Analyzer) -> bool:
    """True if the lanes' bytes are neighbours in a buffer, and its words."""
    return bytes_of(store.buffer.dtype) == 1 and _neighbours(store, lane, LANES, an)


def _neighbours(access: BufferLoad | BufferStore, lane: Var, unit: int, an: Analyzer) -> bool:
    """True if the lanes access neighbours, the first at a multiple of `unit` elements."""
    if any(isinstance(n, BufferLoad) for i in access.indices for n in walk(i)):
        return False
    index = flat_index(access.buffer, access.indices)
    if lane not in symbols_in(index):
        return False
    index = an.simplify(index)  # in terms that hold for all lanes, not for one more
    step = an.simplify(substitute(index, {lane: lane + 1}) - index)
    if step != const(1):
        return False
    first = substitute(index, {lane: const(0)})
    return an.simplify(expr.binary(expr.FloorMod, first, const(unit))) == const(0)
