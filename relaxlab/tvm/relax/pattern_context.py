"""`relax.dpl.PatternContext`, the patterns written inside `with`, matched together; rewriters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, map_children
from relaxlab.ir.substitute import substitute
from relaxlab.passes.bindings import use_counts
from relaxlab.passes.patterns import language, rewrite
from relaxlab.passes.patterns.chains import find_chains
from relaxlab.passes.patterns.language import CallPattern, Chain, Link, Pattern
from relaxlab.passes.patterns.match import BlockScope, Match, NearestMiss
from relaxlab.tvm.script.normal import normalized

_CURRENT: ContextVar[PatternContext | None] = ContextVar("relaxlab_tvm_patterns", default=None)


class PatternContext:
    """The calls and chains of the patterns that are made inside `with PatternContext() as ctx`.

    `incremental`: those of the context around it are among them.
    """

    def __init__(self, incremental: bool = False) -> None:
        around = _CURRENT.get()
        self._chains = list(around._chains) if incremental and around is not None else []
        self._tokens: list[Token[PatternContext | None]] = []

    def __enter__(self) -> PatternContext:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    @staticmethod
    def current() -> PatternContext | None:
        """The innermost context."""
        return _CURRENT.get()

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The chains, and calls that are in none of them as chains of one."""
        return tuple(self._chains)

    def note(self, link: Link) -> None:
        """Have a call or chain be matched."""
        self._chains.append(link if isinstance(link, Chain) else Chain((link,), ()))  # type: ignore[arg-type]

    def match_dfb(self, dfb: graph.DataflowBlock) -> dict[Pattern, graph.Var] | None:
        """The variables of a block that the patterns match; None where they do not match."""
        fn = graph.Function((), graph.SeqExpr((dfb,), graph.Tuple(())))
        scope = BlockScope(Module.of({}), dfb, use_counts(fn))
        found = next(find_chains(self.chains, scope, NearestMiss(), ""), None)
        return None if found is None else matched_vars(found)


def matched_vars(found: Match) -> dict[Pattern, graph.Var]:
    """The variables of a match, by the patterns that stand for them."""
    return {p: v for p, v in found.values.items() if isinstance(v, graph.Var)}


def noted(link: Any) -> Any:
    """A link as it is, of which the current context is told."""
    context = _CURRENT.get()
    if context is not None:
        context.note(link)
    return link


def _joined(make: Callable[[Link, Link], Chain]) -> Callable[..., Chain]:
    def join(link: Link, other: Link, index: int = -1) -> Chain:
        if index != -1:
            raise NotImplementedError(f"used_by(index={index}): a chain reads by any argument")
        return noted(make(link, other))

    return join


def _fork_to(link: Link, *others: Link) -> None:
    for other in others:
        noted(_USED_BY(link, other))


_USED_BY, _ONLY_USED_BY = Link.used_by, Link.only_used_by
LINKS: dict[str, Any] = {
    "used_by": _joined(_USED_BY),
    "only_used_by": _joined(_ONLY_USED_BY),
    "__rshift__": _joined(_USED_BY),
    "__xor__": _joined(_ONLY_USED_BY),
    "fork_to": _fork_to,
}
"""Methods of patterns and chains of which contexts are told."""

for _name, _value in LINKS.items():
    setattr(Link, _name, _value)


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[dict[Any, Any], Mapping[Any, Any]], Mapping[Any, Any]],
    func: graph.Function,
) -> graph.Function:
    """A function with new values for some of the variables that the patterns of a context match:
    those of `rewriter(variables by pattern, values by variable)`."""

    def new_values(found: Match, bindings: Mapping[graph.Var, graph.Expr]) -> Any:
        return _sharing(rewriter(matched_vars(found), bindings)) or None

    apply = rewrite.rewrite_bindings(ctx.chains, new_values)
    made = apply(normalized(Module.of({"main": func})))["main"]
    assert isinstance(made, graph.Function)
    return made


def _sharing(values: Mapping[graph.Var, graph.Expr]) -> dict[graph.Var, graph.Expr]:
    """The values, and variables for the calls that are part of several: one object is computed
    once."""
    uses: Counter[int] = Counter()

    def count(n: Node) -> None:
        uses[id(n)] += 1
        if uses[id(n)] == 1:
            for child in children(n):
                count(child)

    for value in values.values():
        count(value)
    bound: dict[int, graph.Var] = {}
    made: dict[graph.Var, graph.Expr] = {}

    def visit(n: Node) -> Node:
        if not isinstance(n, graph.Call) or uses[id(n)] == 1:
            return map_children(n, visit)
        if id(n) not in bound:
            value = map_children(n, visit)
            bound[id(n)] = graph.DataflowVar("lv")
            made[bound[id(n)]] = value
        return bound[id(n)]

    results = {var: visit(value) for var, value in values.items()}
    return {**made, **results}  # type: ignore[dict-item]


class PatternMatchingRewriter:
    """Replaces what a pattern matches in functions and modules; `a | b` replaces what either
    does."""

    def __init__(self, *rules: tuple[Pattern, Callable[[Any, Any], Any]]) -> None:
        self._rules = rules

    @staticmethod
    def from_pattern(
        pattern: Pattern, func: Callable[[graph.Call, Any], Any]
    ) -> PatternMatchingRewriter:
        """The rewriter that puts `func(call, matches)` in the place of calls that match."""
        return PatternMatchingRewriter((pattern, func))

    @staticmethod
    def from_module(mod: Module) -> PatternMatchingRewriter:
        """The rewriter of calls like the function `pattern` of a module by its `replacement`.
        Raises ValueError for a pattern whose result is not a call of an operator."""
        pattern, replacement = mod["pattern"], mod["replacement"]
        assert isinstance(pattern, graph.Function) and isinstance(replacement, graph.Function)
        parts = {p: _of_parameter(p) for p in pattern.params}
        whole = _as_pattern(pattern, parts)

        def replaced(_: graph.Call, found: Match) -> graph.Expr:
            given = [found[parts[p]] for p in pattern.params]
            return rewrite_body(replacement, given)

        return PatternMatchingRewriter((whole, replaced))

    def __call__(self, obj: graph.Function | Module) -> Any:
        if isinstance(obj, graph.Function):
            return self(normalized(Module.of({"main": obj})))["main"]
        for pattern, func in self._rules:
            obj = rewrite.rewrite_call(pattern, func)(normalized(obj))
        return obj

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        return PatternMatchingRewriter(*self._rules, *other._rules)


ExprPatternRewriter = PatternMatchingRewriter.from_pattern


def OrRewriter(  # noqa: N802
    lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter
) -> PatternMatchingRewriter:
    """A rewriter that does what either of two does."""
    return lhs | rhs


def _of_parameter(p: graph.Var) -> Pattern:
    return language.wildcard() if p.ty is None else language.wildcard().has_type(p.ty)


def _as_pattern(fn: graph.Function, parts: Mapping[graph.Var, Pattern]) -> CallPattern:
    """The pattern of the value that a function returns."""
    known: dict[graph.Var, Pattern] = dict(parts)

    def of(value: graph.Expr) -> Pattern:
        match value:
            case graph.Var():
                return known[value]
            case graph.Call(graph.Op(name), args, attrs):
                return language.is_op(name)(*map(of, args)).has_attr(attrs)
            case graph.Constant(data) if data.ndim == 0:
                return language.is_const(float(data))
            case graph.Tuple(fields):
                return language.is_tuple([of(f) for f in fields])
            case graph.TupleGetItem(whole, index):
                return language.is_tuple_get_item(of(whole), index)
            case graph.ShapeExpr(dims):
                return language.is_shape(dims)
            case _:
                raise ValueError(f"a pattern is made of calls of operators, not of {value}")

    for block in fn.body.blocks:
        for b in block.bindings:
            known[b.var] = of(b.value)
    return of(fn.body.body)  # type: ignore[return-value]


def rewrite_body(fn: graph.Function, given: list[graph.Expr]) -> graph.Expr:
    """The value that a function returns, nested, with values in the place of its parameters."""
    values: dict[graph.Var, graph.Expr] = dict(zip(fn.params, given, strict=True))
    for block in fn.body.blocks:
        for b in block.bindings:
            values[b.var] = substitute(b.value, values=values)
    return substitute(fn.body.body, values=values)
