"""The int8 dot product of every target in the table, as machine code."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir import expr
from relaxlab.ir.target import Target
from relaxlab.ops.block_formats import FORMATS
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.intrinsics import dot4
from relaxlab.schedule.rules import schedule_kernel
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.tensor_intrin import TensorIntrin
from tests.ops.test_quantized_linear import product
from tests.schedule.instructions import register_models

TARGETS = {
    "vpdpbusd": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
        frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}),
    ),
    "{vex}": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v3",
        frozenset({"avx", "avx2", "fma", "f16c", "avxvnni"}),
    ),
    "vpmaddubsw": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v3",
        frozenset({"avx", "avx2", "fma", "f16c"}),
    ),
    "vpmaddwd": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
        frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),
    ),
    "usdot": Target(
        "cpu", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon", "i8mm", "fullfp16"})
    ),
}  # fmt: skip
LANES = {"vpdpbusd": 16, "{vex}": 8, "vpmaddubsw": 8, "vpmaddwd": 16, "usdot": 4}


@pytest.fixture(scope="module", autouse=True)
def all_targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize("instruction", TARGETS)
def test_products_use_the_instruction(instruction):
    target = TARGETS[instruction]
    intrinsic = TensorIntrin.best(dot4.FAMILY, target)
    assert intrinsic.desc.buffers[2].shape == (expr.const(LANES[instruction]),)
    func = product(FORMATS["Q8_0"], expr.Var("m"), 32, 64)
    declarations: dict[str, str] = {}
    kernel = emit_kernel(schedule_kernel("product", func, Context(target)), "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    text = jit.module_text([kernel.text, barrier], declarations, target)
    lines = [line for line in jit.assembly(text, target).splitlines() if instruction in line]
    assert len(lines) >= 8, lines


@pytest.mark.parametrize("name", [n for n in TensorIntrin.names() if n.startswith("dot4_u8s8")])
def test_the_code_computes_the_description(name: str, rng: np.random.Generator) -> None:
    """The largest and smallest products included, whose sums of two do not fit 16 bits."""
    register_models()
    intrin = TensorIntrin.get(name)
    lanes = intrin.desc.buffers[2].shape[0]
    for low, high, factor in ((0, 256, None), (255, 256, -128), (255, 256, 127), (0, 2, -128)):
        a = rng.integers(low, high, (int(str(lanes)), 4)).astype("uint8")
        b = rng.integers(-128, 128, 4) if factor is None else np.full(4, factor)
        b = b.astype("int8")
        one = rng.integers(-9, 9, len(a)).astype("int32")
        two = one.copy()
        interpret_prim_func(intrin.desc, [a, b, one])
        interpret_prim_func(intrin.impl, [a, b, two])
        np.testing.assert_array_equal(one, two)


def test_without_an_instruction_the_product_still_compiles():
    target = Target("cpu", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon"}))
    assert TensorIntrin.best(dot4.FAMILY, target) is None
    func = product(FORMATS["Q4_1"], expr.Var("m"), 32, 64)
    declarations: dict[str, str] = {}
    kernel = emit_kernel(schedule_kernel("product", func, Context(target)), "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    assert jit.assembly(jit.module_text([kernel.text, barrier], declarations, target), target)
