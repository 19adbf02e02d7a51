"""Executables for GPUs: what can be seen of them, and calls, as far as the machine allows."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.gpu.dialect import TensorMap
from relaxlab.ir.expr import const
from relaxlab.ir.loops import Buffer
from relaxlab.ir.target import Target, parse_target
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.packed import register_func
from relaxlab.runtime.vm.cuda import CudaExecutable, require_cupy
from relaxlab.runtime.vm.gpu import NoGpu, simulated
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.tensor_map import tensor_map
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import assert_same, random_arguments
from tests.passes.graph_programs import Programs

PROGRAM = """
@T.prim_func
def count(seen: T.Buffer((4,), "int32"), x: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("count"):
            v = T.axis.spatial(4, i)
            seen[v] = seen[v] + x[v]

@T.prim_func
def positive(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("positive"):
            v = T.axis.spatial(4, i)
            assert x[v] > 0, "x is not positive"
            y[v] = x[v]

@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 48), "float32")):
    with R.dataflow():
        y = R.nn.softmax(R.matmul(x, w))
        z = R.nn.gelu(y) + R.const(1.0, "float32")
        R.output(z)
    return z

@R.function
def update(seen: R.Tensor((4,), "int32"), x: R.Tensor((4,), "int32")):
    return R.call_tir_inplace(
        cls.count, (seen, x), inplace_indices=[0], out_ty=R.Tensor((4,), "int32")
    )

@R.function
def outside(x: R.Tensor((4,), "int32")):
    y = R.call_pure_packed("tests.twice", x + x, ty_args=R.Tensor((4,), "int32"))
    if R.astype(R.max(y), "bool"):
        z = R.call_dps_packed("tests.into", (y,), out_ty=R.Tensor((4,), "int32"))
    else:
        z = y
    return z

@R.function
def checked(x: R.Tensor((4,), "int32")):
    return R.call_tir(cls.positive, (x,), out_ty=R.Tensor((4,), "int32"))
"""
register_func("tests.twice", lambda x: 2 * x, override=True)
register_func("tests.into", lambda x, out: np.copyto(out, x + 1), override=True)


@pytest.fixture(scope="module")
def exe() -> CudaExecutable:
    return rl.compile(parse(PROGRAM), target="cuda")


def arguments() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return rng.random((5, 64), "float32"), rng.random((64, 48), "float32")


def has_gpu() -> bool:
    try:
        require_cupy()
    except NoGpu:
        return False
    return True


def test_sources_can_be_read(exe: CudaExecutable) -> None:
    assert {*exe} == {"main", "update", "outside", "checked"}
    assert "matmul" in exe.gpu.functions
    for name in exe.gpu.functions:
        text = exe.source(name)
        assert 'extern "C" __global__ void' in text and text in exe.source()
    with pytest.raises(KeyError, match="no loop function 'nothing'; there are: .*matmul"):
        exe.source("nothing")


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
def test_machine_code_and_resources_can_be_read(exe: CudaExecutable) -> None:
    assert f".target {exe.arch}" in exe.ptx
    assert exe.cubin[:4] == b"\x7fELF"
    kernels = re.findall(r"^(\w+)\(", exe.source(), re.M)
    assert set(exe.resources) == {k for k in kernels if "_kernel" in k}
    assert all(r.registers > 0 for r in exe.resources.values())
    assert exe.compiled("sm_90").arch == "sm_90"


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_call_without_a_gpu(exe: CudaExecutable) -> None:
    with pytest.raises(NoGpu, match=r"(pip install 'relaxlab\[cuda\]'|GPU).*exe\.simulate"):
        exe["main"](*arguments())


def test_an_unknown_function_is_named(exe: CudaExecutable) -> None:
    with pytest.raises(KeyError, match="no function named 'mian'; there are: "):
        exe["mian"]


def test_simulation_agrees_with_the_program(exe: CudaExecutable) -> None:
    x, w = arguments()
    got = exe.simulate("main", x, w)
    np.testing.assert_allclose(got, rl.interpret(parse(PROGRAM), "main", x, w), rtol=1e-5)


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_random_programs(seed: int) -> None:
    mod = Programs(seed).module()
    main = rl.trace(mod, "cuda").passes[0].after["main"]
    exe = rl.compile(mod, target="cuda")
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = random_arguments(main, rng)
        want = rl.interpret(mod, "main", *args)
        assert_same(exe.simulate("main", *args), want, f"seed {seed}", 1e-4)


def test_the_host_side_on_arrays_that_are_not_numpys(exe: CudaExecutable) -> None:
    """A stand-in for CuPy: arrays of another type, and copies where CuPy copies."""
    kernels = simulated(exe.program, exe.gpu.kernels)
    machine = VirtualMachine(exe.program, kernels, DeviceMemory(_Device))
    x, w = arguments()
    got = machine.run("main", x, w)
    assert isinstance(got, _Array)
    np.testing.assert_allclose(got, exe.simulate("main", x, w))
    four = np.arange(4, dtype="int32")
    got = machine.run("outside", four)
    assert isinstance(got, _Array) and got.tolist() == [1, 5, 9, 13]
    seen = _Device.asarray(four)
    machine.run("update", seen, four)
    assert seen.tolist() == [0, 2, 4, 6] and four.tolist() == [0, 1, 2, 3]
    with pytest.raises(ExecutionError, match="must be in the GPU's memory; pass cupy.asarray"):
        machine.run("update", four, four)


class _Array(np.ndarray):
    """An array of the stand-in."""


class _Device:
    ndarray = _Array

    @staticmethod
    def asarray(value: Any) -> Any:
        return np.array(value).view(_Array)

    @staticmethod
    def asnumpy(value: Any) -> Any:
        return np.array(value)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype).view(_Array)


@pytest.mark.gpu
def test_calls_on_a_gpu(exe: CudaExecutable) -> None:
    cupy = require_cupy()
    x, w = arguments()
    got = exe["main"](x, cupy.asarray(w))
    np.testing.assert_allclose(cupy.asnumpy(got), exe.simulate("main", x, w), rtol=1e-4, atol=1e-5)
    seen = cupy.arange(4, dtype="int32")
    exe["update"](seen, seen.copy())
    assert seen.get().tolist() == [0, 2, 4, 6]
    for _ in range(2):  # a failure is forgotten once it is reported
        with pytest.raises(ExecutionError, match="x is not positive in .positive."):
            exe["checked"](seen)
        assert exe["checked"](seen + 1).get().tolist() == [1, 3, 5, 7]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_arrays_of_pytorch_on_a_gpu(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    cupy = require_cupy()
    twice = f"""
@R.function
def main(x: R.Tensor(("n", 8), "{dtype}")):
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
    return y
"""
    x = torch.arange(24, device="cuda").reshape(3, 8).to(getattr(torch, dtype))
    exe = rl.compile(parse(twice), target="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
        got = torch.from_dlpack(exe["main"](x))
        assert got.is_cuda and torch.equal(got, x + x)


def test_arrays_without_elements_need_no_driver_to_describe_them() -> None:
    """Products of no terms and attention over no positions are legal, and ask for no box."""
    buffer = Buffer("A", (const(0), const(64)), "bfloat16")
    array = SimpleNamespace(shape=(0, 64), data=SimpleNamespace(ptr=0))
    assert tensor_map(TensorMap(buffer, (64, 64)), array).nbytes == 128


def test_targets() -> None:
    with pytest.raises(ValueError, match="threads are of CPUs"):
        rl.compile(parse(PROGRAM), target="cuda:sm_90", threads=2)
    assert parse_target("cuda") == Target.cuda()
    assert parse_target("cuda:sm_90").cpu == "sm_90"
    with pytest.raises(ValueError, match="'ampere' is no architecture of CUDA"):
        parse_target("cuda:ampere")
    known = "known: cuda:sm_80 and its like, cpu, .*, cuda"
    for text, message in (
        ("cuda:0", "not a device: write 'cuda' for the GPU that is there"),
        ("gpu", f"unknown target 'gpu'; .*: write 'cuda'; {known}"),
        ("llvm", "unknown target 'llvm'; .* through LLVM: write 'cpu'; known: "),
        ("c", "Executable.export makes a library with a C interface"),
        ("metal", "unknown target 'metal'; relaxlab has no code generator for it; known: "),
        ("abacus", f"unknown target 'abacus'; {known}"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_target(text)
