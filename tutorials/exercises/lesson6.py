"""Checks of lesson 6, memory planning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

import relaxlab as rl
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.graph import Call, Op
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.plan_memory import memory_plan_of

from .compare import floats, graph_computes, graph_function
from relaxlab.lab.verdict import Hint, exercise, value_of


def _arena_bytes(mod: Module, n: int) -> int:
    """Bytes of all arenas of `main` where every symbol is n."""
    module = rl.trace(mod).find("plan_memory").before
    plan = memory_plan_of(graph_function(module, "main"), module)
    sizes = [a.size for a in plan.arenas]
    return sum(int(evaluate(s, {v: n for v in symbols_in(s)})) for s in sizes)


@exercise
def arena_of_five(answer: Callable[[int], int]) -> str:
    """Two results of (n, 64) float32."""
    for n in (7, 12):
        _is_size_of_five(n, value_of(answer, n))
    return "two places take turns, however long the chain is."


def _is_size_of_five(n: int, got: object) -> None:
    """Raise Hint for another number than the bytes of the arena for n rows."""
    one = n * 64 * 4
    for count, why in (
        (5, "this gives every product a place of its own, the caller's result included"),
        (4, "this is what the four results in between take without reuse; "
            "when the third product writes, who still reads the first one?"),
        (3, "three places are one too many: a product reads one result and writes another"),
        (1, "a product cannot write its result over the one that it is reading"),
    ):  # fmt: skip
        if got == count * one:
            raise Hint(why)
    if got != _arena_bytes(_FIVE, n):
        raise Hint(f"for n = {n} it is another number than {got}: how many places of {one} bytes?")


_FIVE = rl.parse("""
@I.ir_module
class Five:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        a = R.matmul(x, w)
        b = R.matmul(a, w)
        c = R.matmul(b, w)
        d = R.matmul(c, w)
        e = R.matmul(d, w)
        return e
""")


@exercise
def order(answer: Module) -> str:
    """The three maxima, with one large result alive at a time."""

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.stack([(f(x) @ w).max(1) for f in (lambda x: x, np.sin, np.cos)])

    graph_computes(answer, "main", [floats(3, 64), floats(64, 512)], reference)
    calls = Counter(
        c.op.name for c in walk(graph_function(answer, "main"))
        if isinstance(c, Call) and isinstance(c.op, Op)
    )  # fmt: skip
    if calls["matmul"] != 3 or calls["max"] != 3:
        raise Hint("only the order of the lines is to change: three products, three maxima")
    n = 1000
    large, got = n * 512 * 4, _arena_bytes(answer, n)
    if got >= 2 * large:
        raise Hint(
            f"for n = {n} the arena has {got:,} bytes, which is {got // large} of the large "
            "results at a time. When is each of them read for the last time?"
        )
    return f"for n = {n} the arena has {got:,} bytes, one large result at a time."


@exercise
def translator(answer: Module) -> str:
    """n <= 128, m <= 64."""
    bounds = dict(graph_function(answer, "main").attrs.get("tir_var_upper_bound", {}))
    want = {"n": 128, "m": 64}
    if not bounds:
        raise Hint(
            "there are no bounds yet. The first line of the body is to be "
            'R.func_attr({"tir_var_upper_bound": {...}}), with a number for each symbol'
        )
    for name, bound in want.items():
        if bounds.get(name) != bound:
            raise Hint(f"the bound of {name} should be {bound}, is {bounds.get(name, 'missing')}")

    def reference(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        a, b = (np.maximum(v @ w, 0) @ w for v in (x, y))
        return b + a.mean(0)

    inputs = [floats(5, 64), floats(3, 64), floats(64, 64) / 8]
    graph_computes(answer, "main", inputs, reference)
    return f"all sizes are numbers now: {_arena_bytes(answer, 0):,} bytes serve every call."
