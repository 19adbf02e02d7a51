"""Elementwise kernels: one flat loop where rows may be ignored."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr, loops
from relaxlab.ir.node import walk
from relaxlab.schedule.annotate import UNROLL_AND_JAM
from relaxlab.testing.op_check import CaseProgram, OpCase, T, compare, concrete_call
from relaxlab.testing.replay import replay_kernels

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", W), "int8"), y: R.Tensor(("m", W), "int8")):
    with R.dataflow():
        z = R.concat((x, y), axis=AXIS)
        R.output(z)
    return z
"""


def program(axis: int, width: str) -> rl.Module:
    return rl.parse(PROGRAM.replace("AXIS", str(axis)).replace("W", width).replace(
        '"m"', '"n"' if axis else '"m"'
    ))  # fmt: skip


def is_flat(mod: rl.Module) -> bool:
    """True if the loops over vectors go through rows, rather than beginning anew in each."""
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    inner = [n for n in walk(kernel.body) if isinstance(n, loops.For) and n.kind != "parallel"]
    (flat,) = {"fused" in n.loop_var.name for n in inner}
    return flat


@pytest.mark.parametrize(
    ("axis", "width", "flat"), [(0, "3", True), (0, '"k"', False), (1, "3", False)]
)
def test_concatenated_rows_are_one_loop(axis: int, width: str, flat: bool) -> None:
    """Rows of constant length, chosen by their number."""
    assert is_flat(program(axis, width)) == flat


def test_concatenated_rows_of_any_number(rng: np.random.Generator) -> None:
    exe = rl.compile(program(0, "3"), threads=2, use_cache=False)
    for n in (0, 1, 10, 11, 21, 32, 100):
        for m in (0, 1, 11, 32, 75):
            x, y = (rng.integers(-99, 99, (k, 3)).astype("int8") for k in (n, m))
            np.testing.assert_array_equal(exe["main"](x, y), np.concatenate((x, y)))


SHORT_ROWS = [
    OpCase("flip", (T("n", 3, dtype="int8"),), {"axis": 0}),
    OpCase("add", (T("n", 3), T(3))),
    OpCase("permute_dims", (T("n", 2, 3),), {"axes": (0, 2, 1)}),
    OpCase("strided_slice", (T("n", 7),),
           {"axes": (1,), "begin": (0,), "end": (7,), "strides": (2,)}),
]  # fmt: skip


@pytest.mark.parametrize("case", SHORT_ROWS, ids=str)
def test_vectors_go_through_several_short_rows(case: OpCase) -> None:
    """Their places repeat, so each lane has a constant one."""
    mod = rl.Module.of({"main": CaseProgram(case, {"n": 9}, symbolic=True).function()})
    assert is_flat(mod)
    exe = rl.compile(mod, threads=1, use_cache=False)
    for n in (1, 7, 64, 101):
        arrays, (want,) = concrete_call(case, {"n": n}, seed=n)
        compare(exe["main"](*arrays, (n,)), want, str(case))


@pytest.mark.parametrize(("count", "width"), [(3, 50), (3, 33), (7, 19), (5, 10)])
def test_lanes_of_a_step_of_repeated_elements(
    count: int, width: int, rng: np.random.Generator
) -> None:
    """Every step repeats whole elements, or is the only one: places of lanes are constants."""
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor((4, {width}), "float32")):\n'
        f"    return R.repeat(x, {count}, axis=1)\n"
    )
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    (step,) = (n for n in walk(kernel) if isinstance(n, loops.For) and n.kind == "vectorized")
    assert isinstance(step.extent, expr.IntImm)
    assert step.extent.value % count == 0 or step.extent.value >= count * width
    x = rng.standard_normal((4, width), np.float32)
    np.testing.assert_array_equal(rl.compile(mod, threads=1)["main"](x), np.repeat(x, count, 1))


PER_CHANNEL = [
    OpCase("add", (T("n", 40, 9, 7), T(40, 1, 1))),
    OpCase("add", (T("n", 40, "h", "w"), T(40, 1, 1))),
    OpCase("nn.prelu", (T("n", 5, 3, 4, dtype="float16"), T(5, dtype="float16")), {"axis": 1}),
]


@pytest.mark.parametrize("case", PER_CHANNEL, ids=str)
def test_rows_of_an_image_are_one(case: OpCase) -> None:
    """Only the last vector of a channel has lanes that are off."""
    sizes = {"n": 2, "h": 5, "w": 3}
    mod = rl.Module.of({"main": CaseProgram(case, sizes, symbolic=True).function()})
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    blocks = [n for n in walk(kernel.body) if isinstance(n, loops.Block) and n.iter_vars]
    assert [len(b.iter_vars) for b in blocks] == [3]
    exe = rl.compile(mod, threads=1, use_cache=False)
    for n, h, w in ((1, 5, 3), (3, 16, 16), (2, 1, 33)):
        arrays, (want,) = concrete_call(case, {"n": n, "h": h, "w": w}, seed=n)
        compare(exe["main"](*arrays, (n, h, w)), want, str(case))


def test_values_of_a_channel_are_made_once() -> None:
    """Vectors of a long row are a loop inside, which shares the root of the variance."""
    case = OpCase(
        "nn.batch_norm", (T("n", 32, 56, 56), *(T(32),) * 4), {"axis": 1, "training": False}
    )
    mod = rl.Module.of({"main": CaseProgram(case, {"n": 2}, symbolic=True).function()})
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    first = next(n for n in walk(kernel.body) if isinstance(n, loops.For))
    assert [first.kind, *(n.kind for n in walk(first.body) if isinstance(n, loops.For))] == [
        "parallel", "serial", "vectorized"
    ]  # fmt: skip


FLOATS, BYTES = T("n", "d"), T("n", "d", dtype="int8")
ROWS = [
    OpCase("permute_dims", (T(3, "n", 5, "d"),), {"axes": (0, 2, 1, 3)}),
    OpCase("permute_dims", (T(3, "n", 5, "d", dtype="int8"),), {"axes": (0, 2, 1, 3)}),
    OpCase("tile", (FLOATS,), {"repeats": (2, 3)}),
    OpCase("add", (FLOATS, T("d"))),
    OpCase("multiply", (T("n", "d", dtype="float64"), T("n", 1, dtype="float64"))),
    OpCase("concat", ((FLOATS, FLOATS),), {"axis": 1}),
    OpCase("concat", ((BYTES, T("n", 5, dtype="int8")),), {"axis": 1}),
    OpCase("flip", (FLOATS,), {"axis": 1}),
    OpCase("take", (FLOATS, T(7, dtype="int64", low=0, high=1)), {"axis": 0}),
    OpCase("nn.pad", (FLOATS,), {"pad_width": (1, 2, 3, 1)}),
    OpCase("triu", (T("n", "d", "d"),), {"k": 1}),
    OpCase("power", (T("n", "d", low=0.1), T("d", low=0.1))),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_rows_of_any_length(case: OpCase, rng: np.random.Generator) -> None:
    """Versions of symbolic lengths, and steps of a whole row of constant ones."""
    program = CaseProgram(case, {"n": 2, "d": 3}, symbolic=True)
    exe = rl.compile(rl.Module.of({"main": program.function()}), threads=1, checks="all")
    lengths = [0, 1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, *rng.integers(3, 400, 3).tolist()]
    for d in lengths:
        sizes = {"n": int(rng.integers(2, 9)), "d": d}
        arrays, (want,) = concrete_call(case, sizes, seed=d)
        compare(exe["main"](*arrays, (*sizes.values(),)), want, str(case))
    for d in rng.choice(lengths[1:], 2).tolist():
        module = rl.Module.of({"main": CaseProgram(case, {"n": 5, "d": d}, False).function()})
        arrays, (want,) = concrete_call(case, {"n": 5, "d": d}, seed=d)
        exe = rl.compile(module, threads=1, checks="all")
        compare(exe["main"](*arrays, (5, d)), want, str(case))


def test_a_step_is_a_whole_row() -> None:
    """Rows of some vectors, constant or symbolic; of functions only where one vector is masked."""
    lanes = rl.Target.host().lanes("float32")

    def steps(d: int | str, op: str) -> list[str]:
        width = {} if isinstance(d, int) else {d: 3}
        case = OpCase(op, (T(9, d, low=0.1), T(d, low=0.1)))
        mod = rl.Module.of({"main": CaseProgram(case, width, symbolic=True).function()})
        (kernel,) = rl.trace(mod).result.loop_functions().values()
        return [str(n.extent) for n in walk(kernel) if getattr(n, "kind", "") == "vectorized"]

    many = 4 * lanes + 4  # whose period is too long for places of lanes to be constants
    assert steps(many, "add") == steps(many, "power") == [str(many)]
    assert steps(4 * lanes, "add") == [str(4 * lanes)]
    assert steps(4 * lanes, "power") == steps(9 * lanes, "add") == [str(lanes)]
    assert sorted(steps("d", "add"), key=int) == [str(n * lanes) for n in (1, 1, 2, 4)]
    assert sorted(steps("d", "power"), key=int) == [str(n * lanes) for n in (1, 1, 2)]


UPDATES = [
    OpCase("scatter_nd", (T("n", 150), T("m", 1, dtype="int64", low=-9, high=9), T("m", 150)),
           {"reduction": "add"}),
    OpCase("index_put", (T("n", 7, dtype="int8"), (T("m", dtype="int64", low=0, high=5),),
                         T("m", 7, dtype="int8")), {"accumulate": True}),
    OpCase("grad.take_backward", (T("m", "k"), T("n", "k"), T("m", dtype="int64", low=0, high=5)),
           {"axis": 0}),
]  # fmt: skip


@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_updates_of_rows_are_vectors(case: OpCase) -> None:
    """The places are data, but the same for all columns."""
    env = {"n": 9, "m": 40}
    env |= {"k": 33} if "k" in case.args[0].shape else {}
    program = CaseProgram(case, env, symbolic=True)
    module = rl.Module.of({"main": program.function()})
    kernels = rl.trace(module).result.loop_functions().values()
    found = [n.kind for k in kernels for n in walk(k.body) if isinstance(n, loops.For)]
    assert "vectorized" in found
    arrays, (want,) = concrete_call(case, env, seed=3)
    compare(rl.compile(module, use_cache=False)["main"](*arrays, (*env.values(),)), want, str(case))


def test_updates_of_elements_of_rows_are_serial() -> None:
    """Each row has places of its own, which differ from lane to lane."""
    at = T("n", 40, dtype="int64", low=-9, high=9)
    for axis, x in ((0, T(9, 40)), (1, T("n", 30))):
        case = OpCase("scatter_elements", (x, at, T("n", 40)), {"axis": axis, "reduction": "add"})
        module = rl.Module.of({"main": CaseProgram(case, {"n": 9}, symbolic=True).function()})
        arrays, (want,) = concrete_call(case, {"n": 9}, seed=4)
        compare(rl.compile(module, use_cache=False)["main"](*arrays, (9,)), want, str(case))


@pytest.mark.parametrize("width", ['"d"', 1000])
def test_a_scan_goes_down_several_vectors_of_columns(width, rng):
    """A line of each row is on another page, whether the number of columns is known or not. Their
    sums are private to the thread, so that they are in registers."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((70, {width}), "float32")):
    return R.cumsum(x, axis=0)
""")
    scheduled = rl.trace(mod).find("schedule_kernels").after
    vectors = [n for n in walk(scheduled) if isinstance(n, loops.For) and n.kind == "vectorized"]
    lanes = rl.Target.host().lanes("float32")
    assert [str(n.extent) for n in vectors] == [str(4 * lanes)]
    blocks = [n for n in walk(scheduled) if isinstance(n, loops.Block)]
    sums = [a for b in blocks for a in b.alloc_buffers]
    assert {(a.scope, *map(str, a.shape)) for a in sums} == {("local", str(4 * lanes))}
    exe = rl.compile(mod, threads=2, checks="all")
    for d in (0, 1, 3, lanes, 67, 1000) if width == '"d"' else (width,):
        x = rng.standard_normal((70, d), np.float32)
        np.testing.assert_allclose(exe["main"](x), x.cumsum(0), 1e-4, 1e-4, err_msg=f"{d}")


@pytest.mark.parametrize(("op", "costly"), [("cumlogsumexp", True), ("cummax", False)])
def test_scans_of_floats_along_rows_advance_rows_together(
    op: str, costly: bool, rng: np.random.Generator
) -> None:
    """As lanes where the arithmetic takes longer than gathers, else as copies inside the scan."""
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor(("n", 37), "float32")):\n    return R.{op}(x, axis=1)'
    )
    (kernel,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    together = [
        (n.kind, str(n.extent), UNROLL_AND_JAM in n.annotations)
        for n in walk(kernel.body)
        if isinstance(n, loops.For) and n.kind in ("vectorized", "unrolled")
    ]
    lanes = str(rl.Target.host().lanes("float32"))
    assert together == [("vectorized", lanes, False) if costly else ("unrolled", "4", True)]
    run = (np.logaddexp if costly else np.maximum).accumulate
    exe = rl.compile(mod, threads=2, use_cache=False)
    for n in (0, 1, 5, 16, 33):
        x = rng.normal(size=(n, 37)).astype("float32")
        np.testing.assert_allclose(exe["main"](x), run(x, axis=1), 1e-5, 1e-5)


def test_a_block_without_axes_is_scheduled() -> None:
    """It calls a C function alone, and has no last axis along which values could be shared."""
    mod = rl.parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32")):
    for i in range(1):
        with T.sblock("call"):
            T.reads(A[0:8])
            T.writes(A[0:8])
            T.evaluate(T.call_extern("int32", "f", A.data))
""")
    assert replay_kernels(rl.trace(mod)) == 1


def test_axes_that_a_nested_index_mentions_are_not_joined() -> None:
    """The index into `w` reads its rows backwards, which joined axes do not."""
    mod = rl.parse("""
@R.function
def main(w: R.Tensor((8, 8), "float32"), p: R.Tensor((5, 4), "int32"),
         q: R.Tensor((5, 4), "int64")):
    with R.dataflow():
        y = R.index_tensor(w, (p, R.flip(q, axis=0)))
        R.output(y)
    return y
""")
    rng = np.random.default_rng(0)
    w = rng.random((8, 8), "float32")
    p, q = rng.integers(0, 8, (5, 4), "int32"), rng.integers(0, 8, (5, 4), "int64")
    np.testing.assert_array_equal(rl.compile(mod, use_cache=False)(w, p, q), w[p, q[::-1]])


@pytest.mark.parametrize("width", ['"d"', "24", "40", "5"])
@pytest.mark.parametrize("times", [(2, 3), (1, 4), (3, 1)])
def test_tiled_rows_are_loops_of_their_own(
    width: str, times: tuple[int, int], rng: np.random.Generator
) -> None:
    """Lanes of a row that fills a vector load neighbours and divide nothing."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", {width}), "float32")):
    with R.dataflow():
        y = R.tile(x, {times})
        R.output(y)
    return y
""")
    (made,) = (r for r in rl.trace(mod).find("schedule_kernels").remarks if r.applied)
    size, lanes = width.strip('"'), rl.Target.host().lanes("float32")
    apart = f"factors=[{times[1]}, {size}]" in str(dict(made.about)["steps"])
    assert apart == (times[1] > 1 and (size == "d" or int(size) >= lanes))
    exe = rl.compile(mod, threads=2, checks="all")
    for n in (0, 1, 7):
        for d in (1, 16, 33) if width == '"d"' else (int(width),):
            x = rng.standard_normal((n, d), np.float32)
            np.testing.assert_array_equal(exe["main"](x), np.tile(x, times))


@pytest.mark.parametrize(
    ("made", "widths", "columns"),
    [
        ("R.concat((x, y), axis=1)", (1, 1), True),
        ("R.concat((x, R.negative(y)), axis=1)", (1, 3), True),
        ("R.stack((x, y), axis=1)", (2, 2), True),
        ("R.stack((x, y), axis=2)", (1, 1), True),
        ("R.nn.pad(x, pad_width=(0, 0, 1, 2))", (1, 1), True),
        ("R.concat((y, x), axis=1)", (1, 2), False),  # shuffles of three columns take too long
        ("R.concat((x, y), axis=0)", (2, 2), False),
        ("R.add(x, y)", (2, 1), False),
    ],
)
def test_few_columns_side_by_side(
    made: str, widths: tuple[int, int], columns: bool, rng: np.random.Generator
) -> None:
    """Two or four of them are computed one at a time, for a vector of rows, and shuffled."""
    dtypes = ["float32", "float64", "float16", "int8", *([] if "neg" in made else ["bool"])]
    for dtype in rng.choice(dtypes, 2, replace=False):
        mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", {widths[0]}), "{dtype}"), y: R.Tensor(("n", {widths[1]}), "{dtype}")):
    with R.dataflow():
        z = {made}
        R.output(z)
    return z
""")
        trace = rl.trace(mod)
        kernels = trace.find("schedule_kernels").after.loop_functions().values()
        blocks = [n for k in kernels for n in walk(k.body) if isinstance(n, loops.Block)]
        assert any(b.alloc_buffers for b in blocks) == columns
        replay_kernels(trace)
        exes = rl.compile(mod, threads=1), rl.compile(mod, threads=2, checks="all")
        for n in (0, 1, 15, 64, 133):
            x, y = (rng.integers(0, 2, (n, w)).astype(dtype) for w in widths)
            want = np.asarray(rl.interpret(mod, "main", x, y))
            for exe in exes:
                np.testing.assert_allclose(np.asarray(exe["main"](x, y)), want, 1e-3)
