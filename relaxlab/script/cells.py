"""Scalars that a loop function assigns again, or declares without a value (`x: T.int32 = 0`, then
`x = x + 1`): elements of memory of their own. The name of a buffer of one element stands for it,
too."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_float, is_int, lanes_of
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.loops import Buffer, BufferLoad
from relaxlab.script.convert import FIRST, is_single, scalar_of
from relaxlab.script.core import Context, Unbound
from relaxlab.script.values import Value


def reassigned(body: Iterable[ast.stmt]) -> set[str]:
    """The names of scalars, annotated with a dtype, that have no value at first or several."""
    declared: set[str] = set()
    assigned: set[str] = set()
    for n in (n for stmt in body for n in ast.walk(stmt)):
        match n:
            case ast.AnnAssign(target=ast.Name(name), annotation=ast.Attribute(attr=kind)):
                if kind != "let":
                    declared.add(name)
                    assigned |= {name} if n.value is None else set()
            case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
                assigned.add(name)
            case _:
                pass
    return declared & assigned


def cell(name: str, dtype: str, scope: str = "local") -> BufferLoad:
    """The element of new memory of one scalar."""
    return BufferLoad(Buffer(name, (IntImm(1),), dtype, scope=scope), FIRST)


def cell_of(
    cx: Context, target: ast.expr, names: set[str], value: Value = 0
) -> BufferLoad | None:
    """The element of memory that a name stands for where it is given a value."""
    if not isinstance(target, ast.Name):
        return None
    try:
        held = cx.find(target.id)
    except Unbound:
        return None  # another loop or branch declares that name
    if isinstance(value, PrimExpr | int | float | Buffer) and is_single(held):
        return BufferLoad(held, FIRST)
    return held if isinstance(held, BufferLoad) and target.id in names else None


def store_cell(cx: Context, held: BufferLoad, value: Value, stmt: ast.stmt) -> loops.Stmt:
    """The statement that gives a scalar another value."""
    buffer = held.buffer
    stored = scalar_of(cx, value, stmt, buffer.dtype)
    stored = converted(cx, stored, buffer.dtype, buffer, stmt)
    return loops.BufferStore(buffer, stored, held.indices, span=cx.span(stmt))


def converted(
    cx: Context, value: PrimExpr, dtype: str, buffer: loops.Buffer, stmt: ast.stmt
) -> PrimExpr:
    """`value` as an element of `buffer`, widened or narrowed within its kind as TVM does; a bool is
    0 or 1."""
    if value.dtype == dtype:
        return value
    span = cx.span(stmt)
    if lanes_of(value.dtype) == 1 < lanes_of(dtype):
        value = expr.Broadcast(value, lanes_of(dtype), span=span)
    if value.dtype == dtype:
        return value
    whole = is_int(value.dtype) or value.dtype.partition("x")[0] == "bool"
    kinds = (is_float(dtype) and (is_float(value.dtype) or whole)) or (is_int(dtype) and whole)
    if lanes_of(value.dtype) != lanes_of(dtype) or not kinds:
        cx.fail(
            stmt,
            "E0110",
            f"a value of {value.dtype} is stored into {buffer.name}, which holds "
            f"{buffer.dtype}",
            help=f'convert it: `T.Cast("{dtype}", ...)`',
        )
    return expr.Cast(dtype, value, span=span)


def narrowed(value: PrimExpr, dtype: str) -> PrimExpr:
    """An integer as one of `dtype`. The choices of a selection are narrowed one by one: beside an
    index, which is int64, one of int32 was widened."""
    match value:
        case expr.Cast(value=inner) if inner.dtype == dtype and value.dtype == "int64":
            return inner
        case expr.Select(condition, chosen, other):
            both = narrowed(chosen, dtype), narrowed(other, dtype)
            return expr.Select(condition, *both, span=value.span)
        case _:
            return value if value.dtype == dtype else expr.Cast(dtype, value, span=value.span)
