"""Kernels of several loop nests: which rule takes which, what they compute, and their traces."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.loops import BlockRealize, PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.rules.base import blocks_of
from relaxlab.schedule.schedule import BlockRV
from relaxlab.schedule.tree import all_blocks

ATTENTION = """
@T.prim_func
def f(
    Q: T.Buffer((40, 24), "float32"), K: T.Buffer((40, 24), "float32"),
    V: T.Buffer((40, 24), "float32"), O: T.Buffer((40, 24), "float32"),
):
    S = T.alloc_buffer((40, 40), "float32")
    most = T.alloc_buffer((40,), "float32")
    P = T.alloc_buffer((40, 40), "float32")
    total = T.alloc_buffer((40,), "float32")
    for i in range(40):
        for j in range(40):
            S[i, j] = T.float32(0)
            for k in range(24):
                S[i, j] = S[i, j] + Q[i, k] * K[j, k]
    for i in range(40):
        most[i] = T.min_value("float32")
        for j in range(40):
            most[i] = T.max(most[i], S[i, j])
    for i, j in T.grid(40, 40):
        P[i, j] = T.exp(S[i, j] - most[i])
    for i in range(40):
        total[i] = T.float32(0)
        for j in range(40):
            total[i] = total[i] + P[i, j]
    for i in range(40):
        for j in range(24):
            O[i, j] = T.float32(0)
            for k in range(40):
                O[i, j] = O[i, j] + P[i, k] * V[k, j]
    for i, j in T.grid(40, 24):
        O[i, j] = O[i, j] / total[i]
"""
STEPS = """
@T.prim_func
def f(A: T.Buffer((50, 60), "float32")):
    B = T.alloc_buffer((50, 60), "float32")
    for t in range(4):
        for i, j in T.grid(48, 58):
            with T.sblock("across"):
                y, x = T.axis.remap("SS", [i, j])
                B[y + 1, x + 1] = A[y + 1, x] + A[y + 1, x + 1] + A[y + 1, x + 2]
        for i, j in T.grid(48, 58):
            with T.sblock("down"):
                y, x = T.axis.remap("SS", [i, j])
                A[y + 1, x + 1] = A[y + 1, x + 1] * T.float32(0.5) + B[y + 1, x + 1]
"""
ELIMINATION = """
@T.prim_func
def f(A: T.Buffer((40, 40), "float32")):
    for k in range(40):
        for i in range(39 - k):
            A[k + 1 + i, k] = A[k + 1 + i, k] / A[k, k]
        for i in range(39 - k):
            for j in range(39 - k):
                x = A[k + 1 + i, k] * A[k, k + 1 + j]
                A[k + 1 + i, k + 1 + j] = A[k + 1 + i, k + 1 + j] - x
"""
TWO_PRODUCTS = """
@T.prim_func
def f(a: T.Buffer(("n", 24), "float32"), b: T.Buffer((24, 40), "float32"),
      c: T.Buffer((40, 20), "float32"), d: T.Buffer(("n", 20), "float32")):
    t = T.alloc_buffer((n, 40), "float32")
    for i, j, k in T.grid(n, 40, 24):
        with T.sblock("sum"):
            y, x, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                t[y, x] = T.float32(0)
            t[y, x] = t[y, x] + a[y, z] * b[z, x]
    for i, j, k in T.grid(n, 20, 40):
        with T.sblock("sum"):
            y, x, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                d[y, x] = T.float32(0)
            d[y, x] = d[y, x] + t[y, z] * c[z, x]
"""
SUMS_IN_STEPS = """
@T.prim_func
def f(A: T.Buffer((20, 30), "float32"), C: T.Buffer((20,), "float32")):
    B = T.alloc_buffer((20, 30), "float32")
    for k in range(3):
        for i in range(20):
            for j in range(30):
                C[i] = C[i] + A[i, j]
        for i in range(20):
            for j in range(30):
                C[i] = C[i] - A[i, j] * A[i, k]
    for k in range(19):
        for i in range(19 - k):
            for j in range(30):
                B[i, j] = A[i, j] * C[k + 1]
            for j in range(30):
                if B[i, j] > A[i + k, j]:
                    C[i + k + 1] = B[i, j]
"""
CHOLESKY = """
@T.prim_func
def f(A: T.Buffer((30, 30), "float32")):
    for i in range(30):
        for j in range(i):
            for k in range(j):
                A[i, j] = A[i, j] - A[i, k] * A[j, k]
            A[i, j] = A[i, j] / A[j, j]
        for k in range(i):
            A[i, i] = A[i, i] - A[i, k] * A[i, k]
        A[i, i] = T.sqrt(A[i, i])
"""
LONGER_ROWS = """
@T.prim_func
def f(A: T.Buffer((40, 40), "float32"), C: T.Buffer((40, 40), "float32")):
    m = T.alloc_buffer((40,), "float32")
    for k in range(40):
        for i in range(40):
            m[i] = T.float32(0)
            for j in range(k):
                m[i] = m[i] + A[i, j]
        for i in range(40):
            for j in range(k):
                C[i, j] = A[i, j] / (m[i] + T.float32(1))
            A[i, k] = C[i, 0]
"""
A_BLOCK_WITHOUT_AXES = """
@T.prim_func
def f(C: T.Buffer((6, 6), "float32"), D: T.Buffer((6,), "float32"), E: T.Buffer((6,), "float32")):
    for j in range(2):
        for k in range(2):
            for l in range(2):
                E[j] = C[k, j + 1] + E[j]
        for p in range(4):
            D[0] = C[j, j]
            for q in range(4):
                C[4, q] = C[4, q] - T.float32(1)
"""
KERNELS = {
    "a block without axes": (A_BLOCK_WITHOUT_AXES, ["fallback", "elementwise"]),
    "Cholesky": (CHOLESKY, ["parts", "fallback", "elementwise"]),
    "longer rows": (LONGER_ROWS, ["rows", "elementwise"]),
    "sums in steps": (SUMS_IN_STEPS, ["parts", "parts"]),
    "attention": (ATTENTION, ["matmul", "rows", "matmul", "elementwise"]),
    "steps": (STEPS, []),
    "elimination": (ELIMINATION, ["elementwise"]),
    "two products": (TWO_PRODUCTS, ["matmul", "matmul"]),
}


def kernel(name: str) -> PrimFunc:
    return rl.parse(KERNELS[name][0])["f"]


def arguments(func: PrimFunc, rng: np.random.Generator) -> list[np.ndarray]:
    """Positive numbers, the pivots of an elimination larger; 13 for a symbol."""
    shapes = [[int(getattr(d, "value", 13)) for d in b.shape] for b in func.buffers]
    arrays = [rng.uniform(0.1, 1, shape).astype("float32") for shape in shapes]
    if len(arrays) == 1:
        np.fill_diagonal(arrays[0], 40)
    return arrays


def same(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, 1e-4, 1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_each_part_has_its_rule(name: str, rng: np.random.Generator) -> None:
    """The rules that take the parts; the results; and the trace, made again from JSON."""
    func = kernel(name)
    sch = rl.schedule_of(rl.trace(rl.Module((("f", func),))), "f")
    apart = [step for step in sch.trace if step.name == "schedule_apart"]
    assert [step.remark for step in apart] == [f"by the rule {r}" for r in KERNELS[name][1]]
    assert structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)
    again = rl.parse(sch.mod.script())["f"]
    arrays = arguments(func, rng)
    plain, scheduled, compiled = ([a.copy() for a in arrays] for _ in range(3))
    interpret_prim_func(func, plain)
    interpret_prim_func(again, scheduled)
    rl.compile(func, checks="all", use_cache=False)(*compiled)
    same(scheduled, plain)
    same(compiled, plain)


def blocks_named(sch: Schedule, *names: str) -> list[BlockRV]:
    return [sch.get_block(name) for name in names]


def test_nests_are_a_function(rng: np.random.Generator) -> None:
    """Buffers that other nests use, too, become parameters, and those that only these nests use
    are allocated in the new function; blocks keep different names."""
    sch = Schedule(kernel("two products"))
    seen: list[PrimFunc] = []

    def looked_at(part: Schedule) -> Schedule:
        seen.append(part.func)
        (block,) = blocks_of(part.func)
        (i, *_) = part.get_loops(part.get_block(block.name))
        part.parallel(i)
        return part

    sch.schedule_apart(blocks_named(sch, "sum"), looked_at)
    sch.schedule_apart(blocks_named(sch, "sum_1"), looked_at)
    assert [[p.name for p in func.params] for func in seen] == [["a", "b", "t"], ["c", "d", "t"]]
    whole = Schedule(kernel("attention"))
    whole.form_blocks()
    whole.schedule_apart(
        blocks_named(whole, "most", "total"), lambda part: seen.append(part.func) or part
    )
    assert [p.name for p in seen[-1].params] == ["S", "P", "total"]
    arrays = arguments(sch.original, rng)
    plain, scheduled = ([a.copy() for a in arrays] for _ in range(2))
    interpret_prim_func(sch.original, plain)
    interpret_prim_func(sch.func, scheduled)
    same(scheduled, plain)


def test_variables_of_steps_are_parameters() -> None:
    """With their ranges, so that what holds for all steps can be proved."""
    sch = Schedule(kernel("elimination"))
    sch.form_blocks()
    seen: list[PrimFunc] = []
    sch.schedule_apart(blocks_named(sch, "A_2"), lambda part: seen.append(part.func) or part)
    (func,) = seen
    assert [p.name for p in func.params] == ["A", "k"]
    assert str(func.attrs["tir_var_range"]["k"]) == "Range(min=0, extent=40)"


def test_what_cannot_be_apart() -> None:
    sch = Schedule(kernel("two products"))
    both = blocks_named(sch, "sum", "sum_1")
    with pytest.raises(ScheduleError, match="some of the loop nests"):
        sch.schedule_apart(both, lambda part: part)
    with pytest.raises(ScheduleError, match="leaves the layout"):
        sch.schedule_apart(both[:1], transposed)
    with pytest.raises(TypeError, match="returns a schedule"):
        sch.schedule_apart(both[:1], lambda part: None)  # type: ignore[arg-type, return-value]
    sch.set_scope(both[0], 0, "local")
    with pytest.raises(ScheduleError, match="in main memory"):
        sch.schedule_apart(both[:1], lambda part: part)


def test_buffers_are_as_large_as_the_last_step_needs() -> None:
    sch = Schedule(kernel("longer rows"))
    sch.form_blocks()
    sch.schedule_apart(blocks_named(sch, "m"), partial_sums)
    assert isinstance(sch.func.body, BlockRealize)
    partial = next(b for b in sch.func.body.block.alloc_buffers if b.name == "m_rf")
    assert [str(d) for d in partial.shape] == ["5", "40"]
    shorter = rl.parse(LONGER_ROWS.replace("range(k)", "range(40 - k)"))["f"]
    sch = Schedule(shorter)
    sch.form_blocks()
    with pytest.raises(ScheduleError, match="the size of m_rf never falls from step to step"):
        sch.schedule_apart(blocks_named(sch, "m"), partial_sums)


def partial_sums(part: Schedule) -> Schedule:
    _, j = part.get_loops(part.get_block("m"))
    several, _ = part.split(j, [None, 8])
    part.rfactor(several, 0)
    return part


def transposed(part: Schedule) -> Schedule:
    part.transform_layout(part.get_block("sum"), ("write", 0), lambda i, j: (j, i))
    return part


def test_products_of_symbolic_sizes_in_parts_are_tiled(rng: np.random.Generator) -> None:
    """Without versions as well, whether the second operand is transposed or not: no result is a sum
    by itself."""
    text = ATTENTION.replace("40", "n").replace("24", "d")
    params = re.sub(r"(\w+): T.Buffer\(\(n, d\), \S+\),?", r"\1_: T.handle,", text, count=4)
    matched = "".join(f'    {b} = T.match_buffer({b}_, (n, d), "float32")\n' for b in "QKVO")
    params = params.replace("):\n", f"):\n    n, d = T.int64(), T.int64()\n{matched}", 1)
    mod = rl.parse(params)
    (func,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    made = [buffer for block in all_blocks(func) for buffer in block.alloc_buffers]
    sums = [b for b in made if b.name.endswith("_local") and b.ndim == 2]
    assert {b.name for b in sums} >= {"S_local", "O_local"}
    assert all(int(str(b.shape[0])) > 1 for b in sums)
    exe = rl.compile(mod, threads=2, use_cache=False, checks="all")["f"]
    for n, d in ((1, 1), (7, 40), (40, 24), (130, 65)):
        q, k, v = (rng.standard_normal((n, d)).astype("float32") for _ in range(3))
        out = np.full((n, d), np.nan, "float32")
        exe(q, k, v, out)
        p = np.exp(q @ k.T - (q @ k.T).max(1, keepdims=True))
        np.testing.assert_allclose(out, p @ v / p.sum(1, keepdims=True), rtol=1e-3, atol=1e-4)
