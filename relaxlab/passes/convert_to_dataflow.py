"""Mark runs of bindings without effects as dataflow blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import map_children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import local_outputs, replace_body, with_bindings
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
    outside of a block reads are visible in it alone.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        body = _converted(fn.body, mod, options.min_size)
        if body is not fn.body:
            updates[name] = replace_body(fn, substitute(body, values=local_outputs(body)))
    return mod.with_functions(updates)


def _converted(seq: graph.SeqExpr, mod: Module, least: int) -> graph.SeqExpr:
    """A sequence, and the branches in it, with blocks of dataflow; itself where they stay."""

    def branch(e: graph.Expr) -> graph.Expr:
        return _converted(e, mod, least) if isinstance(e, graph.SeqExpr) else e

    def inner(b: graph.Binding) -> graph.Binding:
        if not isinstance(b.value, graph.If):
            return b
        new = map_children(b.value, branch)  # type: ignore[arg-type]
        return b if new is b.value else replace(b, value=new)

    blocks = tuple(with_bindings(blk, [inner(b) for b in blk.bindings]) for blk in seq.blocks)
    runs = tuple(_runs(replace(seq, blocks=blocks), mod, least))
    same = len(runs) == len(seq.blocks) and all(
        type(a) is type(b) and len(a.bindings) == len(b.bindings)
        and all(x is y for x, y in zip(a.bindings, b.bindings, strict=True))
        for a, b in zip(runs, seq.blocks, strict=True)
    )  # fmt: skip
    return seq if same else replace(seq, blocks=runs)


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
