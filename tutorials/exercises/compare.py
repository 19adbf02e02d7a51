"""Running an answer next to NumPy, and saying in words how the two differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import relaxlab as rl
from relaxlab.ir.errors import counted, kind_of, tuple_text
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.graph import Call, ExternFunc, Function, GlobalVar, Op
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import walk
from relaxlab.ir.types import TensorType

from relaxlab.lab.verdict import Hint

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Reference: TypeAlias = Callable[..., Any]


class Different(Hint):
    """The answer runs, and computes something else."""


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
    found = mod.get(name)
    if isinstance(found, kind):
        return found
    if found is not None:
        raise Hint(f"`{name}` must be a {words}, is {kind_of(found)}")
    raise Hint(f"the module has no {words} called `{name}`; it has: {among(name, mod)}")


def called(mod: Module, *operators: str) -> set[str]:
    """The names of what `main` calls through operators such as call_tir."""
    calls = [n for n in walk(graph_function(mod, "main")) if isinstance(n, Call)]
    return {
        a.name
        for c in calls
        if isinstance(c.op, Op) and c.op.name in operators
        for a in c.args
        if isinstance(a, GlobalVar | ExternFunc)
    }


def loops_compute(
    mod: Module, name: str, inputs: Sequence[Array], reference: Reference, *, after: str = ""
) -> None:
    """A loop function stores what the reference returns for the inputs, whatever is in the memory
    of the result before. `after` is added to a hint. Raises Hint."""
    func = loop_function(mod, name)
    want = _expected(reference, inputs)
    if len(func.params) != len(inputs) + 1:
        raise Hint(
            f"`{name}` must take {len(inputs)} inputs and one output, "
            f"it has {len(func.params)} parameters"
        )
    for p, array in zip(func.params, [*inputs, want], strict=True):
        if not isinstance(p, Buffer):
            raise Hint(f"the parameter `{p.name}` of `{name}` must be a buffer: a `T.Buffer`")
        what = f"the result `{p.name}`" if array is want else f"`{p.name}`"
        _declared(what, p.shape, p.dtype, array, after)
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
        raise Hint(f"element {at} of the result is never written: no loop reaches it{after}")
    if np.any(changed):
        raise Hint(
            f"element {_first(changed)} of the result depends on what was in memory before: it is "
            f"read before it is written. {_advice_on_init(func)}{after}"
        )
    starts_anew = any(b.init is not None and not reduced_axes(b) for b in blocks_of(func))
    anew = "; T.init() is run each time, as no axis of its block is declared as a reduction (R)"
    same(first, want, f"`{name}`", f"{anew if starts_anew else ''}{after}")


def blocks_of(func: PrimFunc) -> list[Block]:
    """The blocks of a loop function that have axes."""
    return [n for n in walk(func.body) if isinstance(n, Block) and n.iter_vars]


def reduced_axes(block: Block) -> list[str]:
    """The names of the axes of a block that are declared as reductions."""
    return [axis.var.name for axis in block.iter_vars if axis.kind == "reduce"]


def _advice_on_init(func: PrimFunc) -> str:
    axes = [name for b in blocks_of(func) if b.init is not None for name in reduced_axes(b)]
    if not axes:
        return "A reduction needs `with T.init():`"
    return (
        f"T.init() is run where {' and '.join(f'{name} is 0' for name in axes)}: only the axis "
        "that is summed may be declared as a reduction (R)"
    )


def _expected(reference: Reference, inputs: Sequence[Array]) -> Array:
    """The results of the reference. Some compute in float64, which no exercise asks for."""
    want = np.asarray(reference(*(x.copy() for x in inputs)))
    return want.astype("float32") if want.dtype == np.float64 else want


def _declared(
    what: str, shape: Sequence[PrimExpr] | None, dtype: str | None, array: Array, after: str = ""
) -> None:
    """Raise Hint for a declaration that does not fit an array; symbols take any size."""
    sizes = [d.value if isinstance(d, IntImm) else None for d in shape or ()]
    known = array.shape if shape is None else sizes
    pairs = zip(known, array.shape, strict=False)
    if len(known) != array.ndim or any(k not in (None, n) for k, n in pairs):
        text = tuple_text(shape or ())
        raise Hint(f"{what} is declared as {text}, it must be {array.shape}{after}")
    if dtype not in (None, array.dtype.name):
        raise Hint(f"{what} is declared as {dtype}, it must be {array.dtype.name}")


def graph_computes(
    mod: Module, name: str, inputs: Sequence[Array], reference: Reference, *, after: str = ""
) -> None:
    """A graph function, run by the interpreter, returns what the reference does. Raises Hint."""
    params = graph_function(mod, name).params
    if len(params) != len(inputs):
        wanted = counted(len(inputs), "argument")
        raise Hint(f"`{name}` must take {wanted}, it takes {len(params)}")
    for p, array in zip(params, inputs, strict=True):
        if isinstance(p.ty, TensorType):
            _declared(f"`{p.name}`", p.ty.shape, p.ty.dtype, array, after)
    want, given = _expected(reference, inputs), [x.copy() for x in inputs]
    got = rl.interpret(mod, name, *given)
    for p, x, old in zip(params, given, inputs, strict=True):
        if not np.array_equal(x, old):
            raise Hint(f"`{name}` changes its argument `{p.name}`; it must return a new tensor")
    if not isinstance(got, np.ndarray):
        raise Hint(f"`{name}` must return one tensor, it returns {kind_of(got)}")
    same(got, want, f"`{name}`", after)


def same(got: Any, want: Any, what: str, after: str = "") -> None:
    """Two arrays are equal up to rounding. Raises Different saying how they differ."""
    if got.shape != want.shape:
        raise Different(f"{what} gives the shape {got.shape}, expected {want.shape}{after}")
    if got.dtype != want.dtype:
        raise Different(f"{what} gives {got.dtype}, expected {want.dtype}{after}")
    wrong = ~np.isclose(got, want, rtol=1e-4, atol=1e-5)
    if not wrong.any():
        return
    hint = f"{what} gives something else than NumPy"
    square = want.ndim == 2 and want.shape[0] == want.shape[1]
    if square and np.allclose(got, want.T, rtol=1e-4, atol=1e-5):
        text = "gives the transpose of what is expected; are indices swapped?"
        raise Different(f"{what} {text}{after}")
    if np.allclose(got, -want, rtol=1e-4, atol=1e-5):
        raise Different(f"{what} gives the right numbers with the wrong sign{after}")
    at = _first(wrong)
    raise Different(
        f"{hint}: element {at} is {got[at]:.5g}, expected {want[at]:.5g} "
        f"({int(wrong.sum())} of {wrong.size} elements differ){after}"
    )


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
