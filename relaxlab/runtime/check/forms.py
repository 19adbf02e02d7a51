"""The forms of a program after the passes: host functions and kernels on what can run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.codegen.gpu.program import called_kernels
from relaxlab.codegen.llvm.host_frame import UnsupportedHost
from relaxlab.codegen.program import compile_program
from relaxlab.ir import loops
from relaxlab.ir.host import HostProgram, kernel_arguments
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.check.races import find_race
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.vm.gpu import simulated
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine

Runner = Callable[[str, tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class Forms:
    """`runs`: titles, and functions that call a function of the program by its name. `left_out`: in
    words what cannot be compared."""

    runs: tuple[tuple[str, Runner], ...]
    left_out: tuple[str, ...] = ()


def interpreted_forms(program: HostProgram) -> Forms:
    """The virtual machine, with kernels on the interpreter, which looks for races in them."""
    watched = {name: _watched(name, func) for name, func in program.kernels.items()}
    return Forms((("the virtual machine", _machine(VirtualMachine(program, watched))),))


def native_forms(program: HostProgram, target: Target) -> Forms:
    """The virtual machine, then native code."""
    machine = interpreted_forms(program)
    try:
        exe = Executable(compile_program(program, target), target)
    except UnsupportedHost as reason:
        return Forms(machine.runs, (f"not compared with native code: {reason}",))
    if not exe.runs_here:
        reason = "this machine cannot run the target's code"
        return Forms(machine.runs, (f"not compared with native code: {reason}",))
    absent = exe.artifact.left_out

    def run(name: str, args: tuple[Any, ...]) -> Any:
        return machine.runs[0][1](name, args) if name in absent else exe[name](*args)

    reasons = (f"not compared with native code: {reason}" for reason in absent.values())
    return Forms((*machine.runs, ("native code", run)), tuple(reasons))


def simulated_forms(program: HostProgram, target: Target) -> Forms:
    """The virtual machine, then the threads of a GPU, simulated."""
    simt = VirtualMachine(program, simulated(program, called_kernels(program, target.facts)))
    return Forms((
        ("the virtual machine", _machine(VirtualMachine(program))),
        ("simulated GPU threads", _machine(simt)),
    ))  # fmt: skip


def _watched(name: str, func: loops.PrimFunc) -> Kernel:
    """The interpreter's run of a kernel; its first call looks for races in it."""
    watch = True

    def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
        nonlocal watch
        args = kernel_arguments(func, buffers, scalars)
        race = find_race(func, args) if watch else None
        watch = False
        if race is not None:
            raise ExecutionError(f"the kernel `{name}` races: {race}")
        interpret_prim_func(func, args, name=name)

    return run


def _machine(vm: VirtualMachine) -> Runner:
    return lambda name, args: vm.run(name, *args)
