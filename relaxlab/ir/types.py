"""Annotations of graph-level values (the paper's section 3.2; `StructInfo` in older TVM).

Dimensions are scalar expressions. `None` for a shape means that only the rank is known, and
rank -1 that nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index

from relaxlab.ir.brief import cut
from relaxlab.ir.errors import tuple_text
from relaxlab.ir.expr import (
    INNER,
    OUTER,
    InnerLength,
    IntImm,
    OuterIndex,
    PrimExpr,
    Var,
    const,
)
from relaxlab.ir.node import Node, binder, children, hint_field, node


class Type(Node):
    """Base of the annotations."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_type(self)

    def brief(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return cut(str(self), 200)


@node
class ObjectType(Type):
    """Any value."""


@node
class DataType(ObjectType):
    """A value of the algebraic data type that the module declares under this name."""

    name: str


@node
class PrimType(Type):
    """A scalar of `dtype`; `value` when it is known."""

    dtype: str
    value: PrimExpr | None = None


@node
class ShapeType(Type):
    """A shape value: its dimensions, or only their number (-1: unknown)."""

    values: tuple[PrimExpr, ...] | None = None
    ndim: int = -1

    def __post_init__(self) -> None:
        if self.values is not None:
            object.__setattr__(self, "ndim", len(self.values))


@node
class TensorType(Type):
    """A tensor: its shape, or only its rank (-1: unknown); dtype None when unknown. Numbers among
    the dimensions become constants.

    `vdevice` is the virtual device that an annotation names, such as "cuda:0:global"; it says
    nothing about values, so that it is no part of equality. `held` are the dimensions that the type
    of a variable states whose value is the shape: as in TVM, few operators' results follow from
    them.
    """

    shape: tuple[PrimExpr, ...] | None = None
    dtype: str | None = None
    ndim: int = -1
    vdevice: str = hint_field(default="")
    held: tuple[PrimExpr, ...] | None = hint_field(default=None)

    def __post_init__(self) -> None:
        if self.shape is not None:
            if not all(isinstance(d, PrimExpr) for d in self.shape):  # type: ignore
                object.__setattr__(self, "shape", tuple(_dimension(d) for d in self.shape))
            object.__setattr__(self, "ndim", len(self.shape))


def _dimension(d: object) -> PrimExpr:
    if isinstance(d, PrimExpr):
        return d
    try:
        return const(index(d))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a dimension is an integer or an expression of symbols, not {d!r}"
        ) from None


def vdevice_named(text: str) -> str:
    """The name of a virtual device with its number and memory: "cuda" is "cuda:0:global"."""
    kind, *rest = text.split(":")
    number, scope, *_ = *rest, *("0", "global")[len(rest) :]
    return f"{kind}:{number}:{scope}"


@node
class Length(Var):
    """The length of each sequence, an extent that differs from sequence to sequence: the tensors
    whose shapes mention it are ragged. The first of their dimensions counts the sequences."""


Each = Length | OuterIndex | InnerLength
"""The length of an element of a ragged tensor, or its index: extents follow from these."""


@node
class LengthsType(TensorType):
    """The lengths of sequences that lie behind each other: int32 (sequences,). `total` is the
    number of their rows; no length is less than `least` or more than `most`. `each` is the extent
    of ragged tensors with these lengths."""

    total: PrimExpr | None = None
    most: int | None = None
    each: Length | None = None
    least: int = 0


@node
class TupleType(Type):
    """A tuple of values."""

    fields: tuple[Type, ...]


@node
class FuncType(Type):
    """A function (`R.Callable`). Symbols in `params` are bound there; `params` None: any."""

    params: tuple[Type, ...] | None = binder()
    ret: Type
    is_pure: bool = True


def lengths_in(dims: PrimExpr | Sequence[PrimExpr] | None) -> tuple[Each, ...]:
    """The lengths of sequences, and the index of each, that dimensions mention, in order; empty for
    regular ones."""
    given = (dims,) if isinstance(dims, PrimExpr) else dims or ()
    found: dict[Each, None] = {}
    for d in given:  # of each type that is deduced: most dimensions are not worth a walk
        if isinstance(d, Length):
            found[d] = None
        elif not isinstance(d, IntImm | Var):
            found |= dict.fromkeys(each_in(d))
    return tuple(found)


def each_in(n: Node) -> Iterator[Each]:
    """Yield the extents in a node that differ from element to element of ragged tensors: of
    `t[i, j]` that itself, not the lengths that it is of."""
    if isinstance(n, Each):
        yield n
    else:
        for child in children(n):
            yield from each_in(child)


def outer_lengths(dims: PrimExpr | Sequence[PrimExpr] | None) -> Length | None:
    """The lengths of the sequences that dimensions have the lengths of rows of, as t[i, j] is; None
    for those without."""
    inner = (n.outer for n in lengths_in(dims) if isinstance(n, InnerLength))
    found = next(inner, None)
    assert found is None or isinstance(found, Length)
    return found


def is_ragged(ty: Type | None) -> bool:
    """True for a tensor with an extent that differs from sequence to sequence."""
    return isinstance(ty, TensorType) and bool(lengths_in(ty.shape))


def is_part(ty: Type | None) -> bool:
    """True for a tensor that is another one for each sequence, without a dimension that counts
    these: the first rows of a table, as many as the sequence has, or their positions."""
    return isinstance(ty, TensorType) and ty.shape is not None and bool(lengths_in(ty.shape[:1]))


def limits_of(ty: LengthsType) -> list[tuple[str, int]]:
    """The limits that lengths state, by the names that they have in scripts."""
    least = [("at_least", ty.least)] if ty.least else []
    return least if ty.most is None else [*least, ("at_most", ty.most)]


DIMENSIONS = OUTER + INNER + "klmnopqrst"
"""The names that the dimensions of ragged tensors are printed with."""


def format_type(ty: Type) -> str:
    """Plain text of a type for messages, in the script's spelling."""
    match ty:
        case PrimType(dtype, value):
            return f"R.Prim({dtype!r})" if value is None else f"R.Prim(value={value})"
        case ShapeType(values, ndim):
            if values is not None:
                return f"R.Shape([{', '.join(map(str, values))}])"
            return f"R.Shape(ndim={ndim})" if ndim >= 0 else "R.Shape"
        case LengthsType(shape=shape) if shape is not None:
            limits = "".join(f", {name}={n}" for name, n in limits_of(ty))
            return f"R.Lengths({shape[0]}, {ty.total}{limits})"
        case TensorType(shape, dtype) if shape is not None and is_ragged(ty) and not is_part(ty):
            dims = ", ".join(f'"{n}": {d}' for n, d in zip(DIMENSIONS, shape, strict=False))
            return f"R.Ragged({{{dims}}}, {dtype!r})"
        case TensorType(shape, dtype, ndim):
            args: list[str] = []
            if shape is not None:
                args.append(tuple_text(shape))
            if dtype is not None:
                args.append(repr(dtype) if shape is not None else f"dtype={dtype!r}")
            if shape is None and ndim >= 0:
                args.append(f"ndim={ndim}")
            return f"R.Tensor({', '.join(args)})" if args else "R.Tensor"
        case TupleType(fields):
            return f"R.Tuple({', '.join(map(str, fields))})"
        case DataType(name):
            return name
        case FuncType(params, ret, pure):
            inner = "..." if params is None else f"({', '.join(map(str, params))})"
            unusual = pure != (params is not None)
            return f"R.Callable({inner}, {ret}{f', purity={pure}' if unusual else ''})"
        case _:
            return "R.Object"
