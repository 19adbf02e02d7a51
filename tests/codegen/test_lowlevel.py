"""Low-level functions: what they compute, as machine code, and what is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Byte,
    Double,
    Flag,
    Int,
    Record,
    Single,
    Table,
    Word,
    address_of,
    external,
    invoke,
    layout_of,
    low_level,
    stack,
)  # fmt: skip
from relaxlab.codegen.llvm.lowlevel_text import NUMBERS, low_level_text
from relaxlab.ir.target import Target

FACTOR = 3


class Point(Record):
    number: Int
    near: Flag
    weight: Double
    next: Point
    small: Byte


def compiled(*functions, given=None):
    """The last function, to be called through ctypes with words and addresses."""
    declarations, target = {}, Target.host()
    texts = [low_level_text(f, declarations, given=given) for f in functions]
    code, _ = jit.compile_object(jit.module_text(texts, declarations, target), target)
    externs = jit.external_functions(texts, declarations)
    loaded = jit.LoadedObject([code], target, externs)
    address = loaded.address(f"relaxlab_{functions[-1].__name__}")
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 6)(address)
    function.loaded = loaded
    return lambda *args: function(*args, *(0,) * (6 - len(args)))


@low_level
def arithmetic(a: Word, b: Word) -> Word:
    return (a + b * FACTOR - 2) // 5 % 7 + (a << 2 & 12 | 1)


def test_arithmetic():
    run = compiled(arithmetic)
    for a, b in ((0, 5), (17, 4), (100, 33)):
        assert run(a, b) == (a + b * 3 - 2) // 5 % 7 + (a << 2 & 12 | 1)


@low_level
def collatz(n: Word, most: Word) -> Word:
    """Steps down to 1, without those of numbers above `most`."""
    steps = 0
    while True:
        if n == 1:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        if n > most:
            continue
        steps += 1
    return steps


def test_loops_can_be_left_and_continued():
    def expected(n, most):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += n <= most
        return steps

    run = compiled(collatz)
    assert [run(n, most) for n in (1, 7, 27) for most in (20, 10000)] == [
        expected(n, most) for n in (1, 7, 27) for most in (20, 10000)
    ]


@low_level
def first_above(items: Array[Word], count: Word, limit: Word) -> Word:
    for i in range(count):
        if limit < items[i] <= 2 * limit or items[i] == -1:
            return i
    return -1


@low_level
def ordered(items: Array[Word], count: Word) -> Flag:
    return all(items[i] <= items[i + 1] for i in range(count - 1)) and not any(
        items[i] < 0 for i in range(count)
    )


@low_level
def both(items: Array[Word], count: Word, limit: Word) -> Word:
    found, is_ordered = first_above(items, count, limit), ordered(items, count)
    return 2 * found + is_ordered


def test_conditions_over_arrays():
    run = compiled(first_above, ordered, both)
    for items in ([1, 2, 5], [5, 2, 9], [0, 0, 30], [-1, 2, 3], [1], []):
        array = np.array(items, np.int64)
        found = next((i for i, x in enumerate(items) if 3 < x <= 6 or x == -1), -1)
        is_ordered = items == sorted(items) and all(x >= 0 for x in items)
        assert run(array.ctypes.data, len(items), 3) == 2 * found + is_ordered


@low_level
def is_first(point: Point) -> Flag:
    # The right operand would read the address 0.
    return point != NULL and point.next == NULL


@low_level
def reverse(first: Point) -> Word:
    done = Point(NULL)
    while first != NULL:
        following = first.next
        first.next = done
        first.weight = first.weight
        first.near = not first.near
        first.small = first.small + 255
        done = first
        first = following
    return Word(done)


class CPoint(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_int32), ("near", ctypes.c_bool), ("weight", ctypes.c_double),
        ("next", ctypes.c_void_p), ("small", ctypes.c_uint8),
    )  # fmt: skip


def test_records_are_laid_out_as_in_c():
    assert {name: at for name, (at, _) in layout_of(Point).items()} == {
        name: getattr(CPoint, name).offset for name, _ in CPoint._fields_
    }
    points = [CPoint(i, i % 2, i / 4, None, i) for i in range(3)]
    points[0].next, points[1].next = map(ctypes.addressof, points[1:])
    assert compiled(is_first)(0) == 0
    assert compiled(is_first)(ctypes.addressof(points[2])) & 1
    assert compiled(reverse)(ctypes.addressof(points[0])) == ctypes.addressof(points[2])
    assert points[2].next == ctypes.addressof(points[1]) and points[0].next is None
    assert [(p.number, p.near, p.weight, p.small) for p in points] == [
        (0, True, 0, 255), (1, False, 0.25, 0), (2, True, 0.5, 1)
    ]  # fmt: skip


@low_level
def number_of_last(points: Table[Point], count: Word) -> Word:
    points[count - 1].number = points[0].number - 1
    last = Point(address_of(points[count - 1].number))
    return last.number


def test_records_in_a_row_are_as_far_apart_as_in_c():
    row = (CPoint * 3)(*(CPoint(i) for i in range(3)))
    assert compiled(number_of_last)(ctypes.addressof(row), 3) == -1
    assert [p.number for p in row] == [0, 1, -1]


Real = Double


@low_level
def scaled(values: Array[Real], count: Word, other: Array[Single]) -> Word:
    kept = stack(count)
    half = Array[Real](kept)
    for i in range(count):
        half[i] = values[i]
    for i in range(count):
        values[i] = other[0] if i == 0 else half[count - i]
    return 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_type_of_numbers_can_be_given(dtype):
    values, other = np.array([1.5, 2.5, 3.5], dtype), np.array([0.25], "float32")
    compiled(scaled, given={"Real": NUMBERS[dtype]})(values.ctypes.data, 3, other.ctypes.data)
    assert values.tolist() == [0.25, 3.5, 2.5]


@external("labs")
def magnitude(value: Word) -> Word: ...


@low_level
def far(value: Word) -> Word:
    return magnitude(value) + FACTOR


@low_level
def at_once(function: Address, value: Word) -> Word:
    return invoke(function, value) + far(value) + Word(far == function)  # pyright: ignore


def test_calls_of_c_functions_and_through_addresses():
    address = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
    assert compiled(far, at_once)(address, -5) == 5 + 8
    assert compiled(far, given={"FACTOR": 10})(-5) == 15


@low_level
def unknown_name(n: Word) -> Word:
    return n + missing  # noqa: F821  # pyright: ignore


@low_level
def no_statement(n: Word) -> Word:
    with n:  # pyright: ignore
        return n


@low_level
def no_field(point: Point) -> Word:
    return point.colour  # pyright: ignore


@low_level
def no_array(n: Word) -> Word:
    return n[0]  # pyright: ignore


@low_level
def wrong_count(n: Word) -> Word:
    return magnitude(n, n)  # pyright: ignore


@low_level
def no_conversion(x: Double) -> Address:
    return x  # pyright: ignore


@low_level
def no_type(n) -> Word:
    return n


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unknown_name, "line .*: `missing` is neither a variable nor an integer"),
        (no_statement, "is no statement of low-level functions"),
        (no_field, "`point` has no field `colour`"),
        (no_array, "`n` is no array"),
        (wrong_count, "`magnitude` takes 1 arguments"),
        (no_conversion, "double does not convert to ptr"),
        (no_type, "the parameter `n` has no type"),
    ],
)
def test_what_the_language_does_not_have_is_refused(function, message):
    with pytest.raises(CodegenError, match=message) as caught:
        low_level_text(function, {})
    assert f"in `{function.__name__}`" in str(caught.value)


def test_the_functions_are_not_run_by_python():
    with pytest.raises(NotImplementedError, match="compiled, not run"):
        Address(0)
