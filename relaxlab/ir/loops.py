"""Loop functions: loop nests over buffers (TensorIR's vocabulary).

A `Block` is the unit of scheduling: its iteration variables are bound by the enclosing
`BlockRealize`, its body may use only those, and its read and write regions say what it touches.
Buffers compare by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from relaxlab.ir.display import script_of
from relaxlab.ir.dtypes import lanes_of, with_lanes
from relaxlab.ir.expr import Call, Cast, PrimExpr, Var, const
from relaxlab.ir.node import (
    NO_ATTRS,
    Atom,
    Attrs,
    Node,
    binder,
    hint_field,
    node,
    replace,
    rewrite,
    walk,
)

ForKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unrolled", "thread_binding"]
IterKind: TypeAlias = Literal["spatial", "reduce", "scan", "opaque"]


class Fact(Node):
    """Base of what an index function, a one-dimensional parameter of integers that is only read,
    states of its elements. Facts are checked before a loop function runs; then analyses use
    them."""

    __slots__ = ()


@node
class Within(Fact):
    """Every element is at least `low` and less than `high`."""

    low: PrimExpr
    high: PrimExpr


@node
class Nondecreasing(Fact):
    """No element is less than the one before it; the first is `first` and the last `last`, where
    these are given."""

    first: PrimExpr | None = None
    last: PrimExpr | None = None


class FactOfEach(Fact):
    """Base of the facts with an expression `of` over the `Position` i."""

    __slots__ = ()
    of: PrimExpr

    def at(self, index: PrimExpr) -> PrimExpr:
        """`of` at an index."""
        return rewrite(self.of, lambda n: index if isinstance(n, Position) else None)


@node
class PrefixSums(FactOfEach):
    """The first element is 0, and element i + 1 is element i plus `of` at i."""

    of: PrimExpr


@node
class SegmentIds(FactOfEach):
    """Element f is the segment that f lies in: the s with `of` at s <= f < `of` at s + 1. `of` is
    the element at the position of an array of starts, which has one more for the end."""

    of: PrimExpr

    @property
    def starts(self) -> Buffer:
        """The array of starts."""
        return next(n.buffer for n in walk(self.of) if isinstance(n, BufferLoad))


@node
class Permutation(FactOfEach):
    """The elements are the numbers from 0 up to their count, in some order, and `of` is the
    inverse: the element at `of` at i is i."""

    of: PrimExpr


@node
class Position(PrimExpr):
    """The position i in a fact about each i."""

    @property
    def dtype(self) -> str:
        return "int64"


DEFAULT_ALIGN = 64
"""The alignment of buffers that state none, in bytes."""


@node
class Buffer(Atom):
    """Memory holding an array of `dtype` elements.

    `strides` are in elements; empty means row-major and dense. `scope` is `global` (main memory,
    planned), `local` (private to one thread of execution; registers or stack), or `shared`
    (one GPU block). `elem_offset` counts elements from the data pointer. A buffer with `facts` is
    an index function. `annotations` are notes on an allocation that programs read and write.
    `offset_factor` is what its script says an offset without a name is a multiple of.
    """

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: str = "float32"
    strides: tuple[PrimExpr, ...] = ()
    scope: str = "global"
    elem_offset: PrimExpr | None = None
    align: int = DEFAULT_ALIGN
    facts: tuple[Fact, ...] = ()
    annotations: Attrs = NO_ATTRS
    offset_factor: str = hint_field(default="")

    @property
    def ndim(self) -> int:
        return len(self.shape)


@node
class BufferLoad(PrimExpr):
    """One element of `buffer` (or a vector of them, when an index is a vector)."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        return load_dtype(self.buffer, self.indices)


def load_dtype(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
    """The dtype of `buffer[indices]`: the buffer's, with the lanes of the vector index."""
    lanes = max((lanes_of(i.dtype) for i in indices), default=1)
    return with_lanes(buffer.dtype, lanes) if lanes > 1 else buffer.dtype


@node
class Range(Node):
    """`extent` integers from `min`."""

    min: PrimExpr
    extent: PrimExpr


@node
class BufferRegion(Node):
    """A region of a buffer: one range per dimension."""

    buffer: Buffer
    region: tuple[Range, ...]


@node
class MatchBufferRegion(Node):
    """`buffer`, a view of `source` inside a block (the result of blockize and tensorize)."""

    buffer: Buffer = binder()
    source: BufferRegion


class Stmt(Node):
    """Base of the statements."""

    __slots__ = ()


@node
class For(Stmt):
    """`for loop_var in range(min, min + extent)` with a way of running the iterations.

    `thread` is the axis name (`blockIdx.x`, `threadIdx.y`, `vthread`) of a thread binding.
    """

    loop_var: Var = binder()
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread: str | None = None
    annotations: Attrs = NO_ATTRS


@node
class While(Stmt):
    """Repeat `body` while `condition` holds."""

    condition: PrimExpr
    body: Stmt


@node
class IfThenElse(Stmt):
    """Run one of two statements."""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@node
class LetStmt(Stmt):
    """`body` with `var` bound to `value`."""

    var: Var = binder()
    value: PrimExpr
    body: Stmt


@node
class SeqStmt(Stmt):
    """Statements one after the other; never nested, never of length one (see `seq`)."""

    stmts: tuple[Stmt, ...]


@node
class BufferStore(Stmt):
    """`buffer[indices] = value`."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


@node
class Evaluate(Stmt):
    """An expression evaluated for its effect."""

    value: PrimExpr


@node
class AssertStmt(Stmt):
    """Stop with `message` unless `condition` holds. Each `{}` in the message stands for one of
    `values`, of which there are up to two integers; without values, the message is literal."""

    condition: PrimExpr
    message: str
    values: tuple[PrimExpr, ...] = ()

    def text(self, shown: Sequence[object]) -> str:
        """The message with what is shown for each of `values`."""
        return self.message.format(*shown) if self.values else self.message


@node
class IterVar(Node):
    """A block axis: a variable over `dom`, spatial (independent) or reduce (accumulating)."""

    var: Var = binder()
    dom: Range
    kind: IterKind


@node
class Block(Stmt):
    """A scheduling unit. `init` runs where all reduce axes are at their first value."""

    name: str
    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Attrs = NO_ATTRS


@node
class BlockRealize(Stmt):
    """Run `block` with its axes bound to `iter_values`, where `predicate` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block


IS_SCHEDULED = "tir.is_scheduled"
"""The attribute of a loop function that the compiler takes as it is: it is not scheduled by rules,
and not merged with others."""
KEPT_APART = "kept_apart"
"""The attribute of a loop function with indices from data that is to be a kernel of its own."""


@node
class PrimFunc(Node):
    """A loop function in destination-passing style.

    `params` are buffers (inputs, then outputs) and scalar variables. Symbols in the buffers'
    shapes that are not parameters are bound by the shapes passed. The outermost statement may be
    a root block; allocations of a function without blocks live in the root block too. `private`
    functions may be changed or removed by passes. `requires` has assertions about scalars and
    symbols, which are checked before the function runs, and known to whoever analyses it.
    Recognised attrs: `tir.noalias` (bool), `op_pattern` (int), `global_symbol` (str, set only on
    export), `tir_var_upper_bound` (name -> int), `tir_var_range` (name -> Range),
    `tir.is_scheduled` (bool). `index_dtype` is "int64" where its script says so of
    extents and "int32" where it does of all symbols, and `root` is "stated" where it says that
    there is a root block.
    """

    params: tuple[Buffer | Var, ...] = binder()
    body: Stmt
    attrs: Attrs = NO_ATTRS
    private: bool = False
    requires: tuple[AssertStmt, ...] = ()
    name_hint: str = hint_field(default="")
    index_dtype: str = hint_field(default="")
    root: str = hint_field(default="")

    def script(self, **options: Any) -> str:
        """The function as a runnable script; see `relaxlab.script.printer.print_module`."""
        return script_of(self, **options)

    def __str__(self) -> str:
        return self.script()

    @property
    def ret_dtype(self) -> str | None:
        """The dtype of the scalar that the function returns; None for one that returns nothing."""
        ends = (n for n in walk(self.body) if isinstance(n, Evaluate))
        return next((v.dtype for n in ends if (v := returned_value(n)) is not None), None)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers."""
        return tuple(p for p in self.params if isinstance(p, Buffer))


def element(b: Buffer, index: PrimExpr) -> PrimExpr:
    """The element of an array of integers, as int64."""
    load = BufferLoad(b, (index,))
    return load if b.dtype == "int64" else Cast("int64", load)


def returned_value(s: Stmt) -> PrimExpr | None:
    """The value with which a statement ends its function; None for any other statement."""
    match s:
        case Evaluate(Call(op="ret", args=(value,))):
            return value
        case _:
            return None


@node
class Reducer(Node):
    """A commutative reduction, possibly of several values at once: `results` combines `lhs` and
    `rhs`, and `identities` leave what they are combined with as it is. An attribute says with it
    what the threads of a `tvm_thread_allreduce` compute together."""

    lhs: tuple[Var, ...] = binder()
    rhs: tuple[Var, ...] = binder()
    results: tuple[PrimExpr, ...]
    identities: tuple[PrimExpr, ...]


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, flattened; a single one stands alone."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, SeqStmt) else (s,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def nested(loops: Sequence[For], body: Stmt) -> Stmt:
    """`body` in loops like these, the outermost first."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def nest_over(variables: Sequence[Var], extents: Sequence[PrimExpr], body: Stmt) -> Stmt:
    """`body` in serial loops from 0, the outermost first."""
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        body = For(var, const(0), extent, "serial", body)
    return body


def nest_over_axes(block: Block, name: str = "ax") -> Stmt:
    """A block in a serial loop over each of its axes, which start at 0."""
    variables = tuple(Var(f"{name}{n}", iv.var.dtype) for n, iv in enumerate(block.iter_vars))
    extents = [iv.dom.extent for iv in block.iter_vars]
    return nest_over(variables, extents, BlockRealize(variables, const(True), block))
