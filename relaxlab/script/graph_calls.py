"""Calls in graph functions: operators, cross-level calls, functions of the module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.data import Constructor
from relaxlab.ir.dtypes import is_dtype, is_float, is_int, numpy_dtype
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import REQUIRED, OpRow, Param, find_op, has_trait, op_names, op_row
from relaxlab.script.advice import known_elsewhere
from relaxlab.script.annotations import (
    TYPES,
    device_name,
    dimensions,
    is_virtual_device,
    outer_index,
    types_of,
)
from relaxlab.script.constants import decode_constant
from relaxlab.script.convert import (
    attribute_value,
    constant_int,
    dtype_of,
    elements,
    is_dimension,
    is_number,
    is_symbolic,
    literal,
    scalar_of,
    string_of,
)
from relaxlab.script.core import Arguments, Context
from relaxlab.script.members import MEMBERS, OUT_TYPED, PACKED, members_of
from relaxlab.script.values import (
    Arg,
    MatchCastValue,
    Ref,
    Value,
    describe,
    is_array,
    is_sequence,
)


def check_known(cx: Context, path: str, node: ast.AST) -> None:
    """Stop unless `R.path` is a function."""
    path = path.removeprefix("op.")  # `relax.op.add` is `R.add`
    if path in TYPES or path in _CALLS or find_op(path) is not None:
        return
    known = {*op_names(), *members_of("R"), "function"}
    if path in known:
        cx.fail(node, "E0104", f"R.{path} is a statement or decorator, not a value")
    last = path.rpartition(".")[2]
    moved = sorted(n for n in known if n.rpartition(".")[2] == last)
    other = known_elsewhere(last) or (moved[0] if moved else None)
    help = (
        f"did you mean 'R.{other}'?"
        if other
        else cx.suggest(f"R.{path}", {f"R.{name}" for name in known})
    )
    cx.fail(node, "E0103", f"R has no operator {path!r}", help=help)


def call(cx: Context, path: str, c: Arguments) -> Value:
    """The value of `R.path(...)`, which is known."""
    path = path.removeprefix("op.")
    handler = TYPES.get(path) or _CALLS.get(path)
    return _operator(cx, op_row(path), c) if handler is None else handler(cx, c)


# --- Operators of the table ---------------------------------------------------------------------


def _operator(cx: Context, row: OpRow, c: Arguments) -> graph.Call:
    ty_args = types_of(cx, c.kwargs.pop("ty_args", c.kwargs.pop("sinfo_args", None)))
    several = _taken_by_star(row, c)
    fixed = [p for p in row.params if not p.name.startswith("*")]
    bound = c.bind({p.name: p.default is not REQUIRED for p in fixed})
    given = [a.value for a in (*bound.values(), *several) if a is not None]
    dtype = _dtype_among(cx, given) if any(map(_needs_dtype, given)) else None
    values: list[graph.Expr] = []
    attrs: dict[str, Any] = {}
    for p in row.params:
        if p.name.startswith("*"):
            values += [value_of(cx, a, dtype) for a in several]
            continue
        given = bound[p.name]
        if p.kind == "value":
            if given is not None and given.value is not None:
                _no_gap(p, row, values, c)
                if type(given.value) is int and row.name.startswith(_ON_MEMORY):
                    given = Arg(literal(cx, given.value, "int64", given.node), given.node)
                shape = p.name == "shape" and is_sequence(given.value) and not given.value
                empty = graph.ShapeExpr((), span=cx.span(given.node))
                named = p.name == "dtype" and isinstance(given.value, str)
                of = graph.DataTypeImm(dtype_of(cx, given)) if named else None
                read = of or (empty if shape else value_of(cx, given, dtype))
                values.append(_present(row, read, values))
        else:
            item = p.default if given is None else _attr(cx, given)
            if item is not None or p.default is not None:
                attrs[p.name] = item
    span = cx.span(c.node)
    return graph.Call(graph.Op(row.name), tuple(values), Attrs(attrs), ty_args, span=span)


_ON_MEMORY = ("memory.", "builtin.", "vm.")
"""Operators whose numbers are sizes and places, not tensors."""


def _taken_by_star(row: OpRow, c: Arguments) -> list[Arg]:
    """The positional arguments that a parameter like `*values` takes; `c` keeps the others."""
    at = next((i for i, p in enumerate(row.params) if p.name.startswith("*")), len(c.args))
    taken, c.args = c.args[at:], c.args[:at]
    return taken


def _no_gap(p: Param, row: OpRow, values: list[graph.Expr], c: Arguments) -> None:
    """Arguments are stored by position: an optional one may not be left out before another."""
    position = [q.name for q in row.params if q.kind == "value"].index(p.name)
    while row.name == _VIEW and len(values) < position:
        values.append(_present(row, graph.Tuple(()), values))
    if position != len(values):
        missing = [q.name for q in row.params if q.kind == "value"][len(values)]
        c.wrong(f"needs {missing!r} when {p.name!r} is given", c.node)


_VIEW = "memory.view"
"""The operator of which each argument may be left out; an empty tuple stands for it."""


def _present(row: OpRow, value: graph.Expr, before: list[graph.Expr]) -> graph.Expr:
    """An argument, or where it is the absent shape of a view that of the tensor."""
    empty = isinstance(value, graph.Tuple) and not value.fields
    absent = row.name == _VIEW and len(before) == 1 and empty
    return graph.Call(graph.Op("shape_of"), (before[0],)) if absent else value


def _attr(cx: Context, arg: Arg) -> Any:
    value = arg.value
    if is_virtual_device(value):
        return device_name(cx, arg)
    if is_sequence(value) and any(isinstance(v, graph.PrimValue) for v in value):
        return tuple(_attr(cx, a) for a in elements(arg))
    if isinstance(value, Ref):
        return dtype_of(cx, arg)
    if isinstance(value, graph.PrimValue):
        value = value.value
    if isinstance(value, expr.IntImm | expr.FloatImm) and value.dtype != "bool":
        return value.value
    return attribute_value(cx, value, arg.node)


def _needs_dtype(value: Value) -> bool:
    """True if a bare number is among the values of an argument."""
    if is_sequence(value):
        return any(_needs_dtype(v) for v in value)
    return is_number(value)


def _dtype_among(cx: Context, values: Iterable[Value]) -> str | None:
    """The dtype that bare numbers take: that of the first tensor argument that has one and is no
    condition; beside conditions alone float32 if one of the numbers is a float."""
    values = tuple(values)
    found = [d for v in values for d in _dtypes_in(cx, v) if d != "bool"]
    return found[0] if found else "float32" if any(isinstance(v, float) for v in values) else None


def _dtypes_in(cx: Context, *values: Value) -> Iterator[str]:
    for value in values:
        match value:
            case graph.Expr():
                ty = cx.known.of(value, cx.module())
                if isinstance(ty, types.TensorType) and ty.dtype is not None:
                    yield ty.dtype
            case _ if is_array(value):
                yield value.dtype.name
            case _ if is_sequence(value):
                yield from _dtypes_in(cx, *value)
            case _:
                pass


def value_of(cx: Context, arg: Arg, dtype: str | None = None) -> graph.Expr:
    """A graph-level value; numbers become constants (of `dtype` when it suits them), tuples of
    dimensions become shapes, other tuples become tuples."""
    value, span = arg.value, cx.span(arg.node)
    match value:
        case graph.Expr():
            return value
        case PrimExpr():
            return graph.PrimValue(value, span=span)
        case bool() | int() | float():
            return graph.Constant(_scalar_array(cx, value, dtype, arg.node), span=span)
        case _ if is_array(value):
            return constant(cx, value, arg.node)
        case str():
            return graph.StringImm(value, span=span)
        case types.ShapeType(values) if values is not None:
            return graph.ShapeExpr(values, span=span)
        case tuple() | list():
            items = elements(arg)
            if items and all(is_dimension(i.value) for i in items):
                return graph.ShapeExpr(dimensions(cx, arg), span=span)
            return graph.Tuple(tuple(value_of(cx, i, dtype) for i in items), span=span)
        case loops.PrimFunc() | graph.Function():
            return import_function(cx, value, _name_of(arg.node), arg.node)
        case Ref("R", path) if find_op(path) is not None:
            return graph.Op(path, span=span)
        case _:
            cx.fail(arg.node, "E0106", f"a graph-level value is needed, not {describe(value)}")


def construct(cx: Context, of: Constructor, c: Arguments) -> graph.Call:
    """The call that makes a value of a data type; a bare number takes the dtype of its field."""
    dtypes = [f.dtype if isinstance(f, types.TensorType) else None for f in of.fields]
    given = c.no_keywords()
    if len(given) != len(dtypes):
        c.wrong(f"takes {counted(len(dtypes), 'field')}, got {len(given)}", c.node, f"it is {of!r}")
    fields = [value_of(cx, a, d) for a, d in zip(given, dtypes, strict=True)]
    attrs = Attrs(data=of.data, constructor=of.name, tag=of.tag)
    return graph.Call(graph.Op("adt.construct"), tuple(fields), attrs, span=cx.span(c.node))


def _name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(_, name):
            return name
        case _:
            return "function"


def _scalar_array(
    cx: Context, value: Any, dtype: str | None, node: ast.AST
) -> np.ndarray[Any, Any]:
    fits = dtype is not None and (is_float(dtype) or (is_int(dtype) and type(value) is int))
    kind = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    return _array(cx, value, dtype if fits and dtype else kind, node)


def _array(cx: Context, value: Any, dtype: str, node: ast.AST) -> np.ndarray[Any, Any]:
    try:
        return np.array(value, dtype=numpy_dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        cx.fail(node, "E0122", f"this is not a constant of dtype {dtype}: {error}")


def constant(cx: Context, data: np.ndarray[Any, Any], node: ast.AST) -> graph.Constant:
    """A captured array as a constant: a copy, which nobody writes to."""
    if not is_dtype(data.dtype.name):
        cx.fail(node, "E0122", f"an array of dtype {data.dtype} cannot be a constant")
    frozen = data.copy()
    frozen.setflags(write=False)
    return graph.Constant(frozen, span=cx.span(node))


def operator_call(cx: Context, name: str | None, a: Value, b: Value, node: ast.AST) -> graph.Call:
    """A Python operator on tensors: `x + y` is `R.add(x, y)`."""
    if name is None:
        cx.fail(node, "E0104", "this operator is not defined on tensors")
    if find_op(name) is None:
        cx.fail(node, "E0103", f"R has no operator {name!r} behind this Python operator")
    dtype = _dtype_among(cx, (a, b)) if _needs_dtype(a) or _needs_dtype(b) else None
    operands = [v for v in (a, b) if v is not None]
    assert isinstance(node, ast.expr)
    args = tuple(value_of(cx, Arg(v, node), dtype) for v in operands)
    return graph.Call(graph.Op(name), args, span=cx.span(node))


# --- Calling functions --------------------------------------------------------------------------


def call_value(cx: Context, callee: graph.Expr, c: Arguments) -> graph.Call:
    """`cls.f(x)`, or a call of a function value."""
    ty_args = types_of(cx, c.kwargs.pop("ty_args", c.kwargs.pop("sinfo_args", None)))
    ty = callee.ty if isinstance(callee, graph.Var) else None
    params = (ty.params or ()) if isinstance(ty, types.FuncType) else ()
    if isinstance(callee, graph.ExternFunc):
        args = tuple(_packed_argument(cx, a) for a in c.args)
    else:
        args = tuple(_argument(cx, a, p) for a, p in zip_longest(c.args, params[: len(c.args)]))
    attrs = {k: attribute_value(cx, a.value, a.node) for k, a in c.kwargs.items()}
    return graph.Call(callee, args, Attrs(attrs), ty_args, span=cx.span(c.node))


def _packed_argument(cx: Context, arg: Arg) -> graph.Expr:
    """The argument of a packed function, which takes whole numbers as they are."""
    if type(arg.value) is int:
        return graph.PrimValue(expr.const(arg.value), span=cx.span(arg.node))
    return value_of(cx, arg)


def _packed_tuple(cx: Context, arg: Arg) -> Arg:
    fields = tuple(_packed_argument(cx, item) for item in elements(arg))
    return Arg(graph.Tuple(fields, span=cx.span(arg.node)), arg.node)


def _argument(cx: Context, arg: Arg, param: types.Type | None) -> graph.Expr:
    """The argument of a call; a bare number is a scalar where the function takes one."""
    if isinstance(param, types.PrimType) and is_number(arg.value):
        return graph.PrimValue(expr.const(arg.value, param.dtype), span=cx.span(arg.node))
    return value_of(cx, arg)


def import_function(cx: Context, fn: Any, name: str, node: ast.AST) -> graph.GlobalVar:
    """A function that was parsed before becomes a function of this module."""
    if not isinstance(fn, graph.Function | loops.PrimFunc | graph.ExternFunc):
        cx.fail(node, "E0102", f"that module has no function {name!r}")
    if not cx.in_module:
        cx.fail(
            node,
            "E0104",
            f"{name!r} cannot be called from a function outside a module",
            help="define both in a class with @I.ir_module",
        )
    for key, known in cx.functions.items():
        if known is fn:
            return graph.GlobalVar(key, span=cx.span(node))
    key, count = name, 0
    while key in cx.functions:
        count += 1
        key = f"{name}_{count}"
    cx.functions[key] = fn
    return graph.GlobalVar(key, span=cx.span(node))


def _tensors(cx: Context, arg: Arg, *, split: bool) -> tuple[graph.Expr, tuple[PrimExpr, ...]]:
    """The arguments of a cross-level call, and (with `split`) the trailing scalars among them,
    which are extra symbols."""
    value = arg.value
    if is_sequence(value):
        items = elements(arg)
        count = len(items)
        while split and count and is_symbolic(items[count - 1].value):
            count -= 1
        fields = tuple(value_of(cx, i) for i in items[:count])
        extra = tuple(scalar_of(cx, i.value, i.node) for i in items[count:])
        return graph.Tuple(fields, span=cx.span(arg.node)), extra
    one = value_of(cx, arg)
    is_tuple = isinstance(one, graph.Tuple) or (
        isinstance(one, graph.Var) and (isinstance(one.ty, types.TupleType) or one in cx.tuple_vars)
    )
    return (one if is_tuple else graph.Tuple((one,), span=cx.span(arg.node))), ()


_ATTRIBUTES = {
    "call_tir_inplace": ("inplace_indices",),
    "call_tir_with_grad": ("te_grad_name", "te_grad_kwargs"),
}


def _out_typed(name: str) -> Callable[[Context, Arguments], graph.Call]:
    given_attrs = _ATTRIBUTES.get(name, ())

    def handler(cx: Context, c: Arguments) -> graph.Call:
        for old in ("out_sinfo", "out_struct_info"):
            if old in c.kwargs:
                c.kwargs["out_ty"] = c.kwargs.pop(old)
        a = c.bind()
        func, args, out = a["func"], a["args"], a["out_ty"]
        assert func is not None and args is not None and out is not None
        callee = _callee(cx, func, extern=has_trait(name, "calls_packed"))
        symbols = a["tir_vars"]
        tensors, extra = _tensors(cx, args, split=symbols is None)
        if symbols is not None:
            extra = dimensions(cx, symbols)
        attrs: dict[str, Any] = {}
        for key in given_attrs:
            given = a[key]
            if key == "inplace_indices" and given is not None:
                attrs[key] = _indices(cx, given)
            elif given is not None:
                attrs[key] = attribute_value(cx, given.value, given.node)
        operands = [callee, tensors]
        if extra:
            operands.append(graph.ShapeExpr(extra, span=cx.span((symbols or args).node)))
        tys = types_of(cx, out)
        return graph.Call(graph.Op(name), tuple(operands), Attrs(attrs), tys, span=cx.span(c.node))

    return handler


def _indices(cx: Context, given: Arg) -> list[int]:
    items = elements(given) if is_sequence(given.value) else [given]
    return [constant_int(cx, i, "an index") for i in items]


def _callee(cx: Context, arg: Arg, *, extern: bool) -> graph.Expr:
    if isinstance(arg.value, str):
        if extern:
            return graph.ExternFunc(arg.value, span=cx.span(arg.node))
        cx.fail(
            arg.node,
            "E0106",
            f"the loop function is written `cls.{arg.value}`, not as a string",
        )
    callee = value_of(cx, arg)
    if not isinstance(callee, graph.GlobalVar | graph.ExternFunc | graph.Var):
        cx.fail(arg.node, "E0106", f"a function is needed here, not {describe(arg.value)}")
    return callee


def _call_packed(cx: Context, c: Arguments) -> graph.Call:
    if not c.args:
        c.wrong("needs the name of the function", c.node)
    name = string_of(cx, c.args[0], "the function")
    rest = Arguments(cx, c.node, c.name, c.args[1:], c.kwargs)
    return call_value(cx, graph.ExternFunc(name, span=cx.span(c.args[0].node)), rest)


def _packed_with(name: str) -> Callable[[Context, Arguments], graph.Call]:
    """Operators that are given the name of a registered function, then its arguments."""

    def handler(cx: Context, c: Arguments) -> graph.Call:
        if not c.args:
            c.wrong("needs the name of the function", c.node)
        callee = _callee(cx, c.args[0], extern=True)
        indices = c.kwargs.pop("inplace_indices", None)
        given = c.args[1:]
        if name == "call_builtin_with_ctx":  # whose arguments are a tuple
            given = [_packed_tuple(cx, a) if is_sequence(a.value) else a for a in given]
        inner = call_value(cx, callee, Arguments(cx, c.node, c.name, given, c.kwargs))
        attrs = inner.attrs
        if name == "call_inplace_packed":
            if indices is None:
                c.wrong("needs inplace_indices: which argument each result overwrites", c.node)
            attrs = Attrs(inplace_indices=_indices(cx, indices))
        args = (callee, *inner.args)
        return graph.Call(graph.Op(name), args, attrs, inner.ty_args, span=inner.span)

    return handler


# --- Values -------------------------------------------------------------------------------------


def _const(cx: Context, c: Arguments) -> graph.Constant:
    a = c.bind()
    value, dtype, shape = a["value"], a["dtype"], a["shape"]
    assert value is not None
    given = value.value
    name = None if dtype is None else dtype_of(cx, dtype)
    if isinstance(given, str):
        if name is None or shape is None:
            c.wrong("of compressed text needs its dtype and shape", c.node)
        dims = tuple(constant_int(cx, e, "an extent") for e in elements(_as_tuple(shape)))
        if min(dims, default=1) < 0:
            c.wrong("has a negative extent", shape.node)
        try:
            data = decode_constant(given, name, dims)
        except ValueError as error:
            cx.fail(value.node, "E0122", str(error))
        return graph.Constant(data, span=cx.span(c.node))
    if is_array(given):
        data = given if name is None else _array(cx, given, name, value.node)
        return constant(cx, data, c.node)
    if isinstance(given, expr.IntImm | expr.FloatImm):
        given, name = given.value, name or given.dtype
    if not _is_nested_number(given):
        cx.fail(value.node, "E0122", f"{describe(given)} is not a constant")
    if _shape_of(given) is None:
        cx.fail(value.node, "E0122", "the nested lists do not have one shape")
    if name is None:
        plain = np.array(given)
        name = {"b": "bool", "i": "int32"}.get(plain.dtype.kind, "float32")  # as in Relax
        if name == "int32" and np.any(plain != plain.astype(np.int32)):
            name = "int64"
    data = _array(cx, given, name, value.node)
    data.setflags(write=False)
    return graph.Constant(data, span=cx.span(c.node))


def _as_tuple(arg: Arg) -> Arg:
    return arg if is_sequence(arg.value) else Arg((arg.value,), arg.node)


def _is_nested_number(value: Value) -> bool:
    if is_sequence(value):
        return all(_is_nested_number(v) for v in value)
    return is_number(value)


def _shape_of(value: Value) -> tuple[int, ...] | None:
    """The shape of nested lists as an array; None when they have none."""
    if not is_sequence(value):
        return ()
    shapes = [_shape_of(v) for v in value]
    inner = shapes[0] if shapes else ()
    return None if inner is None or any(s != inner for s in shapes) else (len(value), *inner)


def _shape(cx: Context, c: Arguments) -> graph.ShapeExpr:
    values = c.bind()["values"]
    assert values is not None
    return graph.ShapeExpr(dimensions(cx, values), span=cx.span(c.node))


def _prim_value(cx: Context, c: Arguments) -> graph.Expr:
    value = c.bind()["value"]
    assert value is not None
    match value.value:
        case graph.Var(ty=types.PrimType(value=None)) as var:
            return var  # which is a scalar already
        case _:
            pass
    return graph.PrimValue(scalar_of(cx, value.value, value.node), span=cx.span(c.node))


def _str(cx: Context, c: Arguments) -> graph.StringImm:
    value = c.bind()["value"]
    assert value is not None
    return graph.StringImm(string_of(cx, value, "the value"), span=cx.span(c.node))


def _dtype(cx: Context, c: Arguments) -> graph.DataTypeImm:
    value = c.bind()["value"]
    assert value is not None
    return graph.DataTypeImm(dtype_of(cx, value), span=cx.span(c.node))


_KINDS = {1: "cpu", 2: "cuda"}
"""The kinds of devices by their numbers in DLPack."""
DEVICE_KINDS = (*_KINDS.values(), "metal", "opencl", "rocm", "vulkan")
"""The kinds of devices that a program names by a function: `R.cuda(0)`."""


def _device(cx: Context, c: Arguments) -> str:
    """The name of a device: "cuda:0"."""
    a = c.bind()
    given, index = a["device_type"], a["index"]
    assert given is not None
    number = 0 if index is None else constant_int(cx, index, "the number of the device")
    if given.value in _KINDS:
        return f"{_KINDS[given.value]}:{number}"
    kind, _, rest = string_of(cx, given, "the kind of device").partition(":")
    return f"{kind}:{rest or number}"


def _device_of(kind: str) -> Callable[[Context, Arguments], str]:
    def read(cx: Context, c: Arguments) -> str:
        index = c.bind()["index"]
        number = 0 if index is None else constant_int(cx, index, "the number of the device")
        return f"{kind}:{number}"

    return read


def _tuple(cx: Context, c: Arguments) -> graph.Tuple:
    return graph.Tuple(tuple(value_of(cx, a) for a in c.no_keywords()), span=cx.span(c.node))


def _tuple_item(cx: Context, c: Arguments) -> graph.TupleGetItem:
    a = c.bind()
    whole, index = a["tuple_value"], a["index"]
    assert whole is not None and index is not None
    number = constant_int(cx, index, "the index")
    return graph.TupleGetItem(value_of(cx, whole), number, span=cx.span(c.node))


def _emit(cx: Context, c: Arguments) -> graph.Expr:
    value = c.bind()["value"]
    assert value is not None
    return value_of(cx, value)


def _emit_with_type(cx: Context, c: Arguments) -> Value:
    """The call of an operator by its name, its arguments in a tuple."""
    if "sinfo_args" in c.kwargs:
        c.kwargs["ty_args"] = c.kwargs.pop("sinfo_args")
    a = c.bind()
    op, args, ty = a["op"], a["args"], a["ty_args"]
    assert op is not None and args is not None
    path = string_of(cx, op, "the operator").removeprefix("relax.")
    check_known(cx, path, op.node)
    given = elements(args) if is_sequence(args.value) else [args]
    member = MEMBERS.get(f"R.{path}")
    key = "out_ty" if member is not None and "out_ty" in member.optional else "ty_args"
    stated = {} if ty is None else {key: ty}
    return call(cx, path, Arguments(cx, c.node, f"R.{path}", given, stated))


def _extern(cx: Context, c: Arguments) -> graph.ExternFunc:
    name = c.bind()["name"]
    assert name is not None
    return graph.ExternFunc(string_of(cx, name, "the name"), span=cx.span(c.node))


def _match_cast(cx: Context, c: Arguments) -> MatchCastValue:
    for old in ("struct_info", "sinfo"):
        if old in c.kwargs:
            c.kwargs["ty"] = c.kwargs.pop(old)
    a = c.bind()
    value, ty = a["value"], a["ty"]
    assert value is not None and ty is not None
    return MatchCastValue(value_of(cx, value), types_of(cx, ty)[0])


_CALLS: dict[str, Callable[[Context, Arguments], Value]] = {
    **{name: _out_typed(name) for name in OUT_TYPED},
    **{name: _packed_with(name) for name in PACKED},
    "call_packed": _call_packed,
    "const": _const,
    "shape": _shape,
    "prim_value": _prim_value,
    "outer_index": outer_index,
    "str": _str,
    "dtype": _dtype,
    "device": _device,
    **{kind: _device_of(kind) for kind in DEVICE_KINDS},
    "tuple": _tuple,
    "ExternFunc": _extern,
    "match_cast": _match_cast,
    "ShapeExpr": _shape,
    "TupleGetItem": _tuple_item,
    "emit": _emit,
    "emit_match_cast": _match_cast,
    "emit_with_type": _emit_with_type,
    "emit_with_ty": _emit_with_type,
    "emit_with_sinfo": _emit_with_type,
}
