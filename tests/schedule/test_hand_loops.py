"""Loop functions with variables of their own, written by hand: what they compute, and as what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import BlockRealize, For, IfThenElse, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.form_blocks import form_blocks
from relaxlab.schedule.vector_loops import VECTORIZE

NEAREST = """
@T.prim_func
def nearest(x: T.handle, c: T.handle, l: T.handle):
    n, k = T.int64(), T.int64()
    X = T.match_buffer(x, (n, 4), "float32")
    C = T.match_buffer(c, (k, 4), "float32")
    L = T.match_buffer(l, (n,), "int32")
    best = T.alloc_buffer((1,), "float32")
    d = T.alloc_buffer((1,), "float32")
    for i in range(n):
        best[0] = T.float32(1e30)
        for j in range(k):
            d[0] = T.float32(0)
            for e in range(4):
                d[0] = d[0] + (X[i, e] - C[j, e]) * (X[i, e] - C[j, e])
            if d[0] < best[0]:
                best[0] = d[0]
                L[i] = T.Cast("int32", j)
"""
ESCAPE = """
@T.prim_func
def escape(z: T.handle, o: T.handle):
    n, m = T.int64(), T.int64()
    Z = T.match_buffer(z, (n, m), "float32")
    O = T.match_buffer(o, (n, m), "int32")
    r = T.alloc_buffer((1,), "float32")
    for i in range(n):
        for j in range(m):
            r[0] = Z[i, j]
            O[i, j] = 0
            while r[0] < T.float32(4) and O[i, j] < 20:
                r[0] = r[0] * r[0] + T.float32(0.3)
                O[i, j] = O[i, j] + 1
"""
STEPS = """
@T.prim_func
def steps(c: T.handle, o: T.handle):
    n = T.int64()
    C = T.match_buffer(c, (n, 2), "float32")
    O = T.match_buffer(o, (n,), "int32")
    z = T.alloc_buffer((2,), "float32")
    w = T.alloc_buffer((2,), "float32")
    k = T.alloc_buffer((1,), "int32")
    for i in range(n):
        z[0] = T.float32(0)
        z[1] = T.float32(0)
        k[0] = 0
        while k[0] < 9 and z[0] * z[0] + z[1] * z[1] < T.float32(4):
            w[0] = z[0] * z[0] - z[1] * z[1] + C[i, 0]
            w[1] = T.float32(2) * z[0] * z[1] + C[i, 1]
            for e in range(2):
                z[e] = w[e]
            k[0] = k[0] + 1
        O[i] = k[0]
"""
MEDIAN = """
@T.prim_func
def median(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n + 2, 7), "float32")
    B = T.match_buffer(b, (n, 7), "float32")
    v = T.alloc_buffer((3,), "float32")
    t = T.alloc_buffer((1,), "float32")
    for i in range(n):
        for j in range(7):
            for k in range(3):
                v[k] = A[i + k, j]
            for p in range(2):
                for q in range(2 - p):
                    t[0] = T.min(v[q], v[q + 1])
                    v[q + 1] = T.max(v[q], v[q + 1])
                    v[q] = t[0]
            B[i, j] = v[1]
"""
PULL = """
@T.prim_func
def pull(p: T.handle, f: T.handle):
    n = T.int64()
    P = T.match_buffer(p, (n, 2), "float32")
    F = T.match_buffer(f, (n, 2), "float32")
    d = T.alloc_buffer((2,), "float32")
    r = T.alloc_buffer((1,), "float32")
    for i in range(n):
        for c in range(2):
            F[i, c] = T.float32(0)
        for j in range(n):
            for c in range(2):
                d[c] = P[j, c] - P[i, c]
            r[0] = T.float32(0.5)
            for c in range(2):
                r[0] = r[0] + d[c] * d[c]
            for c in range(2):
                F[i, c] = F[i, c] + d[c] / r[0]
"""
UNTOUCHED = """
@T.prim_func
def untouched(x: T.handle, o: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    O = T.match_buffer(o, (n,), "float32")
    s = T.alloc_buffer((1,), "float32")
    for i in range(n):
        s[0] = X[i]
        for k in range(5):
            if s[0] > T.float32(0.5):
                O[i] = O[i] + s[0]
            s[0] = s[0] * T.float32(0.8)
"""
RUNNING = """
@T.prim_func
def running(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i in range(n):
        for j in range(m):
            if i == 0:
                B[i, j] = A[i, j]
            elif i == n - 1:
                B[i, j] = B[i - 1, j] * T.float32(2)
            else:
                B[i, j] = T.max(B[i - 1, j], A[i, j])
"""
BALANCE = """
@T.prim_func
def balance(p: T.handle):
    n, m = T.int64(), T.int64()
    P = T.match_buffer(p, (n, m), "float32")
    s = T.alloc_buffer((1,), "float32")
    for step in range(2):
        for i in range(n):
            s[0] = T.float32(0)
            for j in range(m):
                s[0] = s[0] + P[i, j]
            for j in range(m):
                P[i, j] = P[i, j] / s[0]
        for j in range(m):
            s[0] = T.float32(0)
            for i in range(n):
                s[0] = s[0] + P[i, j]
            for i in range(n):
                P[i, j] = P[i, j] / s[0]
"""
COLOURS = """
@T.prim_func
def colours(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 3), "float32")
    B = T.match_buffer(b, (n, 3), "float32")
    for i in range(n):
        B[i, 0] = A[i, 0] + A[i, 1] + A[i, 2]
        B[i, 1] = A[i, 2] - B[i, 0]
        B[i, 2] = A[i, 0] - B[i, 0]
"""
UNPACK = """
@T.prim_func
def unpack(w: T.handle, o: T.handle):
    n, m = T.int64(), T.int64()
    W = T.match_buffer(w, (n, m), "uint8")
    O = T.match_buffer(o, (n, 2 * m), "float32")
    for i in range(n):
        for j in range(m):
            O[i, 2 * j] = T.Cast("float32", W[i, j] & T.uint8(15))
            O[i, 2 * j + 1] = T.Cast("float32", W[i, j] >> T.uint8(4))
"""
MASKED = """
@T.prim_func
def masked(s: T.handle, l: T.handle, p: T.handle):
    n, m = T.int64(), T.int64()
    S = T.match_buffer(s, (n, m), "float32")
    L = T.match_buffer(l, (n,), "int32")
    P = T.match_buffer(p, (n, m), "float32")
    t = T.alloc_buffer((1,), "float32")
    for i in range(n):
        t[0] = T.float32(0)
        for j in range(m):
            if j < L[i]:
                P[i, j] = S[i, j] * S[i, j]
                t[0] = t[0] + P[i, j]
            else:
                P[i, j] = T.float32(0)
        for j in range(m):
            P[i, j] = P[i, j] - t[0]
"""


def normal(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal(shape).astype("float32")


def bytes_of(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.integers(0, 256, shape).astype("uint8")


def positive(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: (rng.random(shape) + 0.1).astype("float32")


def counts(n: int, m: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.integers(-1, m + 2, n).astype("int32")


def zeros(dtype: str, *shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda _: np.full(shape, 7, dtype)


SIZES = (0, 1, 2, 3, 5, 16, 37, 70)
CASES = {
    "nearest": (NEAREST, lambda n: [normal(n, 4), normal(3, 4), zeros("int32", n)]),
    "escape": (ESCAPE, lambda n: [normal(3, n), zeros("int32", 3, n)]),
    "steps": (STEPS, lambda n: [normal(n, 2), zeros("int32", n)]),
    "median": (MEDIAN, lambda n: [normal(n + 2, 7), zeros("float32", n, 7)]),
    "pull": (PULL, lambda n: [normal(n, 2), zeros("float32", n, 2)]),
    "untouched": (UNTOUCHED, lambda n: [normal(n), normal(n)]),
    "running": (RUNNING, lambda n: [normal(n, 5), zeros("float32", n, 5)]),
    "running columns": (RUNNING, lambda n: [normal(4, n), zeros("float32", 4, n)]),
    "balance": (BALANCE, lambda n: [positive(n, 6)]),
    "colours": (COLOURS, lambda n: [normal(n, 3), zeros("float32", n, 3)]),
    "unpack": (UNPACK, lambda n: [bytes_of(3, n), zeros("float32", 3, 2 * n)]),
    "masked": (MASKED, lambda n: [normal(4, n), counts(4, n), zeros("float32", 4, n)]),
}


def function(text: str) -> PrimFunc:
    (func,) = rl.parse(text).loop_functions().values()
    return func


def name_of(text: str) -> str:
    return text.split("def ", 1)[1].split("(", 1)[0]


@pytest.mark.parametrize("name", CASES)
def test_any_size(name: str, rng: np.random.Generator) -> None:
    text, arrays = CASES[name]
    exe = rl.compile(rl.parse(text))[name_of(text)]
    for n in SIZES:
        made = [make(rng) for make in arrays(n)]
        expected = [a.copy() for a in made]
        interpret_prim_func(function(text), expected)
        exe(*made)
        for got, want in zip(made, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"n = {n}")


@pytest.mark.parametrize("name", CASES)
def test_checked(name: str, rng: np.random.Generator) -> None:
    text, arrays = CASES[name]
    given = [make(rng) for make in arrays(19)]
    expected = [a.copy() for a in given]
    interpret_prim_func(function(text), expected)
    rl.compile(rl.parse(text), checks="all")[name_of(text)](*given)
    for got, want in zip(given, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def scheduled(text: str) -> PrimFunc:
    result = rl.cpu_pipeline().run(rl.parse(text)).result
    (func,) = result.loop_functions().values()
    return func


@pytest.mark.parametrize("name", ["nearest", "escape", "steps", "median", "pull", "untouched"])
def test_variables_are_lanes(name: str) -> None:
    loops = [n for n in walk(scheduled(CASES[name][0])) if isinstance(n, For)]
    assert any(loop.kind == "vectorized" for loop in loops)


@pytest.mark.parametrize("name", ["colours", "unpack", "masked"])
def test_loops_for_llvm(name: str) -> None:
    loops = [n for n in walk(scheduled(CASES[name][0])) if isinstance(n, For)]
    assert any(VECTORIZE in loop.annotations for loop in loops)


def test_sums_keep_their_order(rng: np.random.Generator) -> None:
    exact = replace(rl.Target.host(), reassociate=False)
    exe = rl.compile(rl.parse(MASKED), target=exact)
    made = [make(rng) for make in CASES["masked"][1](67)]
    expected = [a.copy() for a in made]
    interpret_prim_func(function(MASKED), expected)
    exe["masked"](*made)
    np.testing.assert_array_equal(made[2], expected[2])


def test_first_and_last_iterations_are_apart() -> None:
    assert not any(isinstance(n, IfThenElse) for n in walk(form_blocks(function(RUNNING))))


def test_live_ranges_are_apart() -> None:
    root = form_blocks(function(BALANCE)).body
    assert isinstance(root, BlockRealize)
    names = [b.name for b in root.block.alloc_buffers]
    assert names == ["s", "s_2"]
