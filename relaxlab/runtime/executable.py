"""Compiled programs as Python objects."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import Artifact, FunctionInfo, TypeTree
from relaxlab.codegen.llvm.jit import LoadedObject
from relaxlab.codegen.llvm.support import BLOCK_HEADER, CONTEXT
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.target import Target
from relaxlab.runtime.arguments import (
    ArgumentError,
    OwnedBlock,
    count_leaves,
    count_words,
    make_filler,
    view_memory,
    word_to_scalar,
)
from relaxlab.runtime.openmp import default_threads, load_openmp
from relaxlab.runtime.packed import get_func

_libc = ctypes.CDLL(None)
_free = _libc.free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class CheckFailed(ValueError):
    """A run-time check failed: a `match_cast`, a signature's claim, a declared bound."""


class Executable:
    """A compiled module. `exe["main"](*arrays)` runs a function on NumPy (or DLPack) arrays.

    Arguments are not copied; results are new arrays, or the argument itself where the function
    returns one it updated in place. Calls from several threads take turns.

    >>> import relaxlab as rl                                             # doctest: +SKIP
    >>> exe = rl.compile(mod); exe["main"](np.ones(4, "float32"))         # doctest: +SKIP
    """

    def __init__(
        self,
        artifact: Artifact,
        target: Target,
        threads: int | None = None,
        *,
        from_cache: bool = False,
    ) -> None:
        load_openmp()
        self.artifact, self.target, self.from_cache = artifact, target, from_cache
        self.threads = default_threads() if threads is None else threads
        self._code = LoadedObject(artifact.code, target)
        self._lock = threading.Lock()
        self._constants = (ctypes.c_int64 * max(1, len(artifact.constants)))()
        for i, array in enumerate(artifact.constants):
            self._constants[i] = array.__array_interface__["data"][0]
        self._arenas = (ctypes.c_int64 * max(1, 2 * artifact.arenas))()
        self._callback = _CALLBACK(self._call_packed)
        self._error: BaseException | None = None
        self._live: list[Any] = []
        self._functions = {f.name: NativeFunction(self, f) for f in artifact.functions}

    def __getitem__(self, name: str) -> NativeFunction:
        if name not in self._functions:
            names = ", ".join(sorted(self._functions))
            raise KeyError(f"the executable has no function {name!r}; it has: {names}")
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    @property
    def threads(self) -> int:
        """Threads a call uses, the caller's included; may be set at any time."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"threads must be at least 1, got {count}")
        self._threads = count

    def arena_bytes(self) -> int:
        """Bytes of planned memory held now."""
        return sum(self._arenas[1::2])

    def __del__(self) -> None:
        for address in getattr(self, "_arenas", ())[::2]:
            _free(address)

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
        table = ctypes.cast(words, ctypes.POINTER(ctypes.c_int64))
        args, at = list[Any](), 0
        for arg in info.args:
            if isinstance(arg, str):
                args.append(arg)
            else:
                args.append(_read(arg, table, at))
                at += count_words(arg)
        result = get_func(info.function)(*args)
        if info.result is not None:
            function = FunctionInfo(info.function, "", (), info.result, (), 0, 0)
            make_filler(function, "result", info.result, at, 0)(result, table, self._live)


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def _read(tree: TypeTree, words: Any, at: int) -> Any:
    """A Python value from words, viewing tensors in place."""
    if tree.kind == "tensor":
        dims = tuple(words[at + 1 + i] for i in range(tree.ndim))
        return view_memory(words[at], dims, tree.dtype)
    if tree.kind == "shape":
        return tuple(words[at + i] for i in range(tree.ndim))
    if tree.kind == "scalar":
        return word_to_scalar(words[at], tree.dtype)
    fields: list[Any] = []
    for field in tree.fields:
        fields.append(_read(field, words, at))
        at += count_words(field)
    return tuple(fields)


class NativeFunction:
    """One function of an executable."""

    def __init__(self, exe: Executable, info: FunctionInfo) -> None:
        self.info, self._exe = info, exe
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
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
        callback = ctypes.cast(exe._callback, ctypes.c_void_p).value or 0
        self._context[CONTEXT.index("callback")] = callback
        self._fillers = list[Any]()
        at = leaf = 0
        for name, tree in info.params:
            self._fillers.append(make_filler(info, name, tree, at, leaf))
            at += count_words(tree)
            leaf += count_leaves(tree)
        self._bound_values: list[Any] = []

    def __repr__(self) -> str:
        params = ", ".join(f"{name}: {tree.text}" for name, tree in self.info.params)
        return f"<compiled {self.info.name}({params}) -> {self.info.result.text}>"

    def bind(self, *last: Any) -> None:
        """Give the last parameters once (weights): later calls leave them out.

        The values are checked and kept alive here, so that a call pays nothing for them.
        """
        if len(last) > len(self.info.params):
            raise ArgumentError(f"`{self.info.name}` has {len(self.info.params)} parameters")
        kept: list[Any] = []
        first = len(self.info.params) - len(last)
        for filler, value in zip(self._fillers[first:], last, strict=True):
            filler(value, self._in, kept)
        self._bound_values = kept
        self._fillers = self._fillers[:first]

    def __call__(self, *args: Any) -> Any:
        """Run the function. Raises ArgumentError (arity, dtype, rank, layout) or CheckFailed (a
        dimension or bound, naming the value, the symbol, expected and got)."""
        exe, fillers = self._exe, self._fillers
        if len(args) != len(fillers):
            names = ", ".join(name for name, _ in self.info.params[: len(fillers)])
            raise ArgumentError(
                f"`{self.info.name}` takes {len(fillers)} arguments ({names}), got {len(args)}"
            )
        with exe._lock:
            kept: list[Any] = []
            words = self._in
            for filler, value in zip(fillers, args, strict=True):
                filler(value, words, kept)
            code = self._entry(self._address, exe._threads)
            owned = self._context[_OWNED]
            if code:
                self._fail(code, owned)
            if not self.info.words_out:
                result: Any = ()
            else:
                result = self._result(owned, kept)
            exe._live.clear()
            return result

    def _fail(self, code: int, owned: int) -> None:
        exe = self._exe
        for block, _ in self._blocks(owned):
            _free(block)
        exe._live.clear()
        error, exe._error = exe._error, None
        if error is not None:
            raise error
        check = exe.artifact.checks[code - 1]
        axis, got, expected = self._context[0], self._context[1], self._context[2]
        self._context[_KERNEL_FAILED] = 0
        text = check.messages[axis].format(got=got, expected=expected)
        raise MemoryError(text) if check.memory else CheckFailed(text)

    def _blocks(self, owned: int) -> list[tuple[int, int]]:
        """(block, data address) of everything allocated during the call."""
        blocks: list[tuple[int, int]] = []
        while owned:
            blocks.append((owned, owned + BLOCK_HEADER))
            owned = ctypes.c_int64.from_address(owned).value
        self._context[_OWNED] = 0
        return blocks

    def _result(self, owned: int, kept: list[Any]) -> Any:
        sources = _Sources(self._blocks(owned), kept + self._bound_values, self._exe)
        value, _ = self._build(self.info.result, 0, sources)
        sources.release()
        return value

    def _build(self, tree: TypeTree, at: int, sources: _Sources) -> tuple[Any, int]:
        out = self._out
        if tree.kind == "tensor":
            dims = tuple(out[at + 1 : at + 1 + tree.ndim])
            return sources.array(out[at], dims, tree.dtype), at + 1 + tree.ndim
        if tree.kind == "tuple":
            fields: list[Any] = []
            for field in tree.fields:
                value, at = self._build(field, at, sources)
                fields.append(value)
            return tuple(fields), at
        return _read(tree, out, at), at + count_words(tree)


_OWNED, _KERNEL_FAILED = CONTEXT.index("owned"), CONTEXT.index("kernel_failed")


class _Sources:
    """Where a result's memory can come from: a fresh block, an argument, or a constant."""

    def __init__(self, blocks: list[tuple[int, int]], kept: list[Any], exe: Executable) -> None:
        self.blocks, self.kept, self.exe = dict((d, b) for b, d in blocks), kept, exe
        self.owners: dict[int, np.ndarray[Any, Any]] = {}

    def array(self, address: int, dims: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if address in self.blocks or address in self.owners:
            return view_memory(address, dims, dtype, self._owner(address, dims, dtype))
        arrays = (*self.kept, *self.exe._live, *self.exe.artifact.constants)
        for array in arrays:
            start = array.__array_interface__["data"][0]
            if start <= address < start + max(1, array.nbytes):
                if start == address and array.shape == dims and array.dtype.name == dtype:
                    return array
                return view_memory(address, dims, dtype, array.reshape(-1).view(np.uint8))
        return view_memory(address, dims, dtype).copy()

    def _owner(self, address: int, dims: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if address not in self.owners:
            size = math.prod(dims) * numpy_dtype(dtype).itemsize
            block = OwnedBlock(self.blocks.pop(address), address, size, _free)
            self.owners[address] = np.asarray(block)
        return self.owners[address]

    def release(self) -> None:
        """Free the blocks that are not part of the result."""
        for block in self.blocks.values():
            _free(block)
