"""Reductions over rows of every width around that of a vector, compiled, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import Block, BlockRealize, For
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.schedule.rules.rows import widest_row
from tests.passes.row_programs import LOW_RANK, low_rank

WIDEST = widest_row(rl.Target.host().facts)
ROWS_PER_TILE = 4  # what the rule decides by default

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", WIDTH), "float32"), w: R.Tensor((10, WIDTH), "float32")):
    with R.dataflow():
        a = R.sum(x, axis=1)
        b = R.max(x, axis=1)
        c = R.nn.softmax(x)
        d = R.linear(x, w)
        R.output(a, b, c, d)
    return (a, b, c, d)
"""


@pytest.mark.parametrize("width", [1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65])
def test_widths_around_a_vector(width):
    rng = np.random.default_rng(width)
    x, w = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (5, 10))
    exe = rl.compile(rl.parse(PROGRAM.replace("WIDTH", str(width))), use_cache=False)
    got = [np.asarray(t) for t in exe["main"](x, w)]
    weight = np.exp(x - x.max(axis=1, keepdims=True))
    share = weight / weight.sum(axis=1, keepdims=True)
    for mine, want in zip(got, (x.sum(axis=1), x.max(axis=1), share, x @ w.T), strict=True):
        np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)


SYMBOLIC = """
@R.function
def main(x: R.Tensor(("n", "d"), "float32"), w: R.Tensor(("d",), "float32")):
    with R.dataflow():
        a = R.sum(x, axis=1)
        b = R.max(x, axis=1)
        c = R.nn.softmax(x)
        d = R.nn.rms_norm(x, w, axes=[-1])
        R.output(a, b, c, d)
    return (a, b, c, d)
"""


def test_symbolic_widths():
    mod = rl.parse(SYMBOLIC)
    softmax = rl.trace(mod).result.loop_functions()["softmax"]
    assert len(softmax.buffers) == 2  # exponentials are not stored in main memory
    exe = rl.compile(mod, threads=2, use_cache=False)
    for n, width in [(1, 1), (5, 7), (0, 3), (3, 16), (2, 63), (3, 64), (2, 65), (4, 200)]:
        rng = np.random.default_rng(width)
        x, w = (rng.normal(size=size).astype(np.float32) for size in ((n, width), (width,)))
        got = [np.asarray(t) for t in exe["main"](x, w)]
        weight = np.exp(x - x.max(axis=1, keepdims=True))
        share = weight / weight.sum(axis=1, keepdims=True)
        norm = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w
        for mine, want in zip(got, (x.sum(axis=1), x.max(axis=1), share, norm), strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_on_the_stack_and_rows_that_do_not_fit(dtype, rows, rng):
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", "d"), "{dtype}")):
    y = R.nn.log_softmax(R.nn.softmax(x))
    return y
""")
    exe = rl.compile(mod, threads=2)
    most = WIDEST
    for width in (0, 1, 15, 64, 100, most - 1, most, most + 1, most + 100):
        x = (rng.standard_normal((rows, width)) * 3).astype(numpy_dtype(dtype))
        got, want = exe["main"](x), rl.interpret(mod, "main", x)
        assert got.shape == want.shape
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(
            np.asarray(got).astype("float64"), want.astype("float64"), tolerance, tolerance
        )


def test_sums_see_nan_and_infinity_in_every_lane(rng):
    exe = rl.compile(rl.parse(SYMBOLIC), threads=1)
    for width in (1, 16, 63, 64, 65, 130):
        for value in (np.nan, np.inf, -np.inf):
            x = rng.standard_normal((width, width), "float32")
            np.fill_diagonal(x, value)
            with np.errstate(all="ignore"):
                total, top, *_ = exe["main"](x, np.ones(width, "float32"))
                np.testing.assert_allclose(total, x.sum(axis=1), rtol=1e-4, atol=1e-4)
                np.testing.assert_array_equal(np.asarray(top), x.max(axis=1))


def arrays(rng, rows: int, terms: int, width: int, dtype: str = "float32"):
    shapes = ((rows, width), (rows, terms), (terms, width), (width,))
    return [rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in shapes]


@pytest.mark.parametrize("kind", LOW_RANK)
def test_rows_made_by_a_product_of_symbolic_width(kind, rng):
    mod = low_rank(kind)
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    assert kernel.attrs["op_pattern"] == 4
    exe = rl.compile(mod, threads=2)
    near = 32 * 1024 // 4 // 8  # one row at a time up to here, then several
    for width in (1, 65, near, near + 1, WIDEST, WIDEST + 1):
        for rows in (0, 1, ROWS_PER_TILE + 1):
            args = arrays(rng, rows, 8, width)
            got, want = exe["main"](*args), rl.interpret(mod, "main", *args)
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("width", "terms", "dtype"),
    [(1, 3, "float32"), (17, 1, "float32"), (48, 16, "bfloat16"), (1056, 9, "float32"),
     (1055, 16, "float16")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["rms norm", "softmax"])
def test_rows_made_by_a_product_of_constant_width(kind, width, terms, dtype, rng):
    mod = low_rank(kind, str(width), terms, dtype)
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    made = {b for b in allocated(kernel) if b.ndim == 2 and b.scope == "global"}
    assert not made  # the rows are on the stack
    exe = rl.compile(mod, threads=2)
    tolerance = 1e-4 if dtype == "float32" else 2e-2
    for rows in (0, 1, 2 * ROWS_PER_TILE + 3):
        args = arrays(rng, rows, terms, width, dtype)
        got, want = exe["main"](*args), rl.interpret(mod, "main", *args)
        got, want = (np.asarray(v).astype("float64") for v in (got, want))
        np.testing.assert_allclose(got, want, tolerance, tolerance)


def allocated(func):
    return [b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers]


@pytest.mark.parametrize("terms", [4, 9])
def test_sums_of_products_keep_their_order_where_they_must(terms, rng):
    target = "cpu,contract=off,reassociate=off"
    mod = rl.parse(f"""
@R.function
def main(a: R.Tensor(("n", {terms}), "float32"), b: R.Tensor(({terms}, 1056), "float32")):
    y = R.max(R.matmul(a, b), axis=-1)
    return y
""")
    assert len(rl.trace(mod, target=target).result.loop_functions()) == 1
    loops = Pipeline((normalize, legalize_ops)).run(mod).result
    exe = rl.compile(mod, target, threads=2)
    for rows in (1, 2 * ROWS_PER_TILE + 1):
        a, b = (rng.standard_normal(s, "float32") for s in ((rows, terms), (terms, 1056)))
        want = rl.interpret(loops, "main", a, b)
        np.testing.assert_array_equal(np.asarray(exe["main"](a, b)), want)


def test_deviations_over_several_symbolic_axes(rng):
    """Rows of several axes, of a symbolic length, are no longer one after the other once they are
    stored: they are computed again instead."""
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor((2, 5, 9, "d"), "float32")):\n'
        "    return R.std(x, axis=[1, 2, 3])\n"
    )
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    blocks = [n for n in walk(kernel) if isinstance(n, Block)]
    made = [b for block in blocks for b in block.alloc_buffers]
    assert made and all(b.ndim < 4 for b in made)
    main = rl.compile(mod, threads=1)["main"]
    for width in (1, 16, 20, 130):
        x = rng.standard_normal((2, 5, 9, width), np.float32)
        np.testing.assert_allclose(main(x), x.std(axis=(1, 2, 3)), 1e-5, 1e-5)


@pytest.mark.parametrize("width", range(1, 5))
@pytest.mark.parametrize("operator", ["nn.softmax(x)", "std(x, axis=1)", "argmax(x, axis=1)"])
def test_rows_of_few_elements(operator, width, rng):
    """Reductions of two elements and more have rows as lanes."""
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor(("n", {width}), "float32")):\n    return R.{operator}'
    )
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    vectors = [n for n in walk(kernel) if isinstance(n, For) and n.kind == "vectorized"]
    lanes = {Target.host().lanes(dtype) * n for dtype in ("float32", "int64") for n in (1, width)}
    found = {str(n.extent) for n in vectors}
    assert (width == 1) or (found and found <= set(map(str, lanes)))
    main = rl.compile(mod, threads=1, checks="all")["main"]
    for n in (0, 1, 33):
        x = rng.standard_normal((n, width), np.float32)
        np.testing.assert_allclose(main(x), rl.interpret(mod, "main", x), 1e-5, 1e-6)


@pytest.mark.parametrize("operator", ["nn.softmax(x)", "sum(x, axis=1)", "argmax(x, axis=1)"])
def test_rows_shorter_than_a_vector(operator, rng):
    """They are whole vectors of the target, of float32 and of the indices of an argmax."""
    mod = rl.parse(
        f"@R.function\ndef main(x: R.Tensor((9, 10), 'float32')):\n    return R.{operator}"
    )
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    vectors = [n.extent for n in walk(kernel) if isinstance(n, For) and n.kind == "vectorized"]
    lanes = {str(Target.host().lanes(dtype)) for dtype in ("float32", "int64")}
    assert vectors and {str(n) for n in vectors} <= lanes
    x = rng.standard_normal((9, 10), np.float32)
    got = rl.compile(mod, threads=1)["main"](x)
    np.testing.assert_allclose(got, rl.interpret(mod, "main", x), 1e-5, 1e-5)


@pytest.mark.parametrize("width", [5, 33, '"m"'])
def test_functions_of_short_sums_are_vectors_of_rows(
    width: int | str, rng: np.random.Generator
) -> None:
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor(("n", {width}), "float32")):\n'
        "    with R.dataflow():\n"
        "        y = R.sum(R.exp(x), axis=1)\n"
        "        z = R.log(y)\n"
        "        R.output(z)\n"
        "    return z"
    )
    (kernel,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    lanes = rl.Target.host().lanes("float32")
    ends = {
        str(n.extent)
        for n in walk(kernel.body)
        if isinstance(n, For) and n.kind == "vectorized" and holds_log(n)
    }
    assert ends == {str(lanes)}
    exe = rl.compile(mod, threads=2, checks="all")
    for n in (0, 1, 3, lanes, 2 * lanes + 1):
        for m in (1, 5, 33, 300) if isinstance(width, str) else (width,):
            x = rng.standard_normal((n, m), np.float32)
            np.testing.assert_allclose(exe["main"](x), np.log(np.exp(x).sum(1)), 1e-5, 1e-5)


def holds_log(loop: For) -> bool:
    return any(isinstance(n, Call) and n.op == "log" for n in walk(loop.body))


def test_functions_of_few_short_sums(rng: np.random.Generator) -> None:
    exe = rl.compile(rl.parse("""
@R.function
def main(x: R.Tensor((3, 20), "float32")):
    with R.dataflow():
        z = R.tanh(R.sum(x, axis=1))
        R.output(z)
    return z
"""))
    x = rng.standard_normal((3, 20), np.float32)
    np.testing.assert_allclose(exe["main"](x), np.tanh(x.sum(1)), 1e-5, 1e-5)


@pytest.mark.parametrize("operator", ["nn.softmax(x)", "variance(x, axis=1)"])
@pytest.mark.parametrize("width", [20, 27, 37, None])
def test_last_vectors_of_stored_rows_are_registers(operator, width, rng):
    """A row on the stack, of symbolic width, too, has room for whole vectors, which no masked
    instruction accesses."""
    columns = width or '"d"'
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor(("n", {columns}), "float32")):\n'
        f"    return R.{operator}"
    )
    (kernel,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    nodes = list(walk(kernel.body))
    vectors = {n.loop_var for n in nodes if isinstance(n, For) and n.kind == "vectorized"}
    for realize in (n for n in nodes if isinstance(n, BlockRealize)):
        if any(w.buffer.scope == "local" for w in realize.block.writes):
            assert vectors.isdisjoint(symbols_in(realize.predicate))
    text = emit_kernel(kernel, "kernel", {}, Target.host()).text
    private = [line for line in text.split("\n") if "alloca" in line]
    lanes = Target.host().lanes("float32")
    sizes = [int(re.search(r"\[(\d+) x", line)[1]) for line in private]
    assert all(size <= lanes or size % lanes == 0 for size in sizes)
    for checks in ("default", "all"):
        main = rl.compile(mod, threads=1, checks=checks)["main"]
        for n in (1, 2, 9):
            x = rng.standard_normal((n, width or int(rng.integers(1, 300))), np.float32)
            np.testing.assert_allclose(main(x), rl.interpret(mod, "main", x), 1e-4, 1e-5)
