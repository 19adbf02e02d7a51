"""Host functions without branches and calls as lists of closures.

The virtual machine looks every instruction up again at every call, which takes longer than a GPU
takes for a small kernel. Here everything that is the same at every call is prepared: sizes are
numbers or closures over the symbols, and tensors in planned memory of constant size are views that
stay. Where native code can make the launches (`native_launches`), it makes all of them. An array
that is the argument of the call before is not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import ref

import numpy as np

from relaxlab.analysis.evaluate import evaluator, values_of
from relaxlab.ir import host, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.vm.vm import (
    Frame,
    VirtualMachine,
    argument,
    assign,
    match_shape,
    read,
    view,
)

Step: TypeAlias = Callable[[Frame], None]
PLAIN = (
    host.MatchShape, host.ComputeScalar, host.Require, host.LoadConst, host.MakeShape,
    host.MakeScalar, host.AllocStorage, host.Alloc, host.View, host.Kill, host.CallKernel,
    host.Pack, host.Unpack,
)  # fmt: skip
"""The instructions that are followed by the next one."""


Launcher: TypeAlias = Callable[[Sequence[host.Instr]], Step]
"""Makes the launches of instructions one step."""


def straight_line(
    machine: VirtualMachine, fn: host.HostFunction, launcher: Launcher | None = None
) -> StraightLine | None:
    """Prepare a function of the machine's program; None for one with branches or calls. With a
    `launcher`, its kernels are launched behind all else."""
    if not all(isinstance(i, PLAIN) for i in fn.instrs):
        return None
    line = StraightLine(machine, fn, [None] * len(fn.registers), [None] * len(fn.params))
    if launcher is None:
        line.steps += line.prepare(fn.instrs)
        return line
    before, launched = _parts(fn)
    line.steps += line.prepare(before)
    if any(isinstance(i, host.CallKernel) for i in launched):
        line.steps.append(launcher(launched))
    return line


def _parts(fn: host.HostFunction) -> tuple[list[host.Instr], list[host.Instr]]:
    """The instructions, and apart from the others the calls of kernels, with what gives tensors
    their places for these alone. Nothing else reads what kernels compute."""
    needed = set(host.leaves(fn.result))
    others: list[host.Instr] = []
    launched: list[host.Instr] = []
    for i in reversed(fn.instrs):
        apart = isinstance(i, host.CallKernel) or (
            isinstance(i, host.View) and i.dst not in needed
        )
        (launched if apart else others).append(i)
        match i:
            case host.View(base=read) | host.MatchShape(value=read) | host.Unpack(value=read):
                needed.update(() if apart else (read,))
            case host.Pack(value=values):
                needed.update(host.leaves(values))
            case _:
                pass
    return others[::-1], launched[::-1]


@dataclass(slots=True)
class StraightLine:
    """A prepared function. `registers` holds what stays from call to call: constants, and tensors
    in planned memory of constant size, which calls share, so that they must not overlap."""

    machine: VirtualMachine
    fn: host.HostFunction
    registers: list[Any]
    _seen: list[ref[Any] | None]
    steps: list[Step] = field(default_factory=list[Step])

    def prepare(self, instrs: Sequence[host.Instr]) -> list[Step]:
        """Steps that execute the instructions of a function at a call."""
        kept = _kept(self.fn)
        return [s for i in instrs if (s := _step(self, i, kept)) is not None]

    def __call__(self, args: Sequence[Any]) -> Any:
        """Run it. Raises ExecutionError naming the check that failed."""
        frame = self.frame(args)
        for step in self.steps:
            step(frame)
        return read(frame, self.fn.result)

    def frame(self, args: Sequence[Any]) -> Frame:
        """The state at the begin of a call. Raises ExecutionError for arguments that the device
        cannot have."""
        fn, memory = self.fn, self.machine.memory
        if len(args) != len(fn.params):
            takes = counted(len(fn.params), "argument")
            raise ExecutionError(f"`{fn.name}` takes {takes}, got {len(args)}")
        registers = self.registers.copy()
        frame = Frame(fn, registers, {}, [])
        for place, (p, a) in enumerate(zip(fn.params, args, strict=True)):
            seen = self._seen[place]
            if seen is not None and seen() is a:
                assert isinstance(p.value, int)
                registers[p.value] = a
                continue
            value = argument(memory, fn, p, a)
            assign(frame, p.value, value)
            # The caller's arrays are not kept alive.
            as_it_is = value is a and isinstance(value, memory.array)
            self._seen[place] = ref(value) if as_it_is else None
        return frame


def _kept(fn: host.HostFunction) -> frozenset[int]:
    """The registers of storages and their tensors that can stay: their sizes and places are
    constant, and nothing of the storage leaves the function."""
    parts: dict[int, set[int]] = {}  # storage -> what lies in it
    home: dict[int, int] = {}
    constant: set[int] = set()
    for i in fn.instrs:
        match i:
            case host.AllocStorage(dst, size):
                parts[dst], home[dst] = {dst}, dst
                if not symbols_in(size):
                    constant.add(dst)
            case host.View(dst, base, offset) if base in home:
                home[dst] = home[base]
                parts[home[base]].add(dst)
                ty = fn.registers[dst].ty
                assert isinstance(ty, types.TensorType)
                if base in constant and not symbols_in((offset, ty.shape)):
                    constant.add(dst)
            case host.MatchShape(value, dst) if value in home:
                home[dst] = home[value]
                parts[home[value]].add(dst)
            case host.Pack(_, value):
                for leaf in host.leaves(value):
                    if leaf in home:
                        constant.discard(home[leaf])
            case _:
                pass
    for leaf in host.leaves(fn.result):
        if leaf in home:
            constant.discard(home[leaf])
    return frozenset(r for r in constant if home[r] in constant)


def _step(line: StraightLine, instr: host.Instr, kept: frozenset[int]) -> Step | None:
    """The step that executes an instruction; None for one without effect."""
    machine, memory = line.machine, line.machine.memory
    match instr:
        case host.Kill():
            return None
        case host.LoadConst(dst, index):
            line.registers[dst] = machine.constant(line.fn, index)
            return None
        case host.AllocStorage(dst) | host.View(dst) if dst in kept:

            def once(frame: Frame) -> None:
                if frame.registers[dst] is None:
                    machine.execute(frame, instr)
                    line.registers[dst] = frame.registers[dst]

            return once
        case host.MatchShape(_, _, "tensor", _, str()):
            return _matched(instr, memory.array)
        case host.ComputeScalar(symbol, value):
            compute = evaluator(value)

            def scalar(frame: Frame) -> None:
                frame.symbols[symbol] = compute(frame.symbols)

            return scalar
        case host.Alloc(dst):
            ty = line.fn.registers[dst].ty
            assert isinstance(ty, types.TensorType) and ty.shape is not None and ty.dtype
            shape, dtype = values_of(ty.shape), ty.dtype

            def alloc(frame: Frame) -> None:
                frame.registers[dst] = memory.empty(shape(frame.symbols), dtype)

            return alloc
        case host.AllocStorage(dst, size):
            bytes_ = values_of((size,))

            def storage(frame: Frame) -> None:
                frame.registers[dst] = memory.empty(bytes_(frame.symbols), "uint8")

            return storage
        case host.View(dst, base, offset):
            ty = line.fn.registers[dst].ty
            assert isinstance(ty, types.TensorType) and ty.shape is not None
            place = values_of((offset, *ty.shape))

            def part(frame: Frame) -> None:
                start, *shape = place(frame.symbols)
                frame.registers[dst] = view(memory, frame, dst, base, start, shape)

            return part
        case host.CallKernel(function, buffers, scalars) if function in machine.kernels:
            kernel = machine.kernels[function]
            values = values_of(scalars)

            def call(frame: Frame) -> None:
                registers = frame.registers
                kernel([registers[b] for b in buffers], values(frame.symbols))

            return call
        case _:
            return lambda frame: machine.execute(frame, instr)


def _matched(m: host.MatchShape, array: type[Any]) -> Step:
    """The check of a tensor; `match_shape` makes the message where it fails."""
    kind = np.dtype(numpy_dtype(m.dtype or ""))
    binds = [(i, d.symbol) for i, d in enumerate(m.dims or ()) if isinstance(d, host.BindDim)]
    dims = {i: d.expected for i, d in enumerate(m.dims or ()) if isinstance(d, host.CheckDim)}
    checks = [(i, evaluator(expected)) for i, expected in dims.items()]

    constant = not binds and not symbols_in(tuple(dims.values()))
    seen: ref[Any] | None = None

    def step(frame: Frame) -> None:
        nonlocal seen
        value = frame.registers[m.value]
        if seen is not None and seen() is value:
            frame.registers[m.dst] = value
            return
        if isinstance(value, array) and value.dtype == kind and m.ndim in (-1, value.ndim):
            shape = value.shape
            for axis, symbol in binds:
                frame.symbols[symbol] = shape[axis]
            if all(shape[axis] == expected(frame.symbols) for axis, expected in checks):
                frame.registers[m.dst] = value
                seen = ref(value) if constant else None
                return
        match_shape(frame, m, array)

    return step
