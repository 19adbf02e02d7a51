"""Values that instances compute from their inputs alone, however far their recursion goes.

The depth of a value is the number of operators (or of blocks) behind each other from the inputs
and weights to it, the most over all ways to reach it; integers that control flow computes count as
inputs. What recursion carries along grows without
end: from `CAP` on a depth is `DYNAMIC`. All others are *static*: they can be computed for all steps
of all instances at once, before any recursion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import has_trait
from relaxlab.passes.host_values import HostValues, Kind, host_values, is_on_data

CAP = 16
DYNAMIC = CAP
"""The depth of values that are not static."""

Depths: TypeAlias = "int | tuple[Depths, ...] | None"
"""The depths of a value, nested as its tuples are; None where nothing reached it yet."""


@dataclass(frozen=True, slots=True)
class StaticDepths:
    """The depths of the variables of all functions that an entry reaches."""

    depths: Mapping[graph.Var, Depths]

    def of(self, e: graph.Expr) -> int:
        """The depth of a leaf expression: the largest of its fields."""
        return largest(_leaf(e, self.depths))


def static_depths(mod: Module, entry: str) -> StaticDepths:
    """The depths of the values of a program, by a forward analysis over all calls.

    It ends: depths only grow, up to `CAP`.
    """
    state = _Analysis(mod, host_values(mod, entry))
    fn = state.function_of(entry)
    for p in fn.params:
        state.depths[p] = 0
    state.functions[entry] = fn
    while state.changed:
        state.changed = False
        for name in list(state.functions):
            state.function(name)
    return StaticDepths(state.depths)


def largest(depths: Depths) -> int:
    """The largest of some depths."""
    if isinstance(depths, tuple):
        return max((largest(d) for d in depths), default=0)
    return 0 if depths is None else depths


class _Analysis:
    def __init__(self, mod: Module, kinds: HostValues) -> None:
        self.mod, self.kinds = mod, kinds
        self.functions: dict[str, graph.Function] = {}
        self.depths: dict[graph.Var, Depths] = {}
        self.results: dict[str, Depths] = {}
        self.changed = True

    def function_of(self, name: str) -> graph.Function:
        func = self.mod[name]
        assert isinstance(func, graph.Function)
        return func

    def function(self, name: str) -> None:
        new = _join(self.results.get(name), self.sequence(self.functions[name].body))
        if new != self.results.get(name):
            self.results[name] = new
            self.changed = True

    def join_into(self, var: graph.Var, depths: Depths) -> None:
        new = _join(self.depths.get(var), depths)
        if new != self.depths.get(var):
            self.depths[var] = new
            self.changed = True

    def sequence(self, seq: graph.SeqExpr) -> Depths:
        for block in seq.blocks:
            for b in block.bindings:
                # Values computed while recording need no block and are known before any runs.
                host = self.kinds.of(b.var) is Kind.HOST
                self.join_into(b.var, 0 if host else self.value(b.value))
        return _leaf(seq.body, self.depths)

    def value(self, e: graph.Expr) -> Depths:
        match e:
            case graph.If(_, yes, no):
                return _join(self.sequence(yes), self.sequence(no))
            case graph.Call(graph.GlobalVar(name), args) if isinstance(
                self.mod.get(name), graph.Function
            ):
                if "block" in self.function_of(name).attrs:
                    return self.behind(args)
                return self.call(name, args)
            case graph.Call(graph.Op(name), (first, *_)) if has_trait(name, "view"):
                return _leaf(first, self.depths)
            case graph.Call(_, args) if is_on_data(e):  # as deep as the deepest field
                return max((largest(_leaf(a, self.depths)) for a in args), default=0)
            case graph.Call(_, args):
                return self.behind(args)
            case _:
                return _leaf(e, self.depths)

    def behind(self, args: tuple[graph.Expr, ...]) -> int:
        """The depth of what is computed from values."""
        return min(CAP, 1 + max((largest(_leaf(a, self.depths)) for a in args), default=0))

    def call(self, name: str, args: tuple[graph.Expr, ...]) -> Depths:
        if name not in self.functions:
            self.functions[name] = self.function_of(name)
            self.changed = True
        for p, a in zip(self.functions[name].params, args, strict=True):
            self.join_into(p, _leaf(a, self.depths))
        return self.results.get(name)


def _leaf(e: graph.Expr, depths: Mapping[graph.Var, Depths]) -> Depths:
    match e:
        case graph.Var():
            return depths.get(e)
        case graph.Tuple(fields):
            return tuple(_leaf(f, depths) for f in fields)
        case graph.TupleGetItem(whole, index):
            found = _leaf(whole, depths)
            return found[index] if isinstance(found, tuple) else found
        case _:
            return 0


def _join(a: Depths, b: Depths) -> Depths:
    if a is None or b is None:
        return a if b is None else b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_join(x, y) for x, y in zip(a, b, strict=True))
    return max(largest(a), largest(b))
