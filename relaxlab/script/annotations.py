"""Reading annotations: `R.Tensor(("n", 4), "float32")` and its kin, and dimensions."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeGuard

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import walk
from relaxlab.script.convert import constant_int, dtype_of, elements, scalar_of, string_of
from relaxlab.script.core import Arguments, Context, Unbound
from relaxlab.script.index_types import index_of
from relaxlab.script.values import Arg, Ref, Value, describe, is_dict, is_sequence


def _scalar(cx: Context, arg: Arg) -> PrimExpr:
    """A number, an expression, or an expression in a string."""
    value = arg.value
    if isinstance(value, str):
        value = expression_in_string(cx, value, arg.node)
    return scalar_of(cx, value, arg.node)


def dimension(cx: Context, arg: Arg) -> PrimExpr:
    """One dimension, an int64."""
    dim = index_of(cx, _scalar(cx, arg))
    if not dim.dtype.startswith(("int", "uint")):
        cx.fail(arg.node, "E0106", f"a dimension must be an integer, not {dim.dtype}")
    if isinstance(dim, expr.IntImm):
        return expr.const(dim.value)
    if not any(isinstance(n, expr.Var) for n in walk(dim)):
        return expr.Cast("int64", dim, span=dim.span) if dim.dtype != "int64" else dim
    if dim.dtype != "int64":
        help = "declare symbols of shapes as `n = T.int64()`"
        cx.fail(arg.node, "E0106", f"a dimension must be int64, {dim} is {dim.dtype}", help=help)
    return dim


def expression_in_string(cx: Context, text: str, node: ast.expr) -> Value:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        cx.fail(node, "E0101", f"{text!r} is not an expression: {why}")
    own: set[ast.expr] = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.expr):
            ast.copy_location(part, node)
        if isinstance(part, ast.Subscript) and length_of_each(cx, part) is not None:
            own |= {part.value, part.slice}
        if isinstance(part, ast.Name) and part not in own:
            _introduce(cx, part)
    return cx.read(cx, tree)


def without_strings(cx: Context, shape: Arg) -> Arg:
    """A shape with the values of what strings in it say."""
    if not is_sequence(shape.value):
        return shape
    dims = (
        expression_in_string(cx, d, shape.node) if isinstance(d, str) else d for d in shape.value
    )
    return Arg(tuple(dims), shape.node)


def _introduce(cx: Context, name: ast.Name) -> None:
    """A symbol in a string exists from its first mention; it hides other meanings, except the
    script's namespaces."""
    try:
        visible = cx.find(name.id)
    except Unbound:
        visible = None
    if isinstance(visible, Ref) and visible.namespace != "builtins":
        return
    found = cx.symbol(name.id, name)
    if found is not None and not isinstance(visible, PrimExpr | graph.Var):
        cx.frames[-1][name.id] = found


def dimensions(cx: Context, arg: Arg) -> tuple[PrimExpr, ...]:
    """Dimensions: a tuple or list of them, a single one, or a shape value."""
    match arg.value:
        case tuple() | list():
            return tuple(dimension(cx, e) for e in elements(arg))
        case graph.ShapeExpr(values):
            return values
        case str() | int() | PrimExpr():
            return (dimension(cx, arg),)
        case _:
            cx.fail(arg.node, "E0106", f"a shape is needed here, not {describe(arg.value)}")


def type_of(cx: Context, arg: Arg) -> types.Type:
    """The annotation that a value stands for: `R.Tensor` bare, `None`, a scalar dtype."""
    value = arg.value
    match value:
        case types.Type():
            return value
        case None:
            return types.TupleType((), span=cx.span(arg.node))
        case Ref("R", path) if path in TYPES:
            call = ast.copy_location(ast.Call(arg.node, [], []), arg.node)
            return TYPES[path](cx, Arguments(cx, call, str(value), [], {}))
        case Ref("T", path) if is_dtype(path):
            return types.PrimType(path, span=cx.span(arg.node))
        case _:
            cx.fail(
                arg.node,
                "E0109",
                f'an annotation such as R.Tensor((n, 4), "float32") is needed here, '
                f"not {describe(value)}",
            )


def types_of(cx: Context, arg: Arg | None) -> tuple[types.Type, ...]:
    """One annotation, or a list or tuple of them."""
    if arg is None:
        return ()
    if is_sequence(arg.value):
        return tuple(type_of(cx, e) for e in elements(arg))
    return (type_of(cx, arg),)


def _ndim(cx: Context, arg: Arg | None) -> int:
    return -1 if arg is None else constant_int(cx, arg, "ndim")


def _tensor(cx: Context, c: Arguments) -> types.Type:
    a = c.bind()
    shape, dtype, device = a["shape"], a["dtype"], a["vdevice"]
    vdevice = "" if device is None or device.value is None else device_name(cx, device)
    if shape is not None and isinstance(shape.value, str) and is_dtype(shape.value):
        shape, dtype = None, shape  # R.Tensor("float32")
    if shape is not None and shape.value is None:
        shape = None
    name = None if dtype is None or dtype.value in (None, "") else dtype_of(cx, dtype)
    ndim = _ndim(cx, a["ndim"])
    if shape is not None and isinstance(shape.value, graph.Var):
        held = _held_shape(cx, shape)
        dims, ndim = held.values, ndim if ndim >= 0 else held.ndim
    else:
        dims = None if shape is None else dimensions(cx, shape)
    if dims is not None and ndim not in (-1, len(dims)):
        c.wrong(f"has ndim={ndim} and {len(dims)} dimensions", c.node)
    return types.TensorType(dims, name, ndim, vdevice=vdevice, span=cx.span(c.node))


def vdevice(cx: Context, c: Arguments) -> tuple[Value, int, str]:
    """A virtual device: its target, number and kind of memory."""
    a = c.bind()
    target, number, scope = a["target"], a["vdevice_id"], a["memory_scope"]
    assert target is not None
    described = is_dict(target.value) and isinstance(target.value.get("kind"), str)
    if not described and not isinstance(target.value, str):
        cx.fail(target.node, "E0106", f"{describe(target.value)} is not the name of a target")
    return (
        target.value,
        0 if number is None else constant_int(cx, number, "the number of the device"),
        "global" if scope is None else string_of(cx, scope, "the kind of memory"),
    )


def _dummy(cx: Context, c: Arguments) -> tuple[()]:
    c.no_keywords()
    return ()


GLOBAL_INFOS: dict[str, Callable[[Context, Arguments], Value]] = {
    "vdevice": vdevice,
    "dummy_global_info": _dummy,
}
"""The entries of `I.module_global_infos`, by their names in `I`."""


def is_virtual_device(value: Value) -> TypeGuard[tuple[Value, int, str]]:
    """True if a value is what `I.vdevice(...)` gives."""
    if not isinstance(value, tuple) or len(value) != 3:  # type: ignore[reportUnknownArgumentType]
        return False
    target, number, scope = value  # type: ignore[reportUnknownVariableType]
    kinds = isinstance(target, str) or is_dict(target)
    return kinds and type(number) is int and isinstance(scope, str)  # type: ignore[reportUnknownArgumentType]


def device_name(cx: Context, arg: Arg) -> str:
    """The name of a virtual device with its number and memory: "cuda" is "cuda:0:global"."""
    if is_virtual_device(arg.value):
        target, number, scope = arg.value
        kind = target["kind"] if is_dict(target) else target
        return f"{kind}:{number}:{scope}"
    return types.vdevice_named(string_of(cx, arg, "the device"))


def _held_shape(cx: Context, arg: Arg) -> types.ShapeType:
    """The type of a variable that holds a shape: its values are the dimensions, if it has some."""
    ty = cx.known.of(arg.value, cx.module())
    if not isinstance(ty, types.ShapeType):
        cx.fail(arg.node, "E0106", f"a shape is needed here, not {describe(arg.value)}")
    return ty


def _shape(cx: Context, c: Arguments) -> types.Type:
    a = c.bind()
    values = a["values"]
    dims = None if values is None or values.value is None else dimensions(cx, values)
    return types.ShapeType(dims, _ndim(cx, a["ndim"]), span=cx.span(c.node))


def _lengths(cx: Context, c: Arguments) -> types.Type:
    a = c.bind()
    sequences, rows, least, most = (a[n] for n in ("sequences", "rows", "at_least", "at_most"))
    assert sequences is not None and rows is not None
    limit = None if most is None else constant_int(cx, most, "at_most")
    low = 0 if least is None else constant_int(cx, least, "at_least")
    if low < 0:
        c.wrong(f"has at_least={low}; a length is not negative", c.node)
    shape, total = (dimension(cx, sequences),), dimension(cx, rows)
    each = types.Length(f"lengths[{types.DIMENSIONS[0]}]", span=cx.span(c.node))
    return types.LengthsType(shape, "int32", 1, total, limit, each, low, span=cx.span(c.node))


def length_of_each(
    cx: Context, node: ast.Subscript
) -> types.Length | expr.InnerLength | None:
    """The extent that `s[i]` is, where `s` is a parameter with the lengths of sequences; i is the
    name of the dimension that counts them, which means nothing outside of the shape. `t[i, j]` is
    that of row j of sequence i."""
    names = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if not isinstance(node.value, ast.Name) or not all(isinstance(n, ast.Name) for n in names):
        return None
    found = cx.lengths.get(node.value.id)
    if found is None or len(names) == 1:
        return None if found is None else found.each
    if len(names) > 2:
        cx.fail(node, "E0113", "an extent depends on two dimensions at most: t[i, j]")
    rows = [ty.each for ty in cx.lengths.values() if ty.total == found.shape[0]]
    if cx.rows in rows:
        return expr.InnerLength(found.each, cx.rows)
    if len(rows) != 1:
        these = f"the {found.shape[0]} lengths in {node.value.id}"
        what = f"{len(rows)} parameters have {these} as their rows" if rows else (
            f"no parameter before has sequences with {these} as their rows"
        )
        help = 'write s: R.Lengths("b", "n"), t: R.Lengths("n", "m")' if not rows else None
        cx.fail(node, "E0113", f"{node.value.id}[i, j] is the length of row j of sequence i, and "
                f"{what}", help=help)  # fmt: skip
    return expr.InnerLength(found.each, rows[0])


def _ragged(cx: Context, c: Arguments) -> types.Type:
    """The type of a tensor with named dimensions, some of which are as long as lengths, or the
    index along the first one, say."""
    a = c.bind()
    dims, dtype = a["dims"], a["dtype"]
    assert dims is not None and dtype is not None
    help = (
        'write {"i": "b", "j": "s[i]", "d": 512}, with s: R.Lengths("b", "n") before it, or '
        '{"i": "n", "j": "i + 1"} for a triangle'
    )
    if not is_dict(dims.value) or not 2 <= len(dims.value) <= len(types.DIMENSIONS):
        c.wrong("needs named dimensions, two or more", dims.node, help)
    outer, inner, *_ = dims.value
    for text in dims.value.values():
        _check_indices(c, text, outer, inner, dims.node, help)
    count, second, *others = dims.value.values()
    first = dimension(cx, Arg(count, dims.node))
    with _named(cx, outer, expr.OuterIndex(first)):
        rows = dimension(cx, Arg(second, dims.node))
        around, cx.rows = cx.rows, rows
        shape = (first, rows, *(dimension(cx, Arg(d, dims.node)) for d in others))
        cx.rows = around
    found = types.lengths_in(shape)
    if not found:
        c.wrong("has no dimension that differs from element to element", dims.node, help)
    for at in found:
        if isinstance(at, expr.OuterIndex) and at.count != first:
            c.wrong(f"has {first} elements, and an index below {at.count}", dims.node)
    for ty in cx.lengths.values():
        if ty.each in found and shape[0] != ty.shape[0]:
            c.wrong(f"has {shape[0]} sequences, and their lengths are {ty}", dims.node)
    _check_rows(c, shape, inner, dims.node)
    _check_extents(cx, c, shape, dims.node)
    return types.TensorType(shape, dtype_of(cx, dtype), span=cx.span(c.node))


@contextmanager
def _named(cx: Context, name: str, value: PrimExpr) -> Generator[None]:
    """A block in which a name stands for a value."""
    frame = cx.frames[-1]
    outer = frame.get(name)
    frame[name] = value
    try:
        yield
    finally:
        del frame[name]
        if outer is not None:
            frame[name] = outer


def outer_index(cx: Context, c: Arguments) -> expr.OuterIndex:
    """The index along the outermost dimension of ragged tensors with so many elements."""
    a = c.bind()
    assert a["count"] is not None
    return expr.OuterIndex(dimension(cx, a["count"]))


def _check_extents(cx: Context, c: Arguments, shape: tuple[PrimExpr, ...], node: ast.expr) -> None:
    """Check that no dimension that depends on the lengths of sequences may be negative."""
    an = Analyzer.for_shapes(shape)
    for ty in cx.lengths.values():
        an.bind(ty.each, ty.least, ty.most)
    for extent in filter(types.lengths_in, shape):
        if an.prove(expr.GE(extent, expr.const(0))) is not True:
            help = (
                'say how short a sequence may be: s: R.Lengths("b", "n", at_least=1)'
                if any(isinstance(s, types.Length) for s in types.lengths_in(extent))
                else None
            )
            c.wrong(f"has a dimension of {extent}, which may be negative", node, help)


def _check_rows(c: Arguments, shape: tuple[PrimExpr, ...], inner: str, node: ast.expr) -> None:
    """Check that a shape with the lengths of rows has these behind the dimension of the rows, and
    what differs from row to row in no other way."""
    outer = types.outer_lengths(shape)
    if outer is None:
        return
    if shape[1] != outer:
        c.wrong(f"has rows of {outer}, and {inner}, which counts them, is {shape[1]}", node)
    for at in types.lengths_in(shape[2:]):
        if not isinstance(at, expr.InnerLength):
            help = "let the dimensions after the second depend on t[i, j], or on none"
            c.wrong(f"has dimensions by the lengths of rows, and one by {at}", node, help)


def _check_indices(
    c: Arguments, text: object, outer: str, inner: str, node: ast.expr, help: str
) -> None:
    """Check that lengths in an extent are those at the positions in the outermost dimensions."""
    for at in re.findall(r"\[\s*([^\]]*?)\s*\]", text if isinstance(text, str) else ""):
        given = tuple(part.strip() for part in at.split(","))
        if given not in ((outer,), (outer, inner)):
            what = f"sequences are counted by {outer}, and their rows by {inner}"
            if len(given) == 1:
                what = f"sequences are counted by {outer}"
            c.wrong(f"has lengths at {at}, and {what}", node, help)


def _prim(cx: Context, c: Arguments) -> types.Type:
    a = c.bind()
    value = a["value"]
    if value is not None:
        known = _scalar(cx, value)
        return types.PrimType(known.dtype, known, span=cx.span(c.node))
    if a["dtype"] is None:
        c.wrong("needs a dtype or a value", c.node)
    return types.PrimType(dtype_of(cx, a["dtype"]), span=cx.span(c.node))


def _tuple(cx: Context, c: Arguments) -> types.Type:
    args = c.no_keywords()
    if len(args) == 1 and is_sequence(args[0].value):
        args = elements(args[0])
    return types.TupleType(tuple(type_of(cx, a) for a in args), span=cx.span(c.node))


def _callable(cx: Context, c: Arguments) -> types.Type:
    a = c.bind()
    params, ret, purity = a["params"], a["ret"], a["purity"]
    derive = a["derive_func"]
    if derive is not None:  # its name; what it derives is known only where it is called
        string_of(cx, derive, "the deriving function")
    known = None if params is None or params.value is None else types_of(cx, params)
    result = types.ObjectType() if ret is None else type_of(cx, ret)
    pure = known is not None if purity is None or purity.value is None else bool(purity.value)
    return types.FuncType(known, result, pure, span=cx.span(c.node))


def _object(cx: Context, c: Arguments) -> types.Type:
    c.bind()
    return types.ObjectType(span=cx.span(c.node))


TYPES: dict[str, Callable[[Context, Arguments], types.Type]] = {
    "Tensor": _tensor,
    "Lengths": _lengths,
    "Ragged": _ragged,
    "Shape": _shape,
    "Prim": _prim,
    "Tuple": _tuple,
    "Callable": _callable,
    "Object": _object,
    "Any": _object,
}


def own_symbol(cx: Context, ty: types.Type, name: str, node: ast.AST) -> types.Type:
    """The type of a parameter `name: T.int64`, which is a symbol usable in shapes."""
    if isinstance(ty, types.PrimType) and ty.value is None and ty.dtype.startswith(("int", "uint")):
        var = cx.symbol(name, node)
        if isinstance(var, expr.Var) and var.dtype == ty.dtype:
            return types.PrimType(ty.dtype, var, span=ty.span)
    return ty
