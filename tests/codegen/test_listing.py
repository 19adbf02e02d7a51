"""Kernels written down with the lines that they come from."""

from __future__ import annotations

import re

import pytest

import relaxlab as rl
from relaxlab.codegen.listing import locate, loops_listing
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.listing import line_bits, list_kernel, read_assembly
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.ir.target import parse_target
from relaxlab.script import tir as T

PROGRAM = """\
from relaxlab.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 128), "float32"), w: R.Tensor((128, 64), "float32"),
             b: R.Tensor((64,), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.add(y, b)
            r = R.nn.relu(z)
            s = R.nn.softmax(r, axis=-1)
            R.output(s)
        return s
"""
MATMUL, ADD, RELU, SOFTMAX = 10, 11, 12, 13
CPU = parse_target("cpu")


@pytest.fixture(scope="module")
def kernels():
    return rl.trace(rl.parse(PROGRAM)).result.loop_functions()


def lines_with(listing, pattern):
    return {line.loop for line in listing if re.search(pattern, line.text)}


def test_statements_get_their_printed_places(kernels):
    found = locate(kernels["softmax"], "softmax")
    text = "\n".join(found.lines)
    assert text.startswith("@T.prim_func") and "def softmax(" in found.lines[1]
    again = locate(found.func, "softmax")
    assert again.lines == found.lines
    assert rl.structural_equal(found.func, kernels["softmax"])


def test_lines_of_a_fused_kernel_come_from_the_calls_that_were_fused(kernels):
    found = locate(kernels["fused_matmul_add_relu"], "fused")
    by_text = {}
    for number, spans in found.origins.items():
        by_text.setdefault(found.lines[number - 1].strip(), {s.line for s in spans})
    product = next(v for k, v in by_text.items() if k.startswith("y[") and "* w[" in k)
    last = next(v for k, v in by_text.items() if k.startswith("out[") and "T.max" in k)
    assert product == {MATMUL}
    assert last == {ADD, RELU}
    assert all(s.via for spans in found.origins.values() for s in spans)


def test_assembly_knows_the_lines_of_the_loops(kernels):
    listing = list_kernel(kernels["softmax"], "softmax", CPU)
    count = len(listing.loops)
    for lines in (listing.emitted, listing.optimised, listing.assembly):
        assert any(line.loop for line in lines)
        assert all(0 <= line.loop <= count for line in lines)
    exponentials = lines_with(listing.loops, r"= T\.exp\(")
    assert len(exponentials) == 1
    assert exponentials <= {line.loop for line in listing.assembly}
    division = lines_with(listing.loops, r"^\s*T_softmax_norm\[.*=.*T_softmax_exp\[")
    assert division <= lines_with(listing.optimised, r"\bfmul\b|\bfdiv\b")
    assert not any("!dbg" in line.text for line in (*listing.emitted, *listing.optimised))


def test_the_metadata_changes_no_instruction(kernels):
    for name, func in kernels.items():
        declarations = {}
        kernel = emit_kernel(func, name, declarations, CPU)
        texts = [*support_functions(declarations, CPU), kernel.text]
        plain = jit.assembly(jit.module_text(texts, declarations, CPU), CPU)
        without = [line.text for line in read_assembly(plain, symbol_of(name))]
        assert without == [line.text for line in list_kernel(func, name, CPU).assembly]
        assert "!dbg" not in texts[-1]


def test_the_width_of_an_instruction():
    assert line_bits("vfmadd231ps %zmm1, %zmm2, %zmm3") == 512
    assert line_bits("vmulps (%rax), %ymm1, %ymm2") == 256
    assert line_bits("mulps %xmm1, %xmm2") == 128
    assert line_bits("vaddss %xmm1, %xmm2, %xmm2") == 0
    assert line_bits("addq $1, %rax") == 0
    assert line_bits("fmla v0.4s, v1.4s, v2.4s") == 128


SPILLING = """\
from relaxlab.script import tir as T


@T.prim_func(s_tir=True)
def main(a: T.Buffer((64, 16), "float32"), b: T.Buffer((64, 16), "float32"),
         c: T.Buffer((16,), "float32")):
    sums = T.sblock_alloc_buffer((64, 16), "float32", scope="local")
    for i in T.unroll(64):
        for j in T.vectorized(16):
            with T.sblock("load"):
                vi, vj = T.axis.remap("SS", [i, j])
                sums[vi, vj] = a[vi, vj] * c[vj]
    for k in range(100):
        for i in T.unroll(64):
            for j in T.vectorized(16):
                with T.sblock("sum"):
                    vk, vi, vj = T.axis.remap("SSS", [k, i, j])
                    sums[vi, vj] = sums[vi, vj] * sums[63 - vi, vj] + c[vj]
    for i in T.unroll(64):
        for j in T.vectorized(16):
            with T.sblock("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = sums[vi, vj]
"""


def test_spills_and_the_stack_are_listed():
    func = rl.parse(SPILLING)["main"]
    listing = list_kernel(func, "main", CPU)
    assert listing.stack >= 1024
    assert any("pill" in line.remark or "eload" in line.remark for line in listing.assembly)
    assert listing.vector_bits == CPU.facts.vector_bits


def test_plain_machines_list_the_code_of_intrinsics():
    """In loops without blocks, each call linked with the loops that it is the code of."""

    @T.prim_func
    def desc(b: T.Buffer((4,)), a: T.Buffer((4,))):
        for i in range(4):
            b[i] = a[i] * 2.0

    @T.prim_func
    def impl(b: T.Buffer((4,)), a: T.Buffer((4,))):
        T.call_extern("void", "double_four", T.address_of(b[0]), T.address_of(a[0]))

    @T.prim_func
    def twice(x: T.Buffer((8,)), y: T.Buffer((8,))):
        for i in range(8):
            with T.sblock("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi] * 2.0

    rl.TensorIntrin.register("test_double_four", desc, impl, override=True)
    sch = rl.Schedule(twice)
    (loops,) = loops_listing("twice", sch.func).panes
    assert loops.key == "loops"
    _, inner = sch.split(sch.get_loops(sch.get_block("y"))[0], [None, 4])
    sch.tensorize(inner, "test_double_four")
    loops, instructions = loops_listing("twice", sch.func).panes
    assert instructions.key == "instructions"
    assert not any("sblock" in line.text for line in instructions.lines)
    (call,) = (line for line in instructions.lines if "double_four" in line.text)
    assert call.text.endswith("T.address_of(y[i_0 * 4]), T.address_of(x[i_0 * 4])))")
    found = [line.text.strip() for line in loops.lines[call.loop - 1 :]]
    assert found == ["for i in range(4):", "y_b[i] = x_a[i] * T.float32(2.0)"]
