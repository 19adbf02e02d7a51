"""Products of bfloat16 rows and weights by dot products of pairs."""

from __future__ import annotations

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
from relaxlab.ir.node import replace
from relaxlab.ir.target import Target
from relaxlab.ops import te
from relaxlab.runtime.interpreter import interpret_prim_func
from relaxlab.schedule.intrinsics import has_dot2
from relaxlab.schedule.rules import bfloat16_dot
from relaxlab.schedule.tensor_intrin import TensorIntrin

TARGET = Target(
    "cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
    frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16"}),
)  # fmt: skip
ROWS = (1, 2, 12, 13, 30)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def product(columns: int, depth: int, *, deep_first: bool = False, weight: bool = True) -> PrimFunc:
    """(x bfloat16 (m, depth), w) -> y float32 (m, columns) = 2 * x @ w"""
    m, k = expr.Var("m"), te.reduce_axis(depth, "k")
    x = te.placeholder((m, depth), "bfloat16", "x")
    shape = (depth, columns) if deep_first else (columns, depth)
    w = te.placeholder(shape, "bfloat16", "w")

    def element(i, n):
        right = w[k.var, n] if deep_first else w[n, k.var]
        return te.te_sum(expr.Cast("float32", x[i, k.var]) * expr.Cast("float32", right), k)

    y = te.compute((m, columns), element, "product")
    z = te.compute((m, columns), lambda i, n: y[i, n] * 2.0, "double")
    func = te.create_prim_func([x, w, z])
    return replace(func, attrs=func.attrs.with_(weight_params=(1,))) if weight else func


def rounded(rng, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("deep_first", [False, True])
def test_the_scheduled_product_in_the_interpreter(deep_first, rng):
    columns, depth = 64, 32
    func = bfloat16_dot.apply(product(columns, depth, deep_first=deep_first), TARGET)
    assert func is not None
    w = rounded(rng, columns, depth)
    blocks = w.reshape(columns // 32, 2, 16, depth // 32, 16, 2)
    packed = np.ascontiguousarray(blocks.transpose(0, 3, 1, 4, 2, 5))
    for m in ROWS:
        x, y = rounded(rng, m, depth), np.empty((m, columns), np.float32)
        interpret_prim_func(func, [x, packed, y])
        want = 2 * (x.astype(np.float64) @ w.astype(np.float64).T)
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_the_intrinsic_computes_what_it_says(rng):
    intrin = TensorIntrin.get("dot2_bf16_16")
    a, b = rounded(rng, 16, 2), rounded(rng, 2)
    start = rng.normal(size=16).astype(np.float32)
    results = []
    for func in (intrin.desc, intrin.impl):
        c = start.copy()
        interpret_prim_func(func, [a, b, c])
        results.append(c)
    np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-6)


def test_the_machine_code_has_the_instruction():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    func, declarations = bfloat16_dot.apply(product(64, 64), TARGET), {}
    kernel = emit_kernel(func, "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    text = jit.module_text([kernel.text, barrier], declarations, TARGET)
    lines = [s for s in jit.assembly(text, TARGET).splitlines() if "vdpbf16ps" in s]
    assert len(lines) >= 32 + 2 * 12 * 4
    assert sum("(%rsp)" in s for s in lines) < 8  # sums and pairs are in registers


def test_what_the_rule_fits():
    assert bfloat16_dot.apply(product(64, 64), Target()) is None
    for func in (product(48, 64), product(64, 48), product(64, 64, weight=False)):
        assert bfloat16_dot.apply(func, TARGET) is None


class Layer(nn.Module):
    """y = residual + x @ W.T, with x rounded to the bfloat16 that W is stored in."""

    def __init__(self, rows: int, cols: int) -> None:
        precision = nn.Precision(plain="bfloat16")
        self.linear = nn.Linear(cols, rows, format="BF16", precision=precision)

    def main(self, x, residual):
        return residual + self.linear(x)


@pytest.mark.parametrize("rows, cols", [(96, 64), (6, 40)])
def test_layers_on_this_machine(rows, cols, rng):
    spec = nn.spec.Tensor
    inputs = {"x": spec(("m", cols)), "residual": spec(("m", rows))}
    mod, _ = Layer(rows, cols).export({"main": inputs})
    trace = rl.trace(mod)
    notes = [r for p in trace.passes if p.name == "schedule_kernels" for r in p.rewrites]
    fits = has_dot2(Target.host()) and cols % 32 == 0
    assert any("rule bfloat16_dot" in r.reason for r in notes) == fits
    exe = rl.compile(mod, threads=2, use_cache=False)
    w = rounded(rng, rows, cols)
    (kept,) = exe["main_transform_params"]((w,))
    for m in ROWS:
        x, residual = (rng.normal(size=(m, n)).astype(np.float32) for n in (cols, rows))
        got = np.asarray(exe["main"](x, residual, kept))
        exact = x.astype(ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_allclose(got, residual + exact @ w.astype(np.float64).T, atol=2e-5)
        np.testing.assert_allclose(got, rl.interpret(mod, "main", x, residual, w), atol=2e-5)
