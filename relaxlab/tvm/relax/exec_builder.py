"""`tvm.relax.ExecBuilder`: programs of a virtual machine, written instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from relaxlab.ir.errors import UserError
from relaxlab.runtime import packed
from relaxlab.tvm import runtime
from relaxlab.tvm.relax.vm import VMExecutable


@dataclass(frozen=True)
class Operand:
    """A register or a constant by its number, an integer, a function's name, or nothing."""

    kind: Literal["register", "constant", "immediate", "function", "void", "state"]
    value: Any = None


@dataclass(frozen=True)
class Instruction:
    """A step: `target` is a function's name, the distance to the next instruction, or None."""

    kind: Literal["call", "if", "goto", "ret"]
    target: Any = None
    args: tuple[Operand, ...] = ()
    dst: Operand | None = None


@dataclass
class _Function:
    num_inputs: int
    steps: list[Instruction] = field(default_factory=list)


class ExecBuilder:
    """Writes functions that call registered functions and one another."""

    def __init__(self) -> None:
        self._functions: dict[str, _Function] = {}
        self._constants: list[Any] = []
        self._open: _Function | None = None

    @contextmanager
    def function(
        self, func_name: str, num_inputs: int | None = 0, param_names: list[str] | None = None
    ) -> Iterator[ExecBuilder]:
        """A scope whose instructions are a function's. Raises ValueError for a name in use."""
        if func_name in self._functions:
            raise ValueError(f"there is a function {func_name!r} already")
        self._open = self._functions[func_name] = _Function(num_inputs or 0)
        yield self
        self._open = None

    def r(self, idx: int) -> Operand:
        """A register; the first ones have the arguments."""
        return Operand("register", idx)

    def imm(self, value: int) -> Operand:
        """An integer."""
        return Operand("immediate", int(value))

    def c(self, idx: int) -> Operand:
        """A constant by its number."""
        return Operand("constant", idx)

    def f(self, name: str) -> Operand:
        """A function as an argument."""
        return Operand("function", name)

    def void_arg(self) -> Operand:
        """The place of a result that is not kept."""
        return Operand("void")

    def vm_state(self) -> Operand:
        """The machine's state, which relaxlab's functions do not take: they are given None."""
        return Operand("state")

    def convert_constant(self, cst: Any) -> Operand:
        """A value as an operand."""
        self._constants.append(runtime.unwrapped(cst))
        return self.c(len(self._constants) - 1)

    def emit_call(
        self, name: str, args: Sequence[Any] | None = None, dst: Operand | None = None
    ) -> None:
        """Call a function of this program or a registered one."""
        given = (a if isinstance(a, Operand) else self.convert_constant(a) for a in args or ())
        self._emit(Instruction("call", name, tuple(given), dst))

    def emit_ret(self, result: Operand) -> None:
        """Return."""
        self._emit(Instruction("ret", None, (result,)))

    def emit_goto(self, pc_offset: int) -> None:
        """Go on so many instructions later."""
        self._emit(Instruction("goto", pc_offset))

    def emit_if(self, cond: Operand, false_offset: int) -> None:
        """Go on so many instructions later where a value is zero, else with the next one."""
        self._emit(Instruction("if", false_offset, (cond,)))

    def _emit(self, step: Instruction) -> None:
        if self._open is None:
            raise UserError("instructions are written in `with builder.function(name):`")
        self._open.steps.append(step)

    def get(self) -> VMExecutable:
        """The program. Raises `TVMError` where a register is read before it has a value, or a
        function goes on behind its last instruction."""
        for name, function in self._functions.items():
            _require_defined(name, function)
        runs = {name: self._run(function) for name, function in self._functions.items()}
        return VMExecutable(runs, runtime.cpu())

    def _run(self, function: _Function) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if len(args) != function.num_inputs:
                raise TypeError(f"{function.num_inputs} arguments expected, {len(args)} given")
            registers, at = dict(enumerate(args)), 0
            while True:
                step = function.steps[at]
                values = [self._value(a, registers) for a in step.args]
                if step.kind == "ret":
                    return values[0]
                if step.kind == "call":
                    result = self._callee(step.target)(*values)
                    if step.dst is not None and step.dst.kind == "register":
                        registers[step.dst.value] = result
                jumps = step.kind == "goto" or (step.kind == "if" and not np.all(values[0]))
                at += step.target if jumps else 1

        return run

    def _value(self, operand: Operand, registers: dict[int, Any]) -> Any:
        match operand.kind:
            case "register":
                return registers[operand.value]
            case "constant":
                return self._constants[operand.value]
            case "function":
                return self._callee(operand.value)
            case _:
                return operand.value

    def _callee(self, name: str) -> Callable[..., Any]:
        own = self._functions.get(name)
        return packed.get_func(name) if own is None else self._run(own)


def _require_defined(name: str, function: _Function) -> None:
    """Raise where a register is read that no instruction above gives a value, or where a function
    has no end."""
    defined = set(range(function.num_inputs))
    for at, step in enumerate(function.steps):
        for operand in step.args:
            if operand.kind == "register" and operand.value not in defined:
                raise UserError(
                    f'register r({operand.value}) in VM function "{name}" is used as input while '
                    "it is never defined as a destination"
                )
        if step.dst is not None and step.dst.kind == "register":
            defined.add(step.dst.value)
        following = {"if": {1, step.target}, "goto": {step.target}, "call": {1}, "ret": set[int]()}
        for offset in following[step.kind]:
            if not 0 <= at + offset < len(function.steps):
                raise UserError(f'VM function "{name}" does not return after instruction {at}')
