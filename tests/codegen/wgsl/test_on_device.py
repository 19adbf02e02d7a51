"""WGSL is compiled by wgpu and gives what the interpreter gives, on a device of WebGPU.

wgpu lives in an environment of its own (`make wgpu-env`); the test is skipped only when that
environment is missing, or when the system has no device, not even Mesa's for CPUs
(`apt-get install mesa-vulkan-drivers`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.testing.op_check import compare
from tests.codegen.cuda.test_emitted_code import random_tensor
from tests.codegen.wgsl.on_device import PYTHON, Device, kernels_on_device

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="wgpu is not installed here; `make wgpu-env` does it"
)

PROGRAMS = {
    "elementwise": (
        """x: R.Tensor(("n", 6), "float32"), y: R.Tensor((6,), "float32")""",
        "a = R.exp(R.multiply(x, y))", "b = R.nn.gelu(R.add(a, R.sin(x)))",
        "c = R.where(R.greater(x, y), b, R.floor(a))",
    ),
    "logic": (
        """x: R.Tensor(("n", 5), "float32"), y: R.Tensor(("n", 5), "float32")""",
        "a = R.logical_and(R.less(x, y), R.logical_not(R.isnan(x)))",
        "c = R.logical_xor(a, R.greater(x, R.const(0.1, 'float32')))",
    ),
    "integers": (
        """x: R.Tensor(("n", 5), "int32"), y: R.Tensor(("n", 5), "int32")""",
        "d = R.add(R.bitwise_and(y, R.const(3, 'int32')), R.const(1, 'int32'))",
        "a = R.floor_divide(x, d)", "b = R.floor_mod(x, R.const(3, 'int32'))",
        "c = R.add(R.left_shift(a, R.const(2, 'int32')), R.bitwise_xor(b, x))",
    ),
    "matmul": (
        """x: R.Tensor(("n", 70), "float32"), w: R.Tensor((70, 72), "float32")""",
        "c = R.nn.relu(R.matmul(x, w))",
    ),
    "batches": (
        """x: R.Tensor((2, "n", 20), "float32"), w: R.Tensor((2, 20, 9), "float32")""",
        "c = R.matmul(x, w)",
    ),
    "softmax": ("""x: R.Tensor(("n", 300), "float32")""", "c = R.nn.softmax(x)"),
    "norm": (
        """x: R.Tensor(("n", 40), "float32"), g: R.Tensor((40,), "float32"),"""
        """b: R.Tensor((40,), "float32")""",
        "c = R.nn.layer_norm(x, g, b, axes=[-1])",
    ),
    "total": ("""x: R.Tensor(("n", 33), "float32")""", "c = R.sum(x)"),
    "largest": ("""x: R.Tensor(("n", 33), "float32")""", "c = R.max(x, axis=0)"),
    "transpose": (
        """x: R.Tensor((3, "n", 5), "float32")""",
        "c = R.add(R.permute_dims(x, axes=[2, 0, 1]), R.const(1.0, 'float32'))",
    ),
    "gather": (
        """x: R.Tensor((70, 6), "float32"), i: R.Tensor(("n",), "int32")""",
        "c = R.take(x, R.bitwise_and(i, R.const(63, 'int32')), axis=0)",
    ),
    "concat": (
        """x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 4), "float32")""",
        "a = R.concat([x, y], axis=1)", "c = R.cumsum(a, axis=0)",
    ),
    "attention": (
        """q: R.Tensor((1, "n", 2, 16), "float32"), k: R.Tensor((1, "n", 2, 16), "float32"),"""
        """v: R.Tensor((1, "n", 2, 16), "float32")""",
        "c = R.nn.attention(q, k, v)",
    ),
    "convolution": (
        """x: R.Tensor(("n", 3, 9, 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")""",
        "c = R.nn.conv2d(x, w, padding=1)",
    ),
}  # fmt: skip


def module(name: str) -> rl.Module:
    params, *lines = PROGRAMS[name]
    text = "".join(f"\n    {line}" for line in lines)
    return rl.parse(f"@R.function\ndef main({params}):{text}\n    return c\n")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    found = Device()
    if not found.name:
        pytest.skip("the system has no device of Vulkan: apt-get install mesa-vulkan-drivers")
    yield found
    found.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(device: Device, name: str) -> None:
    mod = module(name)
    gpu = rl.compile(mod, target="wgsl").gpu
    machine = VirtualMachine(gpu.program, kernels_on_device(gpu, device))
    rng = np.random.default_rng(0)
    for n in (1, 65):
        args = [random_tensor(rng, p.ty, n) for p in gpu.program.functions["main"].params]
        args = [rng.integers(-50, 50, a.shape, "int32") if a.dtype == "int32" else a for a in args]
        got, want = machine.run("main", *args), rl.interpret(mod, "main", *args)
        compare(np.asarray(got), np.asarray(want), f"{name}, n={n}")
