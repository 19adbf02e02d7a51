"""Matrix products by BLAS: OpenBLAS from the wheel `scipy-openblas64`.

Compiled programs call `cblas_?gemm` themselves (`codegen.llvm.blas`): each thread of the team
computes its share with a BLAS that uses one thread, so the executable's thread count is BLAS's, and
no second pool of threads competes for the cores. The interpreter and the virtual machine call the
functions here.
"""

from __future__ import annotations

import ctypes
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.codegen.llvm.context import GEMM
from relaxlab.ir.c_libraries import CLibrary, add_c_library
from relaxlab.ir.errors import UserError
from relaxlab.runtime.c_libraries import load_library

Array = np.ndarray[Any, Any]

_REAL: dict[str, Any] = {"float32": ctypes.c_float, "float64": ctypes.c_double}
_ROW_MAJOR, _NO_TRANS = 101, 111


class BlasNotFound(UserError, ImportError):
    """BLAS is not installed."""


def blas_path() -> Path:
    """The file of the library. Raises BlasNotFound with what to install."""
    try:
        wheel = import_module("scipy_openblas64")
    except ModuleNotFoundError:
        raise BlasNotFound(
            "this program calls BLAS, which is not installed: `pip install 'relaxlab[blas]'`"
        ) from None
    folder = Path(wheel.get_lib_dir())
    paths = [p for p in folder.glob("libscipy_openblas64_*") if p.suffix in (".so", ".dylib")]
    if not paths:
        raise BlasNotFound(f"there is no libscipy_openblas64_ in {folder}")
    return paths[0]


def _load_with_one_thread(path: Path) -> ctypes.CDLL:
    """Load OpenBLAS with one thread: it starts its threads while it is loaded, as many as this
    variable says."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        library = ctypes.CDLL(str(path))
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    library.scipy_openblas_set_num_threads64_(ctypes.c_int(1))
    return library


BLAS = CLibrary(blas_path, _load_with_one_thread, tuple(GEMM.values()))
add_c_library(BLAS)


def matmul(a: Array, b: Array, transpose_a: int, transpose_b: int, out: Array) -> None:
    """out = a @ b for every batch; see `passes.blas_patterns` for the shapes."""
    _gemm(a, b, transpose_a, transpose_b, out, 0.0)


def matmul_bias(
    a: Array, b: Array, bias: Array, transpose_a: int, transpose_b: int, out: Array
) -> None:
    """out = a @ b + bias for every batch."""
    out[...] = bias
    _gemm(a, b, transpose_a, transpose_b, out, 1.0)


def _gemm(a: Array, b: Array, transpose_a: int, transpose_b: int, out: Array, beta: float) -> None:
    dtype = out.dtype.name
    gemm, real = getattr(load_library(BLAS), GEMM[dtype]), _REAL[dtype]
    m, n = out.shape[-2:]
    k = a.shape[-2] if transpose_a else a.shape[-1]
    if not out.size:
        return
    for index in np.ndindex(out.shape[:-2]):
        left, right = (x[index] if x.ndim > 2 else x for x in (a, b))
        gemm(
            *map(ctypes.c_int, (_ROW_MAJOR, _NO_TRANS + transpose_a, _NO_TRANS + transpose_b)),
            *map(ctypes.c_int64, (m, n, k)),
            real(1.0), _pointer(left), ctypes.c_int64(max(1, left.shape[1])),
            _pointer(right), ctypes.c_int64(max(1, right.shape[1])),
            real(beta), _pointer(out[index]), ctypes.c_int64(n),
        )  # fmt: skip


def _pointer(x: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.__array_interface__["data"][0])
