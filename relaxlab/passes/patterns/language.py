"""Patterns over the calls of graph functions.

The names are those of TVM's dataflow pattern language (`relax.dpl`): `wildcard`, `is_op`,
`is_const`, `has_shape`, `used_by` and so on. A pattern is a plain value that compares by identity:
the same pattern object at two places must match the same value, and a match is read with the
pattern (or a name given with `named`) as the key.

    x, w = wildcard(), is_const().has_dtype("float32")
    linear = is_op("add")(is_op("matmul")(x, is_op("permute_dims")(w)), wildcard())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import EllipsisType
from typing import TypeAlias, cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.subtype import Verdict, check_subtype
from relaxlab.ir import expr, graph, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import cut
from relaxlab.ir.node import node
from relaxlab.ir.op_table import find_op, op_names
from relaxlab.passes.bindings import same_dims

Dim: TypeAlias = "int | expr.PrimExpr | None"
"""A dimension that a shape must have; None: any."""

WhyNot: TypeAlias = Callable[[graph.Expr, types.Type | None], "str | None"]
"""Returns the reason why a value (variables looked through) and its type do not match, or None."""


class Link:
    """A part of a chain: a pattern of a call, or a chain, which others read by its last call and
    which reads others by its first."""

    __slots__ = ()

    def used_by(self, other: Link) -> Chain:
        """The value of this call is read by `other` (`a >> b`)."""
        return _join(self, other, False)

    def only_used_by(self, other: Link) -> Chain:
        """The value of this call is read by `other` and nothing else (`a ^ b`)."""
        return _join(self, other, True)

    def __rshift__(self, other: Link) -> Chain:
        return self.used_by(other)

    def __xor__(self, other: Link) -> Chain:
        return self.only_used_by(other)


@node
class Pattern(Link):
    """Base of the patterns."""

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({cut(str(self), 200)})"

    def __call__(self, *args: Pattern | EllipsisType) -> CallPattern:
        """Return a pattern of calls whose callee matches this pattern; `...` matches any (further)
        arguments."""
        return CallPattern(self, *split_rest(args))

    def __or__(self, other: Pattern) -> Pattern:
        return OrPattern(self, other)

    def __and__(self, other: Pattern) -> Pattern:
        return AndPattern(self, other)

    def __invert__(self) -> Pattern:
        return NotPattern(self)

    def named(self, name: str) -> Pattern:
        """The same, captured under a name: `match["x"]`."""
        return NamedPattern(self, name)

    def where(self, condition: Callable[[graph.Expr], bool], description: str) -> Pattern:
        """Return the pattern with a condition on the value (for a call, the call); traces show its
        `description`, which completes "it must be"."""

        def why_not(value: graph.Expr, _: types.Type | None) -> str | None:
            return None if condition(value) else f"it must be {description}"

        return WherePattern(self, f"where({description!r})", why_not)

    def has_attr(self, attrs: Mapping[str, object]) -> Pattern:
        """A call with these attributes (an operator's defaults count); a number for all axes is
        the same as one for each."""

        def why_not(value: graph.Expr, _: types.Type | None) -> str | None:
            for key, wanted in attrs.items():
                got = _attribute(value, key)
                if not _is_same(got, wanted):
                    return f"attribute {key} is {got!r}, not {wanted!r}"
            return None

        return WherePattern(self, f"has_attr({dict(attrs)})", why_not)

    def has_dtype(self, dtype: str) -> Pattern:
        """A tensor of this dtype."""

        def why_not(_: graph.Expr, ty: types.Type | None) -> str | None:
            got = ty.dtype if isinstance(ty, types.TensorType) else None
            return None if got == dtype else f"its type is {ty}, not of dtype {dtype}"

        return WherePattern(self, f"has_dtype({dtype!r})", why_not)

    def has_shape(self, shape: Sequence[Dim]) -> Pattern:
        """A tensor whose dimensions provably equal these; None: any dimension."""
        wanted = tuple(expr.const(d) if isinstance(d, int) else d for d in shape)

        def why_not(_: graph.Expr, ty: types.Type | None) -> str | None:
            got = ty.shape if isinstance(ty, types.TensorType) else None
            if got is None:
                return f"its type is {ty}, not of shape {_dims(wanted)}"
            if not same_dims(got, wanted):
                return f"its shape is {_dims(got)}, not {_dims(wanted)}"
            return None

        return WherePattern(self, f"has_shape({_dims(wanted)})", why_not)

    def has_rank(self, ndim: int) -> Pattern:
        """A tensor with this many dimensions."""

        def why_not(_: graph.Expr, ty: types.Type | None) -> str | None:
            got = ty.ndim if isinstance(ty, types.TensorType) else -1
            return None if got == ndim else f"its type is {ty}, not of rank {ndim}"

        return WherePattern(self, f"has_rank({ndim})", why_not)

    def has_type(self, expected: types.Type) -> Pattern:
        """A value that provably has this type."""

        def why_not(_: graph.Expr, ty: types.Type | None) -> str | None:
            analyzer = Analyzer.for_shapes(ty, expected)
            if ty is not None and check_subtype(ty, expected, analyzer) is Verdict.PASS:
                return None
            return f"its type is {ty}, not {expected}"

        return WherePattern(self, f"has_type({expected})", why_not)

    def has_same_shape_as(self, other: Pattern) -> Pattern:
        """A tensor whose shape provably equals that of the value that `other` matched before."""
        return SameShapePattern(self, other)


@node
class Wildcard(Pattern):
    """Anything."""


@node
class OpPattern(Pattern):
    """An operator; not applied to arguments, any call of it."""

    name: str


@node
class VarPattern(Pattern):
    """A variable (of the given name); `dataflow`: one that only its block sees."""

    name: str | None = None
    dataflow: bool = False


@node
class GlobalVarPattern(Pattern):
    """A function of the module (of the given name)."""

    name: str | None = None


@node
class ExternPattern(Pattern):
    """A function from outside the module (of the given name)."""

    name: str | None = None


@node
class ConstPattern(Pattern):
    """A constant (a scalar of the given value)."""

    value: float | None = None


@node
class ShapePattern(Pattern):
    """A shape value with these dimensions."""

    dims: tuple[expr.PrimExpr | None, ...]


@node
class CallPattern(Pattern):
    """A call; `rest`: further arguments may follow."""

    op: Pattern
    args: tuple[Pattern, ...]
    rest: bool = False


@node
class TuplePattern(Pattern):
    """A tuple; `rest`: further fields may follow."""

    fields: tuple[Pattern, ...]
    rest: bool = False


@node
class TupleGetItemPattern(Pattern):
    """A field (number `index`) of a tuple."""

    tuple_value: Pattern
    index: int | None = None


@node
class OrPattern(Pattern):
    """The first alternative, or else the second."""

    a: Pattern
    b: Pattern


@node
class AndPattern(Pattern):
    """A pattern that matches if both do."""

    a: Pattern
    b: Pattern


@node
class NotPattern(Pattern):
    """Anything that the other does not match."""

    a: Pattern


@node
class NamedPattern(Pattern):
    """A pattern whose match is captured under a name."""

    a: Pattern
    name: str


@node
class WherePattern(Pattern):
    """A condition on a value and its type: `why_not` returns the reason of a mismatch, or None."""

    a: Pattern
    description: str
    why_not: WhyNot


@node
class SameShapePattern(Pattern):
    """A tensor with the shape of another match."""

    a: Pattern
    other: Pattern


@dataclass(frozen=True, slots=True)
class Chain(Link):
    """Calls of one block of which each reads the value before it; `only[i]`: nothing else reads
    the value of `patterns[i]`. Chains that share a pattern object describe one graph."""

    patterns: tuple[Pattern, ...]
    only: tuple[bool, ...]

    def __str__(self) -> str:
        text = str(self.patterns[0])
        for only, p in zip(self.only, self.patterns[1:], strict=True):
            text += f" {'^' if only else '>>'} {p}"
        return text


def _chain_of(link: Link) -> Chain:
    match link:
        case Chain():
            return link
        case Pattern():
            return Chain((link,), ())
        case _:
            raise TypeError(f"a chain is made of patterns, not of {link!r}")


def _join(a: Link, b: Link, only: bool) -> Chain:
    left, right = _chain_of(a), _chain_of(b)
    return Chain((*left.patterns, *right.patterns), (*left.only, only, *right.only))


# --- Constructors -----------------------------------------------------------------------------


def wildcard() -> Wildcard:
    """Any value."""
    return Wildcard()


@names_arguments
def is_op(name: str) -> OpPattern:
    """The operator of that name, as in the script after `R.` (a leading `relax.` may stay).

    Raises ValueError for a name that no operator has.
    """
    plain = name.removeprefix("relax.").removeprefix("R.")
    if find_op(plain) is None:
        close = get_close_matches(plain, op_names(), 1, 0.7)
        advice = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no operator {name!r}{advice}")
    return OpPattern(plain)


def is_var(name: str | None = None) -> VarPattern:
    """A variable."""
    return VarPattern(name)


def is_dfv(name: str | None = None) -> VarPattern:
    """A variable that only its dataflow block sees."""
    return VarPattern(name, dataflow=True)


def is_gv(name: str | None = None) -> GlobalVarPattern:
    """A function of the module."""
    return GlobalVarPattern(name)


def is_const(value: float | None = None) -> ConstPattern:
    """A constant; with `value`, a constant scalar of that value."""
    return ConstPattern(value)


def is_shape(dims: Sequence[Dim]) -> ShapePattern:
    """A shape value with these dimensions (None: any)."""
    return ShapePattern(tuple(expr.const(d) if isinstance(d, int) else d for d in dims))


def is_tuple(fields: Sequence[Pattern | EllipsisType]) -> TuplePattern:
    """A tuple with these fields; `...` at the end: and any others."""
    return TuplePattern(*split_rest(tuple(fields)))


def is_tuple_get_item(tuple_value: Pattern, index: int | None = None) -> TupleGetItemPattern:
    """A field of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_call_tir(name: str | None = None, args: Sequence[Pattern] | None = None) -> CallPattern:
    """A `call_tir` of a loop function (of that name) on these arguments (None: any)."""
    given = Wildcard() if args is None else is_tuple(args)
    return CallPattern(OpPattern("call_tir"), (GlobalVarPattern(name), given), rest=True)


def is_call_dps_packed(
    name: str | None = None, args: Sequence[Pattern] | None = None
) -> CallPattern:
    """A `call_dps_packed` of a registered function."""
    given = Wildcard() if args is None else is_tuple(args)
    return CallPattern(OpPattern("call_dps_packed"), (ExternPattern(name), given), rest=True)


def is_call_packed(name: str | None = None, *args: Pattern | EllipsisType) -> Pattern:
    """A call of a registered function, stated to be pure or not."""
    patterns, rest = split_rest(args or (...,))
    pure = CallPattern(OpPattern("call_pure_packed"), (ExternPattern(name), *patterns), rest)
    direct = CallPattern(ExternPattern(name), patterns, rest)
    return pure | direct


def split_rest(args: tuple[Pattern | EllipsisType, ...]) -> tuple[tuple[Pattern, ...], bool]:
    """The patterns, and whether `...` follows. Raises ValueError when it stands elsewhere."""
    rest = bool(args) and args[-1] is ...
    plain = args[:-1] if rest else args
    if any(a is ... for a in plain):
        raise ValueError("`...` stands for all further arguments: write it last")
    return plain, rest  # type: ignore[return-value]


# --- Text and facts ---------------------------------------------------------------------------


def _text(p: Pattern) -> str:
    """A pattern as it is written."""
    match p:
        case Wildcard():
            return "wildcard()"
        case OpPattern(name):
            return f'is_op("{name}")'
        case VarPattern(name, dataflow):
            return f"{'is_dfv' if dataflow else 'is_var'}({name or ''})"
        case GlobalVarPattern(name):
            return f"is_gv({name or ''})"
        case ExternPattern(name):
            return f"extern({name or ''})"
        case ConstPattern(value):
            return f"is_const({'' if value is None else value})"
        case ShapePattern(dims):
            return f"is_shape({_dims(dims)})"
        case CallPattern(op, args, rest):
            return f"{op}({_list(args, rest)})"
        case TuplePattern(fields, rest):
            return f"is_tuple({_list(fields, rest)})"
        case TupleGetItemPattern(value, index):
            return f"is_tuple_get_item({value}{'' if index is None else f', {index}'})"
        case OrPattern(a, b):
            return f"({a} | {b})"
        case AndPattern(a, b):
            return f"({a} & {b})"
        case NotPattern(a):
            return f"~{a}"
        case NamedPattern(a, name):
            return f"{a}.named({name!r})"
        case WherePattern(a, description):
            return f"{a}.{description}"
        case SameShapePattern(a, other):
            return f"{a}.has_same_shape_as({other})"
        case _:
            return type(p).__name__


def _list(items: tuple[Pattern, ...], rest: bool) -> str:
    return ", ".join([*map(str, items), *(["..."] if rest else [])])


def _dims(dims: Sequence[expr.PrimExpr | None]) -> str:
    return f"({', '.join('?' if d is None else str(d) for d in dims)})"


def _is_same(got: object, wanted: object) -> bool:
    """True if attributes are equal, or one is a number for all axes and the other has it for
    each."""
    for one, several in ((got, wanted), (wanted, got)):
        if isinstance(one, int) and isinstance(several, tuple | list):
            values = cast("Sequence[object]", several)
            return len(values) > 0 and all(each == one for each in values)
    return got == (tuple(cast("list[object]", wanted)) if isinstance(wanted, list) else wanted)


def _attribute(value: graph.Expr, key: str) -> object:
    if not isinstance(value, graph.Call):
        return None
    if key in value.attrs or not isinstance(value.op, graph.Op):
        return value.attrs.get(key)
    row = find_op(value.op.name)
    defaults = {p.name: p.default for p in row.params if p.kind == "attr"} if row else {}
    return defaults.get(key)
