"""The nodes of graph functions under TVM's names, with its constructors' arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import Attrs
from relaxlab.ops.define import as_value
from relaxlab.script.captured import name_object
from relaxlab.script.type_values import as_type
from relaxlab.script.values import Ref
from relaxlab.tvm.relax.ty import dimensions
from relaxlab.tvm.spelling import Spelling

Expr = graph.Expr
GlobalVar = graph.GlobalVar
ExternFunc = graph.ExternFunc
StringImm = graph.StringImm
DataTypeImm = graph.DataTypeImm
TupleGetItem = graph.TupleGetItem
Binding = graph.Binding


def attrs_from(attrs: Mapping[str, Any] | None) -> Attrs:
    """Attributes from a dictionary; None is none."""
    return Attrs(dict(attrs or {}))


def _stated(ty: Any, struct_info: Any) -> types.Type | None:
    """The type under the newer or the older name of the parameter."""
    given = struct_info if ty is None else ty
    return None if given is None else as_type(given)


class Var(metaclass=Spelling, core=graph.Var):
    """A variable."""

    def __new__(
        cls,
        name: str = "",
        ty: Any = None,
        span: Any = None,
        *,
        name_hint: str = "",
        struct_info: Any = None,
    ) -> graph.Var:
        return graph.Var(name or name_hint, _stated(ty, struct_info))


class DataflowVar(metaclass=Spelling, core=graph.DataflowVar):
    """A variable of a dataflow block."""

    def __new__(
        cls,
        name: str = "",
        ty: Any = None,
        span: Any = None,
        *,
        name_hint: str = "",
        struct_info: Any = None,
    ) -> graph.DataflowVar:
        return graph.DataflowVar(name or name_hint, _stated(ty, struct_info))


class Constant(metaclass=Spelling, core=graph.Constant):
    """A tensor constant."""

    def __new__(cls, data: Any, struct_info: Any = None, span: Any = None) -> graph.Constant:
        return graph.Constant(data.numpy() if hasattr(data, "numpy") else np.asarray(data))


class Call(metaclass=Spelling, core=graph.Call):
    """A call of an operator or a function."""

    def __new__(
        cls,
        op: graph.Expr | str,
        args: Sequence[Any],
        attrs: Mapping[str, Any] | None = None,
        ty_args: Sequence[Any] | None = None,
        span: Any = None,
        *,
        sinfo_args: Sequence[Any] | None = None,
    ) -> graph.Call:
        callee = graph.Op(op.removeprefix("relax.")) if isinstance(op, str) else op
        tys = tuple(as_type(t) for t in ty_args or sinfo_args or ())
        return graph.Call(callee, tuple(as_value(a) for a in args), attrs_from(attrs), tys)


class Tuple(metaclass=Spelling, core=graph.Tuple):
    """A tuple."""

    def __new__(cls, fields: Sequence[Any], span: Any = None) -> graph.Tuple:
        return graph.Tuple(tuple(as_value(f) for f in fields))


class ShapeExpr(metaclass=Spelling, core=graph.ShapeExpr):
    """A shape."""

    def __new__(cls, values: Sequence[Any], span: Any = None) -> graph.ShapeExpr:
        return graph.ShapeExpr(dimensions(values) or ())


class PrimValue(metaclass=Spelling, core=graph.PrimValue):
    """A scalar: of a number of Python, int64, float64 or bool."""

    def __new__(cls, value: Any, span: Any = None) -> graph.PrimValue:
        like = "float64" if isinstance(value, float) else None
        return graph.PrimValue(expr.as_expr(value, like))


class If(metaclass=Spelling, core=graph.If):
    """A conditional."""

    def __new__(cls, cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> graph.If:
        return graph.If(cond, sequence(true_branch), sequence(false_branch))


class SeqExpr(metaclass=Spelling, core=graph.SeqExpr):
    """Blocks of bindings, then a value."""

    def __new__(cls, blocks: Sequence[Any], body: Any, span: Any = None) -> graph.SeqExpr:
        return graph.SeqExpr(tuple(blocks), as_value(body))


class BindingBlock(metaclass=Spelling, core=graph.BindingBlock):
    """Bindings in order."""

    def __new__(cls, bindings: Sequence[Any], span: Any = None) -> graph.BindingBlock:
        return graph.BindingBlock(tuple(bindings))


class DataflowBlock(metaclass=Spelling, core=graph.DataflowBlock):
    """Bindings in order, without effects."""

    def __new__(cls, bindings: Sequence[Any], span: Any = None) -> graph.DataflowBlock:
        return graph.DataflowBlock(tuple(bindings))


class VarBinding(metaclass=Spelling, core=graph.VarBinding):
    """A variable and its value."""

    def __new__(cls, var: graph.Var, value: Any, span: Any = None) -> graph.VarBinding:
        return graph.VarBinding(as_value(value), var)


class MatchCast(metaclass=Spelling, core=graph.MatchCast):
    """A claim that a value has a type."""

    def __new__(
        cls,
        var: graph.Var,
        value: Any,
        ty: Any = None,
        span: Any = None,
        *,
        struct_info: Any = None,
    ) -> graph.MatchCast:
        claim = as_type(struct_info if ty is None else ty)
        return graph.MatchCast(as_value(value), claim, var)


class Function(metaclass=Spelling, core=graph.Function):
    """A graph function."""

    def __new__(
        cls,
        params: Sequence[graph.Var],
        body: Any,
        ret_ty: Any = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
        *,
        ret_struct_info: Any = None,
    ) -> graph.Function:
        return graph.Function(
            tuple(params),
            sequence(body),
            _stated(ret_ty, ret_struct_info),
            is_pure,
            attrs=attrs_from(attrs),
            name_hint=str((attrs or {}).get("global_symbol", "")),
        )


def sequence(body: Any) -> graph.SeqExpr:
    """An expression as the body of a function or branch."""
    return body if isinstance(body, graph.SeqExpr) else graph.SeqExpr((), as_value(body))


def const(value: Any, dtype: str | types.TensorType | None = None) -> graph.Constant:
    """A constant. Python's ints are int32, its floats float32, unless a dtype is given, as such or
    by a tensor's type."""
    if isinstance(dtype, types.TensorType):
        dtype = dtype.dtype
    if hasattr(value, "numpy"):
        value = value.numpy()
    array = np.asarray(value)
    if dtype is not None:
        array = array.astype(numpy_dtype(dtype))
    elif not isinstance(value, np.ndarray | np.generic) and array.dtype.kind in "if":
        array = array.astype({"i": np.int32, "f": np.float32}[array.dtype.kind])
    return graph.Constant(array)


def get_shape_of(value: graph.Expr) -> graph.Expr:
    """The shape of a tensor: its dimensions where they are known, else a call of `shape_of`."""
    ty = value.ty if isinstance(value, graph.Var) else None
    if isinstance(ty, types.TensorType) and ty.shape is not None:
        return graph.ShapeExpr(ty.shape)
    return graph.Call(graph.Op("shape_of"), (value,))


def convert_to_expr(value: Any) -> graph.Expr:
    """A Python value as an expression."""
    return as_value(value)


BaseFunc = (graph.Function, PrimFunc, graph.ExternFunc)
"""The classes of what a module holds, for `isinstance`."""

prim_value = PrimValue
for _name, _value in (("const", const), ("PrimValue", PrimValue), ("ShapeExpr", ShapeExpr)):
    name_object(_value, Ref("R", {"PrimValue": "prim_value"}.get(_name, _name)))
