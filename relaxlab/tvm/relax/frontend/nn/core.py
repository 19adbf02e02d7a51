"""Tensors and parameters of `nn`: operators on them emit calls into the function being built."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ops.define import builder
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.runtime import Tensor as Array
from relaxlab.tvm.runtime import tensor, unwrapped

_DEFAULT_DTYPE = "float32"


def get_default_dtype() -> str:
    """The dtype of parameters that name none."""
    return _DEFAULT_DTYPE


class Tensor:
    """A tensor of the function being built; operators on it emit calls there."""

    __array_ufunc__: ClassVar[None] = None  # an array on the left leaves the operator to us

    def __init__(self, *, _expr: graph.Expr) -> None:
        self._expr = _expr

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """A parameter of a function. A dimension is an int, an expression, or a symbol's name."""
        dims = tuple(expr.Var(d) if isinstance(d, str) else expr.as_expr(d) for d in shape)
        return Tensor(_expr=graph.Var(name, types.TensorType(dims, dtype)))

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """A constant."""
        return Tensor(_expr=graph.Constant(np.asarray(unwrapped(data))))

    @staticmethod
    def from_scalar(data: float, dtype: str) -> Tensor:
        """A constant of rank 0."""
        return Tensor(_expr=graph.Constant(np.asarray(data, dtype)))

    @property
    def type(self) -> types.TensorType:
        """Its type."""
        ty = self._expr.ty  # type: ignore[attr-defined]
        assert isinstance(ty, types.TensorType), ty
        return ty

    @property
    def shape(self) -> list[Any]:
        """Its dimensions: ints where they are constant."""
        return [getattr(d, "value", d) for d in self.type.shape or ()]

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def dtype(self) -> str:
        assert self.type.dtype is not None
        return self.type.dtype

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements under another shape."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        return call("reshape", self, graph.ShapeExpr(tuple(map(expr.as_expr, dims))))

    def permute_dims(self, *axes: Any) -> Tensor:
        """The axes in another order; reversed where none is given."""
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], list | tuple) else axes
        return call("permute_dims", self, axes=list(given) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Each element several times."""
        return call("repeat", self, repeats=repeats, axis=axis)

    def astype(self, dtype: str) -> Tensor:
        """The elements converted; itself where they have the dtype."""
        return self if self.dtype == dtype else call("astype", self, dtype=dtype)

    def maximum(self, other: Any) -> Tensor:
        return binary("maximum", self, other)

    def minimum(self, other: Any) -> Tensor:
        return binary("minimum", self, other)

    def __add__(self, other: Any) -> Tensor:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return binary("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return binary("divide", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return binary("power", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return binary("power", other, self)

    def __lt__(self, other: Any) -> Tensor:
        return binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return binary("greater_equal", self, other)


def wrap_nested(value: graph.Expr, name: str) -> Any:
    """Bind a value in the function being built: a tensor, or a tuple of tensors."""
    block = BlockBuilder.current()
    if block is None:
        raise ValueError("operators of nn are called while a module is exported (export_tvm)")
    return _wrapped(block, block.emit(value, name))


def _wrapped(block: BlockBuilder, var: graph.Expr) -> Any:
    ty = block.type_of(var)
    if isinstance(ty, types.TupleType):
        fields = [block.emit(graph.TupleGetItem(var, i)) for i in range(len(ty.fields))]
        return tuple(_wrapped(block, f) for f in fields)
    return Tensor(_expr=var)


def unwrap(value: Any) -> Any:
    """The expression of a tensor, or of those in lists and tuples."""
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, list | tuple):
        return type(value)(unwrap(v) for v in value)
    return value


def call(name: str, *args: Any, hint: str = "", **attrs: Any) -> Any:
    """Emit a call of an operator of the table."""
    made = builder(name)(*map(unwrap, args), **attrs)
    return wrap_nested(made, hint or name.rpartition(".")[2])


def binary(name: str, a: Any, b: Any, hint: str = "") -> Tensor:
    """Emit an operator of two tensors, one of which may be a number of the other's dtype."""
    dtype = a.dtype if isinstance(a, Tensor) else b.dtype
    operands = [v if isinstance(v, Tensor) else _number(v, dtype) for v in (a, b)]
    return call(name, *operands, hint=hint)


def _number(value: Any, dtype: str) -> Any:
    if isinstance(value, expr.PrimExpr):
        return graph.PrimValue(value)
    return Tensor.from_scalar(value, dtype)


class Parameter(Tensor):
    """A weight of a module; `data` is its value, if it has one."""

    def __init__(self, shape: Sequence[Any], dtype: str | None = None) -> None:
        given = Tensor.placeholder(shape, dtype or get_default_dtype(), "param")
        super().__init__(_expr=given._expr)
        self.attrs: OrderedDict[str, Any] = OrderedDict()
        self._data: Any = None

    @property
    def data(self) -> Any:
        """The value; None where it has none."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        array = np.asarray(unwrapped(data))
        if list(array.shape) != self.shape or array.dtype.name != self.dtype:
            raise ValueError(f"a value of {array.dtype}{list(array.shape)} for the {self!r}")
        self._data = data if isinstance(data, Array) else tensor(array)

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype of a parameter without a value."""
        if self._data is not None:
            raise ValueError("a parameter with a value keeps its dtype")
        if dtype is not None:
            self._expr = graph.Var("param", types.TensorType(self.type.shape, dtype))
