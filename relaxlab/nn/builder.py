"""Building graph functions call by call: one dataflow block, bindings in A-normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.arguments import methods_name_arguments, names_arguments
from relaxlab.ir.data import DataDef, data_types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import NO_ATTRS, Attrs
from relaxlab.ir.op_table import find_op
from relaxlab.ir.plain import plain
from relaxlab.ir.substitute import substitute
from relaxlab.nn import slicing, spec
from relaxlab.nn.initial import Initialiser
from relaxlab.nn.ragged_type import ragged_type
from relaxlab.ops.block_builder import BlockBuilder, ModuleBuilder
from relaxlab.ops.define import builder as operator
from relaxlab.script.advice import known_elsewhere


@methods_name_arguments
@dataclass(slots=True, eq=False)
class Parameter:
    """A weight: its shape (ints, or names of symbols), dtype, and how its first values are drawn.

    The values come at run time; `value` is what `load_state_dict` gave.
    """

    shape: tuple[spec.Dim, ...]
    dtype: str = "float32"
    initial: Initialiser | None = field(default=None, repr=False)
    value: np.ndarray[Any, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.shape, str):
            text = f"a shape is a tuple of dimensions, such as ('n', 4), not {self.shape!r}"
            raise TypeError(text)
        self.shape = tuple(plain(self.shape))
        if not isinstance(self.dtype, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.dtype = np.dtype(self.dtype).name
        for d in self.shape:
            if not isinstance(d, int | str | PrimExpr) or (isinstance(d, int) and d < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"a parameter cannot have {d!r} as a dimension: {self.shape}")


@dataclass(frozen=True, slots=True)
class Recursive:
    """The function of a recursive method: its name, and the types of its parameters besides the
    weights. `of` keeps the module, by whose identity it is found."""

    name: str
    params: tuple[types.Type | None, ...]
    of: Any


_BUILDING: list[FunctionBuilder] = []
"""The functions that are being built, the innermost last."""


@methods_name_arguments
class FunctionBuilder:
    """Builds one graph function of a module; `bounds` are upper bounds of its symbols by name, and
    `recursive` are the functions of recursive methods, by module and method, that there are."""

    def __init__(
        self,
        module: ModuleBuilder,
        bounds: Mapping[str, int] | None = None,
        recursive: dict[Any, Recursive] | None = None,
    ) -> None:
        self._module, self.recursive = module, {} if recursive is None else recursive
        self._block, self._bounds = BlockBuilder(module), bounds or {}
        self._block.begin_function(dataflow=True)
        self._symbols: dict[str, expr.Var] = {}
        self._lengths: dict[str, types.LengthsType] = {}
        self._donated: list[str] = []
        self._num_params = 0
        self._weights: dict[Parameter, Tensor] = {}

    @property
    def num_params(self) -> int:
        """The number of parameters so far."""
        return self._num_params

    def symbol(self, name: str) -> expr.Var:
        """The function's symbol of that name."""
        return self._symbols.setdefault(name, expr.Var(name))

    def has_symbol(self, name: str) -> bool:
        """True if the function mentions a symbol of that name."""
        return name in self._symbols

    def most(self, dim: PrimExpr) -> int | None:
        """The largest value of a dimension; None where its symbols have no bounds."""
        return Analyzer.for_shapes(dim, upper=self._bounds).upper_bound(dim)

    def dims(self, shape: Sequence[spec.Dim]) -> tuple[PrimExpr, ...]:
        """Dimensions as expressions."""
        return tuple(self.symbol(d) if isinstance(d, str) else expr.const(d) for d in shape)

    def tensor_param(
        self, name: str, shape: Sequence[spec.Dim], dtype: str, *, donated: bool = False
    ) -> Tensor:
        """A new tensor parameter at the end of the list."""
        var = self._param(name, types.TensorType(self.dims(shape), dtype))
        if donated:
            self._donated.append(var.name)
        return Tensor(self, var)

    def lengths_param(self, name: str, what: spec.Lengths) -> Tensor:
        """A new parameter with the lengths of sequences."""
        count, rows = self.dims((what.sequences, what.rows))
        each = types.Length(f"{name}[{types.DIMENSIONS[0]}]")
        ty = types.LengthsType((count,), "int32", 1, rows, what.at_most, each, what.at_least)
        self._lengths[name] = ty
        return Tensor(self, self._param(name, ty))

    def ragged_param(self, name: str, what: spec.Ragged) -> Tensor:
        """A new tensor parameter with dimensions that differ from element to element. Raises
        ValueError for a shape that no such type has."""
        ty = ragged_type(name, what, self._lengths, self.symbol)
        return Tensor(self, self._param(name, ty))

    def shape_param(self, name: str, values: Sequence[spec.Dim]) -> tuple[PrimExpr, ...]:
        """A new shape parameter; its values."""
        dims = self.dims(values)
        self._param(name, types.ShapeType(dims))
        return dims

    def weight_param(self, name: str, weight: Parameter) -> None:
        """Add a tensor parameter for `weight`."""
        self._weights[weight] = self.tensor_param(name, weight.shape, weight.dtype)

    def weight(self, weight: Parameter) -> Tensor:
        """Return the parameter of `weight`. Raises KeyError when the module does not own it."""
        if weight not in self._weights:
            raise KeyError(
                f"{weight!r} is no parameter of the module that is exported: make its layer in "
                "`__init__` and keep it as an attribute, there or in an nn.ModuleList"
            )
        return self._weights[weight]

    def emit(self, value: graph.Expr, name: str) -> Tensor:
        """Bind `value`, whose type is deduced. DiagnosticError when it has none."""
        return Tensor(self, self._block.emit(value, name))

    def emit_any(self, value: graph.Expr, name: str) -> Tensor | tuple[Tensor, ...]:
        """Bind `value`, and each of its fields if it is a tuple."""
        var = self._block.emit(value, name)
        if not isinstance(var.ty, types.TupleType):
            return Tensor(self, var)
        fields = (graph.TupleGetItem(var, i) for i in range(len(var.ty.fields)))
        return tuple(self.emit(f, f"{var.name}_{i}") for i, f in enumerate(fields))

    def emit_tuple(self, value: graph.Expr, name: str) -> tuple[Tensor, ...]:
        """Bind `value`, a tuple of tensors, and each of its fields."""
        return tuple(Tensor(self, field) for field in self._block.emit_fields(value, name))

    def require(self, condition: PrimExpr, name: str) -> None:
        """Have calls of the function stop unless a condition on symbols holds; their message says
        that `name` needs it."""
        self._block.require(condition, name)

    def call_loops(
        self,
        name: str,
        func: loops.PrimFunc,
        args: Sequence[Tensor],
        scalars: Sequence[PrimExpr] = (),
        inplace: Sequence[int] = (),
    ) -> tuple[Tensor, ...]:
        """Call a loop function on its input tensors and scalar parameters; its outputs.

        With `inplace`, the loop function overwrites those arguments and has no other outputs.
        """
        callee = self._block.add_function(name, func)
        given = (callee, graph.Tuple(tuple(a.var for a in args)))
        if scalars:
            given = (*given, graph.ShapeExpr(tuple(scalars)))
        if inplace:
            outs = tuple(args[i].type for i in inplace)
            attrs = Attrs(inplace_indices=tuple(inplace))
            call = graph.Call(graph.Op("call_tir_inplace"), given, attrs, outs)
        else:
            outs = _output_types(func, args, scalars)
            call = graph.Call(graph.Op("call_tir"), given, NO_ATTRS, outs)
        return (self.emit(call, name),) if len(outs) == 1 else self.emit_tuple(call, name)

    # --- Recursive methods ------------------------------------------------------------------------

    @staticmethod
    def current() -> FunctionBuilder | None:
        """The function that is being built; None where there is none."""
        return _BUILDING[-1] if _BUILDING else None

    @contextmanager
    def building(self) -> Iterator[None]:
        """Let what is emitted without a tensor be this function's."""
        _BUILDING.append(self)
        try:
            yield
        finally:
            _BUILDING.pop()

    def callee(self) -> FunctionBuilder:
        """The builder of another function of the module, with as many bounds."""
        return FunctionBuilder(self._module, self._bounds, self.recursive)

    def weights(self) -> list[Tensor]:
        """The parameters that are weights, in order."""
        return [*self._weights.values()]

    def weights_by_parameter(self) -> Mapping[Parameter, Tensor]:
        """The parameters that are weights, by what they stand for."""
        return self._weights

    def data_type(self, what: spec.Data) -> types.DataType:
        """The type of values of a data type, which the module declares from now on."""
        self._module.add_data_type(what.definition)
        return types.DataType(what.definition.name)

    def value_param(self, name: str, ty: types.Type | None) -> Any:
        """A new parameter of the type of a value of another function, whose symbols become this
        one's. Raises TypeError for dimensions that are computed."""
        return self._wrapped(self._param(name, self._own_type(name, ty)))

    def _own_type(self, name: str, ty: types.Type | None) -> types.Type:
        if isinstance(ty, types.DataType):
            return ty
        if not isinstance(ty, types.TensorType) or ty.shape is None:
            raise TypeError(f"the argument `{name}` of a recursive method has the type {ty}")
        if any(not isinstance(d, expr.IntImm | expr.Var) for d in ty.shape):
            raise TypeError(f"the argument `{name}` of a recursive method has the type {ty}, with "
                            "a dimension that is computed; pass whole arrays")  # fmt: skip
        dims = [self.symbol(d.name) if isinstance(d, expr.Var) else d for d in ty.shape]
        return types.TensorType(tuple(dims), ty.dtype)

    def declare(
        self, hint: str, result: types.Type, params: tuple[types.Type | None, ...], of: Any
    ) -> Recursive:
        """Let others call this function, whose body comes later."""
        name = self._module.module().fresh_name(hint)
        stub = graph.Function(
            self._block.params, graph.SeqExpr((), graph.Tuple(())), result, private=True
        )
        self._module.add_graph_function(name, stub)
        return Recursive(name, params, of)

    def define(self, known: Recursive, result: Any) -> None:
        """Give the function that was declared its body. Raises TypeError where its result is not
        what was said."""
        stub = self._module.module()[known.name]
        assert isinstance(stub, graph.Function)
        value = self._block.emit_output(_plain(result), "result")
        if not structural_equal(value.ty, stub.ret_ty, map_free_vars=True):
            raise TypeError(f"`{known.name}` returns {value.ty}, and @nn.recursive says that it "
                            f"returns {stub.ret_ty}")  # fmt: skip
        self._block.emit_func_output(value)
        self._module.replace_function(known.name, self._block.end_function(private=True))

    def emit_value(self, value: graph.Expr, name: str) -> Any:
        """Bind a value: a tensor, a value of a data type, or a tuple of these."""
        return self._wrapped(self._block.emit(value, name))

    def emit_cond(self, condition: graph.Expr, then: Any, otherwise: Any) -> Any:
        """Bind what one of two functions emits and returns."""
        made = self._block.emit_if(
            condition, lambda: _expression(then()), lambda: _expression(otherwise()), "chosen"
        )
        return self._wrapped(made)

    def emit_match(self, value: graph.Var, cases: Mapping[str, Callable[..., Any]]) -> Any:
        """Bind what the function for the constructor of a value emits and returns."""
        assert isinstance(value.ty, types.DataType)
        declared = data_types(self._module.module())[value.ty.name]
        _require_cases(declared, cases)

        def build(case: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *fields: _expression(case(*map(self._wrapped, fields)))

        given = {
            c.name: ([(f"{c.name.lower()}_{i}", ty) for i, ty in enumerate(c.fields)],
                     build(cases[c.name]))
            for c in declared.constructors
        }  # fmt: skip
        return self._wrapped(self._block.emit_match(value, given, "matched"))

    def _wrapped(self, var: graph.Var) -> Any:
        match var.ty:
            case types.DataType():
                return Data(self, var)
            case types.TupleType(fields):
                parts = (graph.TupleGetItem(var, i) for i in range(len(fields)))
                return tuple(self.emit_value(p, f"{var.name}_{i}") for i, p in enumerate(parts))
            case _:
                return Tensor(self, var)

    # --- The result -------------------------------------------------------------------------------

    def finish(self, result: Value | Sequence[Value], attrs: Attrs) -> graph.Function:
        """The function that returns `result`: a tensor or a value of a data type, or a tuple of
        several. Raises TypeError for anything else."""
        parts = (result,) if isinstance(result, Tensor | Data) else result
        if not isinstance(parts, Sequence) or not all(isinstance(t, Tensor | Data) for t in parts):
            got = kind_of(result)
            raise TypeError(f"a method returns a tensor, or a sequence of tensors, not {got}")
        value = parts[0].var if isinstance(result, Tensor | Data) else tuple(t.var for t in parts)
        if self._donated:
            attrs = attrs.with_(donated=tuple(self._donated))
        self._block.emit_func_output(self._block.emit_output(value, "result"))
        return self._block.end_function(attrs)

    def _param(self, name: str, ty: types.Type) -> graph.Var:
        self._num_params += 1
        return self._block.add_param(graph.Var(name, ty))


def _output_types(
    func: loops.PrimFunc, args: Sequence[Tensor], scalars: Sequence[PrimExpr]
) -> tuple[types.TensorType, ...]:
    params = [p for p in func.params if isinstance(p, expr.Var)]
    bound: dict[expr.Var, PrimExpr] = dict(zip(params, scalars, strict=True))
    for buffer, arg in zip(func.buffers, args, strict=False):
        for declared, actual in zip(buffer.shape, arg.shape, strict=True):
            if isinstance(declared, expr.Var):
                bound.setdefault(declared, actual)
    return tuple(
        types.TensorType(tuple(substitute(d, bound) for d in out.shape), out.dtype)
        for out in func.buffers[len(args) :]
    )


def _require_cases(declared: DataDef, cases: Mapping[str, Any]) -> None:
    """Raise TypeError unless there is a case for each constructor."""
    names = [c.name for c in declared.constructors]
    if {*names} != {*cases}:
        wrong = ", ".join(f"`{n}`" for n in sorted({*names} ^ {*cases}))
        has = ", ".join(f"`{n}`" for n in names)
        raise TypeError(f"match has one case for each of {has}; wrong or missing: {wrong}")


def _expression(value: Any) -> graph.Expr:
    """Return the result of a case or a branch as an expression."""
    plain = _plain(value)
    if isinstance(plain, tuple):
        plain = graph.Tuple(tuple(map(_expression, cast("tuple[Any, ...]", plain))))
    if not isinstance(plain, graph.Expr):
        raise TypeError(f"a case returns tensors and values of data types, not {kind_of(value)}")
    return plain


@names_arguments
def op(name: str, *args: Any, **attrs: Any) -> Tensor | tuple[Tensor, ...]:
    """Emit the operator `name` of the table in the function that the tensors among the arguments
    belong to. Operators with several results give a tuple of tensors.

    >>> nn.op("concat", [x, y], axis=1)                                   # doctest: +SKIP
    """
    first = next(_tensors_in(args), None)
    if first is None:
        raise TypeError(f"nn.op({name!r}, …) has no tensor of the model among its arguments")
    if any(t.builder is not first.builder for t in _tensors_in(args)):
        raise ValueError(
            f"{name} reads tensors of different functions: a recursive method takes what it reads "
            "of its caller as an argument"
        )
    call = operator(name)(*map(_plain, args), **attrs)
    return first.builder.emit_any(call, name.rpartition(".")[2])


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from _tensors_in(item)


def _plain(value: Any) -> Any:
    """An argument with the variables of its tensors."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in cast("Sequence[Any]", value))
    return value.var if isinstance(value, Tensor | Data) else value


def _one_result(name: str, *args: Any, **attrs: Any) -> Tensor:
    """The result of an operator that has one. Raises TypeError for several."""
    value = op(name, *args, **attrs)
    if isinstance(value, Tensor):
        return value
    raise TypeError(
        f"{name} has a tuple of results, and `Tensor.op` is for one tensor; "
        f"nn.op({name!r}, x, …) returns the tuple"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of a data type (`nn.DataType`) of the function being built."""

    builder: FunctionBuilder
    var: graph.Var

    def __repr__(self) -> str:
        return f"<{self.var.name}: {self.var.ty}>"

    def match(self, **cases: Callable[..., Any]) -> Any:
        """Return the result of the function for the value's constructor, which is given its
        fields: tensors, values of data types, or tuples of these, of the same types in all cases.
        Raises TypeError unless there is one for each constructor.

        >>> tree.match(Leaf=self.leaf, Node=lambda a, b: self.cell(a))   # doctest: +SKIP
        """
        return self.builder.emit_match(self.var, cases)


Value: TypeAlias = "Tensor | Data"
"""A value that a function of the program computes with."""
Operand: TypeAlias = "Tensor | PrimExpr | float | np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor value of the function being built. Operators on it emit calls there.

    Each operator of the table is a method: `x.exp()`, `x.sum(axis=0)`, `x.relu()` (those of
    `R.nn` without the prefix). `x[1:, None]` slices, `x @ y` multiplies matrices.
    """

    builder: FunctionBuilder
    var: graph.Var
    __array_ufunc__: ClassVar[None] = None  # `array + x` is ours, not NumPy's element by element

    def __repr__(self) -> str:
        return f"<{self.var.name}: {self.var.ty}>"

    @property
    def type(self) -> types.TensorType:
        """Its deduced type."""
        assert isinstance(self.var.ty, types.TensorType), self.var.ty
        return self.var.ty

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """Its dimensions, which are always known in an exported module."""
        assert self.type.shape is not None
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Its element type."""
        assert self.type.dtype is not None
        return self.type.dtype

    def op(self, name: str, *args: Any, **attrs: Any) -> Tensor:
        """Emit the operator `name`, whose result is a tensor, on this one and further arguments."""
        return _one_result(name, self, *args, **attrs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("_"):
            for full in (name, f"nn.{name}"):
                if find_op(full) is not None:
                    return partial(op, full, self)
        meant = known_elsewhere(name)
        advice = "" if meant is None else f"; did you mean {meant.removeprefix('nn.')!r}?"
        raise AttributeError(f"a tensor has no attribute or operator {name!r}{advice}")

    def __getitem__(self, key: Any) -> Tensor:
        x = self
        for name, attrs in slicing.indexing(self.shape, key):
            x = x.op(name, **attrs)
        return x

    def __iter__(self) -> Iterator[Tensor]:
        # Python would call `__getitem__` with 0, 1, 2 and so on without end.
        raise TypeError("a tensor cannot be iterated over while its program is built: index it")

    def __bool__(self) -> bool:
        raise TypeError(
            "a tensor has no truth value while its program is built; choose elements with "
            "`condition.where(x, y)`, and test for a tensor that may be missing with `is not None`"
        )

    def __len__(self) -> int:
        first = self.shape[0] if self.shape else None
        if isinstance(first, expr.IntImm):
            return first.value
        raise TypeError(
            "a tensor without dimensions has no length" if first is None
            else f"a length is a number in Python, and that of this tensor is {first}: "
            "`x.shape[0]` is its symbol"
        )  # fmt: skip

    def _with(self, name: str, other: Any, *, reverse: bool = False) -> Tensor:
        """An operator of Python on this tensor and another operand; dimensions take the dtype of
        the tensor, as numbers do."""
        if isinstance(other, PrimExpr) and other.dtype != self.dtype != "bool":
            other = expr.Cast(self.dtype, other)
        if other is None or isinstance(other, str | list | tuple):
            return NotImplemented
        return self.op(name, other) if not reverse else _one_result(name, other, self)

    def __add__(self, other: Operand) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: Operand) -> Tensor:
        return self._with("add", other, reverse=True)

    def __sub__(self, other: Operand) -> Tensor:
        return self._with("subtract", other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self._with("subtract", other, reverse=True)

    def __mul__(self, other: Operand) -> Tensor:
        return self._with("multiply", other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self._with("multiply", other, reverse=True)

    def __truediv__(self, other: Operand) -> Tensor:
        return self._with("divide", other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self._with("divide", other, reverse=True)

    def __floordiv__(self, other: Operand) -> Tensor:
        return self._with("floor_divide", other)

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return self._with("floor_divide", other, reverse=True)

    def __mod__(self, other: Operand) -> Tensor:
        return self._with("floor_mod", other)

    def __rmod__(self, other: Operand) -> Tensor:
        return self._with("floor_mod", other, reverse=True)

    def __pow__(self, other: Operand) -> Tensor:
        return self._with("power", other)

    def __rpow__(self, other: Operand) -> Tensor:
        return self._with("power", other, reverse=True)

    def __matmul__(self, other: Operand) -> Tensor:
        return self._with("matmul", other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return self._with("matmul", other, reverse=True)

    def __lt__(self, other: Operand) -> Tensor:
        return self._with("less", other)

    def __le__(self, other: Operand) -> Tensor:
        return self._with("less_equal", other)

    def __gt__(self, other: Operand) -> Tensor:
        return self._with("greater", other)

    def __ge__(self, other: Operand) -> Tensor:
        return self._with("greater_equal", other)

    def __eq__(self, other: Operand) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._with("equal", other)

    def __ne__(self, other: Operand) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._with("not_equal", other)

    __hash__ = object.__hash__  # as PyTorch's tensors, whose `==` also is element by element

    def __and__(self, other: Operand) -> Tensor:
        return self._with("bitwise_and", other)

    def __or__(self, other: Operand) -> Tensor:
        return self._with("bitwise_or", other)

    def __xor__(self, other: Operand) -> Tensor:
        return self._with("bitwise_xor", other)

    def __invert__(self) -> Tensor:
        return self.op("bitwise_not")

    def __neg__(self) -> Tensor:
        return self.op("negative")

    def __abs__(self) -> Tensor:
        return self.op("abs")

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)

    def reshape(self, *shape: expr.ExprLike | Sequence[expr.ExprLike]) -> Tensor:
        """The same elements under another shape: dimensions, or one tuple of them."""
        dims: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return self.op("reshape", graph.ShapeExpr(tuple(expr.as_expr(d) for d in dims)))

    def permute_dims(self, *axes: int | Sequence[int]) -> Tensor:
        """Its dimensions in this order: numbers, or one list of them; reversed without any."""
        order: Any = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return self.op("permute_dims", axes=list(order) or None)

    def astype(self, dtype: str) -> Tensor:
        """The elements converted; itself when they have that dtype."""
        return self if self.dtype == dtype else self.op("astype", dtype=dtype)
