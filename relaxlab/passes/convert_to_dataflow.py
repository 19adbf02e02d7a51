"""Mark runs of bindings without effects as dataflow blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import replace_body, use_counts, vars_in
from relaxlab.passes.effects import is_pure


@dataclass(frozen=True, slots=True)
class DataflowOptions:
    """`min_size`: the bindings without effects that follow each other, from which on they become a
    block."""

    min_size: int = 2


@module_pass("convert_to_dataflow", DataflowOptions, needs=("normalize",))
def convert_to_dataflow(mod: Module, options: DataflowOptions) -> Module:
    """Split plain blocks into dataflow blocks and what has effects, branches or local functions.

    Neighbouring dataflow blocks become one, for passes work within blocks. Variables that nothing
    outside of a block reads are visible in it alone. Bodies of branches stay as they are.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        runs = tuple(_runs(fn.body, mod, options.min_size))
        same = len(runs) == len(fn.body.blocks) and all(
            type(a) is type(b) and a.bindings == b.bindings
            for a, b in zip(runs, fn.body.blocks, strict=True)
        )
        if not same:
            body = replace(fn.body, blocks=runs)
            new = replace_body(fn, body)
            local = _local(new)
            updates[name] = replace_body(new, substitute(body, values=local))
    return mod.with_functions(updates)


def _runs(seq: graph.SeqExpr, mod: Module, least: int) -> Iterator[graph.BindingBlock]:
    """The blocks of a sequence, split by effects and joined."""
    marked: list[tuple[bool, graph.Binding]] = []
    for block in seq.blocks:
        flows = [isinstance(block, graph.DataflowBlock) or _flows(b, mod) for b in block.bindings]
        marked += zip(flows, block.bindings, strict=True)
    plain: list[graph.Binding] = []
    inside = {id(b) for blk in seq.blocks if isinstance(blk, graph.DataflowBlock)
              for b in blk.bindings}  # fmt: skip
    for flows, group in groupby(marked, lambda item: item[0]):
        bindings = [b for _, b in group]
        if not flows or (len(bindings) < least and not any(id(b) in inside for b in bindings)):
            plain += bindings
            continue
        if plain:
            yield graph.BindingBlock(tuple(plain))
            plain = []
        yield graph.DataflowBlock(tuple(bindings))
    if plain:
        yield graph.BindingBlock(tuple(plain))


def _flows(b: graph.Binding, mod: Module) -> bool:
    if isinstance(b.value, graph.If | graph.Function | graph.SeqExpr):
        return False
    return is_pure(b.value, mod)


def _local(fn: graph.Function) -> dict[graph.Var, graph.Expr]:
    """The variables that nothing outside of their dataflow block reads, and new ones for them."""
    uses = use_counts(fn)
    found: dict[graph.Var, graph.Expr] = {}
    for block in fn.body.blocks:
        if isinstance(block, graph.DataflowBlock):
            within = Counter(v for b in block.bindings for v in vars_in(b.value))
            for var in (b.var for b in block.bindings):
                if not isinstance(var, graph.DataflowVar) and within[var] == uses[var] > 0:
                    found[var] = graph.DataflowVar(var.name, var.ty, span=var.span)
    return found
