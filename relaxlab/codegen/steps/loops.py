"""Steps about loops: from 0, unrolled, as vectors, inside of conditions; statements that do nothing
left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.dtypes import lanes_of, with_lanes
from relaxlab.ir.expr import Broadcast, IntImm, PrimExpr, Ramp, Var
from relaxlab.ir.intrinsics import INTRINSICS, has_effect
from relaxlab.ir.loops import (
    BlockRealize,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.tree import with_fresh_binders


def loops_from_zero(func: PrimFunc) -> PrimFunc:
    """The function whose loops begin at 0."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and n.min != ZERO:
            var = Var(n.loop_var.name)
            body = substitute(n.body, {n.loop_var: var + n.min})
            return replace(n, loop_var=var, min=ZERO, body=body)
        return None

    return rewrite(func, visit)


def unrolled(
    func: PrimFunc, most_steps: int = 0, longest: int = 0, expands: bool = True
) -> PrimFunc:
    """The function with the iterations of its unrolled loops one after the other, and those of
    serial ones that are at most `longest`, or that run at most `most_steps` statements and have no
    other loops inside. A loop whose extent is no constant stays. Unless it `expands` loops, they
    are only marked as unrolled."""

    def visit(n: Node) -> Node | None:
        match n:
            case For(var, IntImm(low), IntImm(extent), ("serial" | "unrolled") as kind, body):
                steps = _steps(body)
                few = steps is not None and steps * extent <= most_steps
                if kind == "serial" and not few and extent > longest:
                    return None
                if not expands:
                    return replace(n, kind="unrolled")
                values = range(low, low + extent)
                copies = (substitute(body, {var: expr.const(v)}) for v in values)
                return seq(*map(with_fresh_binders, copies)) if extent > 0 else NOTHING
            case _:
                return None

    return rewrite(func, visit)


def _steps(s: Stmt) -> int | None:
    """The number of statements that run in one, None if it has loops that are not unrolled."""
    match s:
        case SeqStmt(stmts):
            counts = [_steps(part) for part in stmts]
        case For(_, _, IntImm(extent), "unrolled", body):
            inside = _steps(body)
            return None if inside is None else inside * extent
        case For() | While():
            return None
        case IfThenElse(_, then, other):
            counts = [_steps(then), 0 if other is None else _steps(other)]
        case LetStmt(body=body):
            counts = [_steps(body)]
        case BlockRealize():
            counts = [_steps(s.block.body)]
        case _:
            return 1
    return None if None in counts else sum(c or 0 for c in counts)


NOTHING = Evaluate(expr.const(0, "int32"))
"""A statement that does nothing."""


# --- Vectors --------------------------------------------------------------------------------------


class _NotVector(Exception):
    """Raised where the work of a loop has no form as vectors."""


def vectorized(func: PrimFunc) -> PrimFunc:
    """The function with its vectorized loops as operations on vectors; a loop in which a condition
    differs from lane to lane runs one lane after the other."""

    def visit(n: Node) -> Node | None:
        match n:
            case For(var, low, IntImm(lanes), "vectorized", body):
                if lanes < 2 or _has_vectors(body):
                    return replace(n, kind="serial")
                ramp = Ramp(low, expr.const(1), lanes)
                try:
                    return _Widening({var: ramp}, lanes).stmt(body)
                except _NotVector:
                    return replace(n, kind="serial")
            case _:
                return None

    return rewrite(func, visit)


def _has_vectors(s: Stmt) -> bool:
    """True if a statement works on vectors already, of a loop inside."""
    return any(isinstance(n, PrimExpr) and lanes_of(n.dtype) > 1 for n in walk(s))


def _is_by_lanes(call: expr.Call) -> bool:
    """True if an intrinsic of vectors is that of each of their lanes."""
    row = INTRINSICS.get(call.op)
    chooses = call.op == "if_then_else"  # and does not compute what it leaves out
    named = any(isinstance(a, expr.StringImm) for a in call.args)
    return row is not None and row.pure and not chooses and not named and call.dtype != "handle"


def serialized(func: PrimFunc) -> PrimFunc:
    """The function with its vectorized loops as serial ones."""

    def visit(n: Node) -> Node | None:
        return replace(n, kind="serial") if isinstance(n, For) and n.kind == "vectorized" else None

    return rewrite(func, visit)


class _Widening:
    """Statements and expressions with vectors in place of a loop's variable."""

    def __init__(self, vectors: dict[Var, PrimExpr], lanes: int) -> None:
        self.vectors, self.lanes = vectors, lanes
        self.an = Analyzer()

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case BufferStore(_, value, indices):
                at = tuple(map(self.value, indices))
                wide = self.value(value)
                if any(lanes_of(i.dtype) > 1 for i in at) or lanes_of(wide.dtype) > 1:
                    wide = self.wide(wide)
                if lanes_of(wide.dtype) > 1 and all(lanes_of(i.dtype) == 1 for i in at):
                    raise _NotVector  # all lanes store into one element
                return replace(s, value=wide, indices=at)
            case For(_, low, extent):
                return replace(
                    s, min=self.scalar(low), extent=self.scalar(extent), body=self.stmt(s.body)
                )
            case SeqStmt(stmts):
                return seq(*map(self.stmt, stmts))
            case IfThenElse(condition, then, other):
                return IfThenElse(
                    self.scalar(condition), self.stmt(then), other and self.stmt(other)
                )
            case LetStmt(var, value, body):
                wide = self.value(value)
                if lanes_of(wide.dtype) == 1:
                    return LetStmt(var, wide, self.stmt(body))
                new = Var(var.name, wide.dtype)
                self.vectors[var] = new
                return LetStmt(new, wide, self.stmt(body))
            case Evaluate(value):
                return Evaluate(self.scalar(value))
            case _:
                raise _NotVector

    def scalar(self, e: PrimExpr) -> PrimExpr:
        """An expression that is the same in all lanes."""
        if any(isinstance(n, Var) and n in self.vectors for n in walk(e)):
            raise _NotVector
        return e

    def wide(self, e: PrimExpr) -> PrimExpr:
        return e if lanes_of(e.dtype) > 1 else Broadcast(e, self.lanes)

    def value(self, e: PrimExpr) -> PrimExpr:
        match e:
            case Var():
                return self.vectors.get(e, e)
            case _ if not any(isinstance(n, Var) and n in self.vectors for n in walk(e)):
                return e
            case expr.Add(a, b) | expr.Sub(a, b) | expr.Mul(a, b):
                return self.arithmetic(e, self.value(a), self.value(b))
            case expr.BinaryOp(a, b):
                return type(e)(self.wide(self.value(a)), self.wide(self.value(b)))
            case expr.Not(a):
                return expr.Not(self.value(a))
            case expr.Cast(to, value):
                return expr.Cast(with_lanes(to, self.lanes), self.value(value))
            case expr.Select(condition, yes, no):
                parts = (self.wide(self.value(p)) for p in (condition, yes, no))
                return expr.Select(*parts)
            case BufferLoad(indices=indices):
                return replace(e, indices=tuple(map(self.value, indices)))
            case expr.Call(dtype, op, args) if _is_by_lanes(e):
                wide = tuple(self.wide(self.value(a)) for a in args)
                return expr.Call(with_lanes(dtype, self.lanes), op, wide)
            case _:
                raise _NotVector

    def arithmetic(self, e: expr.BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """A sum, difference or product; of a ramp and a scalar, a ramp."""
        of, simple = type(e), self.an.simplify
        match a, b:
            case (Ramp(base, stride, lanes), scalar) if lanes_of(scalar.dtype) == 1:
                moved = stride * scalar if of is expr.Mul else stride
                return Ramp(simple(expr.binary(of, base, scalar)), simple(moved), lanes)
            case (scalar, Ramp(base, stride, lanes)) if lanes_of(scalar.dtype) == 1:
                factor = scalar if of is expr.Mul else -1 if of is expr.Sub else 1
                return Ramp(simple(expr.binary(of, scalar, base)), simple(stride * factor), lanes)
            case _:
                return of(self.wide(a), self.wide(b))


# --- Conditions -----------------------------------------------------------------------------------


def conditions_outside(func: PrimFunc) -> PrimFunc:
    """The function whose loops around nothing but a condition are inside of it, where each
    iteration finds the same: it reads neither the loop's variable nor memory. A condition that
    divides by anything but a constant stays: a loop without iterations does not divide by 0."""

    def visit(n: Node) -> Node | None:
        match n:
            case For(var, _, _, kind, IfThenElse(condition, yes, no)) if kind != "thread_binding":
                parts = list(walk(condition))
                if var in parts or not all(map(is_constant_in_loops, parts)):
                    return None
                other = None if no is None else with_fresh_binders(replace(n, body=no))
                return IfThenElse(condition, replace(n, body=yes), other)
            case _:
                return None

    return rewrite(func, visit)


def is_constant_in_loops(part: Node) -> bool:
    """True if a part of an expression, but for its variables, has one value in all iterations of
    loops, and has one where they have none."""
    if isinstance(part, expr.Div | expr.Mod | expr.FloorDiv | expr.FloorMod):
        return isinstance(part.b, IntImm) and part.b.value != 0
    return not isinstance(part, BufferLoad | expr.Call)


def selects_as_branches(func: PrimFunc) -> PrimFunc:
    """The function in which no value is read that a condition does not choose: what chooses between
    values of which one reads memory evaluates that one alone."""

    def visit(n: Node) -> Node | None:
        match n:
            case expr.Select(condition, yes, no) if lanes_of(condition.dtype) == 1:
                reads = any(isinstance(p, BufferLoad) for v in (yes, no) for p in walk(v))
                made = expr.Call(n.dtype, "if_then_else", (condition, yes, no))
                return made if reads else None
            case _:
                return None

    return rewrite(func, visit)


# --- What does nothing ----------------------------------------------------------------------------


def without_no_ops(func: PrimFunc) -> PrimFunc:
    """The function without statements that do nothing: loops and conditions around nothing, values
    that nobody uses, elements stored to where they are."""
    body = cast("Stmt", _Cleaning().visit(func.body))
    return replace(func, body=body) if body is not func.body else func


class _Cleaning:
    def visit(self, n: Node) -> Node:
        new = map_children(n, self.visit)
        rule = _RULES.get(type(new))
        return new if rule is None else rule(new)


def _is_nothing(s: Stmt | None) -> bool:
    return s is None or (isinstance(s, Evaluate) and not has_effect(s.value))


def _for(s: For) -> Stmt:
    empty = isinstance(s.extent, IntImm) and s.extent.value <= 0
    return NOTHING if empty or _is_nothing(s.body) else s


def _if(s: IfThenElse) -> Stmt:
    if isinstance(s.condition, IntImm):
        return (s.then_case if s.condition.value else s.else_case) or NOTHING
    if _is_nothing(s.then_case):
        if _is_nothing(s.else_case):
            return NOTHING
        assert s.else_case is not None
        return IfThenElse(expr.Not(s.condition), s.else_case)
    return replace(s, else_case=None) if s.else_case and _is_nothing(s.else_case) else s


def _seq(s: SeqStmt) -> Stmt:
    kept = [part for part in s.stmts if not _is_nothing(part)]
    return s if len(kept) == len(s.stmts) else seq(*kept) if kept else NOTHING


def _store(s: BufferStore) -> Stmt:
    return NOTHING if s.value == BufferLoad(s.buffer, s.indices) else s


def _let(s: LetStmt) -> Stmt:
    unused = not any(n is s.var for n in walk(s.body)) and not has_effect(s.value)
    return s.body if unused else s


def _while(s: While) -> Stmt:
    return NOTHING if s.condition == expr.IntImm(0, "bool") else s


def _realize(s: BlockRealize) -> Stmt:
    kept = s.block.name == "root" or s.block.init is not None
    return NOTHING if not kept and _is_nothing(s.block.body) else s


_RULES: dict[type[Node], Callable[..., Stmt]] = {
    For: _for, IfThenElse: _if, SeqStmt: _seq, BufferStore: _store, LetStmt: _let, While: _while,
    BlockRealize: _realize,
}  # fmt: skip
