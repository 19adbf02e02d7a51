"""The arena of a batch: the memory of the tensors of all instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.codegen.llvm.flushing import ALIGN
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.ir.types import TensorType
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.rows import row_bytes, row_dims, row_elements
from relaxlab.runtime.vm.memory import DeviceMemory

Array = np.ndarray[Any, Any]


class Arena:
    """Memory of the host, which grows as batches need it. `memory` are its bytes."""

    def __init__(self) -> None:
        self.memory: Array = np.zeros(0, np.uint8)

    def reserve(self, size: int, used: int) -> None:
        """Make it large enough, and keep what is in its first `used` bytes."""
        if len(self.memory) < size:
            larger = new_bytes(size)
            larger[:used] = self.memory[:used]
            self.memory = larger

    def to_host(self, array: Any) -> Array:
        """The array as one of NumPy."""
        return np.asarray(array, order="C")

    def copy(self, array: Array, offset: int) -> None:
        """Copy an array to a place in bytes."""
        raw = array.reshape(-1).view(np.uint8)
        self.memory[offset : offset + len(raw)] = raw

    def publish(self, start: int, end: int) -> None:
        """Let kernels see what the host has written to some bytes."""

    def rows(self, places: Words, ty: TensorType) -> list[Any]:
        """Copies of the tensors of one type at places in bytes."""
        rows = _flat(self.memory, ty)[_indices(places, ty)]
        return list(rows.reshape(len(places), *row_dims(ty)))

    def tensor(self, place: int, ty: TensorType) -> Any:
        """A copy of one tensor."""
        raw = self.memory[place : place + row_bytes(ty)]
        return raw.view(numpy_dtype(str(ty.dtype))).reshape(row_dims(ty)).copy()


class DeviceArena(Arena):
    """Memory of a device (`device`), beside memory of the host for what comes from there and for
    what instances wait for, at the same places. `memory` is as large as the device's; what nobody
    touches of it takes no space."""

    def __init__(self, on: DeviceMemory) -> None:
        super().__init__()
        self.on = on
        self.device = on.empty((0,), "uint8")
        self._views: dict[str, Any] = {}

    def reserve(self, size: int, used: int) -> None:
        """Make both memories large enough, and keep what is in the first bytes of the device's."""
        if len(self.memory) < size:
            self.memory = new_bytes(size)
            larger = self.on.empty(self.memory.shape, "uint8")
            larger[:used] = self.device[:used]
            self.device, self._views = larger, {}

    def to_host(self, array: Any) -> Array:
        """A copy in NumPy of an array of the device; others as they are."""
        here = isinstance(array, self.on.array)
        return self.on.to_host(array) if here else super().to_host(array)

    def publish(self, start: int, end: int) -> None:
        """Copy what the host has written to some bytes to the device."""
        if start < end:
            self.device[start:end] = self.on.constant(self.memory[start:end])

    def fetch(self, places: Words, size: int) -> None:
        """Copy so many bytes at each of some places to the host's memory."""
        if len(places):
            at = np.minimum(places[:, None] + np.arange(size), len(self.memory) - 1)
            self.memory[at] = self.on.to_host(self.device[self.on.constant(at)])

    def viewed(self, dtype: str) -> Any:
        """The device's memory as elements of a dtype."""
        if dtype not in self._views:
            whole = len(self.device) // bytes_of(dtype) * bytes_of(dtype)
            self._views[dtype] = self.device[:whole].view(numpy_dtype(dtype))
        return self._views[dtype]

    def is_whole(self, array: Any) -> bool:
        """True for the arrays that `viewed` returns."""
        return any(array is view for view in self._views.values())

    def rows(self, places: Words, ty: TensorType) -> list[Any]:
        """Copies on the device."""
        rows = self.viewed(str(ty.dtype))[self.on.constant(_indices(places, ty))]
        return list(rows.reshape(len(places), *row_dims(ty)))

    def tensor(self, place: int, ty: TensorType) -> Any:
        """A copy on the device."""
        raw = self.device[place : place + row_bytes(ty)]
        return raw.view(numpy_dtype(str(ty.dtype))).reshape(row_dims(ty)).copy()


def new_bytes(size: int) -> Array:
    """Aligned memory for so many bytes and a quarter more, not initialised."""
    whole = np.empty(size + size // 4 + ALIGN, np.uint8)
    return whole[-whole.ctypes.data % ALIGN :]


def _flat(memory: Array, ty: TensorType) -> Array:
    size = bytes_of(str(ty.dtype))
    return memory[: len(memory) // size * size].view(numpy_dtype(str(ty.dtype)))


def _indices(places: Words, ty: TensorType) -> Words:
    """The elements of the tensors at some places, a row for each."""
    return (places // bytes_of(str(ty.dtype)))[:, None] + np.arange(row_elements(ty))
