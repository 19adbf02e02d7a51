"""Types of the script made by Python: `R.Tensor((n, 4), "float32")` outside of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.errors import kind_of


def _dimensions(values: Iterable[Any]) -> tuple[expr.PrimExpr, ...]:
    dims = tuple(values)
    if not all(isinstance(d, int | expr.PrimExpr) for d in dims):
        raise TypeError("a dimension outside of a program is an integer or an expression")
    return tuple(expr.as_expr(d) for d in dims)


def _shape_values(shape: Any) -> tuple[expr.PrimExpr, ...] | None:
    match shape:
        case None:
            return None
        case graph.ShapeExpr(values):
            return values
        case tuple() | list():
            return _dimensions(shape)  # type: ignore[reportUnknownArgumentType]
        case _:
            raise TypeError(f"a shape is a tuple of dimensions, not {kind_of(shape)}")


def _tensor(
    shape: Any = None, dtype: str | None = None, vdevice: Any = None, ndim: int = -1
) -> types.Type:
    if isinstance(shape, str) and is_dtype(shape):  # R.Tensor("float32")
        shape, dtype = None, shape
    held = None
    if isinstance(shape, graph.Var) and isinstance(shape.ty, types.ShapeType):
        held, shape, ndim = shape.ty.values, None, shape.ty.ndim
    if not (dtype is None or isinstance(dtype, str)) or not isinstance(vdevice, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("the dtype and the virtual device of a tensor are strings")
    dims = _shape_values(shape)
    return types.TensorType(dims, dtype or None, ndim, vdevice=vdevice or "", held=held)


def _shape(values: Any = None, ndim: int = -1) -> types.Type:
    return types.ShapeType(_shape_values(values), ndim)


def _tuple(*fields: Any) -> types.Type:
    if len(fields) == 1 and isinstance(fields[0], tuple | list):
        fields = tuple(fields[0])  # type: ignore[reportUnknownArgumentType]
    return types.TupleType(tuple(as_type(f) for f in fields))


def _prim(dtype: str | None = None, value: Any = None) -> types.Type:
    if value is not None:
        (known,) = _dimensions([value])
        return types.PrimType(known.dtype, known)
    if not isinstance(dtype, str):
        raise TypeError("a scalar type needs a dtype or a value")
    return types.PrimType(dtype)


def _callable(
    params: Any = None, ret: Any = None, purity: bool | None = None, derive_func: str | None = None
) -> types.Type:
    given: Iterable[Any] = cast("Any", params) if isinstance(params, tuple | list) else [params]
    known = None if params is None else tuple(as_type(p) for p in given)
    result = types.ObjectType() if ret is None else as_type(ret)
    return types.FuncType(known, result, known is not None if purity is None else purity)


MAKERS: dict[str, Callable[..., types.Type]] = {
    "Tensor": _tensor,
    "Shape": _shape,
    "Tuple": _tuple,
    "Prim": _prim,
    "Callable": _callable,
    "Object": types.ObjectType,
    "Any": types.ObjectType,
}


class Annotation:
    """Base of the types of the script. In annotations, which Python evaluates before the program is
    read, a call whose arguments mean something only there gives the class itself."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        make = MAKERS.get(cls.__name__)
        try:
            return cls if make is None else make(*args, **kwargs)
        except TypeError:  # the decorator reports it at its place
            return cls

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


def as_type(value: Any) -> types.Type:
    """The type that a value stands for: `R.Tensor` with or without arguments.

    Raises TypeError for anything else.
    """
    bare = isinstance(value, type) and issubclass(value, Annotation)
    found = cast("Any", value() if bare else value)
    if not isinstance(found, types.Type):
        raise TypeError(
            f"expected a type such as R.Tensor((n, 4), 'float32'), got {kind_of(found)}"
        )
    return found
