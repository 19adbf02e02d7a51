"""Scalar expressions: one language for tensor dimensions and for loop indices.

Expressions compare by value (variables by identity), so they can be dictionary keys. Python's
arithmetic operators, and `<`, `<=`, `>` and `>=`, build expressions and fold constants; `==`
compares and never builds.
Integers are `int64` unless said otherwise; both operands of a binary node have the same dtype.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, TypeAlias, cast

from relaxlab.ir.brief import cut
from relaxlab.ir.dtypes import (
    bits_of,
    element_of,
    is_float,
    is_int,
    is_uint,
    lanes_of,
    with_lanes,
)
from relaxlab.ir.errors import kind_of
from relaxlab.ir.node import Atom, Node, binder, field_names, field_values, node
from relaxlab.ir.plain import plain
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS, ScalarOperator


class PrimExpr(Node):
    """A scalar (or short-vector) expression with a `dtype`."""

    __slots__ = ("_hash",)

    @property
    def dtype(self) -> str:
        raise NotImplementedError

    def _key(self) -> tuple[Any, ...]:
        return field_values[type(self)](self)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self), self._key()))
            _set_hash(self, value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self._key() == other._key()  # type: ignore[attr-defined]

    def __add__(self, other: ExprLike) -> PrimExpr:
        return _infix(Add, self, other)

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return _infix(Add, other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return _infix(Sub, self, other)

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return _infix(Sub, other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return _infix(Mul, self, other)

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return _infix(Mul, other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return _infix(Div, self, other)

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return _infix(Div, other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return _infix(FloorDiv, self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return _infix(FloorDiv, other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return _infix(FloorMod, self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return _infix(FloorMod, other, self)

    def __neg__(self) -> PrimExpr:
        return binary(Sub, const(0, self.dtype), self)

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return _infix(LT, self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return _infix(LE, self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return _infix(GT, self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return _infix(GE, self, other)

    def __str__(self) -> str:
        return format_expr(self)

    def brief(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({cut(str(self))}: {self.dtype})"


_set_hash = PrimExpr._hash.__set__  # type: ignore[attr-defined]

ExprLike: TypeAlias = "PrimExpr | int | float"


@node
class Var(PrimExpr, Atom):
    """A scalar variable: a symbolic dimension, a loop variable, a scalar parameter."""

    name: str
    var_dtype: str = "int64"

    @property
    def dtype(self) -> str:
        return self.var_dtype

    # By identity, as objects compare; in C, as variables are what most tables are looked up by.
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]
    __hash__ = object.__hash__


OUTER = "i"
"""The name that messages and scripts give the index along the outermost dimension."""


@node
class OuterIndex(PrimExpr):
    """The index along the outermost dimension, of `count` elements, of a ragged tensor: what an
    extent such as i + 1, that of row i of a triangle, depends on."""

    count: PrimExpr

    @property
    def dtype(self) -> str:
        return "int64"


INNER = "j"
"""The name that messages and scripts give the index along the rows of a sequence."""


@node
class InnerLength(PrimExpr):
    """`t[i, j]`: the length of row j of sequence i. `outer` has the lengths of the sequences, and
    `each` those of the rows of all sequences, which lie behind each other."""

    each: Var
    outer: Var

    @property
    def dtype(self) -> str:
        return "int64"


@node
class IntImm(PrimExpr):
    """An integer (or bool) constant."""

    value: int
    imm_dtype: str = "int64"

    @property
    def dtype(self) -> str:
        return self.imm_dtype

    # Constants and operations are most of what is hashed: these read their fields directly.
    def __hash__(self) -> int:
        return hash((self.value, self.imm_dtype))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is IntImm
            and self.value == other.value
            and self.imm_dtype == other.imm_dtype
        )


@node
class FloatImm(PrimExpr):
    """A floating-point constant."""

    value: float
    imm_dtype: str = "float32"

    @property
    def dtype(self) -> str:
        return self.imm_dtype

    def _key(self) -> tuple[Any, ...]:  # NaN equals itself, and -0.0 differs from 0.0
        return (self.value.hex() if math.isfinite(self.value) else str(self.value), self.imm_dtype)


@node
class StringImm(PrimExpr):
    """A string constant: the name of an external function, a message."""

    value: str

    @property
    def dtype(self) -> str:
        return "handle"


@node
class Cast(PrimExpr):
    """Conversion to `to`: floats to integers truncate and saturate, NaN gives 0; integers wrap."""

    to: str
    value: PrimExpr

    @property
    def dtype(self) -> str:
        return self.to


@node
class BinaryOp(PrimExpr):
    """Base of the arithmetic nodes; `a` and `b` have one dtype, which is the result's."""

    a: PrimExpr
    b: PrimExpr

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self), self.a, self.b))
            _set_hash(self, value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self.a == other.a and self.b == other.b  # type: ignore[attr-defined]

    @property
    def dtype(self) -> str:
        # Down long sums without a call for each term: each node that is built asks for it.
        a = self.a
        while isinstance(a, BinaryOp) and not isinstance(a, CmpOp):
            a = a.a
        return a.dtype

    @property
    def row(self) -> ScalarOperator:
        """The row of the operator: its spelling and its values."""
        return SCALAR_OPERATORS[type(self).__name__]


class Add(BinaryOp):
    """a + b"""

    __slots__ = ()


class Sub(BinaryOp):
    """a - b"""

    __slots__ = ()


class Mul(BinaryOp):
    """a * b"""

    __slots__ = ()


class Div(BinaryOp):
    """a / b; integers truncate toward zero."""

    __slots__ = ()


class Mod(BinaryOp):
    """Remainder of the truncating division."""

    __slots__ = ()


class FloorDiv(BinaryOp):
    """a // b, rounding toward negative infinity."""

    __slots__ = ()


class FloorMod(BinaryOp):
    """a % b with the sign of b, as in Python."""

    __slots__ = ()


class Min(BinaryOp):
    """The smaller operand; NaN if either is NaN."""

    __slots__ = ()


class Max(BinaryOp):
    """The larger operand; NaN if either is NaN."""

    __slots__ = ()


class BitOp(BinaryOp):
    """Base of the bitwise nodes on integers."""

    __slots__ = ()


class BitAnd(BitOp):
    """a & b"""

    __slots__ = ()


class BitOr(BitOp):
    """a | b"""

    __slots__ = ()


class BitXor(BitOp):
    """a ^ b"""

    __slots__ = ()


class ShiftLeft(BitOp):
    """a << b"""

    __slots__ = ()


class ShiftRight(BitOp):
    """a >> b: arithmetic for signed, logical for unsigned operands."""

    __slots__ = ()


class CmpOp(BinaryOp):
    """Base of the comparisons; the result is bool."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        return with_lanes("bool", lanes_of(self.a.dtype))

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self}` has no truth value in Python, where `if`, `and`, `min` and `sorted` ask for "
            "one; write T.if_then_else, T.And or T.min"
        )


class EQ(CmpOp):
    """a equals b"""

    __slots__ = ()


class NE(CmpOp):
    """a differs from b"""

    __slots__ = ()


class LT(CmpOp):
    """a < b"""

    __slots__ = ()


class LE(CmpOp):
    """a <= b"""

    __slots__ = ()


class GT(CmpOp):
    """a > b"""

    __slots__ = ()


class GE(CmpOp):
    """a >= b"""

    __slots__ = ()


class And(BinaryOp):
    """Logical and of bools."""

    __slots__ = ()


class Or(BinaryOp):
    """Logical or of bools."""

    __slots__ = ()


@node
class Not(PrimExpr):
    """Logical negation of a bool."""

    a: PrimExpr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@node
class Select(PrimExpr):
    """`true_value if condition else false_value`; both sides may be evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    @property
    def dtype(self) -> str:
        return self.true_value.dtype


@node
class Let(PrimExpr):
    """`body` with `var` standing for `value`."""

    var: Var = binder()
    value: PrimExpr
    body: PrimExpr

    @property
    def dtype(self) -> str:
        return self.body.dtype


@node
class Ramp(PrimExpr):
    """The vector `base, base + stride, …` of `lanes` lanes."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int

    @property
    def dtype(self) -> str:
        return with_lanes(self.base.dtype, self.lanes)


@node
class Broadcast(PrimExpr):
    """The scalar `value` in every one of `lanes` lanes."""

    value: PrimExpr
    lanes: int

    @property
    def dtype(self) -> str:
        return with_lanes(self.value.dtype, self.lanes)


@node
class Call(PrimExpr):
    """A call of the intrinsic `op` (`exp`, `if_then_else`, `call_extern`, …), see `intrinsics`."""

    result_dtype: str
    op: str
    args: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        return self.result_dtype


_DTYPE_OF: dict[type, str] = {bool: "bool", int: "int64"}


def const(value: float, dtype: str | None = None) -> PrimExpr:
    """A constant; without a dtype, bool for bools, int64 for ints and float32 for floats."""
    value = plain(value) if dtype is None else value
    dtype = dtype or _DTYPE_OF.get(type(value), "float32")
    lanes, scalar = lanes_of(dtype), element_of(dtype)
    imm: PrimExpr
    imm = FloatImm(float(value), scalar) if is_float(scalar) else IntImm(int(value), scalar)
    return imm if lanes == 1 else Broadcast(imm, lanes)


def lowest(dtype: str) -> PrimExpr:
    """The identity of `Max`: -inf, False or the smallest integer."""
    if is_float(dtype):  # not the lowest finite number: the maximum of minus infinities is one
        return const(float("-inf"), dtype)
    if dtype == "bool" or is_uint(dtype):
        return const(0, dtype)
    return const(-(1 << (bits_of(dtype) - 1)), dtype)


def highest(dtype: str) -> PrimExpr:
    """The identity of `Min`: inf, True or the largest integer."""
    if is_float(dtype):
        return const(float("inf"), dtype)
    if dtype == "bool":
        return const(True)
    return const((1 << (bits_of(dtype) - (not is_uint(dtype)))) - 1, dtype)


def as_expr(value: ExprLike, like: str | None = None) -> PrimExpr:
    """`value` as an expression; Python numbers become constants of dtype `like`."""
    if isinstance(value, PrimExpr):
        return value
    number = plain(value)
    fits = like is None or is_float(like) or not isinstance(number, float)
    try:
        return const(number, like if fits else None)
    except (TypeError, ValueError):
        message = f"expected a number or an expression of the script, got {kind_of(value)}"
        raise TypeError(message) from None


def binary(cls: type[BinaryOp], a: ExprLike, b: ExprLike) -> PrimExpr:
    """Build `cls(a, b)`, giving Python numbers the other operand's dtype and folding constants.

    Raises TypeError when the dtypes differ: insert a `Cast`.
    """
    if not isinstance(a, PrimExpr):
        a = as_expr(a, b.dtype if isinstance(b, PrimExpr) else None)
    dtype = a.dtype
    if not isinstance(b, PrimExpr):
        b = as_expr(b, dtype)
    if dtype != b.dtype:
        a, b = _same_lanes(a, b)
        if a.dtype != b.dtype:
            raise TypeError(
                f"{cls.__name__} of {a.dtype} and {b.dtype}: {a} and {b}; "
                f"convert one of them with Cast({a.dtype!r}, …)"
            )
    if isinstance(a, IntImm) and isinstance(b, IntImm) and dtype in ("int64", "int32"):
        row = SCALAR_OPERATORS[cls.__name__]
        folds = row.arithmetic or issubclass(cls, CmpOp)
        if folds and not (row.is_division and b.value == 0):
            value = row.exact(a.value, b.value)
            return const(value, "bool" if issubclass(cls, CmpOp) else dtype)
    return _identity(cls, a, b) or cls(a, b)


def _infix(cls: type[BinaryOp], a: ExprLike, b: ExprLike) -> PrimExpr:
    """`binary` of the operands of one of Python's operators. One that is no number is asked itself:
    a tensor of `relaxlab.nn` knows what a symbol times it is."""
    for operand in (a, b):
        if not isinstance(operand, PrimExpr | int) and not hasattr(operand, "__float__"):
            return NotImplemented
    return binary(cls, a, b)


def _same_lanes(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    la, lb = lanes_of(a.dtype), lanes_of(b.dtype)
    if la == 1 < lb:
        return Broadcast(a, lb), b
    if lb == 1 < la:
        return a, Broadcast(b, la)
    return a, b


def _identity(cls: type[BinaryOp], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """x+0, x*1 and their like for integers; floats keep every operation."""
    if not is_int(a.dtype):
        return None
    av = a.value if isinstance(a, IntImm) else None
    bv = b.value if isinstance(b, IntImm) else None
    if cls is Add:
        return a if bv == 0 else b if av == 0 else None
    if cls is Sub:
        return a if bv == 0 else None
    if cls is Mul:
        if av == 0 or bv == 0:
            return a if av == 0 else b
        return a if bv == 1 else b if av == 1 else None
    if cls is FloorDiv and bv == 1:
        return a
    if cls is FloorMod and bv == 1:
        return const(0, a.dtype)
    return None


def if_then_else(condition: PrimExpr, value: PrimExpr, other: PrimExpr) -> PrimExpr:
    """One of two values; only that one is evaluated."""
    return Call(value.dtype, "if_then_else", (condition, value, other))


def all_of(conditions: list[PrimExpr] | tuple[PrimExpr, ...]) -> PrimExpr:
    """The conjunction; `True` when there is no condition."""
    true = IntImm(1, "bool")
    kept = [c for c in conditions if c != true]
    return reduce(And, kept) if kept else true


def format_expr(e: Node, parent: int = 0) -> str:
    """Plain text of an expression for messages; the script printer writes runnable text."""
    match e:
        case IntImm(value, "bool"):
            return str(bool(value))
        case IntImm(value) | FloatImm(value):
            return str(value)
        case StringImm(value):
            return repr(value)
        case Var(name):
            return name
        case OuterIndex():
            return OUTER
        case InnerLength(each):
            return f"{each.name.partition('[')[0]}[{OUTER}, {INNER}]"
        case BinaryOp(a, b) if (row := e.row).infix:
            text = f"{format_expr(a, row.level)} {row.infix} {format_expr(b, row.level + 1)}"
            return f"({text})" if row.level < parent else text
        case Cast(to, value):
            return f"{to}({format_expr(value)})"
        case Call(_, op, args):
            return f"{op}({', '.join(format_expr(a) for a in args)})"
        case _ if (buffer := getattr(e, "buffer", None)) is not None:
            indices = cast("tuple[PrimExpr, ...]", getattr(e, "indices", ()))
            return f"{buffer.name}[{', '.join(format_expr(i) for i in indices)}]"
        case _:
            parts: list[str] = []
            for name in field_names(type(e)):
                value = getattr(e, name)
                values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
                parts += [format_expr(v) if isinstance(v, PrimExpr) else _short(v) for v in values]
            return f"{type(e).__name__.lower()}({', '.join(parts)})"


def _short(value: Any) -> str:
    return str(getattr(value, "name", value))
