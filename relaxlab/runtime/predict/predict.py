"""`predict`: the seconds of a program's kernels on a GPU that is not there.

The virtual machine walks the host program over arrays that nothing fills. At each launch a few
blocks are run by the SIMT interpreter, as far as their work needs it; `model` makes seconds of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.ir import types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.display import Displayed
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import brief
from relaxlab.ir.expr import Var
from relaxlab.ir.gpus import Gpu, gpu_named
from relaxlab.ir.loops import Buffer, For
from relaxlab.ir.names import among
from relaxlab.ir.node import walk
from relaxlab.ir.plain import plain
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.arrays import Array, ExecutionError, OutOfMemory
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.predict.model import Grid, Times, times_of
from relaxlab.runtime.predict.occupancy import Occupancy, occupancy
from relaxlab.runtime.predict.sampled import BlockWork, ReadOnly, SampledTeam, WaveTeam
from relaxlab.runtime.programs import Program
from relaxlab.runtime.simt.asynchronous import waits
from relaxlab.runtime.simt.kernel import Kernel, geometry_of
from relaxlab.runtime.simt.memory import Memory
from relaxlab.runtime.simt.report import Geometry, Problems, Triple
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.runtime.vm.memory import HostMemory
from relaxlab.runtime.vm.vm import VirtualMachine


@dataclass(frozen=True, slots=True)
class LaunchPrediction:
    """A launch of a program: its times, its blocks and their occupancy, the work of one block in
    the middle of the grid, and how often a call makes it."""

    kernel: str
    times: Times
    geometry: Geometry
    occupancy: Occupancy
    work: BlockWork
    count: int = 1

    @property
    def seconds(self) -> float:
        """The seconds of all of its launches together."""
        return self.times.seconds * self.count


@dataclass(frozen=True, slots=True, repr=False)
class Prediction(Displayed):
    """The launches of a call on a GPU, each once, in the order in which they come first."""

    name: str
    gpu: Gpu
    launches: tuple[LaunchPrediction, ...]

    @property
    def seconds(self) -> float:
        """The seconds of the call, its launches one after the other."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def bytes(self) -> float:
        """The bytes that main memory moves."""
        return sum(x.times.bytes * x.count for x in self.launches)

    def __repr__(self) -> str:
        width = max([6, *(len(x.kernel) for x in self.launches)])
        head = (
            f"{'kernel':{width}}  times       us  bound by         GB/s  TFLOP/s  blocks  of warps"
            "  per SM  registers"
        )
        rows = [_row(x, width) for x in self.launches]
        total = f"{self.name} on {self.gpu.name}: {self.seconds * 1e6:.1f} us predicted"
        return "\n".join([total, head, *rows])


def _row(x: LaunchPrediction, width: int) -> str:
    t, fits = x.times, x.occupancy
    rate = f"{t.products / t.seconds / 1e12:8.0f}" if t.products else " " * 8
    return (
        f"{x.kernel:{width}} {x.count:6} {t.seconds * 1e6:8.1f}  {t.bound:14} "
        f"{t.bytes / t.seconds / 1e9:6.0f} {rate} {x.geometry.blocks:7} {fits.warps:9} "
        f"{fits.blocks:7} {fits.registers:10}{'' if fits.counted else ' estimated'}"
    )


@names_arguments
@brief
def predict(
    program: Program | CudaExecutable, gpu: str = "h100", name: str = "main", **sizes: int
) -> Prediction:
    """Return how long a function of a program is expected to take on a GPU, kernel by kernel.

    `gpu` is a row of `relaxlab.ir.gpus.GPUS`; `sizes` are the values of the symbols of the
    parameters' types, and of scalar parameters, by name. A module is compiled for the GPU's
    architecture. Arrays hold zeros, so that what depends on data is that of zeros. Raises KeyError
    for an unknown GPU or function, ExecutionError for a symbol without a value, for parameters that
    are no tensors, shapes or scalars, and for kernels by warpgroups (sm_90a) on a GPU without them.
    """
    figures = gpu_named(gpu)
    exe: Any = program
    if not isinstance(program, CudaExecutable):
        exe = build(program, target=figures.target)
    assert isinstance(exe, CudaExecutable)
    if name not in exe.program.functions:
        known = among(name, exe.program.functions)
        raise KeyError(f"no function named {name!r} in the program; it has: {known}")
    launches = (x for k in exe.gpu.kernels.values() for x in k.launches)
    if apart := [x.name for x in launches if not figures.wgmma and waits(x.body)]:
        raise ExecutionError(
            f"{gpu!r} has no tensor instructions of warpgroups, which {apart[0]!r} multiplies by; "
            f"compile for cuda:{figures.arch}"
        )
    resources = exe.compiled(figures.arch).resources if nvrtc.is_available() else {}
    run = _Run(figures, resources, {})
    kernels = {n: run.kernel(k) for n, k in exe.gpu.kernels.items()}
    machine = VirtualMachine(exe.program, kernels, _Untouched())
    machine.run(name, *_arguments(exe, name, sizes))
    return Prediction(name, figures, tuple(run.found.values()))


def _arguments(program: CudaExecutable, name: str, sizes: Mapping[str, int]) -> Iterator[Any]:
    """Arrays of zeros, shapes and numbers for the parameters of a function."""
    params = program.program.functions[name].params
    symbols = {v.name: v for p in params for v in symbols_in((p.ty,))}
    scalars = {p.name for p in params if isinstance(p.ty, types.PrimType)}
    if wrong := [s for s in sizes if s not in symbols and s not in scalars]:
        known = among(wrong[0], [*symbols, *scalars])
        raise ExecutionError(f"{name!r} has no symbol {wrong[0]!r}; it has: {known}")
    if missing := [s for s in [*symbols, *scalars] if s not in sizes]:
        raise ExecutionError(f"{name!r} needs a value of {missing[0]}: {missing[0]}=1024")
    for n, size in sizes.items():
        if n in symbols and not isinstance(plain(size), int):
            raise ExecutionError(f"the value of {n} is a whole number, not {size!r}")
    env = {v: sizes[n] for n, v in symbols.items()}
    for p in params:
        yield _argument(p.ty, env, sizes.get(p.name, 0), p.name)


def _argument(ty: types.Type, env: Mapping[Var, int], number: int, name: str) -> Any:
    match ty:
        case types.TensorType(shape, dtype) if dtype is not None and shape is not None:
            # Pages that are only read take no memory.
            size = tuple(evaluate(d, env) for d in shape)
            try:
                return np.zeros(size, numpy_dtype(dtype))
            except (MemoryError, ValueError) as error:  # ValueError: more than 63 bits count
                raise OutOfMemory.of(f"{name!r}", size, dtype) from error
        case types.ShapeType(values) if values is not None:
            return tuple(evaluate(v, env) for v in values)
        case types.PrimType(dtype, value):
            return numpy_dtype(dtype).type(number if value is None else evaluate(value, env))
        case types.TupleType(fields):
            return tuple(_argument(f, env, number, f"{name}[{i}]") for i, f in enumerate(fields))
        case _:
            raise ExecutionError(f"no kernel can be predicted for {name}, which is a {ty}")


class _Untouched(HostMemory):
    """Memory that nothing fills, so that it takes none."""

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return np.zeros(tuple(shape), numpy_dtype(dtype))

    def poison(self, part: Any) -> None: ...


@dataclass(slots=True)
class _Run:
    """The predictions so far, by launch, scalars and shapes."""

    gpu: Gpu
    resources: Mapping[str, nvrtc.Resources]
    found: dict[Any, LaunchPrediction]

    def kernel(self, kernel: DeviceKernel) -> Any:
        """The kernel as the virtual machine calls it."""

        def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
            env = dict(zip(kernel.scalars, scalars, strict=True))
            arrays = dict(zip(kernel.buffers, buffers, strict=True))
            for b in kernel.workspace:
                shape = tuple(int(evaluate(d, env)) for d in b.shape)
                arrays[b] = np.zeros(shape, numpy_dtype(b.dtype))
            for launch in kernel.launches:
                if evaluate(launch.condition, env):
                    self.launch(launch, env, arrays)

        return run

    def launch(
        self, launch: Launch, env: Mapping[Var, int], arrays: Mapping[Buffer, Array]
    ) -> None:
        geometry = geometry_of(launch, env)
        if not geometry.blocks:
            return
        shapes = tuple(arrays[b].shape for b in launch.buffers)
        key = launch.name, tuple(env[v] for v in launch.scalars), shapes, geometry
        known = self.found.get(key)
        if known is None:
            fits = occupancy(launch, geometry.threads, self.gpu, self.resources.get(launch.name))
            grid = _grid(launch, geometry, env, arrays, fits.blocks * self.gpu.multiprocessors)
            times = times_of(grid, fits, self.gpu)
            work, _ = max(grid.works, key=lambda one: one[1])
            self.found[key] = LaunchPrediction(launch.name, times, geometry, fits, work)
        else:
            self.found[key] = LaunchPrediction(
                known.kernel, known.times, geometry, known.occupancy, known.work, known.count + 1
            )


def _grid(
    launch: Launch, geometry: Geometry, env: Mapping[Var, int], arrays: Mapping[Buffer, Array],
    wave: int,
) -> Grid:  # fmt: skip
    """Run a few blocks of a launch."""
    shapes = {
        b: tuple(int(evaluate(d, env)) for d in b.shape)
        for b in (*launch.buffers, *launch.shared, *launch.local)
    }
    memory: dict[Buffer, Memory] = {b: ReadOnly(arrays[b].reshape(-1)) for b in launch.buffers}
    scalars = {v: np.asarray(n).astype(numpy_dtype(v.dtype))[()] for v, n in env.items()}
    kernel = Kernel(launch, scalars, memory, shapes, geometry, Problems())
    works: list[tuple[BlockWork, float]] = []
    with np.errstate(all="ignore"):
        for block, times in _representatives(launch, geometry):
            team = SampledTeam(kernel, geometry.block_number(block))
            team.run()
            works.append((team.work(), times))
        begins = WaveTeam(kernel, min(wave, geometry.blocks))
        begins.run()
    sizes = {b: float(arrays[b].nbytes) for b in launch.buffers}
    return Grid(geometry.blocks, works, sizes, begins.shares)


SAMPLES = 5
"""Blocks that stand for all where loops depend on the block's number, as under a causal mask."""
SPREAD = (5**0.5 - 1) / 2
"""Multiples of it are spread evenly over 0 to 1, and fall on no period of the grid."""


def _representatives(launch: Launch, geometry: Geometry) -> Iterator[tuple[Triple, float]]:
    """Blocks and the number of blocks that each stands for: along each axis one for all but the
    last, or several where a loop's extent depends on the block's number, and the last, which may be
    cut off by the extents."""
    numbers = {axis.var: axis.name for axis in launch.axes if axis.name.startswith("blockIdx")}
    loops = [(n.min, n.extent) for n in walk(launch.body) if isinstance(n, For)]
    varied = {numbers[v] for v in symbols_in(tuple(loops)) if v in numbers}
    axes: list[list[tuple[int, float]]] = []
    for d, extent in zip("xyz", geometry.grid, strict=True):
        count = min(SAMPLES, extent - 1) if f"blockIdx.{d}" in varied else 1
        first = (extent - 1) // 2
        at = [(first + round(n * SPREAD * extent)) % max(1, extent - 1) for n in range(count)]
        axes.append([(n, (extent - 1) / len(at)) for n in at if extent > 1] + [(extent - 1, 1)])
    for (x, i), (y, j), (z, k) in itertools.product(*axes):
        yield (x, y, z), i * j * k
