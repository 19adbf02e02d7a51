"""Estimates of a call's work: a call with little work does not start a team of threads.

Work is counted in operations on vectors, as an expression over the sizes of the arguments, which
the compiled program evaluates before it decides (`llvm/entry.py`).
"""

from __future__ import annotations

from functools import lru_cache

from relaxlab.analysis.arith import simplify
from relaxlab.codegen.llvm.support import MIN_TEAM_WORK
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.tighten_bounds import tighten_bounds
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.node import Node, children, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.passes import host

MOST_KERNELS = 16
"""Most kernels of a program whose work is estimated: a program of more has work for a team."""
LANES = 16
"""Iterations of a vectorized loop that count as one: those of a 512-bit vector of float32."""
CALL = 16
"""Operations that an elementary function counts as: exp has 16 instructions (NOTES, *Chains that
memory bounds*); a tensor intrinsic likewise."""


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


@lru_cache(maxsize=1024)
def _kernel_work(func: loops.PrimFunc) -> PrimExpr | None:
    """Return the work of a kernel, whose loops end where their guards fail."""
    if any(isinstance(n, loops.While) for n in walk(func.body)):
        return None
    return _statement(tighten_bounds(lower_blocks(func.body)[0], short=1), const(1), {})


def _is_unknown(e: Node) -> bool:
    """True for an expression that has no value before the call, or might have none."""
    match e:
        case expr.FloorDiv(_, b) | expr.FloorMod(_, b) | expr.Div(_, b) | expr.Mod(_, b):
            return not isinstance(b, expr.IntImm)
        case loops.BufferLoad() | expr.Call():
            return True
        case _:
            return False


Values = dict[Var, PrimExpr]


def _statement(
    stmt: loops.Stmt, times: PrimExpr, values: Values, lane: Var | None = None
) -> PrimExpr:
    """Return the work of running a statement `times` times. `values`: of axes, and of loops'
    variables half-way, since extents may depend on them; the vectorized loop's variable, `lane`,
    has none."""
    match stmt:
        case loops.SeqStmt(stmts):
            total: PrimExpr = const(0)
            for part in stmts:
                total = total + _statement(part, times, values, lane)
            return total
        case loops.For(var, _, extent, "vectorized", body):
            # A masked vector takes as long as a full one.
            vectors = (_usual(extent, values) + (LANES - 1)) // LANES
            return _statement(body, times * vectors, values, var)
        case loops.For(var, start, extent, _, body):
            extent = _usual(extent, values)
            # Half-way is the average of extents that grow linearly with an outer loop, as in
            # triangles.
            inner = {**values, var: _usual(start, values) + extent // 2}
            return _statement(body, times * extent, inner, lane)
        case loops.IfThenElse(condition, then, other):
            yes = _statement(then, times, values, lane)
            if other is None:  # a tile's last rows take as long as the others
                return yes
            no = _statement(other, times, values, lane)
            test = substitute(condition, values)
            known = lane is None and not any(map(_is_unknown, walk(test)))
            # Versions for single rows: only the one that a call takes counts. Where the test is not
            # known before the call, both do.
            return expr.Select(test, yes, no) if known else yes + no
        case loops.LetStmt(var, value, body):
            inner = {**values, var: substitute(value, values)}
            own = times * _operations(value, values, lane)
            return own + _statement(body, times, inner, lane)
        case loops.BufferStore(buffer, value, indices):
            own = _access(buffer, indices, values, lane)
            return times * (own + _operations(value, values, lane))
        case loops.Evaluate(value):
            return times * _operations(value, values, lane)
        case _:
            return times


def _usual(e: PrimExpr, values: Values) -> PrimExpr:
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

    return rewrite(substitute(e, values), without_division)


def _operations(e: PrimExpr, values: Values, lane: Var | None) -> int:
    """A value's operations; those of indices disappear."""
    match e:
        case loops.BufferLoad(buffer, indices):
            return _access(buffer, indices, values, lane)
        case expr.Add(a, expr.Mul() as product):  # one multiply-add
            return _operations(a, values, lane) + _operations(product, values, lane)
        case expr.Call(_, "if_then_else", (_, value, other)):  # the condition is tested once
            return _operations(value, values, lane) + _operations(other, values, lane)
        case _:
            pass
    own = CALL if isinstance(e, expr.Call) else 1
    return own + sum(_operations(c, values, lane) for c in children(e) if isinstance(c, PrimExpr))


def _access(
    buffer: loops.Buffer, indices: tuple[PrimExpr, ...], values: Values, lane: Var | None
) -> int:
    """One, or one for each lane where these are rows apart; nothing for private memory, which is
    registers or stays in the first-level cache."""
    if buffer.scope == "local":
        return 0
    if lane is None:
        return 1
    rows = (substitute(i, values) for i in indices[:-1])
    return LANES if any(_moves_with(i, lane) for i in rows) else 1


def _moves_with(index: PrimExpr, lane: Var) -> bool:
    """True if each lane has another row; a quotient stays the same for many."""
    if isinstance(index, expr.FloorDiv | expr.FloorMod):
        return False
    return index == lane or any(
        _moves_with(c, lane) for c in children(index) if isinstance(c, PrimExpr)
    )
