"""Put the bindings of dataflow blocks into another order of their dependences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import map_blocks, vars_in, with_bindings


@dataclass(frozen=True, slots=True)
class SortOptions:
    """`depth_first`: what follows a binding comes directly after it, not after its neighbours.
    `from_outputs`: the order is found from the results of the block back, not from its inputs."""

    depth_first: bool = True
    from_outputs: bool = False


@module_pass("sort_bindings", SortOptions, needs=("normalize",))
def sort_bindings(mod: Module, options: SortOptions) -> Module:
    """Sort the bindings of each dataflow block topologically: by a search from its inputs, or from
    its results, that takes a binding once all it depends on (or all that reads it) is taken."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        new = map_blocks(fn, partial(_sorted, fn.params, options))
        if new is not fn:
            updates[name] = new
    return mod.with_functions(updates) if updates else mod


def _sorted(
    params: Sequence[graph.Var], options: SortOptions, block: graph.BindingBlock
) -> graph.BindingBlock:
    if not isinstance(block, graph.DataflowBlock):
        return block
    bindings = {b.var: b for b in block.bindings}
    reads = _reads(block)
    readers: dict[graph.Var, list[graph.Var]] = {}
    for var, read in reads.items():
        for v in read:
            readers.setdefault(v, []).append(var)
    if options.from_outputs:
        inner = {v: [r for r in read if r in bindings] for v, read in reads.items()}
        unread = [v for v in bindings if v not in readers and isinstance(v, graph.DataflowVar)]
        outputs = [v for v in bindings if v not in readers and v not in unread]
        starts = [*unread, *outputs]
        if options.depth_first:
            inner = {v: read[::-1] for v, read in inner.items()}
            starts.reverse()
        waits = {v: len(readers.get(v, ())) for v in bindings}
        order = _search(starts, inner, waits, depth_first=options.depth_first)[::-1]
    else:
        outer = [v for read in reads.values() for v in read if v not in bindings]
        inputs = list(dict.fromkeys([*(p for p in params if p in outer), *outer]))
        free = [v for v, read in reads.items() if not read]
        waits = {v: len(read) for v, read in reads.items()}
        ready = [r for v in inputs for r in _released(v, readers, waits)]
        starts = [*ready, *free] if options.depth_first else [*free, *ready]
        order = _search(starts, readers, waits, depth_first=options.depth_first)
    return with_bindings(block, [bindings[v] for v in order])


def _reads(block: graph.BindingBlock) -> dict[graph.Var, list[graph.Var]]:
    """The variables that each binding of the block depends on: those that it reads, and those whose
    claims bind the symbols that it mentions."""
    binders: dict[expr.Var, graph.Var] = {}
    reads: dict[graph.Var, list[graph.Var]] = {}
    for b in block.bindings:
        symbols = symbols_in((b.value, b.var.ty))
        found = [*vars_in(b.value), *(binders[s] for s in symbols if s in binders)]
        reads[b.var] = list(dict.fromkeys(found))
        if isinstance(b, graph.MatchCast):
            for s in symbols_in((b.ty,)):
                binders.setdefault(s, b.var)
    return reads


def _search(
    starts: Iterable[graph.Var],
    following: Mapping[graph.Var, Sequence[graph.Var]],
    waits: dict[graph.Var, int],
    *,
    depth_first: bool,
) -> list[graph.Var]:
    """The variables in the order in which they are reached; each waits for as many others."""
    queue, order = deque(starts), list[graph.Var]()
    while queue:
        var = queue.popleft()
        order.append(var)
        ready = _released(var, following, waits)
        if depth_first:
            queue.extendleft(reversed(ready))
        else:
            queue.extend(ready)
    return order


def _released(
    var: graph.Var, following: Mapping[graph.Var, Sequence[graph.Var]], waits: dict[graph.Var, int]
) -> list[graph.Var]:
    """The variables that wait for nothing more once `var` is there."""
    ready: list[graph.Var] = []
    for v in following.get(var, ()):
        waits[v] -= 1
        if not waits[v]:
            ready.append(v)
    return ready
