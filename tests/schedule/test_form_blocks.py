"""Plain loops as blocks: the same results, and the loops as they are where stores depend on each
other."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import Block, BlockRealize, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter import interpret_prim_func
from relaxlab.schedule.form_blocks import form_blocks
from relaxlab.script import parse

TWO, ROWS, COLUMNS = (("(n, m)", to) for to in ("(n, m)", "(n,)", "(m,)"))
"""The shapes of `A`, which is read, and `C`."""

INDEPENDENT = {
    "row sums": (ROWS, """
    for i in range(n):
        C[i] = T.float32(0)
        for j in range(m):
            C[i] = C[i] + A[i, j]""", 1),
    "column sums, rows outside": (COLUMNS, """
    for j in range(m):
        C[j] = T.float32(0)
    for i in range(n):
        for j in range(m):
            C[j] = C[j] + A[i, j]""", 2),
    "largest, onto what is there": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = T.max(C[i], A[i, j])""", 1),
    "two statements": (TWO, """
    for i, j in T.grid(n, m):
        C[i, j] = A[i, j] * T.float32(2)
        C[i, j] = C[i, j] + T.float32(1)""", 2),
    "a transposed copy": (("(m, n)", "(n, m)"), """
    for j in range(m):
        for i in range(n):
            C[i, j] = A[j, i]""", 1),
    "one sum": (("(n, m)", "(1,)"), """
    C[0] = T.float32(0)
    for i, j in T.grid(n, m):
        C[0] = C[0] + A[i, j]""", 1),
    "a sum that begins with 3": (ROWS, """
    for i in range(n):
        C[i] = T.float32(3)
        for j in range(m):
            C[i] = C[i] + A[i, j]""", 2),
}  # fmt: skip

DEPENDENT = {
    "an extent in memory": (ROWS, """
    for i in range(T.Cast("int64", C[0])):
        C[0] = C[0] + A[i, 0]"""),
    "prefix sums": (ROWS, """
    for i in range(n - 1):
        C[i + 1] = C[i] + A[i, 0]"""),
    "the last one wins": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = A[i, j]"""),
    "rows of the row before": (TWO, """
    for i in range(n):
        for j in range(m):
            C[i, j] = C[0, j] + A[i, j]"""),
    "the next iteration reads it": (TWO, """
    for i in range(n):
        for j in range(m):
            C[i, j] = A[i, j]
        for j in range(m):
            C[0, j] = C[i, j]"""),
    "a triangle": (TWO, """
    for i in range(n):
        for j in range(i + 1):
            C[i, j] = A[i, j]"""),
    "a sum of its own values": (ROWS, """
    for i, j in T.grid(n, m):
        C[i] = C[i] + C[i] * A[i, j]"""),
}  # fmt: skip


def function(shapes: tuple[str, str], body: str, sizes: dict[str, int] | None = None) -> PrimFunc:
    """The loop function, of constant sizes or of symbols `n` and `m`."""
    text = "def f(a: T.handle, c: T.handle):\n"
    text += "" if sizes else "    n = T.int64()\n    m = T.int64()\n"
    for name, shape in zip("ac", shapes, strict=True):
        text += f'    {name.upper()} = T.match_buffer({name}, {shape}, "float32")\n'
    text += body
    for name, size in (sizes or {}).items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    found = parse("from relaxlab.script import tir as T\n@T.prim_func\n" + text)["f"]
    assert isinstance(found, PrimFunc)
    return found


def blocks(func: PrimFunc) -> list[Block]:
    return [n.block for n in walk(func.body) if isinstance(n, BlockRealize)]


@pytest.mark.parametrize("sizes", [None, {"n": 37, "m": 300}, {"n": 3, "m": 1}], ids=str)
@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_stores(
    name: str, sizes: dict[str, int] | None, rng: np.random.Generator
) -> None:
    shapes, body, count = INDEPENDENT[name]
    func = function(shapes, body, sizes)
    formed = form_blocks(func)
    assert len(blocks(formed)) == count
    assert form_blocks(formed) is formed
    for n, m in [(37, 300), (3, 1), (5, 0)] if sizes is None else [(sizes["n"], sizes["m"])]:
        a, c = (
            rng.standard_normal(eval(shape, {"n": n, "m": m})).astype("float32")  # noqa: S307
            for shape in shapes
        )
        results = [c.copy() for _ in range(3)]
        interpret_prim_func(func, [a, results[0]])
        interpret_prim_func(formed, [a, results[1]])
        rl.compile(func)(a, results[2])
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_allclose(results[2], results[0], 1e-4, 1e-4)


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_stores_stay(name: str) -> None:
    func = function(*DEPENDENT[name], {"n": 5, "m": 7})
    assert form_blocks(func) is func
