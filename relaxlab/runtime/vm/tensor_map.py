"""Descriptors of matrices for copies of boxes by the tensor memory accelerator (TMA), as the driver
encodes them (CUDA Driver API, *Tensor Map Object Management*)."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from relaxlab.codegen.gpu.dialect import (
    MAP_BYTES,
    MAP_DTYPES,
    PROMOTE_256B,
    SWIZZLE_128B,
    TensorMap,
)
from relaxlab.ir.dtypes import bytes_of
from relaxlab.runtime.arrays import ExecutionError

ALIGN = 64
"""The alignment of a descriptor that the driver requires."""


def tensor_map(wanted: TensorMap, array: Any) -> np.ndarray[Any, Any]:
    """Return the descriptor of an array in the GPU's memory, as an array of one element, which
    CuPy passes to kernels by value. Raises ExecutionError where the driver refuses it."""
    return _encoded(wanted, array.shape, int(array.data.ptr))


@lru_cache(4096)
def _encoded(wanted: TensorMap, shape: tuple[int, ...], address: int) -> np.ndarray[Any, Any]:
    """The descriptor of an array of a shape at an address."""
    rank, size = len(wanted.box), bytes_of(wanted.buffer.dtype)
    pitches = [prod(shape[n:]) * size for n in range(1, rank)]
    raw = np.zeros(MAP_BYTES + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    place = raw[start : start + MAP_BYTES]
    if 0 in shape:  # the driver describes no such array, and nobody asks for a part of it
        return place.view(f"V{MAP_BYTES}")
    # The driver counts dimensions from the last one.
    sizes, pitch = (ctypes.c_uint64 * rank)(*shape[::-1]), (ctypes.c_uint64 * rank)(*pitches[::-1])
    box, steps = (ctypes.c_uint32 * rank)(*wanted.box[::-1]), (ctypes.c_uint32 * rank)(*[1] * rank)
    code = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place.ctypes.data), ctypes.c_int(MAP_DTYPES[wanted.buffer.dtype]),
        ctypes.c_uint32(rank), ctypes.c_void_p(address), sizes, pitch, box, steps,
        ctypes.c_int(0), ctypes.c_int(SWIZZLE_128B), ctypes.c_int(PROMOTE_256B),
        ctypes.c_int(0),
    )  # fmt: skip
    if code:
        raise ExecutionError(
            f"the driver refuses to describe boxes of {' x '.join(map(str, wanted.box))} of "
            f"{wanted.buffer.name}, {' x '.join(map(str, shape))} at {address:#x} (error "
            f"{code}): its address and the bytes of its rows have to be multiples of 16; pass a "
            "copy of it"
        )
    return place.view(f"V{MAP_BYTES}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
