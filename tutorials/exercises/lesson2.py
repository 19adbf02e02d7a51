"""Checks of lesson 2, the script language."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import relaxlab as rl
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module

from .compare import floats, loops_compute
from relaxlab.lab.verdict import Hint, exercise, value_of


@exercise
def repair(text: str) -> str:
    """`distance`: the length of each row of a (5, 3) matrix. The answer is a text."""
    try:
        mod = rl.parse(text)
    except rl.DiagnosticError as error:
        many = len(error.diagnostics)
        found = f"{many} errors are left, the first of them" if many > 1 else "one error is left"
        raise Hint(f"{found}:\n{error.diagnostics[0].render()}") from None
    loops_compute(mod, "distance", [floats(5, 3)], lambda a: np.sqrt((a * a).sum(1)))
    return "it is read without errors, and computes the length of each row."


@exercise
def leaky_relu(answer: Module) -> str:
    """B = A where A is positive, else A / 10."""
    loops_compute(answer, "leaky_relu", [floats(7)], lambda a: np.where(a > 0, a, a * 0.1))
    return "positive numbers stay, negative ones leak."


@exercise
def from_bytes(answer: Module) -> str:
    """B = A / 255 of bytes."""
    bytes_ = np.arange(0, 255, 17, dtype="uint8").reshape(3, 5)
    early = "; the division must come after the cast, or the fraction is lost"
    loops_compute(answer, "from_bytes", [bytes_], lambda a: a.astype("float32") / 255, after=early)
    return "0 becomes 0, 255 becomes 1, and what is between stays between."


@exercise
def count_stores(answer: Callable[[PrimFunc], int]) -> str:
    """The number of BufferStore nodes in a loop function."""
    for text, want in ((_SQUARE, 1), (_SUM, 2), (_TWO, 3)):
        func = rl.parse(text)["f"]
        assert isinstance(func, PrimFunc)
        got = value_of(answer, func)
        if got != want:
            stores = counted(want, "store")
            raise Hint(f"the function below has {stores}, your function counts {got}:\n{text}")
    return "one for a square, two for a sum, three for both."


_HEAD = """
@I.ir_module
class M:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((1,), "float32")):
"""
_SQUARE_LOOP = """\
        for i, j in T.grid(2, 2):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i * 2 + j)
                B[vi] = A[vi] * A[vi]
"""
_SUM_LOOP = """\
        for i, k in T.grid(1, 4):
            with T.sblock("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vk]
"""
_SQUARE, _SUM, _TWO = _HEAD + _SQUARE_LOOP, _HEAD + _SUM_LOOP, _HEAD + _SQUARE_LOOP + _SUM_LOOP
