"""Marks on loops, blocks and buffers that later stages read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relaxlab.ir.errors import expect
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import For, PrimFunc
from relaxlab.ir.names import among
from relaxlab.ir.node import replace
from relaxlab.schedule.cache import written_intermediate
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ONE
from relaxlab.schedule.tree import describe_block, describe_loop, find_block, find_loop

PREFETCH_BESIDE = "prefetch_beside"
"""A loop whose iterations ask for the lines behind those that they read of the named buffers
(`codegen/prefetch.py`)."""

PREFETCH_EARLY = "prefetch_early"
"""A loop that reads the named buffers at places that are read from memory: it asks for them in
front of the statements before it (`codegen/prefetch.py`)."""

PIPELINE = "software_pipeline"
"""The annotation of a loop that copies slices into shared memory and computes with them: how many
slices are there at a time (`codegen/gpu/software_pipeline.py`)."""

WARP_SPECIALIZE = "warp_specialize"
"""The annotation of such a loop whose copies are made by a warp of their own, as boxes, and whose
products by warpgroups: the most blocks of the grid, each of which takes tile after tile, or 0 for a
block for each tile (`codegen/gpu/warp_specialize.py`)."""

BALANCED = "balanced"
"""The annotation of a parallel loop whose threads get equal parts of the work rather than equal
counts of iterations: of how many loops, this one and those directly inside, iterations are shared
out."""
UNROLL_AND_JAM = "unroll_and_jam"
"""The annotation of an unrolled loop whose copies are made inside of the loops in it."""


def is_together(loop: For) -> bool:
    """True if the iterations of a loop are made side by side: as lanes, or jammed."""
    return loop.kind == "vectorized" or UNROLL_AND_JAM in loop.annotations


def require_in_turn(primitive: str, loops: Iterable[For], buffer: str) -> None:
    """Raise ScheduleError if iterations of one of the loops are made side by side, of which each
    would fill the one buffer of that name."""
    for loop in loops:
        if is_together(loop) and loop.extent != ONE:
            raise ScheduleError(
                primitive, describe_loop(loop),
                f"its iterations run one after another, since each fills {buffer} anew",
                suggestion=f"{primitive} before the loop is vectorized or jammed",
                about=(loop.loop_var,),
            )  # fmt: skip


DOUBLE_BUFFER = "double_buffer_scope"
"""The annotation of a loop inside of such a loop, which loads values of the slices into registers
and computes with them: those of the next iteration are loaded while one is computed. With the name
of a buffer, that of a statement which fills it for an iteration."""

SWIZZLE = "buffer_swizzle"
"""The annotation of a block with the swizzles of buffers that it writes: tuples (buffer, bits,
base, shift)."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A bit-linear storage layout: in the offset of an element, the `bits` bits from number `base`
    on are xored with those `shift` above them."""

    bits: int
    base: int
    shift: int

    @property
    def is_bijective(self) -> bool:
        """True if no two offsets become one: the bits that are xored in stay as they are."""
        return self.bits > 0 and self.base >= 0 and self.shift >= self.bits

    def __call__(self, offset: int) -> int:
        """The offset at which an element is stored."""
        mask = (1 << self.bits) - 1
        return offset ^ (offset >> self.base + self.shift & mask) << self.base


def annotate(func: PrimFunc, target: Var | str, key: str, value: Any) -> PrimFunc:
    """Set (or with None remove) an annotation of a loop, given by variable, or block, by name."""
    expect(key, str, "the key of an annotation is a name")
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
        has = among(key, found.annotations)
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
    buffer = written_intermediate(place, write_index, "storage_align")
    if axis not in range(-buffer.ndim, buffer.ndim) or factor <= 0:
        raise ScheduleError(
            "storage_align", describe_block(block),
            f"axis {axis!r} is one of {buffer.ndim} dimensions and factor {factor} is positive",
        )  # fmt: skip
    entry = (write_index, axis % buffer.ndim, factor, offset)
    old = block.annotations.get("buffer_dim_align", ())
    kept = tuple(e for e in old if e[:2] != entry[:2])
    return annotate(func, name, "buffer_dim_align", (*kept, entry))


def swizzle(func: PrimFunc, name: str, write_index: int, layout: Swizzle) -> PrimFunc:
    """Store an intermediate buffer that the block writes by a swizzle."""
    place = find_block(func, name, "swizzle")
    block = place.block
    buffer = written_intermediate(place, write_index, "swizzle")
    if not layout.is_bijective:
        raise ScheduleError(
            "swizzle", describe_block(block),
            f"every element of {buffer.name} has a place of its own: {layout.bits} bits, at least "
            f"one, are xored with bits that stay, at least as many above; {layout.shift} are given",
        )  # fmt: skip
    entry = (write_index, layout.bits, layout.base, layout.shift)
    old = block.annotations.get(SWIZZLE, ())
    kept = tuple(e for e in old if e[0] != write_index)
    return annotate(func, name, SWIZZLE, (*kept, entry))
