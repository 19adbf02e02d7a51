"""Functions that build scalar expressions: `tir.exp(x)`, `tir.if_then_else(c, x, y)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr, highest, lowest
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferLoad, Evaluate, SeqStmt, Stmt


def const(value: Any, dtype: str | None = None, span: object = None) -> PrimExpr:
    """A constant: int32 or float32 unless a dtype is given."""
    default = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else None
    return expr.const(value, dtype or default)


def _binary(name: str, cls: type[expr.BinaryOp]) -> Callable[..., PrimExpr]:
    def build(a: Any, b: Any, span: object = None) -> PrimExpr:
        return expr.binary(cls, a, b)

    build.__name__ = name
    return build


_BINARY = {
    "floordiv": expr.FloorDiv, "floormod": expr.FloorMod, "indexdiv": expr.FloorDiv,
    "indexmod": expr.FloorMod, "truncdiv": expr.Div, "truncmod": expr.Mod, "max": expr.Max,
    "min": expr.Min, "div": expr.Div, "bitwise_and": expr.BitAnd, "bitwise_or": expr.BitOr,
    "bitwise_xor": expr.BitXor, "shift_left": expr.ShiftLeft, "shift_right": expr.ShiftRight,
}  # fmt: skip


def all(*args: Any, span: object = None) -> PrimExpr:  # noqa: A001 - TVM's name
    """The conjunction of conditions."""
    return expr.all_of([condition_of(a) for a in args])


def any(*args: Any, span: object = None) -> PrimExpr:  # noqa: A001
    """The disjunction of conditions."""
    return reduce(expr.Or, [condition_of(a) for a in args])


def condition_of(value: Any) -> PrimExpr:
    """A condition as an expression. Raises TypeError for a Python bool, which `==` of expressions
    gives: it compares them, and builds none."""
    if isinstance(value, bool):
        raise TypeError(
            "a condition is True or False where it is built: `==` compares expressions; "
            "write tvm.tir.EQ(x, y), or NE"
        )
    return value


def if_then_else(cond: Any, t: Any, f: Any, span: object = None) -> PrimExpr:
    """`t` where the condition holds, else `f`, of which one is evaluated."""
    then, other = alike(t, f)
    return expr.Call(then.dtype, "if_then_else", (condition_of(cond), then, other))


def alike(t: Any, f: Any) -> tuple[PrimExpr, PrimExpr]:
    """Two values as expressions, a number of the dtype of the other."""
    like = next((v.dtype for v in (t, f) if isinstance(v, PrimExpr)), None)
    return expr.as_expr(t, like), expr.as_expr(f, like)


def likely(cond: Any, span: object = None) -> PrimExpr:
    """The condition."""
    return condition_of(cond)


def ceildiv(lhs: Any, rhs: Any, span: object = None) -> PrimExpr:
    """The quotient, rounded up."""
    return expr.binary(expr.FloorDiv, lhs + rhs - 1, rhs)


def power(x: Any, y: Any, span: object = None) -> PrimExpr:
    """x to the power of y."""
    base, exponent = alike(x, y)
    return expr.Call(base.dtype, "pow", (base, exponent))


def abs(x: Any, span: object = None) -> PrimExpr:  # noqa: A001
    """The absolute value."""
    value = expr.as_expr(x)
    if is_float(value.dtype):
        return expr.Call(value.dtype, "fabs" if "fabs" in INTRINSICS else "abs", (value,))
    return expr.Call(value.dtype, "abs", (value,))


_LARGEST = {
    name: (2 - 2.0**-digits) * 2.0**exponent
    for name, digits, exponent in (
        ("float16", 10, 15), ("bfloat16", 7, 127), ("float32", 23, 127), ("float64", 52, 1023),
    )
}  # fmt: skip
"""The largest finite numbers of dtypes, by the bits of their fractions and their exponents."""


def max_value(dtype: str, span: object = None) -> PrimExpr:
    """The largest number of a dtype, infinity aside."""
    return expr.const(_LARGEST[dtype], dtype) if is_float(dtype) else highest(dtype)


def min_value(dtype: str, span: object = None) -> PrimExpr:
    """The smallest number of a dtype, infinity aside."""
    return expr.const(-_LARGEST[dtype], dtype) if is_float(dtype) else lowest(dtype)


def infinity(dtype: str, span: object = None) -> PrimExpr:
    """Infinity."""
    return expr.const(float("inf"), dtype)


def call_intrin(dtype: str, func_name: Any, *args: Any, span: object = None) -> PrimExpr:
    """A call of an intrinsic, by its name with TVM's prefix or without."""
    name = str(getattr(func_name, "name", func_name)).rpartition(".")[2]
    if name not in INTRINSICS:
        raise ValueError(f"there is no intrinsic {name!r}")
    return expr.Call(dtype, name, tuple(map(expr.as_expr, args)))


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: object = None) -> PrimExpr:
    """A call of a function of C without effects."""
    name = expr.StringImm(func_name)
    return expr.Call(dtype, "call_pure_extern", (name, *map(expr.as_expr, args)))


def convert(value: Any) -> Any:
    """A number as an expression, a list or tuple item by item; what is none of these itself."""
    if isinstance(value, list | tuple):
        return [convert(v) for v in value]
    return const(value) if isinstance(value, bool | int | float) else value


def stmt_seq(*args: Any) -> Stmt:
    """Statements, or expressions that are evaluated, in order."""
    items = [a if isinstance(a, Stmt) else Evaluate(expr.as_expr(a)) for a in args]
    return items[0] if len(items) == 1 else SeqStmt(tuple(items))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, of sequences inside it too; another statement alone."""
    if not isinstance(stmt, SeqStmt):
        return [stmt]
    return [s for item in stmt.stmts for s in stmt_list(item)]


def address(buffer: Buffer) -> PrimExpr:
    """The address of the first element of a buffer."""
    zeros = tuple(const(0, d.dtype) for d in buffer.shape)
    return expr.Call("handle", "address_of", (BufferLoad(buffer, zeros),))


def _argument(value: Any, dtype: str | None) -> PrimExpr:
    """An argument of an intrinsic: a text as it is, a buffer as the description of an array."""
    match value:
        case str():
            return expr.StringImm(value)
        case Buffer():
            shape = expr.Call("handle", "tvm_stack_make_shape", value.shape)
            first = value.elem_offset if value.elem_offset is not None else const(0)
            ndim, like = const(len(value.shape)), const(0, value.dtype)
            parts = (address(value), shape, const(0), ndim, like, first)
            return expr.Call("handle", "tvm_stack_make_array", parts)
        case _:
            return expr.as_expr(value, dtype)


def _intrinsic(name: str) -> Callable[..., PrimExpr]:
    row = INTRINSICS[name]

    def build(*args: Any, span: object = None, **options: Any) -> PrimExpr:
        given = [*args]
        dtype: Any = options.get("dtype")
        if row.result == "given" and dtype is None and given and isinstance(given[0], str):
            dtype = given.pop(0)
        floats = len(given) if row.result == "same" else 1
        values = [
            _argument(a, "float32" if row.floats and i < floats else None)
            for i, a in enumerate(given)
        ]
        if row.arity >= 0 and len(values) != row.arity:
            raise TypeError(f"tir.{name} takes {row.arity} arguments, got {len(values)}")
        result = row.dtype(values) or dtype
        if result is None:
            raise TypeError(f"tir.{name} needs the dtype of its result, `dtype=`")
        return expr.Call(result, name, tuple(values))

    build.__name__ = name
    return build


def __getattr__(name: str) -> Callable[..., PrimExpr]:
    if name in _BINARY:
        return _binary(name, _BINARY[name])
    if name in INTRINSICS:
        return _intrinsic(name)
    raise AttributeError(f"tvm.tir.op.{name} is not among the names of TVM that relaxlab has")
