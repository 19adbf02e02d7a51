"""The worker threads: an OpenMP runtime, found once.

Intel's runtime (LLVM's libomp, packaged as the wheel `intel-openmp`) where it is installed, else
the system's libomp or libgomp. Compiled programs use the entry points all of them share:
GOMP_parallel, GOMP_barrier, omp_get_thread_num, omp_get_num_threads. Its threads are created
once and wait between calls, and it is the runtime NumPy's and PyTorch's users already trust.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from relaxlab.ir.errors import UserError

SYMBOLS = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
"""Symbols that compiled programs call."""


class OpenMPNotFound(UserError, ImportError):
    """No OpenMP runtime can be loaded."""


def candidates() -> Iterator[str]:
    """Libraries to try, best first."""
    prefixes = [Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib"]
    names = ["libiomp5.so", "libomp.so", "libomp.dylib", "libiomp5.dylib"]
    yield from (str(p / n) for p in prefixes for n in names if (p / n).exists())
    from ctypes.util import find_library  # runs other programs, which takes as long as they do

    yield from filter(None, map(find_library, ("iomp5", "omp", "gomp")))


_loaded_by: list[int] = []


def threads_are_lost() -> bool:
    """True if this process was forked from one that uses libgomp, which waits forever for threads
    that only the parent has. (The other runtimes start new ones.)"""
    return "gomp" in Path(load_openmp()).name and os.getpid() not in _loaded_by


@cache
def load_openmp() -> str:
    """Load the runtime and make its symbols known to compiled code; returns the library's path.

    Raises OpenMPNotFound with what to install.
    """
    from relaxlab.codegen.llvm.jit import add_symbol

    # Intel's runtime would write warnings to stderr.
    os.environ.setdefault("KMP_WARNINGS", "0")
    for path in candidates():
        try:
            # Global, so that libraries loaded later find the same runtime.
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            functions = [getattr(library, name) for name in SYMBOLS]
        except (OSError, AttributeError):
            continue
        for name, function in zip(SYMBOLS, functions, strict=True):
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            add_symbol(name, address)
        _loaded_by.append(os.getpid())
        return path
    raise OpenMPNotFound(
        "no OpenMP runtime found: `pip install intel-openmp` (x86-64), or "
        "`apt-get install libgomp1` (other Linux), or `brew install libomp` (macOS)"
    )


def default_threads() -> int:
    """The cores this process may use; OMP_NUM_THREADS overrides."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
