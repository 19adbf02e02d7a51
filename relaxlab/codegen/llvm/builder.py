"""A text builder for LLVM IR and the values it hands around.

An emitted value is a constant, an SSA name, or an *index vector*: a scalar base plus one known
integer offset per lane. Index vectors stay symbolic, so whether an access is contiguous, strided
or a permutation is decided where it is emitted, not guessed by a later pass.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir.dtypes import (
    SMALL_FLOATS,
    bits_of,
    element_of,
    is_float,
    is_uint,
    lanes_of,
    with_lanes,
)
from relaxlab.ir.target import GENERIC, Target

YES = "!1000000"
"""The metadata that `jit.module_text` defines for hints of stores."""
VECTOR_LOOP, SCHEDULED_LOOP = "!1000001", "!1000002"
"""The metadata of loops that LLVM may make vectors of, and that of all others."""

_LLVM_SCALARS = {
    "bool": "i1", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
    "handle": "ptr", "void": "void",
}  # fmt: skip


@cache
def llvm_type(dtype: str) -> str:
    """LLVM's spelling of a dtype in registers (bfloat16 travels as its 16 bits).

    Raises CodegenError for floats of fewer bits than 16."""
    base, lanes = element_of(dtype), lanes_of(dtype)
    if base in SMALL_FLOATS:
        raise CodegenError(f"no machine code computes with {base}: convert it to float16 before")
    scalar = _LLVM_SCALARS.get(base) or f"i{bits_of(base)}"
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def memory_type(dtype: str) -> str:
    """LLVM's spelling of a dtype in memory: a bool is a byte there."""
    return llvm_type(dtype.replace("bool", "uint8"))


MOST_OPTIMISED = 8000
"""Lines of a host function that LLVM optimises: in longer ones it takes quadratic time to allocate
registers (4 s of the 5 for the 10,000 lines that repack a model's weights), and a function that
calls so many kernels spends its time in the kernels."""


def unoptimised_if_long(function: str) -> str:
    """The text of a host function, with attributes that keep LLVM from optimising a long one."""
    # Lines stand for instructions: the text has one on each.
    is_long = function.count("\n") > MOST_OPTIMISED
    return function.replace(") #0 {", ") #1 {", 1) if is_long else function


def is_unoptimised(function: str) -> bool:
    """True for the text of a function that `unoptimised_if_long` found long."""
    return ") #1 {" in function.partition("\n")[0]


@dataclass(slots=True)
class Value:
    """One emitted value.

    text: its SSA name or literal, None for an index vector not yet materialised.
    const: the number, for scalar constants.  splat: the number in all lanes of a vector constant.
    base, offsets: set for index vectors.
    multiple: a number that is known to divide it.  nonneg: known not to be negative.
    index: made of sizes, loop variables and small constants alone, so that arithmetic on it does
    not overflow; data may, and so may what hashes a loop variable.
    largest: of an index, an upper bound of its magnitude as a factor of sizes and loop variables.
    """

    dtype: str
    text: str | None
    const: int | float | None = None
    splat: int | float | None = None
    base: Value | None = None
    offsets: tuple[int, ...] | None = None
    multiple: int = 1
    nonneg: bool = False
    index: bool = False
    largest: int = 1

    @property
    def lanes(self) -> int:
        return lanes_of(self.dtype)

    @property
    def ty(self) -> str:
        return llvm_type(self.dtype)


LARGEST_SIZE = 1 << 31
"""Largest constant taken for a size, as are sums and products of them; a product with a larger one
may overflow."""


def int_value(value: int, dtype: str = "int64") -> Value:
    """An integer constant."""
    if dtype == "bool":
        text = "true" if value else "false"
        return Value(dtype, text, int(bool(value)), nonneg=True, index=True)
    bits = bits_of(dtype)
    # LLVM's integers have no sign: constants of both kinds are written as the signed number of the
    # same bits.
    signed = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    stored = value % (1 << bits) if is_uint(dtype) else signed
    index = abs(stored) <= LARGEST_SIZE
    return Value(
        dtype, str(signed), stored, multiple=abs(stored), nonneg=stored >= 0, index=index,
        largest=max(abs(stored), 1),
    )  # fmt: skip


def float_value(value: float, dtype: str) -> Value:
    """A floating-point constant in LLVM's hexadecimal notation."""
    # LLVM writes a float32 as a float64 and refuses one that it would have to round.
    if dtype in ("bfloat16", "float32") and math.isfinite(value):
        value = _single(value)
    if dtype == "bfloat16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = bits >> 16
        if not math.isnan(value):
            # To nearest, ties to even; NaN is cut instead, as the addition could carry out of its
            # mantissa.
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        stored = struct.unpack("<f", struct.pack("<I", (rounded & 0xFFFF) << 16))[0]
        return Value(dtype, str(rounded & 0xFFFF), stored)
    if dtype == "float16":
        raw = struct.pack(">e", _clamp_half(value))
        return Value(dtype, "0xH" + raw.hex().upper(), struct.unpack(">e", raw)[0])
    return Value(dtype, "0x" + struct.pack(">d", value).hex().upper(), value)


def _single(value: float) -> float:
    """Rounded to float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _clamp_half(value: float) -> float:
    # From 65520 on values round to infinity; `struct` raises instead.
    return math.copysign(math.inf, value) if math.isfinite(value) and abs(value) > 65519 else value


_NOT_ALONE = ("load ", "call ", "alloca ", "phi ", "freeze ", "atomicrmw ", "cmpxchg ")
"""Instructions that their operands alone do not determine: they read memory, or an undefined value
may become another one each time."""
_WRITING = ("call ", "atomicrmw ", "cmpxchg ")
"""Instructions with a result that may write to memory; calls of LLVM's own functions that do have
none."""
_ALONE = tuple(f"call  i64 @llvm.{name}.i64(" for name in ("smin", "smax"))
"""Calls that their operands do determine, frequent in masks."""


@dataclass(slots=True)
class Builder:
    """Collects the instructions of one LLVM function and the declarations it needs.

    `target` says whether a product and a sum may be rounded once, and which cache to fetch into.
    With `debug`, instructions carry the metadata `!line` of the statement they are made for
    (`relaxlab.codegen.llvm.listing`). `reassociates`: sums of floats may be made in another order.

    `known`, `computed` and `loaded` are of the current basic block: names by the text of
    instructions, values that `once` made, with what their keys identify, and names by the text of
    loads since memory was last written to.
    """

    declarations: dict[str, str]
    target: Target = GENERIC
    lines: list[str] = field(default_factory=lambda: list[str]())
    allocas: list[str] = field(default_factory=lambda: list[str]())
    counter: int = 0
    block: str = "entry"
    known: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    computed: dict[object, tuple[Value, object]] = field(default_factory=lambda: {})
    loaded: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    debug: bool = False
    line: int = 0
    reassociates: bool = False

    def _placed(self, text: str) -> str:
        """Return an instruction with the metadata of the current line, in a listing."""
        return f"  {text}, !dbg !{self.line}" if self.debug and self.line else f"  {text}"

    def name(self, hint: str = "v") -> str:
        self.counter += 1
        return f"%{hint}{self.counter}"

    def emit(self, text: str, hint: str = "v") -> str:
        """Emit `name = text`; returns the name. What operands alone determine is computed once in a
        basic block: the copies of an unrolled statement share most of their indices and masks."""
        found = self.known.get(text)
        if found is not None:
            return found
        name = self.name(hint)
        self.lines.append(self._placed(f"{name} = {text}"))
        if not text.startswith(_NOT_ALONE) or text.startswith(_ALONE):
            self.known[text] = name
        elif text.startswith(_WRITING) and "@llvm." not in text:
            self.loaded.clear()
        return name

    def load(self, text: str) -> str:
        """Emit the load `text` of what no other thread writes; returns the name. It is done once in
        a basic block as long as nothing is written to memory."""
        found = self.loaded.get(text)
        if found is None:
            found = self.loaded[text] = self.emit(text)
        return found

    def once(self, what: Hashable, of: tuple[object, ...], make: Callable[[], Value]) -> Value:
        """The value that `make` emits of the objects `of`; emitted once in a basic block."""
        key = (what, *map(id, of))
        found = self.computed.get(key)
        if found is None:
            value = make()
            self.computed[key] = found = value, of  # kept, so that no other object has its id
        return found[0]

    def raw(self, text: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(self._placed(text))
        self.loaded.clear()

    def label(self, hint: str) -> str:
        """A fresh label, not yet placed."""
        self.counter += 1
        return f"{hint}{self.counter}"

    def place(self, label: str) -> None:
        """Begin the block `label`."""
        self.lines.append(f"{label}:")
        self.block = label
        self.known.clear()
        self.computed.clear()
        self.loaded.clear()

    @contextmanager
    def detour(self, straight: str) -> Generator[None, None, None]:
        """Emit the body, which writes nothing to memory, in a block that is passed over if the i1
        is set. What was computed before is still known afterwards."""
        aside, done = self.label("rare"), self.label("done")
        kept = [dict(names) for names in (self.known, self.computed, self.loaded)]
        self.branch(straight, done, aside)
        self.place(aside)
        yield
        self.jump(done)
        self.place(done)
        for names, before in zip((self.known, self.computed, self.loaded), kept, strict=True):
            names.update(before)  # type: ignore[reportArgumentType]

    def jump(self, label: str) -> None:
        """Branch to `label`."""
        self.raw(f"br label %{label}")

    def jump_back(self, label: str, kind: str) -> None:
        """Branch to the beginning of a loop of a kind, `VECTOR_LOOP` or `SCHEDULED_LOOP`."""
        self.raw(f"br label %{label}, !llvm.loop {kind}")

    def branch(self, cond: str, yes: str, no: str) -> None:
        """Branch on an i1."""
        self.raw(f"br i1 {cond}, label %{yes}, label %{no}")

    def alloca(self, count: int, ty: str, align: int = 64) -> str:
        """Stack memory in the entry block (so that it can become registers)."""
        # In the entry block LLVM's `mem2reg` finds it; inside of a loop each iteration would grow
        # the stack.
        name = self.name("buf")
        self.allocas.append(f"  {name} = alloca [{count} x {ty}], align {align}")
        return name

    def call(
        self,
        symbol: str,
        ret: str,
        args: Sequence[tuple[str, str]],
        attrs: str = "",
        math: str = "",
    ) -> str:
        """Call a function, declaring it; returns the result's name ("" for void). `math`: flags of
        floating-point arithmetic."""
        types = ", ".join([ty for ty, _ in args])
        self.declarations[symbol] = f"declare {ret} @{symbol}({types}) {attrs}".rstrip()
        actual = ", ".join([f"{ty} {text}" for ty, text in args])
        if ret == "void":
            self.raw(f"call void @{symbol}({actual})")
            return ""
        return self.emit(f"call {math} {ret} @{symbol}({actual})")

    @contextmanager
    def when(self, cond: str) -> Generator[None, None, None]:
        """Emit the body under a branch on an i1."""
        then, done = self.label("then"), self.label("endif")
        self.branch(cond, then, done)
        self.place(then)
        yield
        self.jump(done)
        self.place(done)

    # -- vectors -------------------------------------------------------------------------------

    def materialise(self, v: Value) -> str:
        """The SSA text of a value, building an index vector's lanes if need be."""
        if v.text is not None:
            return v.text
        assert v.base is not None and v.offsets is not None
        elem = llvm_type(element_of(v.dtype))
        offsets = vector_literal(elem, [str(o) for o in v.offsets])
        if v.base.const == 0:
            v.text = offsets
        else:
            splat = self.splat_text(v.base.text or "", elem, len(v.offsets))
            # Without wrapping, LLVM can fold the addition into addresses and widen the lanes.
            wrap = " nsw" if v.index else ""
            v.text = self.emit(f"add{wrap} {v.ty} {splat}, {offsets}")
        return v.text

    def splat_text(self, scalar: str, elem: str, lanes: int) -> str:
        """A vector with `scalar` in every lane."""
        # Constants need no instructions.
        if not scalar.startswith("%"):
            return vector_literal(elem, [scalar] * lanes)
        vec = f"<{lanes} x {elem}>"
        one = self.emit(f"insertelement {vec} poison, {elem} {scalar}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.emit(f"shufflevector {vec} {one}, {vec} poison, {zeros}")

    def widen(self, v: Value, lanes: int) -> Value:
        """`v` in every lane of a vector; vectors of that many lanes pass through."""
        if v.lanes == lanes:
            return v
        if v.lanes != 1:
            raise ValueError(f"cannot make {lanes} lanes of a {v.dtype}")
        # An index stays symbolic when it is repeated, so that an access by it is still seen as one
        # element.
        if v.dtype == "int64":
            base, offset = (int_value(0), v.const) if isinstance(v.const, int) else (v, 0)
            dtype, offsets = with_lanes("int64", lanes), (offset,) * lanes
            return Value(
                dtype, None, base=base, offsets=offsets, nonneg=v.nonneg, index=v.index,
                largest=v.largest,
            )  # fmt: skip
        text = self.splat_text(v.text or "", llvm_type(v.dtype), lanes)
        return Value(with_lanes(v.dtype, lanes), text, splat=v.const)

    def shuffle_lanes(self, x: Value, y: Value, picks: Sequence[int]) -> str:
        """A vector of the picked lanes of two: numbers from `x.lanes` on are lanes of `y`."""
        count, lanes = len(picks), x.lanes

        def places(numbers: Sequence[int]) -> str:
            return f"<{count} x i32> {vector_literal('i32', [str(n) for n in numbers])}"

        if element_of(x.dtype) != "bool":
            vectors = f"{x.ty} {self.materialise(x)}, {y.ty} {self.materialise(y)}"
            return self.emit(f"shufflevector {vectors}, {places(picks)}")
        # LLVM 22 aborts on one in a hundred shuffles of bits, such as pairs spread eight apart.
        # Those of bytes, which it makes of them for x86 anyway, are safe, and with a constant as
        # the second vector it leaves them bytes.
        vec, moved = f"<{lanes} x i8>", list[str]()
        for value, start in ((x, 0), (y, lanes)):
            text = self.emit(f"sext {value.ty} {self.materialise(value)} to {vec}")
            own = places([min(p - start, lanes) if p >= start else lanes for p in picks])
            moved.append(self.emit(f"shufflevector {vec} {text}, {vec} zeroinitializer, {own}"))
        both = self.emit(f"or <{count} x i8> {moved[0]}, {moved[1]}")
        return self.emit(f"icmp slt <{count} x i8> {both}, zeroinitializer")

    def select_lanes(self, text: str, elem: str, lanes: int, picks: Sequence[int]) -> str:
        """A shuffle of one vector."""
        if list(picks) == list(range(lanes)):
            return text
        vec = f"<{lanes} x {elem}>"
        stride = picks[1] - picks[0] if len(picks) > 1 else 0
        regular = list(picks) == [picks[0] + stride * i for i in range(len(picks))]
        # Decoding 4 bits, shuffles that were widened afterwards kept one port busy (NOTES,
        # *Decoding 4 bits into 32-bit lanes*).
        if elem in ("i8", "i16") and regular and stride in (2, 4) and lanes == stride * len(picks):
            return self._narrowed(text, vec, elem, stride, picks)
        mask = vector_literal("i32", [str(p) for p in picks])
        return self.emit(f"shufflevector {vec} {text}, {vec} poison, <{len(picks)} x i32> {mask}")

    def _narrowed(self, text: str, vec: str, elem: str, stride: int, picks: Sequence[int]) -> str:
        """Return every second or fourth lane as the low end of wider lanes, shifted: operations
        that follow can often work on the wide lanes, without moving any."""
        bits = int(elem[1:])
        wide, narrow = f"<{len(picks)} x i{bits * stride}>", f"<{len(picks)} x {elem}>"
        whole = self.emit(f"bitcast {vec} {text} to {wide}")
        if picks[0]:
            count = vector_literal(f"i{bits * stride}", [str(bits * picks[0])] * len(picks))
            whole = self.emit(f"lshr {wide} {whole}, {count}")
        return self.emit(f"trunc {wide} {whole} to {narrow}")


def vector_literal(elem: str, items: Sequence[str]) -> str:
    """A constant vector."""
    return "<" + ", ".join([f"{elem} {i}" for i in items]) + ">"


def mangle(dtype: str) -> str:
    """The suffix LLVM's overloaded intrinsics use: f32, v16f32, i64."""
    base, lanes = element_of(dtype), lanes_of(dtype)
    if base == "bool":
        scalar = "i1"
    elif is_float(base) and base != "bfloat16":
        scalar = f"f{bits_of(base)}"
    else:
        scalar = f"i{bits_of(base)}"
    return scalar if lanes == 1 else f"v{lanes}{scalar}"
