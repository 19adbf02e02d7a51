"""Give parameters of a function their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.unify import bind_values
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bind_symbolic_vars import graph_function, with_symbols
from relaxlab.passes.effects import overwritten_params
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import remark


@dataclass(frozen=True, slots=True)
class BindParamsOptions:
    """`params`: arrays by the parameters' names. `function`: whose parameters."""

    params: Mapping[str, np.ndarray[Any, Any]] = field(
        default_factory=dict[str, np.ndarray[Any, Any]]
    )
    function: str = "main"

    def __str__(self) -> str:
        return f"{self.function}: {', '.join(self.params)}"


@module_pass("bind_params", BindParamsOptions)
def bind_params(mod: Module, options: BindParamsOptions) -> Module:
    """Replace parameters by constants; symbols that their shapes determine become numbers, too.

    Raises ValueError for a function or parameter that is not there, an array that does not have
    the parameter's dtype and shape, a parameter that is overwritten in place, and a function that
    the module calls (its callers would pass too much).
    """
    if not options.params:
        return mod
    fn = graph_function(mod, options.function, "bind_params")
    _refuse_callers(mod, options.function)
    env: dict[expr.Var, int] = {}
    values: dict[graph.Var, graph.Expr] = {}
    dims: list[tuple[expr.PrimExpr, int]] = []
    places: list[str] = []
    for name, array in options.params.items():
        at, param = _parameter(fn, options.function, name)
        if at in overwritten_params(mod).get(options.function, ()):
            raise ValueError(f"bind_params: `{name}` is overwritten in place: it must be passed")
        ty = param.ty
        _check_array(name, array, ty)
        shape = ty.shape if isinstance(ty, types.TensorType) else None
        for axis, d in enumerate(shape or ()):
            dims.append((d, array.shape[axis]))
            places.append(f"dimension {axis} of `{name}` is {array.shape[axis]}")
        values[param] = graph.Constant(array)
        remark("bind_params", f"{options.function}.{name}", f"is a constant of shape {array.shape}")
    wrong = bind_values(dims, env)
    if wrong:
        text = "; ".join(f"{places[at]}, expected {expected}" for at, expected in wrong)
        raise ValueError(f"bind_params: {text}")
    kept = tuple(p for p in fn.params if p not in values)
    inputs = fn.attrs.get("num_input")
    attrs = fn.attrs
    if inputs is not None:
        attrs = attrs.with_(num_input=sum(p in kept for p in fn.params[:inputs]))
    body = substitute(fn.body, values=values)
    bound = with_symbols(replace(fn, params=kept, body=body, attrs=attrs), env)
    return normalized(mod.with_functions({options.function: bound}))


def _refuse_callers(mod: Module, name: str) -> None:
    for caller, fn in mod.graph_functions().items():
        if any(n == graph.GlobalVar(name) for n in walk(fn.body)):
            raise ValueError(f"bind_params: `{caller}` calls `{name}` with all its parameters")


def _parameter(fn: graph.Function, function: str, name: str) -> tuple[int, graph.Var]:
    for at, p in enumerate(fn.params):
        if p.name == name:
            return at, p
    names = among(name, (p.name for p in fn.params))
    raise ValueError(f"bind_params: `{function}` has no parameter `{name}`; it has: {names}")


def _check_array(name: str, array: np.ndarray[Any, Any], ty: types.Type | None) -> None:
    if not isinstance(ty, types.TensorType):
        raise ValueError(f"bind_params: `{name}` is no tensor but {ty}")
    if ty.dtype is not None and array.dtype != numpy_dtype(ty.dtype):
        raise ValueError(f"bind_params: `{name}` has dtype {ty.dtype}, given {array.dtype}")
    if ty.ndim not in (-1, array.ndim):
        raise ValueError(f"bind_params: `{name}` has {ty.ndim} dimensions, given {array.ndim}")
