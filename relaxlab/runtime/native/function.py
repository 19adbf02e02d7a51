"""Functions of compiled programs as Python callables."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxlab.codegen.artifact import FunctionInfo
from relaxlab.codegen.llvm.context import BLOCK_HEADER, CONTEXT, MIN_TEAM_WORK
from relaxlab.codegen.llvm.plan import STATE
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.errors import brief, counted
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interchange import handed_over, library_of
from relaxlab.runtime.native.arguments import (
    ArgumentError,
    argument_converter,
    count_leaves,
    count_words,
    in_order,
    leaves_of,
    overlap,
)
from relaxlab.runtime.native.direct_call import DirectCall, is_supported
from relaxlab.runtime.native.loaded import IN_MEMORY, CheckFailed, LoadedProgram
from relaxlab.runtime.native.results import Sources, result_converter, span_of
from relaxlab.runtime.unbatched import Unbatched

if TYPE_CHECKING:
    from relaxlab.ir.module import Module
    from relaxlab.runtime.native.data_values import DataTypes
    from relaxlab.runtime.native.weights import Weights

Adapt: TypeAlias = Callable[[tuple[Any, ...]], tuple[Any, ...]]


@methods_name_arguments
class NativeFunction(Unbatched):
    """One function of an executable. `bound` is what `bind` gave; `weights` are those of the
    program, None where it is not known.

    A call runs it, and raises ArgumentError (arity, dtype, rank, layout) or CheckFailed (a
    dimension or bound, naming the value, the symbol, expected and got). Each instance has a
    `__call__` of its own, a builtin where there can be one (`direct_call`).
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(IN_MEMORY)

    def __init__(self, exe: LoadedProgram, info: FunctionInfo) -> None:
        self.info, self._exe = info, exe
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self._entry = entry(exe._code.address(info.symbol + ".entry"))
        self._in = (ctypes.c_int64 * max(1, info.words_in))()
        self._out = (ctypes.c_int64 * max(1, info.words_out))()
        self._context = (ctypes.c_int64 * len(CONTEXT))()
        self._address = ctypes.addressof(self._context)
        exe._contexts.append(self._context)
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
        self._converters = list[Any]()
        data = _data_types(exe)
        at = leaf = 0
        for name, tree in info.params:
            describe = f"argument `{{}}` of `{info.name}`".format
            convert = argument_converter(
                name, describe, tree, at, leaf, info.written, data and data.argument
            )
            self._converters.append(convert)
            at += count_words(tree)
            leaf += count_leaves(tree)
        self._given, self._open = list(enumerate(self._converters)), len(self._converters)
        self._adapt: Adapt | None = None
        self.weights: Weights | None = None
        self.bound: tuple[Any, ...] = ()
        self._bound_values: list[np.ndarray[Any, Any]] = []
        self._bound_spans: list[tuple[int, int]] = []
        self._bound_at: dict[int, np.ndarray[Any, Any]] = {}
        self._tensors, self._written = _tensor_leaves(info)
        self._convert_result = result_converter(info.result, 0, data and data.result)
        self.__call__, self._direct = self._run, None
        # What packed functions return is kept in `_live`, which only `_run` clears.
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

    def bind(self, *last: Any) -> NativeFunction:
        """Give the last parameters once (weights): later calls leave them out. Returns the
        function.

        The values are checked and kept alive here, so that a call pays nothing for them. Weights
        are packed, where machine code takes them packed.

        Raises ArgumentError for values that do not fit, and for a part of the weights where they
        are packed together.
        """
        self.bind_packed(*(last if self.weights is None else self.weights.for_binding(last)))
        return self

    def bind_packed(self, *last: Any) -> None:
        """Bind the last parameters as machine code takes them."""
        with self._exe._lock:
            self.prepared(*last)()

    def prepared(self, *last: Any) -> Callable[[], None]:
        """Check the last parameters as `bind_packed` does. Returns the function that binds them, to
        be called before another thread binds others: several functions get their weights all or
        none.
        """
        if len(last) > len(self.info.params):
            raise ArgumentError(f"`{self.info.name}` has {len(self.info.params)} parameters")
        taken: list[Any] = []
        first = len(self.info.params) - len(last)
        with self._exe._lock:
            # Into a copy first: values that do not fit must leave what was bound before.
            words = type(self._in).from_buffer_copy(self._in)
            for convert, value in zip(self._converters[first:], last, strict=True):
                convert(value, words, taken)
            self._require_apart(taken, len(self._tensors) - len(taken))

        def take() -> None:
            # At no moment, whatever interrupts this, do words point to what nobody holds.
            self._bound_values = [*self._bound_values, *taken]
            ctypes.memmove(self._in, words, ctypes.sizeof(words))
            self._bound_values, self._open, self.bound = taken, first, last
            self._given = list(enumerate(self._converters[:first]))
            self._bound_at = {span_of(a)[0]: a for a in taken}
            written = [a for i, a in enumerate(taken, len(self._tensors) - len(taken))
                       if i in self._written]  # fmt: skip
            self._bound_spans = sorted(map(span_of, written))
            if self._direct is not None:
                self._direct.bind(first, [*map(span_of, taken)], self._bound_spans)
                self.__call__ = self._direct.call

        return take

    def adapt_with(self, adapt: Adapt, *, always: bool) -> None:
        """Let `adapt` make the arguments of calls without bound parameters: of those that do not
        fit, or `always`."""
        self._adapt = adapt
        if always:
            self.__call__ = self._run

    def check(self, position: int, value: Any) -> None:
        """Raises ArgumentError if the value does not fit the parameter at this position."""
        self._converters[position](value, type(self._in)(), [])

    def completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call with what is made for it (outputs that were left out) and what is
        bound to the function."""
        if self._adapt is not None and self._open == len(self._converters):
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

    @brief
    def _run(self, *args: Any, **named: Any) -> Any:
        if not self._exe.runs_here:
            raise ExecutionError(
                f"`{self.info.name}` was compiled for {self._exe.target.cpu}, "
                f"{self._exe.target.triple}, and does not run here; write exe.object() to a file "
                "and link it there"
            )
        if named:
            names = [name for name, _ in self.info.params[: self._open]]
            args = in_order(self.info.name, names, args, named)
        if self._adapt is not None and self._open == len(self._converters):
            given, args = args, self._adapt(args)
            if args is not given and self.__call__ != self._run:
                return self.__call__(*args)  # all that a direct call takes
        exe, words, context, state = self._exe, self._in, self._context, self._exe._state
        spare, library = exe._spare, library_of(args)
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
            for i, convert in self._given:
                convert(args[i], words, taken)
            if self._written:
                self._check_written(taken)
            state[_BUSY] = 1
            try:
                if spare.blocks:
                    spare.lend(context, _SPARE)
                context[_KERNEL_FAILED] = 0  # of a call whose report was interrupted
                code = self._entry(self._address, state[_THREADS])
                value = self._result(code, taken)
                return value if library is None else handed_over(value, library)
            finally:
                if context[_SPARE]:
                    spare.take_back(context, _SPARE)
                state[_BUSY] = 0
                exe._live.clear()
        finally:
            exe._lock.release()

    def _finish(self, *args: Any) -> Any:
        """The result of a direct call, which still has the lock."""
        params = zip(args, self.info.params, strict=False)
        taken = [value for value, (_, tree) in params if tree.kind == "tensor"]
        return self._result(self._exe._state[_CODE], taken)

    def _result(self, code: int, taken: list[np.ndarray[Any, Any]]) -> Any:
        """Return the result of the machine code as a value, or raise the error that it reports."""
        exe, blocks = self._exe, self._blocks(self._context[_OWNED])
        arrays = (taken, self._bound_values, exe._live, exe._data)
        sources = Sources(blocks, self._bound_at, arrays, exe._spare)
        if code:
            self._fail(code, sources)
        value = self._convert_result(self._out, sources)
        if sources.blocks:
            sources.release()
        return value

    def _check_written(self, fresh: list[np.ndarray[Any, Any]]) -> None:
        """Bound arrays were compared with each other when they were bound."""
        # An argument of this call is updated: it may meet any other, bound ones, too.
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


def _data_types(exe: LoadedProgram) -> DataTypes | None:
    """The data types of a program, if it has any: others need none of what describes them."""
    if not exe.artifact.data:
        return None
    from relaxlab.runtime.native.data_values import DataTypes

    return DataTypes(exe.artifact.data)


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
