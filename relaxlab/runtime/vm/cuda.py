"""Executables for GPUs: the virtual machine walks the host program, CuPy launches the kernels."""

from __future__ import annotations

import tempfile
import warnings
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.codegen.gpu.program import generate, sources_of
from relaxlab.ir import host
from relaxlab.ir.display import Displayed
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import brief
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import BufferStore
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.request import Request
from relaxlab.runtime.vm.capture import CapturedFunction, CapturePlan, plan_capture
from relaxlab.runtime.vm.gpu import GpuExecutable, NoGpu, sizes_of
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.straight_line import Step, StraightLine, straight_line
from relaxlab.runtime.vm.tensor_map import tensor_map
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine


@dataclass(repr=False)
class CudaExecutable(Displayed, GpuExecutable):
    """A program compiled for a GPU.

    `exe["main"](x)` runs it: arguments are CuPy arrays, or anything else with dense data, which is
    copied to the GPU; results are CuPy arrays. Calls of several threads wait for each other; on
    several streams they need the caller's events, since they share planned memory. Without a GPU
    everything but a call works: `source` is the CUDA C, `ptx`, `cubin` and `resources` are what
    NVRTC makes of it, and `simulate` runs the kernels on the SIMT interpreter.
    """

    _compiled: dict[str, nvrtc.Compiled] = field(default_factory=dict[str, nvrtc.Compiled])
    _machine: VirtualMachine | None = None
    _module: Any = None
    _failures: Failures | None = None
    _prepared: dict[str, StraightLine | None] = field(
        default_factory=lambda: dict[str, "StraightLine | None"]()
    )
    _captured: dict[str, CapturedFunction] = field(default_factory=dict[str, CapturedFunction])
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _lock: AbstractContextManager[Any] = field(default_factory=RLock)
    """Held while the launches of a call are made: those of others, which use the same planned
    memory, come before all of them or after."""

    def __repr__(self) -> str:
        return f"CudaExecutable({', '.join(self)}; {self.arch})"

    @property
    def arch(self) -> str:
        """The architecture that is compiled for: the target's, else sm_80."""
        return self.target.cpu or nvrtc.DEFAULT_ARCH

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
            module = self._module = self._load(cupy, self.cubin, "program")
            self._failures = Failures(cupy)
            kernels = {
                name: _on_gpu(module, kernel, self.gpu.functions[name], self._failures)
                for name, kernel in self.gpu.kernels.items()
            }
            self._machine = VirtualMachine(self.gpu.program, kernels, DeviceMemory(cupy))
        return self._machine

    def _load(self, cupy: Any, cubin: bytes, name: str) -> Any:
        """Load machine code. Its file stays: it is read at the first launch."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="relaxlab-")
            weakref.finalize(self, self._folder.cleanup)
        path = Path(self._folder.name) / f"{name}.cubin"
        path.write_bytes(cubin)
        return cupy.RawModule(path=str(path))

    @brief
    def captured(self, name: str) -> CapturedFunction:
        """A function whose launches become one CUDA graph: for functions of many small kernels
        that are called again and again with the same arrays.

        Symbols that decide no size of a launch or a tensor may differ between calls of a graph:
        one graph is enough for all steps of a decoder. Raises KeyError for an unknown name,
        NotCapturable where the host has to do something in between, and NoGpu.
        """
        if name not in self._captured:
            plan = plan_capture(self.program.functions[self[name].name], self.gpu.kernels)
            machine, line = self.machine(), self._line(name)
            assert line is not None  # a plan has no more kinds of instructions
            kernels = {**machine.kernels, **self._reading(plan)}
            adapt, finish = partial(self.with_weights, name), partial(self._finish, name)
            self._captured[name] = CapturedFunction(
                plan, self.gpu.kernels, line, kernels, adapt, finish, self._lock
            )
        return self._captured[name]

    def _reading(self, plan: CapturePlan) -> dict[str, Kernel]:
        """The kernels of a plan that read scalars."""
        if not plan.in_memory:
            return {}
        kernels = {name: self.gpu.kernels[name] for name in plan.in_memory}
        functions, source = sources_of(kernels, CUDA_C, plan.in_memory)
        code = nvrtc.compile_cuda(source, self.arch, contract=self.target.contract)
        module = self._load(require_cupy(), code.cubin, plan.fn.name)
        assert self._failures is not None
        return {
            name: _on_gpu(module, kernel, functions[name], self._failures, plan.in_memory[name])
            for name, kernel in kernels.items()
        }

    def run(self, name: str, *args: Any) -> Any:
        """Run a function, with weights as it takes them, on CuPy's current stream. It is waited for
        only if one of its kernels can fail."""
        with self._lock:
            given = self.completed(name, args, self._zeros)
            line = self._line(name)
            result = self.machine().run(name, *given) if line is None else line(given)
            self._finish(name)
        return result

    def _zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        return require_cupy().zeros(shape, numpy_dtype(dtype))

    def _line(self, name: str) -> StraightLine | None:
        """The function as a list of closures, the last of which launches its kernels; None for one
        with branches or calls."""
        if name not in self._prepared:
            fn, machine = self.program.functions[name], self.machine()
            calls = [i.function for i in fn.instrs if isinstance(i, host.CallKernel)]
            waits = any(_only_checks(self.gpu.kernels[f]) for f in calls)
            launcher = None if waits else self._launcher
            self._prepared[name] = straight_line(machine, fn, launcher)
        return self._prepared[name]

    def _launcher(self, instrs: Sequence[host.Instr]) -> Step:
        """The launches of instructions by native code."""
        # It needs LLVM, which programs that are only looked at do without.
        from relaxlab.runtime.vm.native_launches import native_launches

        gpu, memory, failures = self.gpu, self.machine().memory, self._failures
        assert isinstance(memory, DeviceMemory) and failures is not None
        kernels = {n: (kernel, gpu.functions[n]) for n, kernel in gpu.kernels.items()}

        def entry(kernel: DeviceKernel, source: KernelSource) -> tuple[int, int]:
            handle = self._module.get_function(source.name).kernel.ptr
            if not source.failures:
                return handle, 0
            return handle, memory.address(failures.word(failures.add(kernel.name, source)))

        return native_launches(instrs, kernels, entry, memory)

    def _finish(self, name: str) -> None:
        """Raises ExecutionError where a kernel of the call has failed."""
        if name in self._fallible and self._failures is not None:
            self._failures.check()

    @cached_property
    def _fallible(self) -> frozenset[str]:
        """The functions with a kernel that can fail; those that call others count, too."""
        can = {n for n, sources in self.gpu.functions.items() if any(s.failures for s in sources)}
        return frozenset(
            name
            for name, fn in self.program.functions.items()
            if any(
                isinstance(i, host.CallFunction)
                or (isinstance(i, host.CallKernel) and i.function in can)
                for i in host.walk_instrs(fn.instrs)
            )
        )


def compile_cuda(request: Request) -> CudaExecutable:
    """Compile for a GPU. Raises ValueError for options of CPUs."""
    request.refuse_options_of_cpus()
    result = request.result()
    cuda = generate(lower_shapes(result), CUDA_C, request.target.facts)
    exe = CudaExecutable(cuda, request.target, request.entries)
    exe.belongs_to(request.mod, result)
    return exe


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


def gpu_architecture() -> str:
    """The architecture of the GPU that is there, with its own instructions, such as `sm_90a`; empty
    where there is none."""
    try:
        cupy = require_cupy()
    except NoGpu:
        return ""
    capability = cupy.cuda.Device().compute_capability
    return f"sm_{capability}{'a' if int(capability) >= 90 else ''}"


@dataclass(slots=True)
class Failures:
    """A word in the GPU's memory for each launch that can fail, which kernels write to. They are
    read once per call, of functions that have such launches: only those are waited for."""

    cupy: Any
    messages: list[tuple[str, KernelSource]] = field(default_factory=list[tuple[str, KernelSource]])
    words: Any = None
    _views: list[Any] = field(default_factory=list[Any])

    def add(self, kernel: str, source: KernelSource) -> int:
        """A word for a launch of a loop function; return its number, the same for the same
        launch."""
        launches = [(name, known.name) for name, known in self.messages]
        if (kernel, source.name) not in launches:
            launches.append((kernel, source.name))
            self.messages.append((kernel, source))
        return launches.index((kernel, source.name))

    def word(self, number: int) -> Any:
        """The word as an array of one element."""
        if self.words is None:
            self.words = self.cupy.zeros(len(self.messages), np.int32)
            self._views = [self.words[i : i + 1] for i in range(len(self.messages))]
        return self._views[number]

    def check(self) -> None:
        """Wait for the kernels. Raises ExecutionError for one that has failed."""
        if self.words is None:
            return
        for number, (kernel, source) in zip(self.words.get(), self.messages, strict=True):
            if number:
                self.words.fill(0)
                raise ExecutionError(f"{source.failures[number - 1]} in {kernel!r}")


def _on_gpu(
    module: Any,
    kernel: DeviceKernel,
    sources: tuple[KernelSource, ...],
    failures: Failures,
    in_memory: frozenset[Var] = frozenset(),
) -> Kernel:
    """A loop function as its launches, which take arrays for the scalars that are `in_memory`."""
    launches = [
        _launch(module.get_function(source.name), kernel, launch, source, failures, in_memory)
        for launch, source in zip(kernel.launches, sources, strict=True)
    ]
    only_checks = _only_checks(kernel)
    if len(launches) == 1 and not only_checks:
        return launches[0]

    def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
        for launch in launches:
            launch(buffers, scalars)
        if only_checks:  # what follows would access memory outside of its buffers
            failures.check()

    return run


def _only_checks(kernel: DeviceKernel) -> bool:
    """True for a loop function that stores nothing: it checks what those behind it go by."""
    return not any(isinstance(n, BufferStore) for k in kernel.launches for n in walk(k.body))


def _launch(
    entry: Any,
    kernel: DeviceKernel,
    launch: Launch,
    source: KernelSource,
    failures: Failures,
    in_memory: frozenset[Var],
) -> Kernel:
    """A launch with everything prepared that is the same at every call."""
    if source.shared > launch.facts.shared:
        entry.max_dynamic_shared_size_bytes = source.shared
    places = [kernel.buffers.index(b) for b in launch.buffers]
    # The kernel reads as many bytes of a scalar as its type has.
    passed = [
        (kernel.scalars.index(v), None if v in in_memory else numpy_dtype(v.dtype).type)
        for v in launch.scalars
    ]
    word = failures.add(kernel.name, source) if source.failures else None
    symbols, sizes = kernel.scalars, sizes_of(launch)
    extents = (*launch.extents("blockIdx"), *launch.extents("threadIdx"))
    constant = not symbols_in((launch.condition, extents))
    known, shared = sizes({}) if constant else None, source.shared

    def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
        found = known if constant else sizes(dict(zip(symbols, scalars, strict=True)))
        if found is None:
            return
        args = [buffers[i] for i in places]
        args += [scalars[i] if kind is None else kind(scalars[i]) for i, kind in passed]
        if word is not None:
            args.append(failures.word(word))
        args += [tensor_map(m, buffers[kernel.buffers.index(m.buffer)]) for m in source.maps]
        entry(*found, tuple(args), shared_mem=shared)

    return run
