"""Copies that read across rows are turned in registers, and copy the same elements."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.transpose_gathers import transpose_gathers
from relaxlab.ir import expr
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import BlockRealize, PrimFunc
from relaxlab.ir.node import replace, walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from tests.codegen.kernels import Kernels, parse_kernels


def kernel(dtype: str, lanes: int, rows: int | str, load: str = "A[c, r]") -> str:
    """A loop function that copies a transposed tile to private memory, and that to its result."""
    return f"""
def kernel(A: T.Buffer((64, 48), "{dtype}"), b: T.handle):
    n = T.int64()
    B = T.match_buffer(b, (n, {lanes}), "{dtype}")
    with T.sblock("copy"):
        D = T.alloc_buffer((48, {lanes}), "{dtype}", scope="local")
        for r in range({rows}):
            for c in T.vectorized({lanes}):
                D[r, c] = {load}
        for r in range(n):
            for c in range({lanes}):
                B[r, c] = D[r, c]
"""


def turned(text: str) -> PrimFunc:
    func = parse_kernels(text)["kernel"]
    assert isinstance(func, PrimFunc) and isinstance(func.body, BlockRealize)
    block = replace(func.body.block, body=transpose_gathers(func.body.block.body))
    return replace(func, body=replace(func.body, block=block))


def shuffles(func: PrimFunc) -> int:
    return sum(isinstance(n, expr.Call) and n.op == "vector_shuffle" for n in walk(func))


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "lanes, rows", [(16, 16), (64, 37), (8, 48), (4, 7), (24, "n"), (16, "n - 4")]
)
def test_same_elements(dtype: str, lanes: int, rows: int | str, rng: np.random.Generator) -> None:
    text = kernel(dtype, lanes, rows)
    func = turned(text)
    # Rows that squares of one side leave are in squares of the next; of how many, a symbol decides.
    sides, left = list[int](), rows
    for side in (16, 8, 4):
        if lanes % side == 0 and (isinstance(left, str) or left >= side):
            sides.append(side)
            left = left if isinstance(left, str) else left % side
    assert shuffles(func) == sum(lanes * (side.bit_length() - 1) for side in sides)
    native = Kernels(parse_kernels(text))
    a = rng.integers(0, 2 if dtype == "bool" else 100, (64, 48)).astype(numpy_dtype(dtype))
    for n in (48, 17, 3) if isinstance(rows, str) else (rows,):
        count = {"n": n, "n - 4": max(n - 4, 0)}.get(str(rows), n)
        for run in (partial(interpret_prim_func, func), partial(native, "kernel", n=n)):
            result = np.zeros((n, lanes), a.dtype)
            run([a, result])
            np.testing.assert_array_equal(result[:count], a[:lanes, :count].T)


@pytest.mark.parametrize(
    "load", ["A[r, c]", "A[c, r // 2]", "A[c, 47 - r]", "A[c, r] + A[c, 0]", "A[r, r + c]"]
)
def test_what_is_left_alone(load: str) -> None:
    """Loads without neighbours along the rows, or contiguous ones, and more than copies."""
    assert shuffles(turned(kernel("float32", 16, 16, load))) == 0


def test_transposes_and_products_have_no_gathers() -> None:
    """Kernels with whole squares shuffle vectors, with constant and with symbolic extents."""
    for text in (
        'x: R.Tensor(("n", "m"), "float32")):\n    return R.permute_dims(x)',
        'x: R.Tensor(("n", 64), "float32"), w: R.Tensor((128, 64), "float32")):\n'
        "    return R.linear(x, w)",
    ):
        mod = rl.parse("@R.function\ndef main(" + text)
        code = str(rl.compile(mod, use_cache=False, threads=1).llvm())
        assert "shufflevector <16 x float>" in code or "shufflevector <8 x float>" in code
