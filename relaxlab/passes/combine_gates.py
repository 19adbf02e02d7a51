"""Make one product of several within a block of a batched program."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.batch_blocks import is_unbatched_block
from relaxlab.passes.combine_parallel_matmul import CombineOptions, combined
from relaxlab.passes.make_blocks import entry_of
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.passes.shared_values import shared_values


@module_pass("combine_gates", needs=("make_blocks",))
def combine_gates(mod: Module, _: NoOptions) -> Module:
    """Make one product of those that multiply one value by several weights within a block, such as
    the gates of a recurrent cell that are written one by one.

    This is ACRoBat's horizontal batching within a block, for operands that the products have in
    common: `x @ w1` and `x @ w2` become parts of `x @ concat(w1, w2)`. The weights have to be the
    same for all instances, so that `lift_transform_params` concatenates them once.
    """
    shared = shared_values(mod, entry_of(mod))
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if is_unbatched_block(mod, name):
            weights = {p for p in fn.params if shared.source(name, p) is not None}
            new = combined("combine_gates", name, fn, weights, CombineOptions(split=True))
            if new is not None:
                updates[name] = new
    return normalized(mod.with_functions(updates)) if updates else mod
