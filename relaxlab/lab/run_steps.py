"""A run of the virtual machine as data: every instruction, its changes, and the places of
values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from relaxlab.analysis.costs import cost_of
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.ir import host, loops, types
from relaxlab.lab.host_text import listing_of, register_name
from relaxlab.lab.payload import Interner
from relaxlab.lab.run_values import value_state
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.native.kernels import NativeKernels
from relaxlab.runtime.native.results import span_of
from relaxlab.runtime.vm.vm import Frame, Kernel, VirtualMachine

MOST_STEPS = 2_000
"""Instructions that are recorded of a run."""

Span = tuple[int, int]
Call = tuple[str, "dict[str, int] | None", int]


@dataclass(slots=True)
class RunRecord:
    """A recorded run; `state` has it as JSON. `calls`: of each kernel and outside function that
    ran, its name, its cost (None if that is not known), and the bytes that the program had
    allocated by then. `error`: why the run ended."""

    state: dict[str, Any]
    calls: list[Call]
    error: str | None
    cut: bool


def record_run(
    program: host.HostProgram,
    name: str,
    args: Sequence[Any],
    native: NativeKernels | None,
    plain: Mapping[str, loops.PrimFunc],
) -> RunRecord:
    """Step through a call; arrays that the program updates are updated.

    Kernels run natively, or by the interpreter where `native` is None. `plain` has loop functions
    as they were before they were scheduled, whose arithmetic is what is asked for and no more.
    What fails on the way ends the record there. Raises ExecutionError and KeyError for a call that
    cannot begin.
    """
    kernels = {} if native is None else {k: _native(native, k) for k in program.kernels}
    machine = VirtualMachine(program, kernels)
    machine.start(name, *args)
    recorder = _Recorder(machine, plain)
    recorder.settle(())
    recorder.given = [span_of(array) for _, _, array in recorder.tensors()]
    error: str | None = None
    while machine.frames and len(recorder.steps) < MOST_STEPS:
        try:
            recorder.step()
        except Exception as failure:  # noqa: BLE001  a user's function may raise anything
            error = str(failure) or type(failure).__name__
            recorder.fail()
            break
    cut = bool(machine.frames) and error is None
    result = None if error or cut else _result(machine.result)
    return RunRecord(recorder.state(result), recorder.calls, error, cut)


def _native(native: NativeKernels, name: str) -> Kernel:
    def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
        failure = native.run(name, buffers, scalars)
        if failure is not None:
            raise ExecutionError(f"the kernel `{name}` fails: {failure}")

    return run


def _result(value: Any) -> list[Any]:
    """The leaves of a result."""
    if isinstance(value, tuple) and not all(isinstance(v, int) for v in cast(Any, value)):
        return [leaf for v in cast("tuple[Any, ...]", value) for leaf in _result(v)]
    return [value_state(value)]


@dataclass(slots=True)
class _Activation:
    """A running function: its number, per register the value and the state shown last, and the
    registers whose memory something else took."""

    number: int
    frame: Frame
    roots: Mapping[int, int]
    shown: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    objects: dict[int, Any] = field(default_factory=dict[int, Any])
    gone: set[int] = field(default_factory=set[int])
    symbols: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class _Recorder:
    """Compares the registers of the machine before and after each instruction."""

    machine: VirtualMachine
    plain: Mapping[str, loops.PrimFunc]
    values: Interner = field(default_factory=Interner)
    places: Interner = field(default_factory=Interner)
    functions: dict[str, int] = field(default_factory=dict[str, int])
    listings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    row_of: dict[int, int] = field(default_factory=dict[int, int])
    activations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    live: list[_Activation] = field(default_factory=list[_Activation])
    storages: list[Span] = field(default_factory=list[Span])
    storage_states: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[Call] = field(default_factory=list["Call"])
    given: list[Span] = field(default_factory=list[Span])
    changes: list[list[int]] = field(default_factory=list[list[int]])
    symbols: list[list[Any]] = field(default_factory=list[list[Any]])

    def step(self) -> None:
        """Run one instruction and record its changes."""
        frame = self.machine.frames[-1]
        instr = frame.next
        assert instr is not None
        activation = self.live[-1]
        step: dict[str, Any] = {"frame": activation.number, "row": self.row_of[id(instr)]}
        self.steps.append(step)
        cost = self._cost(frame, instr)
        self.machine.step()
        if isinstance(instr, host.CallKernel | host.CallPacked):
            self.calls.append((instr.function, cost, self._allocated()))
        self.settle(_written(self.machine.program, instr, frame))
        step["changes"], self.changes = self.changes, []
        step["symbols"], self.symbols = self.symbols, []

    def fail(self) -> None:
        """Record the failure of the last step: its changes stay unknown."""
        self.steps[-1] |= {"changes": [], "symbols": [], "failed": True}

    def settle(self, written: Sequence[tuple[int, Array]]) -> None:
        """Compare all registers with their previous values; `written` are arrays with new
        content."""
        for activation in self.live:  # functions that have just ended among them
            self._compare(activation)
        for register, array in written:
            self._rewrite(register, array)
        begun = self._follow_frames()
        for activation in begun:
            self._compare(activation)

    def _follow_frames(self) -> list[_Activation]:
        """Forget functions that ended, and learn of those that began: these."""
        frames = self.machine.frames
        while self.live and not any(self.live[-1].frame is f for f in frames):
            self.live.pop()
        known = len(self.live)
        for frame in frames[known:]:
            self._add_function(frame.function)
            parent = self.live[-1].number if self.live else -1
            number = len(self.activations)
            function = self.functions[frame.function.name]
            self.activations.append({"function": function, "parent": parent})
            self.live.append(_Activation(number, frame, _roots(frame.function)))
        return self.live[known:]

    def _add_function(self, fn: host.HostFunction) -> None:
        if fn.name in self.functions:
            return
        self.functions[fn.name] = len(self.listings)
        made = listing_of(fn)
        self.row_of |= made.row_of
        names = [register_name(fn, r) for r in range(len(fn.registers))]
        parameters = [r for p in fn.params for r in host.leaves(p.value)]
        self.listings.append({
            "name": fn.name, "rows": [list(r) for r in made.rows], "registers": names,
            "types": [str(r.ty) for r in fn.registers], "parameters": parameters,
        })  # fmt: skip

    def _compare(self, activation: _Activation) -> None:
        frame = activation.frame
        for register, value in enumerate(frame.registers):
            if value is None or activation.objects.get(register) is value:
                continue
            activation.objects[register] = value
            activation.gone.discard(register)
            if isinstance(frame.function.registers[register].ty, types.ObjectType) and isinstance(
                value, np.ndarray
            ):
                self._new_storage(activation, register, cast(Array, value))
                continue
            self._show(activation, register, value)
            if isinstance(value, np.ndarray):
                self._overwrite(activation, register, cast(Array, value))
        for symbol, number in frame.symbols.items():
            if activation.symbols.get(symbol.name) != number:
                activation.symbols[symbol.name] = number
                self.symbols.append([activation.number, symbol.name, int(number)])

    def _new_storage(self, activation: _Activation, register: int, array: Array) -> None:
        name = activation.frame.function.registers[register].name or f"%{register}"
        self.storages.append(span_of(array))
        self.storage_states.append({"name": name, "bytes": array.nbytes})
        state = {"kind": "storage", "text": f"{array.nbytes} bytes", "bytes": array.nbytes}
        place = {"storage": len(self.storages) - 1, "offset": 0, "bytes": array.nbytes}
        self._put(activation, register, self.values.number(state), self.places.number(place))

    def _show(self, activation: _Activation, register: int, value: Any) -> None:
        place: dict[str, Any] = {}
        if isinstance(value, np.ndarray):
            start, end = span_of(cast(Array, value))
            for number, (low, high) in reversed(list(enumerate(self.storages))):
                if low <= start and end <= high:
                    place = {"storage": number, "offset": start - low, "bytes": end - start}
                    break
        self._put(
            activation, register, self.values.number(value_state(value)), self.places.number(place)
        )

    def _put(self, activation: _Activation, register: int, value: int, place: int) -> None:
        if activation.shown.get(register) == (value, place):
            return
        activation.shown[register] = value, place
        self.changes.append([activation.number, register, value, place])

    def _rewrite(self, register: int, array: Array) -> None:
        """Record new content of a register of the innermost function, and of other tensors in its
        memory."""
        activation = next(
            (a for a in reversed(self.live) if a.objects.get(register) is array), None
        )
        if activation is None:
            return
        self._show(activation, register, array)
        self._overwrite(activation, register, array)

    def _overwrite(self, activation: _Activation, register: int, array: Array) -> None:
        """Record the change of other tensors in the memory of `array`: views of it show the new
        content, the others are overwritten."""
        low, high = span_of(array)
        mine = activation.frame.function.registers[register].name or f"%{register}"
        for other, at, held in list(self.tensors()):
            start, end = span_of(held)
            apart = end <= low or high <= start or low == high
            if (other is activation and at == register) or apart:
                continue
            roots = other.roots.get(at, at), activation.roots.get(register, register)
            if held is array or other is not activation or roots[0] == roots[1]:
                self._show(other, at, held)
            else:
                gone = self.values.number({"kind": "gone", "text": f"overwritten by {mine}"})
                self._put(other, at, gone, other.shown[at][1])
                other.gone.add(at)

    def tensors(self) -> Iterator[tuple[_Activation, int, Array]]:
        """The arrays in registers of running functions, but for those that are overwritten."""
        for activation in self.live:
            for register, value in activation.objects.items():
                ty = activation.frame.function.registers[register].ty
                array = isinstance(value, np.ndarray) and not isinstance(ty, types.ObjectType)
                if array and register not in activation.gone:
                    yield activation, register, cast(Array, value)

    def _allocated(self) -> int:
        """Bytes of storages, and of tensors that lie neither in one nor in what the caller gave."""
        held = [*self.storages, *self.given]
        apart = {
            span for span in (span_of(array) for _, _, array in self.tensors())
            if not any(low <= span[0] and span[1] <= high for low, high in held)
        }  # fmt: skip
        return sum(high - low for low, high in [*self.storages, *apart])

    def _cost(self, frame: Frame, instr: host.Instr) -> dict[str, int] | None:
        """Return the cost of the kernel call that comes next, if it follows from its loops."""
        if not isinstance(instr, host.CallKernel):
            return None
        func = self.machine.program.kernels[instr.function]
        scalars = [evaluate(s, frame.symbols) for s in instr.scalars]
        env = dict(zip(host.kernel_symbols(func), scalars, strict=True))
        for form in (self.plain.get(instr.function), func):
            cost = None if form is None else cost_of(form, len(written_buffers(form)))
            if cost is None:
                continue
            try:
                parts = (cost.flops, cost.bytes_read, cost.bytes_written)
                flops, read, written = (int(evaluate(p, env)) for p in parts)
            except CannotEvaluate:
                continue
            return {"flops": flops, "bytes": read + written}
        return None

    def state(self, result: list[Any] | None) -> dict[str, Any]:
        """The record as JSON has it."""
        return {
            "functions": self.listings, "activations": self.activations, "steps": self.steps,
            "values": self.values.items, "places": self.places.items,
            "storages": self.storage_states, "result": result,
        }  # fmt: skip


def _written(program: host.HostProgram, instr: host.Instr, frame: Frame) -> list[tuple[int, Array]]:
    """The arrays that an instruction wrote into, with their registers."""
    match instr:
        case host.CallKernel(function, buffers):
            positions = written_buffers(program.kernels[function])
            found = [buffers[at] for at in sorted(positions)]
        case host.CallPacked(_, args, dst):
            arrays = [a for a in args if isinstance(a, int)]
            found = arrays if dst is None else list(instr.overwrites)
        case _:
            found = []
    values = [(r, frame.registers[r]) for r in found]
    return [(r, v) for r, v in values if isinstance(v, np.ndarray)]


def _roots(fn: host.HostFunction) -> dict[int, int]:
    """Return, for each register that is a view of another tensor, the one it began as."""
    found: dict[int, int] = {}
    for i in host.walk_instrs(fn.instrs):
        if isinstance(i, host.View) and not isinstance(fn.registers[i.base].ty, types.ObjectType):
            found[i.dst] = found.get(i.base, i.base)
        elif isinstance(i, host.MatchShape) and i.value != i.dst:
            found[i.dst] = found.get(i.value, i.value)
    return found
