"""The launches of a host function for a GPU as one native function.

It walks the tensors' places and the calls of kernels of a function without branches, computes sizes
and arguments, and launches through the driver's `cuLaunchKernel` (CUDA Driver API, *Execution
Control*). Tensor maps are encoded where a launch needs them. All that it does not compute comes in
a table of 64-bit words, pointers of the driver's functions among them: it links to no library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from relaxlab.codegen.gpu.dialect import (
    MAP_BYTES,
    MAP_DTYPES,
    PROMOTE_256B,
    SWIZZLE_128B,
    TensorMap,
)
from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.codegen.llvm.arithmetic import cast
from relaxlab.codegen.llvm.builder import Builder, Value, llvm_type
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.jit import module_text
from relaxlab.ir import expr, host
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Buffer
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target

SYMBOL = "relaxlab_launch"
LAUNCH_KERNEL, ENCODE_MAP, STREAM, FAILED = range(4)
"""The first words: the driver's functions, its stream, and the number of the launch that failed."""


@dataclass(frozen=True, slots=True)
class HostLaunches:
    """The function `SYMBOL(ptr words) -> i32`, 0 or the driver's error: its LLVM module, and what
    the words behind the first four are. `launches` are the kernels in order: each has a word for
    its handle, and those that can fail one for the place where they say so; then come the values of
    `symbols` and the addresses of `registers`."""

    text: str
    launches: tuple[tuple[DeviceKernel, KernelSource], ...]
    symbols: tuple[expr.Var, ...]
    registers: tuple[int, ...]

    def handle(self, number: int) -> int:
        """The word of a launch's handle; that of its failure follows it."""
        return FAILED + 1 + 2 * number

    @property
    def first_symbol(self) -> int:
        return self.handle(len(self.launches))

    @property
    def first_register(self) -> int:
        return self.first_symbol + len(self.symbols)

    @property
    def size(self) -> int:
        """The number of words."""
        return self.first_register + len(self.registers)


def emit_launches(
    instrs: Sequence[host.Instr],
    kernels: Mapping[str, tuple[DeviceKernel, tuple[KernelSource, ...]]],
    target: Target,
) -> HostLaunches:
    """The launches of the instructions, calls of kernels and what gives tensors their places, in
    order; each kernel with the code of its launches. `target`: the machine of the host."""
    used = tuple(dict.fromkeys(_symbols(instrs)))
    made = {i.dst for i in instrs if isinstance(i, host.View)}
    given = tuple(dict.fromkeys(r for i in instrs for r in _read(i) if r not in made))
    launches = tuple(
        (device, source)
        for i in instrs if isinstance(i, host.CallKernel)
        for device, sources in [kernels[i.function]] for source in sources
    )  # fmt: skip
    empty = HostLaunches("", launches, used, given)
    emitter = _Emitter(empty)
    for i in instrs:
        emitter.instr(i, kernels)
    return HostLaunches(emitter.module(target), launches, used, given)


def _read(i: host.Instr) -> Iterable[int]:
    match i:
        case host.View(_, base):
            return (base,)
        case host.CallKernel(_, buffers):
            return buffers
        case _:
            raise TypeError(f"{type(i).__name__} launches nothing")


def _symbols(instrs: Iterable[host.Instr]) -> Iterable[expr.Var]:
    for i in instrs:
        match i:
            case host.View(_, _, offset):
                yield from symbols_in(offset)
            case host.CallKernel(_, _, scalars):
                yield from symbols_in(scalars)
            case _:
                pass


@dataclass(slots=True)
class _Emitter:
    """`addresses` are those of registers, as integers; `number` is that of the next launch."""

    plan: HostLaunches
    declarations: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    addresses: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    number: int = 0
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope(Builder(self.declarations), SYMBOL, self.fail_when)
        plan = self.plan
        for at, v in enumerate(plan.symbols, plan.first_symbol):
            word = Value("int64", self.word(at))
            self.scope.values[v] = cast(self.b, word, v.dtype)
        for at, register in enumerate(plan.registers, plan.first_register):
            self.addresses[register] = self.word(at)

    @property
    def b(self) -> Builder:
        return self.scope.builder

    def module(self, target: Target) -> str:
        """The LLVM module."""
        self.b.raw("ret i32 0")
        body = "\n".join(["entry:", *self.b.allocas, *self.b.lines])
        function = f"define i32 @{SYMBOL}(ptr %words) #0 {{\n{body}\n}}\n"
        return module_text([function], self.declarations, target)

    # -- words and memory ----------------------------------------------------------------------

    def word(self, number: int) -> str:
        pointer = self.b.emit(f"getelementptr inbounds i64, ptr %words, i64 {number}", "p")
        return self.b.emit(f"load i64, ptr {pointer}, align 8")

    def pointer(self, word: str) -> str:
        return self.b.emit(f"inttoptr i64 {word} to ptr", "p")

    def store(self, base: str, number: int, ty: str, text: str) -> str:
        """Store element `number` of an array; returns its place."""
        place = self.b.emit(f"getelementptr inbounds {ty}, ptr {base}, i64 {number}", "p")
        self.b.raw(f"store {ty} {text}, ptr {place}")
        return place

    def array(self, ty: str, items: Sequence[str]) -> str:
        """An array of values on the stack."""
        base = self.b.alloca(len(items), ty, 16)
        for n, item in enumerate(items):
            self.store(base, n, ty, item)
        return base

    def fail_when(self, failed: str, message: str, _numbers: object = None) -> int:
        """Divisors of sizes are constants, or lengths that were checked."""
        raise TypeError(f"sizes of launches have values: {message}")

    def integer(self, e: expr.PrimExpr, dtype: str = "int64") -> str:
        return self.b.materialise(cast(self.b, emit_expr(self.scope, e), dtype))

    # -- instructions --------------------------------------------------------------------------

    def instr(
        self,
        i: host.Instr,
        kernels: Mapping[str, tuple[DeviceKernel, tuple[KernelSource, ...]]],
    ) -> None:
        match i:
            case host.View(dst, base, offset):
                by = self.integer(offset)
                self.addresses[dst] = self.b.emit(f"add i64 {self.addresses[base]}, {by}")
            case host.CallKernel(function, buffers, scalars):
                device, sources = kernels[function]
                for v, e in zip(device.scalars, scalars, strict=True):
                    self.scope.values[v] = cast(self.b, emit_expr(self.scope, e), v.dtype)
                found = (self.addresses[r] for r in buffers)
                places = dict(zip(device.buffers, found, strict=True))
                for launch, source in zip(device.launches, sources, strict=True):
                    self.launch(launch, source, places)
                    self.number += 1
            case _:
                raise TypeError(f"{type(i).__name__} launches nothing")

    def launch(self, launch: Launch, source: KernelSource, places: Mapping[Buffer, str]) -> None:
        """Launch a kernel, unless its condition fails or its grid has no blocks."""
        extents = [*launch.extents("blockIdx"), *launch.extents("threadIdx")]
        grid = [e for e in extents[:3] if not isinstance(e, expr.IntImm)]
        condition = expr.all_of([launch.condition, *(expr.GT(e, expr.const(0)) for e in grid)])
        happens = emit_expr(self.scope, condition)
        if happens.const is not None:
            if happens.const:
                self.call(launch, source, places, extents)
            return
        with self.b.when(self.b.materialise(happens)):
            self.call(launch, source, places, extents)

    def call(
        self, launch: Launch, source: KernelSource, places: Mapping[Buffer, str],
        extents: Sequence[expr.PrimExpr],
    ) -> None:  # fmt: skip
        handle = self.plan.handle(self.number)
        values = [("i64", places[b]) for b in launch.buffers]
        for v in launch.scalars:
            one = self.scope.values[v]
            values.append((llvm_type(v.dtype), self.b.materialise(one)))
        if source.failures:
            values.append(("i64", self.word(handle + 1)))
        slots = self.b.alloca(max(1, len(values)), "i64", 16)
        places_of = [
            self.put(slots, n, ty, text) for n, (ty, text) in enumerate(values)
        ]
        places_of += [self.tensor_map(m, places[m.buffer]) for m in source.maps]
        args = [("ptr", self.pointer(self.word(handle)))]
        args += [("i32", self.integer(e, "int32")) for e in extents]
        args += [("i32", str(source.shared)), ("ptr", self.pointer(self.word(STREAM)))]
        args += [("ptr", self.array("ptr", places_of) if places_of else "null"), ("ptr", "null")]
        self.driver(LAUNCH_KERNEL, args)

    def put(self, slots: str, number: int, ty: str, text: str) -> str:
        """Store an argument at the begin of its slot; returns the place."""
        place = self.b.emit(f"getelementptr inbounds i64, ptr {slots}, i64 {number}", "p")
        self.b.raw(f"store {ty} {text}, ptr {place}")
        return place

    def driver(self, function: int, args: Sequence[tuple[str, str]]) -> None:
        """Call a function of the driver; return its error, if it has one."""
        function_pointer = self.pointer(self.word(function))
        actual = ", ".join(f"{ty} {text}" for ty, text in args)
        code = self.b.emit(f"call i32 {function_pointer}({actual})")
        good, bad = self.b.label("ok"), self.b.label("failed")
        self.b.branch(self.b.emit(f"icmp eq i32 {code}, 0"), good, bad)
        self.b.place(bad)
        self.store("%words", FAILED, "i64", str(self.number))
        self.b.raw(f"ret i32 {code}")
        self.b.place(good)

    def tensor_map(self, wanted: TensorMap, address: str) -> str:
        """The place of the descriptor of an array: zeros where it has no elements, of which nobody
        asks for a part."""
        place, shape = self.b.alloca(MAP_BYTES // 8, "i64"), wanted.buffer.shape
        filled = emit_expr(self.scope, expr.all_of([expr.GT(d, expr.const(0)) for d in shape]))
        bit = self.b.materialise(filled)
        if not filled.const:
            with self.b.when(self.b.emit(f"xor i1 {bit}, true")):
                for n in range(MAP_BYTES // 8):
                    self.store(place, n, "i64", "0")
        with self.b.when(bit):
            self.encode(wanted, address, place)
        return place

    def encode(self, wanted: TensorMap, address: str, place: str) -> None:
        """Let the driver describe an array, whose dimensions it counts from the last one."""
        shape, size = wanted.buffer.shape, bytes_of(wanted.buffer.dtype)
        pitches = [prod(shape[n:], start=expr.const(size)) for n in range(1, len(shape))]
        sizes = self.array("i64", [self.integer(d) for d in reversed(shape)])
        apart = self.array("i64", [self.integer(p) for p in reversed(pitches)] or ["0"])
        box = self.array("i32", [str(n) for n in reversed(wanted.box)])
        steps = self.array("i32", ["1"] * len(shape))
        self.driver(ENCODE_MAP, [
            ("ptr", place), ("i32", str(MAP_DTYPES[wanted.buffer.dtype])),
            ("i32", str(len(shape))), ("ptr", self.pointer(address)), ("ptr", sizes),
            ("ptr", apart), ("ptr", box), ("ptr", steps), ("i32", "0"),
            ("i32", str(SWIZZLE_128B)), ("i32", str(PROMOTE_256B)), ("i32", "0"),
        ])  # fmt: skip
