"""Products of bfloat16 rows and weights by dot products of pairs."""

from __future__ import annotations

import dataclasses

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir import expr
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.ops import te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule
from relaxlab.schedule.intrinsics import dot2
from relaxlab.schedule.intrinsics.amx import FEATURES
from relaxlab.schedule.rules import bfloat16_dot
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.tensor_intrin import TensorIntrin
from tests.schedule.instructions import register_models

TARGET = Target(
    "cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
    frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16"}),
)  # fmt: skip
WITH_TILES = dataclasses.replace(TARGET, cpu="sapphirerapids", features=TARGET.features | FEATURES)
ROWS = (1, 2, 12, 13, 30)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


WEIGHTS = frozenset({1})


def product(columns: int, depth: int, *, deep_first: bool = False, rows=None) -> PrimFunc:
    """(x bfloat16 (m, depth), w) -> y float32 (m, columns) = 2 * x @ w"""
    m, k = rows or expr.Var("m"), te.reduce_axis(depth, "k")
    x = te.placeholder((m, depth), "bfloat16", "x")
    shape = (depth, columns) if deep_first else (columns, depth)
    w = te.placeholder(shape, "bfloat16", "w")

    def element(i, n):
        right = w[k.var, n] if deep_first else w[n, k.var]
        return te.te_sum(expr.Cast("float32", x[i, k.var]) * expr.Cast("float32", right), k)

    y = te.compute((m, columns), element, "product")
    z = te.compute((m, columns), lambda i, n: y[i, n] * 2.0, "double")
    return te.create_prim_func([x, w, z])


def rounded(rng, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(ml_dtypes.bfloat16)


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    """The function as the rule schedules it."""
    sch = bfloat16_dot.apply(Schedule(func), Context(target, WEIGHTS))
    assert isinstance(sch, Schedule), sch
    return sch.func


def check(func: PrimFunc, columns: int, depth: int, m: int, rng) -> None:
    """The scheduled product of `m` rows in the interpreter, against NumPy."""
    w, x = rounded(rng, columns, depth), rounded(rng, m, depth)
    blocks = w.reshape(columns // 32, 2, 16, depth // 32, 16, 2)
    packed = np.ascontiguousarray(blocks.transpose(0, 3, 1, 4, 2, 5))
    y = np.empty((m, columns), np.float32)
    interpret_prim_func(func, [x, packed, y])
    want = 2 * (x.astype(np.float64) @ w.astype(np.float64).T)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("deep_first", [False, True])
def test_the_scheduled_product_in_the_interpreter(deep_first, rng):
    func = scheduled(product(64, 32, deep_first=deep_first), TARGET)
    for m in ROWS:
        check(func, 64, 32, m, rng)


def test_the_intrinsic_agrees_with_its_description(rng):
    register_models()
    intrin = TensorIntrin.get("dot2_bf16_16")
    a, b = rounded(rng, 16, 2), rounded(rng, 2)
    start = rng.normal(size=16).astype(np.float32)
    results = []
    for func in (intrin.desc, intrin.impl):
        c = start.copy()
        interpret_prim_func(func, [a, b, c])
        results.append(c)
    np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-6)


def assembly(func: PrimFunc, target: Target) -> list[str]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    declarations: dict[str, str] = {}
    kernel = emit_kernel(func, "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    text = jit.module_text([kernel.text, barrier], declarations, target)
    return jit.assembly(text, target).splitlines()


def test_the_machine_code_has_the_instruction():
    code = assembly(scheduled(product(64, 64), TARGET), TARGET)
    lines = [line for line in code if "vdpbf16ps" in line]
    assert len(lines) >= 32 + 2 * 12 * 4
    assert sum("(%rsp)" in line for line in lines) < 8  # sums and pairs are in registers


def test_kernels_that_the_rule_fits():
    reason = bfloat16_dot.apply(Schedule(product(64, 64)), Context(Target(), WEIGHTS))
    assert reason == "the processor has no instruction for dot products of bfloat16"
    for func, weights in (
        (product(48, 64), WEIGHTS), (product(64, 48), WEIGHTS), (product(64, 64), frozenset()),
    ):  # fmt: skip
        assert isinstance(bfloat16_dot.apply(Schedule(func), Context(TARGET, weights)), str)


@pytest.mark.parametrize("m", [1, 5, 33])
def test_several_rows_use_matrix_tiles_where_there_are_some(m, rng):
    func = scheduled(product(64, 32), WITH_TILES)
    assert "tile_dot_bf16" in rl.Module.of({"f": func}).script()
    check(func, 64, 32, m, rng)


def test_a_constant_number_of_rows_needs_no_padding(rng):
    func = scheduled(product(32, 32, rows=expr.const(32)), WITH_TILES)
    assert "_pad" not in rl.Module.of({"f": func}).script()
    check(func, 32, 32, 32, rng)


class Layer(nn.Module):
    """y = residual + x @ W.T, with x rounded to the bfloat16 that W is stored in."""

    def __init__(self, rows: int, cols: int) -> None:
        precision = nn.Precision(plain="bfloat16")
        self.linear = nn.Linear(cols, rows, format="BF16", precision=precision)

    def main(self, x, residual):
        return residual + self.linear(x)


def layer(rows: int, cols: int) -> rl.Module:
    spec = nn.spec.Tensor
    inputs = {"x": spec(("m", cols)), "residual": spec(("m", rows))}
    return Layer(rows, cols).export({"main": inputs})[0]


def test_the_machine_code_has_matrix_tiles():
    kernels = rl.trace(layer(64, 64), WITH_TILES).result.loop_functions()
    (func,) = (f for name, f in kernels.items() if "linear" in name)
    code = assembly(func, WITH_TILES)
    tiles, pairs = (sum(name in line for line in code) for name in ("tdpbf16ps", "vdpbf16ps"))
    assert tiles >= 4 and pairs >= 32  # the version for a single row has no tiles


@pytest.mark.parametrize("rows, cols", [(96, 64), (6, 40)])
def test_layers_on_this_machine(rows, cols, rng):
    mod = layer(rows, cols)
    trace = rl.trace(mod)
    remarks = [r for p in trace.passes if p.name == "schedule_kernels" for r in p.remarks]
    fits = TensorIntrin.best(dot2.FAMILY, Target.host()) is not None and cols % 32 == 0
    assert any("rule bfloat16_dot" in r.reason for r in remarks if r.applied) == fits
    exe = rl.compile(mod, threads=2, use_cache=False)
    w = rounded(rng, rows, cols)
    (kept,) = exe["main_transform_params"]((w,))
    for m in ROWS:
        x, residual = (rng.normal(size=(m, n)).astype(np.float32) for n in (cols, rows))
        got = np.asarray(exe["main"](x, residual, kept))
        exact = x.astype(ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_allclose(got, residual + exact @ w.astype(np.float64).T, atol=2e-5)
        np.testing.assert_allclose(got, rl.interpret(mod, "main", x, residual, w), atol=2e-5)
