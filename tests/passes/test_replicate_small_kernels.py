"""Small kernels run by every thread for itself."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.program import program_functions
from relaxlab.ir import host
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.native.function import CheckFailed

WIDTH = 64

PROGRAM = f"""
@R.function
def main(x: R.Tensor((1, {WIDTH}), "float32"), w: R.Tensor(({WIDTH}, 4096), "float32"),
         v: R.Tensor((4096, {WIDTH}), "float32"), g: R.Tensor(({WIDTH},), "float32")):
    with R.dataflow():
        a = R.nn.rms_norm(x, g, axes=-1)
        b = R.matmul(a, w)
        c = R.matmul(R.nn.softmax(b), v)
        d = R.nn.rms_norm(c, g, axes=-1)
        e = R.nn.rms_norm(d, g, axes=-1)
        f = R.matmul(e, w)
        R.output(f)
    return f
"""


def lowered(text: str) -> host.HostFunction:
    return lower_shapes(cpu_pipeline().run(rl.parse(text)).result).functions["main"]


def test_small_kernels_run_alone_and_large_ones_together():
    function = lowered(PROGRAM)
    calls = [i for i in host.walk_instrs(function.instrs) if isinstance(i, host.CallKernel)]
    alone = [i.alone for i in calls]
    names = [i.function for i in calls]
    assert all(i.alone == ("norm" in i.function) for i in calls if "softmax" not in i.function)
    assert alone.count(True) >= 3, names
    assert [s.per_thread for s in function.storages()] in ([True, False], [False, True])


def test_memory_that_a_thread_reads_alone_is_not_reused_before_all_threads_met():
    """`c` is read by a kernel that every thread runs alone; the next product must not write
    where it lies."""
    function = lowered(PROGRAM)
    spans: dict[int, tuple[int, int]] = {}
    for i in function.instrs:
        if isinstance(i, host.View):
            ty = function.registers[i.dst].ty
            size = int(np.prod([d.value for d in ty.shape])) * 4
            spans[i.dst] = (i.base, i.offset.value, i.offset.value + size)
    calls = [i for i in function.instrs if isinstance(i, host.CallKernel)]
    for at, call in enumerate(calls[:-1]):
        if not call.alone:
            continue
        later = next(c for c in calls[at + 1 :] if not c.alone)
        for read in call.buffers[:-1]:
            for written in later.buffers[-1:]:
                if read in spans and written in spans and spans[read][0] == spans[written][0]:
                    (_, a, b), (_, c, d) = spans[read], spans[written]
                    assert b <= c or d <= a, (call, later)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    rng = np.random.default_rng(3)
    mod = rl.parse(PROGRAM)
    args = [
        rng.normal(size=s).astype(np.float32)
        for s in ((1, WIDTH), (WIDTH, 4096), (4096, WIDTH), (WIDTH,))
    ]
    want = np.asarray(rl.interpret(mod, "main", *args))
    exe = rl.compile(mod, threads=threads, use_cache=False)
    for _ in range(20):
        np.testing.assert_allclose(np.asarray(exe["main"](*args)), want, rtol=2e-4, atol=2e-4)


RETURNED = """
@R.function
def main(x: R.Tensor((1, 8), "float32")):
    with R.dataflow():
        a = R.nn.softmax(x)
        b = R.nn.softmax(a)
        R.output(a, b)
    return (a, b)
"""


DIVIDING = """
@T.prim_func
def divide(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32"), z: T.Buffer((4,), "int32")):
    for i, j in T.grid(4, 4):  # sums are not fused with each other
        with T.block("divide"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                z[vi] = 0
            z[vi] = z[vi] + x[vj] // y[vj]

@R.function
def main(x: R.Tensor((4,), "int32"), y: R.Tensor((4,), "int32")):
    with R.dataflow():
        a = R.call_tir(cls.divide, (x, y), R.Tensor((4,), "int32"))
        b = R.call_tir(cls.divide, (y, a), R.Tensor((4,), "int32"))
        c = R.call_tir(cls.divide, (b, y), R.Tensor((4,), "int32"))
        R.output(c)
    return c
"""


def test_kernels_that_may_fail_are_not_replicated():
    """All threads agree on what failed: none may be ahead of another."""
    function = lowered(DIVIDING)
    calls = [i for i in function.instrs if isinstance(i, host.CallKernel)]
    assert len(calls) == 3 and not any(i.alone for i in calls)
    exe = rl.compile(rl.parse(DIVIDING), threads=3, use_cache=False)
    one, zero = np.ones(4, np.int32), np.zeros(4, np.int32)
    for x, y in ((one, zero), (zero, one)):
        for _ in range(20):
            with pytest.raises(CheckFailed, match="division by zero"):
                exe["main"](x, y)
    np.testing.assert_array_equal(np.asarray(exe["main"](one, one)), zero)


CONDITION = DIVIDING.replace(
    "z[vi] = z[vi] + x[vj] // y[vj]",
    "if x[vj] // y[vj] > 0:\n                z[vi] = z[vi] + 1",
)


def test_kernels_with_conditions_that_may_fail_are_not_replicated():
    assert CONDITION != DIVIDING
    calls = [i for i in lowered(CONDITION).instrs if isinstance(i, host.CallKernel)]
    assert len(calls) == 3 and not any(i.alone for i in calls)


OVERWRITTEN = f"""
@T.prim_func
def bump(A: T.Buffer((1, {WIDTH}), "float32")):
    for i in range({WIDTH}):
        with T.block("bump"):
            vi = T.axis.spatial({WIDTH}, i)
            A[0, vi] = A[0, vi] + T.float32(1)

@R.function
def main(x: R.Tensor((1, 4096), "float32"), w: R.Tensor((4096, {WIDTH}), "float32"),
         v: R.Tensor(({WIDTH}, 4096), "float32"), g: R.Tensor(({WIDTH},), "float32")):
    a = R.matmul(x, w)
    n = R.nn.rms_norm(a, g, axes=-1)
    b = R.call_tir_inplace(
        cls.bump, (a,), inplace_indices=[0], out_sinfo=R.Tensor((1, {WIDTH}), "float32"))
    m = R.nn.rms_norm(b, g, axes=-1)
    c = R.matmul(n, v)
    d = R.matmul(m, v)
    return (c, d)
"""


def test_arguments_overwritten_later_are_not_replicated():
    calls = [i for i in lowered(OVERWRITTEN).instrs if isinstance(i, host.CallKernel)]
    norms = [i for i in calls if "norm" in i.function]
    assert len(norms) == 2 and not any(i.alone for i in norms)
    apart = lowered(OVERWRITTEN.replace("cls.bump, (a,)", "cls.bump, (R.exp(a),)"))
    calls = [i for i in apart.instrs if isinstance(i, host.CallKernel)]
    assert any(i.alone for i in calls if "norm" in i.function)


@pytest.mark.parametrize(("most", "replicated"), [(WIDTH - 1, False), (8 * WIDTH, True)])
def test_the_limit_on_stores(most, replicated):
    pipeline = cpu_pipeline().with_options("replicate_small_kernels", most=most)
    function = lower_shapes(pipeline.run(rl.parse(PROGRAM)).result).functions["main"]
    calls = [i for i in function.instrs if isinstance(i, host.CallKernel)]
    assert any(i.alone for i in calls) == replicated


def test_results_share_memory():
    function = lowered(RETURNED)
    calls = [i for i in function.instrs if isinstance(i, host.CallKernel)]
    assert calls and not any(i.alone for i in calls)


def test_a_lone_kernel_gets_a_team_of_one():
    program = lower_shapes(cpu_pipeline().run(rl.parse(PROGRAM)).result)
    texts, *_ = program_functions(program, Target.host())
    calls = [line for text in texts for line in text.splitlines() if "call void @rl." in line]
    assert any("i64 0, i64 1)" in line for line in calls)
    assert any("i64 %thread, i64 %threads)" in line for line in calls)
