"""Checks of lesson 1, tensors to loops."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.ir.loops import Block
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

from .compare import floats, loop_function, loops_compute
from relaxlab.lab.verdict import Hint, exercise


@exercise
def scale_rows(answer: Module) -> str:
    """B[i, j] = A[i, j] * s[i], with A of shape (3, 5)."""
    a, s = floats(3, 5), floats(3)
    by_column = "; row i is to be multiplied by s[i]"
    loops_compute(answer, "scale_rows", [a, s], lambda a, s: a * s[:, None], after=by_column)
    return "every row is multiplied by its own number."


@exercise
def column_sums(answer: Module) -> str:
    """B[j] = the sum of A[:, j], with A of shape (3, 5)."""
    loops_compute(answer, "column_sums", [floats(3, 5)], lambda a: a.sum(0))
    axes = [axis for n in walk(loop_function(answer, "column_sums"))
            if isinstance(n, Block) for axis in n.iter_vars]  # fmt: skip
    if axes and not any(a.kind == "reduce" for a in axes):
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
    at_zero = (
        ". All sums are negative here: start the maximum from something smaller than zero"
        if _starts_at_zero(answer)
        else ""
    )
    loops_compute(
        answer, "longest_step", [a, b], lambda a, b: (a[:, :, None] + b).max(1), after=at_zero
    )
    return "the loops of a matrix product, with another sum and another product."


def _starts_at_zero(answer: Module) -> bool:
    """True if the maximum of negative sums is zero."""
    loop_function(answer, "longest_step")
    out = np.full((4, 4), np.nan, "float32")
    a, b = np.full((4, 3), -5, "float32"), np.full((3, 4), -5, "float32")
    rl.interpret(answer, "longest_step", a, b, out)
    return bool(np.all(out == 0))
