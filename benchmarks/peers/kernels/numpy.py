"""NumPy with OpenBLAS: products only, into memory that is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.kernels.cases import Array, Case
from benchmarks.peers.kernels.base import Fetch, Kernels


class NumPyKernels(Kernels):
    """Its threads are set by the environment, before it is imported."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        blas = np.show_config("dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
        self.about = {"version": np.__version__, "blas": f"{blas['name']} {blas['version']}"}

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        if case.kind != "gemm":
            raise ValueError(f"NumPy takes no part in {case.kind}")
        a, b = arrays
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
        return lambda: np.matmul(a, b, out=out), lambda: out
