"""`relaxlab.jit`: functions of JAX, compiled when they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any

import numpy as np

from relaxlab.frontend.jaxpr.importer import from_jax
from relaxlab.frontend.packages import package
from relaxlab.frontend.program import CompiledProgram
from relaxlab.ir.errors import counted
from relaxlab.runtime.interchange import handed_over

Extents = tuple[int, ...]


@dataclass(slots=True)
class _Programs:
    """The latest program that was compiled for arguments of one form, and the extents seen."""

    seen: list[Extents] = field(default_factory=list)
    program: CompiledProgram | None = None
    names: tuple[str | None, ...] = ()
    """The symbol of each extent of the program, None for those that are fixed."""

    def fits(self, extents: Extents) -> bool:
        """True if the program is one for these extents, too."""
        if self.program is None:
            return False
        symbols: dict[str, int] = {}
        first = self.seen[0]
        return all(
            a == b if name is None else symbols.setdefault(name, b) == b
            for name, a, b in zip(self.names, first, extents, strict=True)
        )


class CompiledFunction:
    """A function of JAX that is compiled for what it is called with; `jit` makes one.

    The first call compiles for the very sizes of its arguments. A call with others compiles once
    more, for symbols in the place of what has changed: sizes that were always equal are one symbol.
    After that new values of these sizes compile nothing.
    """

    def __init__(self, fn: Callable[..., Any], target: Any = "cpu", **options: Any) -> None:
        self.fn, self.target, self.options = fn, target, options
        self.compilations = 0
        self._programs: dict[Any, _Programs] = {}
        update_wrapper(self, fn)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", "function")
        return f"CompiledFunction({name}, compiled {counted(self.compilations, 'time')})"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The result: arrays of JAX if one of the arguments is one, else of NumPy; neither is
        copied. Arguments have the dtypes that JAX gives them: float32 for Python's floats, and
        for float64 arrays, too, which are converted, unless `jax_enable_x64` is set."""
        jax = package("jax")
        leaves, tree = jax.tree_util.tree_flatten((args, named))
        arrays = [_as_jax_takes_it(jax, x) for x in leaves]
        kinds = tuple((a.dtype.name, a.ndim) for a in arrays)
        programs = self._programs.setdefault((tree, kinds), _Programs())
        extents = tuple(e for a in arrays for e in a.shape)
        if not programs.fits(extents):
            programs.seen.append(extents)
            self._compile(programs, arrays, tree)
        assert programs.program is not None
        given, by_name = jax.tree_util.tree_unflatten(tree, arrays)
        result = programs.program(*given, **by_name)
        if any(isinstance(x, jax.Array) for x in leaves):
            result = jax.tree_util.tree_map(
                lambda y: handed_over(np.asarray(y), jax.numpy.from_dlpack), result
            )
        return result

    def _compile(self, programs: _Programs, arrays: Sequence[Any], tree: Any) -> None:
        jax = package("jax")
        programs.names = _symbols(programs.seen)
        symbols = iter(programs.names)
        specs = [
            jax.ShapeDtypeStruct(tuple(next(symbols) or e for e in a.shape), a.dtype)
            for a in arrays
        ]
        given, by_name = jax.tree_util.tree_unflatten(tree, specs)
        imported = from_jax(self.fn, *given, **by_name)
        programs.program = imported.compile(self.target, **self.options)
        self.compilations += 1


def _as_jax_takes_it(jax: Any, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _symbols(seen: Sequence[Extents]) -> tuple[str | None, ...]:
    """A name for each extent that has changed, the same for those that changed alike."""
    names: dict[tuple[int, ...], str] = {}
    histories = list(zip(*seen, strict=True))
    changed = [h if len(set(h)) > 1 else None for h in histories]
    return tuple(None if h is None else names.setdefault(h, f"n{len(names)}") for h in changed)


def jit(fn: Callable[..., Any], target: Any = "cpu", **options: Any) -> CompiledFunction:
    """Compile a function of JAX when it is called, as `jax.jit` does, but not for each new size.

    target, options: as `relaxlab.compile` takes them.

        f = rl.jit(lambda x: jax.nn.softmax(x @ x.T))
        f(x)

    Raises UnsupportedOperators at the first call where primitives cannot be imported.
    """
    return CompiledFunction(fn, target, **options)
