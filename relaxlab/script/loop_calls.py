"""Calls of the loop level's namespace (`T.`) that give values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import count
from typing import Any

import ml_dtypes

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import (
    bits_of,
    is_dtype,
    is_float,
    is_uint,
    lanes_of,
    numpy_dtype,
)
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.node import Attrs
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS
from relaxlab.script.annotations import dimension, dimensions, without_strings
from relaxlab.script.convert import (
    attribute_value,
    cast,
    constant_int,
    dtype_of,
    elements,
    is_number,
    literal,
    promote,
    scalar_of,
    string_of,
)
from relaxlab.script.core import Arguments, Context
from relaxlab.script.index_types import variable_of, with_wide_symbols
from relaxlab.script.intrinsic_calls import (
    call_by_name,
    call_intrin,
    call_pure_extern,
    intrinsic,
    reinterpret,
    type_annotation,
)
from relaxlab.script.launch import attribute, env_thread, iter_var, launch_thread
from relaxlab.script.loop_specs import grid, loop_of, range_between
from relaxlab.script.members import ALIASES, MEMBERS, members_of
from relaxlab.script.ragged_buffers import facts_of, ragged_buffer
from relaxlab.script.values import (
    Arg,
    Axis,
    BufferDecl,
    Handle,
    Meta,
    Ref,
    SliceAccess,
    SymbolDecl,
    Value,
    describe,
    is_dict,
    is_sequence,
)
from relaxlab.script.vectors import broadcast, ramp, shuffle
from relaxlab.script.views import decl_buffer


def check_known(cx: Context, path: str, node: ast.AST) -> None:
    """Stop unless `T.path` is a function."""
    op = ALIASES.get(path, path)
    if path in _CALLS or op in BINARY or op in INTRINSICS or is_dtype(path):
        return
    if path in known_names():
        cx.fail(node, "E0104", f"T.{path} is a statement, not a value")
    help = cx.suggest(path, known_names())
    cx.fail(node, "E0103", f"T has no function {path!r}", help=help)


def call(cx: Context, path: str, c: Arguments) -> Value:
    """The value of `T.path(...)`, which is known."""
    stated = _stated_dtype(cx, path, c)
    value = _called(cx, path, c, stated)
    if stated is not None and isinstance(value, PrimExpr) and value.dtype != stated:
        cx.fail(c.node, "E0110", f"{c.name} gives {value.dtype} here, not {stated}")
    return value


def _stated_dtype(cx: Context, path: str, c: Arguments) -> str | None:
    """The dtype that a call of an operation says it has, `T.exp(x, dtype="float32")`, as older
    scripts write it; the argument is taken away."""
    member = MEMBERS.get(f"T.{path}")
    if member is None or member.gives != "scalar" or "dtype" in member.optional:
        return None
    if "dtype" not in c.kwargs:
        return None
    return dtype_of(cx, c.kwargs.pop("dtype"))


def _called(cx: Context, path: str, c: Arguments, stated: str | None) -> Value:
    handler = _CALLS.get(path)
    if handler is not None:
        return handler(cx, c)
    op = ALIASES.get(path, path)
    if op in BINARY:
        a = c.bind()
        assert a["a"] is not None and a["b"] is not None
        left, right = promote(cx, a["a"].value, a["b"].value, c.node, c.name)
        return BINARY[op](left, right, span=cx.span(c.node))
    return intrinsic(cx, op, c, stated) if op in INTRINSICS else _dtype_call(cx, path, c)


def known_names() -> set[str]:
    """The functions that `T.` offers in expressions and statements."""
    return {*members_of("T"), "prim_func"}


BINARY: dict[str, type[expr.BinaryOp]] = {
    name: getattr(expr, row.name)
    for row in SCALAR_OPERATORS.values()
    for name in (row.function, "" if issubclass(getattr(expr, row.name), expr.BitOp) else row.name)
    if name
}
"""The operators that scripts may write as functions, by their names."""

# --- Numbers and conversions --------------------------------------------------------------------


def _dtype_call(cx: Context, dtype: str, c: Arguments) -> Value:
    args = c.no_keywords()
    if not args:
        return SymbolDecl(dtype)
    if len(args) > 1:
        c.wrong(f"takes one argument, got {len(args)}", args[1].node)
    value, node = args[0].value, args[0].node
    if isinstance(value, str):
        if not is_float(dtype) or value not in ("inf", "-inf", "nan"):
            cx.fail(node, "E0106", f"{value!r} is not a value of dtype {dtype}")
        return expr.FloatImm(float(value), dtype, span=cx.span(node))
    if isinstance(value, float) and not is_float(dtype):
        value = int(value) if value.is_integer() else value
    if is_number(value):
        return literal(cx, value, dtype, c.node)
    return expr.Cast(dtype, scalar_of(cx, value, node), span=cx.span(c.node))


def _symbol(cx: Context, c: Arguments) -> Value:
    args = c.no_keywords()
    dtypes = [a for a in args if isinstance(a.value, str) and is_dtype(a.value)]
    return SymbolDecl(dtypes[0].value if dtypes else "int64")


def _cast(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()
    return _cast_to(cx, a["dtype"], a["value"], c)


def _cast_reversed(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()
    return _cast_to(cx, a["dtype"], a["value"], c)


def _cast_to(cx: Context, dtype: Arg | None, value: Arg | None, c: Arguments) -> PrimExpr:
    assert dtype is not None and value is not None
    inner = scalar_of(cx, value.value, value.node)
    return expr.Cast(dtype_of(cx, dtype), inner, span=cx.span(c.node))


def _limit(cx: Context, c: Arguments, sign: int) -> PrimExpr:
    a = c.bind()["dtype"]
    assert a is not None
    dtype = dtype_of(cx, a)
    if is_float(dtype):
        top = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)  # type: ignore[reportUnknown]
        return literal(cx, sign * top, dtype, c.node)
    bits = 1 if dtype == "bool" else bits_of(dtype)
    unsigned = dtype == "bool" or is_uint(dtype)
    high = (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1
    low = 0 if unsigned else -(1 << (bits - 1))
    return literal(cx, high if sign > 0 else low, dtype, c.node)


def _infinity(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()["dtype"]
    assert a is not None
    return literal(cx, float("inf"), dtype_of(cx, a), c.node)


def _ceildiv(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()
    assert a["a"] is not None and a["b"] is not None
    left, right = promote(cx, a["a"].value, a["b"].value, c.node, c.name)
    return (left + (right - 1)) // right


# --- Conditionals, lets, vectors ----------------------------------------------------------------


def _choice(cx: Context, c: Arguments) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    a = c.bind()
    test, yes, no = a["condition"], a["true_value"], a["false_value"]
    assert test is not None and yes is not None and no is not None
    condition = scalar_of(cx, test.value, test.node)
    if condition.dtype.partition("x")[0] != "bool":
        cx.fail(test.node, "E0110", f"a condition (bool) is needed here, not {condition.dtype}")
    return (condition, *promote(cx, yes.value, no.value, c.node, c.name))


def _if_then_else(cx: Context, c: Arguments) -> PrimExpr:
    parts = _choice(cx, c)
    return expr.Call(parts[1].dtype, "if_then_else", parts, span=cx.span(c.node))


def _select(cx: Context, c: Arguments) -> PrimExpr:
    return expr.Select(*_choice(cx, c), span=cx.span(c.node))


def _let(cx: Context, c: Arguments) -> Value:
    if len(c.args) == 1 and not c.kwargs and not isinstance(c.args[0].value, PrimExpr):
        return Ref("T", "let")  # the annotation T.let[T.int64]
    a = c.bind()
    body, where = a["body"], a["where"]
    assert body is not None
    if where is None:
        help = "a statement that names a value is `x: T.let = value`"
        cx.fail(c.node, "E0105", "T.let needs `where={x: value}`", help=help)
    if not is_dict(where.value) or len(where.value) != 1:
        cx.fail(where.node, "E0106", "`where` binds one variable: `where={x: value}`")
    ((var, value),) = where.value.items()
    if not isinstance(var, expr.Var):
        cx.fail(where.node, "E0106", f"{describe(var)} is not a variable; declare `x = T.int64()`")
    bound = scalar_of(cx, value, where.node, var.dtype)
    inner = scalar_of(cx, body.value, body.node)
    return expr.Let(var, bound, inner, span=cx.span(c.node))


def _not(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()["a"]
    assert a is not None
    return expr.Not(scalar_of(cx, a.value, a.node), span=cx.span(c.node))


def _range(cx: Context, c: Arguments) -> Value:
    """The numbers from `begin` to `end`, which is excluded, as an axis takes them."""
    a = c.bind()
    begin, end = a["begin"], a["end"]
    assert begin is not None
    return (0, begin.value) if end is None else (begin.value, end.value)


def _meta(cx: Context, c: Arguments) -> Meta:
    value = c.bind()["value"]
    assert value is not None
    return Meta(value.value)


def _bind(cx: Context, c: Arguments) -> PrimExpr:
    value = c.bind()["value"]
    assert value is not None
    return scalar_of(cx, value.value, value.node)


def _immediate(cx: Context, c: Arguments) -> PrimExpr:
    a = c.bind()
    dtype, value = a["dtype"], a["value"]
    assert dtype is not None and value is not None
    if not is_number(value.value):
        cx.fail(value.node, "E0106", f"a number is needed here, not {describe(value.value)}")
    return literal(cx, value.value, dtype_of(cx, dtype), c.node)


def _target(cx: Context, c: Arguments) -> Value:
    """A target is an attribute like others: its name, or its description."""
    a = c.bind()
    target, host = a["target"], a["host"]
    assert target is not None
    if host is None or host.value is None:
        return target.value
    described = target.value if is_dict(target.value) else {"kind": target.value}
    return {**described, "host": host.value}


def _handle(cx: Context, c: Arguments) -> Handle:
    dtype = c.bind()["dtype"]
    if dtype is None or dtype.value == "void":
        return Handle("", cx.span(c.node), "void")
    return Handle("", cx.span(c.node), dtype_of(cx, dtype))


def wide_dimensions(cx: Context, arg: Arg) -> tuple[PrimExpr, ...]:
    """Dimensions, among which symbols that were declared as int32 are int64."""
    return dimensions(cx, with_wide_symbols(cx, without_strings(cx, arg)))


# --- Buffers ------------------------------------------------------------------------------------


def _elem_offset(cx: Context, arg: Arg) -> PrimExpr:
    """The elements before the first one; `T.int32()` declares a symbol for their number."""
    if not isinstance(arg.value, SymbolDecl):
        return dimension(cx, with_wide_symbols(cx, arg))
    names = (f"elem_offset{i or ''}" for i in count())
    name = next(n for n in names if n not in cx.symbols)
    return cx.declare_symbol(name, "int64", arg.node, reuse=False)


_FIELDS: dict[str, Callable[[Context, Arg], Any]] = {
    "dtype": dtype_of,
    "strides": wide_dimensions,
    "elem_offset": _elem_offset,
    "scope": lambda cx, a: string_of(cx, a, "the scope"),
    "align": lambda cx, a: constant_int(cx, a, "the alignment"),
    "offset_factor": lambda cx, a: str(constant_int(cx, a, "the factor of the offset") or ""),
}


def _buffer_fields(cx: Context, a: dict[str, Arg | None], c: Arguments) -> dict[str, Any]:
    shape = a["shape"]
    assert shape is not None
    dims = wide_dimensions(cx, shape)
    fields: dict[str, Any] = {"shape": dims, "span": cx.span(c.node)}
    for name, read in _FIELDS.items():
        given = a.get(name)
        if given is not None and given.value is not None:
            fields[name] = read(cx, given)
    if fields.get("align", 1) <= 0:
        del fields["align"]
    if fields.get("scope") == "":
        del fields["scope"]
    return fields


def _buffer(cx: Context, c: Arguments) -> BufferDecl:
    args = c.bind()
    return BufferDecl("param", _buffer_fields(cx, args, c))


def _alloc(scope: str | None) -> Callable[[Context, Arguments], BufferDecl]:
    def handler(cx: Context, c: Arguments) -> BufferDecl:
        args = c.bind()
        fields = _buffer_fields(cx, args, c)
        if scope is not None:
            fields["scope"] = scope
        fields |= _allocation_notes(cx, args["annotations"])
        return BufferDecl("alloc", fields)

    return handler


def _scalar(scope: str) -> Callable[[Context, Arguments], BufferDecl]:
    def handler(cx: Context, c: Arguments) -> BufferDecl:
        a = c.bind()
        dtype, given = a["dtype"], a.get("scope")
        fields = {"dtype": "float32" if dtype is None else dtype_of(cx, dtype), "scope": scope}
        if given is not None:
            fields["scope"] = string_of(cx, given, "the scope")
        return BufferDecl("scalar", fields)

    return handler


def _allocation_notes(cx: Context, given: Arg | None) -> dict[str, Any]:
    """Return the fields of a buffer that the annotations of its allocation give, the alignment
    among them; there is no address."""
    if given is None or given.value is None:
        return {}
    if not is_dict(given.value):
        cx.fail(given.node, "E0106", "annotations are a dictionary")
    notes: dict[str, Any] = attribute_value(cx, given.value, given.node)
    align = notes.pop("buffer_data_alignment", None)
    notes.pop("buffer_dim_align", None)  # what it asks for is in the strides
    if notes.pop("buffer_allocated_addr", ()):
        cx.fail(given.node, "E0104", "an allocation has no annotation 'buffer_allocated_addr'")
    fields: dict[str, Any] = {"annotations": Attrs(notes)} if notes else {}
    return fields if align is None else {**fields, "align": align}


def _decl_buffer(cx: Context, c: Arguments) -> Value:
    a = c.bind()
    fields = _buffer_fields(cx, a, c)
    data = a["data"]
    if data is not None and isinstance(data.value, Handle):
        return BufferDecl("match", fields, data.value)
    return decl_buffer(cx, c, fields) or BufferDecl("alloc", fields)


def _match_buffer(cx: Context, c: Arguments) -> BufferDecl:
    a = c.bind()
    param = a["param"]
    assert param is not None
    if isinstance(param.value, Handle):
        if a["shape"] is None:
            c.wrong("needs the shape of the buffer", c.node)
        with cx.introducing_symbols():  # strides=["s0", "s1"]
            return BufferDecl("match", _buffer_fields(cx, a, c), param.value)
    source = region_of(cx, param)
    if a["shape"] is None:
        sizes = tuple(r.extent for r in source.region)
        a["shape"] = Arg(sizes, c.node)
    with cx.introducing_symbols():
        fields = _buffer_fields(cx, a, c)
    fields.setdefault("dtype", source.buffer.dtype)
    return BufferDecl("view", fields, source)


def _index_function(cx: Context, c: Arguments) -> BufferDecl:
    a = c.bind()
    param, given = a["param"], a.pop("facts")
    assert param is not None and given is not None
    if not isinstance(param.value, Handle):
        c.wrong(f"describes a T.handle parameter, not {describe(param.value)}", param.node)
    fields = _buffer_fields(cx, a, c)
    facts = facts_of(c, given, fields["shape"], fields["dtype"])
    return BufferDecl("match", {**fields, "facts": facts}, param.value)


def _within(cx: Context, c: Arguments) -> loops.Fact:
    low, high = (a and _wide(cx, a) for a in c.bind().values())
    assert low is not None and high is not None
    return loops.Within(low, high, span=cx.span(c.node))


def _nondecreasing(cx: Context, c: Arguments) -> loops.Fact:
    first, last = (a and _wide(cx, a) for a in c.bind().values())
    return loops.Nondecreasing(first, last, span=cx.span(c.node))


def _wide(cx: Context, a: Arg) -> PrimExpr:
    return cast(scalar_of(cx, a.value, a.node), "int64")


def region_of(cx: Context, arg: Arg) -> loops.BufferRegion:
    """A box of a buffer: `A[i, 0:4]`, or `A` for all of it."""
    span = cx.span(arg.node)
    match arg.value:
        case loops.BufferLoad(buffer, indices):
            ranges = [_one(cx, i, arg) for i in indices]
            return loops.BufferRegion(buffer, tuple(ranges), span=span)
        case SliceAccess(buffer, parts):
            ranges = [
                loops.Range(p[0], p[1]) if isinstance(p, tuple) else _one(cx, p, arg) for p in parts
            ]
            return loops.BufferRegion(buffer, tuple(ranges), span=span)
        case loops.Buffer() as buffer:
            ranges = [loops.Range(literal(cx, 0, s.dtype, arg.node), s) for s in buffer.shape]
            return loops.BufferRegion(buffer, tuple(ranges), span=span)
        case _:
            cx.fail(
                arg.node,
                "E0106",
                f"a region of a buffer such as `A[i, 0:4]` is needed, not {describe(arg.value)}",
            )


def _one(cx: Context, index: PrimExpr, arg: Arg) -> loops.Range:
    if isinstance(index, expr.Ramp):
        size = literal(cx, index.lanes, index.base.dtype, arg.node)
        return loops.Range(index.base, size)
    if lanes_of(index.dtype) > 1:
        cx.fail(arg.node, "E0106", "a vector index has no region")
    return loops.Range(index, literal(cx, 1, index.dtype, arg.node))


# --- Loops and axes -----------------------------------------------------------------------------


def axis_domain(cx: Context, dom: Arg, value: Arg) -> tuple[loops.Range, PrimExpr]:
    """The domain of a block axis, `n` or `(begin, end)`, and the value bound to the axis."""
    bound = scalar_of(cx, value.value, value.node)
    if is_sequence(dom.value) and len(dom.value) == 2:
        first, last = elements(dom)
        return range_between(cx, first, last), bound
    extent = scalar_of(cx, dom.value, dom.node, bound.dtype)
    dtype = extent.dtype if extent.dtype == bound.dtype else "int64"
    extent, bound = cast(extent, dtype), cast(bound, dtype)
    return loops.Range(literal(cx, 0, dtype, dom.node), extent), bound


def _axis(kind: loops.IterKind) -> Callable[[Context, Arguments], Axis]:
    def handler(cx: Context, c: Arguments) -> Axis:
        a = c.bind()
        assert a["dom"] is not None and a["binding"] is not None
        return Axis(kind, *axis_domain(cx, a["dom"], a["binding"]))

    return handler


_KINDS: dict[str, loops.IterKind] = {"S": "spatial", "R": "reduce"}


def _remap(cx: Context, c: Arguments) -> tuple[Axis, ...]:
    a = c.bind()
    kinds, bindings = a["kinds"], a["bindings"]
    assert kinds is not None and bindings is not None
    letters = string_of(cx, kinds, "the kinds of axes")
    values = elements(bindings) if is_sequence(bindings.value) else [bindings]
    if len(letters) != len(values) or not set(letters) <= set(_KINDS):
        c.wrong(
            f"needs one letter S or R per loop: {letters!r} for {len(values)} loops", kinds.node
        )
    axes: list[Axis] = []
    for letter, v in zip(letters, values, strict=True):
        var = variable_of(cx, v.value)
        domain = None if var is None else cx.loops.get(var)
        if domain is None or not isinstance(v.value, PrimExpr):
            cx.fail(
                v.node,
                "E0106",
                f"T.axis.remap takes loop variables, not {describe(v.value)}",
                help="write `vi = T.axis.spatial(extent, expression)`",
            )
        axes.append(Axis(_KINDS[letter], domain, v.value))
    return tuple(axes)


_CALLS: dict[str, Callable[[Context, Arguments], Value]] = {
    "Cast": _cast,
    "cast": _cast_reversed,
    "var": _symbol,
    "Var": _symbol,
    "min_value": lambda cx, c: _limit(cx, c, -1),
    "max_value": lambda cx, c: _limit(cx, c, 1),
    "infinity": _infinity,
    "ceildiv": _ceildiv,
    "if_then_else": _if_then_else,
    "Select": _select,
    "Let": _let,
    "let": _let,
    "Ramp": ramp,
    "ramp": ramp,
    "Broadcast": broadcast,
    "broadcast": broadcast,
    "Not": _not,
    "call_intrin": call_intrin,
    "call_extern": call_by_name("call_extern"),
    "call_pure_extern": call_pure_extern,
    "call_llvm_intrin": call_by_name("llvm_intrin"),
    "call_llvm_pure_intrin": call_by_name("llvm_intrin"),
    "reinterpret": reinterpret,
    "type_annotation": type_annotation,
    "Buffer": _buffer,
    "match_buffer": _match_buffer,
    "index_function": _index_function,
    "ragged_buffer": ragged_buffer,
    "range": _within,
    "nondecreasing": _nondecreasing,
    "alloc_buffer": _alloc(None),
    "sblock_alloc_buffer": _alloc(None),
    "alloc_local": _alloc("local"),
    "alloc_scalar": _scalar("global"),
    "local_scalar": _scalar("local"),
    "shared_scalar": _scalar("shared"),
    "alloc_shared": _alloc("shared"),
    "decl_buffer": _decl_buffer,
    "handle": _handle,
    "env_thread": env_thread,
    "launch_thread": launch_thread,
    "iter_var": iter_var,
    "Shuffle": shuffle,
    "attr": attribute,
    "meta_var": _meta,
    "bind": _bind,
    "Bind": _bind,
    "IntImm": _immediate,
    "FloatImm": _immediate,
    "target": _target,
    "Target": _target,
    "serial": loop_of("serial"),
    "parallel": loop_of("parallel"),
    "vectorized": loop_of("vectorized"),
    "unroll": loop_of("unrolled"),
    "unrolled": loop_of("unrolled"),
    "thread_binding": loop_of("thread_binding"),
    "grid": grid,
    "Range": _range,
    "axis.spatial": _axis("spatial"),
    "axis.S": _axis("spatial"),
    "axis.reduce": _axis("reduce"),
    "axis.R": _axis("reduce"),
    "axis.scan": _axis("scan"),
    "axis.opaque": _axis("opaque"),
    "axis.remap": _remap,
}
