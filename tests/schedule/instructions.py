"""NumPy models of the instructions that tensor intrinsics call, after the manuals of Intel and Arm:
what the implementations are compared with their descriptions by on machines without them."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.interpreter.interpreter import register_intrinsic_meaning


def _dot_bytes(dtype: Any, total: Any, a: Any, b: Any) -> Any:
    """Return each int32 lane of `total` plus the dot product of four uint8 of `a` with four int8 of
    `b` (Intel's VPDPBUSD, Arm's USDOT)."""
    left = np.ascontiguousarray(a).view(np.uint8).reshape(-1, 4).astype(np.int32)
    right = np.ascontiguousarray(b).view(np.int8).reshape(-1, 4).astype(np.int32)
    return (total + (left * right).sum(1, dtype=np.int32)).astype(dtype)


def _multiply_bytes(dtype: Any, a: Any, b: Any) -> Any:
    """Return, per 16 bits, the sum of two products of a uint8 of `a` and an int8 of `b`, saturated
    to int16 (Intel's VPMADDUBSW)."""
    left = np.ascontiguousarray(a).view(np.uint8).reshape(-1, 2).astype(np.int32)
    right = np.ascontiguousarray(b).view(np.int8).reshape(-1, 2).astype(np.int32)
    return np.clip((left * right).sum(1), -(1 << 15), (1 << 15) - 1).astype(dtype)


def _add_pairs(dtype: Any, a: Any, b: Any) -> Any:
    """Return, per 32 bits, the sum of two products of int16 (Intel's VPMADDWD)."""
    left, right = (np.ascontiguousarray(x).view(np.int16).astype(np.int32) for x in (a, b))
    return (left * right).reshape(-1, 2).sum(1, dtype=np.int32).astype(dtype)


def _dot_pairs(dtype: Any, total: Any, a: Any, b: Any) -> Any:
    """Return each float32 lane of `total` plus the dot product of two bfloat16 of `a` with two of
    `b` (Intel's VDPBF16PS): the second products first, sums rounded in float32."""
    bfloat16 = numpy_dtype("bfloat16")
    left, right = (
        np.ascontiguousarray(x).view(bfloat16).reshape(-1, 2).astype(np.float32) for x in (a, b)
    )
    product = left * right
    return (total + product[:, 1] + product[:, 0]).astype(dtype)


MODELS = {
    **{f"llvm.x86.avx512.vpdpbusd.{bits}": _dot_bytes for bits in (256, 512)},
    "llvm.aarch64.neon.usdot.v4i32.v16i8": _dot_bytes,
    "llvm.x86.avx512bf16.dpbf16ps.512": _dot_pairs,
    "llvm.x86.avx2.pmadd.ub.sw": _multiply_bytes,
    "llvm.x86.avx512.pmaddubs.w.512": _multiply_bytes,
    "llvm.x86.avx2.pmadd.wd": _add_pairs,
    "llvm.x86.avx512.pmaddw.d.512": _add_pairs,
}


def register_models() -> None:
    """Let the interpreter run the instructions, until the test ends."""
    for name, model in MODELS.items():
        register_intrinsic_meaning(name, model)
