"""Checks of lesson 4, the graph level."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.runtime.packed import get_func

from .compare import called, floats, graph_computes, loop_function
from relaxlab.lab.verdict import Hint, exercise, value_of


@exercise
def swish(answer: Module) -> str:
    """main = swish(x @ w), with a call of the loop function."""
    loop_function(answer, "swish")
    if "swish" not in called(answer, "call_tir"):
        raise Hint(
            "`main` does not call `swish` yet: "
            "z = R.call_tir(cls.swish, (y,), out_ty=R.Tensor(..., ...)), and return z"
        )

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (x @ w) / (1 + np.exp(-(x @ w)))

    for n in (3, 1):
        graph_computes(answer, "main", [floats(n, 4), floats(4, 8)], reference)
    return "an operator and a loop function of your own, in one graph."


@exercise
def running_max(answer: Module) -> str:
    """main = the running maximum of each row, by a registered function."""
    names = called(answer, "call_dps_packed", "call_pure_packed")
    if not names:
        raise Hint(
            "`main` calls no library yet: "
            'R.call_dps_packed("course.running_max", (x,), out_ty=R.Tensor((n, 5), "float32"))'
        )
    for name in names:
        try:
            get_func(name)
        except KeyError:
            raise Hint(
                f"nothing is registered under the name {name!r}; "
                f"call rl.register_func({name!r}, your_function)"
            ) from None
    x = floats(4, 5)
    graph_computes(answer, "main", [x], lambda x: np.maximum.accumulate(x, axis=1))
    return "the compiled program would call NumPy in the middle of its own code."


@exercise
def loops_after_legalize(answer: Callable[[Module], set[str]]) -> str:
    """The names of the loop functions after legalize_ops."""
    for text, words in ((_OPERATORS, "operators"), (_CALLS, "operators and a loop function")):
        mod = rl.parse(text)
        want = set(rl.trace(mod).find("legalize_ops").after.loop_functions())
        names = value_of(answer, mod)
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise Hint(f"the function must return a set of names, it returns {names!r}")
        got = set(map(str, names))
        if got != want:
            missing = f"; it lacks {', '.join(sorted(want - got))}" if want - got else ""
            extra = f"; {', '.join(sorted(got - want))} should not be there" if got - want else ""
            raise Hint(
                f"for a module of {words} your function gives {sorted(got)}{missing}{extra}. "
                "Is it the module *after* the pass that you ask?"
            )
    return "operators have become loop functions, and yours are among them."


_OPERATORS = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.exp(x)
        z = R.sum(y, axis=1)
        return z
"""
_CALLS = """
@I.ir_module
class M:
    @T.prim_func
    def triple(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * 3

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = M
        y = R.call_tir(cls.triple, (x,), out_ty=R.Tensor((n,), "float32"))
        z = R.negative(y)
        return z
"""
