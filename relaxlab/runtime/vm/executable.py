"""Compiled programs whose host functions a virtual machine runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir.brief import Brief
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief
from relaxlab.ir.host import HostProgram
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.interchange import handed_over, library_of
from relaxlab.runtime.request import Request
from relaxlab.runtime.vm.vm import VirtualMachine


class MachineExecutable(Brief):
    """A compiled program: `exe["main"](x)` runs a function of it on `machine()`."""

    @property
    @abstractmethod
    def program(self) -> HostProgram:
        """The host functions and loop functions."""

    @abstractmethod
    def machine(self) -> VirtualMachine:
        """The machine that runs calls."""

    def call(self, name: str, args: Sequence[Any]) -> Any:
        """Run a function of the program."""
        return self.machine().run(name, *args)

    def __getitem__(self, name: str) -> MachineFunction:
        if name not in self.program.functions:
            raise KeyError(f"no function named {name!r}; there are: {', '.join(self)}")
        return MachineFunction(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.program.functions)


@dataclass(frozen=True, slots=True, repr=False)
class MachineFunction(Brief):
    """A function of a program that a virtual machine runs."""

    exe: MachineExecutable
    name: str

    @brief
    def __call__(self, *args: Any) -> Any:
        """Run it. Raises ExecutionError for arguments that do not fit and checks that fail, and
        what the machine needs and does not have (`NoGpu`)."""
        library, result = library_of(args), self.exe.call(self.name, args)
        return result if library is None else handed_over(result, library)


class InterpretedExecutable(Displayed, MachineExecutable):
    """A program whose kernels the interpreter runs, on NumPy arrays: for machines that no code is
    generated for. `source` is the module after all passes."""

    def __init__(self, module: Module, target: Target) -> None:
        self.module = module
        self.target = target
        self._program = lower_shapes(module)

    def __repr__(self) -> str:
        return f"InterpretedExecutable({', '.join(self)}; {self.target.kind})"

    @property
    def program(self) -> HostProgram:
        """The host functions and loop functions."""
        return self._program

    def machine(self) -> VirtualMachine:
        """A new machine, to run calls or to look at them step by step."""
        return VirtualMachine(self._program)

    def source(self, name: str | None = None) -> str:
        """The module after all passes as a script, or one function of it. Raises KeyError for an
        unknown name."""
        return (self.module if name is None else Module.of({name: self.module[name]})).script()


def compile_for_interpreter(request: Request) -> InterpretedExecutable:
    """The program with its kernels as they are scheduled. Raises ValueError for batches and
    for options of CPUs."""
    request.refuse_batches()
    request.refuse_options_of_cpus()
    return InterpretedExecutable(request.result(), request.target)
