"""The int8 dot product of every target in the table, as machine code."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir import expr
from relaxlab.ir.target import Target
from relaxlab.nn import quantized
from relaxlab.schedule.intrinsics import dot4_lanes
from relaxlab.schedule.rules.base import schedule_kernel

TARGETS = {
    "vpdpbusd": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
        frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}),
    ),
    "{vex}": Target(
        "cpu", "x86_64-unknown-linux-gnu", "x86-64-v3",
        frozenset({"avx", "avx2", "fma", "f16c", "avxvnni"}),
    ),
    "usdot": Target(
        "cpu", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon", "i8mm", "fullfp16"})
    ),
}  # fmt: skip
LANES = {"vpdpbusd": 16, "{vex}": 8, "usdot": 4}


@pytest.fixture(scope="module", autouse=True)
def all_targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize("instruction", TARGETS)
def test_products_use_the_instruction(instruction):
    target = TARGETS[instruction]
    assert dot4_lanes(target) == LANES[instruction]
    func = quantized.integer_product(quantized.FORMATS["Q8_0"], expr.Var("m"), 32, 64, 1)
    declarations: dict[str, str] = {}
    kernel = emit_kernel(schedule_kernel("product", func, target), "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    text = jit.module_text([kernel.text, barrier], declarations, target)
    lines = [line for line in jit.assembly(text, target).splitlines() if instruction in line]
    assert len(lines) >= 8, lines


def test_without_an_instruction_the_product_still_compiles():
    target = Target("cpu", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon"}))
    assert dot4_lanes(target) is None
    func = quantized.integer_product(quantized.FORMATS["Q4_1"], expr.Var("m"), 32, 64, 1)
    declarations: dict[str, str] = {}
    kernel = emit_kernel(schedule_kernel("product", func, target), "product", declarations)
    barrier = "define void @relaxlab_barrier() #0 {\n  ret void\n}\n"
    assert jit.assembly(jit.module_text([kernel.text, barrier], declarations, target), target)
