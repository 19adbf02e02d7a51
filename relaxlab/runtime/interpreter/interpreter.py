"""The NumPy interpreter: the meaning of both levels, and the oracle of every test.

`interpret` runs a function of a module on NumPy arrays; `interpret_prim_func` one loop function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.facts_check import checked_buffers, facts_check
from relaxlab.analysis.prelude import prelude_of, without_prelude
from relaxlab.analysis.unify import bind_values
from relaxlab.ir import expr, loops
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import brief, counted
from relaxlab.ir.names import among
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.arrays import Array, ExecutionError, uninitialised
from relaxlab.runtime.interpreter.graph import Machine
from relaxlab.runtime.interpreter.intrinsics import register_intrinsic_meaning
from relaxlab.runtime.interpreter.loops import compile_loops
from relaxlab.runtime.programs import Program, as_module

__all__ = ["interpret", "interpret_prim_func", "register_intrinsic_meaning"]


@names_arguments
@brief
def interpret(program: Program, name: str = "main", *args: Any) -> Any:
    """Run a function of a program: operators by their NumPy references, loop functions by
    `interpret_prim_func`, registered functions by calling them.

    program: a module, a function or a schedule. Tensors are NumPy arrays (bfloat16 through
    ml_dtypes) or anything with DLPack, shapes tuples of int, scalars numbers. A loop function is
    given its outputs as arguments and returns None. The program runs as it stands, without passes;
    claims of its signatures and `match_cast`s are checked. Raises ExecutionError naming the
    function, the value, what was expected and what came.
    """
    mod = as_module(program)
    if name not in mod:
        raise KeyError(f"no function named {name!r} in the module; it has: {among(name, mod)}")
    try:
        return Machine.of(mod, interpret_prim_func).call(name, args)
    except RecursionError:
        raise ExecutionError(f"`{name}` is called, or calls others, too deeply") from None


def interpret_prim_func(
    func: loops.PrimFunc, args: Sequence[Any], *, name: str = "", vectorise: bool = True
) -> Any:
    """Run a loop function on `args`: one array per buffer parameter (outputs are stored into)
    and a number per scalar parameter, in order. Index functions that follow from others may be left
    out. Returns the scalar that the function returns, if it does.

    Independent iterations run at once unless `vectorise` is false or arrays overlap. Raises
    ExecutionError naming the buffer, index and block of an access that leaves its buffer, the
    dimension that does not fit its declaration, or what has no meaning here.
    """
    try:
        return _run(func, args, vectorise)
    except ExecutionError as error:
        where = f"loop function {name or func.attrs.get('global_symbol', '')!r}: "
        raise ExecutionError(f"{where}{error}") from error


def _run(func: loops.PrimFunc, args: Sequence[Any], vectorise: bool) -> Any:
    if len(args) < len(func.params):
        args = _with_prelude(func, args, vectorise)
    if len(args) != len(func.params):
        raise ExecutionError(f"takes {counted(len(func.params), 'argument')}, got {len(args)}")
    env = bind_parameters(func, args)
    for required in func.requires:
        if not evaluate(required.condition, env):
            why = required.text([evaluate(v, env) for v in required.values])
            raise ExecutionError(f"needs {required.condition}: {why}")
    check = facts_check(func)
    if check is not None:
        given = dict(zip(func.params, args, strict=True))
        arrays = dict(zip(checked_buffers(func), check.buffers, strict=True))
        of_check = {plain: given[b] for b, plain in arrays.items()} | env
        _run(check, [of_check[p] for p in check.params], vectorise)
    symbols = tuple(v for v in env if v not in func.params)
    values = [_scalar(env[p], p.dtype) if isinstance(p, expr.Var) else a
              for p, a in zip(func.params, args, strict=True)]  # fmt: skip
    values += [_scalar(env[v], v.dtype) for v in symbols]
    kernel = compile_loops(func, symbols, vectorise and not _overlap(func, args))
    with np.errstate(all="ignore"):
        return kernel(*values)


def _with_prelude(func: loops.PrimFunc, args: Sequence[Any], vectorise: bool) -> Sequence[Any]:
    """The arguments with the index functions that they leave out and that follow from others; as
    they are if something else is missing."""
    given = without_prelude(func)
    if len(args) != len(given.params):
        return args
    env = bind_parameters(given, args)
    values = dict(zip(given.params, args, strict=True))
    for derived in prelude_of(func):
        b = derived.buffer
        made = uninitialised([int(evaluate(d, env)) for d in b.shape], b.dtype)
        _run(derived.func, [*(values[x] for x in derived.inputs), made], vectorise)
        values[b] = made
    return [values[p] for p in func.params]


def _scalar(value: Any, dtype: str) -> Any:
    return np.asarray(value).astype(numpy_dtype(dtype))[()]


def bind_parameters(func: loops.PrimFunc, args: Sequence[Any]) -> dict[expr.Var, Any]:
    """The value of every scalar parameter and of every symbol of the buffers' declarations."""
    env: dict[expr.Var, Any] = {}
    dims: list[tuple[expr.PrimExpr, int]] = []
    owners: list[tuple[loops.Buffer, int]] = []
    written = {n.buffer for n in walk(func.body) if isinstance(n, loops.BufferStore)}
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, expr.Var):
            env[p] = a.item() if isinstance(a, np.generic | np.ndarray) else a
            continue
        _check_buffer(p, a, p in written)
        dims += zip(p.shape, a.shape, strict=True)
        owners += [(p, axis) for axis in range(p.ndim)]
    for at, expected in bind_values(dims, env):
        buffer, axis = owners[at]
        raise ExecutionError(
            f"dimension {axis} of {buffer.name} is {dims[at][1]}, expected {expected}"
        )
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, loops.Buffer):
            _bind_layout(p, a, env)
    return env


def _check_buffer(buffer: loops.Buffer, array: Any, written: bool) -> None:
    if not isinstance(array, np.ndarray):
        raise ExecutionError(f"{buffer.name} needs an array, got {type(array).__name__}")
    if array.dtype != numpy_dtype(buffer.dtype):
        raise ExecutionError(f"{buffer.name} needs dtype {buffer.dtype}, got {array.dtype}")
    if array.ndim != buffer.ndim:
        raise ExecutionError(
            f"{buffer.name} needs {buffer.ndim} dimensions, got {array.ndim} (shape {array.shape})"
        )
    if written and not array.flags.writeable:
        raise ExecutionError(f"{buffer.name} is written but the array is read-only")


def _bind_layout(buffer: loops.Buffer, array: Array, env: dict[expr.Var, Any]) -> None:
    """Symbols that only strides and offsets mention: taken from the array's own layout."""
    for dim, stride in zip(buffer.strides, array.strides, strict=bool(buffer.strides)):
        for v in symbols_in(dim):
            env.setdefault(v, stride // array.itemsize)
    for v in symbols_in(buffer.elem_offset) if buffer.elem_offset is not None else ():
        env.setdefault(v, 0)


def _overlap(func: loops.PrimFunc, args: Sequence[Any]) -> bool:
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    return any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[i + 1 :])
