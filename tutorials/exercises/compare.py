"""Running an answer next to NumPy, and saying in words how the two differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import relaxlab as rl
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import IntImm, Var
from relaxlab.ir.graph import Function
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.module import Module

from relaxlab.lab.verdict import Hint

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Reference: TypeAlias = Callable[..., Any]


def floats(*shape: int) -> Array:
    """Numbers without a pattern, the same each time."""
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


def loop_function(mod: Module, name: str) -> PrimFunc:
    """The loop function of that name. Raises Hint where there is none."""
    return _function(mod, name, PrimFunc, "loop function (`@T.prim_func`)")


def graph_function(mod: Module, name: str) -> Function:
    """The graph function of that name. Raises Hint where there is none."""
    return _function(mod, name, Function, "graph function (`@R.function`)")


def _function(mod: Any, name: str, kind: type[Any], words: str) -> Any:
    if not isinstance(mod, Module):
        raise Hint(f"the answer must be a module, is {kind_of(mod)}")
    if not isinstance(mod.get(name), kind):
        raise Hint(f"the module has no {words} called `{name}`; it has: {', '.join(mod)}")
    return mod[name]


def loops_compute(
    mod: Module, name: str, inputs: Sequence[Array], reference: Reference, *, after: str = ""
) -> None:
    """A loop function stores what the reference returns for the inputs, whatever is in the memory
    of the result before. `after` is added to a hint. Raises Hint."""
    func = loop_function(mod, name)
    want = np.asarray(reference(*inputs))
    if len(func.params) != len(inputs) + 1:
        raise Hint(
            f"`{name}` must take {len(inputs)} inputs and one output, "
            f"it has {len(func.params)} parameters"
        )
    _has_shape(name, func.params[-1], want.shape, after)
    results: list[Array] = []
    for before in (np.nan, 7.0) if want.dtype.kind == "f" else (99, 7):
        out = np.full(want.shape, before, want.dtype)
        given = [x.copy() for x in inputs]
        rl.interpret(mod, name, *given, out)
        for number, (x, old) in enumerate(zip(given, inputs, strict=True)):
            if not np.array_equal(x, old):
                raise Hint(f"`{name}` changes its input number {number + 1}; store the result only")
        results.append(out)
    first, second = results
    changed = ~np.isclose(first, second, equal_nan=True)
    if np.any(changed & (second == 7)):
        at = _first(changed & (second == 7))
        raise Hint(f"element {at} of the result is never written; do the loops reach it?{after}")
    if np.any(changed):
        raise Hint(
            f"element {_first(changed)} of the result depends on what was in memory before: it is "
            f"read before it is written. A reduction needs `with T.init():`{after}"
        )
    same(first, want, f"`{name}`", after)


def _has_shape(name: str, out: Buffer | Var, shape: tuple[int, ...], after: str) -> None:
    """Refuse a result of another shape; dimensions that are symbols take any."""
    if not isinstance(out, Buffer):
        raise Hint(f"the last parameter of `{name}` must be the buffer of the result")
    declared = tuple(d.value for d in out.shape if isinstance(d, IntImm))
    if len(declared) == len(out.shape) and declared != shape:
        raise Hint(f"the result `{out.name}` is declared as {declared}, it must be {shape}{after}")


def graph_computes(
    mod: Module, name: str, inputs: Sequence[Array], reference: Reference, *, after: str = ""
) -> None:
    """A graph function, run by the interpreter, returns what the reference does. Raises Hint."""
    params = graph_function(mod, name).params
    if len(params) != len(inputs):
        raise Hint(f"`{name}` must take {len(inputs)} arguments, it takes {len(params)}")
    same(rl.interpret(mod, name, *inputs), reference(*inputs), f"`{name}`", after)


def same(got: Any, want: Any, what: str, after: str = "") -> None:
    """Two arrays are equal up to rounding. Raises Hint saying how they differ."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Hint(f"{what} gives the shape {got.shape}, expected {want.shape}{after}")
    # References compute some results in float64, which no exercise asks for.
    dtype = "float32" if want.dtype == np.float64 else want.dtype.name
    if got.dtype != dtype:
        raise Hint(f"{what} gives {got.dtype}, expected {dtype}{after}")
    wrong = ~np.isclose(got, want, rtol=1e-4, atol=1e-5)
    if not wrong.any():
        return
    hint = f"{what} gives something else than NumPy"
    square = want.ndim == 2 and want.shape[0] == want.shape[1]
    if square and np.allclose(got, want.T, rtol=1e-4, atol=1e-5):
        raise Hint(f"{what} gives the transpose of what is expected; are indices swapped?{after}")
    if np.allclose(got, -want, rtol=1e-4, atol=1e-5):
        raise Hint(f"{what} gives the right numbers with the wrong sign{after}")
    at = _first(wrong)
    raise Hint(
        f"{hint}: element {at} is {got[at]:.5g}, expected {want[at]:.5g} "
        f"({int(wrong.sum())} of {wrong.size} elements differ){after}"
    )


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
