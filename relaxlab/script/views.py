"""Members of buffers beside their elements: the address, and views in other shapes.

A view is read away: its elements are written as those of the buffer behind it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops, row_major
from relaxlab.ir.dtypes import bits_of, bytes_of, is_dtype, lanes_of, with_lanes
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.annotations import dimension
from relaxlab.script.convert import dtype_of, literal, scalar_of, vector_indices
from relaxlab.script.core import Arguments, Context
from relaxlab.script.values import (
    Arg,
    Handle,
    Method,
    SliceAccess,
    Value,
    VectorStore,
    View,
    describe,
    is_sequence,
)

METHODS = ("vload", "vstore", "access_ptr", "view")


def member(cx: Context, base: Value, name: str, node: ast.AST) -> Value:
    """`A.data`, `A.strides` and the like of a buffer, and the dtype `ty` of a pointer; None for
    what a value does not have."""
    if not isinstance(base, loops.Buffer | View):
        return "handle" if isinstance(base, Handle) and name == "ty" else None
    buffer = base if isinstance(base, loops.Buffer) else base.buffer
    match name:
        case "shape" | "name":
            return getattr(base, name)
        case "dtype":
            return (isinstance(base, View) and base.dtype) or buffer.dtype
        case "data":
            return _address(cx, base, node)
        case "strides":
            is_view = not isinstance(base, loops.Buffer)
            return (base.strides or row_major.strides(base.shape)) if is_view else buffer.strides
        case "elem_offset":
            offset = buffer.elem_offset if isinstance(base, loops.Buffer) else base.offset
            return literal(cx, 0, "int64", node) if offset is None else offset
        case _ if name in METHODS:
            return Method(base, name)
        case _:
            return None


def _address(cx: Context, base: loops.Buffer | View, node: ast.AST) -> PrimExpr:
    """The address of the first element."""
    first = element(cx, base, tuple(literal(cx, 0, "int64", node) for _ in base.shape))
    return expr.Call("handle", "address_of", (first,), span=cx.span(node))


def call_member(
    cx: Context, base: loops.Buffer | View | PrimExpr, name: str, c: Arguments
) -> Value:
    """The value of `A.vload(...)` and the other calls of a buffer's members, and of
    `A[i].astype("float32")`."""
    if isinstance(base, PrimExpr):
        dtype = c.bind({"dtype": False})["dtype"]
        assert dtype is not None
        return expr.Cast(dtype_of(cx, dtype), base, span=cx.span(c.node))
    match name:
        case "vload":
            return _vload(cx, base, c)
        case "vstore":
            a = c.bind({"begin": False, "value": False})
            assert a["begin"] is not None and a["value"] is not None
            indices = _indices(cx, base, a["begin"])
            like = element(cx, base, indices).dtype
            value = scalar_of(cx, a["value"].value, a["value"].node, like)
            load = element(cx, base, _of_lanes(cx, indices, lanes_of(value.dtype), c.node))
            return VectorStore(load.buffer, load.indices, value)
        case "view":
            args = c.no_keywords()
            start = literal(cx, 0, "int64", c.node)
            if len(args) == 1 and isinstance(args[0].value, str) and is_dtype(args[0].value):
                return _whole_as(cx, base, args[0].value, c.node)
            return View(tuple(dimension(cx, a) for a in args), *_behind(base, start))
        case _:
            return _access_ptr(cx, base, c)


def _whole_as(cx: Context, base: loops.Buffer | View, dtype: str, node: ast.AST) -> View:
    """`A.view("float32")`: all bytes of a buffer as elements of a dtype."""
    count = prod(base.shape, start=expr.const(1))
    buffer, start = _behind(base, literal(cx, 0, "int64", node))
    size = _elements_in(cx, buffer, dtype, node)
    return View((_analyzer(cx).simplify(count // size),), buffer, start, dtype)


def _elements_in(cx: Context, buffer: loops.Buffer, dtype: str, node: ast.AST) -> int:
    """The number of elements of a buffer that are one of `dtype`."""
    count, rest = divmod(bytes_of(dtype), bytes_of(buffer.dtype))
    if rest or bits_of(dtype) < 8 or bits_of(buffer.dtype) < 8:
        cx.fail(
            node, "E0104", f"{buffer.name} holds {buffer.dtype} and cannot be seen as {dtype}",
            help="elements can be seen as larger ones, not as parts of them: convert them, "
            "`T.reinterpret(dtype, A[i])`",
        )  # fmt: skip
    return count


def dtype_seen(base: Value, place: loops.BufferLoad) -> str:
    """The dtype of an element, or of a vector of them."""
    if not isinstance(base, View) or not base.dtype:
        return place.dtype
    elements = bytes_of(place.dtype) // bytes_of(base.dtype)
    return with_lanes(base.dtype, elements * lanes_of(base.dtype))


def seen(base: Value, place: loops.BufferLoad | SliceAccess) -> PrimExpr | SliceAccess:
    """The value of an access: of bytes that are seen as elements, these."""
    if isinstance(place, SliceAccess) or dtype_seen(base, place) == place.dtype:
        return place
    return expr.Call(dtype_seen(base, place), "reinterpret", (place,), span=place.span)


def as_stored(base: Value, value: PrimExpr, place: loops.BufferLoad) -> PrimExpr:
    """A value as the bytes of an element; itself where elements are stored as they are."""
    if dtype_seen(base, place) == place.dtype:
        return value
    return expr.Call(place.dtype, "reinterpret", (value,), span=value.span)


def _vload(cx: Context, buffer: loops.Buffer | View, c: Arguments) -> PrimExpr:
    a = c.bind({"begin": False, "dtype": True})
    begin, dtype = a["begin"], a["dtype"]
    assert begin is not None
    indices = _indices(cx, buffer, begin)
    lanes = 1 if dtype is None or dtype.value is None else lanes_of(dtype_of(cx, dtype))
    return element(cx, buffer, _of_lanes(cx, indices, lanes, c.node))


def _of_lanes(
    cx: Context, indices: tuple[PrimExpr, ...], lanes: int, node: ast.AST
) -> tuple[PrimExpr, ...]:
    """The indices of as many elements in a row, from one on."""
    *outer, last = indices
    if lanes == 1 or lanes_of(last.dtype) > 1:
        return indices
    return (*outer, expr.Ramp(last, literal(cx, 1, last.dtype, node), lanes))


def _indices(cx: Context, buffer: loops.Buffer | View, begin: Arg) -> tuple[PrimExpr, ...]:
    items = begin.value if is_sequence(begin.value) else (begin.value,)
    indices = tuple(scalar_of(cx, i, begin.node) for i in items)
    if len(indices) != len(buffer.shape):
        cx.fail(begin.node, "E0113", f"{len(indices)} indices for {describe(buffer)}")
    return indices


def _access_ptr(cx: Context, buffer: loops.Buffer | View, c: Arguments) -> PrimExpr:
    """`A.access_ptr("r", offset=k)`: the address of the element with number k."""
    known = ("access_mask", "ptr_type", "content_lanes", "offset", "extent")
    a = c.bind(dict.fromkeys(known, True) | {"access_mask": False})
    first = literal(cx, 0, "int64", c.node)
    if a["offset"] is not None:
        first = dimension(cx, a["offset"])
    whole = View((), *_behind(buffer, first))
    return expr.Call("handle", "address_of", (element(cx, whole, ()),), span=cx.span(c.node))


def decl_buffer(cx: Context, c: Arguments, fields: dict[str, Any]) -> View | None:
    """The view that `T.decl_buffer(..., data=A.data)` declares; None where it allocates."""
    data = c.bind()["data"]
    if data is None or data.value is None:
        return None
    match data.value:
        case expr.Call("handle", "address_of", (loops.BufferLoad(buffer, indices),)):
            pass
        case _:
            cx.fail(
                data.node,
                "E0106",
                f"the memory of a buffer such as `A.data` is needed, not {describe(data.value)}",
            )
    dtype = fields.get("dtype", "float32")
    if _memory(buffer) is None:
        text = f"{buffer.name} has strides that are not those of rows, and one shape alone"
        cx.fail(c.node, "E0104", text)
    size = _elements_in(cx, buffer, dtype, c.node)
    shape, strides, offset = fields["shape"], fields.get("strides", ()), fields.get("elem_offset")
    if strides == row_major.strides(shape):
        strides = ()
    start = row_major.place(indices, _memory(buffer) or ())
    if isinstance(offset, PrimExpr):
        start = start + offset * size
    return View(shape, buffer, start, dtype if dtype != buffer.dtype else "", strides)


def _behind(base: loops.Buffer | View, first: PrimExpr) -> tuple[loops.Buffer, PrimExpr]:
    return (base, first) if isinstance(base, loops.Buffer) else (base.buffer, base.offset + first)


def _analyzer(cx: Context) -> Analyzer:
    """An analyzer that knows the ranges of the loops around."""
    analyzer = Analyzer()
    for var, values in cx.loops.items():
        analyzer.bind_range(var, values)
    return analyzer


def element(
    cx: Context, base: loops.Buffer | View, indices: tuple[PrimExpr, ...]
) -> loops.BufferLoad:
    """The element of a buffer, or the one that a view shows at `indices`."""
    if isinstance(base, loops.Buffer):
        return loops.BufferLoad(base, indices)
    if base.dtype:
        return _bytes_of_element(cx, base, indices)
    shape = base.buffer.shape
    strides = base.strides or base.buffer.strides
    if base.offset == expr.const(0) and base.shape == shape and not strides:
        return loops.BufferLoad(base.buffer, indices)
    number = _number(cx, base, indices)
    return loops.BufferLoad(base.buffer, _places(cx, base.buffer, number))


def _bytes_of_element(
    cx: Context, base: View, indices: tuple[PrimExpr, ...]
) -> loops.BufferLoad:
    """The elements of the buffer that an element of a view is, of a row of them those of all."""
    analyzer, size = _analyzer(cx), bytes_of(base.dtype) // bytes_of(base.buffer.dtype)
    number = _number(cx, replace(base, offset=expr.const(0)), indices)
    first, lanes = (number.base, number.lanes) if isinstance(number, expr.Ramp) else (number, 1)
    start, width = analyzer.simplify(base.offset + first * size), size * lanes
    if width == 1:
        return loops.BufferLoad(base.buffer, _places(cx, base.buffer, start))
    places = _places(cx, base.buffer, start)
    one = expr.const(1, places[-1].dtype)
    if not analyzer.prove(places[-1] + width <= base.buffer.shape[-1]):
        return loops.BufferLoad(
            base.buffer, _places(cx, base.buffer, expr.Ramp(start, one, width))
        )
    return loops.BufferLoad(base.buffer, (*places[:-1], expr.Ramp(places[-1], one, width)))


def _number(cx: Context, base: View, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The number of an element of a view in the buffer behind it; of a row of them, a vector."""
    last = indices[-1] if indices else None
    if not isinstance(last, expr.Ramp) or any(lanes_of(i.dtype) > 1 for i in indices[:-1]):
        strides = base.strides or row_major.strides(base.shape)
        terms = (i if s == expr.const(1) else i * s for i, s in zip(indices, strides, strict=True))
        return _analyzer(cx).simplify(sum(terms, start=base.offset))
    first = _number(cx, base, (*indices[:-1], last.base))
    stride = last.stride * base.strides[-1] if base.strides else last.stride
    return expr.Ramp(first, _analyzer(cx).simplify(stride), last.lanes, span=last.span)


def _places(cx: Context, buffer: loops.Buffer, number: PrimExpr) -> tuple[PrimExpr, ...]:
    """The indices of the element with a number, of a vector of them where there are several."""
    if len(buffer.shape) == 1:
        return (number,)
    analyzer, shape = _analyzer(cx), _memory(buffer) or buffer.shape
    places: list[PrimExpr] = []
    for i, stride in enumerate(row_major.strides(shape)):
        place = number if stride == expr.const(1) else number // stride
        places.append(analyzer.simplify(place if i == 0 else place % shape[i]))
    return tuple(places)


def _memory(buffer: loops.Buffer) -> tuple[PrimExpr, ...] | None:
    """The dimensions of the memory that a buffer lies in, in the order of rows: its own, or with
    strides, rows that are longer; None where its strides are not those of rows."""
    if not buffer.strides:
        return buffer.shape
    values = [s.value for s in buffer.strides if isinstance(s, expr.IntImm)]
    inner = [d.value for d in buffer.shape[1:] if isinstance(d, expr.IntImm)]
    if len(values) != len(buffer.shape) or len(inner) != len(values) - 1 or values[-1] != 1:
        return None
    rows = [outer // own for outer, own in pairwise(values) if own and outer % own == 0]
    if len(rows) != len(inner) or any(r < d for r, d in zip(rows, inner, strict=True)):
        return None
    return (buffer.shape[0], *map(expr.const, rows))


Part: TypeAlias = PrimExpr | tuple[PrimExpr, PrimExpr, int]
"""An index, or the start, extent and step of a slice."""


def view_access(
    cx: Context, view: View, parts: tuple[Part, ...], node: ast.AST
) -> loops.BufferLoad | SliceAccess:
    """`C[i, j]` of a view, or a slice along its last axis: a slice of the buffer behind it, or the
    vector of the elements where these do not lie in a row of its last axis."""
    indices = tuple(p for p in parts if isinstance(p, PrimExpr))
    if len(indices) == len(parts):
        return element(cx, view, indices)
    last = parts[-1]
    if isinstance(last, PrimExpr) or len(indices) < len(parts) - 1:
        what = f"a view of {view.name} has slices along its last axis only"
        cx.fail(node, "E0104", what, help="index it element by element")
    start, extent, step = last
    place = element(cx, view, (*indices, start)).indices
    inner = place[-1] + extent <= view.buffer.shape[-1]
    if view.dtype or view.strides:
        own = SliceAccess(view.buffer, ((start, extent, step),), cx.span(node))
        return element(cx, view, (*indices, *vector_indices(cx, own, node)))
    if len(place) == 1 or _analyzer(cx).prove(inner):
        return SliceAccess(view.buffer, (*place[:-1], (place[-1], extent, step)), cx.span(node))
    own = SliceAccess(view.buffer, ((start, extent, step),), cx.span(node))
    return element(cx, view, (*indices, *vector_indices(cx, own, node)))
