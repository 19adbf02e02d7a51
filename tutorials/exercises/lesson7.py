"""Checks of lesson 7, schedules: order, vectors, threads."""

from __future__ import annotations

from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import BlockRealize
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in

from .compare import blocks_of, floats
from .schedules import Answer, describe, loops_of, scheduled
from relaxlab.lab.verdict import Hint, exercise


@exercise
def in_order(mod: Module, answer: Answer) -> str:
    """The loop over rows outside, the loop over columns inside."""
    func = scheduled(mod, "column_sums", answer, [floats(37, 50)], lambda a: a.sum(0))
    sizes = [f.extent for f in loops_of(func)]
    if sizes == [IntImm(50), IntImm(37)]:
        raise Hint(
            "the innermost loop still goes down a column: two reads after each other are 50 "
            "numbers apart. Which loop must be the inner one?"
        )
    if sizes != [IntImm(37), IntImm(50)]:
        raise Hint(f"two loops are enough, there are: {describe(loops_of(func))}")
    return "each row is read from left to right, and the 50 sums stay in cache meanwhile."


@exercise
def fast_bias(mod: Module, answer: Answer) -> str:
    """Threads over rows, vectors of 8 columns."""
    func = scheduled(mod, "add_bias", answer, [floats(5, 100), floats(100)], lambda a, b: a + b)
    loops = loops_of(func)
    vectors = [f for f in loops if f.kind == "vectorized"]
    if not vectors:
        raise Hint(f"no loop is vectorized yet; the loops are: {describe(loops)}")
    inner = vectors[-1]
    if inner.extent != IntImm(8):
        raise Hint(
            f"the vectorized loop has {inner.extent} iterations, not 8; split j first: "
            "sch.split(j, factors=[None, 8])"
        )
    threads = [f for f in loops if f.kind == "parallel"]
    if not threads:
        raise Hint(f"the rows are not split among threads yet; the loops are: {describe(loops)}")
    columns = {
        binding
        for node in walk(func.body)
        if isinstance(node, BlockRealize) and len(node.iter_values) == 2
        for binding in symbols_in(node.iter_values[1])
    }
    if inner.loop_var not in columns:
        raise Hint(
            f"the vectorized loop {inner.loop_var.name} runs down a column: its elements are 100 "
            "numbers apart in memory. Split and vectorize j"
        )
    if not symbols_in(threads[0].extent):
        raise Hint(
            f"the threads share the loop {threads[0].loop_var.name}, which runs over "
            f"{threads[0].extent} tiles of columns; they should share the n rows: parallel(i)"
        )
    return "rows to threads, columns to vectors, and a condition for the last vector of each row."


@exercise
def one_loop(mod: Module, answer: Answer) -> str:
    """The squares are computed where they are halved."""
    func = scheduled(mod, "two_loops", answer, [floats(33)], lambda a: a * a / 2)
    blocks = [block.name for block in blocks_of(func)]
    if len(blocks) > 1:
        raise Hint(
            f"the blocks {' and '.join(blocks)} are still there. A block can be inlined into the "
            "ones that read it: that is the producer"
        )
    return "one block is left, and the buffer in between is gone."
