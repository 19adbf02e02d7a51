"""Vectors are tested outside on which side of a condition they are."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.partition_vectors import partition_vectors
from relaxlab.ir.loops import BufferStore, For, IfThenElse, PrimFunc, SeqStmt, Stmt
from relaxlab.ir.target import Target
from tests.codegen.kernels import Kernels, parse_kernels

AVX2 = Target(features=frozenset({"avx2"}))
AVX512 = Target(features=frozenset({"avx2", "avx512f", "avx512bw"}))


def kernel(body: str, scope: str) -> PrimFunc:
    return parse_kernels(f"""
def kernel(A: T.Buffer(("n",), "int8"), C: T.Buffer((64,), "int8")):
    for i in range(9):
        with T.sblock("outer"):
            D = T.alloc_buffer((64,), "int8", scope="{scope}")
            for v in T.vectorized(32):
                {body}
""")["kernel"]


def text(s: Stmt) -> str:
    """A statement in one line; loops over v by their kind."""
    match s:
        case For(loop_var, _, extent, kind, body):
            return text(body) if loop_var.name == "i" else f"{kind} {extent}: {text(body)}"
        case IfThenElse(condition, then, other):
            rest = "" if other is None else f"; else {text(other)}"
            return f"if {condition} ({text(then)}{rest})"
        case SeqStmt(stmts):
            return ", ".join(map(text, stmts))
        case BufferStore(_, value):
            return str(value)
        case _:
            raise TypeError(s)


def lowered(body: str, target: Target, scope: str = "local") -> str:
    return text(partition_vectors(lower_blocks(kernel(body, scope).body)[0], target))


ROW = "T.if_then_else({}, A[i * 32 + v], T.int8(0))"
MIXED = "if_then_else(i * 32 + v < n, A[i * 32 + v], 0)"


def test_both_sides_have_no_condition() -> None:
    body = "C[v] = " + ROW.format("i * 32 + v < n")
    sides = "if i * 32 + 31 < n (vectorized 32: A[i * 32 + v]; else if n <= i * 32 "
    sides += "(vectorized 32: 0; else {} 32: {}))"
    assert lowered(body, AVX512) == sides.format("vectorized", MIXED)
    assert lowered(body, AVX2) == sides.format("serial", MIXED)


def test_ends_of_rows() -> None:
    """Padding on both sides: the first and the last vector are mixed."""
    body = "C[v] = " + ROW.format("1 <= i * 32 + v and i * 32 + v < n")
    assert lowered(body, AVX512).startswith(
        "if 1 <= i * 32 and i * 32 + 31 < n (vectorized 32: A[i * 32 + v]; else "
        "if i * 32 + 31 < 1 or n <= i * 32 (vectorized 32: 0; else vectorized 32: if_then_else"
    )


@pytest.mark.parametrize(
    ("body", "target", "expected"),
    [
        ("if i * 32 + v < n: C[v] = A[v]", AVX2,
         "if i * 32 + 31 < n (vectorized 32: A[v]; else serial 32: if i * 32 + v < n (A[v]))"),
        ("C[v] = " + ROW.format("v < 16"), AVX512,
         "vectorized 32: if_then_else(v < 16, A[i * 32 + v], 0)"),
        ("C[v] = " + ROW.format("v < n and v < 32"), AVX512,
         "if 31 < n (vectorized 32: A[i * 32 + v]; else if n <= 0 (vectorized 32: 0; "
         "else vectorized 32: if_then_else(v < n and v < 32, A[i * 32 + v], 0)))"),
        ("C[v] = " + ROW.format("A[v] < 1"), AVX2,
         "vectorized 32: if_then_else(A[v] < 1, A[i * 32 + v], 0)"),
        ("D[v] = " + ROW.format("i * 32 + v < n"), AVX2, "vectorized 32: " + MIXED),
        ("C[v] = A[T.Select(i * 32 + v < n, i * 32 + v, 0)]", AVX512,
         "if i * 32 + 31 < n (vectorized 32: A[i * 32 + v]; else if n <= i * 32 "
         "(vectorized 32: A[0]; else vectorized 32: A[select(i * 32 + v < n, i * 32 + v, 0)]))"),
        ("C[v] = " + ROW.format("v % 3 < n"), AVX512,
         "vectorized 32: if_then_else(v % 3 < n, A[i * 32 + v], 0)"),
    ],
)  # fmt: skip
def test_what_is_partitioned(body: str, target: Target, expected: str) -> None:
    """Not private memory, conditions on data, or those that lanes meet in turns."""
    assert lowered(body, target) == expected


def test_vectors_within_a_period() -> None:
    """A tiled array: few vectors reach from one copy into the next."""
    assert lowered("C[v] = A[(i * 32 + v) % n]", AVX512) == (
        "if i * 32 % max(n, 1) + 31 < n (vectorized 32: A[i * 32 % n + v]; "
        "else vectorized 32: A[(i * 32 + v) % n])"
    )
    same = "vectorized 32: A[(i * 32 + v) % 40 + v // 40]"
    assert lowered("C[v] = A[(i * 32 + v) % 40 + v // 40]", AVX512) == same


CONDITIONS = (
    "b * 32 + v < n", "n <= b * 32 + v", "3 <= b * 32 + v and b * 32 + v < n",
    "b * 32 + v < 5 or n < b * 32 + v", "not b * 32 + v < n", "n - v > b * 32",
    "(b * 32 + v) // 3 < n", "n * 2 - v * 2 >= b * 64",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_same_results(dtype: str, rng: np.random.Generator) -> None:
    places = "b * 32 + v", "99 - b * 32 - v"
    x, y = (f"A[{place}]" for place in places)
    values = [f"T.if_then_else({condition}, {x}, {y})" for condition in CONDITIONS]
    values += [f"A[T.Select({condition}, {', '.join(places)})]" for condition in CONDITIONS]
    texts = [
        f"""
def k{number}(a: T.handle, d: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (100,), "{dtype}")
    D = T.match_buffer(d, (n,), "{dtype}")
    C = T.match_buffer(c, (96,), "{dtype}")
    for b in range(3):
        for v in T.vectorized(32):
            if b * 32 + v < 90:
                C[b * 32 + v] = {value}
"""
        for number, value in enumerate(values)
    ]
    texts += [
        text.replace("A[b * 32 + v]", "D[(b * 32 + v) % n] + D[(b * 32 + v) // 70 % n]")
        .replace("def k", "def p").replace("in range(3)", "in range(T.min(n, 3))")
        for text in texts[: len(CONDITIONS)]
    ]  # fmt: skip
    guarded = texts[0].replace(CONDITIONS[0], "n > 0").replace("def k0", "def guarded")
    texts.append(guarded.replace("A[b * 32 + v]", "D[(b * 32 + v) % n]"))
    kernels = Kernels(parse_kernels(*texts))
    a = rng.integers(-99, 99, 100).astype(dtype)
    for n in (0, 1, 5, 31, 32, 33, 64, 70, 96, 200):
        arrays = [a, a[:n] if n <= 100 else np.resize(a, n), np.zeros(96, dtype)]
        for number in range(len(values)):
            kernels.agree(f"k{number}", arrays, n=n)
        for number in range(len(CONDITIONS)):
            kernels.agree(f"p{number}", arrays, n=n)
        kernels.agree("guarded", arrays, n=n)
