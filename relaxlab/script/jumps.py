"""`break` and `continue`, read as conditions: the IR's loops have no jumps.

A loop that has jumps keeps a flag for each kind in local memory. Setting it is the jump, and what
follows a statement that may have jumped runs only where no flag is set. After a `break` the other
rounds of a `for` do nothing, and a `while` ends.
"""

from __future__ import annotations

from typing import NoReturn

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.node import node, walk
from relaxlab.script.core import Context

JUMPS = {
    "break_loop": "break", "Break": "break", "continue_loop": "continue", "Continue": "continue",
}  # fmt: skip
"""Calls such as `T.break_loop()`, and the statements that they stand for."""

ZERO, FALSE = IntImm(0), IntImm(0, "bool")


@node
class Jump(loops.Stmt):
    """A `break` or `continue`, until the loop around it is read."""

    kind: str


def refuse(cx: Context, jump: Jump) -> NoReturn:
    """Stop at a jump out of what cannot be left: a block, threads, several loops at once."""
    assert jump.span is not None
    cx.fail(
        jump.span,
        "E0104",
        f"`{jump.kind}` leaves a single loop in order, not a block, threads or several loops at "
        "once",
        help="write a condition around the statements that it skips",
    )


def jumps_in(s: loops.Stmt) -> list[Jump]:
    """The jumps that leave the loop around `s`; those out of loops in it are replaced already."""
    return [n for n in walk(s) if isinstance(n, Jump)]


class Flags:
    """The flags of a loop whose body is `body`: `buffers` has one for each kind of jump in it."""

    def __init__(self, cx: Context, body: loops.Stmt) -> None:
        self.cx = cx
        self.buffers = {
            kind: loops.Buffer(f"{kind}s", (IntImm(1),), "bool", scope="local")
            for kind in sorted({jump.kind for jump in jumps_in(body)})
        }

    def loop(self, around: loops.For | loops.While) -> loops.Stmt:
        """The loop without its jumps."""
        body = self._without(around.body)
        if "continue" in self.buffers:
            body = loops.seq(self._set("continue", FALSE), body)
        if "break" not in self.buffers:
            return _with(around, body)
        go_on = self._none_of("break")
        if isinstance(around, loops.While):
            # The condition may read what is there only while the loop goes on.
            parts = (go_on, around.condition, FALSE)
            test = expr.Call("bool", "if_then_else", parts, span=around.condition.span)
            loop: loops.Stmt = loops.While(test, body, span=around.span)
        else:
            loop = _with(around, loops.IfThenElse(go_on, body))
        return loops.seq(self._set("break", FALSE), loop)

    def _set(self, kind: str, value: PrimExpr) -> loops.Stmt:
        return loops.BufferStore(self.buffers[kind], value, (ZERO,))

    def _none_of(self, *kinds: str) -> PrimExpr:
        first, *rest = (expr.Not(loops.BufferLoad(self.buffers[k], (ZERO,))) for k in kinds)
        test: PrimExpr = first
        for other in rest:
            test = expr.And(test, other)
        return test

    def _without(self, s: loops.Stmt) -> loops.Stmt:
        if not jumps_in(s):
            return s
        match s:
            case Jump(kind):
                return self._set(kind, IntImm(1, "bool"))
            case loops.SeqStmt(stmts):
                return self._sequence(stmts)
            case loops.IfThenElse(condition, yes, no):
                other = None if no is None else self._without(no)
                return loops.IfThenElse(condition, self._without(yes), other, span=s.span)
            case loops.LetStmt(var, value, body):
                return loops.LetStmt(var, value, self._without(body), span=s.span)
            case _:
                refuse(self.cx, jumps_in(s)[0])

    def _sequence(self, stmts: tuple[loops.Stmt, ...]) -> loops.Stmt:
        at = next(i for i, s in enumerate(stmts) if jumps_in(s))
        made = [*stmts[:at], self._without(stmts[at])]
        if at + 1 < len(stmts):
            kinds = sorted({jump.kind for jump in jumps_in(stmts[at])})
            rest = self._without(loops.seq(*stmts[at + 1 :]))
            made.append(loops.IfThenElse(self._none_of(*kinds), rest))
        return loops.seq(*made)


def _with(loop: loops.For | loops.While, body: loops.Stmt) -> loops.Stmt:
    match loop:
        case loops.While(condition):
            return loops.While(condition, body, span=loop.span)
        case loops.For(var, low, extent, kind, _, thread, notes):
            return loops.For(var, low, extent, kind, body, thread, notes, span=loop.span)


def without_jumps(
    cx: Context, loop: loops.For | loops.While, loops_at_once: int
) -> tuple[loops.Stmt, list[loops.Buffer]]:
    """The loop without the jumps in its body, and the flags that it needs. `loops_at_once` are
    written as one: `T.grid` cannot be left as a whole."""
    jumps = jumps_in(loop.body)
    if not jumps:
        return loop, []
    in_order = isinstance(loop, loops.While) or loop.kind in ("serial", "unrolled")
    if not in_order or loops_at_once > 1:
        refuse(cx, jumps[0])
    flags = Flags(cx, loop.body)
    return flags.loop(loop), list(flags.buffers.values())
