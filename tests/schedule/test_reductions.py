"""Reductions, norms, softmax, arg-reductions and scans over any axes, compiled, against the
interpreter; and how precise long ones are."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr
from relaxlab.ir.loops import Block, BufferStore, For, IfThenElse
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target, parse_target
from relaxlab.ops import te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.rules import schedule_kernel
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.reductions import goes_down_columns
from relaxlab.script import parse
from tests.schedule.reduction_programs import (
    NAMES,
    OVER_AXES,
    OVER_ONE,
    arrays,
    axis_subsets,
    program,
)

NUMBERS = ("int8", "uint8", "int32", "float16", "float32")
SIZES = (0, 1, 2, 3, 7, 16, 17, 33, 64, 65, 100, 257)


def draw(rng, call: str):
    """Shape, axes, symbolic dimensions and whether these are one symbol."""
    ndim = int(rng.integers(1, 5))
    subsets = [a for a in axis_subsets(ndim) if len(a) == 1 or "{axes}" in call]
    axes = subsets[rng.integers(len(subsets))]
    symbols = tuple(d for d in range(ndim) if rng.integers(2))
    same = bool(symbols) and not rng.integers(4)
    return ndim, axes, symbols, same


def shape_of(rng, ndim: int, symbols: tuple[int, ...], same: bool) -> tuple[int, ...]:
    """Up to some ten thousand elements."""
    while True:
        shape = [int(rng.choice(SIZES)) for _ in range(ndim)]
        if same:
            shape = [shape[symbols[0]] if d in symbols else n for d, n in enumerate(shape)]
        if np.prod(shape) <= 50_000:
            return tuple(shape)


def test_an_axis_without_terms_inside_one_of_unknown_length():
    mod = parse("""
@R.function
def main(x: R.Tensor((100, "n"), "float32"), y: R.Tensor((100, 0, 64), "float32"),
         z: R.Tensor((0, 100), "float32")):
    return R.tanh(R.einsum((x, y, z), subscripts="af,ade,da->e"))
""")
    shapes = ((100, 3), (100, 0, 64), (0, 100))
    result = rl.compile(mod)["main"](*(np.ones(s, "float32") for s in shapes))
    np.testing.assert_array_equal(result, np.zeros(64, "float32"), strict=True)


@pytest.mark.parametrize("call", [*OVER_AXES, *OVER_ONE])
def test_any_axes_with_any_symbols(call, rng):
    for _ in range(4):
        ndim, axes, symbols, same = draw(rng, call)
        shape = shape_of(rng, ndim, symbols, same)
        if "arg" in call and shape[axes[0]] == 0:
            continue  # refused, by deduction or at the call
        text = call.format(axes=list(axes), axis=axes[0])
        mod = program(text, shape, axes, symbols, same)
        exe = rl.compile(mod, threads=2)
        for _ in range(3):
            x, w = arrays(rng, call, shape, axes)
            with np.errstate(all="ignore"):
                want = rl.interpret(mod, "main", x, w)
            got = exe["main"](x, w)
            assert got.shape == want.shape and got.dtype == want.dtype
            near = 1e-5 * np.abs(want[np.isfinite(want)]).max(initial=1)
            about = f"{text} {shape} {symbols}"
            np.testing.assert_allclose(got, want, 1e-5, near, err_msg=about)
            new = shape_of(rng, ndim, symbols, same)
            shape = tuple(new[d] if d in symbols else n for d, n in enumerate(shape))
            if "arg" in call and shape[axes[0]] == 0:
                break


ROUNDING = float(np.finfo(np.float32).eps) / 2
LONG = {
    "sum": "R.sum(x, axis={axis})",
    "mean": "R.mean(x, axis={axis})",
    "variance": "R.variance(x, axis={axis})",
    "std": "R.std(x, axis={axis})",
    "cumsum": "R.cumsum(x, axis={axis})",
    "logsumexp": "R.subtract(x, R.nn.log_softmax(x, axis={axis}))",
}
EXACT = {
    "sum": np.sum, "mean": np.mean, "variance": np.var, "std": np.std, "cumsum": np.cumsum,
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis, keepdims=True)) + 0 * x,
}  # fmt: skip


@pytest.mark.parametrize("shape", [(1_500_000,), (3, 500_001), (500_001, 3), (70_001, 20)])
@pytest.mark.parametrize("name", LONG)
def test_long_sums_are_as_precise_as_pairwise_ones(name, shape, rng):
    """A running float32 sum of so many positive numbers is off by hundreds of roundings."""
    x = 1 - rng.random(shape, "float32")  # never 0, by which the error is divided
    for axis in range(len(shape)):
        dims = ", ".join(f'"{n}"' for n in NAMES[: len(shape)])
        mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({dims},), "float32")):
    with R.dataflow():
        y = {LONG[name].format(axis=axis)}
        R.output(y)
    return y
""")
        want = EXACT[name](x.astype("float64"), axis=axis)
        error = np.abs(np.asarray(rl.compile(mod)["main"](x)) / want - 1).max()
        assert error < (64 if name == "cumsum" else 24) * ROUNDING  # the worst of all elements


@pytest.mark.parametrize("name", ["sum", "mean", "variance", "std"])
def test_long_sums_over_several_axes_are_precise(name, rng):
    x = rng.random((9, 200, 511), "float32")
    for axes in axis_subsets(3):
        # Named from the last one on: loops go through memory in order all the same.
        named = list(axes)[::-1]
        mod = program(LONG[name].format(axis=named), x.shape, axes, (0, 1, 2), False)
        w = np.ones([x.shape[d] for d in axes], "float32")
        want = EXACT[name](x.astype("float64"), axis=axes)
        error = np.abs(np.asarray(rl.compile(mod)["main"](x, w)) / want - 1).max()
        assert error < 24 * ROUNDING


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_variance_of_equal_values_is_zero(axis, rng):
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    with R.dataflow():
        y = R.std(x, axis={axis})
        R.output(y)
    return y
""")
    exe = rl.compile(mod)
    x = np.full((300, 600), rng.random(), "float32")
    np.testing.assert_array_equal(exe["main"](x), np.zeros_like(x.std(axis=axis)))
    far = (1e4 + rng.random((300, 600)) / 8).astype("float32")  # a few digits above the rounding
    np.testing.assert_allclose(exe["main"](far), far.astype("float64").std(axis=axis), 1e-4)


def test_few_symbolic_columns_are_half_a_vector(rng):
    """A sum waits longer for a vector of 512 bits than for one of 256; of 256 there is one
    version."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", "d"), "float32")):
    return R.sum(x, axis=0)
""")
    func = rl.trace(mod).find("fuse_tir").after["sum"]
    for features, expected in ((["avx2", "avx512f"], [8, 16]), (["avx2"], [8])):
        found = schedule_kernel("sum", func, Context(Target(features=frozenset(features))))
        guards = [n for n in walk(found) if isinstance(n, IfThenElse)]
        tests = [n.condition for n in guards if [v.name for v in symbols_in(n.condition)] == ["d"]]
        assert [str(test) for test in tests] == [f"d <= {most}" for most in expected]
        for guard, most in zip(guards, expected, strict=False):
            lanes = {
                str(n.extent)
                for n in walk(guard.then_case)
                if isinstance(n, For) and n.kind == "vectorized"
            }
            assert lanes == {str(most)}


@pytest.mark.parametrize("call", ["R.sum(x, axis=0)", "R.nn.softmax(x, axis=0)"])
def test_threads_share_the_rows_of_a_few_symbolic_columns(call, rng):
    """One vector holds the columns, and their loops have constant extents."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", "d"), "float32")):
    return {call}
""")
    lanes = parse_target("cpu").lanes("float32")
    exe = rl.compile(mod, threads=2, checks="all")
    sizes = ((0, 3), (1, 1), (5000, 3), (70, lanes // 2), (257, lanes), (600, lanes + 1), (3, 0))
    for n, d in sizes:
        x = rng.standard_normal((n, d), np.float32)
        want = rl.interpret(mod, "main", x)
        np.testing.assert_allclose(exe["main"](x), want, 1e-4, 1e-4, err_msg=f"{n} x {d}")
    scheduled = rl.trace(mod).find("schedule_kernels").after
    narrow = next(n for n in walk(scheduled) if isinstance(n, IfThenElse)).then_case
    loops = [n for n in walk(narrow) if isinstance(n, For) and n.kind == "parallel"]
    assert loops and all("n" in [v.name for v in symbols_in(loop.extent)] for loop in loops)


@pytest.mark.parametrize("rows", [300, '"n"'])
@pytest.mark.parametrize("width", [20, 40, 48, 63])
@pytest.mark.parametrize("call", ["R.sum(x, axis=0)", "R.std(x, axis=0)", "R.max(x, axis=0)"])
def test_sums_of_columns_stay_in_vectors(call, width, rows, rng):
    """LLVM keeps vectors of several registers whose lengths are no powers of two as scalars."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({rows}, {width}), "float32")):
    return {call}
""")
    x = rng.standard_normal((300, width), np.float32)
    want = rl.interpret(mod, "main", x)
    exe = rl.compile(mod)
    np.testing.assert_allclose(exe["main"](x), want, 1e-4, 1e-4)
    carried = re.findall(r"= phi (?:<(\d+) x float>|float) ", exe.llvm())
    register = exe.target.lanes("float32")
    assert carried
    assert all(n and (int(n).bit_count() == 1 or int(n) <= register) for n in carried), carried


@pytest.mark.parametrize("width", ['"d"', 67])
@pytest.mark.parametrize(
    "call", ["R.sum(x, axis=[0, 2])", "R.max(x, axis=[0, 2])", "R.std(x, axis=[0, 2])"]
)
def test_rows_are_reduced_with_another_axis(call, width, rng):
    """No width, one vector included, has partial results that threads share. Deviations, which
    are read along the first axis as well, are not stored as rows."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((5, 40, {width}), "float32")):
    return {call}
""")
    remarks = rl.trace(mod).find("schedule_kernels").remarks
    assert [r.reason for r in remarks if r.applied] == ["scheduled by the rule rows"]
    exe = rl.compile(mod, threads=2, checks="all")
    for d in (1, 3, 8, 9, 33, 67, 100, 1700, 9000) if width == '"d"' else (width,):
        x = rng.standard_normal((5, 40, d), np.float32)
        want = rl.interpret(mod, "main", x)
        np.testing.assert_allclose(exe["main"](x), want, 1e-4, 1e-4, err_msg=f"{d}")


@pytest.mark.parametrize("bound", [40, 300, 70_000])
@pytest.mark.parametrize("axis", [1, 2])
def test_reductions_over_bounded_symbols_are_scheduled_by_rules(axis, bound, rng):
    """A loop of which the bound says that it runs once is not split off."""
    shape = '("b", "n", 48)' if axis == 1 else '("b", 48, "n")'
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor({shape}, "float32")):
    R.func_attr({{"tir_var_upper_bound": {{"n": {bound}}}}})
    return R.sum(x, axis={axis})
""")
    remarks = [w for r in rl.trace(mod).passes for w in r.remarks if r.name == "schedule_kernels"]
    assert remarks and not any("fallback" in w.reason for w in remarks if w.applied), remarks
    x = rng.standard_normal((1, bound, 48) if axis == 1 else (1, 48, bound)).astype("float32")
    want = x.sum(axis, dtype="float64")
    np.testing.assert_allclose(rl.compile(mod)["main"](x), want, 1e-4, 1e-2)


@pytest.mark.parametrize("results, terms", [(2048, 100), (64, 40), (9, 100), (8, 100), (1, 70)])
def test_overlapping_windows(results, terms, rng):
    """Vectors are of results, and of terms where results are fewer than two vectors."""
    mod = rl.parse(f"""
@T.prim_func
def sums(
    x: T.Buffer((5, {results + terms - 1}), "float32"), y: T.Buffer((5, {results}), "float32")
):
    for i, j, d in T.grid(5, {results}, {terms}):
        with T.sblock("sum"):
            r, c, k = T.axis.remap("SSR", [i, j, d])
            with T.init():
                y[r, c] = T.float32(0)
            y[r, c] = y[r, c] + x[r, c + k]
""")
    (func,) = mod.loop_functions().values()
    target = parse_target("cpu")
    (block,) = [n for n in walk(func) if isinstance(n, Block) and n.name == "sum"]
    wide = results >= 2 * target.lanes("float32")
    assert goes_down_columns(block, target) == wide
    x = rng.standard_normal((5, results + terms - 1), "float32")
    y = np.zeros((5, results), "float32")
    rl.compile(mod, use_cache=False)["sums"](x, y)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("float64"), terms, axis=1)
    np.testing.assert_allclose(y, windows.sum(-1), 1e-4, 1e-4)


def test_a_product_with_one_term(rng):
    """Neither its row nor its reduction has a loop that an index needs."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((1, 1), "float32"), w: R.Tensor((1, "m"), "float32")):
    y = R.matmul(x, w)
    return y
""")
    exe = rl.compile(mod, "cpu,contract=off,reassociate=off", use_cache=False)
    for m in (0, 1, 15, 64, 100):
        x, w = rng.random((1, 1), "float32"), rng.random((1, m), "float32")
        np.testing.assert_array_equal(np.asarray(exe["main"](x, w)), x * w)


@pytest.mark.parametrize(
    "combine, dtype",
    [
        *((c, d) for c in (te.te_sum, te.te_prod, te.te_max, te.te_min) for d in NUMBERS),
        (te.te_max, "bool"),
        (te.te_min, "bool"),
    ],
)
def test_partial_reductions_start_from_the_identity(combine, dtype, rng):
    """Rows of the smallest and of the largest value show what an accumulator was set to."""
    x = te.placeholder((expr.const(6), expr.const(8)), dtype, "x")
    r = te.reduce_axis(expr.const(8), "r")
    func = te.create_prim_func(
        [x, te.compute((expr.const(6),), lambda i: combine(x[i, r.var], r), "y")]
    )
    sch = Schedule(func)
    sch.rfactor(sch.get_loops(sch.get_block("y"))[-1], 1)
    ends = [bound(dtype).value for bound in (expr.lowest, expr.highest)]  # type: ignore[union-attr]
    rows = np.repeat(np.array([*ends, 0, 1, 1, 0], "float64"), 8).reshape(6, 8)
    given = rows.astype(dtype) if dtype.startswith("float") else rows.astype("int64").astype(dtype)
    given[4:] = rng.permuted(given[4:].ravel()).reshape(2, 8)
    found = [np.zeros(6, dtype) for _ in range(2)]
    with np.errstate(all="ignore"):
        for made, result in zip((func, sch.func), found, strict=True):
            interpret_prim_func(made, [given, result])
    np.testing.assert_array_equal(found[0], found[1])


def test_terms_that_share_a_loop_with_results_are_no_factors():
    """An outer iteration of the rows of 8 terms, fused and split by 4, is half a row."""
    x = te.placeholder((expr.const(8), expr.const(8)), "float32", "x")
    r = te.reduce_axis(expr.const(8), "r")
    total = te.compute((expr.const(8),), lambda i: te.te_sum(x[i, r.var], r), "y")
    sch = Schedule(te.create_prim_func([x, total]))
    _, inner = sch.split(sch.fuse(*sch.get_loops(sch.get_block("y"))), [None, 4])
    with pytest.raises(ScheduleError, match="no loop is bound to spatial and to reduce axes"):
        sch.rfactor(inner)


def largest_of_nothing():
    x = te.placeholder((expr.const(17), expr.const(0)), "uint8", "x")
    r = te.reduce_axis(expr.const(0), "r")
    largest = te.compute((expr.const(17),), lambda i: te.te_max(x[i, r.var], r), "y")
    return te.create_prim_func([x, largest])


@pytest.mark.parametrize("factors", [[None, 3], [2, 3]])
@pytest.mark.parametrize("of_its_own", [False, True])
def test_a_split_reduction_over_nothing_is_its_initial_value(factors, of_its_own):
    """The guard of the loops without terms is not simplified to False, under which the
    initialisation does not run, either."""
    sch = Schedule(largest_of_nothing())
    i, r = sch.get_loops(sch.get_block("y"))
    sch.split(r, factors)
    if of_its_own:
        sch.blockize(i)
    got = np.full(17, 7, "uint8")
    rl.compile(sch, use_cache=False)["main"](np.zeros((17, 0), "uint8"), got)
    np.testing.assert_array_equal(got, np.zeros(17, "uint8"))


def test_loops_without_terms_are_not_fused_with_results():
    sch = Schedule(largest_of_nothing())
    with pytest.raises(ScheduleError, match="fused with a loop of results has iterations"):
        sch.fuse(*sch.get_loops(sch.get_block("y")))


def test_caches_for_loops_without_iterations_are_empty():
    """Every second element, from the ninth on, of no elements spans from 9 to 7."""
    x = te.placeholder((expr.const(12),), "int32", "x")
    nothing = te.compute((expr.const(0),), lambda i: x[9 + i * 2], "y")
    sch = Schedule(te.create_prim_func([x, nothing]))
    copy = sch.cache_read(sch.get_block("y"), 0, "local")
    sch.vectorize(sch.get_loops(copy)[-1])
    sch.compact_buffers()
    sizes = [n.extent.value for n in walk(sch.func.body) if isinstance(n, For)]
    assert sizes == [0, 0]
    assert rl.compile(sch, use_cache=False)


@pytest.mark.parametrize("shape", [(5, 40, 33), ("n", "m", "k")])
def test_what_depends_on_columns_alone_is_computed_once_for_each(shape, rng):
    mod = parse(f"""
@R.function
def main(x: R.Tensor({shape}, "float32")):
    return R.nn.log_softmax(x, axis=1)
""")
    kernel = rl.trace(mod).result["log_softmax"]
    stores = [n for n in walk(kernel) if isinstance(n, BufferStore)]
    logarithms = [n for n in stores if "log(" in str(n.value)]
    assert logarithms and all("exp(" not in str(n.value) for n in logarithms)
    # Each is stored for the rows of its column, which read no logarithm of their own.
    assert all(n.buffer not in kernel.params for n in logarithms)  # type: ignore
    x = rng.standard_normal((5, 40, 33)).astype(np.float32)
    got = rl.compile(mod, threads=2)["main"](x)
    np.testing.assert_allclose(got, rl.interpret(mod, "main", x), rtol=1e-5, atol=1e-5)
