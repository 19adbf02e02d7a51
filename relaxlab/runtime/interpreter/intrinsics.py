"""The meaning of target instructions and C functions in NumPy, registered by name.

Other intrinsics have theirs in their rows (`relaxlab.ir.intrinsics`); `if_then_else`, `likely`,
`address_of` and hints are part of the interpreter itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.intrinsics import INTRINSICS, Meaning
from relaxlab.runtime.arrays import ExecutionError


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


_EXTERNAL: dict[str, Meaning] = {
    **{f"llvm.x86.avx512.vpdpbusd.{bits}": _dot_bytes for bits in (128, 256, 512)},
    "llvm.aarch64.neon.usdot.v4i32.v16i8": _dot_bytes,
    "llvm.x86.avx512bf16.dpbf16ps.512": _dot_pairs,
    "llvm.x86.avx2.pmadd.ub.sw": _multiply_bytes,
    "llvm.x86.avx512.pmaddubs.w.512": _multiply_bytes,
    "llvm.x86.avx2.pmadd.wd": _add_pairs,
    "llvm.x86.avx512.pmaddw.d.512": _add_pairs,
}


def register_intrinsic_meaning(name: str, fn: Meaning) -> None:
    """Register a Python function that computes the target instruction or C function `name`.

    `fn(result_dtype, *values)` gets the NumPy dtype of one lane of the result and NumPy scalars or
    arrays (last axis: lanes; addresses as `Pointer`), and returns the result. Raises ValueError
    when `name` already has a different meaning.
    """
    if _EXTERNAL.get(name, fn) is not fn:
        raise ValueError(f"{name!r} already has a meaning")
    _EXTERNAL[name] = fn


def external_meaning(name: str) -> Meaning:
    """The registered meaning of a target instruction or C function."""
    if name not in _EXTERNAL:
        raise ExecutionError(
            f"the interpreter does not know what {name!r} computes; tell it with "
            f"register_intrinsic_meaning({name!r}, fn)"
        )
    return _EXTERNAL[name]


class Pointer:
    """The address of element `index` of `array` (`address_of`)."""

    __slots__ = ("array", "index")

    def __init__(self, array: np.ndarray[Any, Any], index: tuple[int, ...]) -> None:
        self.array = array
        self.index = index

    def flat(self) -> np.ndarray[Any, Any]:
        """The elements from the address to the end of the array, as a writable view.

        Raises ExecutionError when the array is not contiguous.
        """
        if not self.array.flags.c_contiguous:
            raise ExecutionError("address_of an array that is not contiguous")
        start = int(np.ravel_multi_index(self.index, self.array.shape)) if self.index else 0
        return self.array.reshape(-1)[start:]


def meaning_of(op: str) -> Meaning | None:
    """The meaning of an intrinsic that needs nothing but values; None for others. Raises
    ExecutionError where there is no such intrinsic."""
    if op in ("llvm_intrin", "call_extern"):
        return _named
    if op not in INTRINSICS:
        raise ExecutionError(f"unknown intrinsic {op!r}")
    return INTRINSICS[op].meaning


def _named(dtype: Any, name: str, *args: Any) -> Any:
    return external_meaning(name)(dtype, *args)
