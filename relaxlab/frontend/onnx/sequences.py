"""Rows of sequences of tensors, whose number and places are known while a model is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relaxlab.frontend.emitter import Emitter, shape_of
from relaxlab.frontend.known import Known, tensor
from relaxlab.frontend.onnx.rows import numbers, rank, row, static
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr


@dataclass(frozen=True, slots=True)
class Tensors:
    """A sequence; an optional value is one of at most one tensor."""

    values: tuple[Any, ...] = ()


def _values(sequence: Any) -> tuple[Any, ...]:
    if not isinstance(sequence, Tensors):
        raise Refused("a sequence whose tensors are not known")
    return sequence.values


def _place(position: Any, count: int) -> int:
    """The place of an element, counted from the end where it is negative."""
    (at,) = numbers(position, "the place in a sequence")
    if not -count <= at < count:
        raise Refused(f"place {at} of a sequence of {count} tensors")
    return at % count


@row("SequenceEmpty")
def empty(b: Emitter, **_: Any) -> Tensors:
    return Tensors()


@row("SequenceConstruct")
@static(-1)
def construct(b: Emitter, *values: Any, **_: Any) -> Tensors:
    return Tensors(values)


@row("SequenceAt")
@static(1)
def at(b: Emitter, sequence: Any, position: Any, **_: Any) -> Any:
    values = _values(sequence)
    return values[_place(position, len(values))]


@row("SequenceInsert")
@static(1, 2)
def insert(b: Emitter, sequence: Any, value: Any, position: Any = None, **_: Any) -> Tensors:
    values = list(_values(sequence))
    here = len(values) if position is None else numbers(position, "the place in a sequence")[0]
    values.insert(here, value)
    return Tensors(tuple(values))


@row("SequenceErase")
@static(1)
def erase(b: Emitter, sequence: Any, position: Any = None, **_: Any) -> Tensors:
    values = list(_values(sequence))
    last = Known.of(-1, "int64")
    del values[_place(last if position is None else position, len(values))]
    return Tensors(tuple(values))


@row("SequenceLength")
def length(b: Emitter, sequence: Any, **_: Any) -> Known:
    return Known.of(len(_values(sequence)), "int64")


@row("ConcatFromSequence")
def concat(b: Emitter, sequence: Any, *, axis: int, new_axis: int = 0, **_: Any) -> Any:
    values = [tensor(b, v) for v in _values(sequence)]
    return b.stack(values, axis=axis) if new_axis else b.concat(values, axis=axis)


@row("SplitToSequence")
@static(1)
def split(
    b: Emitter, x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1, **_: Any
) -> Tensors:
    """Parts of some sizes, or of one size; single elements where none is given."""
    axis %= rank(x)
    extent = shape_of(x)[axis]
    if not isinstance(extent, expr.IntImm):
        raise Refused(f"a sequence of {extent} parts")
    parts = [1] if sizes is None else numbers(sizes, "the sizes of parts")
    if sizes is None or not sizes.values.shape:
        whole, rest = divmod(extent.value, parts[0])
        parts = [parts[0]] * whole + [rest] * bool(rest)
    found: list[Any] = []
    start = 0
    for size in parts:
        part = b.strided_slice(x, [axis], [start], [start + size])
        bare = sizes is None and not keepdims
        found.append(b.squeeze(part, axis=[axis]) if bare else part)
        start += size
    return Tensors(tuple(found))


@row("Optional")
@static(0)
def optional(b: Emitter, value: Any = None, **_: Any) -> Tensors:
    return Tensors(() if value is None else (value,))


@row("OptionalHasElement")
@static(0)
def has_element(b: Emitter, value: Any = None, **_: Any) -> Known:
    held = bool(value.values) if isinstance(value, Tensors) else value is not None
    return Known.of(held, "bool")


@row("OptionalGetElement")
@static(0)
def get_element(b: Emitter, value: Any, **_: Any) -> Any:
    return value.values[0] if isinstance(value, Tensors) and value.values else value
