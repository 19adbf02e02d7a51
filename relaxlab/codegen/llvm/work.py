"""Estimates of a call's work: a call with little work does not start a team of threads.

Work is counted in operations on vectors, as an expression over the sizes of the arguments, which
the compiled program evaluates before it decides (`llvm/entry.py`). What threads cannot share, a
parallel loop of one iteration, is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from relaxlab.analysis.arith import simplify
from relaxlab.codegen.llvm.context import MIN_TEAM_WORK
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.tighten_bounds import tighten_bounds
from relaxlab.ir import expr, host, loops
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.node import Node, children, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in

MOST_KERNELS = 16
"""Most kernels of a program whose work is estimated: a program of more has work for a team."""
LANES = 16
"""Iterations of a vectorized loop that count as one: those of a 512-bit vector of float32."""
CALL = 24
"""Operations that an elementary function counts as: exp takes as long as so many multiply-adds
(NOTES, *When a team pays*); a tensor intrinsic likewise."""
WAIT = 8
"""Operations that an access counts as where a statement has as many accesses as operations: a
vector from the second-level cache, or a new one, takes about 1 ns, a multiply-add 0.1 (*ibid.*)."""


def work_of(program: host.HostProgram, function: host.HostFunction) -> PrimExpr | None:
    """The work of a call over the symbols of its function; None where that is not known before, or
    always enough for a team."""
    calls = [i for i in host.walk_instrs(function.instrs) if isinstance(i, host.CallKernel)]
    unknown = (host.CallPacked, host.CallFunction, host.If)
    if len(calls) > MOST_KERNELS or any(isinstance(i, unknown) for i in function.instrs):
        return None
    total: PrimExpr = const(0)
    for call in calls:
        kernel = program.kernels[call.function]
        work = _kernel_work(kernel)
        if work is None:
            return None
        total = total + substitute(
            work, dict(zip(host.kernel_symbols(kernel), call.scalars, strict=True))
        )
    total = simplify(total)
    # Work known to be enough is not computed at each call.
    enough = isinstance(total, expr.IntImm) and total.value >= MIN_TEAM_WORK
    return None if enough or any(map(_is_unknown, walk(total))) else total


def work_inside(body: loops.Stmt, *, early: bool = False) -> PrimExpr | None:
    """The work of a block-free statement, over the variables of the loops around it; None where
    that is not known. Half-way through two iterations is the second, or if `early` the first: of
    chunks, all but the last are whole."""
    if any(isinstance(n, loops.While) for n in walk(body)):
        return None
    return _statement(body, _Nest(const(1), {}, {}, early))


@lru_cache(maxsize=1024)
def _kernel_work(func: loops.PrimFunc) -> PrimExpr | None:
    """Return the work of a kernel, whose loops end where their guards fail."""
    return work_inside(tighten_bounds(lower_blocks(func.body)[0], short=1))


def _is_unknown(e: Node) -> bool:
    """True for an expression that has no value before the call, or might have none."""
    match e:
        case expr.FloorDiv(_, b) | expr.FloorMod(_, b) | expr.Div(_, b) | expr.Mod(_, b):
            return not isinstance(b, expr.IntImm)
        case loops.BufferLoad() | expr.Call():
            return True
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Nest:
    """The loops around a statement. times: iterations of those that are neither unrolled nor
    vectorized; values: of variables that stand for expressions, and of those loops' variables
    half-way, since extents may depend on them; copies: of the body of each loop that is unrolled or
    vectorized, by its variable; early: half-way through two iterations is the first; lane: the
    vectorized loop's variable; changing: the variables that change within the innermost serial
    loop, None outside of one."""

    times: PrimExpr
    values: Mapping[Var, PrimExpr]
    copies: Mapping[Var, int]
    early: bool
    lane: Var | None = None
    changing: frozenset[Var] | None = None

    def inside(self, loop: loops.For) -> _Nest:
        """The loops around a loop's body."""
        lane, extent = self.lane, _usual(loop.extent, self)
        changing = self.changing
        if loop.kind == "serial":
            changing = frozenset({loop.loop_var})
        elif changing is not None:
            changing |= {loop.loop_var}
        if loop.kind == "vectorized":
            # A masked vector takes as long as a full one.
            lane, extent = loop.loop_var, simplify((extent + (LANES - 1)) // LANES)
        is_copied = loop.kind in ("vectorized", "unrolled") and loop.min == const(0)
        if is_copied and isinstance(extent, expr.IntImm):
            copies = {**self.copies, loop.loop_var: extent.value}
            return replace(self, copies=copies, lane=lane, changing=changing)
        # Registers hold nothing from one copy of a loop to the next.
        times, values = self.times * math.prod(self.copies.values()) * extent, self.values
        if lane is not loop.loop_var:
            # Half-way is the average of extents that grow linearly with an outer loop, as in
            # triangles.
            half = (extent - 1 if self.early else extent) // 2
            values = {**values, loop.loop_var: _usual(loop.min, self) + half}
        return _Nest(times, values, {}, self.early, lane, changing)

    def with_value(self, var: Var, value: PrimExpr) -> _Nest:
        """The same with a variable that stands for a value."""
        changing = self.changing
        if changing is not None and not changing.isdisjoint(symbols_in(value)):
            changing |= {var}
        values = {**self.values, var: substitute(value, self.values)}
        return replace(self, values=values, changing=changing)

    def is_moved_out(self, e: PrimExpr) -> bool:
        """True for a value that is computed before the innermost serial loop."""
        return self.changing is not None and self.changing.isdisjoint(symbols_in(e))


def _statement(stmt: loops.Stmt, nest: _Nest) -> PrimExpr:
    """Return the work of running a statement in a nest of loops."""
    match stmt:
        case loops.SeqStmt(stmts):
            total: PrimExpr = const(0)
            for part in stmts:
                total = total + _statement(part, nest)
            return total
        case loops.For(_, _, extent, kind, body):
            work = _statement(body, nest.inside(stmt))
            # One iteration is one thread's, however much it is: the others would only be woken.
            is_one = expr.LE(_usual(extent, nest), const(1))
            return expr.Select(is_one, const(0), work) if kind == "parallel" else work
        case loops.IfThenElse(condition, then, other):
            yes = _statement(then, nest)
            if other is None:  # a tile's last rows take as long as the others
                return yes
            no = _statement(other, nest)
            test = _middle(condition, nest)
            known = nest.lane is None and not any(map(_is_unknown, walk(test)))
            # Versions for single rows: only the one that a call takes counts. Where the test is not
            # known before the call, both do.
            return expr.Select(test, yes, no) if known else yes + no
        case loops.LetStmt(var, value, body):
            own = nest.times * _operations(value, nest)
            return own + _statement(body, nest.with_value(var, value))
        case loops.BufferStore(buffer, value, indices):
            return nest.times * _operations(value, nest, loops.BufferLoad(buffer, indices))
        case loops.Evaluate(value):
            return nest.times * _operations(value, nest)
        case _:
            return nest.times


def _middle(e: PrimExpr, nest: _Nest) -> PrimExpr:
    """An expression's value half-way through the loops."""
    halves: dict[Var, PrimExpr] = {v: const(n // 2) for v, n in nest.copies.items()}
    return substitute(substitute(e, nest.values), halves)


def _usual(e: PrimExpr, nest: _Nest) -> PrimExpr:
    """An extent or a start, with half of the divisor for a remainder."""

    def without_division(n: Node) -> Node | None:
        # A quotient by a symbol would be computed at each call, so averages stand for both parts:
        # half of the divisor is that of a remainder; half-way through a fused loop is half-way
        # through its outer part.
        match n:
            case expr.FloorMod(_, b) if not isinstance(b, expr.IntImm):
                return b // 2
            case expr.FloorDiv(expr.FloorDiv(a, expr.IntImm() as c), b) if not isinstance(
                b, expr.IntImm
            ):
                return simplify(a // b) // c
            case _:
                return None

    return rewrite(_middle(e, nest), without_division)


def _operations(e: PrimExpr, nest: _Nest, target: loops.BufferLoad | None = None) -> int:
    """The operations of computing a value, and of storing it in `target`, in all copies; those of
    indices disappear."""
    accessed = {n for n in (*walk(e), target) if isinstance(n, loops.BufferLoad)}
    each = [_access(a.buffer, a.indices, nest) for a in accessed]
    computing = _computing(e, nest)
    # Where registers hold what is used again and again, loads hide behind the arithmetic.
    wait = WAIT if sum(n for n, _ in each) >= computing else 1
    return computing + sum(n * (1 if apart else wait) for n, apart in each)


def _computing(e: PrimExpr, nest: _Nest) -> int:
    """A value's arithmetic in all copies."""
    match e:
        case loops.BufferLoad() | expr.Var() | expr.IntImm() | expr.FloatImm():
            return 0
        case expr.Add(a, expr.Mul() as product):  # one multiply-add
            return _computing(a, nest) + _computing(product, nest)
        case expr.Call(_, "if_then_else", (_, value, other)):  # the condition is tested once
            return _computing(value, nest) + _computing(other, nest)
        case expr.Call() if nest.is_moved_out(e):
            return 0
        case _:
            pass
    own = (CALL if isinstance(e, expr.Call) else 1) * math.prod(nest.copies.values())
    return own + sum(_computing(c, nest) for c in children(e) if isinstance(c, PrimExpr))


def _access(buffer: loops.Buffer, indices: tuple[PrimExpr, ...], nest: _Nest) -> tuple[int, bool]:
    """One for each copy that has another address: the others find the element in a register; for
    each lane where these are rows apart, which the second value tells. Nothing for private memory,
    which is registers or stays in the first-level cache."""
    if buffer.scope == "local":
        return 0, False
    at = tuple(substitute(i, nest.values) for i in indices)
    used = set(symbols_in(at))
    addresses = math.prod(n for var, n in nest.copies.items() if var in used)
    lane = nest.lane
    apart = lane is not None and any(_moves_with(i, lane) for i in at[:-1])
    return addresses * (LANES if apart else 1), apart


def _moves_with(index: PrimExpr, lane: Var) -> bool:
    """True if each lane has another row; a quotient stays the same for many."""
    if isinstance(index, expr.FloorDiv | expr.FloorMod):
        return False
    return index == lane or any(
        _moves_with(c, lane) for c in children(index) if isinstance(c, PrimExpr)
    )
