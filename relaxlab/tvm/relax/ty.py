"""The types of graph values under TVM's names: `TensorType` and its kin, and the older
`TensorStructInfo`, which take shapes as lists and numbers as dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import expr, graph, types
from relaxlab.script.type_values import as_type
from relaxlab.tvm.spelling import Spelling

Type = types.Type


def dimensions(values: Any) -> tuple[expr.PrimExpr, ...] | None:
    """A shape as a tuple of expressions; None for an unknown one."""
    match values:
        case None:
            return None
        case graph.ShapeExpr(dims):
            return dims
        case _:
            return tuple(expr.as_expr(d) for d in values)


class TensorType(metaclass=Spelling, core=types.TensorType):
    """The type of a tensor."""

    def __new__(
        cls,
        shape: Any = None,
        dtype: Any = "float32",
        vdevice: Any = None,
        ndim: int = -1,
        span: Any = None,
    ) -> types.TensorType:
        held = None
        if isinstance(shape, graph.Var) and isinstance(shape.ty, types.ShapeType):
            held, ndim, shape = shape.ty.values, shape.ty.ndim, None
        # An empty string is an unknown dtype.
        return types.TensorType(
            dimensions(shape), str(dtype) if dtype else None, ndim, vdevice=str(vdevice or ""),
            held=held,
        )  # fmt: skip


class ShapeType(metaclass=Spelling, core=types.ShapeType):
    """The type of a shape."""

    def __new__(cls, values: Any = None, ndim: int = -1, span: Any = None) -> types.ShapeType:
        return types.ShapeType(dimensions(values), ndim)


class TupleType(metaclass=Spelling, core=types.TupleType):
    """The type of a tuple."""

    def __new__(cls, fields: Sequence[Any] = (), span: Any = None) -> types.TupleType:
        return types.TupleType(tuple(as_type(f) for f in fields))


class PrimType(metaclass=Spelling, core=types.PrimType):
    """The type of a scalar."""

    def __new__(cls, dtype: str | None = None, value: Any = None, span: Any = None) -> Any:
        if value is not None:
            value = expr.as_expr(value)
            return types.PrimType(value.dtype, value)
        if dtype is None:
            raise TypeError("the type of a scalar needs a dtype or a value")
        return types.PrimType(dtype)


class FuncType(metaclass=Spelling, core=types.FuncType):
    """The type of a function."""

    def __new__(
        cls, params: Sequence[Any], ret: Any, purity: bool = True, span: Any = None
    ) -> types.FuncType:
        return types.FuncType(tuple(as_type(p) for p in params), as_type(ret), purity)

    @staticmethod
    def opaque_func(
        *, ret: Any = None, derive_func: Any = None, purity: bool = False, span: Any = None
    ) -> types.FuncType:
        """The type of a function about whose parameters nothing is known."""
        result = types.ObjectType() if ret is None else as_type(ret)
        return types.FuncType(None, result, purity)


ObjectType = AnyType = types.ObjectType
"""The type of any value."""
