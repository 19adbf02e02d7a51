"""The step of a reduction block, of one value or of several together, apart from what it is applied
to: rfactor applies it to partial results, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, is_int, is_uint
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, LetStmt, SeqStmt, Stmt
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute

Values: TypeAlias = tuple[PrimExpr, ...]

IDENTITY: dict[type[expr.BinaryOp], Callable[[str], PrimExpr]] = {
    expr.Add: lambda dtype: expr.const(0, dtype), expr.Mul: lambda dtype: expr.const(1, dtype),
    expr.Max: expr.lowest, expr.Min: expr.highest,
    expr.BitOr: lambda dtype: expr.const(0, dtype), expr.BitXor: lambda dtype: expr.const(0, dtype),
    expr.BitAnd: lambda dtype: expr.highest(dtype) if is_uint(dtype) else expr.const(-1, dtype),
}  # fmt: skip
_IDEMPOTENT = (expr.Max, expr.Min)
_ORDERS = (expr.GE, expr.GT, expr.LE, expr.LT)


@dataclass(frozen=True, slots=True)
class Combiner:
    """`buffers[indices] = combined(buffers[indices], values)`, all at once. Combined with
    `identities`, no result changes: they are neutral, or what the block starts with where that may
    be combined several times, as with a maximum."""

    buffers: tuple[Buffer, ...]
    indices: Values
    values: Values
    combined: Callable[[Values, Values], Values]
    identities: Values

    def step(self, buffers: tuple[Buffer, ...], indices: Values, values: Values) -> Stmt:
        """The statement that combines other elements with other values."""
        accumulators = tuple(BufferLoad(b, indices) for b in buffers)
        results = self.combined(accumulators, values)
        if len(buffers) == 1:
            return BufferStore(buffers[0], results[0], indices)
        names = [Var(f"v_{b.name}", b.dtype) for b in buffers]
        body: Stmt = stores(buffers, tuple(names), indices)
        for name, result in zip(reversed(names), reversed(results), strict=True):
            body = LetStmt(name, result, body)
        return body


def stores(buffers: tuple[Buffer, ...], values: Values, indices: Values) -> Stmt:
    """The statement that stores a value into each buffer."""
    pairs = zip(buffers, values, strict=True)
    return loops.seq(*(BufferStore(b, v, indices) for b, v in pairs))


def combiner_of(block: Block) -> Combiner | None:
    """The combiner of a block with an initialisation, whose body stores `X[…] op value` with op one
    of +, *, min, max, or several of these together, or selects by a comparison of one accumulator
    with its value which accumulators to replace, as the place of a maximum is found. None for any
    other block."""
    body, results = block.body, dict[Var, PrimExpr]()
    while isinstance(body, LetStmt):
        results[body.var] = substitute(body.value, dict[Var, PrimExpr](results))
        body = body.body
    updates = _stores_of(body)
    starts = _stores_of(block.init) if block.init is not None else []
    if not updates or [s.buffer for s in starts] != [s.buffer for s in updates]:
        return None
    buffers, indices = tuple(s.buffer for s in updates), updates[0].indices
    if any(s.indices != indices for s in (*updates, *starts)) or len({*buffers}) < len(buffers):
        return None
    if len(updates) > 1 and not all(without_cast(s.value) in results for s in updates):
        return None  # a store before would change what the value of a later one reads
    values = tuple(
        _converted_first(substitute(s.value, dict[Var, PrimExpr](results))) for s in updates
    )
    accumulators = tuple(BufferLoad(b, indices) for b in buffers)
    first = tuple(s.value for s in starts)
    found = _by_operators(values, accumulators, first) or _by_selection(values, accumulators, first)
    if found is None:
        return None
    terms, combined, identities = found
    read = {n.buffer for e in (*terms, *indices) for n in walk(e) if isinstance(n, BufferLoad)}
    return None if read & {*buffers} else Combiner(buffers, indices, terms, combined, identities)


def without_cast(e: PrimExpr) -> PrimExpr:
    """The value that is converted to another dtype, or the expression."""
    return e.value if isinstance(e, expr.Cast) else e


def _converted_first(value: PrimExpr) -> PrimExpr:
    """A selection that is converted, as one of converted values: the place of a maximum is int64
    where it is found, and int32 where it is kept, which it is again as it was."""
    match value:
        case expr.Cast(dtype, expr.Select(condition, yes, no)):
            return expr.Select(condition, _converted(yes, dtype), _converted(no, dtype))
        case _:
            return value


def _converted(e: PrimExpr, dtype: str) -> PrimExpr:
    match e:
        case expr.Cast(wide, narrow) if narrow.dtype == dtype and _holds(wide, dtype):
            return narrow
        case _:
            return expr.Cast(dtype, e)


def _holds(wide: str, dtype: str) -> bool:
    """True if an integer type has all values of another."""
    return is_int(wide) and is_int(dtype) and bits_of(wide) >= bits_of(dtype)


def _stores_of(s: Stmt) -> list[BufferStore]:
    """The stores that a statement consists of; empty if there is something else."""
    stmts = s.stmts if isinstance(s, SeqStmt) else (s,)
    found = [one for one in stmts if isinstance(one, BufferStore)]
    return found if len(found) == len(stmts) else []


_Parts: TypeAlias = tuple[Values, Callable[[Values, Values], Values], Values]


def _by_operators(results: Values, accumulators: Values, starts: Values) -> _Parts | None:
    """Each result from its accumulator alone, by an operator."""
    terms: list[PrimExpr] = []
    forms: list[tuple[type[expr.BinaryOp], bool]] = []
    for result, accumulator in zip(results, accumulators, strict=True):
        if not isinstance(result, expr.BinaryOp) or type(result) not in IDENTITY:
            return None
        if accumulator not in (result.a, result.b):
            return None
        first = result.a == accumulator
        terms.append(result.b if first else result.a)
        forms.append((type(result), first))

    def combined(old: Values, new: Values) -> Values:
        each = zip(forms, old, new, strict=True)
        return tuple(op(a, b) if first else op(b, a) for (op, first), a, b in each)

    identities = tuple(
        start if issubclass(op, _IDEMPOTENT) else IDENTITY[op](start.dtype)
        for (op, _), start in zip(forms, starts, strict=True)
    )
    return tuple(terms), combined, identities


def _by_selection(results: Values, accumulators: Values, starts: Values) -> _Parts | None:
    """All results by one comparison of an accumulator with its value."""
    condition = results[0].condition if isinstance(results[0], expr.Select) else None
    terms: list[PrimExpr] = []
    for result, accumulator in zip(results, accumulators, strict=True):
        if not isinstance(result, expr.Select) or result.condition != condition:
            return None
        if result.true_value != accumulator:
            return None
        terms.append(result.false_value)
    if not isinstance(condition, _ORDERS) or condition.a not in accumulators:
        return None
    by = accumulators.index(condition.a)
    if condition.b != terms[by]:
        return None
    compare = type(condition)

    def combined(old: Values, new: Values) -> Values:
        keep = compare(old[by], new[by])
        return tuple(expr.Select(keep, a, b) for a, b in zip(old, new, strict=True))

    return tuple(terms), combined, starts
