"""The virtual machine: host functions executed one instruction at a time.

It runs the program that the native code generator compiles, so it shows what native code does;
registers, symbols and memory can be inspected between steps. Kernels are Python callables, by
default the loop interpreter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, host, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.names import among
from relaxlab.ops.calls import BoundFunction
from relaxlab.runtime.arrays import Array, ExecutionError, dtype_name
from relaxlab.runtime.interpreter.check_values import match_value, to_value
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.interpreter.outside_functions import outside
from relaxlab.runtime.packed import call_func
from relaxlab.runtime.vm.memory import DeviceMemory, HostMemory

Kernel = Callable[[Sequence[Array], Sequence[int]], None]
"""Runs a loop function on its buffers and the values of its `kernel_symbols`."""


@dataclass(slots=True)
class Frame:
    """A running function. `blocks` are the instruction lists being run, the innermost last."""

    function: host.HostFunction
    registers: list[Any]
    symbols: dict[expr.Var, int]
    blocks: list[_Block]
    dst: host.Value | None = None

    @property
    def next(self) -> host.Instr | None:
        """The instruction that the next step runs; None when the function is about to return."""
        block = self.blocks[-1]
        return block.instrs[block.at] if block.at < len(block.instrs) else None


@dataclass(slots=True)
class _Block:
    """Instructions, the position in them, and for a branch what becomes of its value."""

    instrs: tuple[host.Instr, ...]
    at: int = 0
    value: host.Value | None = None
    dst: host.Value | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction: where, how deep in calls, and its seconds."""

    function: str
    instr: host.Instr
    depth: int
    seconds: float


@dataclass(slots=True)
class Cost:
    """The accumulated cost of an instruction over a run."""

    function: str
    instr: host.Instr
    count: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class VirtualMachine:
    """Runs the functions of a host program.

    >>> vm = VirtualMachine(program)                                      # doctest: +SKIP
    >>> vm.run("main", x)                                                 # doctest: +SKIP
    >>> vm.start("main", x); vm.step(); vm.frames[-1].registers           # doctest: +SKIP

    `kernels` replaces loop functions, by name, with callables. `memory` is where tensors are kept;
    functions outside the program get NumPy arrays in any case. `profile` lists the cost of each
    instruction executed since the machine was made.
    """

    program: host.HostProgram
    kernels: Mapping[str, Kernel] = field(default_factory=lambda: dict[str, Kernel]())
    memory: HostMemory | DeviceMemory = field(default_factory=HostMemory)
    frames: list[Frame] = field(default_factory=lambda: list[Frame]())
    result: Any = None
    _constants: dict[tuple[str, int], Any] = field(default_factory=dict[tuple[str, int], Any])
    _costs: dict[int, Cost] = field(default_factory=lambda: dict[int, Cost]())

    # --- Running ------------------------------------------------------------------------------

    def run(self, name: str, *args: Any) -> Any:
        """Call a function: tensors are NumPy (or DLPack) arrays, shapes tuples, scalars numbers.

        Raises ExecutionError naming the check that failed, KeyError for an unknown function.
        """
        self.start(name, *args)
        while self.frames:
            self.step()
        return self.result

    def start(self, name: str, *args: Any) -> None:
        """Begin a call, to be executed by `step`."""
        if name not in self.program.functions:
            names = among(name, sorted(self.program.functions))
            raise KeyError(f"no function named {name!r} in the program; it has: {names}")
        self.frames = []
        self.result = None
        fn = self.program.functions[name]
        if len(args) != len(fn.params):
            takes = counted(len(fn.params), "argument")
            raise ExecutionError(f"`{name}` takes {takes}, got {len(args)}")
        given = [argument(self.memory, fn, p, a) for p, a in zip(fn.params, args, strict=True)]
        self._enter(fn, given, None)

    def step(self) -> Step | None:
        """Run one instruction; None when there is none left. At the end `result` is set."""
        if not self.frames:
            return None
        frame = self.frames[-1]
        depth = len(self.frames)
        block = frame.blocks[-1]
        instr = block.instrs[block.at] if block.at < len(block.instrs) else None
        if instr is None:
            self._leave_blocks()
            return self.step()
        block.at += 1
        start = time.perf_counter()
        self.execute(frame, instr)
        seconds = time.perf_counter() - start
        # By identity: two equal instructions of a program are two lines of the profile.
        cost = self._costs.setdefault(id(instr), Cost(frame.function.name, instr))
        cost.count += 1
        cost.seconds += seconds
        self._leave_blocks()
        return Step(frame.function.name, instr, depth, seconds)

    def profile(self) -> tuple[Cost, ...]:
        """The cost of each instruction, the most expensive first. A call's cost is its callee's
        instructions'."""
        return tuple(sorted(self._costs.values(), key=lambda c: -c.seconds))

    def _enter(self, fn: host.HostFunction, args: Sequence[Any], dst: host.Value | None) -> None:
        frame = Frame(fn, [None] * len(fn.registers), {}, [_Block(fn.instrs)], dst)
        for p, a in zip(fn.params, args, strict=True):
            assign(frame, p.value, a)
        self.frames.append(frame)

    def _leave_blocks(self) -> None:
        """Finish branches and functions that have no instruction left."""
        while self.frames and self.frames[-1].next is None:
            frame = self.frames[-1]
            done = frame.blocks.pop()
            if frame.blocks:
                assert done.value is not None and done.dst is not None
                assign(frame, done.dst, read(frame, done.value))
                continue
            value = read(frame, frame.function.result)
            self.frames.pop()
            if frame.dst is None:
                self.result = value
            else:
                assign(self.frames[-1], frame.dst, value)

    # --- Instructions -------------------------------------------------------------------------

    def execute(self, frame: Frame, instr: host.Instr) -> None:
        """Run one instruction in a frame."""
        regs, symbols = frame.registers, frame.symbols
        match instr:
            case host.MatchShape():
                match_shape(frame, instr, self.memory.array)
            case host.ComputeScalar(symbol, value):
                symbols[symbol] = evaluate(value, symbols)
            case host.Require(condition, got, _):
                if not evaluate(condition, symbols):
                    raise ExecutionError(instr.text(evaluate(got, symbols)))
            case host.LoadConst(dst, index):
                regs[dst] = self.constant(frame.function, index)
            case host.LoadFunction(dst, function):
                regs[dst] = self.program.functions[function]
            case host.MakeClosure(dst, function, args):
                regs[dst] = BoundFunction(regs[function], tuple(read(frame, a) for a in args))
            case host.MakeShape(dst, dims):
                regs[dst] = tuple(evaluate(d, symbols) for d in dims)
            case host.MakeScalar(dst, value):
                regs[dst] = evaluate(value, symbols)
            case host.AllocStorage(dst, size):
                regs[dst] = self.memory.empty((evaluate(size, symbols),), "uint8")
            case host.Alloc(dst, _):
                shape, dtype = _tensor_type(frame, dst)
                regs[dst] = self.memory.empty(shape, dtype)
            case host.View(dst, base, offset):
                shape, _ = _tensor_type(frame, dst)
                regs[dst] = view(self.memory, frame, dst, base, evaluate(offset, symbols), shape)
            case host.Kill(tensor):
                self.memory.poison(regs[tensor].reshape(-1).view(np.uint8))
            case host.CallKernel(function, buffers, scalars):
                # The scalars stand in the order of `kernel_symbols`, whatever the order of the
                # parameters.
                values = [evaluate(s, symbols) for s in scalars]
                self._kernel(function, [regs[b] for b in buffers], values)
            case host.CallPacked():
                self._packed(frame, instr)
            case host.CallFunction(function, args, dst):
                # A register holds a function of the program, a closure, or one that the caller
                # passed.
                callee = regs[function] if isinstance(function, int) else function
                fn = self.program.functions[callee] if isinstance(callee, str) else callee
                self._call(frame, fn, [read(frame, a) for a in args], dst)
            case host.Pack(dst, value):
                regs[dst] = read(frame, value)
            case host.Unpack(dst, value, what):
                _unpack(frame, dst, regs[value], what)
            case host.If():
                yes = bool(self.memory.to_host(regs[instr.condition]))
                instrs = instr.then_instrs if yes else instr.else_instrs
                value = instr.then_value if yes else instr.else_value
                frame.blocks.append(_Block(instrs, 0, value, instr.dst))

    def constant(self, fn: host.HostFunction, index: int) -> Any:
        """Return a constant of a function as `memory` has it."""
        # On a device, a constant is copied there once, not at every step that loads it.
        key = (fn.name, index)
        if key not in self._constants:
            self._constants[key] = self.memory.constant(fn.constants[index])
        return self._constants[key]

    def _packed(self, frame: Frame, call: host.CallPacked) -> None:
        """Call a function outside the program. In destination-passing calls it writes into its
        arguments."""
        mine = [_packed_arg(frame, a) for a in call.args]
        theirs = [_map_arrays(a, self.memory.array, self.memory.to_host) for a in mine]
        try:
            result = call_func(call.function, *theirs)
        except ExecutionError as error:
            raise ExecutionError(f"computing {call.place(frame.function)}: {error}") from error
        if call.dst is not None:
            self._packed_result(frame, call, call.dst, result)
            return
        for given, own in zip(theirs, mine, strict=True):
            # Host memory has handed out its own arrays, a device copies of them.
            if isinstance(own, self.memory.array):
                self.memory.copy_back(given, own)

    def _packed_result(
        self, frame: Frame, call: host.CallPacked, dst: host.Value, result: Any
    ) -> None:
        where = f"the result of `{call.function}`, {call.place(frame.function)},"
        if isinstance(dst, tuple):
            _check_tuple(result, len(dst), where)
            for d, field in zip(dst, result, strict=True):
                self._packed_result(frame, call, d, field)
        elif isinstance(ty := frame.function.registers[dst].ty, types.TensorType):
            array = np.asarray(result, order="C")
            if ty.dtype not in (None, dtype_name(array)):
                got = dtype_name(array)
                raise ExecutionError(f"{where} has dtype {got}, expected {ty.dtype}")
            if ty.ndim not in (-1, array.ndim):
                raise ExecutionError(f"{where} has rank {array.ndim}, expected {ty.ndim}")
            frame.registers[dst] = self.memory.tensor(array, where, False)
        else:
            frame.registers[dst] = _map_arrays(result, np.ndarray, self.memory.constant)

    def _call(self, frame: Frame, fn: Any, args: list[Any], dst: host.Value) -> None:
        while isinstance(fn, BoundFunction):
            fn, args = fn.func, [*args, *fn.args]
        if isinstance(fn, host.HostFunction):
            if len(args) != len(fn.params):
                takes = counted(len(fn.params), "argument")
                raise ExecutionError(
                    f"`{fn.name}` takes {takes}, `{frame.function.name}` passes {len(args)}"
                )
            self._enter(fn, args, dst)
        elif callable(fn):
            assign(frame, dst, fn(*args))
        else:
            raise ExecutionError(f"`{frame.function.name}` calls {fn!r}, which is no function")

    def _kernel(self, name: str, buffers: list[Array], scalars: list[int]) -> None:
        if name in self.kernels:
            self.kernels[name](buffers, scalars)
            return
        func = self.program.kernels[name]
        interpret_prim_func(func, host.kernel_arguments(func, buffers, scalars), name=name)


# --- Values ---------------------------------------------------------------------------------------


def argument(
    memory: HostMemory | DeviceMemory, fn: host.HostFunction, param: host.HostParam, value: Any
) -> Any:
    """An argument as the machine keeps it: arrays, tuples, numbers; checked as far as its kind."""

    def convert(at: host.Value, ty: types.Type, v: Any, what: str) -> Any:
        where = f"parameter `{what}` of `{fn.name}`"
        if isinstance(at, tuple):
            assert isinstance(ty, types.TupleType)
            if not isinstance(v, tuple | list) or len(v) != len(at):  # type: ignore
                raise ExecutionError(f"{where} must be a tuple of {len(at)} values")
            rows = zip(at, ty.fields, v, strict=True)  # type: ignore[reportUnknownArgumentType]
            return tuple(convert(a, t, x, f"{what}[{i}]") for i, (a, t, x) in enumerate(rows))
        if isinstance(ty, types.TensorType):
            return memory.tensor(v, where, at in fn.written)
        if isinstance(ty, types.FuncType):
            return outside(v)
        if isinstance(ty, types.DataType):
            match_value(v, ty, where)
            return v
        if isinstance(ty, types.PrimType):
            number = to_value(v, ty, where)
            match_value(number, ty, where)
            return number
        return to_value(v, ty, where) if isinstance(ty, types.ShapeType) else v

    return convert(param.value, param.ty, value, param.name)


def assign(frame: Frame, dst: host.Value, value: Any) -> None:
    """Put a value, which may be a tuple, into its registers."""
    if isinstance(dst, int):
        frame.registers[dst] = value
        return
    for d, v in zip(dst, value, strict=True):
        assign(frame, d, v)


def read(frame: Frame, value: host.Value) -> Any:
    """Return the contents of registers, as tuples where the value is one."""
    if isinstance(value, int):
        return frame.registers[value]
    return tuple(read(frame, v) for v in value)


def _packed_arg(frame: Frame, arg: host.PackedArg) -> Any:
    if isinstance(arg, expr.PrimExpr):
        return evaluate(arg, frame.symbols)
    return arg if isinstance(arg, str) else read(frame, arg)


def _map_arrays(value: Any, array: type[Any], fn: Callable[[Any], Any]) -> Any:
    """`fn` applied to the arrays of a value that may be a tuple."""
    if isinstance(value, tuple):
        return tuple(_map_arrays(v, array, fn) for v in value)  # type: ignore
    return fn(value) if isinstance(value, array) else value


def _unpack(frame: Frame, dst: tuple[host.Value, ...], value: Any, what: str) -> None:
    _check_tuple(value, len(dst), what)
    assign(frame, dst, value)


def _check_tuple(value: Any, count: int, what: str) -> None:
    if not isinstance(value, tuple | list):
        raise ExecutionError(f"{what} must be a tuple, got {kind_of(value)}")
    if len(value) != count:  # type: ignore[reportUnknownArgumentType]
        raise ExecutionError(f"{what} has {len(value)} fields, expected {count}")  # type: ignore


def _tensor_type(frame: Frame, reg: int) -> tuple[tuple[int, ...], str]:
    ty = frame.function.registers[reg].ty
    assert isinstance(ty, types.TensorType) and ty.shape is not None and ty.dtype is not None
    return tuple(evaluate(d, frame.symbols) for d in ty.shape), ty.dtype


def view(
    memory: HostMemory | DeviceMemory, frame: Frame, dst: int, base: int, offset: int,
    shape: Sequence[int],
) -> Any:  # fmt: skip
    """The tensor of register `dst`, of a shape, at a byte of the array in register `base`. Raises
    ExecutionError where it is not within that."""
    ty = frame.function.registers[dst].ty
    assert isinstance(ty, types.TensorType) and ty.dtype is not None
    kind = numpy_dtype(ty.dtype)
    size = kind.itemsize * math.prod(shape)
    data = frame.registers[base]
    if data.dtype != np.uint8 or data.ndim != 1:
        data = data.reshape(-1).view(np.uint8)
    if not 0 <= offset <= offset + size <= data.size:
        raise ExecutionError(
            f"`{frame.function.registers[dst].name}` of `{frame.function.name}` takes bytes "
            f"{offset} to {offset + size} of {data.size}"
        )
    part = data[offset : offset + size]
    # Storage that is used again: what the tensor before left in it must not pass for its contents.
    if isinstance(frame.function.registers[base].ty, types.ObjectType):
        memory.poison(part)
    return part.view(kind).reshape(shape)


def match_shape(frame: Frame, m: host.MatchShape, array: type[Any]) -> None:
    """Check a value against a type and bind its symbols. Raises ExecutionError."""
    value = frame.registers[m.value]
    frame.registers[m.dst] = value
    dims = _dimensions(value, m, array)
    for axis, (dim, check) in enumerate(zip(dims, m.dims or (), strict=False)):
        if isinstance(check, host.BindDim):
            frame.symbols[check.symbol] = dim
        elif isinstance(check, host.CheckDim):
            expected = evaluate(check.expected, frame.symbols)
            if dim != expected:
                raise ExecutionError(m.dim_message(axis, dim, expected))


def _dimensions(value: Any, m: host.MatchShape, array: type[Any]) -> tuple[Any, ...]:
    """The dimensions to match, after checking kind, dtype and rank."""
    if m.kind == "tensor":
        if not isinstance(value, array):
            raise ExecutionError(f"{m.what} must be a tensor, is {kind_of(value)}")
        if m.dtype is not None and dtype_name(value) != m.dtype:
            raise ExecutionError(m.dtype_message(dtype_name(value)))
        dims: tuple[Any, ...] = value.shape
    elif m.kind == "shape":
        if not isinstance(value, tuple):
            raise ExecutionError(f"{m.what} must be a shape, is {kind_of(value)}")
        dims = value  # type: ignore[reportUnknownVariableType]
    else:
        if not isinstance(value, int | float | np.generic):
            raise ExecutionError(f"{m.what} must be a number, is {kind_of(value)}")
        return (value,)
    if m.ndim not in (-1, len(dims)):
        raise ExecutionError(m.rank_message(len(dims)))
    return dims
