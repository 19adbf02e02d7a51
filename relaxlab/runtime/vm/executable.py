"""Compiled programs whose host functions a virtual machine runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief
from relaxlab.ir.host import HostProgram
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import uninitialised
from relaxlab.runtime.interchange import handed_over, library_of
from relaxlab.runtime.native.arguments import in_order
from relaxlab.runtime.native.weights import (
    Run,
    Transform,
    Weights,
    find_weights,
    packed_by_function,
    transforms_of,
    weights_of,
)
from relaxlab.runtime.programs import Complete, Make, allocator
from relaxlab.runtime.request import Request
from relaxlab.runtime.unbatched import Unbatched
from relaxlab.runtime.vm.vm import VirtualMachine


class MachineExecutable(Brief):
    """A compiled program: `exe["main"](x)` and `exe.main(x)` run a function of it on `machine()`,
    `exe(x)` runs `main` or the only one. Calls of loop functions that were compiled by themselves,
    `entries`, may leave out the outputs. Weights are those of the program as it was written:
    `load` packs and binds them once, calls that are given them pack them."""

    entries: Mapping[str, PrimFunc]
    _weights: Mapping[str, Weights] = {}
    _transforms: Mapping[str, Transform] = {}
    _bound: Mapping[str, tuple[Any, ...]] = {}

    @property
    @abstractmethod
    def program(self) -> HostProgram:
        """The host functions and loop functions."""

    @abstractmethod
    def machine(self) -> VirtualMachine:
        """The machine that runs calls."""

    def run(self, name: str, *args: Any) -> Any:
        """Run a function of the program, with weights as it takes them."""
        return self.machine().run(name, *self.completed(name, args, uninitialised))

    def call(self, name: str, args: Sequence[Any]) -> Any:
        """Run a function of the program. Raises ArgumentError where it is given no weights."""
        if name in self._transforms:
            return self._transforms[name](*args)
        return self.run(name, *self.with_weights(name, args))

    def belongs_to(self, mod: Module, compiled: Module) -> None:
        """Set the program that was compiled, and what the passes made of it."""
        by = transforms_of(compiled)
        counts = {name: len(fn.params) for name, fn in self.program.functions.items()}
        self._transforms = {
            packing: Transform(
                packing, len(weights_of(compiled, name)), partial(self.run, packing)
            )
            for name, packing in by.items()
        }
        self._weights = find_weights(mod, self._transforms, by, counts)

    def load(self, params: Mapping[str, Any] | Sequence[Any]) -> Self:
        """Pack the weights of the program once and bind them: later calls take the inputs alone.

        params: arrays by name (`nn.Module.state_dict()`, names with dots or as the parameters
        have them), or in the order of the parameters. Returns the executable.

        Raises ArgumentError for weights that are missing, unknown, or do not fit.
        """
        self._bound = packed_by_function(self._weights, params)
        return self

    def with_weights(
        self, name: str, args: Sequence[Any], run: Run | None = None
    ) -> Sequence[Any]:
        """The arguments of a call with weights as the function takes them; `run` runs what packs
        them in another way than calls do."""
        weights = self._weights.get(name)
        if weights is None:
            return args
        if name in self._bound and len(args) == weights.inputs:
            return (*args, *self._bound[name])
        return weights.adapt(tuple(args), run)

    def completed(self, name: str, args: Sequence[Any], make: Make) -> Sequence[Any]:
        """The arguments of a call, with the outputs that it leaves out."""
        complete = self._allocators.get(name)
        return args if complete is None else complete(make, tuple(args))

    @cached_property
    def _allocators(self) -> dict[str, Complete]:
        # The machine checks what it is given.
        return {n: allocator(n, func, lambda *_: None) for n, func in self.entries.items()}

    def __getitem__(self, name: str) -> MachineFunction:
        if name not in self.program.functions:
            raise KeyError(f"no function named {name!r}; there are: {among(name, self)}")
        return MachineFunction(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.program.functions)

    def __getattr__(self, name: str) -> Any:
        # Not `iter(self)` before `__init__` is through: that would ask this method again, for ever.
        names = tuple(self) if "target" in vars(self) and not hasattr(type(self), name) else ()
        if name in names:
            return self[name]
        raise AttributeError(
            f"{type(self).__name__} has no attribute or function {name!r}; its functions: "
            f"{', '.join(names)}",
            name=name,
            obj=self,
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    @brief
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call `main`, or the only function that does not pack weights. Raises TypeError naming the
        functions where there are several."""
        names = [name for name in self if name not in self._transforms]
        if "main" not in names and len(names) != 1:
            raise TypeError(
                f"the executable has several functions; call one of {', '.join(names)}: "
                f'exe["{names[0]}"](...)'
            )
        return self["main" if "main" in names else names[0]](*args, **named)


@dataclass(frozen=True, slots=True, repr=False)
class MachineFunction(Unbatched, Brief):
    """A function of a program that a virtual machine runs."""

    exe: MachineExecutable
    name: str

    @brief
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it. Raises ArgumentError for names that are none of its parameters', ExecutionError
        for arguments that do not fit and checks that fail, and what the machine needs and does not
        have (`NoGpu`)."""
        if named:
            params = self.exe.program.functions[self.name].params
            args = in_order(self.name, [p.name for p in params], args, named)
        library, result = library_of(args), self.exe.call(self.name, args)
        return result if library is None else handed_over(result, library)


@methods_name_arguments
class InterpretedExecutable(Displayed, MachineExecutable):
    """A program whose kernels the interpreter runs, on NumPy arrays: for machines that no code is
    generated for. `source` is the module after all passes."""

    def __init__(
        self, module: Module, target: Target, entries: Mapping[str, PrimFunc] | None = None
    ) -> None:
        self.module = module
        self.target = target
        self.entries = entries or {}
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
    result = request.result()
    exe = InterpretedExecutable(result, request.target, request.entries)
    exe.belongs_to(request.mod, result)
    return exe
