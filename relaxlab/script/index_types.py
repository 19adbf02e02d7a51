"""Loops over narrow integers, as TVM writes them, read as loops over int64.

The variable of a loop or an axis over int32 is an int64; its name stands for the variable converted
to int32, so that values calculated of it wrap as written. Indices, bounds and comparisons that are
calculated of nothing but such variables, elements of index functions and numbers are calculated in
int64: that they do not overflow is the program's promise, as everywhere.
"""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, is_int, lanes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.script.convert import cast
from relaxlab.script.core import Context
from relaxlab.script.values import Arg, is_sequence


def define_index(cx: Context, name: str, dtype: str, node: ast.AST) -> expr.Var:
    """The int64 variable of a loop, an axis or a symbol whose name is a value of `dtype`."""
    var = expr.Var(name, "int64", span=cx.span(node))
    if dtype != "int64":
        cx.narrow[var] = dtype
    cx.define(name, cast(var, dtype))
    return var


def with_wide_symbols(cx: Context, shape: Arg) -> Arg:
    """A shape in which symbols declared as int32 are int64, as they are from here on."""
    many = is_sequence(shape.value)
    dims: list[Any] = list(shape.value) if many else [shape.value]  # type: ignore[arg-type]
    narrow = [d for d in dims if isinstance(d, PrimExpr) and d.dtype == "int32"]
    wide: dict[expr.Var, PrimExpr] = {}
    for v in symbols_in(tuple(narrow)):
        if v in cx.narrow_symbols:
            var = define_index(cx, v.name, v.dtype, shape.node)
            cx.symbols[v.name].var = cx.widened[v] = var
            wide[v] = cast(var, v.dtype)
    if not wide:
        return shape
    dims = [substitute(d, wide) if isinstance(d, PrimExpr) else d for d in dims]
    return Arg(tuple(dims) if many else dims[0], shape.node)


def variable_of(cx: Context, e: object) -> expr.Var | None:
    """The variable that the name of a loop, an axis or a symbol stands for."""
    match e:
        case expr.Var():
            return e
        case expr.Cast(to, expr.Var() as var) if cx.narrow.get(var) == to:
            return var
        case _:
            return None


def index_of(cx: Context, e: PrimExpr) -> PrimExpr:
    """An index in int64 if it is calculated of narrow variables, elements of index functions and
    numbers alone, else `e`."""
    if not any(_is_element(n) or (isinstance(n, expr.Var) and n in cx.narrow) for n in walk(e)):
        return e
    return _wide(cx, e) or e


def _is_element(n: object) -> TypeGuard[loops.BufferLoad]:
    """True for an element of an index function, which is a number of rows or a place."""
    return isinstance(n, loops.BufferLoad) and bool(n.buffer.facts)


def range_of(cx: Context, r: loops.Range) -> loops.Range:
    """The range in int64, as loops, axes and regions need it."""
    return loops.Range(_bound(cx, r.min), _bound(cx, r.extent))


def _bound(cx: Context, e: PrimExpr) -> PrimExpr:
    e = index_of(cx, e)
    return e if e.dtype == "int64" else _wide(cx, e) or cast(e, "int64")


def comparands(cx: Context, a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The sides of a comparison, in int64 if both are indices or numbers."""
    wide = index_of(cx, a), index_of(cx, b)
    if wide == (a, b):
        return a, b
    x, y = _wide(cx, a), _wide(cx, b)
    return (a, b) if x is None or y is None else (x, y)


def _wide(cx: Context, e: PrimExpr) -> PrimExpr | None:
    """An index calculated in int64; None for data, whose arithmetic may wrap."""
    if not is_int(e.dtype) or lanes_of(e.dtype) > 1:
        return None
    match e:
        case expr.IntImm(value):
            return expr.IntImm(value, "int64", span=e.span)
        case expr.Var():
            return e if e.dtype == "int64" else None
        case loops.BufferLoad() if _is_element(e):
            return cast(e, "int64")
        case expr.Cast(to, value):
            if is_int(value.dtype) and bits_of(to) > bits_of(value.dtype):
                return _wide(cx, value)
            # As wide as the other operand, an element of an index function.
            whole = value if isinstance(value, expr.Var) and value.dtype == "int64" else None
            return variable_of(cx, e) or whole
        case expr.BinaryOp(a, b) if e.row.arithmetic and e.dtype in ("int32", "int64"):
            x, y = _wide(cx, a), _wide(cx, b)
            return None if x is None or y is None else type(e)(x, y, span=e.span)
        case _:
            return None
