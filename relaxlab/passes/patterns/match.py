"""Matching patterns against the bindings of a block.

In A-normal form a nested call is a variable: a pattern for a call looks through a variable to what
it was bound to in the same block. All ways of matching are tried in order (alternatives, then
later choices), so an `|` never hides a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.passes.bindings import expr_key, leaf_type, same_dims, same_shape, vars_in
from relaxlab.passes.effects import Aliases, Cell, is_pure, overlaps, summary_of
from relaxlab.passes.patterns import language as pl

Env: TypeAlias = Mapping[pl.Pattern, graph.Expr]


class BlockScope:
    """The context of matching in a block: definitions, readers, when memory is overwritten, and the
    upper bounds that its function declares for symbols, by their names."""

    def __init__(
        self,
        mod: Module,
        block: graph.BindingBlock,
        uses: Mapping[graph.Var, int],
        bounds: Mapping[str, int] | None = None,
    ) -> None:
        self.mod = mod
        self.bounds = bounds or {}
        self.bindings: list[graph.Binding] = []
        self.position: dict[graph.Var, int] = {}
        self.definitions: dict[graph.Var, graph.Expr] = {}
        self.readers: dict[graph.Var, list[graph.Var]] = {}
        self.uses = uses
        self.reads: dict[graph.Var, int] = {}
        self._aliases = Aliases(summary_of(mod))
        self.writes: list[tuple[int, set[Cell]]] = []
        for b in block.bindings:
            self.add(b)

    def add(self, b: graph.Binding) -> None:
        """Take in the next binding of the block."""
        at = len(self.bindings)
        self.bindings.append(b)
        self.position[b.var] = at
        if isinstance(b, graph.VarBinding) and is_pure(b.value, self.mod):
            self.definitions[b.var] = b.value
        for v in vars_in(b.value):
            self.reads[v] = self.reads.get(v, 0) + 1
            readers = self.readers.setdefault(v, [])
            if b.var not in readers:
                readers.append(b.var)
        self._aliases.note(b)
        cells = set(self._aliases.overwritten(b.value))
        if cells:
            self.writes.append((at, cells))

    def escapes(self, var: graph.Var) -> bool:
        """True if the value is used outside the block."""
        return self.reads.get(var, 0) != self.uses.get(var, 0)

    def overwritten(self, members: Sequence[graph.Var], until: int) -> graph.Var | None:
        """Return the first of `members` that reads memory which is overwritten after it, before
        position `until`: its value cannot be computed there."""
        for v in members:
            at = self.position[v]
            later = [cells for k, cells in self.writes if at < k < until]
            value = self.bindings[at].value
            if later and any(
                overlaps(cell, cells) for cell in self._aliases.read(value) for cells in later
            ):
                return v
        return None


@dataclass(frozen=True, slots=True)
class Match:
    """A successful match: `match[pattern]`, or `match["name"]` for a value captured with `named`.

    A value is a variable or constant that may be used where the match is rewritten. `root` is the
    variable of the last call, `members` are the variables whose bindings were looked into, in
    program order with the root last.
    """

    root: graph.Var
    values: Env
    members: tuple[graph.Var, ...]
    scope: BlockScope = field(repr=False)

    def __getitem__(self, key: pl.Pattern | str) -> graph.Expr:
        if isinstance(key, str):
            for p, value in self.values.items():
                if isinstance(p, pl.NamedPattern) and p.name == key:
                    return value
            names = [p.name for p in self.values if isinstance(p, pl.NamedPattern)]
            raise KeyError(f"nothing is captured as {key!r}; captured: {', '.join(names) or '-'}")
        if key not in self.values:
            raise KeyError(f"{key} is not part of what matched (of another alternative?)")
        return self.values[key]

    def __contains__(self, key: pl.Pattern) -> bool:
        return key in self.values

    def definition(self, key: pl.Pattern | str | graph.Var) -> graph.Expr:
        """Return the value that matched (or a member), as a call or tuple if it is bound to one."""
        value = key if isinstance(key, graph.Var) else self[key]
        while isinstance(value, graph.Var) and value in self.scope.definitions:
            value = self.scope.definitions[value]
        return value

    def leaking(self) -> tuple[graph.Var, ...]:
        """The members other than the root whose values something outside the match reads."""
        return tuple(v for v in self.members if v is not self.root and self._read_elsewhere(v))

    def _read_elsewhere(self, var: graph.Var) -> bool:
        outside = [r for r in self.scope.readers.get(var, ()) if r not in self.members]
        return bool(outside) or self.scope.escapes(var)


@dataclass(slots=True)
class NearestMiss:
    """The attempt that got furthest: how many parts of the pattern matched, where it failed.
    `calls` are the operators whose calls were looked at."""

    matched: int = 0
    root: str = ""
    reason: str = ""
    calls: set[str] = field(default_factory=set[str])

    def __str__(self) -> str:
        if not self.root:
            there = f"there are calls of {', '.join(sorted(self.calls))}" if self.calls else ""
            return f"no call of the right operator; {there or 'there are no calls of operators'}"
        return f"the nearest miss is `{self.root}`: {self.reason}"


class Matcher:
    """Matches one pattern at bindings of a block."""

    def __init__(self, scope: BlockScope, miss: NearestMiss, name: str) -> None:
        self.scope, self.miss, self.name = scope, miss, name
        self._root = ""

    def at(self, pattern: pl.Pattern, var: graph.Var, known: Env | None = None) -> Match | None:
        """The first match whose last call is bound to `var`; `known` is matched already."""
        return next(self.all_at(pattern, var, known), None)

    def all_at(
        self, pattern: pl.Pattern, var: graph.Var, known: Env | None = None
    ) -> Iterator[Match]:
        """Return all matches whose last call is bound to `var`."""
        self._root = f"{self.name}.{var.name}"
        match self.scope.definitions.get(var):
            case graph.Call(graph.Op(name)):
                self.miss.calls.add(name)
            case _:
                pass
        for env in self._match(pattern, var, dict(known or {})):
            yield Match(var, env, self._members(var, env), self.scope)

    def _members(self, root: graph.Var, env: Env) -> tuple[graph.Var, ...]:
        """The variables that were looked through: what structural patterns matched."""
        found = {root}
        for p, e in env.items():
            if isinstance(e, graph.Var) and e in self.scope.definitions and _looks_inside(p):
                found.add(e)
        return tuple(sorted(found, key=lambda v: self.scope.position[v]))

    def _failed(self, env: Env, reason: str) -> Iterator[Env]:
        if len(env) > self.miss.matched:
            self.miss.matched, self.miss.root, self.miss.reason = len(env), self._root, reason
        return iter(())

    def _match(self, p: pl.Pattern, e: graph.Expr, env: Env) -> Iterator[Env]:
        if p in env:
            if expr_key(env[p]) == expr_key(e):
                return iter((env,))
            text = f"{p} stands for `{show(env[p])}` before and for `{show(e)}` here"
            return self._failed(env, text)
        return ({**found, p: e} for found in self._inside(p, e, env))

    def _inside(self, p: pl.Pattern, e: graph.Expr, env: Env) -> Iterator[Env]:
        match p:
            case pl.Wildcard():
                return iter((env,))
            case pl.OrPattern(a, b):
                return (found for part in (a, b) for found in self._match(part, e, env))
            case pl.AndPattern(a, b):
                return (x for found in self._match(a, e, env) for x in self._match(b, e, found))
            case pl.NotPattern(a):
                if next(self._match(a, e, env), None) is None:
                    return iter((env,))
                return self._failed(env, f"`{show(e)}` is {a}")
            case pl.NamedPattern(a):
                return self._match(a, e, env)
            case pl.WherePattern(a, _, why_not):
                return self._where(self._match(a, e, env), e, why_not)
            case pl.SameShapePattern(a, other):
                return self._same_shape(self._match(a, e, env), e, other)
            case pl.CallPattern() | pl.TuplePattern() | pl.TupleGetItemPattern():
                return self._structure(p, e, env)
            case _:
                return self._leaf(p, e, env)

    def value(self, e: graph.Expr) -> graph.Expr:
        """An expression, variables looked through."""
        while isinstance(e, graph.Var) and e in self.scope.definitions:
            e = self.scope.definitions[e]
        return e

    def _where(self, found: Iterator[Env], e: graph.Expr, why_not: pl.WhyNot) -> Iterator[Env]:
        for env in found:
            reason = why_not(self.value(e), leaf_type(e))
            if reason is None:
                yield env
            else:
                yield from self._failed(env, f"`{show(e)}`: {reason}")

    def _same_shape(self, found: Iterator[Env], e: graph.Expr, other: pl.Pattern) -> Iterator[Env]:
        for env in found:
            if other not in env:
                yield from self._failed(env, f"{other} is compared with before it matched")
            elif same_shape(leaf_type(e), leaf_type(env[other])):
                yield env
            else:
                text = f"`{show(e)}` and `{show(env[other])}` do not provably have one shape"
                yield from self._failed(env, text)

    def _structure(self, p: pl.Pattern, e: graph.Expr, env: Env) -> Iterator[Env]:
        value = self.value(e)
        match p, value:
            case pl.CallPattern(op, args, rest), graph.Call():
                heads = self._match(op, value.op, env)
                return (
                    x for found in heads
                    for x in self._items(args, value.args, rest, found, f"`{show(value.op)}`")
                )  # fmt: skip
            case pl.TuplePattern(fields, rest), graph.Tuple(given):
                return self._items(fields, given, rest, env, f"`{show(e)}`")
            case pl.TupleGetItemPattern(inner, index), graph.TupleGetItem(source, at):
                if index not in (None, at):
                    return self._failed(env, f"`{show(e)}` is field {at}, not {index}")
                return self._match(inner, source, env)
            case _:
                return self._failed(env, f"`{show(e)}` is {kind_of(value)}, not {p}")

    def _items(
        self,
        patterns: tuple[pl.Pattern, ...],
        given: tuple[graph.Expr, ...],
        rest: bool,
        env: Env,
        what: str,
    ) -> Iterator[Env]:
        if len(given) < len(patterns) or (len(given) > len(patterns) and not rest):
            more = "at least " if rest else ""
            text = f"{what} has {len(given)} parts, the pattern {more}{len(patterns)}"
            return self._failed(env, text)
        if not patterns:
            return iter((env,))
        heads = self._match(patterns[0], given[0], env)
        return (
            x for found in heads
            for x in self._items(patterns[1:], given[1 : len(patterns)], False, found, what)
        )  # fmt: skip

    def _leaf(self, p: pl.Pattern, e: graph.Expr, env: Env) -> Iterator[Env]:
        value = self.value(e)
        match p, value:
            case pl.OpPattern(name), graph.Call(graph.Op() as op):
                good = op.name == name
            case pl.OpPattern(name), graph.Op(given):
                good = given == name
            case pl.GlobalVarPattern(name), graph.GlobalVar(given):
                good = name in (None, given)
            case pl.ExternPattern(name), graph.ExternFunc(given):
                good = name in (None, given)
            case pl.ConstPattern(wanted), graph.Constant(data):
                good = wanted is None or (data.ndim == 0 and data.item() == wanted)
            case pl.ShapePattern(dims), graph.ShapeExpr(given):
                good = same_dims(given, dims)
            case pl.VarPattern(name, dataflow), _:
                good = isinstance(e, graph.Var) and name in (None, e.name)
                good = good and (not dataflow or isinstance(e, graph.DataflowVar))
            case _:
                good = False
        if good:
            return iter((env,))
        return self._failed(env, f"`{show(e)}` is {kind_of(value)}, not {p}")


def _looks_inside(p: pl.Pattern) -> bool:
    return isinstance(p, pl.CallPattern | pl.TuplePattern | pl.TupleGetItemPattern | pl.OpPattern)


def kind_of(e: graph.Expr) -> str:
    """Return the kind of an expression, for messages."""
    match e:
        case graph.Call(op):
            return f"a call of {show(op)}"
        case graph.Op(name):
            return f"the operator {name}"
        case graph.Constant(data):
            return f"a constant of shape {data.shape}"
        case graph.Var():
            return "a variable from outside the block"
        case _:
            return f"a {type(e).__name__}"


def show(e: graph.Expr) -> str:
    """A short name of an expression."""
    match e:
        case graph.Constant(data) if data.ndim == 0:
            return str(data.item())
        case graph.Tuple(fields):
            return f"({', '.join(map(show, fields))})"
        case graph.ShapeExpr(values):
            return f"shape({', '.join(map(str, values))})"
        case _:
            return str(getattr(e, "name", type(e).__name__))
