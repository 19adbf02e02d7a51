"""Checks of lesson 8, tiles and registers."""

from __future__ import annotations

from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import Block, BlockRealize, For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in

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
    (realize,) = (n for n in walk(func.body) if isinstance(n, BlockRealize) and n.iter_values)
    rows = [f.loop_var in symbols_in(realize.iter_values[0]) for f in loops]
    if rows != [True, False, True, False]:
        raise Hint("in a tile the columns come before the rows: reorder(io, jo, ii, ji)")
    return "15 tiles, the last ones cut off by a condition."


@exercise
def local_sum(mod: Module, answer: Answer) -> str:
    """The sum of a row in a local buffer, copied inside the loop over rows."""
    func = scheduled(mod, "row_sums", answer, [floats(37, 50)], lambda a: a.sum(1))
    blocks = [n for n in walk(func.body) if isinstance(n, Block)]
    local = [b for n in blocks for b in n.alloc_buffers if b.scope == "local"]
    if not local:
        raise Hint('there is no local buffer yet: sch.cache_write(block, 0, "local")')
    sums = next(n for n in blocks if any(v.kind == "reduce" for v in n.iter_vars))
    total = sums.writes[0].buffer
    if total not in local:
        raise Hint('the sums are still stored in B: sch.cache_write(block, 0, "local")')
    copy = next(n for n in blocks if any(r.buffer == total for r in n.reads) and n is not sums)
    kept = [f.extent for f in _around(copy, func) if f not in _around(sums, func)]
    if kept:
        raise Hint(
            f"the sums of all {' x '.join(map(str, kept))} rows are kept until other loops copy "
            "them: move the copy into the loop over rows with sch.reverse_compute_at(total, i)"
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


def _around(block: Block, func: PrimFunc) -> list[For]:
    """Return the loops around a block."""
    return [f for f in loops_of(func) if any(n is block for n in walk(f.body))]


def _nests(func: PrimFunc) -> list[list[For]]:
    """Return the loops of each outermost loop, itself included."""
    inside = {id(n) for f in loops_of(func) for n in walk(f.body) if isinstance(n, For)}
    outer = [f for f in loops_of(func) if id(f) not in inside]
    return [[n for n in walk(f) if isinstance(n, For)] for f in outer]
