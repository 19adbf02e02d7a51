"""Machine code in this process, and what all calls of it share."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np

from relaxlab.codegen.artifact import Artifact, TypeTree
from relaxlab.codegen.llvm.context import CONTEXT
from relaxlab.codegen.llvm.jit import LoadedObject, runs_here
from relaxlab.codegen.llvm.plan import STATE
from relaxlab.ir.errors import UserError
from relaxlab.ir.plain import plain
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.c_libraries import load_libraries
from relaxlab.runtime.native.arguments import address_of, argument_converter, count_words
from relaxlab.runtime.native.blocks import SpareBlocks, free
from relaxlab.runtime.native.openmp import default_threads, load_openmp, threads_are_lost
from relaxlab.runtime.native.results import read_value
from relaxlab.runtime.packed import call_func

if TYPE_CHECKING:
    from relaxlab.ir.module import Module
    from relaxlab.passes.base import Pipeline

MOST_THREADS = 1024
"""Far more than there are cores: an OpenMP runtime that cannot start threads ends the process."""
_BUSY, _THREADS = map(STATE.index, ("busy", "threads"))
_OWNED, _SPARE = map(CONTEXT.index, ("owned", "spare"))
Source: TypeAlias = "tuple[Module, Pipeline | None]"
_programs: WeakSet[LoadedProgram] = WeakSet()


def _recover_in_child() -> None:
    """Make every program usable in a child process, whatever its parent was doing."""
    for program in list(_programs):
        program._recover_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_recover_in_child)


class CheckFailed(UserError, ValueError):
    """A run-time check failed: a `match_cast`, a signature's claim, a declared bound."""


class Code(Protocol):
    """Machine code in this process."""

    def address(self, symbol: str) -> int:
        """The address of a function. Raises KeyError."""
        ...


class _NotLoaded:
    """The code of a program for another machine: nothing of it can be called here."""

    def address(self, symbol: str) -> int:
        return 0


IN_MEMORY = (
    "an executable is machine code in the memory of this process, of which there is no copy: share "
    "it, compile the program where it is needed, which takes it from the cache, or write it with "
    "exe.export(path) and read it with rl.load(path)"
)
"""The message where an executable or a function of one is copied or pickled."""


class LoadedProgram:
    """The machine code of a program and what its functions share: threads, memory that is kept
    between calls, constants, and the lock by which calls take turns.

    `runs_here` is False for the code of another machine, which can be read but not called.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(IN_MEMORY)

    def __init__(
        self,
        artifact: Artifact,
        target: Target,
        threads: int | None = None,
        code: Code | None = None,
    ) -> None:
        """code: where the machine code is; None: the artifact's own is loaded."""
        self.runs_here = code is not None or runs_here(target)
        if code is None and self.runs_here:
            load_openmp()
            load_libraries(artifact.externs)
            code = LoadedObject(artifact.code, target, artifact.externs)
        self.artifact, self.target = artifact, target
        self._compiled_from: Source | Callable[[], Source] | None = None
        self._state = (ctypes.c_int64 * len(STATE))()
        _programs.add(self)
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
        self._contexts: list[Any] = []

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
        count = plain(count)
        if not isinstance(count, int):
            raise TypeError(f"threads must be a whole number, got {count!r}")
        if count < 1:
            raise ValueError(f"threads must be at least 1, got {count}")
        if count > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS}, got {count}")
        self._state[_THREADS] = 1 if threads_are_lost() else count

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
                for context in self._contexts:
                    context[_OWNED] = context[_SPARE] = 0
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
            result = call_func(info.function, *args)
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
