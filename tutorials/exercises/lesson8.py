"""Checks of lesson 8, tiles and registers."""

from __future__ import annotations

from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import Block, For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

from .compare import floats
from .schedules import Answer, describe, loops_of, scheduled
from relaxlab.lab.verdict import Hint, exercise


@exercise
def in_tiles(mod: Module, answer: Answer) -> str:
    """Loops over tiles of 16 x 16, then over the elements of one."""
    func = scheduled(mod, "transpose", answer, [floats(40, 70)], lambda a: a.T)
    loops = loops_of(func)
    sizes = [f.extent for f in loops]
    if len(loops) < 4:
        raise Hint(f"there are {len(loops)} loops, four are needed: split both i and j")
    if sizes == [IntImm(5), IntImm(16), IntImm(3), IntImm(16)]:
        raise Hint("both loops are split, but still in the old order: reorder(io, jo, ii, ji)")
    if sizes != [IntImm(5), IntImm(3), IntImm(16), IntImm(16)]:
        raise Hint(f"the loops should run over 5, 3, 16, 16; they are: {describe(loops)}")
    return "15 tiles, the last ones cut off by a condition."


@exercise
def local_sum(mod: Module, answer: Answer) -> str:
    """The sum of a row in a local buffer, copied inside the loop over rows."""
    func = scheduled(mod, "row_sums", answer, [floats(37, 50)], lambda a: a.sum(1))
    local = [b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers
             if b.scope == "local"]  # fmt: skip
    if not local:
        raise Hint('there is no local buffer yet: sch.cache_write(block, 0, "local")')
    nests = _nests(func)
    if len(nests) > 1:
        raise Hint(
            f"the sums of all {nests[0][0].extent} rows are kept until a second nest copies them: "
            "move the copy into the loop over rows with sch.reverse_compute_at(total, i)"
        )
    return "one nest: the sum of a row is copied before the next row begins."


@exercise
def zeros_first(mod: Module, answer: Answer) -> str:
    """All zeros are stored before the first sum begins."""
    func = scheduled(mod, "row_sums", answer, [floats(37, 50)], lambda a: a.sum(1))
    if any(isinstance(n, Block) and n.init is not None for n in walk(func.body)):
        raise Hint("the block still has its T.init(): sch.decompose_reduction(block, loop)")
    nests = _nests(func)
    if len(nests) == 1:
        raise Hint(
            "the zero of a row is stored inside the loop over rows. The new block comes in front "
            "of the loop that is given: which one is in front of all sums?"
        )
    return f"two nests: zeros ({describe(nests[0])}), then sums ({describe(nests[1])})."


def _nests(func: PrimFunc) -> list[list[For]]:
    """Return the loops of each outermost loop, itself included."""
    inside = {id(n) for f in loops_of(func) for n in walk(f.body) if isinstance(n, For)}
    outer = [f for f in loops_of(func) if id(f) not in inside]
    return [[n for n in walk(f) if isinstance(n, For)] for f in outer]
