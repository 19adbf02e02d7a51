"""Methods that recurse over values of data types: lists, trees, what a program decides by itself.

    Tree = nn.DataType("Tree", Leaf=[nn.spec.Tensor((), "int64")], Node=["Tree", "Tree"])

    class Sums(nn.Module):
        @nn.recursive(nn.spec.Tensor((1, 8)))
        def cell(self, tree):
            return tree.match(
                Leaf=lambda word: self.words(word),
                Node=lambda left, right: self.join(self.cell(left) + self.cell(right)),
            )

        def main(self, tree):
            return self.cell(tree)

    mod, names = model.export({"main": {"tree": Tree}})
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.data import Constructor, DataDef
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.node import Attrs
from relaxlab.nn import spec
from relaxlab.nn.builder import Data, FunctionBuilder, Recursive, Tensor

Returns: TypeAlias = "spec.Spec | Callable[[Any], spec.Spec]"
"""The specification of the result of a method, or a function from the module to it."""


class DataType(spec.Data):
    """An algebraic data type: for each constructor the specifications of its fields, tensors of
    constant shape, or data types, where a name is this one's.

    Its constructors are attributes. While a program is built they take tensors and values of that
    and return a value of it; at other times they make what a compiled program takes.
    """

    def __init__(
        self, name: str, /, **constructors: Sequence[spec.Tensor | spec.Data | str]
    ) -> None:
        made = [
            Constructor(name, c, tag, tuple(self._field(name, c, f) for f in fields))
            for tag, (c, fields) in enumerate(constructors.items())
        ]
        super().__init__(DataDef(name, tuple(made)))

    def _field(self, name: str, of: str, field: Any) -> types.Type:
        match field:
            case str() if field == name:
                return types.DataType(name)
            case spec.Data(definition):
                return types.DataType(definition.name)
            case spec.Tensor(shape, dtype) if all(isinstance(d, int) for d in shape):
                return types.TensorType(tuple(expr.const(int(d)) for d in shape), dtype)
            case _:
                raise TypeError(
                    f"a field of `{of}` is {field!r}; fields are nn.spec.Tensor with constant "
                    f'dimensions, data types, or "{name}"'
                )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        of = None if name.startswith("_") else self.definition.constructor(name)
        if of is None:
            known = ", ".join(f"`{c.name}`" for c in self.definition.constructors)
            of_type = self.definition.name
            raise AttributeError(f"`{of_type}` has no constructor {name!r}, but {known}")

        def construct(*fields: Any) -> Any:
            builder = FunctionBuilder.current()
            return of(*fields) if builder is None else _constructed(builder, of, fields)

        return construct


def _constructed(builder: FunctionBuilder, of: Constructor, fields: Sequence[Any]) -> Any:
    if len(fields) != len(of.fields):
        takes = counted(len(of.fields), "field")
        raise TypeError(f"`{of.name}` of `{of.data}` has {takes}, got {len(fields)}")
    values = [_field_value(f, ty) for f, ty in zip(fields, of.fields, strict=True)]
    attrs = Attrs(data=of.data, constructor=of.name, tag=of.tag)
    return builder.emit_value(graph.Call(graph.Op("adt.construct"), tuple(values), attrs), of.name)


def _field_value(value: Any, ty: types.Type) -> graph.Expr:
    if isinstance(value, Tensor | Data):
        return value.var
    if isinstance(ty, types.TensorType) and not isinstance(value, str):
        return graph.Constant(np.asarray(value, numpy_dtype(str(ty.dtype))))
    raise TypeError(f"a field of type {ty} is {kind_of(value)}")


@names_arguments
def cond(condition: Tensor, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Return the result of `then()` where a bool tensor of rank 0 is true, else of `otherwise()`:
    tensors, values of data types, or tuples of these. Only one of them is computed.

    >>> nn.cond(count > 0, lambda: self.step(x), lambda: x)               # doctest: +SKIP
    """
    if not isinstance(condition, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the condition is {kind_of(condition)}, expected a tensor of the model")
    return condition.builder.emit_cond(condition.var, then, otherwise)


@names_arguments
def recursive(returns: Returns) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method of a module become a function of the program, which may call itself and others
    of the kind. Without this a method is built into what calls it, and recursion does not end.

    returns: the specification of the result, a list for a tuple; or a function that takes the
    module and returns it. The method takes tensors and values of data types.
    """
    if callable(returns) and inspect.isfunction(returns) and not _is_maker(returns):
        raise TypeError(
            f"nn.recursive needs to know what `{returns.__name__}` returns: "
            "@nn.recursive(nn.spec.Tensor((1, 64)))"
        )

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, *args: Any) -> Any:
            return _called(self, method, returns, args)

        return call

    return decorate


def _is_maker(returns: Callable[..., Any]) -> bool:
    """True for a function of the module alone, and not the method that was to be decorated."""
    return len(inspect.signature(returns).parameters) == 1


def _called(module: Any, method: Callable[..., Any], returns: Returns, args: Sequence[Any]) -> Any:
    name = method.__name__
    builder = FunctionBuilder.current()
    if builder is None:
        raise TypeError(f"`{name}` is called while no program is built: export the module")
    for a in args:
        if not isinstance(a, Tensor | Data):
            raise TypeError(
                f"`{name}` is recursive: it takes tensors and values of data types, not "
                f"{kind_of(a)}; keep what else it needs in the module"
            )
    known = builder.recursive.get((id(module), method))
    if known is None:
        known = _built(builder, module, method, returns, args)
    given = tuple(a.var for a in args)
    for a, ty in zip(given, known.params, strict=True):
        if not structural_equal(_kind(a.ty), _kind(ty)):
            raise TypeError(f"`{name}` takes {ty} where it is called with {a.ty}: the types of a "
                            "recursive method's arguments are those of its first call")  # fmt: skip
    weights = tuple(w.var for w in builder.weights())
    call = graph.Call(graph.GlobalVar(known.name), (*given, *weights))
    return builder.emit_value(call, name)


def _kind(ty: types.Type | None) -> types.Type | None:
    """A type without symbols, which each function has of its own."""
    if not isinstance(ty, types.TensorType) or ty.shape is None:
        return ty
    dims = tuple(d if isinstance(d, expr.IntImm) else expr.const(-1) for d in ty.shape)
    return types.TensorType(dims, ty.dtype)


def _built(
    caller: FunctionBuilder, module: Any, method: Callable[..., Any], returns: Returns,
    args: Sequence[Tensor | Data],
) -> Recursive:  # fmt: skip
    """Build the function of a method, which is known before its body is."""
    names = [*inspect.signature(method).parameters][1:]
    if len(names) != len(args):
        raise TypeError(f"`{method.__name__}` takes {counted(len(names), 'argument')}, "
                        f"got {len(args)}")  # fmt: skip
    callee = caller.callee()
    inputs = [callee.value_param(n, a.var.ty) for n, a in zip(names, args, strict=True)]
    for weight, tensor in caller.weights_by_parameter().items():
        callee.weight_param(tensor.var.name, weight)
    what = returns(module) if callable(returns) else returns
    result_type = _type_of(callee, what, method.__name__)
    known = callee.declare(method.__name__, result_type, tuple(a.var.ty for a in args), module)
    caller.recursive[id(module), method] = known
    with callee.building():
        result = method(module, *inputs)
    callee.define(known, result)
    return known


def _type_of(builder: FunctionBuilder, what: Any, name: str) -> types.Type:
    match what:
        case spec.Tensor(shape, dtype):
            return types.TensorType(builder.dims(shape), dtype)
        case spec.Data():
            return builder.data_type(what)
        case Sequence() if not isinstance(what, str):
            return types.TupleType(tuple(_type_of(builder, w, name) for w in what))
        case _:
            raise TypeError(f"`{name}` is said to return {kind_of(what)}, expected a "
                            "specification such as nn.spec.Tensor((1, 64))")  # fmt: skip
