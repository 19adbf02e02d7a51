"""Compiled programs as Python objects."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np

from relaxlab.codegen.artifact import Artifact, TypeTree
from relaxlab.codegen.llvm.jit import LoadedObject, runs_here
from relaxlab.codegen.llvm.python_call import STATE
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.arguments import address_of, argument_converter, count_words
from relaxlab.runtime.native.blas import GEMM, load_blas
from relaxlab.runtime.native.blocks import SpareBlocks, free
from relaxlab.runtime.native.function import CheckFailed, NativeFunction
from relaxlab.runtime.native.openmp import default_threads, load_openmp, threads_are_lost
from relaxlab.runtime.native.results import read_value
from relaxlab.runtime.packed import get_func

if TYPE_CHECKING:
    from relaxlab.ir.loops import PrimFunc
    from relaxlab.ir.module import Module
    from relaxlab.passes.base import Pipeline
    from relaxlab.runtime.native.weights import Weights

MOST_THREADS = 1024
"""Far more than there are cores: an OpenMP runtime that cannot start threads ends the process."""
_BUSY, _THREADS = map(STATE.index, ("busy", "threads"))
Source: TypeAlias = "tuple[Module, Pipeline | None]"
_executables: WeakSet[Executable] = WeakSet()


def _recover_in_child() -> None:
    """Make every executable usable in a child process, whatever its parent was doing."""
    for exe in list(_executables):
        exe._recover_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_recover_in_child)


class Code(Protocol):
    """Machine code in this process."""

    def address(self, symbol: str) -> int:
        """The address of a function. Raises KeyError."""
        ...


class _NotLoaded:
    """The code of a program for another machine: nothing of it can be called here."""

    def address(self, symbol: str) -> int:
        return 0


class Executable(Displayed, Brief):
    """A compiled module. `exe["main"](*arrays)` runs a function on NumPy (or DLPack) arrays.

    `exe.main(*arrays)` is the same, and so is `exe(*arrays)` for `main` or the only function.
    Arguments may be given by name. They are not copied, but numbers and lists of them become
    arrays of the parameter's dtype where no number changes. Results are new arrays, or an argument
    or a view of one where the function returns it, reshaped or updated in place. Calls from several
    threads take turns. A child process may call it after `fork`, even if another thread of the
    parent was inside a call; under GCC's libgomp, whose threads do not survive a fork, the child's
    calls use one thread.

    A loop function that was compiled by itself takes its buffers, and returns those that it writes
    to; buffers that it writes to before it reads them may all be left out, and are allocated.

    `key` is the program's in the cache, None for one that is not there. Where `runs_here` is False,
    the target is another machine: calls raise ExecutionError, `assembly`, `llvm` and `object` give
    the code.

    >>> import relaxlab as rl                                             # doctest: +SKIP
    >>> exe = rl.compile(mod); exe["main"](np.ones(4, "float32"))         # doctest: +SKIP
    """

    def __repr__(self) -> str:
        target = self.target.cpu or self.target.triple
        names = cut(", ".join(self), 200)
        return f"Executable({names}; {target}, threads: {self.threads})"

    def __init__(
        self,
        artifact: Artifact,
        target: Target,
        threads: int | None = None,
        *,
        from_cache: bool = False,
        code: Code | None = None,
    ) -> None:
        """code: where the machine code is; None: the artifact's own is loaded."""
        self.runs_here = code is not None or runs_here(target)
        if code is None and self.runs_here:
            load_openmp()
            if set(artifact.externs) & set(GEMM.values()):
                load_blas()
            code = LoadedObject(artifact.code, target, artifact.externs)
        self.artifact, self.target, self.from_cache = artifact, target, from_cache
        self.key: str | None = None
        self._compiled_from: Source | Callable[[], Source] | None = None
        self._weights: dict[str, Weights] = {}
        self._state = (ctypes.c_int64 * len(STATE))()
        _executables.add(self)
        self.threads = default_threads() if threads is None else threads
        self._code = code or _NotLoaded()
        # Reentrant: a packed function may call another function of the same executable, which then
        # is refused with a message (`_BUSY`) instead of waiting for itself.
        self._lock = threading.RLock()
        self._spare = SpareBlocks()
        self._data = [_frozen(c) for c in artifact.constants]
        self._constants = (ctypes.c_int64 * max(1, len(artifact.constants)))()
        for i, array in enumerate(self._data):
            self._constants[i] = address_of(array)
        self._arenas = (ctypes.c_int64 * max(1, 2 * artifact.arenas))()
        # Kept: the machine code has its address, and ctypes frees it with the last reference.
        self._callback = _CALLBACK(self._call_packed)
        self._error: BaseException | None = None
        self._live: list[Any] = []
        self._functions = {f.name: NativeFunction(self, f) for f in artifact.functions}

    def __getitem__(self, name: str) -> NativeFunction:
        try:
            return self._functions[name]
        except KeyError:
            raise KeyError(self._no_function(name)) from None

    def __getattr__(self, name: str) -> NativeFunction:
        # Not `self._functions`: before `__init__` set it, that would ask this method again, for
        # ever.
        functions = vars(self).get("_functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(self._no_function(name), name=name, obj=self)

    def _no_function(self, name: str) -> str:
        artifact: Artifact | None = vars(self).get("artifact")
        if artifact is not None and name in artifact.left_out:
            return artifact.left_out[name]
        names = ", ".join(sorted(vars(self).get("_functions", ())))
        return f"the executable has no function {name!r}; it has: {names}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._functions})

    @brief
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call `main`, or the only function. Raises what `chosen` raises."""
        return self.chosen()(*args, **named)

    def chosen(self) -> NativeFunction:
        """The function `main`, or the only one that does not pack weights.

        Raises TypeError naming the functions where there are several.
        """
        mine = [name for name in self._functions if "transform_params" not in name]
        if "main" not in mine and len(mine) != 1:
            raise TypeError(
                f"the executable has several functions; call one of {', '.join(mine)}: "
                f'exe["{mine[0]}"](...)'
            )
        return self["main" if "main" in mine else mine[0]]

    def belongs_to(
        self,
        mod: Module,
        pipeline: Pipeline | None,
        entries: Mapping[str, PrimFunc],
        *,
        poison: bool,
    ) -> None:
        """Set the program that was compiled: `entries` are loop functions that are called by
        themselves; outputs that such a call leaves out are filled as unwritten if `poison`."""
        from relaxlab.runtime.native.weights import find_weights
        from relaxlab.runtime.programs import allocator

        self.compiled_from = mod, pipeline
        self._weights = find_weights(self, mod)
        for name, weights in self._weights.items():
            self[name].adapt_with(weights.adapt, always=weights.are_packed)
        for name, func in entries.items():
            allocate = allocator(self[name], func, poison=poison)
            if allocate is not None:
                self[name].adapt_with(allocate, always=False)

    def load(self, params: Mapping[str, Any] | Sequence[Any]) -> Executable:
        """Pack the weights of the program once and bind them: later calls take the inputs alone.

        params: arrays by name (`nn.Module.state_dict()`, names with dots or as the parameters
        have them), or in the order of the parameters. Returns the executable.

        Raises ArgumentError for weights that are missing, unknown, or do not fit.
        """
        from relaxlab.runtime.native.weights import bind_weights

        bind_weights(self, self._weights, params)
        return self

    def bind_packed(self, weights: Sequence[Any]) -> None:
        """Bind weights to all functions that take them, as the program's transformation returns
        them (see `lift_transform_params`)."""
        for name in self._weights:
            self[name].bind(*weights)

    def llvm(self, name: str | None = None) -> str:
        """The program in the language of LLVM, after LLVM's passes; or one function of it, a
        kernel or a function that can be called.

        Raises KeyError for an unknown name, ValueError for a library that was loaded.
        """
        from relaxlab.runtime.native import listings

        return listings.llvm(self, name)

    def assembly(self, name: str | None = None) -> str:
        """The program in the assembly language of its target; or one function of it.

        Raises what `llvm` raises.
        """
        from relaxlab.runtime.native import listings

        return listings.assembly(self, name)

    def object(self) -> bytes:
        """The program as an object file: position-independent machine code for a linker.

        What it calls besides the C library is described in docs/export.md. Raises what `llvm`
        raises.
        """
        from relaxlab.runtime.native import listings

        return listings.object_file(self)

    def source(self, name: str | None = None) -> str:
        """The module that the machine code was made from, after all passes, as a script; or one
        function of it.

        Raises KeyError for an unknown name, ValueError for a library that was loaded.
        """
        from relaxlab.runtime.native import listings

        return listings.source(self, name)

    @property
    def compiled_from(self) -> Source | None:
        """The module that this was compiled from and the pipeline, if one was given; None for a
        library that was loaded. May be set to a function, which is called when it is asked for."""
        if callable(self._compiled_from):
            self._compiled_from = self._compiled_from()
        return self._compiled_from

    @compiled_from.setter
    def compiled_from(self, source: Source | Callable[[], Source] | None) -> None:
        self._compiled_from = source

    @property
    def threads(self) -> int:
        """Threads a call uses, the caller's included; may be set at any time. Raises ValueError
        for less than 1 or more than `MOST_THREADS`."""
        return self._state[_THREADS]

    @threads.setter
    def threads(self, count: int) -> None:
        if not isinstance(count, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"threads must be a whole number, got {count!r}")
        if count < 1:
            raise ValueError(f"threads must be at least 1, got {count}")
        if count > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS}, got {count}")
        self._state[_THREADS] = 1 if threads_are_lost() else count

    @brief
    def export(self, path: str | os.PathLike[str], *, bound: bool = False) -> tuple[Path, ...]:
        """Write a shared library with a C interface, `path` ending in .so, and its header.

        Beside it comes `<name>.params` with the program's constants and, if `bound`, with the
        arrays given to `bind`: the C functions then lack those parameters, except for arrays that
        are updated in place and what is bound before them, which the C program gives. Returns the
        paths of the files. The library serves processors that have what this target has; `load`
        brings it back.

        Raises ExportError for a program that needs Python or has no C form, where there is no C
        compiler, or when the files cannot be written; nothing is left half-written then.
        """
        from relaxlab.runtime.export.export import export

        return export(self, path, bound=bound)

    def arena_bytes(self) -> int:
        """Bytes of planned memory held now."""
        return sum(self._arenas[1::2])

    def __del__(self) -> None:
        # `__init__` may have raised before there were any.
        for address in getattr(self, "_arenas", ())[::2]:
            free(address)

    def _recover_in_child(self) -> None:
        """Reset the state that calls of the parent's other threads left incomplete: those threads
        do not exist in the child. A call that forked by itself (from a packed function) goes on."""
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            # The standard library resets its own locks the same way.
            self._lock._at_fork_reinit()  # type: ignore[attr-defined]
            if self._state[_BUSY]:
                self._state[_BUSY], self._error = 0, None
                self._live.clear()
                # Their owner may have been between freeing a block and noting the new one.
                for i in range(len(self._arenas)):
                    self._arenas[i] = 0
                for function in self._functions.values():
                    function._forget_blocks()
        # The setter knows whether the fork has lost the team, and falls back to one thread then.
        self.threads = self.threads

    def _call_packed(self, number: int, words: int) -> int:
        """A call out of compiled code; exceptions wait until it has returned."""
        try:
            self._run_packed(number, words)
        except BaseException as e:  # noqa: BLE001 - re-raised by the caller, nothing is swallowed
            self._error = e
            # An exception cannot pass through the machine code's frames.
            return 1
        return 0

    def _run_packed(self, number: int, words: int) -> None:
        info = self.artifact.packed[number]
        trees = [a for a in (*info.args, info.result) if isinstance(a, TypeTree)]
        table = (ctypes.c_int64 * sum(map(count_words, trees))).from_address(words)
        args, at = list[Any](), 0
        for arg in info.args:
            if isinstance(arg, str):
                args.append(arg)
            else:
                args.append(read_value(arg, table, at))
                at += count_words(arg)
        try:
            result = get_func(info.function)(*args)
        except ExecutionError as error:
            raise CheckFailed(f"computing {info.place}: {error}") from error
        if info.result is not None:
            describe = f"{{}} of `{info.function}`, {info.place},".format
            convert = argument_converter("the result", describe, info.result, at, 0, ())
            convert(result, table, self._live)


def _frozen(constant: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A dense view that cannot be written to: a function may return a constant."""
    view = np.asarray(constant, order="C").view()
    view.flags.writeable = False
    return view


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
