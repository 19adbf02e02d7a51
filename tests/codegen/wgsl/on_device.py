"""WGSL kernels on a device of WebGPU: what validates them is wgpu's compiler, what runs them a GPU,
or Mesa's, which is a program for CPUs."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.codegen.gpu.program import GpuProgram
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Buffer, BufferStore
from relaxlab.ir.node import walk
from relaxlab.runtime.vm.gpu import sizes_of

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("RELAXLAB_WGPU_PYTHON", ROOT / ".venv-wgpu/bin/python"))


class Device:
    """A process that has wgpu. `name` is the device, empty where there is none."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [PYTHON, Path(__file__).parent / "device.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.name: str = pickle.load(self.process.stdout)

    def ask(self, **request: Any) -> list[bytes]:
        """Validate the module `code`, and run it where there is more in the request."""
        assert self.process.stdin is not None and self.process.stdout is not None
        pickle.dump(request, self.process.stdin)
        self.process.stdin.flush()
        answer = pickle.load(self.process.stdout)
        assert isinstance(answer, list), answer
        return answer

    def close(self) -> None:
        self.process.communicate(timeout=60)


def _launched(
    device: Device, code: str, launch: Launch, source: KernelSource, grid: Sequence[int],
    arrays: dict[Buffer, Any], values: dict[Var, int],
) -> None:  # fmt: skip
    """Launch a kernel; its results replace the contents of the arrays."""
    written = {n.buffer for n in walk(launch.body) if isinstance(n, BufferStore)}
    passed: list[tuple[str, bytes]] = []
    for b in launch.buffers:
        array = np.asarray(arrays[b])
        stored = array.astype("uint32") if array.dtype == bool else array
        passed.append(("storage" if b in written else "read-only-storage", stored.tobytes()))
    if launch.scalars:
        narrow = {"int64": "int32", "bool": "uint32"}
        kinds = [numpy_dtype(narrow.get(v.dtype, v.dtype)) for v in launch.scalars]
        sizes = [k.type(values[v]).tobytes() for k, v in zip(kinds, launch.scalars, strict=True)]
        passed.append(("uniform", b"".join(sizes)))
    if source.failures:
        passed.append(("storage", bytes(4)))
    found = device.ask(code=code, entry=source.name, grid=grid, buffers=passed)
    assert not source.failures or found[-1] == bytes(4), source.failures
    for b, data in zip(launch.buffers, found, strict=False):
        array = arrays[b]
        kind = "uint32" if array.dtype == bool else array.dtype
        array[...] = np.frombuffer(data, kind).reshape(array.shape)


def kernels_on_device(gpu: GpuProgram, device: Device) -> dict[str, Callable[..., None]]:
    """The kernels of a program as a virtual machine calls them."""

    def kernel(name: str) -> Callable[..., None]:
        def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
            it = gpu.kernels[name]
            values = dict(zip(it.scalars, scalars, strict=True))
            arrays = dict(zip(it.buffers, buffers, strict=True))
            for launch, source in zip(it.launches, gpu.functions[name], strict=True):
                sizes = sizes_of(launch)(values)
                if sizes is not None:
                    _launched(device, gpu.source, launch, source, sizes[0], arrays, values)

        return run

    return {name: kernel(name) for name in gpu.kernels}
