"""Checks of lesson 5, fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

import relaxlab as rl
from relaxlab.analysis.pattern_kind import PatternKind, pattern_kind_with_reason
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.passes.bindings import all_bindings

from .compare import called, floats, graph_computes, graph_function, loop_function, loops_compute
from relaxlab.lab.verdict import Hint, exercise, value_of


@exercise
def puzzle(program: Module, groups: Iterable[set[str]]) -> str:
    """The groups of variables that become one kernel each."""
    trace = rl.trace(program)
    names = [b.var.name for b in all_bindings(graph_function(trace.module, "main"))]
    merged = {name: {name} for name in names}
    reasons: dict[frozenset[str], str] = {}
    for r in trace.find("fuse_ops").remarks:
        first, second = r.about["source"].name, r.about["target"].name
        reasons[frozenset((first, second))] = r.reason
        if r.applied:
            whole = merged[first] | merged[second]
            merged |= {name: whole for name in whole}
    given = [set(g) for g in groups]
    _is_partition(given, names)
    # Neighbours first: for them there are reasons.
    pairs = (pair for gap in range(1, len(names)) for pair in zip(names, names[gap:], strict=False))
    for first, second in pairs:
        yours = any({first, second} <= g for g in given)
        if yours != (second in merged[first]):
            verb = "stay apart" if yours else "are merged"
            why = reasons.get(frozenset((first, second)), "")
            raise Hint(f"`{first}` and `{second}` {verb}: {why}" if why else f"`{first}` and "
                       f"`{second}` {verb}")  # fmt: skip
    return "these are the groups that the compiler makes."


def _is_partition(groups: list[set[str]], names: list[str]) -> None:
    for name in names:
        count = sum(name in g for g in groups)
        if count != 1:
            raise Hint(f"`{name}` is in {count} groups; every variable belongs to exactly one")
    for name in set[str]().union(*groups) - set(names):
        raise Hint(f"the program has no variable {name!r}; it has: {among(name, names)}")


@exercise
def clip(answer: Module) -> str:
    """clip(A) = max(A, 0) as a loop function that fuses behind a product."""
    loops_compute(answer, "clip", [floats(5, 32)], lambda a: np.maximum(a, 0))
    kind, reason = pattern_kind_with_reason(loop_function(answer, "clip"))
    if kind is PatternKind.OPAQUE:
        raise Hint(f"`clip` is still OPAQUE: {reason}. Store each element once, in one block")
    graph_computes(
        answer, "main", [floats(3, 64), floats(64, 32)], lambda x, w: np.maximum(x @ w, 0)
    )
    if "clip" not in called(answer, "call_tir"):
        raise Hint("`main` must call `clip`: R.call_tir(cls.clip, (y,), out_ty=...)")
    _one_kernel(answer)
    return f"`clip` is {kind.name}, and runs inside of the product's loops."


@exercise
def softmax(answer: Module) -> str:
    """Twice the softmax of each row, in one kernel."""

    def reference(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(1, keepdims=True))
        return 2 * e / e.sum(1, keepdims=True)

    graph_computes(answer, "main", [floats(3, 64)], reference)
    _one_kernel(answer)
    return "one kernel: its blocks share the row while it is in cache."


def _one_kernel(answer: Module) -> None:
    names = list(rl.trace(answer).result.loop_functions())
    if len(names) > 1:
        raise Hint(f"the results are right, in {len(names)} kernels: {', '.join(names)}")


@exercise
def bytes_saved(answer: Callable[[int], int]) -> str:
    """Bytes of three intermediate results of (n, 1024) float32, written once and read once."""
    for n in (7, 12):
        _is_saved(n, value_of(answer, n))
    return "three results of 4096 n bytes, each written once and read once."


def _is_saved(n: int, got: object) -> None:
    """Raise Hint for another number than the bytes that are saved for n rows."""
    element = n * 1024
    for wrong, why in (
        (element, "this counts elements of one result; how many bytes does a float32 have?"),
        (4 * element, "this is one intermediate result, written. How many are there?"),
        (3 * element, "this counts elements; how many bytes does a float32 have?"),
        (12 * element, "what one kernel writes, the next one reads: both are saved"),
        (32 * element, "four kernels have three results in between; the last one is still written"),
    ):
        if got == wrong:
            raise Hint(why)
    if got != 24 * element:
        raise Hint(f"for n = {n} it is another number than {got}: count the results in between, "
                   "the bytes of each, and how often each travels")  # fmt: skip
