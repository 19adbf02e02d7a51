"""A step that computes once what several statements compute: common subexpressions as variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

from relaxlab.ir import expr
from relaxlab.ir.dtypes import element_of, is_int, is_uint
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import (
    AssertStmt,
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
from relaxlab.ir.node import Node, children, map_children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.tree import all_blocks

Place: TypeAlias = tuple[tuple[int, int], ...]
"""The place of a statement: the number of each sequence around it, and where in it it is."""


def _bound_once(s: Stmt) -> Stmt:
    """The statement with a variable of its own for each loop and each name."""
    seen: set[Var] = set()

    def visit(n: Node) -> Node:
        if isinstance(n, For | LetStmt):
            old = n.loop_var if isinstance(n, For) else n.var
            if old in seen:
                new = Var(old.name, old.dtype)
                body = substitute(n.body, {old: new})
                if isinstance(n, For):
                    n = replace(n, loop_var=new, body=body)
                else:
                    n = replace(n, var=new, body=body)
            seen.add(old)
        return map_children(n, visit)

    return cast("Stmt", visit(s))


def expressions_shared(func: PrimFunc) -> PrimFunc:
    """The function in which an expression of variables that is there more than once has a name, in
    the innermost sequence of statements around all places that compute it.

    What reads memory or calls a function stays, as do conditions; and a division by what may be 0,
    unless the statement that is first to compute it does so in any case. Raises ValueError for a
    block with an initialisation, which comes before its body and has no sequence with it.
    """
    for block in all_blocks(func):
        if block.init is not None:
            raise ValueError(
                f"block {block.name!r} has an initialisation: make it a condition first, by "
                "LowerInitBlock"
            )
    # Versions of a function may bind the same variables, whose values are others in each.
    body = _bound_once(func.body)
    uses = _Uses()
    _Sequences(uses.note, lambda _: []).statement(body, ())
    names = {e: Var(f"cse_v{i + 1}", e.dtype) for i, e in enumerate(uses.repeated())}
    if not names:
        return func
    first: dict[Place, list[PrimExpr]] = {}
    for e in names:
        first.setdefault(uses.found[e].first, []).append(e)

    def named(e: PrimExpr, place: Place) -> PrimExpr:
        return names[e] if e in names else _map(e, lambda part, _: named(part, place))

    def definitions(place: Place) -> list[tuple[Var, PrimExpr]]:
        own = first.get(place, ())
        return [(names[e], _map(e, lambda part, _: named(part, place))) for e in own]

    return replace(func, body=_Sequences(named, definitions).statement(body, ()))


@dataclass
class _Use:
    """An expression in a function: in which place first, where its uses have a sequence in common,
    and whether each of them, or a part of them, is computed in any case."""

    order: int
    depth: int
    first: Place
    always: set[Place]


class _Uses:
    """The expressions that could have a name, with their uses."""

    def __init__(self) -> None:
        self.found: dict[PrimExpr, _Use] = {}
        self.count: Counter[PrimExpr] = Counter()

    def note(self, e: PrimExpr, place: Place) -> PrimExpr:
        self._visit(e, place, True)
        return e

    def _visit(self, e: PrimExpr, place: Place, always: bool) -> None:
        _map(e, lambda part, sure: self._noted(part, place, always and sure))
        if not _may_be_named(e):
            return
        self.count[e] += 1
        use = self.found.get(e)
        if use is None:
            below = (self.found[c].depth for c in children(e) if c in self.found)  # type: ignore
            use = _Use(len(self.found), 1 + max(below, default=0), place, set())
            self.found[e] = use
        use.first = _common(use.first, place)
        if always:
            use.always.add(place)

    def _noted(self, e: PrimExpr, place: Place, always: bool) -> PrimExpr:
        self._visit(e, place, always)
        return e

    def repeated(self) -> list[PrimExpr]:
        """The expressions that are computed more than once when those that contain them have names;
        what is part of others comes before them."""
        found: list[PrimExpr] = []
        for e in sorted(self.found, key=lambda e: -self.found[e].depth):
            use = self.found[e]
            if self.count[e] < 2 or (_may_fail(e) and use.first not in use.always):
                continue
            found.append(e)
            for part in walk(e):
                if part is not e and part in self.found:
                    self.count[part] -= self.count[e] - 1  # type: ignore[index]
        return sorted(found, key=lambda e: (self.found[e].depth, self.found[e].order))


def _may_be_named(e: PrimExpr) -> bool:
    arithmetic = isinstance(e, expr.BinaryOp | expr.Cast | expr.Select)
    if not arithmetic or element_of(e.dtype) == "bool":
        return False
    parts = list(walk(e))
    fixed = not any(isinstance(p, BufferLoad | expr.Call | expr.Let) for p in parts)
    return fixed and any(isinstance(p, Var) for p in parts)


def _may_fail(e: PrimExpr) -> bool:
    """True if an expression divides integers by what may be 0."""

    def divides(n: object) -> bool:
        if not isinstance(n, expr.Div | expr.Mod | expr.FloorDiv | expr.FloorMod):
            return False
        sure = isinstance(n.b, IntImm) and n.b.value != 0
        return (is_int(n.dtype) or is_uint(n.dtype)) and not sure

    return any(map(divides, walk(e)))


def _common(a: Place, b: Place) -> Place:
    """The place of the first of two statements, or of what is around it, in the innermost sequence
    that both are in."""
    for depth, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return min(a[: depth + 1], b[: depth + 1]) if one[0] == other[0] else a[:depth]
    return min(a, b, key=len)


def _map(e: PrimExpr, fn: Callable[[PrimExpr, bool], PrimExpr]) -> PrimExpr:
    """The expression with other operands; the function is also told if an operand is computed in
    any case. In the body of a `Let` all stays as it is."""
    match e:
        case expr.Let(var, value, body):
            return expr.Let(var, fn(value, True), body)
        case expr.And(a, b) | expr.Or(a, b):
            return type(e)(fn(a, True), fn(b, False))
        case expr.Call(_, "if_then_else", (condition, *sides)):
            return replace(e, args=(fn(condition, True), *(fn(s, False) for s in sides)))
        case _:
            return map_children(e, lambda c: fn(c, True) if isinstance(c, PrimExpr) else c)


class _Sequences:
    """Rewrites the expressions of statements by a function of them and of their places, and puts
    definitions of variables in front of statements."""

    def __init__(
        self,
        value: Callable[[PrimExpr, Place], PrimExpr],
        definitions: Callable[[Place], list[tuple[Var, PrimExpr]]],
    ) -> None:
        self.value, self.definitions = value, definitions
        self.sequences = 0

    def statement(self, s: Stmt, around: Place) -> Stmt:
        """A statement that is the whole body of another one, with what is in it."""
        number, self.sequences = self.sequences, self.sequences + 1
        items: list[Stmt] = []
        for index, item in enumerate(_items(s)):
            place = (*around, (number, index))
            made = self.item(item, place)
            items += [LetStmt(var, e, _REST) for var, e in self.definitions(place)]
            items.append(made)
        body = items.pop()
        for item in reversed(items):
            follows = isinstance(item, LetStmt) and item.body is _REST
            body = replace(item, body=body) if follows else seq(item, body)
        return body

    def item(self, s: Stmt, place: Place) -> Stmt:
        def value(e: PrimExpr) -> PrimExpr:
            return self.value(e, place)

        def body(inner: Stmt) -> Stmt:
            return self.statement(inner, place)

        match s:
            case LetStmt():
                return replace(s, value=value(s.value))
            case BufferStore():
                return replace(s, value=value(s.value), indices=tuple(map(value, s.indices)))
            case Evaluate():
                return replace(s, value=value(s.value))
            case AssertStmt():
                given = tuple(map(value, s.values))
                return replace(s, condition=value(s.condition), values=given)
            case For():
                low, extent = value(s.min), value(s.extent)
                return replace(s, min=low, extent=extent, body=body(s.body))
            case While():
                return replace(s, condition=value(s.condition), body=body(s.body))
            case IfThenElse(condition, then, other):
                condition, then = value(condition), body(then)
                return IfThenElse(condition, then, other and body(other), span=s.span)
            case BlockRealize():
                values = tuple(map(value, s.iter_values))
                block = replace(s.block, body=body(s.block.body))
                return BlockRealize(values, value(s.predicate), block, span=s.span)
            case _:
                raise TypeError(f"statements of class {type(s).__name__} stand in no sequence")


_REST: Stmt = Evaluate(expr.const(0))
"""Stands for the statements after the definition of a variable, which are its body."""


def _items(s: Stmt) -> Iterator[Stmt]:
    """The statements of a sequence; a definition of a variable is one that what follows it is not
    part of."""
    match s:
        case SeqStmt(stmts):
            for part in stmts:
                yield from _items(part)
        case LetStmt(body=body):
            yield replace(s, body=_REST)
            yield from _items(body)
        case _:
            yield s
