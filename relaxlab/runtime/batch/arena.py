"""The arena of a batch: the memory of the tensors of all instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.codegen.llvm.flushing import ALIGN
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.ir.types import TensorType
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.rows import row_dims, row_elements
from relaxlab.runtime.vm.memory import DeviceMemory

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form of tensors of one type: their dtype, dimensions and number of elements."""

    dtype: np.dtype[Any]
    dims: tuple[int, ...]
    elements: int

    @staticmethod
    def of(ty: TensorType) -> RowForm:
        """The form of a type."""
        return RowForm(np.dtype(numpy_dtype(str(ty.dtype))), row_dims(ty), row_elements(ty))

    def indices(self, places: Words) -> Words:
        """The elements of the tensors at places in bytes, a row for each."""
        return (places // self.dtype.itemsize)[:, None] + np.arange(self.elements)


class Arena:
    """Memory of the host, which grows as batches need it. `memory` are its bytes, from `address`
    on."""

    def __init__(self) -> None:
        self.memory: Array = np.zeros(0, np.uint8)
        self.address = 0
        self._forms: dict[int, RowForm] = {}

    def reserve(self, size: int, used: int) -> None:
        """Make it large enough, and keep what is in its first `used` bytes."""
        if len(self.memory) < size:
            larger = new_bytes(size)
            larger[:used] = self.memory[:used]
            self._own(larger)

    def _own(self, memory: Array) -> None:
        self.memory, self.address = memory, memory.ctypes.data

    def to_host(self, array: Any) -> Array:
        """The array as one of NumPy."""
        return np.asarray(array, order="C")

    def copy(self, array: Array, offset: int) -> None:
        """Copy an array to a place in bytes."""
        raw = array.reshape(-1).view(np.uint8)
        self.memory[offset : offset + len(raw)] = raw

    def publish(self, start: int, end: int) -> None:
        """Let kernels see what the host has written to some bytes."""

    def row(self, place: int, ty: TensorType) -> Any:
        """A copy of the tensor of a type at a place in bytes."""
        of = self.form(ty)
        return np.ndarray(of.dims, of.dtype, self.memory, place).copy()

    def rows(self, places: Words, ty: TensorType) -> list[Any]:
        """Copies of the tensors of one type at places in bytes."""
        of = self.form(ty)
        whole = len(self.memory) // of.dtype.itemsize * of.dtype.itemsize
        rows = self.memory[:whole].view(of.dtype)[of.indices(places)]
        return list(rows.reshape(len(places), *of.dims))

    def form(self, ty: TensorType) -> RowForm:
        """The form of the tensors of a type, which is one of the program's: it stays."""
        if id(ty) not in self._forms:
            self._forms[id(ty)] = RowForm.of(ty)
        return self._forms[id(ty)]


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
            self._own(new_bytes(size))
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

    def row(self, place: int, ty: TensorType) -> Any:
        """A copy on the device."""
        return self.rows(np.array([place], np.int64), ty)[0]

    def rows(self, places: Words, ty: TensorType) -> list[Any]:
        """Copies on the device."""
        of = self.form(ty)
        rows = self.viewed(str(ty.dtype))[self.on.constant(of.indices(places))]
        return list(rows.reshape(len(places), *of.dims))


def new_bytes(size: int) -> Array:
    """Aligned memory for so many bytes and a quarter more, not initialised."""
    whole = np.empty(size + size // 4 + ALIGN, np.uint8)
    return whole[-whole.ctypes.data % ALIGN :]
