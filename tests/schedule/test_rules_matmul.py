"""Float products with every kind of right operand, compiled, against NumPy."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import loops
from relaxlab.ir.expr import Var
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.rules import decisions
from relaxlab.schedule.rules.base import constant
from relaxlab.schedule.rules.few_rows import in_place_bytes
from relaxlab.schedule.rules.matmul import panel_bytes

FACTS = rl.Target.host().facts
# The rule's defaults: columns are a multiple of eight vectors.
VECTORS, TILE_ROWS = (4, 6) if FACTS.vector_registers == 32 else (2, 6)
IN_PLACE_ROWS, SPLIT_K = 16, 16
BLOCK_DEPTH, BLOCK_TILES = 128, 16
BLOCK_COLUMNS = decisions.BLOCK_COLUMNS.candidates

HEAD = """
@R.function
"""
PLAIN = """
def main(x: R.Tensor(("m", K), "float32"), w: R.Tensor((K, N), "float32")):
    with R.dataflow():
        y = R.matmul(x, w)
        R.output(y)
    return y
"""
TRANSPOSED = """
def main(x: R.Tensor(("m", K), "float32"), w: R.Tensor((N, K), "float32")):
    with R.dataflow():
        y = R.linear(x, w)
        R.output(y)
    return y
"""
BACKWARD = """
def main(x: R.Tensor((K, "m"), "float32"), w: R.Tensor((K, N), "float32")):
    with R.dataflow():
        y = R.matmul(R.permute_dims(x), w)
        R.output(y)
    return y
"""
BATCHED = """
def main(x: R.Tensor(("b", "m", K), "float32"), w: R.Tensor(("b", K, N), "float32")):
    with R.dataflow():
        y = R.nn.relu(R.matmul(x, w))
        R.output(y)
    return y
"""
BIASED = """
def main(x: R.Tensor(("m", K), "float32"), w: R.Tensor((K, N), "float32"),
         b: R.Tensor((N,), "float32")):
    with R.dataflow():
        y = R.add(R.matmul(x, w), b)
        R.output(y)
    return y
"""
WEIGHT = PLAIN.replace("    with", "    R.func_attr({'num_input': 1})\n    with", 1)
ROWS = (0, 1, 2, 4, 5, 6, 7, 12, 13, 25)


def program(body: str, n: int, k: int) -> rl.Module:
    return rl.parse(re.sub(r"\b[NK]\b", lambda name: str({"N": n, "K": k}[name[0]]), HEAD + body))


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def locals_of(mod: rl.Module, target: rl.Target | None = None) -> list[tuple[int, ...]]:
    """The shapes of the private buffers of the one kernel, which the rule must have scheduled."""
    trace = rl.trace(mod, target or rl.Target.host())
    reasons = [r.reason for p in trace.passes for r in p.remarks]
    assert "scheduled by the rule matmul" in reasons
    kernels = trace.result.loop_functions().items()
    product = next(f for name, f in kernels if name.endswith(("matmul", "linear")))
    blocks = (n for n in walk(product.body) if isinstance(n, loops.Block))
    buffers = (x for b in blocks for x in b.alloc_buffers if x.scope == "local")
    return [tuple(constant(d) or 0 for d in x.shape) for x in buffers]


@pytest.mark.parametrize("n, k", [(1, 1), (17, 9), (48, 33), (64, 7), (256, 140)])
@pytest.mark.parametrize("body", [PLAIN, TRANSPOSED, WEIGHT], ids=["plain", "transposed", "weight"])
def test_all_numbers_of_rows(body: str, n: int, k: int) -> None:
    mod = program(body, n, k)
    exe = rl.compile(mod, threads=2, use_cache=False)
    w = draw(1, *((n, k) if body is TRANSPOSED else (k, n)))
    packed = "main_transform_params" in list(exe)
    (given,) = exe["main_transform_params"]((w,)) if packed else (w,)
    for m in ROWS:
        x = draw(m, m, k)
        want = x @ (w.T if body is TRANSPOSED else w)
        np.testing.assert_allclose(np.asarray(exe["main"](x, given)), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_slices_of_matrices_are_copied_as_whole_ones_are(transposed: bool) -> None:
    slices = [
        f"R.strided_slice({name}, axes=[0, 1], begin=[{i}, {j}], end=[{i + rows}, {j + columns}])"
        for name, i, j, rows, columns in (("w", 5, 3, 40, 24), ("w", 2, 7, 24, 40))
    ]
    right = f"R.permute_dims({slices[0]})" if transposed else slices[1]
    body = PLAIN.replace("R.matmul(x, w)", f"R.matmul(x, {right})").replace("(K, N)", "(50, 50)")
    mod = program(body, 40, 24)
    locals_of(mod)
    exe, w = rl.compile(mod, use_cache=False), draw(1, 50, 50)
    sliced = w[5:45, 3:27].T if transposed else w[2:26, 7:47]
    for m in ROWS:
        x = draw(m, m, 24)
        got = np.asarray(exe["main"](x, w))
        np.testing.assert_allclose(got, x @ sliced, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("columns, vectors", [(5, 1), (24, 3), (40, 3), (50, 2), (500, 3)])
def test_panels_of_odd_widths_leave_few_lanes_empty(columns: int, vectors: int) -> None:
    """Tiles of AVX2, where none is wider than three vectors of eight; a single one is slow."""
    avx2 = rl.Target("cpu", "x86_64-unknown-linux-gnu", "haswell", frozenset({"avx2", "fma"}))
    assert (12 // max(vectors, 2), vectors * 8) in locals_of(program(PLAIN, columns, 600), avx2)


@pytest.mark.parametrize("body", [PLAIN, TRANSPOSED, BACKWARD, BATCHED])
@pytest.mark.parametrize("n, k", [(1, 7), (17, 64), (50, 33), (64, 1030)])
def test_products_of_float64(body: str, n: int, k: int) -> None:
    """The same tiles, of half as many columns; sums are as precise as the dtype."""
    exe = rl.compile(program(body.replace("float32", "float64"), n, k), use_cache=False)
    for m in (1, 3, 16, 40):
        x, w = (np.random.default_rng(m).standard_normal(s) for s in ((m, k), (k, n)))
        if body is BATCHED:
            got, want = exe["main"](x[None], w[None]), np.maximum(x @ w, 0)[None]
        else:
            args = (x.T if body is BACKWARD else x, w.T if body is TRANSPOSED else w)
            got, want = exe["main"](*map(np.ascontiguousarray, args)), x @ w
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n, k", [(16, 8), (40, 64), (128, 299)])
def test_batches(n: int, k: int) -> None:
    exe = rl.compile(program(BATCHED, n, k), threads=2, use_cache=False)
    for b, m in [(1, 1), (3, 1), (2, 3), (3, 7), (1, 14), (2, 0)]:
        x, w = draw(b, b, m, k), draw(m, b, k, n)
        want = np.maximum(x @ w, 0)
        np.testing.assert_allclose(np.asarray(exe["main"](x, w)), want, rtol=2e-5, atol=2e-5)


def test_copied_panels() -> None:
    """Panels of a large matrix that is no weight, except for few rows; tiles of 24 sums, beside
    weights of 16."""
    lanes = rl.Target.host().lanes("float32")
    n, k, tile = 8 * lanes, in_place_bytes(FACTS) // (32 * lanes), (TILE_ROWS, VECTORS * lanes)
    few, single = (IN_PLACE_ROWS, n), (1, lanes)  # the total of partial sums
    assert locals_of(program(PLAIN, n, k)) == [(1, n), few, tile]
    assert locals_of(program(PLAIN, n, k + 1)) == [single, few, (k + 1, VECTORS * lanes), tile]
    packed = min(TILE_ROWS, 16 // VECTORS), VECTORS * lanes
    assert locals_of(program(WEIGHT, n, k + 1)) == [(1, 4 * lanes), packed]
    assert locals_of(program(TRANSPOSED, n, 32))[-2:] == [(32, VECTORS * lanes), tile]


def test_small_matrices_are_copied_beside_transposed_rows() -> None:
    lanes = rl.Target.host().lanes("float32")
    panel, one = (64, VECTORS * lanes), min(4, FACTS.vector_registers // 4 - 1) * lanes
    assert panel in locals_of(program(BACKWARD, 8 * lanes, 64))
    assert panel not in locals_of(program(PLAIN, 8 * lanes, 64))
    assert panel not in locals_of(program(BACKWARD, one, 64))  # whole rows are read


def test_few_symbolic_columns_have_panels_of_one_or_two_vectors() -> None:
    """Of two in batches; with 16 registers, whose widest panels waste two vectors at most, none."""
    lanes = rl.Target.host().lanes("float32")
    batched = BATCHED.replace("R.nn.relu(R.matmul(x, w))", "R.matmul(x, w)").replace("N", '"n"')
    shapes = {(*buffer[-2:],) for buffer in locals_of(program(batched, 0, 64))}
    plain = locals_of(program(PLAIN.replace("N", '"n"'), 0, 64))
    if FACTS.vector_registers == 32:
        assert (64, 2 * lanes) in shapes and (64, lanes) not in shapes
        assert (64, lanes) in plain
        return
    for found in (shapes, plain):
        assert (64, 3 * lanes) in found
        assert (64, lanes) not in found and (64, 2 * lanes) not in found


def test_few_rows_by_a_transposed_matrix_are_tiles_of_dot_products() -> None:
    """Each vector of the matrix is loaded once for all rows of a tile; any depth and columns."""
    lanes = rl.Target.host().lanes("float32")
    rows = FACTS.vector_registers // 8
    assert (rows, 4, lanes) in locals_of(program(TRANSPOSED, 48, 64))
    exe = rl.compile(program(TRANSPOSED.replace("(N, K)", '("n", "k")').replace("K", '"k"'), 0, 0))
    for m, n, k in ((2, 1, 1), (3, 5, 17), (5, 70, 33), (32, 65, 64), (4, 9, 0), (0, 70, 3)):
        x, w = draw(m, m, k), draw(k, n, k)
        np.testing.assert_allclose(np.asarray(exe["main"](x, w)), x @ w.T, rtol=2e-5, atol=2e-5)


def test_deep_products_keep_wide_tiles() -> None:
    """Panels too deep for the stack are copied in blocks of the depth, the rows beside them."""
    lanes = rl.Target.host().lanes("float32")
    n, deep = 8 * lanes, panel_bytes(FACTS) // (4 * VECTORS * lanes)  # the panel just fits
    assert locals_of(program(WEIGHT, n, deep + 1))[0] == (1, 4 * lanes)
    assert locals_of(program(PLAIN, n, deep))[2:] == [
        (deep, VECTORS * lanes), (TILE_ROWS, VECTORS * lanes)
    ]  # fmt: skip
    tall, panel = BLOCK_TILES * 3 * FACTS.vector_registers // 8, (BLOCK_DEPTH, 2 * lanes)
    room = panel_bytes(FACTS) // (4 * tall) - BLOCK_DEPTH
    fitting = [c for c in BLOCK_COLUMNS if c <= room]
    block = (tall, min(max(fitting, default=min(BLOCK_COLUMNS)), n))
    assert locals_of(program(PLAIN, n, deep + 1))[2:] == [block, (tall, BLOCK_DEPTH), panel]
    assert locals_of(program(BACKWARD, n, 600))[2:] == [block, (BLOCK_DEPTH, tall), panel]


def test_few_rows_by_few_symbolic_columns_have_one_vector_of_sums() -> None:
    lanes = rl.Target.host().lanes("float32")
    narrow = program(PLAIN.replace('"m"', "8").replace("K, N", 'K, "n"'), 0, 9)
    assert locals_of(narrow) == [(8, lanes), (8, 32 * lanes)]


@pytest.mark.parametrize(("rows", "unrolled"), [('"m"', 0), ("3", 1), ("8", 1), ("9", 0)])
def test_few_rows_are_unrolled_if_known(rows: str, unrolled: int) -> None:
    """Unrolled rows of a symbolic number would each have a guard, in versions of 20,000 lines."""
    body = PLAIN.replace('"m"', rows).replace("K, N", '"k", "n"').replace("K", '"k"')
    record = rl.trace(rl.parse(HEAD + body)).find("schedule_kernels")
    (kernel,) = record.after.loop_functions().values()
    # Two versions, of one vector of columns and of more, sum in eight unrolled steps.
    nests = [n for n in walk(kernel.body) if isinstance(n, loops.For)]
    steps = [n for n in nests if n.kind == "unrolled" and constant(n.extent) == 8]
    around = [n for n in nests if isinstance(n.body, loops.For) and n.body in steps]
    several = [n.kind for n in around if constant(n.extent) != 1]
    assert several and several.count("unrolled") == 2 * unrolled


def test_sums_of_narrow_products_stay_in_registers() -> None:
    """Versions that read the matrix in place, by vectors that may be masked: these are loaded for
    all unrolled steps at once, beside the sums."""
    mod = rl.parse(HEAD + PLAIN.replace('"m"', "40").replace("K, N", 'K, "n"').replace("K", "64"))
    scheduled = next(p.after for p in rl.trace(mod).passes if p.name == "schedule_kernels")
    (kernel,) = scheduled.loop_functions().values()
    matrix, registers = kernel.params[1], FACTS.vector_registers
    nest = {n.loop_var: n for n in walk(kernel.body) if isinstance(n, loops.For)}
    tiles = 0
    for realize in (n for n in walk(kernel.body) if isinstance(n, loops.BlockRealize)):
        block = realize.block
        reads = any(r.buffer is matrix for r in block.reads)
        if reads and [it.kind for it in block.iter_vars] == ["spatial", "spatial", "reduce"]:
            unrolled = [
                prod(
                    constant(nest[v].extent) or 1
                    for v in symbols_in(value)
                    if v in nest and nest[v].kind == "unrolled"
                )
                for value in realize.iter_values
            ]
            rows, vectors, steps = unrolled
            tiles += rows > 1
            assert (rows + steps) * vectors <= registers
    assert tiles


SYMBOL_COLUMNS = PLAIN.replace("(K, N)", '(K, "n")')
SYMBOL_DEPTH = PLAIN.replace("K", '"k"')
SINGLE_ROWS = {
    "plain": PLAIN, "bias": BIASED, "columns": SYMBOL_COLUMNS, "depth": SYMBOL_DEPTH,
    "all": SYMBOL_COLUMNS.replace("K", '"k"'),
}  # fmt: skip


@pytest.mark.parametrize("depth", [512, 523])
@pytest.mark.parametrize("body", SINGLE_ROWS.values(), ids=SINGLE_ROWS)
def test_a_single_row_shares_the_depth(body: str, depth: int) -> None:
    """Also a depth, or a number of columns, that is a symbol or divides into no whole steps."""
    mod = program(body, 80, depth)
    (func,) = rl.trace(mod).result.loop_functions().values()
    assert [str(b.shape[0]) for b in func.buffers][-1] == str(SPLIT_K)
    results = []
    for threads in (1, 2, 3):
        exe = rl.compile(mod, threads=threads)
        for m in (1, 2, 5):
            x, w, b = draw(m, m, depth), draw(1, depth, 80), draw(2, 80)
            args = (x, w, b) if body is BIASED else (x, w)
            want = x.astype("float64") @ w + (b if body is BIASED else 0)
            got = exe["main"](*args)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            if m == 1:
                results.append(got)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


SYMBOLIC = """
def main(x: R.Tensor((N, K), "float32"), w: R.Tensor((K, M), "float32")):
    with R.dataflow():
        y = R.add(R.matmul(x, w), R.const(1.0, "float32"))
        R.output(y)
    return y
"""
SYMBOLIC_TRANSPOSED = """
def main(x: R.Tensor((N, K), "float32"), w: R.Tensor((M, K), "float32")):
    with R.dataflow():
        y = R.add(R.linear(x, w), R.const(1.0, "float32"))
        R.output(y)
    return y
"""
SYMBOLIC_BACKWARD = """
def main(x: R.Tensor((K, N), "float32"), w: R.Tensor((K, M), "float32")):
    with R.dataflow():
        y = R.add(R.matmul(R.permute_dims(x), w), R.const(1.0, "float32"))
        R.output(y)
    return y
"""
BODIES = {"plain": SYMBOLIC, "transposed": SYMBOLIC_TRANSPOSED, "backward": SYMBOLIC_BACKWARD}
SIZES = (
    (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 130, 70), (5, 7, 9), (16, 33, 520),
    (7, 300, 15), (20, 8, 17), (19, 2100, 64), (23, 37, 65), (40, 64, 130), (13, 9000, 50),
    (50, 4100, 70), (110, 300, 200),
)  # fmt: skip
"""Rows, depth, columns: empty, single, narrow, tails of panels, deeper than panels on the stack."""


SYMBOLS = ("m", "k", "n m", "k m", "n k m")
FIXED = {"n": 23, "k": 37, "m": 65}


def symbolic(body: str, symbols: str) -> rl.Module:
    """A product whose extents are `symbols` and, for the others, the sizes in `FIXED`."""
    dims = {name: f'"{name}"' if name in symbols else str(size) for name, size in FIXED.items()}
    return rl.parse(re.sub(r"\b[NKM]\b", lambda name: dims[name[0].lower()], HEAD + body))


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_symbols_in_all_places(body: str, symbols: str) -> None:
    mod = symbolic(body, symbols)
    reasons = [r.reason for p in rl.trace(mod).passes for r in p.remarks]
    assert "scheduled by the rule matmul" in reasons
    exe = rl.compile(mod, threads=2, use_cache=False)
    for sizes in SIZES:
        given = zip(FIXED.items(), sizes, strict=True)
        n, k, m = (size if name in symbols else known for (name, known), size in given)
        x, w = draw(1, n, k), draw(2, *((m, k) if body is SYMBOLIC_TRANSPOSED else (k, m)))
        want = x.astype("float64") @ (w.T if body is SYMBOLIC_TRANSPOSED else w) + 1
        x = np.ascontiguousarray(x.T) if body is SYMBOLIC_BACKWARD else x
        np.testing.assert_allclose(exe["main"](x, w), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("symbols", ["", *SYMBOLS])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_all_versions_are_well_formed(body: str, symbols: str) -> None:
    """In a version guarded by `m <= 32` the axes are no longer than the loops, too."""
    passes = rl.trace(symbolic(body, symbols)).passes
    by_rule = "scheduled by the rule matmul"
    (scheduled,) = (p for p in passes if by_rule in [r.reason for r in p.remarks])
    assert [d.render() for d in check_well_formed(scheduled.after)] == []


def test_squares_of_any_size() -> None:
    square = PLAIN.replace('("m", K)', '("m", "m")').replace("(K, N)", '("m", "m")')
    mod = rl.parse(HEAD + square)
    reasons = [r.reason for p in rl.trace(mod).passes for r in p.remarks]
    assert "scheduled by the rule matmul" in reasons
    exe = rl.compile(mod, threads=2, use_cache=False)
    for m in (0, 1, 2, 15, 17, 65, 130):
        x, w = draw(1, m, m), draw(2, m, m)
        np.testing.assert_allclose(exe["main"](x, w), x @ w, rtol=1e-4, atol=1e-4)


DECODED = """
from relaxlab.script import tir as T

@T.prim_func
def f(x: T.handle, w: T.handle, s: T.handle, y: T.handle):
    m = T.int64()
    X = T.match_buffer(x, (m, K), "float32")
    W = T.match_buffer(w, WEIGHT, "int8")
    S = T.match_buffer(s, SCALES, "float32")
    Y = T.match_buffer(y, (m, N), "float32")
    Q = T.alloc_buffer(WEIGHT, "float32")
    D = T.alloc_buffer(WEIGHT, "float32")
    for i, j in T.grid(ROWS, COLUMNS):
        with T.sblock("cast"):
            vi, vj = T.axis.remap("SS", [i, j])
            Q[vi, vj] = T.Cast("float32", W[vi, vj])
    for i, j in T.grid(ROWS, COLUMNS):
        with T.sblock("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = Q[vi, vj] * S[INDEX]
    for i, j, k in T.grid(m, N, K):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * D[READ]
"""
SCALES = {"row": ("({0},)", "vi"), "column": ("({1},)", "vj"), "single": ("(1,)", "0"),
          "groups of rows": ("(({0} + 31) // 32, {1})", "vi // 32, vj"),
          "groups of columns": ("({0}, ({1} + 31) // 32)", "vi, vj // 32")}  # fmt: skip
"""The shape of the scales of a matrix of {0} x {1}, and the index of that of weight [vi, vj]."""


def lanes_of(func: loops.PrimFunc, realize: loops.BlockRealize) -> set[Var]:
    """The variables of the vectorised loops around a block."""
    around = [x for x in walk(func.body) if isinstance(x, loops.For) and x.kind == "vectorized"]
    return {loop.loop_var for loop in around if any(x is realize for x in walk(loop.body))}


@pytest.mark.parametrize("transposed", [False, True], ids=["k x n", "n x k"])
@pytest.mark.parametrize(
    "n, k, scales",
    [(37, 45, name) for name in SCALES] + [(64, 96, "groups of rows"), (16, 8192, "column")],
)
def test_decoded_weights(n: int, k: int, scales: str, transposed: bool) -> None:
    """Vectors go along the columns of the product wherever the weight has them, in loops: unrolled
    along the reduction, a kernel with 64 terms took LLVM 14 seconds."""
    rows, columns = shape = (n, k) if transposed else (k, n)
    given, index = SCALES[scales]
    words = {
        "WEIGHT": str(shape), "SCALES": given.format(*shape), "INDEX": index, "ROWS": str(rows),
        "COLUMNS": str(columns), "READ": "vj, vk" if transposed else "vk, vj", "K": str(k),
        "N": str(n),
    }  # fmt: skip
    text = re.sub(r"\b(" + "|".join(words) + r")\b", lambda name: words[name[0]], DECODED)
    mod = rl.parse(text)
    trace = rl.trace(mod)
    assert "scheduled by the rule matmul" in [r.reason for p in trace.passes for r in p.remarks]
    (scheduled,) = trace.result.loop_functions().values()
    for decoding in (x for x in walk(scheduled.body) if isinstance(x, loops.BlockRealize)):
        assert decoding.block.name != "cast"
        if decoding.block.name == "scale":
            axes = [symbols_in(value) for value in decoding.iter_values]
            assert lanes_of(scheduled, decoding) & set(axes[0 if transposed else 1])
    exe = rl.compile(mod, threads=2, use_cache=False)
    w = np.random.default_rng(1).integers(-127, 127, shape, "int8")
    s = draw(2, *eval(words["SCALES"]))  # noqa: S307
    i, j = np.indices(shape)
    decoded = w * s[eval(index, {"vi": i, "vj": j})].astype("float64")  # noqa: S307
    for m in (1, 2, 7):
        x, y = draw(m, m, k), np.full((m, n), np.nan, "float32")
        exe["f"](x, w, s, y)
        want = x @ (decoded.T if transposed else decoded)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-3 * np.abs(want).max())


BY_ITSELF = """
from relaxlab.script import tir as T

@T.prim_func
def f(a: T.handle, c: T.handle):
    n, k = T.int64(), T.int64()
    A = T.match_buffer(a, SHAPE, "float32")
    C = T.match_buffer(c, (n, n), "float32")
    for i, j, l in T.grid(n, n, k):
        with T.sblock("C"):
            y, x, z = T.axis.remap("SSR", [i, j, l])
            with T.init():
                C[y, x] = T.float32(0)
            C[y, x] = C[y, x] + VALUE
"""


@pytest.mark.parametrize(
    ("shape", "value"), [("(n, k)", "A[y, z] * A[x, z]"), ("(k, n)", "A[z, y] * A[z, x]")]
)
def test_a_matrix_by_itself_transposed(shape: str, value: str) -> None:
    """Loops that read one buffer at two places; panels of one of them are copied."""
    mod = rl.parse(BY_ITSELF.replace("SHAPE", shape).replace("VALUE", value))
    (scheduled,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    assert "scheduled by the rule matmul" in [
        r.reason for r in rl.trace(mod).find("schedule_kernels").remarks
    ]
    assert "A_local" in str(scheduled)
    exe = rl.compile(mod, threads=2, use_cache=False, checks="all")
    for n, k in ((0, 3), (1, 1), (2, 40), (17, 5), (40, 0), (65, 33), (130, 300)):
        a = draw(1, n, k)
        got = np.full((n, n), np.nan, "float32")
        exe["f"](a if shape == "(n, k)" else np.ascontiguousarray(a.T), got)
        np.testing.assert_allclose(got, a @ a.T, rtol=1e-4, atol=1e-4)
