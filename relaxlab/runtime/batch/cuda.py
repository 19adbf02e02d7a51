"""Batched programs on NVIDIA's GPUs as Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.gpu.program import GpuProgram
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.arena import DeviceArena
from relaxlab.runtime.batch.device import Calls, DeviceFlusher
from relaxlab.runtime.batch.function import Alone, BatchFunction
from relaxlab.runtime.batch.recorder import Recorder
from relaxlab.runtime.vm.capture import CapturedFunction, NotCapturable
from relaxlab.runtime.vm.cuda import CudaExecutable, require_cupy
from relaxlab.runtime.vm.gpu import simulated
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.vm import VirtualMachine


class BatchedCudaExecutable(CudaExecutable):
    """A compiled program that runs many instances at once on a GPU: `exe["main"].bind(*weights)`,
    then `.batch(instances)`, whose results are CuPy arrays. Instances are recorded by this machine.
    The functions that run batches of its blocks are there under their names.

    `exe.simulated_batches()` is the same function without a GPU: its kernels run on the SIMT
    interpreter, on NumPy arrays.
    """

    def __init__(
        self, gpu: GpuProgram, target: Target, recorder: Recorder, transforms: dict[str, str]
    ) -> None:
        self._recorder, self._packing = recorder, transforms  # first: it is one of the names
        super().__init__(gpu, target)
        self._entry: BatchFunction | None = None
        self._alone = Alone(recorder.program.entry, self._lock)

    def __getitem__(self, name: str) -> Any:
        if name != self._recorder.program.entry:
            return super().__getitem__(name)
        with self._lock:
            if self._entry is None:
                memory = DeviceMemory(require_cupy())
                self._entry = self._batches(self.call, DeviceArena(memory))
            return self._entry

    def __repr__(self) -> str:
        return f"BatchedCudaExecutable({', '.join(self)}; {self.arch})"

    def __iter__(self) -> Iterator[str]:
        yield self._recorder.program.entry
        yield from super().__iter__()

    def simulate(self, name: str, *args: Any) -> Any:
        """Call a function that runs a block on the SIMT interpreter, as other programs do. Raises
        ValueError for the one that runs batches, which has `simulated_batches`."""
        if name == self._recorder.program.entry:
            raise ValueError(
                f"`{name}` runs batches: `exe.simulated_batches().bind(*weights)` is the function "
                "that computes them on the SIMT interpreter"
            )
        return super().simulate(name, *args)

    def captured(self, name: str) -> CapturedFunction:
        """A function that runs a block as one CUDA graph. Raises NotCapturable for the one that
        runs batches, whose launches depend on the instances."""
        if name == self._recorder.program.entry:
            raise NotCapturable(
                f"the launches of `{name}` depend on the instances of a batch: a CUDA graph has "
                "the same ones each time"
            )
        return super().captured(name)

    def simulated_batches(self) -> BatchFunction:
        """The function that runs batches, with its kernels on the SIMT interpreter: slow. Its calls
        raise SimtError for races, diverging barriers and stray accesses."""
        arena = DeviceArena(DeviceMemory(np))
        kernels = simulated(self.program, self.gpu.kernels)

        def call(name: str, args: Sequence[Any]) -> Any:
            # Races are found by the numbers of elements, and results are parts of the arena: what
            # is read of it is a copy.
            given = [a.copy() if arena.is_whole(a) else a for a in args]
            return VirtualMachine(self.program, kernels, arena.on).run(name, *given)

        return self._batches(call, arena)

    def _batches(self, call: Calls, arena: DeviceArena) -> BatchFunction:
        flusher = DeviceFlusher(self._recorder, call, self._packing, arena.on)
        return BatchFunction(self._recorder, flusher, arena, self._alone)
