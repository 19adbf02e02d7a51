"""Loads and stores: scalar, contiguous, permuted, gathered; masked where a tail requires it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import (
    YES,
    Builder,
    Value,
    int_value,
    mangle,
    memory_type,
    vector_literal,
)
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, bytes_of, element_of, with_lanes


@dataclass(slots=True)
class Memory:
    """The memory of a buffer: a pointer and one stride per dimension, in elements.

    `align` is the pointer's known alignment in bytes; 1 when only the element's is (a caller's
    array may start anywhere, and unaligned vector loads cost nothing extra when it does not).
    `size` counts the elements of private memory, 0 otherwise: accesses inside it need no masked
    instructions, which would keep it from becoming registers. The first `used` of them are the
    buffer's, the others fill its last vector. `streamed`: whole vectors are stored
    non-temporally.
    """

    pointer: str
    dtype: str
    strides: tuple[Value, ...]
    align: int
    size: int = 0
    used: int = 0
    streamed: bool = False

    def holds(self, start: Value, lanes: int) -> bool:
        """True if `lanes` elements from `start` are known to lie in private memory."""
        return isinstance(start.const, int) and 0 <= start.const <= self.size - lanes

    @property
    def element(self) -> str:
        return memory_type(self.dtype)


def linear_index(b: Builder, memory: Memory, indices: Sequence[Value]) -> Value:
    """The element offset of `indices`, int64 from integers of any width."""

    def offset() -> Value:
        total, apart = int_value(0), int_value(0)
        for index, stride in zip(indices, memory.strides, strict=True):
            wide = cast(b, index, "int64")
            # Lanes a symbolic distance apart: their distances from the first are the same in each
            # iteration, for which LLVM multiplies the place of one lane then, not of all of them.
            if wide.offsets is not None and wide.base is not None and stride.const is None:
                lanes = replace(wide, base=int_value(0), text=None)
                apart = binary(b, expr.Add, apart, binary(b, expr.Mul, lanes, stride))
                wide = wide.base
            total = binary(b, expr.Add, total, binary(b, expr.Mul, wide, stride))
        return binary(b, expr.Add, total, apart)

    return b.once("offset", (memory, *indices), offset)


def load(b: Builder, memory: Memory, index: Value, mask: Value | None) -> Value:
    """Load the elements at a linear index; masked-off lanes are zero."""
    if index.lanes == 1:
        return _from_memory(b, memory, _load_scalar(b, memory, index), 1)
    lanes = index.lanes
    if index.offsets is None or index.base is None:
        return _from_memory(b, memory, _gather(b, memory, index, mask), lanes)
    low = min(index.offsets)
    shape = [o - low for o in index.offsets]
    start = binary(b, expr.Add, index.base, int_value(low))
    span = max(shape) + 1
    # The same element for all lanes is loaded without the mask: a statement whose lanes are all off
    # is skipped, and under a speculative mask `expressions` has chosen an address that exists.
    if span == 1:
        scalar = _from_memory(b, memory, _load_scalar(b, memory, start), 1)
        return b.widen(scalar, lanes)
    if shape == list(range(lanes)):
        return _from_memory(b, memory, _load_vector(b, memory, start, lanes, mask), lanes)
    # Up to four vectors and a shuffle are faster than a gather, which loads lane by lane.
    if mask is None and span <= 4 * lanes:
        whole, first, count = _load_block(b, memory, index, start, span)
        picks = [o - first for o in index.offsets]
        text = b.select_lanes(whole, memory.element, count, picks)
        return _from_memory(b, memory, text, lanes)
    # With a mask the elements between the lanes might not exist.
    if mask is not None and span <= 4 * lanes and len({*shape}) == lanes:
        count = 1 << (span - 1).bit_length()
        whole = _load_vector(b, memory, start, count, _mask_of_elements(b, mask, shape, count))
        text = b.select_lanes(whole, memory.element, count, shape)
        return _from_memory(b, memory, text, lanes)
    return _from_memory(b, memory, _gather(b, memory, index, mask), lanes)


def _mask_of_elements(b: Builder, mask: Value, shape: list[int], count: int) -> Value:
    """Return the mask of `count` neighbours that has the elements of lanes that are on; `shape` is
    where each lane's element is among them."""
    lanes = len(shape)
    at = {place: lane for lane, place in enumerate(shape)}
    picks = [at.get(place, lanes) for place in range(count)]
    off = Value(mask.dtype, "zeroinitializer")
    return Value(with_lanes("bool", count), b.shuffle_lanes(mask, off, picks))


def _load_block(
    b: Builder, memory: Memory, index: Value, start: Value, span: int
) -> tuple[str, int, int]:
    """Return a vector with all elements from `start` on, the offset of its first element and its
    length.

    It is the aligned block around them where that is known to be inside the array: accesses to
    other parts of it then share one load.
    """
    assert index.base is not None and index.offsets is not None
    low = min(index.offsets)
    # A power of two, as alignments are.
    size = 1 << (span - 1).bit_length()
    row = memory.strides[0].const if len(memory.strides) > 1 else None
    first = low // size * size
    fits = low + span <= first + size and index.base.multiple % size == 0
    # The aligned block may not reach beyond a row: accesses to the next row are other loads.
    if fits and isinstance(row, int) and row > 0 and row % size == 0:
        begin = binary(b, expr.Add, index.base, int_value(first))
        return _load_vector(b, memory, begin, size, None), first, size
    return _load_vector(b, memory, start, span, None), low, span


def store(b: Builder, memory: Memory, index: Value, value: Value, mask: Value | None) -> None:
    """Store a value (scalars are repeated) at a linear index."""
    lanes = max(index.lanes, value.lanes)
    if lanes == 1:
        text = _to_memory(b, memory, value)
        pointer = element_pointer(b, memory, index)
        b.raw(f"store {memory.element} {text}, ptr {pointer}, align {_align(memory, index)}")
        return
    value, index = b.widen(value, lanes), b.widen(index, lanes)
    text = _to_memory(b, memory, value)
    if index.offsets is not None and index.base is not None:
        low = min(index.offsets)
        shape = [o - low for o in index.offsets]
        start = binary(b, expr.Add, index.base, int_value(low))
        # Shuffling the values and the mask is cheaper than a scatter, which stores lane by lane.
        if sorted(shape) == list(range(lanes)):
            picks = [shape.index(i) for i in range(lanes)]
            text = b.select_lanes(text, memory.element, lanes, picks)
            if mask is not None and shape != list(range(lanes)):
                mask = _mask_of_elements(b, mask, shape, lanes)
            _store_vector(b, memory, start, text, lanes, mask)
            return
    _scatter(b, memory, index, text, mask)


def element_pointer(b: Builder, memory: Memory, index: Value) -> str:
    """The address of one element."""
    if index.const == 0:
        return memory.pointer
    text = b.materialise(index)
    return b.emit(f"getelementptr inbounds {memory.element}, ptr {memory.pointer}, i64 {text}", "p")


def _align(memory: Memory, index: Value) -> int:
    """Bytes the address is known to be aligned to."""
    size = max(1, bits_of(memory.dtype) // 8)
    if index.const == 0:
        return max(size, memory.align)
    # An address is aligned to what divides both the pointer's alignment and the offset in bytes.
    step, align = size * max(1, index.multiple), size
    while align * 2 <= memory.align and step % (align * 2) == 0:
        align *= 2
    return align


def _load_scalar(b: Builder, memory: Memory, index: Value) -> str:
    pointer = element_pointer(b, memory, index)
    return b.load(f"load {memory.element}, ptr {pointer}, align {_align(memory, index)}")


def _load_vector(b: Builder, memory: Memory, start: Value, lanes: int, mask: Value | None) -> str:
    vec = f"<{lanes} x {memory.element}>"
    pointer, align = element_pointer(b, memory, start), _align(memory, start)
    if mask is None:
        return b.load(f"load {vec}, ptr {pointer}, align {align}")
    # A masked load keeps private memory from becoming registers; a load and a select dissolve
    # (NOTES, *Private buffers must become registers*).
    if memory.holds(start, lanes):
        whole = b.load(f"load {vec}, ptr {pointer}, align {align}")
        lanes_on = f"{mask.ty} {b.materialise(mask)}"
        return b.emit(f"select {lanes_on}, {vec} {whole}, {vec} zeroinitializer")
    name = f"llvm.masked.load.{_suffix(memory, lanes)}.p0"
    args = [
        ("ptr", pointer),
        ("i32", str(align)),
        (mask.ty, b.materialise(mask)),
        (vec, "zeroinitializer"),
    ]
    return _masked_call(b, name, vec, args)


def _store_vector(
    b: Builder, memory: Memory, start: Value, text: str, lanes: int, mask: Value | None
) -> None:
    vec = f"<{lanes} x {memory.element}>"
    pointer, align = element_pointer(b, memory, start), _align(memory, start)
    if mask is None:
        # A non-temporal store that does not fill its line reads and writes it in parts.
        whole = align >= min(b.target.facts.cache_line, lanes * bytes_of(memory.dtype))
        hint = f", !nontemporal {YES}" if memory.streamed and whole else ""
        b.raw(f"store {vec} {text}, ptr {pointer}, align {align}{hint}")
        return
    if memory.holds(start, lanes):
        # Private memory: the load of lanes that are off is allowed, and no other thread stores
        # between.
        kept = b.emit(f"load {vec}, ptr {pointer}, align {align}")
        assert isinstance(start.const, int)
        if (used := memory.used - start.const) < lanes:  # of what is behind nothing is kept
            picks = ", ".join(f"i32 {i if i < used else 'poison'}" for i in range(lanes))
            kept = b.emit(f"shufflevector {vec} {kept}, {vec} poison, <{lanes} x i32> <{picks}>")
        text = b.emit(f"select {mask.ty} {b.materialise(mask)}, {vec} {text}, {vec} {kept}")
        b.raw(f"store {vec} {text}, ptr {pointer}, align {align}")
        return
    name = f"llvm.masked.store.{_suffix(memory, lanes)}.p0"
    lanes_on = b.materialise(mask)
    if memory.element in ("i8", "i16", "i32"):
        lanes_on = _not_constant(b, mask, lanes_on)
    args = [(vec, text), ("ptr", pointer), ("i32", str(align)), (mask.ty, lanes_on)]
    _masked_call(b, name, "void", args)


def _not_constant(b: Builder, mask: Value, text: str) -> str:
    """The mask, which LLVM cannot fold to a constant.

    LLVM 22 makes a scalar store of a masked one with a constant mask of one lane, of the width that
    the value had before it was truncated: it writes beyond the element. An empty piece of assembly
    hides that all lanes of the second mask are on.
    """
    opaque = b.emit('call i32 asm "", "=r,0"(i32 1)')
    bit = b.emit(f"trunc i32 {opaque} to i1")
    one = b.emit(f"insertelement {mask.ty} poison, i1 {bit}, i32 0")
    places = f"<{mask.lanes} x i32> zeroinitializer"
    all_on = b.emit(f"shufflevector {mask.ty} {one}, {mask.ty} poison, {places}")
    return b.emit(f"and {mask.ty} {text}, {all_on}")


def _pointers(b: Builder, memory: Memory, index: Value) -> str:
    text = b.materialise(index)
    return b.emit(
        f"getelementptr inbounds {memory.element}, ptr {memory.pointer}, {index.ty} {text}", "p"
    )


def _all_true(b: Builder, lanes: int) -> Value:
    return Value(with_lanes("bool", lanes), vector_literal("i1", ["true"] * lanes))


def _gather(b: Builder, memory: Memory, index: Value, mask: Value | None) -> str:
    lanes = index.lanes
    vec = f"<{lanes} x {memory.element}>"
    mask = mask or _all_true(b, lanes)
    pointers = _pointers(b, memory, index)
    name = f"llvm.masked.gather.{_suffix(memory, lanes)}.v{lanes}p0"
    size = max(1, bits_of(memory.dtype) // 8)
    args = [
        (f"<{lanes} x ptr>", pointers),
        ("i32", str(size)),
        (mask.ty, b.materialise(mask)),
        (vec, "zeroinitializer"),
    ]
    return _masked_call(b, name, vec, args)


def _scatter(b: Builder, memory: Memory, index: Value, text: str, mask: Value | None) -> None:
    lanes = index.lanes
    mask = mask or _all_true(b, lanes)
    name = f"llvm.masked.scatter.{_suffix(memory, lanes)}.v{lanes}p0"
    size = max(1, bits_of(memory.dtype) // 8)
    args = [
        (f"<{lanes} x {memory.element}>", text),
        (f"<{lanes} x ptr>", _pointers(b, memory, index)),
        ("i32", str(size)),
        (mask.ty, b.materialise(mask)),
    ]
    _masked_call(b, name, "void", args)


def _masked_call(b: Builder, name: str, ret: str, args: list[tuple[str, str]]) -> str:
    """A masked intrinsic: its alignment argument is an immediate."""
    text = b.call(name, ret, args)
    types = ", ".join(ty + (" immarg" if ty == "i32" else "") for ty, _ in args)
    b.declarations[name] = f"declare {ret} @{name}({types})"
    return text


def _suffix(memory: Memory, lanes: int) -> str:
    dtype = "uint8" if memory.dtype == "bool" else memory.dtype
    return mangle(with_lanes(dtype, lanes))


def _from_memory(b: Builder, memory: Memory, text: str, lanes: int) -> Value:
    dtype = with_lanes(memory.dtype, lanes)
    if memory.dtype == "bool":
        byte = Value(with_lanes("uint8", lanes), text)
        return cast(b, byte, dtype)
    return Value(dtype, text)


def _to_memory(b: Builder, memory: Memory, value: Value) -> str:
    # An error of the emitter, not of the program: types are checked when a function is built.
    if element_of(value.dtype) != memory.dtype:
        raise TypeError(f"storing {value.dtype} into a buffer of {memory.dtype}")
    if memory.dtype == "bool":
        value = cast(b, value, "uint8")
    return b.materialise(value)
