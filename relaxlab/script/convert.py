"""Conversions of values: numbers to scalar expressions, promotion, dimensions, plain values."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.dtypes import (
    bits_of,
    element_of,
    is_dtype,
    is_float,
    is_int,
    is_uint,
    lanes_of,
    with_lanes,
)
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.core import Context
from relaxlab.script.values import (
    Arg,
    Handle,
    Ref,
    SliceAccess,
    Value,
    describe,
    element_text,
    is_dict,
    is_sequence,
)


def literal(cx: Context, value: Any, dtype: str, node: ast.AST) -> PrimExpr:
    """A number as a constant of `dtype`; it must fit."""
    span = cx.span(node)
    scalar = element_of(dtype)
    if is_float(scalar):
        number: PrimExpr = expr.FloatImm(_to_float(cx, value, node), scalar, span=span)
    elif isinstance(value, float) and not value.is_integer():
        cx.fail(node, "E0110", f"{value!r} is not a value of dtype {dtype}")
    else:
        _check_range(cx, int(value), scalar, node)
        number = expr.IntImm(int(value), scalar, span=span)
    lanes = lanes_of(dtype)
    return number if lanes == 1 else expr.Broadcast(number, lanes, span=span)


def _to_float(cx: Context, value: Any, node: ast.AST) -> float:
    try:
        return float(value)
    except OverflowError:
        cx.fail(node, "E0121", "this number does not fit into a float")


def _check_range(cx: Context, value: int, dtype: str, node: ast.AST) -> None:
    if dtype == "handle":
        cx.fail(node, "E0110", "a handle cannot be written as a number")
    bits = 1 if dtype == "bool" else bits_of(dtype)
    unsigned = dtype == "bool" or is_uint(dtype)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        cx.fail(node, "E0121", f"{value} does not fit into {dtype} ({low} to {high})")


def default_dtype(value: Any) -> str:
    """The dtype of a bare number."""
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def is_number(value: Value) -> bool:
    """True if `value` is a Python number (booleans included)."""
    return isinstance(value, bool | int | float)


def is_dimension(value: Value) -> bool:
    """True if a value may stand in a shape: an integer or a scalar expression."""
    return isinstance(value, PrimExpr) or (isinstance(value, int) and not isinstance(value, bool))


def is_symbolic(value: Value) -> bool:
    """True if a value may stand in a shape, scalar parameters of graph functions included."""
    match value:
        case graph.Var(_, types.PrimType(_, known)):
            return known is not None
        case _:
            return is_dimension(value)


def is_scalar(value: Value) -> bool:
    """True for a scalar of the program: an expression, or a parameter whose value is one."""
    match value:
        case PrimExpr() | graph.PrimValue():
            return True
        case graph.Var(_, types.PrimType(_, known)):
            return known is not None
        case _:
            return False


FIRST = (expr.IntImm(0),)


def is_single(value: Value) -> TypeGuard[loops.Buffer]:
    """True for a buffer of one dimension and one element, whose name stands for it."""
    return isinstance(value, loops.Buffer) and value.shape == (expr.IntImm(1),)


def scalar_of(cx: Context, value: Value, node: ast.AST, like: str | None = None) -> PrimExpr:
    """`value` as a scalar expression; bare numbers take the dtype `like`."""
    match value:
        case PrimExpr():
            return value
        case bool():
            return literal(cx, value, "bool", node)
        case int() | float():
            fits = like is not None and (is_float(like) or (is_int(like) and type(value) is int))
            return literal(cx, value, like if fits and like else default_dtype(value), node)
        case SliceAccess():
            return vector_load(cx, value, node)
        case Handle():
            return pointer_of(cx, value)
        case graph.PrimValue(inner):
            return inner
        case graph.Var(_, types.PrimType(_, known)) if known is not None:
            return known
        case loops.Buffer() if is_single(value):
            return loops.BufferLoad(value, FIRST, span=cx.span(node))
        case loops.Buffer():
            cx.fail(
                node,
                "E0106",
                f"buffer {value.name} is used as a scalar",
                help=f"index it: `{element_text(value.name, value.ndim)}`",
            )
        case _:
            cx.fail(
                node,
                "E0106",
                f"a scalar expression is needed here, not {describe(value)}",
                help=_advice(value),
            )


def _advice(value: Value) -> str | None:
    match value:
        case Ref():
            return f"call it: `{value}(...)`"
        case tuple() if value and all(isinstance(v, expr.Var) for v in value):  # type: ignore
            names = ", ".join("ijkl"[: len(value)])  # type: ignore[reportUnknownArgumentType]
            return f"it is a tuple of variables: name each, as in `for {names} in T.grid(...)`"
        case _:
            return None


def pointer_of(cx: Context, handle: Handle) -> expr.Var:
    """The variable that a parameter without a buffer is."""
    return cx.pointers.setdefault(handle, expr.Var(handle.name, "handle", span=handle.span))


def vector_load(cx: Context, access: SliceAccess, node: ast.AST) -> PrimExpr:
    """`A[i, 0:8]` as a value: a load with a vector index."""
    return loops.BufferLoad(access.buffer, vector_indices(cx, access, node), span=access.span)


def vector_indices(cx: Context, access: SliceAccess, node: ast.AST) -> tuple[PrimExpr, ...]:
    """The indices of a vector access; slices become ramps."""
    out: list[PrimExpr] = []
    for part in access.parts:
        if isinstance(part, PrimExpr):
            out.append(part)
            continue
        start, extent, step = part
        if not isinstance(extent, expr.IntImm) or extent.value < 1:
            cx.fail(
                node,
                "E0106",
                "a slice used as a value needs a constant, positive length",
                help="loop over the elements, or use the slice in T.reads/T.writes only",
            )
        lanes = -(-extent.value // step)
        stride = literal(cx, step, start.dtype, node)
        out.append(start if lanes == 1 else expr.Ramp(start, stride, lanes, span=cx.span(node)))
    return tuple(out)


def promote(
    cx: Context,
    a: Value,
    b: Value,
    node: ast.AST,
    what: str,
    sides: tuple[ast.AST, ast.AST] | None = None,
) -> tuple[PrimExpr, PrimExpr]:
    """Two operands with one dtype, by TVM's rules: bare numbers follow the other operand, the
    wider type wins, integers become floats, scalars become vectors."""
    if is_number(a) and is_number(b):
        kind = "float32" if isinstance(a, float) or isinstance(b, float) else None
        return scalar_of(cx, a, node, kind), scalar_of(cx, b, node, kind)
    at_a, at_b = sides or (node, node)
    if is_number(a):
        right = scalar_of(cx, b, at_b)
        left = scalar_of(cx, a, at_a, element_of(right.dtype))
    else:
        left = scalar_of(cx, a, at_a)
        right = scalar_of(cx, b, at_b, element_of(left.dtype))
    left, right = _same_lanes(cx, left, right, node, what)
    if left.dtype == right.dtype:
        return left, right
    dtype = _common(left.dtype, right.dtype, mixed=not cx.computable)
    if dtype is None:
        cx.fail(
            node,
            "E0110",
            f"{what} of {left.dtype} and {right.dtype}",
            help=f'convert one of them: `T.Cast("{left.dtype}", ...)`',
        )
    return cast(left, dtype), cast(right, dtype)


def cast(value: PrimExpr, dtype: str) -> PrimExpr:
    """`value` converted to `dtype` unless it has it."""
    return value if value.dtype == dtype else expr.Cast(dtype, value)


def _same_lanes(
    cx: Context, a: PrimExpr, b: PrimExpr, node: ast.AST, what: str
) -> tuple[PrimExpr, PrimExpr]:
    la, lb = lanes_of(a.dtype), lanes_of(b.dtype)
    if la == lb:
        return a, b
    if la == 1:
        return expr.Broadcast(a, lb, span=cx.span(node)), b
    if lb == 1:
        return a, expr.Broadcast(b, la, span=cx.span(node))
    cx.fail(node, "E0110", f"{what} of vectors of {la} and {lb} lanes")


def _common(a: str, b: str, mixed: bool) -> str | None:
    """The dtype that both convert to implicitly, or None. Signed and unsigned integers, which have
    none, may be `mixed` as in TVM, where the wider one wins, else the unsigned one, and bool."""
    lanes = lanes_of(a)
    a, b = element_of(a), element_of(b)
    if is_float(a) and is_float(b):
        # float16 and bfloat16 have the same width, and neither holds the other's values.
        wider = a if bits_of(a) > bits_of(b) else b if bits_of(b) > bits_of(a) else None
        return None if wider is None else with_lanes(wider, lanes)
    if is_float(a) and is_int(b):
        return with_lanes(a, lanes)
    if is_int(a) and is_float(b):
        return with_lanes(b, lanes)
    if is_int(a) and is_int(b) and is_uint(a) == is_uint(b):
        return with_lanes(a if bits_of(a) > bits_of(b) else b, lanes)
    if mixed and not (is_float(a) and is_float(b)):
        rank = {dtype: (dtype != "bool", bits_of(dtype), is_uint(dtype)) for dtype in (a, b)}
        return with_lanes(max(rank, key=rank.__getitem__), lanes)
    return None


def dtype_of(cx: Context, arg: Arg) -> str:
    """A dtype written as a string, or as `T.float32`."""
    value = arg.value
    if isinstance(value, Ref) and value.namespace == "T" and is_dtype(value.path):
        return value.path
    if not isinstance(value, str):
        cx.fail(arg.node, "E0106", f"a dtype is needed here, not {describe(value)}")
    if not is_dtype(value):
        known = ("float32", "float16", "float64", "bfloat16", "int8", "int32", "int64", "uint8")
        cx.fail(
            arg.node,
            "E0111",
            f"unknown dtype {value!r}",
            help=cx.suggest(value, (*known, "bool", "handle", "int16", "uint16", "uint32"))
            or "write for example 'float32', 'int64', 'bool'",
        )
    return value


def constant_int(cx: Context, arg: Arg, what: str) -> int:
    """A Python integer (or an integer constant)."""
    value = arg.value
    if isinstance(value, expr.IntImm) and value.dtype != "bool":
        return value.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    cx.fail(arg.node, "E0106", f"{what} must be a constant integer, not {describe(value)}")


def string_of(cx: Context, arg: Arg, what: str) -> str:
    """A Python string."""
    if not isinstance(arg.value, str):
        cx.fail(arg.node, "E0106", f"{what} must be a string, not {describe(arg.value)}")
    return arg.value


def attribute_value(cx: Context, value: Value, node: ast.AST) -> Any:
    """A value that may stand in attributes and annotations."""
    match value:
        case None | bool() | str() | PrimExpr() | types.Type() | IndexMap() | loops.Reducer():
            return value
        case int():
            if not -(2**63) <= value < 2**64:
                cx.fail(node, "E0121", f"{value} does not fit into 64 bits")
            return value
        case float():
            return value
        case graph.StringImm(inner) | graph.DataTypeImm(inner) | graph.PrimValue(inner):
            return inner
        case loops.Buffer(name):  # a hint for schedules, which passes cannot keep up to date
            return name
        case _ if is_sequence(value):
            return tuple(attribute_value(cx, v, node) for v in value)
        case _ if is_dict(value):
            if not all(isinstance(k, str) for k in value):
                cx.fail(node, "E0106", "the keys of attributes are strings")
            return {k: attribute_value(cx, v, node) for k, v in value.items()}
        case _:
            cx.fail(node, "E0106", f"{describe(value)} cannot be an attribute")


def elements(arg: Arg) -> list[Arg]:
    """The elements of a tuple or list argument, each with its own place where there is one."""
    nodes: list[ast.expr] = []
    if isinstance(arg.node, ast.Tuple | ast.List):
        nodes = [e for e in arg.node.elts if not isinstance(e, ast.Starred)]
    values = list(arg.value)
    if len(nodes) != len(values):
        nodes = [arg.node] * len(values)
    return [Arg(v, n) for v, n in zip(values, nodes, strict=True)]
