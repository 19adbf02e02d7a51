"""Flat loops over whole arrays: their indices cost no division and no row ends them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.join_indices import join_indices
from relaxlab.codegen.llvm.kernel import lower_loops
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.interpreter.interpreter import interpret
from tests.codegen.kernels import parse_kernels


def loads(index: str, shape: str = "n, m, k") -> list[str]:
    """The indices of a load after joining, the loop over f being fused from three."""
    func = parse_kernels(f"""
def kernel(a: T.handle, C: T.Buffer(("n * m * k",), "float32")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    A = T.match_buffer(a, ({shape},), "float32")
    for f in range(n * m * k):
        C[f] = A[{index}]
""")["kernel"]
    body = join_indices(lower_blocks(func.body)[0], symbols_in(func))
    found = [n for n in walk(body) if isinstance(n, BufferLoad)]
    return [str(i) for i in found[0].indices]


@pytest.mark.parametrize(
    ("index", "shape", "joined"),
    [
        ("f // k // m, f // k % m, f % k", "n, m, k", ["0", "0", "f"]),
        ("f // (m * k), f % (m * k) // k, f % (m * k) % k", "n, m, k", ["0", "0", "f"]),
        (
            "f // 500, (f % 500 * 64 + 5) // 250, (f * 64 + 5) % 250",
            "n, 128, 250",
            ["0", "0", "f * 64 + 5"],
        ),
        (
            "f // (k * 2), (f % (k * 2) * 64 + 5) // k, (f * 64 + 5) % k",
            "n, 128, k",
            ["0", "0", "f * 64 + 5"],
        ),
        ("(f + 3) // k, (f + 3) % k", "n * m, k", ["0", "f + 3"]),
        ("2, f // k, f % k", "n, m, k", ["2", "0", "f"]),  # dimensions before are kept apart
        ("f // m, f % m, 2", "n, m, k", ["0", "f", "2"]),
        ("f // k, f % k", "n * m, k + 1", None),  # rows are longer
        ("f // m, f % k", "n * m, k", None),
        ("f % k, f // k", "k, n * m", None),
        ("f // k % m, f % k", "n * m, k", None),  # does not get to the end
        ("f % k", "n * m * k", None),
    ],
)
def test_only_parts_of_one_index_are_joined(
    index: str, shape: str, joined: list[str] | None
) -> None:
    if joined is None:
        assert all(i not in ("0", "f") for i in loads(index, shape))
    else:
        assert loads(index, shape) == joined


CHAIN = """
@R.function
def main(x: R.Tensor(("n", "m", "k"), "{dtype}"), y: R.Tensor(("n", "m", "k"), "float32"),
         b: R.Tensor((), "float32")):
    t = R.add(R.multiply(R.astype(x, "float32"), y), b)
    return {result}
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("result", ["t", 'R.astype(t, "float16")', 'R.astype(t, "bool")'])
def test_elementwise_kernels_over_whole_arrays(
    dtype: str, result: str, rng: np.random.Generator
) -> None:
    mod = rl.parse(CHAIN.format(dtype=dtype, result=result))
    exe = rl.compile(mod, use_cache=False, threads=2)
    for shape in ((1, 1, 1), (2, 3, 5), (1, 7, 31), (4, 4, 16), (3, 1, 67), (0, 4, 3), (2, 3, 0)):
        x = (rng.standard_normal(shape) * 4).astype(numpy_dtype(dtype))
        args = [x, rng.standard_normal(shape).astype("float32"), np.array(0.5, "float32")]
        got, want = exe["main"](*args), interpret(mod, "main", *args)
        assert got.shape == want.shape
        np.testing.assert_allclose(
            np.asarray(got).astype("float32"), want.astype("float32"), rtol=2e-3, atol=2e-3
        )


def test_one_loop_without_divisions() -> None:
    mod = rl.parse(CHAIN.format(dtype="float32", result="t"))
    func = next(f for _, f in rl.trace(mod).result.items() if isinstance(f, PrimFunc))
    text = str(lower_loops(lower_blocks(func.body)[0], symbols_in(func)))
    assert "FloorMod" not in text
    assert len(re.findall("kind='parallel'", text)) == 1


def test_rows_that_are_repeated_keep_their_loop(rng: np.random.Generator) -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), b: R.Tensor(("m",), "float32")):
    t = R.add(x, b)
    return t
""")
    exe = rl.compile(mod, use_cache=False, threads=2)
    for n, m in ((1, 1), (5, 33), (3, 16), (0, 2), (2, 0)):
        x, b = rng.standard_normal((n, m), "float32"), rng.standard_normal(m, "float32")
        np.testing.assert_array_equal(exe["main"](x, b), x + b)


def test_indices_of_two_integer_types_stay_apart(rng: np.random.Generator) -> None:
    mod = rl.parse("""
@T.prim_func
def main(x: T.Buffer((4, 16), "float32"), ids: T.Buffer((4,), "int32"),
         y: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("y"):
            v = T.axis.spatial(64, i)
            y[v] = x[v % 4, ids[v // 16] % 16]
""")
    x, ids = rng.standard_normal((4, 16), "float32"), rng.integers(0, 99, 4, "int32")
    y = np.empty(64, np.float32)
    rl.compile(mod, use_cache=False)["main"](x, ids, y)
    at = np.arange(64)
    np.testing.assert_array_equal(y, x[at % 4, ids[at // 16] % 16])
