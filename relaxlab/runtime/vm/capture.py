"""Host functions whose launches are captured as CUDA graphs, one launch per call.

A graph repeats its launches with the same sizes and arguments. What may differ between two calls
comes to it through memory that stays: a symbol that decides neither a launch's size nor a tensor's
place (the position of a decoding step) is a word that kernels read, small inputs are copied to
buffers of the graph, and results out of them. All else is in the key that a graph is kept under:
the addresses of the other arguments, and the other symbols' values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.evaluate import evaluate, evaluator
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.ir import expr, host, types
from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import UserError, brief
from relaxlab.ir.facts import MB
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.vm.memory import DeviceMemory
from relaxlab.runtime.vm.straight_line import Step, StraightLine
from relaxlab.runtime.vm.vm import Frame, Kernel, read

COPIED = 1 * MB
"""Inputs of at most so many bytes are copied to where a graph reads them: that takes about as long
as a launch (not measured). Larger ones belong to the key by their address."""
KEPT = 32
"""Graphs that a function keeps, the last ones used (not measured)."""

Key: TypeAlias = tuple[Any, ...]


class NotCapturable(UserError, ValueError):
    """A function cannot be captured as a CUDA graph. The message has the reason."""


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """A function in three parts: `checks` of the arguments, which compute all symbols; `buffers`,
    the tensors' memory; and `launches`.

    Of the registers of arguments that are tensors, a graph has buffers for those that are `copied`,
    if they are small, and the addresses of the `arrays`. `origin` maps registers to the argument's
    that they are the same as. `made` are the registers of memory that a call allocates, and of what
    lies in it. `fixed` are the symbols that a graph has the values of; `in_memory`, by loop
    function, the scalars that kernels are given the addresses of.
    """

    fn: host.HostFunction
    checks: tuple[host.Instr, ...]
    buffers: tuple[host.Instr, ...]
    launches: tuple[host.CallKernel, ...]
    arrays: tuple[int, ...]
    copied: tuple[int, ...]
    origin: Mapping[int, int]
    made: frozenset[int]
    fixed: tuple[expr.Var, ...]
    in_memory: Mapping[str, frozenset[expr.Var]]


def plan_capture(fn: host.HostFunction, kernels: Mapping[str, DeviceKernel]) -> CapturePlan:
    """Take a function apart for a capture. Raises NotCapturable naming what stands against it."""
    parts = _Parts(fn)
    for p in fn.params:
        parts.parameter(p.ty, p.name)
    for i in fn.instrs:
        parts.add(i)
    parts.check()
    taken = [leaf for p in fn.params for leaf in host.leaves(p.value)]
    arrays = [r for r in taken if isinstance(fn.registers[r].ty, types.TensorType)]
    inputs = {leaf for p in fn.params[: fn.num_input] for leaf in host.leaves(p.value)}
    copied = [r for r in arrays if r in inputs - fn.written and parts.shape(r) is not None]
    fixed = {*parts.symbols(copied), *symbols_in(tuple(_sizing(parts.launches, kernels)))}
    in_memory: dict[str, frozenset[expr.Var]] = {}
    for call in parts.launches:
        pairs = zip(kernels[call.function].scalars, call.scalars, strict=True)
        found = {v for v, e in pairs if not fixed.issuperset(symbols_in(e))}
        if found:
            in_memory[call.function] = in_memory.get(call.function, frozenset()) | found
    return CapturePlan(
        fn,
        tuple(parts.checks),
        tuple(parts.buffers),
        tuple(parts.launches),
        tuple(r for r in arrays if r not in copied),
        tuple(copied),
        parts.origin,
        frozenset(parts.made),
        tuple(s for s in fn.symbols if s in fixed),
        in_memory,
    )


def _sizing(
    launches: Iterable[host.CallKernel], kernels: Mapping[str, DeviceKernel]
) -> Iterator[expr.PrimExpr]:
    """Yield the values of scalars that decide whether and how large kernels are launched."""
    for call in launches:
        kernel = kernels[call.function]
        sizes = [(x.condition, *x.extents("blockIdx"), *x.extents("threadIdx"))
                 for x in kernel.launches]  # fmt: skip
        deciding = symbols_in(tuple(sizes))
        for v, e in zip(kernel.scalars, call.scalars, strict=True):
            if v in deciding:
                yield e


class _Parts:
    """The parts of a plan while they are collected."""

    def __init__(self, fn: host.HostFunction) -> None:
        self.fn = fn
        self.origin = {leaf: leaf for p in fn.params for leaf in host.leaves(p.value)}
        self.made: set[int] = set()
        self.checks: list[host.Instr] = []
        self.buffers: list[host.Instr] = []
        self.launches: list[host.CallKernel] = []

    def refused(self, why: str) -> NotCapturable:
        return NotCapturable(f"`{self.fn.name}` cannot be captured as a CUDA graph: {why}")

    def parameter(self, ty: types.Type, name: str) -> None:
        """Check that a parameter's registers have arrays, shapes or numbers."""
        if isinstance(ty, types.TupleType):
            for i, part in enumerate(ty.fields):
                self.parameter(part, f"{name}[{i}]")
        elif not isinstance(ty, types.TensorType | types.ShapeType | types.PrimType):
            raise self.refused(f"its parameter `{name}` is no tensor, shape or number")

    def add(self, i: host.Instr) -> None:
        match i:
            case host.MatchShape(value, dst) if value in self.origin:
                self.origin[dst] = self.origin[value]
                self.checks.append(i)
            case host.MatchShape(value, dst, dims=dims):
                if any(isinstance(d, host.BindDim) for d in dims or ()):
                    raise self.refused(f"the shape of {i.what} is found during the call")
                self.lies_in(dst, value)
                self.buffers.append(i)
            case host.ComputeScalar() | host.Require() | host.MakeShape() | host.MakeScalar():
                self.checks.append(i)
            case host.AllocStorage(dst) | host.Alloc(dst):
                self.made.add(dst)
                self.buffers.append(i)
            case host.View(dst, base):
                self.lies_in(dst, base)
                self.buffers.append(i)
            case host.LoadConst() | host.Kill():
                self.buffers.append(i)
            case host.CallKernel():
                self.launches.append(i)
            case _:
                raise self.refused(_OBSTACLES[type(i)])

    def lies_in(self, part: int, whole: int) -> None:
        if whole in self.made:
            self.made.add(part)

    def check(self) -> None:
        if not self.launches:
            raise self.refused("it launches no kernel")
        known = {*self.origin, *self.made}
        for i in (*self.checks, *self.buffers):
            if isinstance(i, host.MakeShape | host.MakeScalar | host.LoadConst):
                known.add(i.dst)
        if not known.issuperset(host.leaves(self.fn.result)):
            raise self.refused("its result is a part of an argument or of a constant")

    def shape(self, register: int) -> tuple[expr.PrimExpr, ...] | None:
        ty = self.fn.registers[register].ty
        return ty.shape if isinstance(ty, types.TensorType) else None

    def symbols(self, copied: Iterable[int]) -> Iterator[expr.Var]:
        """The symbols that sizes and places of memory depend on: what is copied, and buffers."""
        for register in copied:
            yield from symbols_in(self.shape(register))
        for i in self.buffers:
            match i:
                case host.AllocStorage(_, size):
                    yield from symbols_in(size)
                case host.View(dst, _, offset):
                    yield from symbols_in((offset, self.shape(dst)))
                case host.Alloc(dst):
                    yield from symbols_in(self.shape(dst))
                case _:
                    pass


_OBSTACLES: Mapping[type[Any], str] = {
    host.If: "the host decides what is run",
    host.CallPacked: "it calls a function outside the program",
    host.CallFunction: "it calls another function",
    host.LoadFunction: "it has functions as values",
    host.MakeClosure: "it has functions as values",
    host.Pack: "it has tuples that are values of their own",
    host.Unpack: "it has tuples that are values of their own",
}


class Words:
    """Values of expressions over the symbols in the device's memory, 8 bytes for each."""

    def __init__(self, memory: DeviceMemory, exprs: Iterable[tuple[expr.PrimExpr, str]]) -> None:
        self.memory, self.places = memory, {key: at for at, key in enumerate(dict.fromkeys(exprs))}
        self.host = np.zeros(len(self.places), np.int64)
        self.device = memory.empty(self.host.shape, "int64")
        self.cells = [
            (self.host[at : at + 1].view(numpy_dtype(dtype)), evaluator(e))
            for (e, dtype), at in self.places.items()
        ]

    def word(self, e: expr.PrimExpr, dtype: str) -> Any:
        """The place of a value, as an array of one word."""
        at = self.places[e, dtype]
        return self.device[at : at + 1]

    def load(self, symbols: Mapping[expr.Var, int]) -> None:
        """Compute the values, in the order of the current stream."""
        if self.cells:
            for cell, value in self.cells:
                cell[0] = value(symbols)
            self.memory.copy(self.host, self.device)


@dataclass(slots=True)
class Graph:
    """The launches of a call. `inputs` are the buffers of arguments that are copied, `made` the
    memory that the call allocates; `calls` launch the kernels, until they are captured."""

    plan: CapturePlan
    memory: DeviceMemory
    inputs: Mapping[int, Any]
    made: Mapping[int, Any]
    calls: list[Callable[[], None]]
    captured: Any = None

    def launch(self, frame: Frame) -> Any:
        """Run it for a call, and return its result. At the first time the launches are made one by
        one, and captured then: CUDA loads functions at their first launch, which a capture must
        not do."""
        for register, buffer in self.inputs.items():
            self.memory.copy(frame.registers[register], buffer)
        if self.captured is not None:
            self.captured.launch()
            return self._result(frame, self.plan.fn.result)
        for call in self.calls:
            call()
        result = self._result(frame, self.plan.fn.result)
        self._capture()
        return result

    def _capture(self) -> None:
        stream = self.memory.xp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                for call in self.calls:
                    call()
            finally:
                captured = stream.end_capture()
        self.captured = captured
        self.calls.clear()  # they have the caller's arrays

    def _result(self, frame: Frame, value: host.Value) -> Any:
        if isinstance(value, tuple):
            return tuple(self._result(frame, v) for v in value)
        # The next launch overwrites what the graph has made.
        return self.made[value].copy() if value in self.made else frame.registers[value]


@dataclass(slots=True, repr=False)
class CapturedFunction(Brief):
    """A function that is launched as a CUDA graph (`CudaExecutable.captured`).

    The first call with a key (see this module) runs as usual, the second captures its launches,
    and later ones launch the graph. Results are arrays of their own, as without graphs. On a stream
    that is being captured by somebody else, calls run as usual.

    `line` and `kernels` run it, kernels reading the `words`; `adapt` gives the arguments with the
    weights as it takes them; `finish` ends each call, during which `lock` is held.
    """

    plan: CapturePlan
    devices: Mapping[str, DeviceKernel]
    line: StraightLine
    kernels: Mapping[str, Kernel]
    adapt: Callable[[Sequence[Any]], Sequence[Any]]
    finish: Callable[[], None]
    lock: AbstractContextManager[Any]
    graphs: OrderedDict[Key, Graph | None] = field(
        default_factory=lambda: OrderedDict[Key, "Graph | None"]()
    )
    words: Words = field(init=False)
    _memory: DeviceMemory = field(init=False)
    _checks: list[Step] = field(init=False)
    _buffers: list[Step] = field(init=False)
    _launches: list[Step] = field(init=False)

    def __post_init__(self) -> None:
        memory = self.line.machine.memory
        assert isinstance(memory, DeviceMemory)
        self._memory = memory
        read = (
            (e, v.dtype)
            for call in self.plan.launches
            for v, e in self._scalars(call)
            if self._is_read(call, v)
        )
        self.words = Words(memory, read)
        self._checks = self.line.prepare(self.plan.checks)
        self._buffers = self.line.prepare(self.plan.buffers)
        self._launches = self.line.prepare(self.plan.launches)

    @brief
    def __call__(self, *args: Any) -> Any:
        """Run it. Raises ExecutionError for arguments that do not fit and checks that fail."""
        with self.lock:
            frame = self.line.frame(self.adapt(args))
            for step in self._checks:
                step(frame)
            result = self._run(frame)
            self.finish()
        return result

    def _run(self, frame: Frame) -> Any:
        if self._memory.xp.cuda.get_current_stream().is_capturing():
            return self._each(frame)
        key = self._key(frame)
        if key not in self.graphs:
            self.graphs[key] = None
            if len(self.graphs) > KEPT:
                self.graphs.popitem(last=False)
            return self._each(frame)
        self.graphs.move_to_end(key)
        graph = self.graphs[key]
        if graph is None:
            graph = self.graphs[key] = self._made(frame)
        self.words.load(frame.symbols)
        return graph.launch(frame)

    def _each(self, frame: Frame) -> Any:
        for step in (*self._buffers, *self._launches):
            step(frame)
        return read(frame, self.plan.fn.result)

    def _key(self, frame: Frame) -> Key:
        registers, address = frame.registers, self._memory.address
        inputs = [registers[r] for r in self.plan.copied]
        return (
            *(None if a.nbytes <= COPIED else address(a) for a in inputs),
            *[address(registers[r]) for r in self.plan.arrays],
            *(frame.symbols[s] for s in self.plan.fixed),
        )

    def _made(self, frame: Frame) -> Graph:
        """A graph for the key of a call."""
        plan, given = self.plan, frame.registers
        inputs = {
            r: self._memory.xp.empty(given[r].shape, given[r].dtype)
            for r in plan.copied
            if given[r].nbytes <= COPIED
        }
        inside = Frame(plan.fn, given.copy(), frame.symbols, [])
        for register, argument in plan.origin.items():
            if argument in inputs:
                inside.registers[register] = inputs[argument]
        for step in self._buffers:
            step(inside)
        made = {r: inside.registers[r] for r in plan.made}
        calls = [self._call(call, inside) for call in plan.launches]
        return Graph(plan, self._memory, inputs, made, calls)

    def _call(self, call: host.CallKernel, frame: Frame) -> Callable[[], None]:
        buffers = [frame.registers[b] for b in call.buffers]
        scalars = [
            self.words.word(e, v.dtype) if self._is_read(call, v) else evaluate(e, frame.symbols)
            for v, e in self._scalars(call)
        ]
        return partial(self.kernels[call.function], buffers, scalars)

    def _scalars(self, call: host.CallKernel) -> Iterator[tuple[expr.Var, expr.PrimExpr]]:
        return zip(self.devices[call.function].scalars, call.scalars, strict=True)

    def _is_read(self, call: host.CallKernel, scalar: expr.Var) -> bool:
        return scalar in self.plan.in_memory.get(call.function, ())
