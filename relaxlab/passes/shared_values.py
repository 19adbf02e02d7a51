"""Arguments that are the same weight for all instances of a batch (ACRoBat's parameter reuse).

A taint analysis with contexts: a function is looked at once per call site through which it is
entered, so that what one caller passes does not spoil what is known of another's call. A kernel
reads a shared argument as it is; all others are gathered, a row per instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.passes.bindings import leaf_type


@dataclass(frozen=True, slots=True)
class Source:
    """A weight, as a leaf of a parameter of the entry, or a constant of the program, which compares
    by the identity of its array."""

    parameter: int = -1
    path: tuple[int, ...] = ()
    constant: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """A set of values that a tensor may be: one of the weights in `sources`, and something else,
    too, unless it is `constant`."""

    sources: frozenset[Source]
    constant: bool


Abstract: TypeAlias = "Leaf | tuple[Abstract, ...]"
"""The abstract value of a tensor, or of a tuple."""

OTHER = Leaf(frozenset(), False)
Context: TypeAlias = "graph.Var | None"
"""The variable of the call through which a function was entered; None for the entry."""


@dataclass(frozen=True, slots=True)
class SharedValues:
    """`state` has what each variable may be in each context in which its function is entered."""

    state: Mapping[tuple[Context, graph.Var], Abstract]
    contexts: Mapping[str, tuple[Context, ...]]
    constants: Mapping[int, graph.Constant]

    def source(self, function: str, var: graph.Var, path: tuple[int, ...] = ()) -> Source | None:
        """The one weight that a leaf of a variable is in all contexts of its function; None where
        it differs, or is something else."""
        found: set[Source] = set()
        for context in self.contexts.get(function, ()):
            value = self.state.get((context, var), OTHER)
            for index in path:
                value = value[index] if isinstance(value, tuple) else value
            if isinstance(value, tuple) or not value.constant or len(value.sources) != 1:
                return None
            found |= value.sources
        return found.pop() if len(found) == 1 else None

    def in_contexts(self, function: str, var: graph.Var) -> dict[Context, Abstract]:
        """Return what a variable may be, by context."""
        given = self.contexts.get(function, ())
        return {c: self.state[c, var] for c in given if (c, var) in self.state}


def shared_values(mod: Module, entry: str) -> SharedValues:
    """Run the analysis from `entry`, whose parameters after the first `num_input` are weights.

    It ends: what is known of a leaf only grows, by at most one source per weight and constant.
    """
    fn = mod[entry]
    assert isinstance(fn, graph.Function)
    state = _Analysis(mod)
    count = fn.attrs.get("num_input", len(fn.params))
    args = [_weights(p.ty, i, ()) if i >= count else _others(p.ty) for i, p in enumerate(fn.params)]
    state.enter(entry, None, args)
    while state.work:
        name, context = state.work.popitem()[0]
        state.function(name, context)
    contexts: dict[str, list[Context]] = {}
    for name, context in state.entered:
        contexts.setdefault(name, []).append(context)
    return SharedValues(state.values, {n: tuple(c) for n, c in contexts.items()}, state.constants)


class _Analysis:
    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self.values: dict[tuple[Context, graph.Var], Abstract] = {}
        self.results: dict[tuple[str, Context], Abstract] = {}
        self.entered: dict[tuple[str, Context], dict[tuple[str, Context], None]] = {}
        """The functions entered, each with the callers that wait for its result."""
        self.work: dict[tuple[str, Context], None] = {}
        self.constants: dict[int, graph.Constant] = {}

    def enter(self, name: str, context: Context, args: list[Abstract]) -> None:
        func = self.mod[name]
        assert isinstance(func, graph.Function)
        changed = (name, context) not in self.entered
        self.entered.setdefault((name, context), {})
        for p, a in zip(func.params, args, strict=True):
            known = self.values.get((context, p))
            new = a if known is None else join(known, a)
            if new != known:
                self.values[context, p] = new
                changed = True
        if changed and "block" not in func.attrs:
            self.work[name, context] = None

    def function(self, name: str, context: Context) -> None:
        func = self.mod[name]
        assert isinstance(func, graph.Function)
        result = self.sequence(func.body, (name, context))
        known = self.results.get((name, context))
        new = result if known is None else join(known, result)
        if new != known:
            self.results[name, context] = new
            for caller in self.entered[name, context]:
                self.work[caller] = None

    def sequence(self, seq: graph.SeqExpr, here: tuple[str, Context]) -> Abstract:
        for block in seq.blocks:
            for b in block.bindings:
                self.values[here[1], b.var] = self.value(b, here)
        return self.leaf(seq.body, here[1])

    def value(self, b: graph.Binding, here: tuple[str, Context]) -> Abstract:
        match b.value:
            case graph.If(_, yes, no):
                return join(self.sequence(yes, here), self.sequence(no, here))
            case graph.Call(graph.GlobalVar(name), args) if isinstance(
                self.mod.get(name), graph.Function
            ):
                self.enter(name, b.var, [self.leaf(a, here[1]) for a in args])
                if "block" in self.mod[name].attrs:  # type: ignore[union-attr]
                    return _others(b.var.ty)
                self.entered[name, b.var][here] = None
                # Of a function that has not returned yet nothing is known: it is called by itself.
                return self.results.get((name, b.var), _nothing(b.var.ty))
            case graph.Call():
                return _others(b.var.ty)
            case value:
                return self.leaf(value, here[1])

    def leaf(self, e: graph.Expr, context: Context) -> Abstract:
        match e:
            case graph.Var():
                return self.values.get((context, e), _others(e.ty))
            case graph.Constant(data):
                self.constants[id(data)] = e
                return Leaf(frozenset({Source(constant=id(data))}), True)
            case graph.Tuple(fields):
                return tuple(self.leaf(f, context) for f in fields)
            case graph.TupleGetItem(whole, index):
                found = self.leaf(whole, context)
                return found[index] if isinstance(found, tuple) else found
            case _:
                return _others(leaf_type(e))


def join(a: Abstract, b: Abstract) -> Abstract:
    """Return what a value may be that is one of two."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(join(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Leaf) and isinstance(b, Leaf):
        return Leaf(a.sources | b.sources, a.constant and b.constant)
    return OTHER


def _weights(ty: types.Type | None, parameter: int, path: tuple[int, ...]) -> Abstract:
    if isinstance(ty, types.TupleType):
        return tuple(_weights(f, parameter, (*path, i)) for i, f in enumerate(ty.fields))
    return Leaf(frozenset({Source(parameter, path)}), True)


def _others(ty: types.Type | None) -> Abstract:
    return tuple(map(_others, ty.fields)) if isinstance(ty, types.TupleType) else OTHER


def _nothing(ty: types.Type | None) -> Abstract:
    if isinstance(ty, types.TupleType):
        return tuple(map(_nothing, ty.fields))
    return Leaf(frozenset(), True)
