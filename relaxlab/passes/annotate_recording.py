"""Say how the functions that are recorded count depths, and what instances share."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import module_pass
from relaxlab.passes.batch_blocks import block_function
from relaxlab.passes.make_blocks import entry_of
from relaxlab.tracing import remark

SIDE_BY_SIDE = "side_by_side"
"""The attribute of an entry whose independent steps start at the same depth."""
GHOSTS = "ghosts"
"""The attribute of an entry whose branches of unequal length end at the same depth."""
MEMOIZE = "memoize"
"""The attribute of an entry whose batches compute a block once for equal operands."""


@dataclass(frozen=True, slots=True)
class AnnotateRecording:
    """`side_by_side`: steps that do not read each other's results start at the same depth (see
    `order_steps`); without, one after the other. `ghosts`: branches of unequal length end at the
    same depth (see `add_ghosts`). `memoize`: instances share the blocks that read the same rows of
    weights (see `memoize_blocks`)."""

    side_by_side: bool = True
    ghosts: bool = True
    memoize: bool = True


@module_pass("annotate_recording", AnnotateRecording, needs=("make_blocks",))
def annotate_recording(mod: Module, options: AnnotateRecording) -> Module:
    """Give the entry the attributes that `lower_recording` goes by."""
    entry = entry_of(mod)
    fn = block_function(mod, entry)
    asked = {
        SIDE_BY_SIDE: options.side_by_side, GHOSTS: options.ghosts, MEMOIZE: options.memoize
    }  # fmt: skip
    wanted = [name for name, on in asked.items() if on]
    for name in wanted:
        remark("annotate_recording", entry, _REASONS[name])
    attrs = fn.attrs.with_(**dict.fromkeys(wanted, 1))
    return mod if attrs == fn.attrs else mod.with_functions({entry: replace(fn, attrs=attrs)})


_REASONS = {
    SIDE_BY_SIDE: "steps that do not read each other's results start at the same depth",
    GHOSTS: "branches of unequal length end at the same depth",
    MEMOIZE: "instances share the blocks that read the same rows of weights",
}
