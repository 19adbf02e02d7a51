"""Run-time functions over words and addresses, written in Python: the vocabulary.

A function under `@low_level` is never run by Python. `compile.low_level_text` translates it to LLVM
when a program is compiled: its arguments and variables are machine words, addresses and numbers
with a fixed size, `p.field` and `p[i]` read and write memory, and values convert as they do in C
where they are stored or passed on. Statements: assignments, `if`, `while`, `for i in range(n)`,
`return`. Words are signed, but `//`, `%` and `>>` take operands for unsigned. `and` and `or` leave
out the right operand where the left one decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

Word: TypeAlias = int
"""64 bits."""
Int: TypeAlias = int
"""32 bits, an `int` of C."""
Byte: TypeAlias = int
"""8 bits without a sign."""
Flag: TypeAlias = bool
"""One bit; in memory a byte."""
Single: TypeAlias = float
Double: TypeAlias = float

Function: TypeAlias = Callable[..., None]
"""The address of a low-level function."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

NULL: Any = None
"""The address of nothing."""


class Address:
    """An address of memory. `p + n` is the address `n` bytes after it. Called with an address or a
    word, a class of addresses gives the same address that class."""

    def __init__(self, value: Address | Word) -> None:
        raise NotImplementedError("low-level functions are compiled, not run")

    def __int__(self) -> Word: ...
    def __add__(self, count: Word) -> Address: ...
    def __sub__(self, count: Word) -> Address: ...
    def __and__(self, mask: Word) -> Word: ...
    def __le__(self, other: Address) -> bool: ...
    def __ge__(self, other: Address) -> bool: ...


class Record(Address):
    """The address of fields, which annotations declare; laid out as C does a `struct`."""


class Array(Address, Generic[T]):
    """The address of words, numbers or addresses in a row: `p[i]` is the i-th."""

    def __getitem__(self, index: Word) -> T: ...
    def __setitem__(self, index: Word, value: T) -> None: ...


class Table(Address, Generic[T]):
    """The address of records in a row: `p[i]` is the address of the i-th."""

    def __getitem__(self, index: Word) -> T: ...


SIZES = {"Int": 4, "Single": 4, "Byte": 1, "Flag": 1}
"""Bytes of what does not take 8 of them."""


def layout_of(record: type[Record]) -> dict[str, tuple[int, str]]:
    """The byte at which each field of a record starts, and its annotation."""
    found: dict[str, tuple[int, str]] = {}
    end = 0
    for name, annotation in record.__annotations__.items():
        size = SIZES.get(annotation, 8)
        start = -(-end // size) * size
        found[name] = start, annotation
        end = start + size
    return found


def address_of(field: object) -> Any:
    """The address of a field or an element."""
    raise NotImplementedError


def invoke(function: Address, *args: Word | Address) -> Word:
    """Call the C function at an address, which returns a word."""
    raise NotImplementedError


def stack(count: Word) -> Array[Word]:
    """Words on the stack, until the function returns."""
    raise NotImplementedError


SYMBOLS: dict[Callable[..., Any], str] = {}
"""The linker symbols of low-level functions."""
EXTERNALS: dict[Callable[..., Any], str] = {}
"""The linker symbols of C functions that they call."""


def low_level(function: F) -> F:
    """Declare a low-level function; its symbol is its name after `relaxlab_`."""
    SYMBOLS[function] = f"relaxlab_{function.__name__}"
    return function


INLINED: set[Callable[..., Any]] = set()
"""Low-level functions whose calls are replaced by their statements."""


def inlined(function: F) -> F:
    """Declare a low-level function that is a part of its callers: a few instructions in a loop."""
    INLINED.add(function)
    return low_level(function)


def external(symbol: str) -> Callable[[F], F]:
    """Declare the C function `symbol` by its signature."""

    def declare(function: F) -> F:
        EXTERNALS[function] = symbol
        return function

    return declare
