"""Replacement of a pattern's matches by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from relaxlab.analysis.annotate import annotate
from relaxlab.ir import graph
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace as replace_node
from relaxlab.passes.base import Pass
from relaxlab.passes.bindings import map_blocks, use_counts, vars_in, with_bindings
from relaxlab.passes.effects import is_pure
from relaxlab.passes.patterns.chains import find_chains
from relaxlab.passes.patterns.language import Chain, Pattern
from relaxlab.passes.patterns.match import BlockScope, Match, Matcher, NearestMiss, show
from relaxlab.tracing import may_apply, remark

Rewriter: TypeAlias = Callable[[graph.Call, Match], "graph.Expr | str | None"]
"""A function of the matched call and the match that returns its replacement (calls may be nested);
the call itself or None leaves it, a string does so with a reason for the trace."""

BindingRewriter: TypeAlias = Callable[
    [Match, Mapping[graph.Var, graph.Expr]], "Mapping[graph.Var, graph.Expr] | str | None"
]
"""Given a match and the bindings of the block, new values for some of its variables (variables
that are not there yet become bindings of their own)."""


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """The `pattern` to replace, and the `rewriter` that makes the replacement."""

    pattern: Pattern | tuple[Chain, ...]
    rewriter: Callable[..., object] = field(compare=False)

    def __str__(self) -> str:
        parts = (self.pattern,) if isinstance(self.pattern, Pattern) else self.pattern
        return "; ".join(map(str, parts))


@names_arguments
def rewrite_call(pattern: Pattern, rewriter: Rewriter, name: str = "rewrite_call") -> Pass:
    """Return a pass that replaces each call that `pattern` matches by `rewriter(call, match)`.

    Calls are taken in program order, within binding blocks. A match that would be computed later
    than the program does, from values that are overwritten in between, is left alone. Intermediate
    values without readers are removed. Needs A-normal form; returns it, with types.

    Raises DiagnosticError when the new calls cannot be typed, or when a value does not have the
    type of the one it replaces; TypeError for a pattern that is none, and if the rewriter does not
    return a value.
    """

    if not isinstance(pattern, Pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected a pattern, such as wildcard(), not {pattern!r}")

    def run(mod: Module, options: RewriteOptions) -> Module:
        assert isinstance(options.pattern, Pattern)
        return rewrite_matches(mod, options.pattern, rewriter, name)

    return Pass(name, run, RewriteOptions(pattern, rewriter), ("normalize",))


@names_arguments
def rewrite_bindings(
    chains: Chain | tuple[Chain, ...], rewriter: BindingRewriter, name: str = "rewrite_bindings"
) -> Pass:
    """Return a pass that replaces bindings of dataflow blocks where `chains`, which may share
    patterns, match. The bindings of a changed block are sorted so that each comes after those it
    reads. Blocks that overwrite values in place are left alone.

    Raises as `rewrite_call` does.
    """
    given = (chains,) if isinstance(chains, Chain) else chains

    def run(mod: Module, _: RewriteOptions) -> Module:
        return _rewrite_chains(mod, given, rewriter, name)

    return Pass(name, run, RewriteOptions(given, rewriter), ("normalize",))


def rewrite_matches(mod: Module, pattern: Pattern, rewriter: Rewriter, rule: str) -> Module:
    """Apply `rewrite_call` to a module; remarks go under `rule`. A pattern without matches is
    remarked."""
    state = _Sweep(mod, pattern, rewriter, rule)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        uses = use_counts(fn)
        whole = map_blocks(fn, lambda b: b)  # neighbouring plain blocks as one
        bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
        scope = partial(BlockScope, mod, uses=uses, bounds=bounds)
        new = map_blocks(whole, partial(state.block, name, scope))
        if new is not whole:
            updates[name] = drop_unread(new, state.members, mod)
    if not state.matches:
        remark(rule, str(pattern), f"matched nothing; {state.miss}", applied=False)
    return normalized(mod.with_functions(updates), rule) if updates else mod


def normalized(mod: Module, rule: str = "") -> Module:
    """A module in A-normal form, with types, after `rule` rewrote it. Raises DiagnosticError."""
    result, problems = annotate(mod)
    if problems:
        notes = (f"`{rule}` made it so: the program was right before",) if rule else ()
        raise DiagnosticError([replace(p, notes=(*p.notes, *notes)) for p in problems])
    return result


@dataclass(slots=True)
class _Sweep:
    """One walk over a module."""

    mod: Module
    pattern: Pattern
    rewriter: Rewriter
    rule: str
    miss: NearestMiss = field(default_factory=NearestMiss)
    matches: int = 0
    members: set[graph.Var] = field(default_factory=set[graph.Var])

    def block(
        self, name: str, scope_of: Callable[..., BlockScope], blk: graph.BindingBlock
    ) -> graph.BindingBlock:
        scope, complete = scope_of(block=graph.BindingBlock(())), scope_of(block=blk)
        matcher = Matcher(scope, self.miss, name)
        new: list[graph.Binding] = []
        for b in blk.bindings:
            scope.add(b)
            new.append(self.binding(name, b, matcher, complete))
            if new[-1] is not b:  # what was just written is not taken apart in the same walk
                scope.definitions.pop(b.var, None)
        return with_bindings(blk, new)

    def binding(
        self, name: str, b: graph.Binding, matcher: Matcher, complete: BlockScope
    ) -> graph.Binding:
        call = b.value
        if not isinstance(b, graph.VarBinding) or not isinstance(call, graph.Call):
            return b
        found = matcher.at(self.pattern, b.var)
        if found is None:
            return b
        self.matches += 1
        found = replace(found, scope=complete)
        at = f"{name}.{b.var.name}"
        stale = complete.overwritten(found.members, complete.position[b.var])
        if stale is not None:
            text = f"what `{stale.name}` reads is overwritten before `{b.var.name}` is computed"
            remark(self.rule, at, text, applied=False)
            return b
        result = self.rewriter(call, found)
        if isinstance(result, str) or result is None or result is call:
            reason = result if isinstance(result, str) else "the rewriter left it"
            remark(self.rule, at, reason, applied=False)
            return b
        if not isinstance(result, graph.Expr):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{self.rule}: the rewriter of `{at}` returned {result!r}, no value")
        _require_values(result, f"{self.rule}: the rewriter of `{at}`")
        inner = ", ".join(f"`{v.name}`" for v in found.members[:-1])
        text = f"matched{' with ' + inner if inner else ''}: now {describe(result)}"
        if not may_apply(self.rule, at, text):
            return b
        self.members.update(found.members)
        return replace_node(b, value=result)


def _require_values(e: graph.Expr, what: str) -> None:
    """Raise TypeError for a call whose arguments are not all values."""
    for a in e.args if isinstance(e, graph.Call) else ():
        if not isinstance(a, graph.Expr):  # pyright: ignore[reportUnnecessaryIsInstance]
            advice = "; rl.graph.Constant(array) is the value of an array"
            raise TypeError(f"{what} returned a call with {kind_of(a)} as an argument{advice}")
        _require_values(a, what)


def describe(e: graph.Expr) -> str:
    """An expression in a few words: operators with their arguments."""
    if not isinstance(e, graph.Call):
        return show(e)
    if isinstance(e.op, graph.Op) and e.op.name.startswith("call_") and e.args:
        return f"a call of {show(e.args[0])}"
    return f"{show(e.op)}({', '.join(map(describe, e.args))})"


def drop_unread(fn: graph.Function, candidates: set[graph.Var], mod: Module) -> graph.Function:
    """`fn` without those of the candidates' bindings that are pure and unread."""
    while True:
        uses = use_counts(fn)
        dead = {v for v in candidates if not uses[v]}

        def keep(b: graph.Binding, dead: set[graph.Var] = dead) -> bool:
            gone = b.var in dead and isinstance(b, graph.VarBinding) and is_pure(b.value, mod)
            return not gone

        new = map_blocks(fn, lambda blk: with_bindings(blk, [b for b in blk.bindings if keep(b)]))
        if new is fn:
            return fn
        fn = new


# --- Several bindings at once -----------------------------------------------------------------


def _rewrite_chains(
    mod: Module, chains: tuple[Chain, ...], rewriter: BindingRewriter, rule: str
) -> Module:
    miss, count = NearestMiss(), 0
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        uses = use_counts(fn)
        members: set[graph.Var] = set()

        def block(
            blk: graph.BindingBlock, name: str = name, uses: Mapping[graph.Var, int] = uses,
            members: set[graph.Var] = members,
        ) -> graph.BindingBlock:  # fmt: skip
            nonlocal count
            if not isinstance(blk, graph.DataflowBlock):
                return blk
            scope = BlockScope(mod, blk, uses)
            changed: dict[graph.Var, graph.Expr] = {}
            used: set[graph.Var] = set()
            for found in find_chains(chains, scope, miss, name):
                if used & set(found.members):
                    continue
                count += 1
                new = _new_values(rule, name, found, rewriter, scope)
                if new:
                    used |= set(found.members)
                    members.update(found.members)
                    changed.update(new)
            return with_values(blk, changed) if changed else blk

        new = map_blocks(fn, block)
        if new is not fn:
            updates[name] = drop_unread(new, members, mod)
    if not count:
        text = "; ".join(map(str, chains))
        remark(rule, text, f"matched nothing; {miss}", applied=False)
    return normalized(mod.with_functions(updates), rule) if updates else mod


def _new_values(
    rule: str, name: str, found: Match, rewriter: BindingRewriter, scope: BlockScope
) -> Mapping[graph.Var, graph.Expr] | None:
    at = f"{name}.{found.root.name}"
    if scope.writes:
        remark(rule, at, "the block overwrites values in place", applied=False)
        return None
    result = rewriter(found, scope.definitions)
    if not result or isinstance(result, str):
        reason = result if isinstance(result, str) else "the rewriter left it"
        remark(rule, at, reason, applied=False)
        return None
    text = ", ".join(f"`{v.name}` is {describe(e)}" for v, e in result.items())
    return result if may_apply(rule, at, f"matched: now {text}") else None


def with_values(
    blk: graph.BindingBlock, values: Mapping[graph.Var, graph.Expr]
) -> graph.BindingBlock:
    """Return a block with new values for variables, and with new variables, sorted so that each
    binding comes after those it reads. Raises ValueError for a value that depends on itself."""
    bindings = {b.var: b for b in blk.bindings}
    order: dict[graph.Var, graph.Binding] = {}
    for v, e in values.items():
        old = bindings.get(v)
        bindings[v] = graph.VarBinding(e, v) if old is None else replace_node(old, value=e)  # type: ignore

    def visit(v: graph.Var, path: tuple[graph.Var, ...]) -> None:
        if v in order or v not in bindings:
            return
        if v in path:
            raise ValueError(f"the rewritten value of `{v.name}` depends on itself")
        for used in vars_in(bindings[v].value):
            visit(used, (*path, v))
        order[v] = bindings[v]

    for b in blk.bindings:
        visit(b.var, ())
    for v in values:
        visit(v, ())
    return with_bindings(blk, list(order.values()))
