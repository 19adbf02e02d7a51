"""Bindings that are put where a function first reads a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    symbols: Mapping[graph.Var, Sequence[expr.Var]],
) -> graph.Function:
    """A function with bindings, for each of some variables, before the first binding that reads the
    variable, or that needs one of the symbols that it defines. Those that only the result reads
    come at the end."""
    left, values, known = dict(makers), dict[graph.Var, graph.Expr](), set[expr.Var]()

    def needed(b: graph.Binding) -> list[graph.Var]:
        read = {*vars_in(b.value)}
        found = [v for v in left if v in read]
        known.update(s for v in found for s in symbols.get(v, ()))
        for symbol in symbols_in(b):
            of = [v for v in left if symbol not in known and symbol in symbols.get(v, ())][:1]
            known.update(s for v in of for s in symbols[v])
            found += of
        return found

    blocks: list[graph.BindingBlock] = []
    for at, block in enumerate(fn.body.blocks):
        later = (*fn.body.blocks[at + 1 :],)
        new: list[graph.Binding] = []
        for b in block.bindings:
            for var in needed(b):
                inside = isinstance(block, graph.DataflowBlock) and not _reads(later, fn, var)
                made, values[var] = left.pop(var)(graph.DataflowVar if inside else graph.Var)
                new += made
            new.append(b)
        blocks.append(replace(block, bindings=tuple(new)))
    last: list[graph.Binding] = []
    for var in [v for v in left if v in {*vars_in(fn.body.body)}]:
        made, values[var] = left.pop(var)(graph.Var)
        last += made
    if last:
        blocks.append(graph.BindingBlock(tuple(last)))
    body = replace(fn.body, blocks=tuple(blocks))
    return replace(fn, body=substitute(body, values=values))


def _reads(blocks: Sequence[graph.BindingBlock], fn: graph.Function, var: graph.Var) -> bool:
    """True if later blocks, or the result, read a variable."""
    inner = any(var in vars_in(b.value) for block in blocks for b in block.bindings)
    return inner or var in vars_in(fn.body.body)
