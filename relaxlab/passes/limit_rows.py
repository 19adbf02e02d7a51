"""Limit how many rows of a batch run at once, so that what they read stays in the cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.target import Target
from relaxlab.passes.base import module_pass
from relaxlab.passes.batch_blocks import (
    BATCHED,
    block_function,
    flat_types,
    known_constant,
)
from relaxlab.passes.bindings import all_bindings, tir_call
from relaxlab.tracing import may_apply

MOST_ROWS = "most_rows"
"""The attribute of functions that run batches: the rows that they are to be called with at most,
for each thread."""
LEVEL = 2
"""The cache, of which rows take half."""


@dataclass(frozen=True, slots=True)
class LimitRows:
    """target: the machine whose caches count; None: this one."""

    target: Target | None = None


@module_pass("limit_rows", LimitRows, needs=("write_results",))
def limit_rows(mod: Module, options: LimitRows) -> Module:
    """Give functions that run batches with several kernels the attribute `most_rows`: with so many
    rows, what differs between instances fills half of the second cache.

    A kernel goes through all rows before the next one begins. Where a row has matrices of its own,
    as in MV-RNNs, those of a large batch would be read from memory by each kernel. Where weights do
    not fit into the other half, they are what is to be read seldom, and the batch stays whole.
    """
    target = options.target or Target.host()
    if target.facts.warp:
        return mod  # on a GPU the rows of a batch are spread over all its multiprocessors
    half = target.facts.cache(LEVEL) // 2
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if BATCHED not in fn.attrs or MOST_ROWS in fn.attrs:
            continue
        shared = sum(_bytes(p.ty) for p in fn.params[fn.attrs["num_input"] :])
        block = block_function(mod, fn.attrs[BATCHED])
        row = sum(_bytes(p.ty) for p in block.params) + _bytes(block.ret_ty) - shared
        kernels = sum(tir_call(b.value) is not None for b in all_bindings(fn))
        if kernels < 2 or shared > half or row < 1:
            continue
        most = max(1, half // row)
        reason = f"{most} rows of {row} bytes stay in the cache for its {kernels} kernels"
        if may_apply("limit_rows", name, reason):
            updates[name] = replace(fn, attrs=fn.attrs.with_(**{MOST_ROWS: most}))
    return mod.with_functions(updates)


def _bytes(ty: types.Type | None) -> int:
    """The bytes of the tensors of a type; integers of instances count as nothing."""
    return sum(
        math.prod(known_constant(t) or (0,)) * bytes_of(str(t.dtype)) for t in flat_types(ty)
    )
