"""Launches of a call by native code: one call of a function that the host's processor compiled,
however many kernels there are (`codegen/llvm/launches.py`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias
from weakref import ref

import numpy as np

from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.launches import (
    ENCODE_MAP,
    FAILED,
    LAUNCH_KERNEL,
    STREAM,
    SYMBOL,
    HostLaunches,
    emit_launches,
)
from relaxlab.ir import host
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.vm import Frame

Entry: TypeAlias = Callable[[DeviceKernel, KernelSource], tuple[int, int]]
"""Gives the handle of a launch, and the address of the word for its failures, 0 without any."""


@dataclass(slots=True)
class NativeLaunches:
    """The launches of a function, made by a call with the frame that has its tensors.

    `words` are the table of the native function. Of a tensor that is the same as in the call before
    the address is there already; the caller's arrays are not kept alive.
    """

    plan: HostLaunches
    memory: DeviceMemory
    code: jit.LoadedObject
    words: np.ndarray[Any, Any]
    run: Callable[[int], int]
    _seen: list[ref[Any] | None] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = [None] * len(self.plan.registers)

    def __call__(self, frame: Frame) -> None:
        """Launch. Raises ExecutionError with the driver's error."""
        words, plan, registers = self.words, self.plan, frame.registers
        words[STREAM] = self.memory.xp.cuda.get_current_stream().ptr
        for at, symbol in enumerate(plan.symbols, plan.first_symbol):
            words[at] = frame.symbols[symbol]
        first, seen = plan.first_register, self._seen
        for n, register in enumerate(plan.registers):
            array, known = registers[register], seen[n]
            if known is None or known() is not array:
                words[first + n] = self.memory.address(array)
                seen[n] = ref(array)
        error = self.run(words.ctypes.data)
        if error:
            device, source = plan.launches[int(words[FAILED])]
            asked = " or to describe boxes of its arguments" if source.maps else ""
            raise ExecutionError(
                f"the driver refuses to launch {source.name} of {device.name!r}{asked} "
                f"(error {error})"
            )


def native_launches(
    instrs: Sequence[host.Instr],
    kernels: Mapping[str, tuple[DeviceKernel, tuple[KernelSource, ...]]],
    entry: Entry,
    memory: DeviceMemory,
) -> NativeLaunches:
    """Compile the launches of instructions, calls of kernels and what gives tensors their places,
    for this machine."""
    target = Target.host()
    plan = emit_launches(instrs, kernels, target)
    # Optimised, it takes eight times as long to compile, and launches as fast.
    code = jit.LoadedObject([jit.compile_quickly(plan.text, target)[0]], target)
    words = np.zeros(plan.size, np.int64)
    words[LAUNCH_KERNEL], words[ENCODE_MAP] = driver_functions()
    for number, launch in enumerate(plan.launches):
        at = plan.handle(number)
        words[at], words[at + 1] = entry(*launch)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(code.address(SYMBOL))
    return NativeLaunches(plan, memory, code, words, function)


@cache
def driver_functions() -> tuple[int, int]:
    """The addresses of `cuLaunchKernel` and `cuTensorMapEncodeTiled`."""
    driver = ctypes.CDLL("libcuda.so.1")
    launch, encode = (
        ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0
        for name in ("cuLaunchKernel", "cuTensorMapEncodeTiled")
    )
    return launch, encode
