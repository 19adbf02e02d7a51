"""Builtins that call compiled functions: what `codegen.llvm.python_call` emits, and its plans."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import Artifact, FunctionInfo, TypeTree
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.plan import (
    CALL,
    CONTIGUOUS,
    KINDS,
    NEW_ARRAY,
    NEW_SCALAR,
    OFFSETS,
    PARAM,
    PLAN,
    RESULT,
    SET_BASE,
    WRITEABLE,
)
from relaxlab.ir.dtypes import bits_of, is_int, is_uint, numpy_dtype
from relaxlab.ir.target import Target
from relaxlab.runtime.cache import artifact_key, cached
from relaxlab.runtime.native.arguments import count_leaves, count_words
from relaxlab.runtime.native.blocks import LARGE
from relaxlab.runtime.native.loaded import LoadedProgram

Span = tuple[int, int]
"""The addresses of the first byte of some memory and of the one after the last."""


class DirectCall:
    """A function's plan. `call` is the builtin: it does what `slow` does, which it calls with the
    same arguments where it cannot, and lets `finish` make results that it does not make.

    The plan holds for as long as the builtin is called, so it is changed in place by `bind`.
    """

    def __init__(
        self, exe: LoadedProgram, info: FunctionInfo, entry: Any, words: Any, out: Any,
        context: Any, slow: Callable[..., Any], finish: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._params, self._written, self._dims = _param_records(info, ctypes.addressof(words))
        self._table = _words(word for record in self._params for word in record)
        results = _result_records(info.result)
        self._results = _words(word for record in results or () for word in record)
        acquire, release = exe._lock.acquire, exe._lock.release
        self._guards = _words(())
        values = {
            "params": ctypes.addressof(self._table),
            "entry": ctypes.cast(entry, ctypes.c_void_p).value,
            "context": ctypes.addressof(context),
            "state": ctypes.addressof(exe._state),
            "slow": id(slow),
            "finish": id(finish),
            "acquire": id(acquire),
            "release": id(release),
            "spare": id(exe._spare.blocks),
            "out": ctypes.addressof(out),
            "words": info.words_out,
            "results": ctypes.addressof(self._results),
            "leaves": -1 if results is None else len(results),
            "single": info.result.kind == "tensor",
            "ndarray": id(np.ndarray),
        }
        self._plan = _words(values.get(name, 0) for name in PLAN)
        # The plan has addresses only: without these references what they point to would be freed.
        held = (self, exe, words, out, context, acquire, release, slow, finish)
        self.call = builtin(CALL, _compiled, (ctypes.addressof(self._plan), *held))

    def bind(self, count: int, bound: Sequence[Span], updated: Sequence[Span]) -> None:
        """Leave `count` parameters open. The others have the memory `bound`, of which calls update
        the part `updated` in place."""
        grows = any(self._written[:count])
        spans = bound if grows else updated
        self._guards = _words([*(a for span in spans for a in span), *(0,) * (2 * count)])
        self._set("guards", ctypes.addressof(self._guards))
        self._set("guarded", len(spans))
        self._set("grows", grows)
        self._set("open", count if count <= len(self._params) else -1)

    def _set(self, name: str, value: int) -> None:
        self._plan[PLAN.index(name)] = value


def _words(values: Any) -> Any:
    listed = [*values]
    return (ctypes.c_int64 * max(1, len(listed)))(*listed)


def _param_records(info: FunctionInfo, words: int) -> tuple[list[list[int]], list[bool], list[Any]]:
    """Records of the first parameters that can be read directly, whether each is updated, and what
    the records point to."""
    records, written, alive = list[list[int]](), list[bool](), list[Any]()
    leaf = 0
    for _, tree in info.params:
        described = _describe(tree, leaf in info.written)
        # Calls with such a parameter, or later ones, are left to Python as a whole.
        if described is None:
            break
        described["to"], dims = words, _words(described.pop("dims"))
        alive.append(dims)
        described["dims"] = ctypes.addressof(dims)
        records.append([described.get(name, 0) for name in PARAM])
        written.append(leaf in info.written)
        words += 8 * count_words(tree)
        leaf += count_leaves(tree)
    return records, written, alive


def _describe(tree: TypeTree, written: bool) -> dict[str, Any] | None:
    dtype = numpy_dtype(tree.dtype) if tree.dtype else None
    size = 0 if dtype is None else dtype.itemsize
    match tree.kind:
        case "tensor":
            return {
                "kind": KINDS["tensor"],
                "type": id(np.ndarray),
                "ndim": tree.ndim,
                "descr": id(dtype),
                # Arrays at other addresses are left to Python.
                "mask": size - 1,
                "flags": CONTIGUOUS | WRITEABLE * written,
                "size": size,
                "dims": tree.dims or (-1,) * tree.ndim,
            }
        case "shape":
            kind = KINDS["shape"]
            return {
                "kind": kind,
                "type": id(tuple),
                "ndim": tree.ndim,
                "descr": id(int),
                "dims": (),
            }
        case "scalar" if tree.dtype in ("float32", "float64"):
            return {"kind": KINDS["real"], "type": id(float), "size": size, "dims": ()}
        case "scalar" if is_int(tree.dtype) and tree.dtype != "bool":
            return {"kind": KINDS["integer"], "type": id(int), "dims": _range(tree.dtype)}
        case _:
            return None


def _range(dtype: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer dtype, as far as words can hold them."""
    bits = bits_of(dtype)
    return (
        (0, (1 << min(bits, 63)) - 1) if is_uint(dtype) else (-1 << bits - 1, (1 << bits - 1) - 1)
    )


def _result_records(tree: TypeTree) -> list[list[int]] | None:
    """Records of the result's arrays; None if there is more in it, or tuples of tuples."""
    fields = (tree,) if tree.kind == "tensor" else tree.fields
    if tree.kind not in ("tensor", "tuple") or any(f.kind != "tensor" for f in fields):
        return None
    records, at = list[list[int]](), 0
    for field in fields:
        values = {"at": at, "ndim": field.ndim, "descr": id(numpy_dtype(field.dtype))}
        records.append([values[name] for name in RESULT])
        at += count_words(field)
    return records


# -- the builtin -----------------------------------------------------------------------------------


class _MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x82
"""METH_FASTCALL | METH_KEYWORDS: arguments as a vector, and the names of the last ones."""


@cache
def _definition(
    symbol: str, compiled: Callable[[Target], Artifact]
) -> tuple[_MethodDef, jit.LoadedObject]:
    """Return CPython's definition of a function, and its machine code."""
    add_numpy_functions()
    target = Target.host()
    artifact, _ = cached(artifact_key(symbol, target, ()), lambda: compiled(target))
    loaded = jit.LoadedObject(artifact.code, target, artifact.externs)
    return _MethodDef(b"call", loaded.address(symbol), _FASTCALL, None), loaded


def _compiled(target: Target) -> Artifact:
    from relaxlab.codegen.llvm.python_call import python_call  # who finds it needs no compiler

    declarations = dict[str, str]()
    texts = python_call(declarations, LARGE)
    externs = jit.external_functions(texts, declarations)
    # Optimised it takes 45 milliseconds instead of 4, and a call 30 nanoseconds less.
    code, bitcode = jit.compile_quickly(jit.module_text(texts, declarations, target), target)
    return Artifact((code,), bitcode, (), (), (), 0, {}, externs=externs)


def builtin(
    symbol: str, compiled: Callable[[Target], Artifact], held: tuple[Any, ...]
) -> Callable[..., Any]:
    """Return the function `symbol` of what `compiled` makes as a builtin of CPython, whose `self`
    is `held`: the address of a plan, and the objects that the plan points to."""
    definition, _ = _definition(symbol, compiled)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, *[ctypes.py_object] * 2]
    return make(ctypes.addressof(definition), held, "relaxlab")


def _numpy_table() -> Any:
    """The functions and types that NumPy offers to C, by their numbers."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(import_module("numpy._core._multiarray_umath")._ARRAY_API, None)
    return (ctypes.c_void_p * 283).from_address(address)


@cache
def add_numpy_functions() -> None:
    """Let machine code call NumPy, which has its functions in a table instead of as symbols."""
    table = _numpy_table()
    for name, number in ((NEW_ARRAY, 94), (SET_BASE, 282), (NEW_SCALAR, 60)):
        jit.add_symbol(name, table[number])


@cache
def is_supported() -> bool:
    """True if this interpreter and NumPy look as the emitted code expects: CPython with its lock,
    NumPy's C interface 2, and arrays laid out as that says."""
    # The free-threaded build has another object header, and no lock that serialises calls.
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        return False
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(_numpy_table()[0])()
    if version >> 24 != 2 or _numpy_table()[2] != id(np.ndarray):
        return False
    # Fields are compared in a real array, as versions promise the interface but not the offsets.
    array = np.zeros((3, 2), np.float32)

    def field(name: str, kind: Any = ctypes.c_int64) -> int:
        return kind.from_address(id(array) + OFFSETS[name]).value

    dims = (ctypes.c_int64 * 2).from_address(field("dims"))
    found = (field("data"), field("ndim", ctypes.c_int32), tuple(dims), field("descr"))
    flags, header = field("flags", ctypes.c_int32), OFFSETS["data"]
    expected = (array.__array_interface__["data"][0], 2, array.shape, id(array.dtype))
    return found == expected and flags == array.flags.num and object.__basicsize__ == header
