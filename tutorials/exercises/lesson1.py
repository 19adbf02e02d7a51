"""Checks of lesson 1, tensors to loops."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.ir.loops import Block, BufferLoad, BufferStore
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

from .compare import Different, blocks_of, floats, loop_function, loops_compute, reduced_axes
from relaxlab.lab.verdict import Hint, exercise


@exercise
def scale_rows(answer: Module) -> str:
    """B[i, j] = A[i, j] * s[i], with A of shape (3, 5)."""
    a, s = floats(3, 5), floats(3)
    by_column = "; row i is to be multiplied by s[i]"
    loops_compute(answer, "scale_rows", [a, s], lambda a, s: a * s[:, None], after=by_column)
    blocks = blocks_of(loop_function(answer, "scale_rows"))
    if summed := [axis for block in blocks for axis in reduced_axes(block)]:
        raise Hint(
            f"the numbers are right, but nothing is summed over {summed[0]}: declare it as spatial "
            "(S)"
        )
    return "every row is multiplied by its own number."


@exercise
def column_sums(answer: Module) -> str:
    """B[j] = the sum of A[:, j], with A of shape (3, 5)."""
    loops_compute(answer, "column_sums", [floats(3, 5)], lambda a: a.sum(0))
    for block in blocks_of(loop_function(answer, "column_sums")):
        if _accumulates(block) and not reduced_axes(block):
            raise Hint(
                "the numbers are right, but no axis is declared as a reduction: "
                'write R for the summed axis in T.axis.remap("...", ...)'
            )
    return "the rows are summed, whatever was in memory before."


@exercise
def moving_sum(answer: Module) -> str:
    """B[i] = A[i] + A[i + 1] + A[i + 2], with A of shape (9,) and B of shape (7,)."""
    loops_compute(answer, "moving_sum", [floats(9)], lambda a: a[:-2] + a[1:-1] + a[2:])
    return "no access leaves its buffer, and no window is missing."


@exercise
def longest_step(answer: Module) -> str:
    """C[i, j] = the maximum over k of A[i, k] + B[k, j], with shapes (4, 3) and (3, 4)."""
    a, b = floats(4, 3) - 5, floats(3, 4) - 5
    reference = lambda a, b: (a[:, :, None] + b).max(1)  # noqa: E731
    try:
        loops_compute(answer, "longest_step", [a, b], reference)
    except Different as hint:
        start = _start(answer)
        if start is None:
            raise
        raise Hint(
            f"{hint}. All sums are smaller than {start:g} here: start the maximum from something "
            "smaller than all numbers"
        ) from None
    return "the loops of a matrix product, with another sum and another product."


def _start(answer: Module) -> float | None:
    """The result for sums of -10 and for sums of -100, if it is the same number above both."""
    found = set[float]()
    for x in (-5, -50):
        out = np.full((4, 4), np.nan, "float32")
        a, b = np.full((4, 3), x, "float32"), np.full((3, 4), x, "float32")
        rl.interpret(answer, "longest_step", a, b, out)
        found.update(out.flat)
    return max(found) if len(found) == 1 and max(found) > -10 else None


def _accumulates(block: Block) -> bool:
    """True if a block reads what it stores."""
    stores = [n for n in walk(block) if isinstance(n, BufferStore)]
    loads = {n.buffer for s in stores for n in walk(s.value) if isinstance(n, BufferLoad)}
    return any(s.buffer in loads for s in stores)
