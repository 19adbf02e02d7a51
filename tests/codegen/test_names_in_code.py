"""Names of any alphabet, and names of functions of the target's language, in generated code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import generate
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.vm.vm import VirtualMachine
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda, kernels_on_cpu

PROGRAM = rl.parse("""
@I.ir_module
class Größe:
    @T.prim_func
    def ä(a: T.handle, β: T.handle):
        ñ = T.int64()
        A = T.match_buffer(a, (ñ, 8), "float32")
        B = T.match_buffer(β, (ñ, 8), "float32")
        for ı, j in T.grid(ñ, 8):
            with T.sblock("блок"):
                vi, vj = T.axis.remap("SS", [ı, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @T.prim_func
    def ö(a: T.handle, β: T.handle):
        ñ = T.int64()
        sigmoid = T.match_buffer(a, (ñ, 8), "float32")
        truncate = T.match_buffer(β, (ñ, 8), "float32")
        for ı, expf in T.grid(ñ, 8):
            with T.sblock("блок"):
                vi, vj = T.axis.remap("SS", [ı, expf])
                truncate[vi, vj] = T.sigmoid(sigmoid[vi, vj]) + T.exp(-T.Cast("float32", T.Cast(
                    "int8", sigmoid[vi, vj])))

    @R.function
    def main(x: R.Tensor(("ñ", 8), "float32")):
        ñ = T.int64()
        cls = Größe
        α = R.call_tir(cls.ä, (x,), out_ty=R.Tensor((ñ, 8), "float32"))
        名前 = R.call_tir(cls.ö, (α,), out_ty=R.Tensor((ñ, 8), "float32"))
        return 名前
""")
X = np.linspace(-3, 3, 24).astype("float32").reshape(3, 8)
UNFUSED = {"cpu": rl.cpu_pipeline(), "cuda": rl.cuda_pipeline()}
UNFUSED = {kind: passes.without("fuse_ops") for kind, passes in UNFUSED.items()}


@pytest.mark.parametrize("pipeline", [None, UNFUSED["cpu"]])
@pytest.mark.parametrize("checks", ["default", "all"])
def test_native_code(pipeline, checks) -> None:
    want = rl.interpret(PROGRAM, "main", X)
    exe = rl.compile(PROGRAM, pipeline=pipeline, checks=checks, use_cache=False)
    np.testing.assert_allclose(exe(X), want, rtol=1e-5)


def test_a_library(tmp_path: Path) -> None:
    library = tmp_path / "größe.so"
    rl.compile(PROGRAM).export(library)
    want = rl.interpret(PROGRAM, "main", X)
    np.testing.assert_allclose(rl.load(library)(X), want, rtol=1e-5)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_cuda_c(tmp_path: Path) -> None:
    program = lower_shapes(UNFUSED["cuda"].run(PROGRAM).result)
    cuda = generate(program, CUDA_C)
    machine = VirtualMachine(program, kernels_on_cpu(cuda, CpuCuda(cuda.source, tmp_path)))
    want = rl.interpret(PROGRAM, "main", X)
    np.testing.assert_allclose(machine.run("main", X), want, rtol=1e-5)
