"""Non-temporal stores of results, and the prefetches that go with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.prefetch import insert_prefetches
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import BufferLoad, Evaluate, For, IfThenElse, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.schedule.streams import NON_TEMPORAL, streamed_bytes

BODIES = {
    "gelu": "R.multiply(R.nn.gelu(x), x)",
    "softmax": "R.nn.softmax(x, axis=-1)",
    "transposed": "R.permute_dims(x)",
    "half": 'R.astype(R.add(x, x), "float16")',
}


def program(body: str, shape: str = '("n", "m")', attrs: str = "") -> rl.Module:
    return rl.parse(f"""
@R.function
def main(x: R.Tensor({shape}, "float32")):
    {attrs}
    y = {body}
    return y
""")


def annotated(mod: rl.Module) -> list[str]:
    """Names of the buffers that loops of the scheduled kernels may store non-temporally."""
    funcs = [f for _, f in rl.trace(mod).result.items() if isinstance(f, PrimFunc)]
    found = [n for f in funcs for n in walk(f.body) if isinstance(n, For)]
    return [name for n in found for name in n.annotations.get(NON_TEMPORAL, ())]


ROWS = streamed_bytes(Target.host().facts) // 4 // 1024


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "shape", [(ROWS, 1024), (ROWS + 3, 1024), (2 * ROWS + 1, 1024), (ROWS + 9, 1023), (5, 1024)]
)
def test_large_results_are_right(
    body: str, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    mod = program(BODIES[body])
    exe = rl.compile(mod, threads=2)
    x = rng.standard_normal(shape, "float32")
    rows = slice(None) if body == "transposed" else np.linspace(0, shape[0] - 1, 50).astype(int)
    got = np.asarray(exe["main"](x))
    want = rl.interpret(mod, "main", x[rows])
    np.testing.assert_allclose(
        got[rows].astype("float64"), want.astype("float64"), rtol=2e-3, atol=1e-5
    )


def test_the_next_kernel_reads_what_was_stored(rng: np.random.Generator) -> None:
    """Threads read rows that others stored, right after the barrier."""
    mod = program("R.sum(R.permute_dims(R.nn.softmax(x, axis=-1)), axis=1)")
    exe = rl.compile(mod, threads=2)
    for _ in range(5):
        x = rng.standard_normal((ROWS + 5, 1024), "float32")
        e = np.exp(x - x.max(-1, keepdims=True))
        want = (e / e.sum(-1, keepdims=True)).sum(0)
        np.testing.assert_allclose(np.asarray(exe["main"](x)), want, rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "attrs", "may"),
    [
        ('("n", "m")', "", True),
        ('("n", 16)', "", True),
        ('("n", 16)', 'R.func_attr({"tir_var_upper_bound": {"n": 1000}})', False),
        (f"({ROWS}, 1024)", "", True),
        (f"({ROWS - 1}, 1024)", "", False),
    ],
)
def test_only_what_may_be_large_has_two_versions(shape: str, attrs: str, may: bool) -> None:
    assert bool(annotated(program(BODIES["gelu"], shape, attrs))) is may


def test_arrays_that_are_read_stay_in_caches() -> None:
    mod = rl.parse("""
@I.ir_module
class Module:
    @T.prim_func
    def twice(A: T.Buffer(("n",), "float32")):
        for i in range(n):
            with T.block("A"):
                vi = T.axis.spatial(n, i)
                A[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        cls = Module
        y = R.call_tir_inplace(cls.twice, (x,), inplace_indices=[0],
                               out_sinfo=R.Tensor(("n",), "float32"))
        return y
""")
    assert annotated(mod) == []


def test_whole_lines_alone_are_stored_around_the_caches() -> None:
    result = rl.trace(program(BODIES["gelu"])).result
    func = next(f for _, f in result.items() if isinstance(f, PrimFunc))
    text = emit_kernel(func, "f", {}).text
    stores = [line for line in text.splitlines() if "nontemporal" in line]
    assert stores and all("align 64" in line for line in stores)
    assert all(line.strip().startswith("store <") for line in stores)
    assert text.count("fence") == 1


def test_results_that_stay_in_caches_have_no_prefetches() -> None:
    """Operands of theirs are there, too, and to ask for them took up to a quarter longer."""
    result = rl.trace(program(BODIES["gelu"])).result
    func = next(f for _, f in result.items() if isinstance(f, PrimFunc))
    text = emit_kernel(func, "f", {}).text
    _, small = text.split("fence seq_cst")
    assert "nontemporal" not in small and "store <" in small
    assert "@llvm.prefetch" in text and "call void @llvm.prefetch" not in small


@pytest.mark.parametrize(("cpu", "locality"), [("znver5", 3), ("sapphirerapids", 2)])
def test_lines_are_fetched_into_the_cache_that_the_processor_fetches_best(
    cpu: str, locality: int
) -> None:
    result = rl.trace(program(BODIES["gelu"])).result
    func = next(f for _, f in result.items() if isinstance(f, PrimFunc))
    text = emit_kernel(func, "f", {}, Target(cpu=cpu)).text
    fetches = [line for line in text.splitlines() if "call void @llvm.prefetch" in line]
    assert fetches and all(f"i32 0, i32 {locality}, i32 1" in line for line in fetches)


@pytest.mark.parametrize(
    ("body", "fetched"),
    [
        ("R.concat((x, x), axis=0)", False),
        ("R.where(R.less(x, R.const(0.0)), R.negative(x), x)", True),
    ],
)
def test_only_arrays_that_all_iterations_read_are_fetched(body: str, fetched: bool) -> None:
    """Before the second array of a concatenation is no memory of it."""
    scheduled = rl.trace(program(body, '("n", 1000)')).find("schedule_kernels").after
    loops = [n for n in walk(scheduled) if isinstance(n, For) and n.kind == "parallel"]
    assert loops and all(NON_TEMPORAL in n.annotations for n in loops)
    assert [("prefetch" in n.annotations) for n in loops] == [fetched] * len(loops)


@pytest.mark.parametrize(
    ("n", "m", "fetched"),
    [
        ('"n"', '"m"', {"B"}),
        ("1", "4096", {"B"}),
        ("4096", "1", {"A"}),
        ('"n"', "4", set()),
        ("512", '"m"', set()),
        ("1", "256", set()),
    ],
)
def test_rows_of_a_matrix_by_a_vector_are_fetched(n: str, m: str, fetched: set[str]) -> None:
    """The next result reads the next row of the matrix, and the same vector."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({n}, 512), "float32"), w: R.Tensor(({m}, 512), "float32")):
    return R.linear(x, w)
""")
    # Rows of 512 KB fit into a second-level cache of 1 MB.
    target = replace(Target.host(), caches=(32 << 10, 1 << 20, 32 << 20))
    scheduled = rl.trace(mod, target=target).find("schedule_kernels").after
    (kernel,) = scheduled.loop_functions().values()
    loops = [f for f in walk(kernel) if isinstance(f, For) and "prefetch" in f.annotations]
    assert {name for f in loops for name in f.annotations["prefetch"][1]} == fetched


@pytest.mark.parametrize(("heads", "lines"), [(8, (1, 2)), (1, (0,))])
def test_values_of_other_heads_are_passed_over(heads: int, lines: tuple[int, ...]) -> None:
    """A position's cache lines for some features are fetched, not those of all heads; what follows
    in memory is fetched by the hardware. A single position would have a version of its own."""
    shape = f'R.Tensor(("b", "n + 2", {heads}, 64), "float32")'
    mod = rl.parse(f"""
@R.function
def main(n: R.Shape(["n"]), q: {shape}, k: {shape}, v: {shape}):
    y = R.nn.attention(q, k, v)
    return y
""")
    target = Target(cpu="sapphirerapids")
    kernels = [f for _, f in rl.trace(mod, target=target).result.items() if isinstance(f, PrimFunc)]
    texts = [emit_kernel(f, "f", {}, target).text for f in kernels]
    assert sum(text.count("call void @llvm.prefetch") for text in texts) in lines


def test_all_that_the_loads_of_an_iteration_reach_is_fetched() -> None:
    """Rows of 256 bytes of which the first load has one element: four lines each."""
    module = rl.parse("""
@T.prim_func
def f(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.serial(64, annotations={"prefetch": (4, ("A",))}):
        B[i] = A[i, 0]
        for j in range(64):
            B[i] = B[i] + A[i, j]
""")
    function = module["f"]
    fetches = [n for n in walk(insert_prefetches(function.body, 64)) if isinstance(n, Evaluate)]
    assert len(fetches) == 4


@pytest.mark.parametrize(
    ("body", "fetched"),
    [
        ("for j in range(8): B[i] = B[i] + A[i, pages[j]]", True),
        ("for j in range(n): B[i] = B[i] + A[i, pages[j]]", False),
        ("if n > 0: B[i] = A[i, pages[n - 1]]", False),
        ("B[i] = T.if_then_else(n > 0, A[i, pages[n - 1]], T.float32(0))", False),
        ("B[i] = T.Select(n > 0, A[i, pages[n - 1]], T.float32(0))", False),
        ("pages[0] = 3; B[i] = A[i, pages[pages[0]]]", False),
        ("assert n > 0; B[i] = A[i, pages[0]]", False),
        ("if n > 0: B[i] = A[i, 63 // n]", False),
        ("B[i] = A[i, 63 // n]", True),
        ("k = T.int64(3); B[i] = A[i, k]", True),
        ("if n > 0: B[i] = A[i, 5]", True),
    ],
)
def test_addresses_read_nothing_ahead_of_what_guards_them(body: str, fetched: bool) -> None:
    """`pages` may be as short as the guards allow: only hints themselves never fault."""
    lines = "".join(f"\n        {line}" for line in body.split("; "))
    module = rl.parse(f"""
@T.prim_func
def f(A: T.Buffer((64, 64), "float32"), pages: T.Buffer(("n",), "int64"),
      B: T.Buffer((64,), "float32")):
    for i in T.serial(64, annotations={{"prefetch": (4, ("A",))}}):{lines}
""")
    function = module["f"]
    found = [n for n in walk(insert_prefetches(function.body, 64)) if isinstance(n, Call)]
    assert ("prefetch" in {n.op for n in found}) == fetched


@pytest.mark.parametrize(("channels", "fetched"), [(512, 1), (64, 0)])
def test_the_next_panel_of_a_large_image_is_fetched(channels: int, fetched: int) -> None:
    """Behind three vectors of four places is the line of the next ones, in each channel."""
    mod = rl.parse(f"""
@R.function
def main(
    x: R.Tensor(("n", {channels}, 48, 48), "float32"),
    w: R.Tensor((64, {channels}, 1, 1), "float32"),
):
    return R.nn.conv2d(x, w)
""")
    target = Target(cpu="sapphirerapids")
    scheduled = rl.trace(mod, target=target).find("schedule_kernels").after
    (kernel,) = scheduled.loop_functions().values()
    loops = [f for f in walk(kernel) if isinstance(f, For) and "prefetch_beside" in f.annotations]
    assert [f.annotations["prefetch_beside"] for f in loops] == [("A",)] * (fetched > 0)
    text = emit_kernel(kernel, "f", {}, target).text
    assert text.count("call void @llvm.prefetch") == fetched


EARLY = """
@T.prim_func
def f(var_x: T.handle, var_at: T.handle, W: T.Buffer((64, 64), "float32"), var_out: T.handle):
    n = T.int64()
    m = T.int64()
    x = T.match_buffer(var_x, (m,), "float32")
    at = T.match_buffer(var_at, (n,), "int64")
    out = T.match_buffer(var_out, (n, 64), "float32")
    for t in range((n + 3) // 4):
        {before}
        for i in T.serial(4, annotations={{"prefetch_early": ("x",)}}):
            if t * 4 + i < n:
                for v in T.serial(4):
                    for j in T.vectorized(16):
                        out[t * 4 + i, v * 16 + j] = x[at[t * 4 + i] + v * 16 + j] + 1.0
"""


@pytest.mark.parametrize(
    ("before", "fetched"),
    [("for k in range(64):\n            W[k, k] = 0.0", True),
     ("for k in range(4):\n            at[k] = T.int64(k)", False),  # the places are not known yet
     ("", False)],  # nothing runs first
)  # fmt: skip
def test_rows_at_places_are_fetched_before_what_runs_first(before: str, fetched: bool) -> None:
    function = rl.parse(EARLY.format(before=before or "pass"))["f"]
    body = insert_prefetches(function.body, 64)
    calls = [n for n in walk(body) if isinstance(n, Call) and n.op == "prefetch"]
    assert len(calls) == fetched
    marked = [n for n in walk(body) if isinstance(n, For) and "prefetch_early" in n.annotations]
    assert bool(marked) == (not before)
    if fetched:
        # The address of a vector's first lane, guarded as the vector is.
        (load,) = (n for n in walk(calls[0]) if isinstance(n, BufferLoad) and n.buffer.name == "x")
        first = next(n for n in walk(body) if isinstance(n, IfThenElse))
        assert any(n is calls[0] for n in walk(first))
        assert "j" not in {v.name for v in symbols_in(load)}


def test_batches_fetch_the_rows_that_they_add() -> None:
    """The results of a hoisted product lie at places that each row has in an array."""
    trace = rl.batched_pipeline(Target(cpu="sapphirerapids")).run(dynamic.lattice_lstm(128))
    kernels = trace.find("schedule_kernels").after.loop_functions().values()
    adding = [f for f in kernels if any(
        isinstance(n, For) and "prefetch_early" in n.annotations for n in walk(f)
    )]  # fmt: skip
    assert len(adding) >= 3
    for kernel in adding:
        assert "@llvm.prefetch" in emit_kernel(kernel, "f", {}, Target(cpu="sapphirerapids")).text
