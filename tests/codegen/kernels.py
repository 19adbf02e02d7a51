"""Compiling single loop functions and calling them on arrays, without a graph around them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.openmp import load_openmp
from relaxlab.script.parser import parse


def parse_kernels(*texts: str) -> Module:
    """A module of loop functions given as text, each starting at `def name(...)`."""
    return parse("".join(f"@T.prim_func\n{dedent(text).strip()}\n" for text in texts))


def module_text(mod: Module, target: Target | None = None) -> tuple[str, dict[str, Any]]:
    """LLVM IR of all loop functions of a module, and the emitted kernels by name."""
    declarations: dict[str, str] = {}
    texts = support_functions(declarations, target or Target.host())
    kernels: dict[str, Any] = {}
    for name, f in mod.items():
        if isinstance(f, PrimFunc):
            kernels[name] = emit_kernel(f, name, declarations)
    texts += [k.text for k in kernels.values()]
    return jit.module_text(texts, declarations, target or Target.host()), kernels


def optimised(mod: Module, target: Target | None = None) -> str:
    """The LLVM IR after LLVM's passes."""
    module, _ = jit.optimise(module_text(mod, target)[0], target or Target.host())
    return str(module)


class Kernels:
    """The loop functions of a module as callables, run by one thread."""

    def __init__(self, mod: Module) -> None:
        load_openmp()
        self.mod = mod
        self.text, self.kernels = module_text(mod)
        code, _ = jit.compile_object(self.text, Target.host())
        self.code = jit.LoadedObject([code], Target.host())

    def __call__(self, name: str, arrays: list[Any], **symbols: int) -> int:
        """Run a kernel on arrays; its symbols by name. Returns the number of its failure or 0."""
        func = self.mod[name]
        args: list[Any] = [ctypes.c_void_p(a.__array_interface__["data"][0]) for a in arrays]
        args += [ctypes.c_int64(symbols[s.name]) for s in kernel_symbols(func)]
        args += [ctypes.c_int64(0), ctypes.c_int64(1)]
        failed = ctypes.c_int64(0)
        fails = bool(self.kernels[name].failures)
        if fails:
            args.append(ctypes.byref(failed))
        function = ctypes.CFUNCTYPE(ctypes.c_int64 if fails else None)
        entry = function(self.code.address(symbol_of(name)))
        entry.argtypes = None  # type: ignore[assignment]
        return entry(*args) or 0

    def agree(self, name: str, arrays: list[Any], scalars: tuple[int, ...] = (), **symbols: int):
        """Run natively and by the interpreter on copies; both must leave the same arrays. Returns
        them."""
        mine, theirs = ([a.copy() for a in arrays] for _ in range(2))
        assert self(name, mine, **symbols) == 0
        func = self.mod[name]
        interpret_prim_func(func, [*theirs, *scalars], name=name)
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            np.testing.assert_array_equal(a, b, err_msg=f"buffer {i} of {name}")
        return mine


@contextmanager
def at_the_end_of_memory(
    array: np.ndarray[Any, Any], *, beginning: bool = False
) -> Iterator[np.ndarray[Any, Any]]:
    """A copy whose last byte is the last of a page, with no readable page after it; with
    `beginning` one whose first byte is the first of a page, with none before it."""
    page = 4096
    size = -(-array.nbytes // page) * page or page
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    start = libc.mmap(None, size + 2 * page, 3, 0x22, -1, 0)
    assert start not in (None, 2**64 - 1)
    for edge in (start, start + page + size):
        assert libc.mprotect(edge, page, 0) == 0
    raw = (ctypes.c_uint8 * size).from_address(start + page)
    first = 0 if beginning else size - array.nbytes
    view = np.frombuffer(raw, np.uint8)[first : first + array.nbytes].view(array.dtype)
    view = view.reshape(array.shape)
    view[...] = array
    try:
        yield view
    finally:
        libc.munmap(start, size + 2 * page)


def nearest_integer(x: float, dtype: str) -> int:
    """The integer towards zero, or the nearest one of the type; 0 for NaN."""
    ends = np.iinfo(dtype)
    return 0 if math.isnan(x) else int(max(ends.min, min(ends.max, x)))


def edges(dtype: str) -> Any:
    """Floats about the ends of the ranges of integers, infinities and NaN."""
    powers = [sign * 2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)]
    factors = (1, 1 - 2.0**-8, 1 + 2.0**-8, 1 - 2.0**-24, 1 + 2.0**-24)
    near = [power * factor for power in powers for factor in factors]
    plain = [0.0, -0.0, 0.9, -0.9, 1e30, -1e30, math.inf, -math.inf, math.nan]
    with np.errstate(over="ignore"):
        return np.array(plain + near).astype(numpy_dtype(dtype))
