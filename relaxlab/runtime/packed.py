"""Functions registered by name, for `call_packed` and its kin to call out to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted, kind_of
from relaxlab.runtime import blas, vm_builtins
from relaxlab.runtime.arrays import ExecutionError, apart

PackedFunc = Callable[..., Any]


def run_operator(op: str, attrs: str, dtype: str, *args: Any) -> Any:
    """Run an operator that has no loops by its NumPy reference; `attrs` is a JSON object, `dtype`
    that of the result where arguments are scalars, else "". Raises ExecutionError naming the
    operator."""
    from relaxlab.ir.op_table import op_row  # brings the operators, which few programs call

    reference = op_row(op).reference
    if reference is None:
        raise TypeError(f"R.{op} has no reference to run")
    given = {k: _tuples(v) for k, v in json.loads(attrs).items()}
    try:
        result = reference(*args, **given)
        # Scalars are Python's numbers, whose dtype NumPy does not know.
        result = result.astype(numpy_dtype(dtype), copy=False) if dtype else result
        # The memory of an argument is planned: others have it after the argument's last use.
        return _contiguous(apart(result, args))
    except (ArithmeticError, AssertionError, IndexError, TypeError, ValueError) as error:
        raise ExecutionError(f"R.{op}: {error}") from error


def _contiguous(result: Any) -> Any:
    """Return a result with its arrays in C order, as programs read them: NumPy gives transposed
    views where that saves a copy."""
    if isinstance(result, tuple):
        return tuple(_contiguous(r) for r in result)
    return np.asarray(result, order="C") if isinstance(result, np.ndarray) else result


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _debug(_: Any, name: str, place: str, *args: Any) -> None:
    """Call the function of a name with a place in the program, and arguments."""
    get_func(name)(place, *args)


_FUNCS: dict[str, PackedFunc] = {
    **vm_builtins.FUNCTIONS,
    "vm.builtin.invoke_debug_func": _debug,
    "relaxlab.operator": run_operator,
    "relaxlab.blas.matmul": blas.matmul,
    "relaxlab.blas.matmul_bias": blas.matmul_bias,
}


@names_arguments
def register_func(name: str, fn: PackedFunc, *, override: bool = False) -> PackedFunc:
    """Make `fn` callable from programs as `name`. Arrays arrive as NumPy arrays (for
    destination-passing calls the outputs come last and are written in place), shapes as tuples.

    Raises ValueError when the name is taken and `override` is not set, TypeError for what cannot be
    called.
    """
    if not callable(fn):
        raise TypeError(f"{name!r} is to be a function, got {kind_of(fn)}")
    if name in _FUNCS and not override:
        raise ValueError(f"a function named {name!r} is already registered; pass override=True")
    _FUNCS[name] = fn
    return fn


def call_func(name: str, *args: Any) -> Any:
    """Call the function of that name. Raises KeyError as `get_func` does, ExecutionError for one
    that does not take as many arguments."""
    try:
        return get_func(name)(*args)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # from within the function
        raise ExecutionError(
            f"the registered function {name!r} does not take {counted(len(args), 'argument')} "
            f"(`call_dps_packed` gives it the outputs last): {error}"
        ) from error


def get_func(name: str) -> PackedFunc:
    """The function of that name. Raises KeyError saying how to register it."""
    if name not in _FUNCS:
        raise KeyError(
            f"no function named {name!r} is registered; "
            "call relaxlab.register_func(name, fn) first"
        )
    return _FUNCS[name]
