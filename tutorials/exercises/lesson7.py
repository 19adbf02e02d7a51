"""Checks of lesson 7, schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import relaxlab as rl
from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import Block, For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

from .compare import Array, Reference, floats, loop_function, loops_compute
from .verdict import Hint, ask, exercise

Answer = Callable[[rl.Schedule], None]


def _scheduled(
    mod: Module, name: str, answer: Answer, inputs: Sequence[Array], reference: Reference
) -> PrimFunc:
    """What the answer makes of the loop function; it still computes the same."""
    sch = rl.Schedule(loop_function(mod, name))
    ask(answer, sch)
    changed = mod.with_functions({name: sch.func})
    loops_compute(changed, name, inputs, reference)
    return sch.func


def _loops(func: PrimFunc) -> list[For]:
    """The loops, as they are printed from top to bottom."""
    return [n for n in walk(func.body) if isinstance(n, For)]


def _describe(loops: list[For]) -> str:
    return ", ".join(f"{f.loop_var.name} ({f.extent}, {f.kind})" for f in loops)


@exercise
def fast_bias(mod: Module, answer: Answer) -> str:
    """Threads over rows, vectors of 8 columns."""
    func = _scheduled(mod, "add_bias", answer, [floats(5, 100), floats(100)], lambda a, b: a + b)
    loops = _loops(func)
    vectors = [f for f in loops if f.kind == "vectorized"]
    if not vectors:
        raise Hint(f"no loop is vectorized yet; the loops are: {_describe(loops)}")
    inner = vectors[-1]
    if inner.extent != IntImm(8):
        raise Hint(
            f"the vectorized loop has {inner.extent} iterations, not 8; split j first: "
            "sch.split(j, factors=[None, 8])"
        )
    if loops[0].kind != "parallel":
        raise Hint(f"the rows are not shared out to threads yet; the loops are: {_describe(loops)}")
    return "rows to threads, columns to vectors, and a condition for the last vector of each row."


@exercise
def in_order(mod: Module, answer: Answer) -> str:
    """The loop over rows outside, the loop over columns inside."""
    func = _scheduled(mod, "column_sums", answer, [floats(37, 50)], lambda a: a.sum(0))
    sizes = [f.extent for f in _loops(func)]
    if sizes == [IntImm(50), IntImm(37)]:
        raise Hint(
            "the innermost loop still goes down a column: two reads after each other are 50 "
            "numbers apart. Which loop must be the inner one?"
        )
    if sizes != [IntImm(37), IntImm(50)]:
        raise Hint(f"two loops are enough, there are: {_describe(_loops(func))}")
    return "each row is read from left to right, and the 50 sums stay in cache meanwhile."


@exercise
def in_tiles(mod: Module, answer: Answer) -> str:
    """Loops over tiles of 16 x 16, then over the elements of one."""
    func = _scheduled(mod, "transpose", answer, [floats(40, 70)], lambda a: a.T)
    loops = _loops(func)
    sizes = [f.extent for f in loops]
    if len(loops) < 4:
        raise Hint(f"there are {len(loops)} loops, four are needed: split both i and j")
    if sizes == [IntImm(5), IntImm(16), IntImm(3), IntImm(16)]:
        raise Hint("both loops are split, but still in the old order: reorder(io, jo, ii, ji)")
    if sizes != [IntImm(5), IntImm(3), IntImm(16), IntImm(16)]:
        raise Hint(f"the loops should run over 5, 3, 16, 16; they are: {_describe(loops)}")
    return "15 tiles, the last ones cut off by a condition."


@exercise
def one_loop(mod: Module, answer: Answer) -> str:
    """The squares are computed where they are halved."""
    func = _scheduled(mod, "two_loops", answer, [floats(33)], lambda a: a * a / 2)
    blocks = [n.name for n in walk(func.body) if isinstance(n, Block) and n.iter_vars]
    if blocks != ["halve"]:
        raise Hint(
            f"the blocks {', '.join(blocks)} are both still there. A block can be inlined into the "
            "ones that read it: that is the producer"
        )
    return "one block is left, and the buffer in between is gone."
