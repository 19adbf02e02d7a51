"""Marks on loops, blocks and buffers that later stages read."""

from __future__ import annotations

from typing import Any

from relaxlab.ir.expr import Var
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.scope import is_output
from relaxlab.schedule.tree import describe_block, describe_loop, find_block, find_loop

PIPELINE = "software_pipeline"
"""The annotation of a loop that copies slices into shared memory and computes with them: how many
slices are there at a time (`codegen/gpu/software_pipeline.py`)."""

BALANCED = "balanced"
"""The annotation of a parallel loop whose threads get equal parts of the work rather than equal
counts of iterations: of how many loops, this one and those directly inside, iterations are shared
out."""

DOUBLE_BUFFER = "double_buffer_scope"
"""The annotation of a loop inside of such a loop, which loads values of the slices into registers
and computes with them: those of the next iteration are loaded while one is computed."""


def annotate(func: PrimFunc, target: Var | str, key: str, value: Any) -> PrimFunc:
    """Set (or with None remove) an annotation of a loop, given by variable, or block, by name."""
    if isinstance(target, Var):
        place = find_loop(func, target, "annotate")
        loop = place.loop
        return place.replaced(replace(loop, annotations=loop.annotations.with_(**{key: value})))
    block_place = find_block(func, target, "annotate")
    block = block_place.block
    marked = replace(block, annotations=block.annotations.with_(**{key: value}))
    return block_place.replaced(replace(block_place.realize, block=marked))


def unannotate(func: PrimFunc, target: Var | str, key: str) -> PrimFunc:
    """Remove an annotation of a loop, given by variable, or block, by name."""
    if isinstance(target, Var):
        found = find_loop(func, target, "unannotate").loop
        described = describe_loop(found)
    else:
        found = find_block(func, target, "unannotate").block
        described = describe_block(found)
    if key not in found.annotations:
        has = ", ".join(found.annotations) or "none"
        condition = f"there is an annotation {key!r}; there are: {has}"
        raise ScheduleError("unannotate", described, condition)
    return annotate(func, target, key, None)


def storage_align(
    func: PrimFunc, name: str, write_index: int, axis: int, factor: int, offset: int
) -> PrimFunc:
    """Ask that the stride of `axis` of a buffer the block writes be `factor * k + offset`.

    Recorded as the block annotation `buffer_dim_align`: tuples (buffer, axis, factor, offset).
    """
    place = find_block(func, name, "storage_align")
    block = place.block
    buffer = buffer_of(block, "write", write_index, "storage_align")
    if is_output(buffer, func):
        raise ScheduleError(
            "storage_align", describe_block(block),
            f"{buffer.name} is an intermediate buffer; it is a parameter", about=(buffer,),
        )  # fmt: skip
    if not -buffer.ndim <= axis < buffer.ndim or factor <= 0:
        raise ScheduleError(
            "storage_align", describe_block(block),
            f"axis {axis} is one of {buffer.ndim} dimensions and factor {factor} is positive",
        )  # fmt: skip
    entry = (write_index, axis % buffer.ndim, factor, offset)
    old = block.annotations.get("buffer_dim_align", ())
    kept = tuple(e for e in old if e[:2] != entry[:2])
    return annotate(func, name, "buffer_dim_align", (*kept, entry))
