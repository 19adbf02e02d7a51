"""The estimate of a call's work, by which small calls start no team of threads."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.llvm.context import CONTEXT, symbol_of
from relaxlab.codegen.llvm.entry import symbols_of_arguments
from relaxlab.codegen.llvm.work import CALL, LANES, MIN_TEAM_WORK, WAIT, work_of
from relaxlab.codegen.program import program_functions
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


def loops_of(body: str, shape: str = "(n, m)") -> Module:
    """A program that runs these statements on `a` and `b`."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return rl.parse(
        f"""
@I.ir_module
class M:
    @T.prim_func
    def f(a: T.Buffer(("n", "m"), "float32"), b_: T.handle):
        b = T.match_buffer(b_, {shape}, "float32")
{lines}
    @R.function
    def main(a: R.Tensor(("n", "m"), "float32")):
        b = R.call_tir(M.f, (a,), R.Tensor({shape}, "float32"))
        return b
"""
    )


def work(mod: Module, **sizes: int) -> int | None:
    program = lower_shapes(rl.trace(mod).result)
    main = program.functions["main"]
    estimate = work_of(program, main)
    if estimate is None:
        return None
    return evaluate(estimate, {s: sizes[s.name] for s in symbols_of_arguments(main)})


def test_loops_multiply_and_statements_add() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    for j in range(m):
        b[i, j] = a[i, j] * a[i, j]
    b[i, 0] = T.float32(1)
"""
    )
    assert work(mod, n=7, m=5) == 7 * (5 * (1 + 2 * WAIT) + WAIT)


def test_lanes_count_once_unless_they_are_rows_apart() -> None:
    along = "for i in T.parallel(n):\n    for j in T.vectorized(32):\n        b[i, j] = a[i, j]"
    across = "for i in T.parallel(n):\n    for j in T.vectorized(32):\n        b[i, j] = a[j, i]"
    assert work(loops_of(along), n=3, m=32) == 3 * 2 * 2 * WAIT
    assert work(loops_of(across), n=3, m=32) == 3 * 2 * (WAIT + LANES)


def test_loads_that_unrolled_copies_share_count_once() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    for r in T.unroll(8):
        for v in T.unroll(2):
            for j in T.vectorized(16):
                b[i, r * 32 + v * 16 + j] = a[i, r] * a[i, v * 16 + j]
"""
    )
    # Per row 16 products, each stored, of 8 elements and 2 vectors.
    assert work(mod, n=3, m=256) == 3 * (16 + (16 + 8 + 2) * WAIT)
    in_loop = loops_of(
        """
for i in T.parallel(n):
    for r in T.unroll(8):
        for j in range(m):
            b[r, j] = a[i, j]
"""
    )
    # The loop within is there eight times, and loads eight times.
    assert work(in_loop, n=3, m=5) == 3 * 8 * 5 * 2 * WAIT


def test_triangles_count_half() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    for j in range(i):
        b[i, j] = a[i, j]
"""
    )
    assert work(mod, n=100, m=100) == 100 * 50 * 2 * WAIT


def test_a_parallel_loop_of_one_iteration_is_no_work_for_a_team() -> None:
    mod = loops_of(
        """
for t in T.parallel((m + 63) // 64):
    for i in range(n):
        for j in T.vectorized(64):
            if t * 64 + j < m:
                b[i, t * 64 + j] = a[i, t * 64 + j]
"""
    )
    few, many = work(mod, n=1000, m=64), work(mod, n=1000, m=65)
    assert few == 0 and many is not None and many >= 1000


def test_remainders_count_half_of_the_divisor() -> None:
    mod = loops_of(
        """
for t in T.parallel(n * m):
    for j in range(t % m):
        b[t // m, j] = a[t // m, j]
"""
    )
    assert work(mod, n=3, m=10) == 30 * 5 * 2 * WAIT and work(mod, n=0, m=0) == 0


def test_versions_count_what_is_chosen() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    if n <= 4:
        b[i, 0] = a[i, 0]
    else:
        b[i, 0] = T.exp(a[i, 0])
"""
    )
    few, many = work(mod, n=4, m=1), work(mod, n=5, m=1)
    assert few == 4 * 2 * WAIT and many == 5 * (CALL + 2)


def test_guarded_terms_count_as_far_as_they_reach() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    for s in range((m + 4095) // 4096):
        for j in range(4096):
            b[i, 0] = b[i, 0] + T.if_then_else(s * 4096 + j < m, a[i, j] * a[i, j], T.float32(0))
"""
    )
    assert work(mod, n=3, m=5) == 3 * 5 * (1 + 2 * WAIT)


def test_private_memory_and_additions_of_products_count_nothing() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    with T.sblock("row"):
        t = T.sblock_alloc_buffer((1,), "float32", scope="local")
        t[0] = T.float32(0)
        for j in range(m):
            t[0] = t[0] + a[i, j] * a[i, j]
        b[i, 0] = t[0]
"""
    )
    assert work(mod, n=4, m=100) == 4 * (100 * (1 + WAIT) + WAIT)


@pytest.mark.parametrize("operator", ["matmul", "linear"])
@pytest.mark.parametrize("symbols", ["", "n k m"])
def test_small_products_start_no_team(operator: str, symbols: str) -> None:
    """A product of 33 x 33 by 33 x 33, which takes one to two microseconds with vectors of 16
    lanes, starts no team, nor does one of 17 by 17 with vectors of 8."""

    def of(size: int) -> int | None:
        dims = ", ".join(f'"{d}"' if symbols else str(size) for d in "nk")
        other = "km" if operator == "matmul" else "mk"
        weights = ", ".join(f'"{d}"' if symbols else str(size) for d in other)
        mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({dims}), "float32"), w: R.Tensor(({weights}), "float32")):
    {"n, k, m = T.int64(), T.int64(), T.int64()" if symbols else ""}
    return R.{operator}(x, w)
""")
        return work(mod, n=size, k=size, m=size)

    small, large = of(2 * rl.Target.host().lanes("float32") + 1), of(100)
    assert small is not None and small < MIN_TEAM_WORK
    assert large is None or large >= MIN_TEAM_WORK


def test_loads_hide_behind_arithmetic() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    with T.sblock("row"):
        t = T.sblock_alloc_buffer((4,), "float32", scope="local")
        for j in range(m):
            for r in T.unroll(4):
                t[r] = t[r] + a[i, j] * T.float32(2)
"""
    )
    assert work(mod, n=3, m=10) == 3 * 10 * (4 + 1)


def test_what_a_loop_does_not_change_is_moved_out_of_it() -> None:
    mod = loops_of(
        """
for i in T.parallel(n):
    for j in range(m):
        b[i, j] = a[i, 0] * T.exp(a[i, 1])
"""
    )
    assert work(mod, n=3, m=10) == 3 * 10 * (1 + 3 * WAIT)


def test_unknown_symbols() -> None:
    by_data = loops_of(
        "for i in T.parallel(n):\n    for j in range(T.Cast('int64', a[i, 0])):\n"
        "        b[i, j] = T.float32(1)"
    )
    by_quotient = loops_of("for i in T.parallel(n // m):\n    b[i, 0] = a[i, 0]")
    endless = loops_of("for i in T.parallel(n):\n    while b[i, 0] < T.float32(1):\n"
                       "        b[i, 0] = a[i, 0]")  # fmt: skip
    for mod in (by_data, by_quotient, endless):
        assert work(mod, n=3, m=3) is None


@I.ir_module
class Program:
    @R.function
    def small(x: R.Tensor((8, 8), "float32")):
        return R.add(x, x)

    @R.function
    def large(x: R.Tensor((4096, 64), "float32")):
        return R.exp(x)

    @R.function
    def some(x: R.Tensor(("n", 64), "float32")):
        n = T.int64()
        return R.exp(x)


def test_programs_that_decide_about_a_team_at_run_time() -> None:
    program = lower_shapes(rl.trace(Program).result)
    estimates = {name: work_of(program, f) for name, f in program.functions.items()}
    assert estimates["large"] is None and estimates["some"] is not None
    text = "\n".join(program_functions(program, Target.host())[0])
    for name, f in program.functions.items():
        entry = text.split(f"define i64 @{symbol_of(f.name)}.entry(")[1].split("\n}")[0]
        assert "GOMP_parallel" in entry
        at = f"i64 {CONTEXT.index('min_work')}"
        assert (at in entry) == (name != "large")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_the_same_on_both_sides(
    threads: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaxlab.runtime.native.function.MIN_TEAM_WORK", MIN_TEAM_WORK)
    exe = rl.compile(Program, threads=threads)
    for n in (0, 1, 15, 63, 64, 200, 1000):
        x = rng.standard_normal((n, 64)).astype("float32")
        np.testing.assert_allclose(exe["some"](x), np.exp(x), rtol=1e-5)
