"""Executables for GPUs: the virtual machine walks the host program, CuPy launches the kernels."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.program import generate
from relaxlab.ir.display import Displayed
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.request import Request
from relaxlab.runtime.vm.gpu import GpuExecutable, NoGpu, grid_and_block
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine


@dataclass(repr=False)
class CudaExecutable(Displayed, GpuExecutable):
    """A program compiled for a GPU.

    `exe["main"](x)` runs it: arguments are CuPy arrays, or anything else with dense data, which is
    copied to the GPU; results are CuPy arrays. Without a GPU everything but a call works: `source`
    is the CUDA C, `ptx`, `cubin` and `resources` are what NVRTC makes of it, and `simulate` runs
    the kernels on the SIMT interpreter.
    """

    _compiled: dict[str, nvrtc.Compiled] = field(default_factory=dict[str, nvrtc.Compiled])
    _machine: VirtualMachine | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        return f"CudaExecutable({', '.join(self)}; {self.arch})"

    @property
    def arch(self) -> str:
        """The architecture that is compiled for: the target's, else that of the GPU that is there,
        else sm_80."""
        return self.target.cpu or _device_arch() or nvrtc.DEFAULT_ARCH

    @property
    def ptx(self) -> str:
        """The program in NVIDIA's portable assembly."""
        return self.compiled().ptx

    @property
    def cubin(self) -> bytes:
        """The program in machine code."""
        return self.compiled().cubin

    @property
    def resources(self) -> dict[str, nvrtc.Resources]:
        """Registers, spills and memory of each CUDA function."""
        return self.compiled().resources

    def compiled(self, arch: str | None = None) -> nvrtc.Compiled:
        """Compile the source by NVRTC for an architecture. Raises NvrtcError without NVRTC."""
        arch = arch or self.arch
        if arch not in self._compiled:
            self._compiled[arch] = nvrtc.compile_cuda(
                self.source(), arch, contract=self.target.contract
            )
        return self._compiled[arch]

    def machine(self) -> VirtualMachine:
        """The machine that runs calls, on the GPU. Raises NoGpu where there is none."""
        if self._machine is None:
            cupy = require_cupy()
            self._folder = tempfile.TemporaryDirectory(prefix="relaxlab-")  # read at first launch
            path = Path(self._folder.name) / "program.cubin"
            path.write_bytes(self.cubin)
            module = cupy.RawModule(path=str(path))
            kernels = {
                name: _on_gpu(cupy, module, kernel, self.gpu.functions[name])
                for name, kernel in self.gpu.kernels.items()
            }
            self._machine = VirtualMachine(self.gpu.program, kernels, DeviceMemory(cupy))
        return self._machine


def compile_cuda(request: Request) -> CudaExecutable:
    """Compile for a GPU. Raises ValueError for options of CPUs."""
    request.refuse_options_of_cpus()
    lowered = lower_shapes(request.result())
    cuda = generate(lowered, CUDA_C, request.target.facts)
    return CudaExecutable(cuda, request.target)


def require_cupy() -> Any:
    """Return the module CuPy, with a GPU behind it. Raises NoGpu naming what is missing."""
    way_out = "exe.simulate(name, ...) runs the program without a GPU, on the SIMT interpreter"
    cupy = _cupy()
    if cupy is None:
        raise NoGpu(f"calling a CUDA program needs CuPy: pip install 'relaxlab[cuda]'; {way_out}")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as e:
        raise NoGpu(f"calling a CUDA program needs a GPU and its driver ({e}); {way_out}") from None
    if count == 0:
        raise NoGpu(f"calling a CUDA program needs a GPU, and there is none; {way_out}")
    return cupy


def _cupy() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns about the CUDA installations it looks for
        try:
            return import_module("cupy")
        except ImportError:
            return None


def _device_arch() -> str:
    try:
        cupy = require_cupy()
    except NoGpu:
        return ""
    return f"sm_{cupy.cuda.Device().compute_capability}"


def _on_gpu(
    cupy: Any, module: Any, kernel: DeviceKernel, sources: tuple[KernelSource, ...]
) -> Kernel:
    entries = [module.get_function(s.name) for s in sources]

    def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
        arrays = dict(zip(kernel.buffers, buffers, strict=True))
        values = dict(zip(kernel.scalars, scalars, strict=True))
        for launch, source, entry in zip(kernel.launches, sources, entries, strict=True):
            sizes = grid_and_block(launch, values)
            if sizes is None:
                continue
            args: list[Any] = [arrays[b] for b in launch.buffers]
            # The kernel reads as many bytes of a scalar as its type has.
            args += [numpy_dtype(v.dtype).type(values[v]) for v in launch.scalars]
            failed = cupy.zeros((1,), np.int32) if source.failures else None
            entry(*sizes, (*args, failed) if source.failures else tuple(args))
            # To read it is to wait for the kernel: only those that can fail are waited for.
            if failed is not None and (number := int(failed[0])):
                raise ExecutionError(f"{source.failures[number - 1]} in {kernel.name!r}")

    return run
