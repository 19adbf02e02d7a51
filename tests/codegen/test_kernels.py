"""LLVM IR of indices, masks, guards and lazy expressions."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.ir import loops
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from tests.codegen.kernels import Kernels, at_the_end_of_memory, module_text, parse_kernels

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects a page")


@cache
def compiled(*texts: str) -> Kernels:
    return Kernels(parse_kernels(*texts))


# --- Index vectors --------------------------------------------------------------------------------

# pattern of an index over i in [0, 4) and lane j in [0, 16): instructions that must not appear
LOADS = {
    "i * 16 + j": "gather shufflevector",
    "j + 16 * i + 3": "gather shufflevector",
    "(i * 4 + j // 4) * 4 + j % 4": "gather shufflevector",
    "i * 16 + 15 - j": "gather",
    "i * 16 + j // 2": "gather",
    "i * 16 + j % 4 * 4 + j // 4": "gather",
    "i * 16 + T.bitwise_xor(j, 5)": "gather",
    "i * 16 + T.min(j, 7)": "gather",
    "j * 2 + i": "gather",
    "i": "gather masked",
    "i * 16 + j // 16": "gather masked",
    "(i * 16 + j) // 4": "gather",
    "(i * 16 + j) % 16": "gather",
    "j * 60 + i": "",
    "(j + i) % 7": "",
    "(j + i) // 3": "",
    "IDX[i * 16 + j]": "",
    "IDX[j] + i": "",
    "IDX[i]": "gather",
    "T.Select(j < 3, j, i)": "",
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool", "bfloat16"])
@pytest.mark.parametrize("index", LOADS)
def test_loads(index: str, dtype: str) -> None:
    kernels = compiled(_load_kernel(index, dtype))
    rng = np.random.default_rng(3)
    from relaxlab.ir.dtypes import numpy_dtype

    a = rng.integers(0, 2 if dtype == "bool" else 100, 1000).astype(numpy_dtype(dtype))
    idx = rng.integers(0, 900, 64)
    kernels.agree("k", [a, idx, np.zeros(64, a.dtype)])
    body = kernels.kernels["k"].text
    for word in LOADS[index].split():
        if not (dtype == "bool" and word == "shufflevector"):
            assert word not in body, body


def _load_kernel(index: str, dtype: str) -> str:
    return f"""
def k(A: T.Buffer((1000,), "{dtype}"), IDX: T.Buffer((64,), "int64"), C: T.Buffer((64,), "{dtype}")):
    for i in range(4):
        for j in T.vectorized(16):
            C[i * 16 + j] = A[{index}]
"""  # noqa: E501


STORES = {
    "i * 16 + j": "scatter shufflevector",
    "i * 16 + 15 - j": "scatter",
    "i * 16 + j % 4 * 4 + j // 4": "scatter",
    "i * 16 + T.bitwise_xor(j, 9)": "scatter",
    "j * 4 + i": "",
    "j * 60 + i": "",
    "IDX[i * 16 + j]": "",
}


@pytest.mark.parametrize("index", STORES)
def test_stores(index: str) -> None:
    kernels = compiled(f"""
def k(A: T.Buffer((64,), "float32"), IDX: T.Buffer((64,), "int64"), C: T.Buffer((1000,), "float32")):
    for i in range(4):
        for j in T.vectorized(16):
            C[{index}] = A[i * 16 + j]
""")  # noqa: E501
    rng = np.random.default_rng(4)
    a = rng.normal(size=64).astype("float32")
    idx = rng.permutation(900)[:64]
    kernels.agree("k", [a, idx, np.zeros(1000, "float32")])
    for word in STORES[index].split():
        assert word not in kernels.kernels["k"].text


def test_symbolic_strides_and_several_dimensions() -> None:
    kernels = compiled("""
def k(A: T.Buffer(("n", 16, "m"), "float32"), C: T.Buffer(("m", "n", 16), "float32")):
    for x, y in T.grid(n, m):
        for j in T.vectorized(16):
            C[y, x, j] = A[x, j, y] + T.Cast("float32", x * m + j)
""")
    for n, m in ((3, 5), (1, 1), (0, 4), (2, 1)):
        a = np.arange(n * 16 * m, dtype="float32").reshape(n, 16, m)
        c = np.zeros((m, n, 16), "float32")
        kernels.agree("k", [a, c], n=n, m=m)
    # Only the lane numbers, which are the same for all x and y, are multiplied by `m` as vectors.
    lines = kernels.kernels["k"].text.splitlines()
    products = [line for line in lines if "= mul" in line and "<16 x i64>" in line]
    lanes = ", ".join(f"i64 {j}" for j in range(16))
    assert products and all(f"<{lanes}>" in line for line in products)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_indices_of_narrow_integers(dtype: str) -> None:
    """As they come out of arrays of indices: scalars, and a vector of them."""
    kernels = compiled(f"""
def k(p: T.Buffer((20,), "{dtype}"), a: T.Buffer((20, 3), "float32"),
      c: T.Buffer((20, 3), "float32")):
    for i in range(4):
        for j in T.vectorized(16):
            c[p[p[i]] + 1, 1] = a[p[i], 2]
            c[p[i + j], 0] = a[p[i + j] + 1, 2]
""")
    rng = np.random.default_rng(3)
    p = rng.permutation(19).astype(dtype)
    args = [np.append(p, p[:1]), rng.normal(size=(20, 3)), np.zeros((20, 3))]
    kernels.agree("k", [args[0], *(x.astype("float32") for x in args[1:])])


@pytest.mark.parametrize(
    ("index", "where"),
    [("v", "v < 1"), ("v - 3", "v == 3"), ("v - 7", "v >= 7 and v < 8"), ("0", "v == 15")],
)
def test_a_predicate_that_leaves_one_lane(index: str, where: str) -> None:
    kernels = compiled(f"""
def k(A: T.Buffer((16,), "float32"), C: T.Buffer((1,), "float32")):
    for v in T.vectorized(16):
        for k in range(16):
            with T.sblock("C"):
                vi = T.axis.spatial(1, {index})
                vk = T.axis.reduce(16, k)
                T.where({where})
                with T.init():
                    C[vi] = T.float32(5)
                C[vi] = C[vi] + A[vk]
""")
    kernels.agree("k", [np.arange(16, dtype="float32"), np.zeros(1, "float32")])


def test_lanes_that_collide_are_refused() -> None:
    with pytest.raises(CodegenError, match="16 lanes .* store into one element of 'C' in 'k'"):
        compiled("""
def k(A: T.Buffer((16,), "float32"), C: T.Buffer((1,), "float32")):
    for j in T.vectorized(16):
        C[0] = C[0] + A[j]
""")
    with pytest.raises(CodegenError, match="store into one element"):
        compiled("""
def k(A: T.Buffer((16,), "float32"), C: T.Buffer((8,), "float32")):
    for j in T.vectorized(16):
        C[j // 2] = A[j]
""")
    same = compiled("""
def k(A: T.Buffer((16,), "float32"), C: T.Buffer((1,), "float32")):
    for j in T.vectorized(16):
        C[0] = A[3]
""")
    same.agree("k", [np.arange(16, dtype="float32"), np.zeros(1, "float32")])


def test_vectorized_loops_inside_vectorized_loops_repeat() -> None:
    kernels = compiled("""
def k(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i in T.vectorized(8):
        for j in T.vectorized(8):
            C[j, i] = A[i, j]
""")
    kernels.agree("k", [np.arange(64, dtype="float32").reshape(8, 8), np.zeros((8, 8), "float32")])


# --- Tails ----------------------------------------------------------------------------------------

TAIL = """
def k(A: T.Buffer(("n",), "{d}"), C: T.Buffer(("n",), "{d}")):
    for i in range((n + {w} - 1) // {w}):
        for j in T.vectorized({w}):
            if i * {w} + j < n:
                C[i * {w} + j] = A[i * {w} + j] + A[i * {w} + j]
"""


@linux
@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [("float32", 16), ("int8", 64), ("float64", 8), ("float16", 32), ("int32", 3)],
)
def test_tails_touch_nothing_outside(dtype: str, lanes: int) -> None:
    kernels = compiled(TAIL.format(d=dtype, w=lanes))
    for n in (0, 1, 2, lanes - 1, lanes, lanes + 1, 2 * lanes - 1, 3 * lanes + lanes // 2):
        values = np.arange(n, dtype=dtype)
        with at_the_end_of_memory(values) as a, at_the_end_of_memory(values * 0) as c:
            assert kernels("k", [a, c], n=n) == 0
            np.testing.assert_array_equal(c, a + a)
        guarded = np.full(n + 128, 77, dtype)
        kernels("k", [values, guarded[64 : 64 + n]], n=n)
        assert (guarded[:64] == 77).all() and (guarded[64 + n :] == 77).all()


def test_conditions_with_both_sides_and_nesting() -> None:
    kernels = compiled("""
def k(A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32"), D: T.Buffer((128,), "int32")):
    for i in range(4):
        for j in T.vectorized(16):
            if A[i * 16 + j] > 3:
                C[i * 16 + j] = A[i * 16 + j]
                if A[i * 16 + j] > 6:
                    D[i * 16 + j] = C[i * 16 + j] + 1
                else:
                    D[64 + i * 16 + 15 - j] = 5
            else:
                C[i * 16 + j] = 0 - A[i * 16 + j]
""")
    rng = np.random.default_rng(8)
    zero, out = np.zeros(64, "int32"), np.zeros(128, "int32")
    for _ in range(5):
        values = rng.integers(0, 10, 64).astype("int32")
        kernels.agree("k", [values, zero, out])
    kernels.agree("k", [zero, zero, out])
    kernels.agree("k", [zero + 9, zero, out])


def test_uniform_conditions_of_vector_loops() -> None:
    kernels = compiled("""
def k(A: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")):
    for i in range(4):
        for j in T.vectorized(16):
            if i % 2 == 0:
                C[i * 16 + j] = A[i * 16 + j]
            for r in range(i):
                C[i * 16 + j] = C[i * 16 + j] + r
""")
    kernels.agree("k", [np.arange(64, dtype="int32"), np.zeros(64, "int32")])


# --- Lazy expressions -----------------------------------------------------------------------------


@linux
@pytest.mark.parametrize(
    "value",
    [
        "T.if_then_else(i * 16 + j < n, A[i * 16 + j], T.float32(-1))",
        "T.if_then_else(i * 16 + j >= n, T.float32(-1), A[i * 16 + j])",
        "T.if_then_else(i * 16 + j < n and j % 3 == 0, A[i * 16 + j], T.float32(2))",
        "T.if_then_else(i < n, A[i], T.float32(-1))",
        "T.if_then_else(i * 16 + j < n, A[i * 16], T.float32(-1))",
        "T.if_then_else(j + n < 0, A[i + j], T.float32(-1))",
        "T.if_then_else(i * 16 + j < n, A[T.Cast('int64', A[i * 16 + j])], T.float32(-1))",
        "T.if_then_else(j < 8, T.if_then_else(i * 16 + j < n, A[i * 16 + j], T.float32(1)), "
        "T.float32(2))",
        "T.if_then_else(i * 16 + j < n, A[i * 16 + j], T.if_then_else(i < n, A[i], T.float32(3)))",
        "T.if_then_else(i * 16 + j < n, A[n - 1 - (i * 16 + j)], T.float32(0)) + T.float32(1)",
    ],
)
def test_sides_not_taken_are_not_read(value: str) -> None:
    kernels = compiled(f"""
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer((64,), "float32")):
    for i in range(4):
        for j in T.vectorized(16):
            C[i * 16 + j] = {value}
""")
    for n in (0, 1, 15, 16, 17, 33, 64):
        with at_the_end_of_memory(np.arange(n, dtype="float32") % 16) as a:
            c, expected = np.zeros((2, 64), "float32")
            assert kernels("k", [a, c], n=n) == 0
            interpret_prim_func(_scalar(kernels), [a.copy(), expected])
            np.testing.assert_array_equal(c, expected, err_msg=f"n={n}")


def _scalar(kernels: Kernels) -> Any:
    """The same with a serial loop: the interpreter wants one condition for all lanes."""
    from relaxlab.ir.node import replace, rewrite

    def serial(n: Any) -> Any:
        return replace(n, kind="serial") if isinstance(n, loops.For) else None

    func = kernels.mod["k"]
    return replace(func, body=rewrite(func.body, serial))


def test_scalar_conditions_choose_a_branch() -> None:
    kernels = compiled("""
def k(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    for i in range(4):
        C[i] = T.if_then_else(B[i] != 0, A[i] // B[i], T.if_then_else(A[i] > 2, A[i], 0 - A[i]))
""")
    b = np.array([0, 2, 0, -3], "int32")
    got = kernels.agree("k", [np.array([5, 7, 1, 7], "int32"), b, np.zeros(4, "int32")])
    assert got[2].tolist() == [5, 3, -1, -3]


# --- Guards ---------------------------------------------------------------------------------------


def hoisted(text: str) -> tuple[Any, list[Any]]:
    """The loops with guards hoisted, and the conditions tested in them."""
    func = parse_kernels(text)["k"]
    body = hoist_guards(lower_blocks(func.body)[0])
    return body, [str(n.condition) for n in walk(body) if isinstance(n, loops.IfThenElse)]


GUARDED = """
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range((n + 7) // 8):
        for j in range(8):
            if i * 8 + j < n:
                C[i * 8 + j] = A[i * 8 + j] * T.float32(2)
"""


@pytest.mark.parametrize(
    ("extents", "tile", "length", "rest"),
    [("n * 3", "i % 3", 20, ["16 + j < 20"]), ("3", "i", 20, ["16 + j < 20"]),
     ("n * 3", "i % 3", 12, ["i % 3 * 8 + j < 12"])],
)  # fmt: skip
def test_only_the_last_tile_is_not_whole(
    extents: str, tile: str, length: int, rest: list[str]
) -> None:
    """A constant number of tiles; of the third example two are not whole."""
    text = f"""
def k(A: T.Buffer((24,), "float32"), C: T.Buffer(("n", 24), "float32")):
    for i in range({extents}):
        for j in range(8):
            if {tile} * 8 + j < {length}:
                C[i // 3, {tile} * 8 + j] += A[{tile} * 8 + j]
"""
    _, conditions = hoisted(text)
    assert conditions == [f"{tile} * 8 + 7 < {length}", *rest]
    a, c = np.arange(24, dtype="float32"), np.ones((4, 24), "float32")
    compiled(text).agree("k", [a, c], n=4)


def test_long_loops_without_guards_are_not_copied() -> None:
    text = """
def k(A: T.Buffer(("m",), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range((n + 7) // 8):
        with T.sblock("tile"):
            S = T.sblock_alloc_buffer((8,), "float32", scope="local")
            for j in T.unroll(8):
                S[j] = T.float32(0)
            for k in range(m):
                for j in T.unroll(8):
                    S[j] = S[j] + A[k]
            for j in T.unroll(8):
                if i * 8 + j < n:
                    C[i * 8 + j] = S[j]
"""
    body, conditions = hoisted(text)
    assert "i * 8 + 7 < n" in conditions
    sums = [n for n in walk(body) if isinstance(n, loops.For) and n.loop_var.name == "k"]
    assert len(sums) == 1
    kernels = compiled(text)
    for n in (0, 1, 8, 21):
        arrays = [np.arange(5, dtype="float32"), np.zeros(n, "float32")]
        got = kernels.agree("k", arrays, n=n, m=5)
        assert got[1].tolist() == [10] * n


def test_full_tiles_run_without_guards() -> None:
    body, conditions = hoisted(GUARDED)
    assert conditions == ["i * 8 + 7 < n", "i * 8 + j < n"] or len(conditions) == 2
    kernels = compiled(GUARDED)
    for n in (0, 1, 7, 8, 9, 24, 27):
        kernels.agree("k", [np.arange(n, dtype="float32"), np.zeros(n, "float32")], n=n)


def test_full_vectors_of_partial_reductions_have_no_masks() -> None:
    text = """
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer((16,), "float32")):
    for i in range((n + 15) // 16):
        for l in T.vectorized(16):
            C[l] = C[l] + T.if_then_else(i * 16 + l < n, A[i * 16 + l], T.float32(0))
"""
    _, conditions = hoisted(text)
    assert len(conditions) == 1
    kernels = compiled(text)
    for n in (0, 1, 15, 16, 17, 100):
        kernels.agree("k", [np.arange(n, dtype="float32"), np.zeros(16, "float32")], n=n)


@pytest.mark.parametrize("extent", ["(n + 31) // 32", "T.min(5, (n + 31) // 32)"])
def test_the_last_step_of_a_sum_is_taken_out_of_its_loop(extent: str) -> None:
    """Whole steps are not tested, and the last takes as many vectors as it needs."""
    text = f"""
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer((32,), "float32")):
    for i in range({extent}):
        for l in T.vectorized(32):
            C[l] = C[l] + T.if_then_else(i * 32 + l < n, A[i * 32 + l], T.float32(0))
"""
    body, _ = hoisted(text)
    found = [n for n in walk(body) if isinstance(n, loops.For) and n.kind == "serial"]
    assert len(found) == 1
    assert not any(isinstance(n, loops.IfThenElse) for n in walk(found[0]))
    vectors = [n.extent for n in walk(body) if isinstance(n, loops.For) and n.kind == "vectorized"]
    assert sorted(e.value for e in vectors) == [8, 16, 32, 32]
    kernels = compiled(text)
    for n in (0, 1, 8, 9, 16, 17, 31, 32, 33, 63, 64, 95, 160, 200):
        kernels.agree("k", [np.arange(n, dtype="float32"), np.ones(32, "float32")], n=n)


def test_a_loop_whose_extent_it_overwrites_keeps_its_last_step() -> None:
    text = """
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer((32,), "float32"), L: T.Buffer((1,), "int64")):
    for i in range(T.min(L[0], (n + 31) // 32)):
        for l in T.vectorized(32):
            C[l] = C[l] + T.if_then_else(i * 32 + l < n, A[i * 32 + l], T.float32(0))
        L[0] = T.int64(0)
"""
    body, _ = hoisted(text)
    assert isinstance(body, loops.For)
    kernels = compiled(text)
    for n in (1, 33, 70):
        arrays = [np.ones(n, "float32"), np.ones(32, "float32"), np.array([2])]
        kernels.agree("k", arrays, n=n)


def test_a_loop_with_several_partial_steps_stays() -> None:
    """Steps overlap: of eight each, at most two reach beyond the end."""
    text = """
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    for i in range((n + 3) // 4):
        for j in range(8):
            if i * 4 + j < n:
                C[i * 4 + j] = C[i * 4 + j] + A[i * 4 + j]
"""
    body, conditions = hoisted(text)
    assert isinstance(body, loops.For) and len(conditions) == 2
    kernels = compiled(text)
    for n in (0, 1, 4, 5, 11, 24):
        kernels.agree("k", [np.arange(n, dtype="float32"), np.zeros(n, "float32")], n=n)


@pytest.mark.parametrize(
    "condition",
    [
        "i * 8 + j < L[0]",  # the body changes L
        "L[i * 8 + j] < 20",
        "i * 8 - j < 20",  # falls with j
        "20 > i * 8 + j * -1",
        "T.max(i * 8 + j, 3) < 20",
        "(i * 8 + j) % 5 < 3",
        "i * 8 + j * j < 30",
    ],
)
def test_guards_that_must_stay(condition: str) -> None:
    text = f"""
def k(L: T.Buffer((64,), "int64"), C: T.Buffer((64,), "int64")):
    for i in range(8):
        for j in range(8):
            if {condition}:
                C[i * 8 + j] = C[i * 8 + j] + 1
                L[0] = 10
"""
    kernels = compiled(text)
    values = np.arange(64) % 40
    values[0] = 40
    kernels.agree("k", [values, np.zeros(64, "int64")])


def test_guards_on_bound_values_stay() -> None:
    kernels = compiled("""
def k(L: T.Buffer((8,), "int64"), C: T.Buffer((64,), "int64")):
    for i in range(8):
        for r in range(2):
            v: T.int64 = L[i] + r
            for j in range(8):
                if i * 8 + j + v < 40:
                    C[i * 8 + j] = C[i * 8 + j] + v
""")
    kernels.agree("k", [np.arange(8), np.zeros(64, "int64")])


# --- Other statements -----------------------------------------------------------------------------


def test_while_let_and_assert() -> None:
    kernels = compiled("""
def k(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    for i in range(8):
        v: T.int32 = A[i] * 2
        C[i] = 0
        while C[i] < v:
            C[i] = C[i] + 3
        assert C[i] >= v, "too small"
""")
    kernels.agree("k", [np.arange(8, dtype="int32"), np.zeros(8, "int32")])


def test_a_failed_assertion_stops_the_work() -> None:
    kernels = compiled("""
def k(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    for i in range(8):
        assert A[i] < 5, "first"
        C[i] = 1
    for i in range(8):
        assert A[i] < 50, "second"
        C[i] = 2
""")
    assert kernels.kernels["k"].failures == ("assertion failed: first", "assertion failed: second")
    c = np.zeros(8, "int32")
    assert kernels("k", [np.arange(8, dtype="int32"), c]) == 1
    assert c.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert kernels("k", [np.zeros(8, "int32"), c]) == 0 and c.tolist() == [2] * 8


def test_kernels_that_cannot_fail_return_nothing() -> None:
    text, kernels = module_text(parse_kernels(GUARDED))
    assert kernels["k"].failures == () and "define void @rl.k(" in text


def test_private_memory_and_views() -> None:
    kernels = compiled("""
def k(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    with T.block("root"):
        acc = T.alloc_buffer((8,), "float32", scope="local")
        for i in range(8):
            for j in T.vectorized(8):
                with T.block("sum"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    acc[vj] = A[vi, vj] + T.float32(1)
            with T.block("o"):
                vi = T.axis.spatial(8, i)
                row = T.match_buffer(C[vi, 0:8], (8,), "float32")
                for j in range(8):
                    row[j] = acc[7 - j]
""")
    values = np.arange(64, dtype="float32").reshape(8, 8)
    kernels.agree("k", [values, np.zeros((8, 8), "float32")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C[i] = q", "variable 'q' is not defined|q"),
        ("C[i] = T.call_llvm_pure_intrin('float32', 'llvm.nonsense', T.uint32(1), A[i])",
         "LLVM has no intrinsic 'llvm.nonsense'"),
    ],
)  # fmt: skip
def test_meaningless_programs(text: str, message: str) -> None:
    from relaxlab.ir.diagnostics import DiagnosticError

    with pytest.raises((CodegenError, DiagnosticError), match=message):
        compiled(f"""
def k(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        {text}
""")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in T.thread_binding(16, thread='threadIdx.x'):\n        C[i] = A[i]",
         "a thread_binding loop cannot run on a CPU"),
        ("for i in T.vectorized(n):\n        C[i] = A[i]",
         "vectorized loop 'i' of 'k' has extent n; split it by a constant"),
        ("acc = T.alloc_buffer((16,), 'float32')\n    for i in range(16):\n"
         "        acc[i] = A[i]\n        C[i] = acc[i]", "main memory where loops run"),
        ("acc = T.alloc_buffer((n,), 'float32', scope='local')\n    for i in range(16):\n"
         "        acc[i] = A[i]\n        C[i] = acc[i]", "which is not constant"),
        ("acc = T.alloc_buffer((1000000,), 'float32', scope='local')\n    for i in range(16):\n"
         "        acc[i] = A[i]\n        C[i] = acc[i]", "4000000 bytes of stack.*scope 'global'"),
        ("acc = T.alloc_buffer((16,), 'float32', scope='local')\n    for i in T.parallel(16):\n"
         "        acc[i] = A[i]\n    for i in T.parallel(16):\n        C[i] = acc[i]",
         "private buffer 'acc' of 'k' is used by more than one thread"),
    ],
)  # fmt: skip
def test_refused_with_a_reason(body: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        compiled(f"""
def k(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    {body}
""")


@pytest.mark.parametrize(
    "declared",
    ["strides=(8, 1)", "strides=(1, 4)", "elem_offset=3", "strides=(4, 2)"],
)
def test_parameters_are_dense(declared: str) -> None:
    text = """
def k(A: T.Buffer((4, 4), "float32", {}), C: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        C[i, j] = A[i, j]
"""
    with pytest.raises(CodegenError, match="parameter 'A' of 'k' is declared with strides or an"):
        compiled(text.format(declared))
    dense = compiled(text.format("strides=(4, 1), elem_offset=0"))
    dense.agree("k", [np.arange(16, dtype="float32").reshape(4, 4), np.zeros((4, 4), "float32")])


def test_nothing_is_stored_into_an_empty_buffer() -> None:
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor((1, 5, 5), "float16"), w: R.Tensor((4,), "float16")):\n'
        "    with R.dataflow():\n"
        "        a = R.strided_slice(x, axes=[0, 1], begin=[1, 0], end=[1, 5], strides=[1, 2])\n"
        '        y = R.einsum((a, w), "abc,g->ag")\n        R.output(y)\n    return y\n'
    )
    args = np.ones((1, 5, 5), "float16"), np.ones(4, "float16")
    assert rl.compile(mod)["main"](*args).shape == (0, 4)
