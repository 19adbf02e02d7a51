"""Bindings that are put where a function first reads a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.unify import determined_symbols
from relaxlab.ir import expr, graph
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.bindings import vars_in

Maker = Callable[[type[graph.Var]], tuple[Sequence[graph.Binding], graph.Var]]
"""Given the class of variables of a block, the bindings to put there, and the variable that has the
value then."""


def before_first_reads(
    fn: graph.Function,
    makers: Mapping[graph.Var, Maker],
    dims: Mapping[graph.Var, Sequence[expr.PrimExpr]],
    known: Iterable[expr.Var] = (),
) -> graph.Function:
    """A function with bindings, for each of some variables, before the first binding that reads the
    variable, or that needs one of the symbols that its dimensions `dims` determine, those `known`
    excepted. Those that only the result reads come at the end."""
    left, values, order = dict(makers), dict[graph.Var, graph.Expr](), _Order(dims, {*known})

    def needed(read: Iterable[graph.Var], symbols: Iterable[expr.Var]) -> list[graph.Var]:
        order.left, order.found = [*left], []
        for var in [v for v in left if v in {*read}]:
            order.take(var)
        for symbol in symbols:
            order.determine(symbol)
        return order.found

    blocks: list[graph.BindingBlock] = []
    for at, block in enumerate(fn.body.blocks):
        later = (*fn.body.blocks[at + 1 :],)
        new: list[graph.Binding] = []
        for b in block.bindings:
            for var in needed(vars_in(b.value), symbols_in(b)):
                inside = isinstance(block, graph.DataflowBlock) and not _reads(later, fn, var)
                made, values[var] = left.pop(var)(graph.DataflowVar if inside else graph.Var)
                new += made
            new.append(b)
        blocks.append(replace(block, bindings=tuple(new)))
    last: list[graph.Binding] = []
    for var in needed(vars_in(fn.body.body), symbols_in(fn.body.body)):
        made, values[var] = left.pop(var)(graph.Var)
        last += made
    if last:
        blocks.append(graph.BindingBlock(tuple(last)))
    body = replace(fn.body, blocks=tuple(blocks))
    return replace(fn, body=substitute(body, values=values))


@dataclass(slots=True)
class _Order:
    """The variables that are `found` to be needed next, of those that are `left`: each after those
    that determine the symbols of its own dimensions."""

    dims: Mapping[graph.Var, Sequence[expr.PrimExpr]]
    known: set[expr.Var]
    left: list[graph.Var] = field(default_factory=list[graph.Var])
    found: list[graph.Var] = field(default_factory=list[graph.Var])

    def take(self, var: graph.Var) -> None:
        """Find a variable."""
        if var in self.left:
            self.left.remove(var)
            for symbol in symbols_in(tuple(self.dims.get(var, ()))):
                if symbol not in self._determined(var):
                    self.determine(symbol)
            self.found.append(var)
            self.known |= self._determined(var)

    def determine(self, symbol: expr.Var) -> None:
        """Find a variable that determines a symbol, if it is not known; one that does so by itself
        before others."""
        if symbol in self.known:
            return
        with_it = [v for v in self.left if symbol in symbols_in(tuple(self.dims.get(v, ())))]
        alone = (v for v in with_it if symbol in self._determined(v))
        for var in (*alone, *with_it):
            if symbol not in self.known:
                self.take(var)

    def _determined(self, var: graph.Var) -> set[expr.Var]:
        return determined_symbols(self.dims.get(var, ()), self.known)


def _reads(blocks: Sequence[graph.BindingBlock], fn: graph.Function, var: graph.Var) -> bool:
    """True if later blocks, or the result, read a variable."""
    inner = any(var in vars_in(b.value) for block in blocks for b in block.bindings)
    return inner or var in vars_in(fn.body.body)
