"""Compiled programs as Python objects."""

from __future__ import annotations

import ctypes
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np

from relaxlab.codegen.artifact import Artifact, FunctionInfo, TypeTree
from relaxlab.codegen.llvm.jit import LoadedObject, runs_here
from relaxlab.codegen.llvm.python_call import STATE
from relaxlab.codegen.llvm.support import BLOCK_HEADER, CONTEXT, MIN_TEAM_WORK
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import UserError, brief, counted
from relaxlab.ir.target import Target
from relaxlab.runtime.arguments import (
    ArgumentError,
    address_of,
    count_leaves,
    count_words,
    leaves_of,
    make_filler,
    overlap,
)
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.blas import GEMM, load_blas
from relaxlab.runtime.blocks import SpareBlocks, free
from relaxlab.runtime.direct_call import DirectCall, is_supported
from relaxlab.runtime.openmp import default_threads, load_openmp, threads_are_lost
from relaxlab.runtime.packed import get_func
from relaxlab.runtime.results import Sources, make_maker, read_value, span_of

if TYPE_CHECKING:
    from relaxlab.ir.loops import PrimFunc
    from relaxlab.ir.module import Module
    from relaxlab.passes.base import Pipeline
    from relaxlab.runtime.weights import Weights

MOST_THREADS = 1024
"""Far more than there are cores: an OpenMP runtime that cannot start threads ends the process."""
Source: TypeAlias = "tuple[Module, Pipeline | None]"
Adapt: TypeAlias = Callable[[tuple[Any, ...]], tuple[Any, ...]]
_executables: WeakSet[Executable] = WeakSet()


def _recover_in_child() -> None:
    """Make every executable usable in a child process, whatever its parent was doing."""
    for exe in list(_executables):
        exe._recover_in_child()


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
        self._lock = threading.RLock()
        self._spare = SpareBlocks()
        self._data = [_frozen(c) for c in artifact.constants]
        self._constants = (ctypes.c_int64 * max(1, len(artifact.constants)))()
        for i, array in enumerate(self._data):
            self._constants[i] = address_of(array)
        self._arenas = (ctypes.c_int64 * max(1, 2 * artifact.arenas))()
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
        from relaxlab.runtime.programs import allocator
        from relaxlab.runtime.weights import find_weights

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
        from relaxlab.runtime.weights import bind_weights

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
        from relaxlab.runtime import listings

        return listings.llvm(self, name)

    def assembly(self, name: str | None = None) -> str:
        """The program in the assembly language of its target; or one function of it.

        Raises what `llvm` raises.
        """
        from relaxlab.runtime import listings

        return listings.assembly(self, name)

    def object(self) -> bytes:
        """The program as an object file: position-independent machine code for a linker.

        What it calls besides the C library is described in docs/export.md. Raises what `llvm`
        raises.
        """
        from relaxlab.runtime import listings

        return listings.object_file(self)

    def source(self, name: str | None = None) -> str:
        """The module that the machine code was made from, after all passes, as a script; or one
        function of it.

        Raises KeyError for an unknown name, ValueError for a library that was loaded.
        """
        from relaxlab.runtime import listings

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
        from relaxlab.runtime.export import export

        return export(self, path, bound=bound)

    def arena_bytes(self) -> int:
        """Bytes of planned memory held now."""
        return sum(self._arenas[1::2])

    def __del__(self) -> None:
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
            make_filler("the result", describe, info.result, at, 0, ())(result, table, self._live)


def _frozen(constant: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A dense view that cannot be written to: a function may return a constant."""
    view = np.asarray(constant, order="C").view()
    view.flags.writeable = False
    return view


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class NativeFunction:
    """One function of an executable. `bound` is what `bind` gave.

    A call runs it, and raises ArgumentError (arity, dtype, rank, layout) or CheckFailed (a
    dimension or bound, naming the value, the symbol, expected and got). Each instance has a
    `__call__` of its own, a builtin where there can be one (`direct_call`).
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]

    def __init__(self, exe: Executable, info: FunctionInfo) -> None:
        self.info, self._exe = info, exe
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self._entry = entry(exe._code.address(info.symbol + ".entry"))
        self._in = (ctypes.c_int64 * max(1, info.words_in))()
        self._out = (ctypes.c_int64 * max(1, info.words_out))()
        self._context = (ctypes.c_int64 * len(CONTEXT))()
        self._address = ctypes.addressof(self._context)
        for name, block in (
            ("args", self._in),
            ("out", self._out),
            ("constants", exe._constants),
            ("arenas", exe._arenas),
        ):
            self._context[CONTEXT.index(name)] = ctypes.addressof(block)
        self._context[CONTEXT.index("min_work")] = MIN_TEAM_WORK
        callback = ctypes.cast(exe._callback, ctypes.c_void_p).value or 0
        self._context[CONTEXT.index("callback")] = callback
        self._fillers = list[Any]()
        at = leaf = 0
        for name, tree in info.params:
            describe = f"argument `{{}}` of `{info.name}`".format
            self._fillers.append(make_filler(name, describe, tree, at, leaf, info.written))
            at += count_words(tree)
            leaf += count_leaves(tree)
        self._given, self._open = list(enumerate(self._fillers)), len(self._fillers)
        self._adapt: Adapt | None = None
        self.bound: tuple[Any, ...] = ()
        self._bound_values: list[np.ndarray[Any, Any]] = []
        self._bound_spans: list[tuple[int, int]] = []
        self._bound_at: dict[int, np.ndarray[Any, Any]] = {}
        self._tensors, self._written = _tensor_leaves(info)
        self._make = make_maker(info.result, 0)
        self.__call__, self._direct = self._run, None
        if is_supported() and exe.runs_here and not exe.artifact.packed:
            self._direct = DirectCall(
                exe, info, self._entry, self._in, self._out, self._context, self._run, self._finish
            )
            self._direct.bind(self._open, (), ())
            self.__call__ = self._direct.call

    @property
    def compiled_from(self) -> Module | None:
        """The module that this function is of; None for a library that was loaded."""
        source = self._exe.compiled_from
        return None if source is None else source[0]

    def __repr__(self) -> str:
        params = ", ".join(f"{name}: {tree.text}" for name, tree in self.info.params)
        return f"<compiled {self.info.name}({params}) -> {self.info.result.text}>"

    def bind(self, *last: Any) -> None:
        """Give the last parameters once (weights): later calls leave them out.

        The values are checked and kept alive here, so that a call pays nothing for them.
        """
        if len(last) > len(self.info.params):
            raise ArgumentError(f"`{self.info.name}` has {len(self.info.params)} parameters")
        taken: list[Any] = []
        first = len(self.info.params) - len(last)
        with self._exe._lock:
            words = type(self._in).from_buffer_copy(self._in)
            for filler, value in zip(self._fillers[first:], last, strict=True):
                filler(value, words, taken)
            self._require_apart(taken, len(self._tensors) - len(taken))
            # At no moment, whatever interrupts this, do words point to what nobody holds.
            self._bound_values = [*self._bound_values, *taken]
            ctypes.memmove(self._in, words, ctypes.sizeof(words))
            self._bound_values, self._open, self.bound = taken, first, last
            self._given = list(enumerate(self._fillers[:first]))
            self._bound_at = {span_of(a)[0]: a for a in taken}
            written = [a for i, a in enumerate(taken, len(self._tensors) - len(taken))
                       if i in self._written]  # fmt: skip
            self._bound_spans = sorted(map(span_of, written))
            if self._direct is not None:
                self._direct.bind(first, [*map(span_of, taken)], self._bound_spans)
                self.__call__ = self._direct.call

    def adapt_with(self, adapt: Adapt, *, always: bool) -> None:
        """Let `adapt` make the arguments of calls without bound parameters: of those that do not
        fit, or `always`."""
        self._adapt = adapt
        if always:
            self.__call__ = self._run

    def check(self, position: int, value: Any) -> None:
        """Raises ArgumentError if the value does not fit the parameter at this position."""
        self._fillers[position](value, type(self._in)(), [])

    def completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call with what is made for it (outputs that were left out) and what is
        bound to the function."""
        if self._adapt is not None and self._open == len(self._fillers):
            args = self._adapt(args)
        return (*args, *self.bound)

    def bound_leaves(self) -> dict[int, np.ndarray[Any, Any] | tuple[int, ...]]:
        """The values given to `bind`, by the number of the leaf among those of all parameters:
        arrays, and the words of shapes and scalars."""
        found: dict[int, np.ndarray[Any, Any] | tuple[int, ...]] = {}
        arrays = iter(self._bound_values)
        at = leaf = 0
        for position, (name, tree) in enumerate(self.info.params):
            for _, ty in leaves_of(name, tree):
                end = at + count_words(ty)
                if position >= self._open:
                    found[leaf] = next(arrays) if ty.kind == "tensor" else tuple(self._in[at:end])
                at, leaf = end, leaf + 1
        return found

    def _require_apart(self, arrays: list[np.ndarray[Any, Any]], first: int) -> None:
        """Raise ArgumentError if an array updated in place shares memory with another argument. The
        arrays are those of the tensor parameters from number `first` on."""
        a, b = overlap(arrays, {w - first for w in self._written})
        if a >= 0:
            names = " and ".join(f"`{self._tensors[first + i]}`" for i in sorted((a, b)))
            raise ArgumentError(
                f"arguments {names} of `{self.info.name}` share memory, and one of them is "
                "updated in place; pass a copy"
            )

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a call by position. Raises ArgumentError naming the one that does
        not fit."""
        names = [name for name, _ in self.info.params[: self._open]]
        for name in named:
            if name not in names:
                raise ArgumentError(
                    f"`{self.info.name}` has no parameter `{name}`; it has: {', '.join(names)}"
                )
            if name in names[: len(args)]:
                raise ArgumentError(f"`{self.info.name}` got two values for `{name}`")
        rest = names[len(args) :]
        given = rest[: len(named)]
        for name in given:
            if name not in named:
                raise ArgumentError(f"`{self.info.name}` needs a value for `{name}`")
        return (*args, *(named[name] for name in given))

    @brief
    def _run(self, *args: Any, **named: Any) -> Any:
        if not self._exe.runs_here:
            raise ExecutionError(
                f"`{self.info.name}` was compiled for {self._exe.target.triple} and does not run "
                "here; write exe.object() to a file and link it there"
            )
        if named:
            args = self._in_order(args, named)
        if self._adapt is not None and self._open == len(self._fillers):
            args = self._adapt(args)
        exe, words, context, state = self._exe, self._in, self._context, self._exe._state
        spare = exe._spare
        if len(args) != self._open:
            names = ", ".join(name for name, _ in self.info.params[: self._open])
            takes = f"takes {counted(self._open, 'argument')} ({names})"
            raise ArgumentError(f"`{self.info.name}` {takes}, got {len(args)}")
        exe._lock.acquire()
        try:
            if state[_BUSY]:
                raise RuntimeError(
                    f"`{self.info.name}` was called by a function that its own executable called; "
                    "compile the inner program separately"
                )
            taken: list[np.ndarray[Any, Any]] = []
            for i, filler in self._given:
                filler(args[i], words, taken)
            if self._written:
                self._check_written(taken)
            state[_BUSY] = 1
            try:
                if spare.blocks:
                    spare.lend(context, _SPARE)
                context[_KERNEL_FAILED] = 0  # of a call whose report was interrupted
                code = self._entry(self._address, state[_THREADS])
                return self._result(code, taken)
            finally:
                if context[_SPARE]:
                    spare.take_back(context, _SPARE)
                state[_BUSY] = 0
                exe._live.clear()
        finally:
            exe._lock.release()

    def _forget_blocks(self) -> None:
        """Give up the blocks that a call which will never end was using."""
        self._context[_OWNED] = self._context[_SPARE] = 0

    def _finish(self, *args: Any) -> Any:
        """The result of a direct call, which still has the lock."""
        params = zip(args, self.info.params, strict=False)
        taken = [value for value, (_, tree) in params if tree.kind == "tensor"]
        return self._result(self._exe._state[_CODE], taken)

    def _result(self, code: int, taken: list[np.ndarray[Any, Any]]) -> Any:
        """Return the result of the machine code as a value, or raise the error that it reports."""
        sources = Sources(self._blocks(self._context[_OWNED]), taken, self)
        if code:
            self._fail(code, sources)
        value = self._make(self._out, sources)
        if sources.blocks:
            sources.release()
        return value

    def _check_written(self, fresh: list[np.ndarray[Any, Any]]) -> None:
        """Bound arrays were compared with each other when they were bound."""
        if any(w < len(fresh) for w in self._written):
            self._require_apart([*fresh, *self._bound_values], 0)
            return
        for array in fresh:
            start, end = span_of(array)
            at = bisect_left(self._bound_spans, (end,)) - 1
            if at >= 0 and start < min(end, self._bound_spans[at][1]):
                self._require_apart([*fresh, *self._bound_values], 0)

    def _fail(self, code: int, sources: Sources) -> None:
        exe = self._exe
        sources.release()
        error, exe._error = exe._error, None
        if error is not None:
            raise error
        check = exe.artifact.checks[code - 1]
        axis, got, expected = self._context[0], self._context[1], self._context[2]
        text = check.messages[axis].format(got=got, expected=expected)
        raise MemoryError(text) if check.memory else CheckFailed(text)

    def _blocks(self, owned: int) -> dict[int, int]:
        """The sizes of the blocks allocated during the call, by the address of their data."""
        blocks: dict[int, int] = {}
        total = 0
        while owned:
            header = _header_at(owned)
            size = blocks[owned + BLOCK_HEADER] = header.size
            total += size
            owned = header.next
        self._context[_OWNED] = 0
        self._exe._spare.expect(total)
        return blocks


def _tensor_leaves(info: FunctionInfo) -> tuple[list[str], frozenset[int]]:
    """Names of all tensors among the parameters, and the numbers of those that are updated."""
    leaves = [leaf for name, tree in info.params for leaf in leaves_of(name, tree)]
    tensors = [i for i, (_, tree) in enumerate(leaves) if tree.kind == "tensor"]
    written = (number for number, i in enumerate(tensors) if i in info.written)
    return [leaves[i][0] for i in tensors], frozenset(written)


_OWNED, _KERNEL_FAILED = CONTEXT.index("owned"), CONTEXT.index("kernel_failed")
_SPARE = CONTEXT.index("spare")
_BUSY, _THREADS, _CODE = map(STATE.index, ("busy", "threads", "code"))


class _Header(ctypes.Structure):
    """The header of an allocated block."""

    _fields_ = (("next", ctypes.c_int64), ("size", ctypes.c_int64))


_header_at = _Header.from_address
