"""The CUDA C of one use of every third operator, and of functions of bits, as C++ on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import generate
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import IntImm
from relaxlab.ir.module import Module
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script.parser import parse
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, compare, concrete_call
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda, kernels_on_cpu
from tests.codegen.kernels import edges, nearest_integer

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
ONE_EACH = {case.op: case for family in FAMILIES.values() for case in reversed(family())}


def test_operators(tmp_path: Path) -> None:
    cases = {f"case{i}": c for i, c in enumerate(list(ONE_EACH.values())[::3])}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    program = lower_shapes(cuda_pipeline().run(Module.of(functions)).result)
    cuda = generate(program, CUDA_C)
    machine = VirtualMachine(program, kernels_on_cpu(cuda, CpuCuda(cuda.source, tmp_path)))
    for name, case in cases.items():
        for seed, env in enumerate(case.sizes[:2]):
            arrays, expected = concrete_call(case, env, seed)
            got = machine.run(name, *arrays, tuple(env.values()))
            results = got if isinstance(got, tuple | list) else (got,)
            for result, want in zip(results, expected, strict=True):
                compare(np.asarray(result), want, f"{case} with {dict(env)}, seed={seed}")


PRODUCTS = """
@R.function
def matrix(x: R.Tensor(("n", 70), "float32"), w: R.Tensor((70, 72), "float32")):
    return R.matmul(x, w)

@R.function
def batch(x: R.Tensor((2, "n", 70), "float32"), w: R.Tensor((2, 70, 20), "float32")):
    return R.nn.relu(R.matmul(x, w))

@R.function
def halves(x: R.Tensor((4, 70), "float16"), w: R.Tensor((70, 72), "float16")):
    return R.matmul(x, w)

@R.function
def brains(x: R.Tensor((2, 3, 72), "bfloat16"), w: R.Tensor((2, 20, 72), "bfloat16")):
    return R.nn.relu(R.matmul(x, R.permute_dims(w, [0, 2, 1])))

@R.function
def rows(x: R.Tensor(("n", 300), "float32")):
    return R.nn.softmax(x), R.argmax(x, axis=1), R.max(x)
"""


def test_products_and_reductions(tmp_path: Path) -> None:
    """Tiles, warps and reductions across several warps, at sizes with edges and without. Products
    of half precision have too few rows for tensor instructions, which C++ does not have: the SIMT
    interpreter runs those."""
    mod = parse(PRODUCTS)
    cuda = generate(lower_shapes(cuda_pipeline().run(mod).result), CUDA_C)
    machine = VirtualMachine(cuda.program, kernels_on_cpu(cuda, CpuCuda(cuda.source, tmp_path)))
    rng = np.random.default_rng(0)
    for name in cuda.program.functions:
        for n in (1, 5) if name == "rows" else (1, 65):
            params = cuda.program.functions[name].params
            args = [random_tensor(rng, p.ty, n) for p in params]
            got, want = machine.run(name, *args), interpret(mod, name, *args)
            pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
            for a, b in pairs:
                compare(np.asarray(a), np.asarray(b), f"{name}, n={n}")


BITS = """
@T.prim_func
def bits(
    x: T.Buffer((64,), "DTYPE"), y: T.Buffer((64,), "DTYPE"), n: T.Buffer((64,), "int64"),
    after: T.Buffer((64,), "DTYPE"), scaled: T.Buffer((64,), "DTYPE"),
    zeros: T.Buffer((2, 64), "int32"), fixed: T.Buffer((64,), "int32"),
):
    for i in T.thread_binding(64, thread="threadIdx.x"):
        after[i] = T.nextafter(x[i], y[i])
        scaled[i] = T.ldexp(x[i], n[i])
        zeros[0, i] = T.clz(n[i])
        zeros[1, i] = T.clz(T.Cast("int16", n[i]))
        fixed[i] = T.q_multiply_shift(T.Cast("int32", n[i]) * 12345678, 1395864371, 31, n[i])

@R.function
def main(x: R.Tensor((64,), "DTYPE"), y: R.Tensor((64,), "DTYPE"), n: R.Tensor((64,), "int64")):
    return R.call_tir(cls.bits, (x, y, n), out_sinfo=[
        R.Tensor((64,), "DTYPE"), R.Tensor((64,), "DTYPE"), R.Tensor((2, 64), "int32"),
        R.Tensor((64,), "int32")])
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_functions_of_bits(dtype: str, tmp_path: Path) -> None:
    text = BITS.replace("DTYPE", dtype)
    program = lower_shapes(cuda_pipeline().run(parse(text)).result)
    cuda = generate(program, CUDA_C)
    machine = VirtualMachine(program, kernels_on_cpu(cuda, CpuCuda(cuda.source, tmp_path)))
    numbers = np.array([0, -0.0, 1, -1, 2, 1e-8, -1e-8, 3.5], numpy_dtype(dtype))
    x, y = np.repeat(numbers, 8), np.tile(numbers, 8)
    n = np.resize([0, 1, -1, 5, -5, 12, -20], 64)
    for got, want in zip(
        machine.run("main", x, y, n), interpret(parse(text), "main", x, y, n), strict=True
    ):
        bits = f"u{np.asarray(want).dtype.itemsize}"
        np.testing.assert_array_equal(np.asarray(got).view(bits), np.asarray(want).view(bits))


def test_floats_out_of_range_become_the_nearest_integer(tmp_path: Path) -> None:
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    floats = ("float16", "bfloat16", "float32", "float64")
    pairs = [(source, to) for source in floats for to in integers]
    count = len(edges("float32"))
    functions = "".join(
        f"""
    @R.function
    def {source}_{to}(x: R.Tensor(({count},), "{source}")):
        return R.astype(x, "{to}")
"""
        for source, to in pairs
    )
    mod = parse(f"@I.ir_module\nclass M:{functions}")
    program = lower_shapes(cuda_pipeline().run(mod).result)
    cuda = generate(program, CUDA_C)
    machine = VirtualMachine(program, kernels_on_cpu(cuda, CpuCuda(cuda.source, tmp_path)))
    for source, to in pairs:
        x = edges(source)
        got = np.asarray(machine.run(f"{source}_{to}", x))
        assert got.tolist() == [nearest_integer(float(v), to) for v in x], (source, to)


def random_tensor(rng: np.random.Generator, ty: Any, n: int) -> np.ndarray[Any, Any]:
    """Small numbers of the type, its symbols being `n`."""
    shape = [d.value if isinstance(d, IntImm) else n for d in ty.shape]
    return rng.uniform(-0.5, 0.5, shape).astype(numpy_dtype(ty.dtype))
