"""Buffers that programs see in another way: bytes as elements, one element by the buffer's name."""

from __future__ import annotations

import textwrap
from typing import cast

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func


def function(params: str, body: str) -> PrimFunc:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return cast("PrimFunc", rl.parse(f"@T.prim_func\ndef main({params}):\n{lines}\n")["main"])


ARRAYS = 'A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")'


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("vectors", [False, True])
def test_bytes_are_seen_as_elements(dtype: str, vectors: bool, rng: np.random.Generator) -> None:
    """Views of several dtypes in one piece of memory, element by element and as vectors."""
    at = ("i * 4:i * 4 + 4", 4) if vectors else ("i", 16)
    func = function(
        f'A: T.Buffer((16,), "{dtype}"), B: T.Buffer((16,), "{dtype}"), '
        'C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")',
        f"""
        pool = T.alloc_buffer((256,), "uint8", layout=None)
        X = T.decl_buffer((4, 4), "{dtype}", data=pool.data, elem_offset=8)
        Y = T.decl_buffer((16,), "float32", data=T.address_of(pool[192]))
        W = pool.view("{dtype}")
        for i in range({at[1]}):
            W[8 + {at[0].replace(":", ":8 + ")}] = A[{at[0]}]
        for i in range(16):
            Y[i] = C[i]
        for i in range(16):
            B[i] = X[i // 4, i % 4]
            D[i] = Y[15 - i]
        """,
    )  # fmt: skip
    x = (rng.standard_normal(16) * 50 + 100).astype(dtype)
    z = rng.standard_normal(16).astype("float32")
    for f in (func, cast("PrimFunc", rl.parse(func.script())["main"])):
        y, w = np.zeros_like(x), np.zeros_like(z)
        interpret_prim_func(f, [x, y, z, w])
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(w, z[::-1])


def test_parts_of_elements_are_not_seen() -> None:
    with pytest.raises(DiagnosticError, match="A holds float32 and cannot be seen as int8"):
        function(ARRAYS, 'C = T.decl_buffer((64,), "int8", data=A.data)\nB[0] = A[0]')
    with pytest.raises(DiagnosticError, match="A holds float32 and cannot be seen as float16"):
        function(ARRAYS, 'C = A.view("float16")\nB[0] = A[0]')


VIEWS = {
    "bits of floats": (
        '(16,), "int32"', "for i in range(16):\n    V[i] = T.reinterpret('int32', A[i])",
    ),
    "vectors": ('(4,), "float32x4"', "for i in range(4):\n    V[i] = A[i * 4:i * 4 + 4]"),
    "pairs of floats": (
        '(8,), "int64"',
        "for i in range(8):\n    V[i] = T.reinterpret('int64', A[i * 2:i * 2 + 2])",
    ),
    "columns": (
        '(4, 4), "float32", strides=(1, 4)',
        "for i, j in T.grid(4, 4):\n    V[i, j] = A[i * 4 + j]",
    ),
    "every third": (
        '(5,), "float32", strides=(3,), elem_offset=1', "for i in range(5):\n    V[i] = A[i]",
    ),
    "rows of a part": (
        '(2, 6), "float32", strides=(8, 1), elem_offset=2',
        "for i in range(2):\n    V[i, 0:6] = A[i * 6:i * 6 + 6]",
    ),
}  # fmt: skip


def _expected(name: str, x: Array) -> Array:
    out = np.zeros_like(x)
    match name:
        case "columns":
            return x.reshape(4, 4).T.reshape(16)
        case "every third":
            out[1:16:3] = x[:5]
        case "rows of a part":
            out.reshape(2, 8)[:, 2:] = x[:12].reshape(2, 6)
        case _:
            return x
    return out


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("rank", [1, 2])
def test_elements_are_seen_in_other_ways(name: str, rank: int, rng: np.random.Generator) -> None:
    """Stores through a view of another dtype, or with strides, change the buffer behind it."""
    declared, body = VIEWS[name]
    shape = (16,) if rank == 1 else (4, 4)
    func = function(
        f'A: T.Buffer((16,), "float32"), B: T.Buffer({shape}, "float32")',
        f"p: T.let[T.handle] = B.data\nV = T.decl_buffer({declared}, data=p)\n{body}",
    )
    x = rng.standard_normal(16).astype("float32")
    for f in (func, cast("PrimFunc", rl.parse(func.script())["main"])):
        y = np.zeros(shape, "float32")
        interpret_prim_func(f, [x, y])
        np.testing.assert_array_equal(y.reshape(16), _expected(name, x))


def run(func: PrimFunc, *arrays: Array) -> None:
    interpret_prim_func(func, arrays)


def test_the_name_of_a_buffer_of_one_element_is_the_element() -> None:
    params = 'N: T.Buffer((1,), "int32"), X: T.Buffer((1,), "float32"), ' + ARRAYS
    short = function(
        params,
        """
        N = N + 1
        N += 2
        for i in range(N):
            B[i] = X * A[N - 1 - i]
        X = 3
        """,
    )
    long = function(
        params,
        """
        N[0] = N[0] + 1
        N[0] += 2
        for i in range(N[0]):
            B[i] = X[0] * A[N[0] - 1 - i]
        X[0] = 3
        """,
    )
    assert_structural_equal(short, long)
    n, x = np.array([4], "int32"), np.array([2], "float32")
    a, b = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    run(short, n, x, a, b)
    np.testing.assert_array_equal(b[:7], 2 * a[6::-1])
    assert n[0] == 7 and x[0] == 3


def test_another_buffer_may_have_the_name() -> None:
    func = function(
        'N: T.Buffer((1,), "float32")',
        """
        N = T.alloc_buffer((2,), "float32")
        N[1] = T.float32(1)
        """,
    )
    value = np.zeros(1, "float32")
    run(func, value)
    assert value[0] == 0


def test_the_memory_of_a_buffer_with_longer_rows_is_seen(rng: np.random.Generator) -> None:
    func = function(
        'A: T.Buffer((3, 4), "float32", strides=(6, 1)), B: T.Buffer((3, 4), "float32")',
        """
M = T.decl_buffer((18,), "float32", data=A.data)
for i, j in T.grid(3, 4):
    B[i, j] = M[i * 6 + j] + M[i * 6]
""",
    )
    memory = rng.standard_normal((3, 6)).astype("float32")
    rows, out = memory[:, :4], np.zeros((3, 4), "float32")
    run(func, rows, out)
    np.testing.assert_array_equal(out, rows + rows[:, :1])


def test_strides_that_are_no_rows_have_one_shape() -> None:
    with pytest.raises(DiagnosticError, match="strides that are not those of rows"):
        function(
            'A: T.Buffer((3, 4), "float32", strides=(1, 3))',
            '\nM = T.decl_buffer((12,), "float32", data=A.data)\nM[0] = T.float32(1)\n',
        )
