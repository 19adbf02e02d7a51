"""Memory of the virtual machine's tensors: NumPy arrays, or CuPy arrays on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import kind_of
from relaxlab.runtime.arrays import Array, ExecutionError, as_array, uninitialised


class HostMemory:
    """NumPy arrays. Memory that is not written yet holds NaN, or bytes 0x5A."""

    array: type[Any] = np.ndarray

    def tensor(self, value: Any, where: str, written: bool) -> Any:
        """An argument as an array of this memory. Raises ExecutionError, naming it as `where`,
        for one that does not fit."""
        array = host_array(value, where)
        if written and not array.flags.writeable:
            raise ExecutionError(f"{where} is updated in place but is read-only; pass a copy")
        return array

    def constant(self, array: Array) -> Any:
        """A constant of the program."""
        return array

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A new array."""
        return uninitialised(shape, dtype)

    def poison(self, part: Any) -> None:
        """Fill planned memory that holds nothing yet with NaN, or -1: a read too early shows."""
        part[...] = 0xFF

    def to_host(self, array: Any) -> Array:
        """The array for a function outside the program."""
        return array

    def copy_back(self, host: Array, array: Any) -> None:
        """Copy what such a function left in `host`, the array it was given for `array`, back to
        `array`."""


@dataclass(slots=True)
class DeviceMemory:
    """Arrays of the module `xp`, which is CuPy (or NumPy, in its place, where there is no GPU)."""

    xp: Any

    @property
    def array(self) -> type[Any]:
        """The type of the arrays."""
        return self.xp.ndarray

    def tensor(self, value: Any, where: str, written: bool) -> Any:
        """Arrays of the device as they are, those of other libraries by DLPack; others copied
        there. An argument that is updated in place must be there already. Raises ExecutionError
        for one that does not fit."""
        if not isinstance(value, self.xp.ndarray) and _device_of(value) == CUDA_DEVICE:
            value = self.xp.from_dlpack(value)
        if isinstance(value, self.xp.ndarray):
            if not value.flags.c_contiguous:
                raise ExecutionError(f"{where} is not contiguous; pass cupy.ascontiguousarray(x)")
            return self._aligned(value, where, written)
        if written:
            raise ExecutionError(
                f"{where} is updated in place, so it must be in the GPU's memory; "
                "pass cupy.asarray(x)"
            )
        return self.xp.asarray(host_array(value, where))

    def _aligned(self, value: Any, where: str, written: bool) -> Any:
        """Return a device array, copied if it is not aligned to 16 bytes, the widest access of
        kernels."""
        address = getattr(value.data, "ptr", 0)  # CuPy's
        if address % 16 == 0:
            return value
        if written:
            raise ExecutionError(
                f"{where} is updated in place, but does not start at a multiple of 16 bytes; "
                "pass an array of its own, not a part of one"
            )
        return value.copy()

    def constant(self, array: Array) -> Any:
        """A constant, copied to the device."""
        return self.xp.asarray(array)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A new array, not initialised."""
        if any(d < 0 for d in shape):
            raise ExecutionError(f"cannot allocate an array of shape {tuple(shape)}")
        return self.xp.empty(tuple(shape), numpy_dtype(dtype))

    def address(self, array: Any) -> int:
        """The address of an array's first element."""
        return array.data.ptr

    def copy(self, source: Any, target: Any) -> None:
        """Copy an array of the device or of the host to one of the device, in the order of the
        current stream."""
        if isinstance(source, self.xp.ndarray):
            self.xp.copyto(target, source)
        else:
            target.set(source, self.xp.cuda.get_current_stream())

    def poison(self, part: Any) -> None:
        """Do nothing: planned memory keeps its contents."""

    def to_host(self, array: Any) -> Array:
        """A copy in NumPy."""
        return self.xp.asnumpy(array) if hasattr(self.xp, "asnumpy") else np.array(array)

    def copy_back(self, host: Array, array: Any) -> None:
        """Copy the result of a function in host memory back to the device."""
        array[...] = self.xp.asarray(host)


CUDA_DEVICE = 2
"""The number of CUDA's main memory in DLPack."""


def _device_of(value: Any) -> int | None:
    """The kind of device that an array of any library is on, as DLPack numbers them; None for what
    is no array."""
    device = getattr(value, "__dlpack_device__", None)
    return None if device is None else int(device()[0])


def host_array(value: Any, where: str) -> Array:
    """An argument as a dense NumPy array. Raises ExecutionError naming it as `where`."""
    if isinstance(value, tuple | list | str) or value is None or callable(value):
        raise ExecutionError(f"{where} must be an array, got {kind_of(value)}")
    array = as_array(value)
    if not array.flags.c_contiguous:
        raise ExecutionError(f"{where} is not contiguous; pass np.ascontiguousarray(x)")
    return array
