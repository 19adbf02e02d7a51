"""A dialect: the language in which kernels for a kind of GPUs are written, as one table.

What is common to all GPUs stands in this folder: `lower.py` splits a loop function into launches,
`kernel.py` writes the statements of a launch and `expressions.py` its expressions, asking the
dialect for whatever is spelled differently. `codegen/cuda/dialect.py` and `codegen/wgsl/dialect.py`
are the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.intrinsics import Intrinsic
from relaxlab.ir.loops import DEFAULT_ALIGN, Buffer
from relaxlab.ir.names import ascii_name, fresh_name

ATOM, UNARY = 20, 12
"""Levels of precedence beside those of operators: names, calls and constants; prefix operators."""
Text: TypeAlias = tuple[str, int]
"""An expression, and how tightly its outermost operator binds."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """`text` with `{type}` and `{value}`, which binds at least as tightly as `operand`; the whole
    binds as tightly as `level`."""

    text: str
    operand: int
    level: int


@dataclass(frozen=True, slots=True)
class Wide:
    """Accesses of several neighbours in main memory at once, as texts: the type of `{count}` values
    of `{type}`, a variable of it, one with the neighbours from `{at}`, a lane of one, the store of
    one, and the loop over its lanes. Of bytes: a variable of `{count}` words, one with those from
    `{at}`, a word of one, and a word in registers from the element `{first}` on; the byte of a lane
    of words, and that as a float32."""

    type: str
    variable: str
    load: str
    lane: str
    store: str
    loop: str
    words: str
    loaded_words: str
    word: str
    word_at: str
    byte: str
    float: str


def alignment_of(buffer: Buffer, facts: Facts) -> int:
    """The bytes that the address of a shared buffer is a multiple of: those of the widest access,
    or what it asks for."""
    return max(facts.vector_bits // 8, buffer.align if buffer.align != DEFAULT_ALIGN else 0)


@dataclass(frozen=True, slots=True)
class Frame:
    """The surroundings of a kernel's statements: `buffers`, their names and whether it stores to
    them; `scalars` and their names; `failed`, the name of the number of a failure, empty where
    nothing can fail; `block`, its threads along x, y and z; declarations `outside` of the function,
    and its names there; the scalars that it is given the addresses of, as `in_memory`; the names of
    the tensor maps that it is given as `maps`."""

    name: str
    buffers: Sequence[tuple[Buffer, str, bool]]
    scalars: Sequence[tuple[Var, str]]
    failed: str
    block: tuple[int, int, int]
    outside: Sequence[str]
    fresh: Callable[[str], str]
    in_memory: frozenset[Var] = frozenset()
    maps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A parameter that describes an array, of which boxes of such extents are copied into shared
    memory by the hardware."""

    buffer: Buffer
    box: tuple[int, ...]


MAP_BYTES = 128
"""The size of a tensor map."""
MAP_DTYPES = {"float16": 6, "bfloat16": 9}
"""The driver's numbers of dtypes in tensor maps, by ours."""
SWIZZLE_128B, PROMOTE_256B = 3, 3
"""16-byte parts of rows of 128 bytes are swizzled; the second-level cache loads 256 bytes."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A language of kernels. Texts have their parts in braces.

    name:       in messages.
    types:      of scalars, by dtype; indices and sizes are int64.
    elements:   the types of elements of buffers, by dtype, in main memory.
    reserved:   words that are no names.
    integer:    (value, dtype) -> a constant.
    special:    the floats `nan`, `inf` and `-inf`.
    cast:       a value as another type. truncate: a float as an integer, as `expr.Cast` says.
    helper:     the name of a function of the prelude for a type: `{name}`, `{type}`.
    functions:  (row of an intrinsic, dtype) -> the function that computes it, empty for none.
    intrinsics: those that are more than a call of a function: (scope, call) -> text.
    operator:   (operation) -> its infix, its level, and the levels of its operands.
    places:     a constant number of places of a shift: `{count}`.
    choose:     (scope, condition, one, other) -> the value of one of two, the only one computed.
    bind:       (scope, variable, value, body) -> the body with a variable.
    divisor:    (scope, divisor, number) -> the divisor, or 1 after failure `number` where it is 0.
    loaded, stored: elements of main memory whose dtype is not that of their value, by dtype: the
                value of the element `{element}`, with its level; the element of `{value}`.
    constant:   a variable: `{type}`, `{name}`, `{value}`.
    array:      (buffer, name, sizes, facts, offset) -> a shared or private buffer; with an offset,
                in bytes of the memory that is asked for at the launch.
    axis:       the number of a block or thread along `{name}`, as the frame has it.
    bound:      tells the compiler that `{name}` is less than `{extent}`; empty where it knows.
    loop:       `{type}`, `{name}`, from `{low}` to below `{high}`. unroll: a line before it.
    barrier:    of a block's threads; main_barrier: before it where they exchange values in main
                memory.
    fail:       report failure `{number}` by `{failed}`.
    outside:    True if buffers are declared outside of functions.
    wide:       accesses of neighbours; None where the language has none.
    head:       (frame) -> the text before the first statement.
    check:      (launch) -> raise CodegenError for what only looks as if it could be written.
    prelude:    (source) -> the types and functions that it uses.
    """

    name: str
    types: Mapping[str, str]
    elements: Mapping[str, str]
    reserved: frozenset[str]
    integer: Callable[[int, str], Text]
    special: Mapping[str, str]
    cast: Conversion
    truncate: Conversion
    helper: str
    functions: Callable[[Intrinsic, str], str]
    intrinsics: Mapping[str, Callable[[Scope, expr.Call], Text]]
    operator: Callable[[expr.BinaryOp], tuple[str, int, int, int]]
    places: str
    choose: Callable[[Scope, PrimExpr, PrimExpr, PrimExpr], Text]
    bind: Callable[[Scope, Var, PrimExpr, PrimExpr], Text]
    divisor: Callable[[Scope, PrimExpr, int], str]
    loaded: Mapping[str, Text]
    stored: Mapping[str, str]
    constant: str
    array: Callable[[Buffer, str, Sequence[int], Facts, int | None], str]
    axis: str
    bound: str
    loop: str
    unroll: str
    barrier: str
    main_barrier: str
    fail: str
    outside: bool
    wide: Wide | None
    head: Callable[[Frame], str]
    check: Callable[[Launch], None]
    prelude: Callable[[str], str]

    def type(self, dtype: str) -> str:
        """The type of a scalar. Raises CodegenError for a dtype without one."""
        if dtype not in self.types:
            raise CodegenError(f"{self.name} has no scalar type for {dtype}")
        return self.types[dtype]

    def element(self, buffer: Buffer) -> str:
        """The type of a buffer's elements. Raises CodegenError for a dtype without one."""
        if buffer.dtype not in self.elements:
            raise CodegenError(
                f"{self.name} has no type for the elements of {buffer.name!r}: {buffer.dtype}"
            )
        return (self.elements if buffer.scope == "global" else self.types)[buffer.dtype]

    def function(self, name: str, dtype: str) -> str:
        """The function of the prelude with that name for values of a dtype."""
        return self.helper.format(name=name, type=self.type(dtype))


@dataclass(slots=True)
class Scope:
    """The state while one kernel is written.

    `values` maps variables to what they stand for, `vectors` loads to lanes that were moved
    already; `failures` collects messages of what can go wrong at run time; `before` are lines that
    have to stand before the statement that is being written.
    """

    function: str
    dialect: Dialect
    failures: list[str]
    taken: set[str]
    names: dict[Var | Buffer, str] = field(default_factory=dict[Var | Buffer, str])
    values: dict[Var, PrimExpr] = field(default_factory=dict[Var, PrimExpr])
    vectors: dict[PrimExpr, str] = field(default_factory=dict[PrimExpr, str])
    nonneg: set[Var] = field(default_factory=set[Var])
    before: list[str] = field(default_factory=list[str])
    failed: str = "failed"
    maps: dict[TensorMap, str] = field(default_factory=dict[TensorMap, str])

    def map(self, buffer: Buffer, box: tuple[int, ...]) -> str:
        """The name of a tensor map."""
        wanted = TensorMap(buffer, box)
        if wanted not in self.maps:
            self.maps[wanted] = self.fresh(f"{self.name(buffer)}_map")
        return self.maps[wanted]

    def name(self, of: Var | Buffer) -> str:
        """A name for a variable or buffer, close to its own."""
        text = ascii_name(of.name) or "v"
        text = f"v{text}" if text[0].isdigit() or text.startswith("__") else text
        return self.names.setdefault(of, self.fresh(text))

    def fresh(self, text: str) -> str:
        """`text`, numbered if it is taken."""
        chosen = fresh_name(text, lambda n: n in self.taken or n in self.dialect.reserved)
        self.taken.add(chosen)
        return chosen

    def failure(self, message: str) -> int:
        """The number (from 1) of something that can go wrong."""
        if message not in self.failures:
            self.failures.append(message)
        return self.failures.index(message) + 1
