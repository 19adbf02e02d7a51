"""Values of script expressions while they are read, besides IR nodes and Python's numbers, strings,
tuples, lists and dictionaries."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import rewrite
from relaxlab.ir.span import Span
from relaxlab.script.print_expr import scalar
from relaxlab.script.writer import Writer

Value = Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A member of one of the namespaces: `Ref("T", "axis.spatial")`."""

    namespace: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}.{self.path}" if self.path else self.namespace


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """The module being defined (`cls`, or the name of its class)."""


@dataclass(frozen=True, slots=True)
class SymbolDecl:
    """`T.int64()`: declares the variable that it is assigned to."""

    dtype: str


@dataclass(frozen=True, slots=True)
class BufferDecl:
    """A buffer without its name: `T.Buffer(...)`, `T.match_buffer(...)`, an allocation."""

    kind: str
    fields: dict[str, Any]
    source: Any = None


@dataclass(frozen=True, slots=True)
class Handle:
    """A `T.handle` parameter, which `T.match_buffer` gives a shape; a pointer where nothing does.
    `pointee` is the dtype that the script states."""

    name: str
    span: Span | None
    pointee: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """`T.decl_buffer(shape, dtype, data=B.data)`: elements of `buffer`, from the one with number
    `offset` on, in row-major order or `strides` apart, seen as an array of another shape. Several
    of them together may be seen as one element of a `dtype`: four bytes as a float."""

    shape: tuple[PrimExpr, ...]
    buffer: loops.Buffer
    offset: PrimExpr
    dtype: str = ""
    strides: tuple[PrimExpr, ...] = ()

    @property
    def name(self) -> str:
        """The name of the buffer behind it."""
        return self.buffer.name


@dataclass(frozen=True, slots=True)
class RaggedDecl:
    """A ragged buffer without its name: the memory, the extents, and the index functions of starts,
    one for each level of slices. The extents are over the number of the slice of the level outside,
    those of all dimensions in the innermost slices over the number of such a slice."""

    memory: BufferDecl
    shape: tuple[PrimExpr, ...]
    starts: tuple[loops.Buffer, ...]


@dataclass(frozen=True, slots=True)
class RaggedBuffer:
    """`T.ragged_buffer(...)`: the elements of `buffer`, seen as slices of different extents."""

    buffer: loops.Buffer
    shape: tuple[PrimExpr, ...]
    starts: tuple[loops.Buffer, ...]

    @property
    def name(self) -> str:
        """The name of the buffer behind it."""
        return self.buffer.name

    def at(self, index: PrimExpr) -> list[PrimExpr]:
        """The extents of the dimensions in an innermost slice, given its number."""
        return [
            rewrite(e, lambda n: index if isinstance(n, loops.Position) else None)
            for e in self.shape[len(self.starts) :]
        ]


@dataclass(frozen=True, slots=True)
class Method:
    """`A.vload`, `x.astype`: what is called on a buffer, a tensor or a scalar."""

    base: loops.Buffer | View | graph.Expr | PrimExpr
    name: str


@dataclass(frozen=True, slots=True)
class VectorStore:
    """`A.vstore(indices, value)`, which is a statement."""

    buffer: loops.Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr


@dataclass(frozen=True, slots=True)
class ThreadTag:
    """`T.env_thread("threadIdx.x")`, without its name."""

    tag: str


@dataclass(frozen=True, slots=True)
class Thread:
    """`T.iter_var(...)`: a thread axis and its variable, None where it has no name."""

    tag: str
    var: expr.Var | None


@dataclass(frozen=True, slots=True)
class Launch:
    """`T.launch_thread(tag, extent)`; `var` is the variable of an axis declared before."""

    tag: str
    extent: PrimExpr
    var: expr.Var | None = None


@dataclass(frozen=True, slots=True)
class Annotations:
    """`T.attr(...)`: attributes of the statements that follow."""

    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Meta:
    """`T.meta_var(value)`: a value that is bound to a name as it is, and is no part of the
    program."""

    value: Value


@dataclass(frozen=True, slots=True)
class Axis:
    """A block axis without its name."""

    kind: loops.IterKind
    dom: loops.Range
    value: PrimExpr


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """The iterations of a `for`: one entry per loop of the nest."""

    kind: loops.ForKind
    ranges: tuple[loops.Range, ...]
    thread: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict[str, Any])
    values: Callable[[expr.Var], PrimExpr] | None = None
    """Gives what the name of the loop stands for, where that is not the loop's variable."""


@dataclass(frozen=True, slots=True)
class SliceAccess:
    """`A[i, 0:4]`: a region, or a vector of elements, depending on where it is used."""

    buffer: loops.Buffer
    parts: tuple[PrimExpr | tuple[PrimExpr, PrimExpr, int], ...]
    span: Span | None


@dataclass(frozen=True, slots=True)
class MatchCastValue:
    """`R.match_cast(value, ty)`, which must be bound to a variable."""

    value: graph.Expr
    ty: types.Type


@dataclass(frozen=True, slots=True)
class Hidden:
    """A variable of a dataflow block that was not output, seen from outside the block."""

    name: str
    span: Span | None
    has_output: bool


@dataclass(frozen=True, slots=True)
class TypeParam:
    """`n = TypeVar("n")`: in a signature, a symbol of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A captured Python object that has no meaning in a program; its attributes may have one."""

    value: object = field(compare=False, repr=False)

    @property
    def kind(self) -> str:
        """The name of its type."""
        return type(self.value).__name__


class _Poison:
    """The value of a name whose definition had an error: using it is not a further error."""


POISON = _Poison()


@dataclass(frozen=True, slots=True)
class Arg:
    """An evaluated argument and where it was written."""

    value: Value
    node: ast.expr


def is_sequence(value: Value) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    """True if `value` is a tuple or a list."""
    return isinstance(value, tuple | list)


def longer_sequence(op: type[ast.AST], a: Sequence[Any], b: Value) -> tuple[Any, ...] | None:
    """Return the items of a sum of sequences, or of a sequence times a number; None for others."""
    if op is ast.Add and is_sequence(b):
        return (*a, *b)
    return (*a,) * b if op is ast.Mult and isinstance(b, int) else None


def is_array(value: Value) -> TypeGuard[np.ndarray[Any, Any]]:
    """True if `value` is a NumPy array."""
    return isinstance(value, np.ndarray)


def is_dict(value: Value) -> TypeGuard[dict[Any, Any]]:
    """True if `value` is a dictionary."""
    return isinstance(value, dict)


def element_text(name: str, rank: int) -> str:
    """Return an element of a buffer as it is written, for messages: `A[i, j]`."""
    return f"{name}[{', '.join('ijklmnpq'[:rank]) or '()'}]"


def describe(value: Value) -> str:
    """Return the kind of a value, for messages."""
    match value:
        case bool() | int() | float() | str() | None:
            return f"{type(value).__name__} {value!r}"
        case expr.PrimExpr():
            return f"{scalar(Writer(), value)} ({value.dtype})"
        case loops.Buffer():
            return f"buffer {value.name}"
        case graph.Var():
            return f"variable {value.name}"
        case graph.Expr():
            return "a graph-level value"
        case types.Type():
            return f"the annotation {value}"
        case SliceAccess():
            return f"a region of buffer {value.buffer.name}"
        case Ref("builtins", path):
            return f"Python's {path}"
        case Ref():
            return str(value)
        case ModuleRef():
            return "the module"
        case SymbolDecl():
            return f"a declaration (T.{value.dtype}())"
        case LoopSpec():
            return "a loop range"
        case RaggedBuffer():
            return f"ragged buffer {value.name}"
        case View():
            return f"a view of buffer {value.name}"
        case Launch() | Annotations():
            return "a statement around those that follow"
        case _:
            return f"a Python {type(value).__name__}"
