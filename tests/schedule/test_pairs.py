"""Reductions of whatever is computed of a row and a column: loops as people write them, which the
rule `matmul` tiles like a matrix product, against NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module

LOOPS = """
@T.prim_func
def f(A: T.Buffer(("n", "k"), "float32"), b: T.handle, R: T.Buffer(("n",), "float32"),
      S: T.Buffer(("k",), "float32"), C: T.Buffer((m,), "float32"),
      X: T.Buffer(("n", m), "float32")):
    B = T.match_buffer(b, COLUMNS, "float32")
    for i, j, l in T.grid(n, m, k):
        with T.sblock("X"):
            y, x, z = T.axis.remap("SSR", [i, j, l])
            with T.init():
                X[y, x] = START
            X[y, x] = VALUE
"""
PAIRS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "scaled": ("X[y, x] + T.float32(1.5) * A[y, z] * B[z, x]", "0",
               lambda a, b, r, s, c: (1.5 * a * b).sum(1)),
    "divided rows": ("X[y, x] + A[y, z] / R[y] * B[z, x]", "0",
                     lambda a, b, r, s, c: (a / r * b).sum(1)),
    "scaled terms": ("X[y, x] + B[z, x] * (S[z] * A[y, z])", "0",
                     lambda a, b, r, s, c: (b * (s * a)).sum(1)),
    "centred": ("X[y, x] + (A[y, z] - R[y]) * (B[z, x] - C[x])", "0",
                lambda a, b, r, s, c: ((a - r) * (b - c)).sum(1)),
    "squared distances": ("X[y, x] + (A[y, z] - B[z, x]) * (A[y, z] - B[z, x])", "0",
                          lambda a, b, r, s, c: ((a - b) ** 2).sum(1)),
    "distances": ("X[y, x] + T.abs(A[y, z] - B[z, x])", "0",
                  lambda a, b, r, s, c: np.abs(a - b).sum(1)),
    "sums": ("X[y, x] + A[y, z] + B[z, x]", "0", lambda a, b, r, s, c: (a + b).sum(1)),
    "differences": ("X[y, x] - A[y, z] * B[z, x]", "0", lambda a, b, r, s, c: -(a * b).sum(1)),
    "shortest paths": ("T.min(X[y, x], A[y, z] + B[z, x])", "1e30",
                       lambda a, b, r, s, c: (a + b).min(1, initial=1e30)),
    "largest products": ("T.max(X[y, x], A[y, z] * B[z, x] * C[x])", "-1e30",
                         lambda a, b, r, s, c: (a * b * c).max(1, initial=-1e30)),
}  # fmt: skip
SIZES = ((0, 2), (3, 0), (1, 1), (1, 70), (17, 5), (6, 300), (130, 31), (40, 600))
COLUMNS = 100


def module(name: str, transposed: bool = False, columns: int = COLUMNS) -> Module:
    value, start, _ = PAIRS[name]
    value = value.replace("B[z, x]", "B[x, z]") if transposed else value
    text = LOOPS.replace("COLUMNS", "(m, k)" if transposed else "(k, m)")
    text = text.replace("VALUE", value).replace("START", f"T.float32({start})")
    return rl.parse(re.sub(r"\bm\b", str(columns), text))


CASES = [*((name, False) for name in PAIRS), ("divided rows", True), ("shortest paths", True)]


@pytest.mark.parametrize(("name", "transposed"), CASES)
def test_pairs_of_any_size(name: str, transposed: bool) -> None:
    mod = module(name, transposed)
    reasons = [r.reason for r in rl.trace(mod).find("schedule_kernels").remarks]
    assert "scheduled by the rule matmul" in reasons
    main = rl.compile(mod, threads=2, use_cache=False, checks="all")["f"]
    rng = np.random.default_rng(1)
    for n, k in SIZES:
        a, b, r, s, c = (
            rng.uniform(0.5, 1.5, shape).astype("float32")
            for shape in ((n, k), (k, COLUMNS), n, k, COLUMNS)
        )
        got = np.full((n, COLUMNS), np.nan, "float32")
        main(a, np.ascontiguousarray(b.T) if transposed else b, r, s, c, got)
        want = PAIRS[name][2](a[:, :, None], b, r[:, None, None], s[:, None], c)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("columns", "bound"), [(280, True), (8, False)])
def test_rows_are_computed_once_and_in_parallel(columns: int, bound: bool) -> None:
    """Of few columns each panel computes them for itself."""
    mod = module("divided rows", columns=columns)
    (func,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    assert ("X_expr[" in str(func)) is bound
    if bound:
        above = str(func).split("X_expr[")[0]
        assert "T.parallel" in above and "T.vectorized" in above


TRIANGLE = """
@T.prim_func
def f(A: T.Buffer(("n", "k"), "float32"), B: T.Buffer(("n", "k"), "float32"),
      C: T.Buffer(("n", "n"), "float32")):
    for i in range(n):
        for j in range(i + 1):
            for l in range(k):
                C[i, j] = C[i, j] + A[i, l] * B[j, l] + B[i, l] * A[j, l]
"""


def test_sums_onto_a_triangle() -> None:
    """A rank-2 update as plain loops: its sums are apart from what they are added to."""
    mod = rl.parse(TRIANGLE)
    sch = rl.schedule_of(rl.trace(mod), "f")
    assert "C_sum" in str(sch.func)
    main = rl.compile(mod, threads=2, use_cache=False, checks="all")["f"]
    rng = np.random.default_rng(1)
    for n, k in ((0, 3), (1, 0), (1, 1), (9, 5), (40, 33), (70, 300)):
        a, b = (rng.standard_normal((n, k)).astype("float32") for _ in range(2))
        c = rng.standard_normal((n, n)).astype("float32")
        want = c + np.tril(a @ b.T + b @ a.T)
        main(a, b, c)
        np.testing.assert_allclose(c, want, rtol=1e-3, atol=1e-3)
