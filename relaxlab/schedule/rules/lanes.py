"""The choice of what becomes vectors: the last axis of a block, or loops inside of it.

A block that keeps variables of its own can be run for several places of its last axis at once, each
variable a vector, conditions masks. What it reads at places that are no neighbours along that axis
is gathered, element by element; where loops inside go through memory in order, LLVM makes vectors
of them instead. Both are counted in operations of one vector, or of one element where there is
none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxlab.ir import expr
from relaxlab.ir.expr import Call, IntImm, PrimExpr, Var, const
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.own_elements import written
from relaxlab.schedule.ranges import by_data, distance
from relaxlab.schedule.vector_loops import VECTORIZE

UNKNOWN_TRIPS = 64
"""Iterations of a loop of unknown length."""
COSTLY = 10
"""Operations of a function such as exp: 24 to 29 instructions, which overlap."""
GATHERED = 3
"""Operations of a lane that is loaded or stored by itself: its index is a lane of a vector."""
MISPREDICTED = 10
"""Operations that a branch takes which data decides: half of the 20 cycles of a wrong guess."""

Access = BufferLoad | BufferStore


@dataclass(frozen=True, slots=True)
class _Cost:
    """Operations of `lanes` iterations: one after the other, and as lanes of vectors."""

    apart: float = 0.0
    together: float = 0.0

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(self.apart + other.apart, self.together + other.together)


def gains_by_lanes(block: Block, lanes: int) -> bool:
    """True if so many places of the block's last axis take less time as lanes of vectors than one
    after the other."""
    if not block.iter_vars:
        return False
    cost = _Costs(block, lanes).of(block.body, ())
    return cost.together < cost.apart


class _Costs:
    """The costs of a block's statements."""

    def __init__(self, block: Block, lanes: int) -> None:
        self._lane, self._lanes = block.iter_vars[-1].var, lanes
        self._own = set(block.alloc_buffers)
        accesses = [n for n in walk(block.body) if isinstance(n, Access)]
        self._stored = {n.buffer for n in accesses if isinstance(n, BufferStore)}
        self._differing = _differing(block)

    def of(self, s: Stmt, around: tuple[For | While, ...]) -> _Cost:
        """The cost of a statement in loops of the block, outermost first."""
        match s:
            case For() | While():
                inner = (*around, s)
                gain = self._lanes if isinstance(s, For) and VECTORIZE in s.annotations else 1
                found = self.of(s.body, inner)
                bound = s.extent if isinstance(s, For) else s.condition
                if self._differs((bound,)):  # until the last lane has finished
                    found = _Cost(found.apart, 2 * found.together)
                test = self._value(s.condition, inner) if isinstance(s, While) else _Cost()
                return _Cost(found.apart / gain, found.together) + test
            case IfThenElse(cond, then, other):
                branches = self.of(then, around) + (self.of(other, around) if other else _Cost())
                wrong = self._lanes * MISPREDICTED * _trips(around) if by_data(cond) else 0.0
                return self._value(cond, around) + branches + _Cost(apart=wrong)
            case LetStmt(_, value, body):
                return self._value(value, around) + self.of(body, around)
            case BufferStore(_, value):
                return self._value(value, around) + self._access(s, around)
            case _:
                inside = (self.of(c, around) for c in children(s) if isinstance(c, Stmt))
                return sum(inside, _Cost())

    def _value(self, e: PrimExpr, around: Sequence[For | While]) -> _Cost:
        loads = (self._access(n, around) for n in walk(e) if isinstance(n, BufferLoad))
        count = _trips(around) * sum(map(_operations, _computed(e)))
        return sum(loads, _Cost(self._lanes * count, count))

    def _access(self, n: Access, around: Sequence[For | While]) -> _Cost:
        together = self._together(n)
        if n.buffer in self._own and together == 1:
            return _Cost()
        # LLVM moves a load out of the loops in which it is the same.
        moves = isinstance(n, BufferLoad) and n.buffer not in self._stored
        used = symbols_in(n.indices)
        if moves and not any(map(by_data, n.indices)):
            around = [s for s in around if isinstance(s, For) and s.loop_var in used]
        count = _trips(around)
        return _Cost(self._lanes * count, together * count)

    def _together(self, n: Access) -> int:
        """The operations of an access by all lanes: one where they access the same element or
        neighbours."""
        *outer, last = n.indices or (const(0),)
        if n.buffer in self._own:
            outer, last = list(n.indices), const(0)
        rest = distance(last, self._lane)
        near = not self._differs((last,)) or not self._differs((rest,))
        return 1 if near and not self._differs(tuple(outer)) else GATHERED * self._lanes

    def _differs(self, indices: tuple[PrimExpr, ...]) -> bool:
        return any(
            (isinstance(n, Var) and n in self._differing)
            or (isinstance(n, BufferLoad) and n.buffer in self._differing)
            for i in indices
            for n in walk(i)
        )


def _differing(block: Block) -> set[Var | Buffer]:
    """The variables and the block's own buffers whose values differ between its places."""
    found: set[Var | Buffer] = {block.iter_vars[-1].var}
    while True:
        more = {target for target, value in _definitions(block.body) if _mentions(value, found)}
        if more <= found:
            return found
        found |= more


def _definitions(s: Stmt) -> Iterator[tuple[Var | Buffer, Node]]:
    """The variables and buffers that a statement gives values, with what decides these."""
    for n in walk(s):
        match n:
            case LetStmt(var, value):
                yield var, value
            case BufferStore(buffer):
                yield buffer, n
            case IfThenElse(cond) | While(cond) | For(extent=cond):
                yield from ((buffer, cond) for buffer in written([n]))
            case _:
                pass


def _mentions(n: Node, found: set[Var | Buffer]) -> bool:
    """True if a value depends on one of the variables or on what is loaded from one of the
    buffers."""
    return any(
        (isinstance(x, Var) and x in found) or (isinstance(x, BufferLoad) and x.buffer in found)
        for x in walk(n)
    )


def _trips(loops: Sequence[For | While]) -> int:
    return math.prod(map(_iterations, loops))


def _iterations(s: For | While) -> int:
    match s:
        case For(extent=IntImm(count)):
            return count
        case _:
            return UNKNOWN_TRIPS


def _computed(e: PrimExpr) -> Iterator[Node]:
    """The nodes of a value without those of indices."""
    yield e
    for c in () if isinstance(e, BufferLoad) else children(e):
        if isinstance(c, PrimExpr):
            yield from _computed(c)


def _operations(n: Node) -> int:
    match n:
        case Call(_, name):
            row = INTRINSICS.get(name)
            return COSTLY if row is not None and row.costly else 1
        case expr.BinaryOp() | expr.Select():
            return 1
        case _:
            return 0
