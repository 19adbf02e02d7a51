"""Writing rows of the operator table: parameters, argument checks, lowering through `te`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import is_float, is_int, numpy_dtype
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import (
    REQUIRED,
    OpRow,
    Param,
    Trait,
    TypeDeductionError,
    find_op,
    infer_type,
    is_own,
    op_row,
    op_signature,
    register_op,
)
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import te

Arg: TypeAlias = "te.Tensor | tuple[Arg, ...] | tuple[PrimExpr, ...] | PrimExpr | None"
TypesOf: TypeAlias = tuple[Type, ...]
Infer: TypeAlias = Callable[[graph.Call, TypesOf], Type]
Need: TypeAlias = Callable[[graph.Call, TypesOf], None]
Emit: TypeAlias = Callable[..., "te.Tensor | tuple[te.Tensor, ...]"]
Place: TypeAlias = Callable[..., tuple[PrimExpr, ...]]
"""The indices of an element of a tensor, from those of an element of another."""


def params(values: str, **attrs: Any) -> tuple[Param, ...]:
    """Parameters: value parameters by name (`bias?` may be left out, `*args` takes the rest), then
    attributes with their defaults (`REQUIRED`: must be given; None: may be absent)."""
    rows = [
        Param(v.rstrip("?"), "value", None if v.endswith("?") else REQUIRED) for v in values.split()
    ]
    return (*rows, *(Param(name, "attr", default) for name, default in attrs.items()))


@names_arguments
def define(
    name: str,
    parameters: tuple[Param, ...] | str,
    infer: Infer,
    *,
    needs: Iterable[Need] = (),
    emit: Emit | None = None,
    update: Callable[..., tuple[te.Tensor, Place]] | None = None,
    reference: Callable[..., Any] | None = None,
    pure: bool = True,
    override: bool = False,
    doc: str = "",
    example: str = "",
    traits: Iterable[Trait] = (),
    gradient: Callable[[Any], Sequence[Any]] | None = None,
) -> None:
    """Register an operator.

    `parameters` is what `params` returns, or the string for it where there are no attributes.
    `infer(call, types of the arguments)` gives the result type, wherever shapes and dtypes
    determine one. Each of `needs` raises, for the same arguments, what `fail` returns where there
    is a type and the computation is not possible; `takes` and `one_dtype` are such needs.
    `emit(call, out, *args)` gives the result as tensor expressions: `args` are tensors for tensors,
    tuples for tuples, expressions for scalars and tuples of expressions for shapes. `update`, of
    the same arguments, is for an operator that changes elements of its first argument, each at most
    once: it gives the new elements, and a function from the indices of one to its place.
    `reference` is its meaning in NumPy. `override` replaces an operator that was registered under
    this name, as a cell of a notebook does that is run again. `doc` and `example` are what
    `help(R.name)` shows. `traits` are properties for passes and analyses, as `OpRow` describes
    them, which describes `gradient`, too.

    Raises ValueError when the name is taken and `override` is not set, for the names of relaxlab's
    own operators, and for a trait that there is not.
    """
    parameters = params(parameters) if isinstance(parameters, str) else parameters
    lower = None if emit is None else _lowering(emit)
    if emit is not None:
        _EMITS[name] = emit
    in_place = None if update is None else _updating(update)

    def deduce(call: graph.Call, tys: TypesOf, _: object) -> Type:
        for p in parameters:
            if p.name in call.attrs:
                _require_kind(call, p)
        try:
            ty = infer(call, tys)
        except TypeDeductionError:
            raise
        except Exception as e:
            _note(e, call, "its rule for types")
            raise
        if not isinstance(ty, Type):
            raise fail(call, f"its rule for types returned {kind_of(ty)}, which is no type")
        return ty

    held = frozenset(traits)
    for unknown in held.difference(get_args(Trait)):
        known = ", ".join(get_args(Trait))
        raise ValueError(f"operator {name!r}: there is no trait {unknown!r}; there are {known}")
    row = OpRow(
        name, parameters, deduce, reference, lower, in_place, pure, doc, example, held, gradient,
        tuple(map(_noted, needs)),
    )  # fmt: skip
    register_op(row, override=override)


_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (int,)),
    int: ("a number", (int, float, tuple)),
    float: ("a number", (int, float)),
    str: ("a string", (str,)),
    tuple: ("a number or a tuple of them", (int, float, tuple)),
}
"""The kinds of attributes by the types of their defaults, and the types of such values; a tuple may
have a number for each axis."""


def _require_kind(call: graph.Call, parameter: Param) -> None:
    """Reject a value that is of another kind than the default of an attribute, which None and
    expressions never are."""
    value = call.attrs[parameter.name]
    words, kinds = _KINDS.get(type(parameter.default), ("", (object,)))
    like = isinstance(value, (*kinds, PrimExpr, graph.Expr))
    if value is not None and (not like or (isinstance(value, bool) and tuple in kinds)):
        raise fail(call, f"{parameter.name} must be {words}, is {value!r}")


def _noted(need: Need) -> Need:
    """A need of an operator, whose errors name the place where they were raised."""

    def ask(call: graph.Call, tys: TypesOf) -> None:
        try:
            need(call, tys)
        except TypeDeductionError:
            raise
        except Exception as e:
            _note(e, call, "its needs")
            raise

    return ask


def op_name(call: graph.Call) -> str:
    """The operator's name in the script."""
    assert isinstance(call.op, graph.Op)
    return f"R.{call.op.name}"


def attr(call: graph.Call, name: str) -> Any:
    """An attribute of a call, or its default."""
    assert isinstance(call.op, graph.Op)
    if name in call.attrs:
        return call.attrs[name]
    default = next(p.default for p in op_row(call.op.name).params if p.name == name)
    if default is REQUIRED:
        raise TypeDeductionError(f"{op_name(call)}: {name} is missing")
    return default


def arg_name(call: graph.Call, index: int) -> str:
    """The name of the parameter that `call.args[index]` is for."""
    assert isinstance(call.op, graph.Op)
    values = [p.name for p in op_row(call.op.name).params if p.kind == "value"]
    return values[index] if index < len(values) else f"argument {index}"


def fail(call: graph.Call, message: str, suggestion: str | None = None) -> TypeDeductionError:
    """Return the error to raise: the operator, then the fault."""
    return TypeDeductionError(f"{op_name(call)}: {message}", suggestion=suggestion)


@names_arguments
def tensor_arg(call: graph.Call, tys: TypesOf, index: int) -> TensorType:
    """The type of an argument that must be a tensor."""
    if index >= len(tys):
        raise fail(call, f"{arg_name(call, index)} is missing")
    ty = tys[index]
    if not isinstance(ty, TensorType):
        hint = None
        if isinstance(ty, types.PrimType):
            hint = "wrap it with R.const(value, dtype)"
        elif isinstance(ty, types.ShapeType):
            hint = "wrap numbers with R.const([...], dtype), a shape with R.shape_to_tensor(shape)"
        raise fail(call, f"{arg_name(call, index)} must be a tensor, is {ty}", hint)
    return ty


def tensor_tuple_arg(call: graph.Call, tys: TypesOf, index: int) -> tuple[TensorType, ...]:
    """The types of an argument that must be a non-empty tuple of tensors."""
    ty = tys[index] if index < len(tys) else None
    if not isinstance(ty, types.TupleType) or not ty.fields:
        raise fail(call, f"{arg_name(call, index)} must be a tuple of tensors, is {ty}")
    fields = tuple(f for f in ty.fields if isinstance(f, TensorType))
    if len(fields) != len(ty.fields):
        raise fail(call, f"{arg_name(call, index)} must hold tensors only, is {ty}")
    return fields


def common_dtype(call: graph.Call, *tys: TensorType) -> str | None:
    """The one dtype of several tensors; None when that of one of them is not known."""
    dtypes = list(dict.fromkeys(t.dtype for t in tys))
    known = [d for d in dtypes if d is not None]
    if len(known) > 1:
        raise fail(
            call,
            f"the arguments have dtypes {' and '.join(known)}",
            _conversion(call, known),
        )
    return known[0] if known == dtypes and known else None


def first_dtype(call: graph.Call, *tys: TensorType) -> str | None:
    """The dtype of the first of several operands, None when that of one is not known. Numbers among
    them have one dtype; bools beside them are left to the row's needs."""
    numbers = {t.dtype for t in tys}.difference({None, "bool"})
    if len(numbers) > 1:
        common_dtype(call, *tys)
    return None if any(t.dtype is None for t in tys) else tys[0].dtype


def _conversion(call: graph.Call, dtypes: Sequence[str]) -> str:
    """Advice for arguments of several dtypes: scalars are converted to that of the tensors."""
    for arg in call.args:
        if isinstance(arg, graph.PrimValue):
            to = next((d for d in dtypes if d != arg.value.dtype), dtypes[0])
            return f'convert the scalar: T.cast({arg.value}, "{to}")'
    return f'convert one of them: R.astype(…, "{dtypes[0]}")'


DTYPE_TESTS: dict[str, Callable[[str], bool]] = {
    "floating point": is_float,
    "floating point for mode 'nan'": is_float,
    "integer": is_int,
    "a number": lambda d: d != "bool",
    "bool": lambda d: d == "bool",
    "integer or bool": lambda d: is_int(d) or d == "bool",
    "anything": lambda d: True,
}
"""Kinds of dtypes, by their names in messages."""


def _is_of(dtype: str, kind: str) -> bool:
    test = DTYPE_TESTS.get(kind)
    return dtype in kind.split(" or ") if test is None else test(dtype)


def takes(what: str, *indices: int) -> Need:
    """The need that arguments, the first if none is named, have a dtype of a kind: of
    `DTYPE_TESTS`, or one such as "int32 or int64". Those that are left out or no tensors have it.
    """

    def need(call: graph.Call, tys: TypesOf) -> None:
        for index in indices or (0,):
            ty = tys[index] if index < len(tys) else None
            if isinstance(ty, TensorType):
                require_dtype(call, ty, what, index)

    return need


def one_dtype(*indices: int) -> Need:
    """The need that tensors, all arguments if none is named, have one dtype."""

    def need(call: graph.Call, tys: TypesOf) -> None:
        given = [tys[i] for i in indices if i < len(tys)] if indices else tys
        common_dtype(call, *(ty for ty in given if isinstance(ty, TensorType)))

    return need


def numbers(call: graph.Call, tys: TypesOf) -> None:
    """The need of products that no factor, an argument or a field of one, has bools."""
    for ty in tys:
        fields = ty.fields if isinstance(ty, types.TupleType) else (ty,)
        if any(isinstance(f, TensorType) and f.dtype == "bool" for f in fields):
            raise fail(call, "takes numbers, not bool", "convert with R.astype")


def require_dtype(call: graph.Call, ty: TensorType, what: str, index: int = 0) -> None:
    """Reject a known dtype that is not of a kind; see `takes`."""
    if ty.dtype is not None and not _is_of(ty.dtype, what):
        raise fail(
            call,
            f"{arg_name(call, index)} must be {what}, has dtype {ty.dtype}",
            "convert it with R.astype",
        )


def type_of_argument(index: int) -> Infer:
    """The rule for types of an operator on tensors whose result has the type of one of them."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        return [tensor_arg(call, tys, i) for i in range(max(len(tys), index + 1))][index]

    return infer


def tensor_like(ty: TensorType, dtype: str | None = None) -> TensorType:
    """Return a tensor type with the shape or rank of another and the given dtype."""
    return TensorType(ty.shape, dtype if dtype is not None else ty.dtype, ty.ndim)


def normal_axis(call: graph.Call, axis: Any, ndim: int, name: str = "axis") -> int:
    """`axis` counted from the front. Raises when it is not in [-ndim, ndim)."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise fail(call, f"{name} must be an int, is {axis!r}")
    if not -ndim <= axis < ndim:
        raise fail(call, f"{name} {axis} is out of range for a tensor with {ndim} dimensions")
    return axis % ndim


def number(call: graph.Call, name: str, value: Any, *, whole: bool = False) -> PrimExpr:
    """A number of the attribute `name` as an expression. Raises for what is none, and for a
    fraction or a bool where it is to be whole."""
    if isinstance(value, int | float | PrimExpr):
        found = expr.as_expr(value)
        if not whole or is_int(found.dtype):
            return found
    raise fail(call, f"{name} must be {'a whole' if whole else 'a'} number, is {value}")


def axis_within(call: graph.Call, tys: TypesOf) -> None:
    """The need that the attribute `axis` is one of the first argument's dimensions."""
    x = tensor_arg(call, tys, 0)
    if x.ndim >= 0:
        normal_axis(call, attr(call, "axis"), x.ndim)


def normal_axes(call: graph.Call, axes: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Distinct axes counted from the front; None means all, an int means one."""
    if axes is None:
        return tuple(range(ndim))
    items: tuple[Any, ...] = axes if isinstance(axes, tuple) else (axes,)
    result = tuple(normal_axis(call, a, ndim, name) for a in items)
    if len(set(result)) != len(result):
        raise fail(call, f"{name} {axes} names a dimension twice")
    return result


# --- Lowering ---------------------------------------------------------------------------------


def expression_of(name: str, *args: Any, **kwargs: Any) -> te.Tensor | tuple[te.Tensor, ...]:
    """The result of an operator as tensor expressions, applied to tensor expressions.

    Arguments are those of the operator's builder, with tensor expressions in the place of tensors.
    Raises ValueError for an operator without tensor expressions, TypeDeductionError for arguments
    that it does not take.
    """
    emit = _EMITS.get(op_row(name).name)
    if emit is None:
        raise ValueError(f"R.{name} is not lowered to tensor expressions")
    tensors: dict[graph.Expr, te.Tensor] = {}

    def stand_in(item: Any) -> Any:
        match item:
            case te.Tensor():
                var = graph.Var(item.name, TensorType(item.shape, item.dtype))
                tensors[var] = item
                return var
            case tuple() | list():
                return tuple(stand_in(i) for i in item)  # type: ignore[reportUnknownVariableType]
            case _:
                return item

    given = [stand_in(a) for a in args]
    call = builder(name)(*given, **{k: stand_in(v) for k, v in kwargs.items()})
    tys = tuple(type_of(a) for a in call.args)
    out = infer_type(op_row(name), call, tys, None)

    def tensor_of(value: graph.Expr, ty: TensorType) -> te.Tensor:
        if isinstance(value, graph.Constant) and value.data.ndim == 0:
            return te.compute((), lambda: expr.const(value.data.item(), ty.dtype), "value")
        return tensors[value]

    lowered = [
        _lowered_arg(call, i, value, ty, tensor_of)
        for i, (value, ty) in enumerate(zip(call.args, tys, strict=True))
    ]
    return emit(call, out, *lowered)


_EMITS: dict[str, Emit] = {}
"""The tensor expressions of operators, by their names."""


def _lowering(emit: Emit) -> Callable[[graph.Call, TypesOf, Type], loops.PrimFunc]:
    def lower(call: graph.Call, tys: TypesOf, out: Type) -> loops.PrimFunc:
        assert isinstance(call.op, graph.Op)
        args, inputs = _lowered_args(call, tys, out)
        try:
            result = emit(call, out, *args)
        except Exception as e:
            _note(e, call, "`emit`")
            raise
        outputs = result if isinstance(result, tuple) else (result,)
        _check_emitted(call, out, outputs)
        names = {a: arg_name(call, i) for i, a in enumerate(args) if isinstance(a, te.Tensor)}
        func = te.create_prim_func([*inputs, *outputs], names)
        if not is_own(call.op.name):  # those of relaxlab itself are tested, and a check takes 2 ms
            te.check(call.op.name, func, call.span)
        return func

    return lower


def _note(error: Exception, call: graph.Call, rule: str) -> None:
    """Add to an error the operator's function in which it was raised, and the call."""
    error.add_note(f"in {rule} of {op_name(call)}{'' if call.span is None else f', {call.span}'}")


def _updating(
    update: Callable[..., tuple[te.Tensor, Place]],
) -> Callable[[graph.Call, TypesOf, Type], loops.PrimFunc]:
    def lower(call: graph.Call, tys: TypesOf, out: Type) -> loops.PrimFunc:
        args, inputs = _lowered_args(call, tys, out)
        return te.create_update(inputs, *update(call, out, *args))

    return lower


def _lowered_args(call: graph.Call, tys: TypesOf, out: Type) -> tuple[list[Arg], list[te.Tensor]]:
    """Return the arguments as tensor expressions, and the tensors among them."""
    inputs: list[te.Tensor] = []

    def placeholder(_: graph.Expr, ty: TensorType) -> te.Tensor:
        assert ty.shape is not None and ty.dtype is not None
        inputs.append(te.placeholder(ty.shape, ty.dtype, _letter(len(inputs))))
        return inputs[-1]

    args = [
        _lowered_arg(call, i, value, ty, placeholder)
        for i, (value, ty) in enumerate(zip(call.args, tys, strict=True))
    ]
    _check_known(call, out, "the result")
    return args, inputs


def _check_emitted(call: graph.Call, out: Type, outputs: tuple[object, ...]) -> None:
    """Raise where tensor expressions are not what the rule for types promises."""
    wanted = out.fields if isinstance(out, types.TupleType) else (out,)
    if len(outputs) != len(wanted):
        raise fail(call, f"`emit` gave {len(outputs)} results, its rule for types {len(wanted)}")
    for got, ty in zip(outputs, wanted, strict=True):
        if not isinstance(got, te.Tensor):
            raise fail(call, f"`emit` gave {kind_of(got)}, which is no tensor expression")
        if not isinstance(ty, TensorType) or (got.dtype, len(got.shape)) != (ty.dtype, ty.ndim):
            text = f"`emit` gave {got.dtype} in {counted(len(got.shape), 'dimension')}"
            raise fail(call, f"{text}, its rule for types {ty}")


def _lowered_arg(
    call: graph.Call,
    index: int,
    value: graph.Expr,
    ty: Type,
    tensor_of: Callable[[graph.Expr, TensorType], te.Tensor],
) -> Arg:
    match ty, value:
        case TensorType(), _:
            _check_known(call, ty, arg_name(call, index))
            return tensor_of(value, ty)
        case types.TupleType(fields), _:
            values = value.fields if isinstance(value, graph.Tuple) else [value] * len(fields)
            pairs = zip(values, fields, strict=True)
            return tuple(_lowered_arg(call, index, v, f, tensor_of) for v, f in pairs)  # type: ignore
        case types.ShapeType(values), _ if values is not None:
            return values
        case types.PrimType(), graph.PrimValue(scalar):
            return scalar
        case types.PrimType(_, known), _ if known is not None:
            return known
        case _:
            raise fail(call, f"the value of {arg_name(call, index)} ({ty}) is not known")


def _check_known(call: graph.Call, ty: Type, what: str) -> None:
    fields = ty.fields if isinstance(ty, types.TupleType) else (ty,)
    for f in fields:
        if isinstance(f, TensorType) and (f.shape is None or f.dtype is None):
            raise fail(
                call,
                f"cannot be lowered to loops: the shape or dtype of {what} is not known ({f})",
                "name it with R.match_cast",
            )


def _letter(count: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[count] if count < 26 else f"A{count}"


# --- Building calls ---------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Builder:
    """Builds calls of one operator: `ops.add(x, y)` is `R.add(x, y)`.

    Arrays and Python numbers become constants (numbers take the dtype of a tensor argument),
    tuples of dimensions become shapes, tuples of values become tuples. `ty_args` are the output
    types of the calls that state them (`call_tir`).
    """

    row: OpRow

    def __repr__(self) -> str:
        return f"<builder of R.{self.row.name}{self.__signature__}>"

    @property
    def __signature__(self) -> inspect.Signature:
        return op_signature(self.row)

    def __call__(self, *args: Any, ty_args: tuple[Type, ...] = (), **kwargs: Any) -> graph.Call:
        try:
            bound = inspect.signature(self).bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError(f"R.{self.row.name}{self.__signature__}: {e}") from None
        dtype = _dtype_among(bound.values())
        values: list[graph.Expr] = []
        attrs: dict[str, Any] = {}
        for p in self.row.params:
            if p.name.startswith("*"):
                values += [as_value(v, dtype) for v in bound.get(p.name[1:], ())]
                continue
            item = bound.get(p.name, p.default)
            if item is None and (p.kind == "value" or p.default is None):
                continue
            if p.kind == "attr":
                attrs[p.name] = _plain(item)
            else:
                values.append(as_value(item, dtype))
        return graph.Call(graph.Op(self.row.name), tuple(values), Attrs(attrs), ty_args)


def builder(name: str) -> Builder:
    """The builder of a registered operator. Raises AttributeError for an unknown name."""
    row = find_op(name)
    if row is None:
        raise AttributeError(f"there is no operator {name!r}")
    return Builder(row)


def as_value(item: Any, dtype: str | None = None) -> graph.Expr:
    """A Python value as a graph expression; numbers become constants of `dtype`."""
    match item:
        case graph.Expr():
            return item
        case PrimExpr():
            return graph.PrimValue(item)
        case str():
            return graph.StringImm(item)
        case np.ndarray():
            return graph.Constant(item)
        case bool() | int() | float() | np.generic():
            kind = numpy_dtype(dtype) if dtype else np.asarray(item).dtype
            if dtype is None and isinstance(item, float):
                kind = np.dtype(np.float32)
            return graph.Constant(np.asarray(item, kind))
        case tuple() | list():
            return _sequence(item)  # type: ignore[reportUnknownArgumentType]
        case _:
            raise TypeError(f"{item!r} cannot be an argument of an operator")


def _sequence(items: Sequence[Any]) -> graph.Expr:
    if all(isinstance(i, PrimExpr | int) for i in items):
        return graph.ShapeExpr(tuple(expr.as_expr(i) for i in items))
    return graph.Tuple(tuple(as_value(i) for i in items))


def _plain(item: Any) -> Any:
    """An attribute with integer and float constants as Python numbers, as the parser has them, and
    scalars of the graph as scalars."""
    match item:
        case graph.PrimValue(value):
            return _plain(value)
        case expr.IntImm() | expr.FloatImm() if item.dtype != "bool":
            return item.value
        case tuple() | list():
            return tuple(_plain(v) for v in item)  # type: ignore[reportUnknownVariableType]
        case _:
            return item


def _dtype_among(values: Any) -> str | None:
    for v in values:
        ty = v.ty if isinstance(v, graph.Var) else None
        if isinstance(ty, TensorType) and ty.dtype is not None and ty.dtype != "bool":
            return ty.dtype
        if isinstance(v, np.ndarray):
            return v.dtype.name
        if isinstance(v, graph.Constant):
            return v.data.dtype.name
    return None
