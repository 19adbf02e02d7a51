"""Arrays of other libraries: who passes a library's arrays is given its arrays back.

Memory is handed over by DLPack, without a copy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype

FromDlpack = Callable[[Any], Any]


def library_of(args: Sequence[Any]) -> FromDlpack | None:
    """The function that makes arrays of the library whose arrays are among the arguments; None for
    NumPy's, and where there are none. The first array of another library decides."""
    for value in args:
        if isinstance(value, np.ndarray | np.generic | int | float):
            continue
        if isinstance(value, tuple | list):
            found = library_of(value)  # type: ignore[reportUnknownArgumentType]
            if found is not None:
                return found
        elif hasattr(value, "__dlpack__"):
            return _from_dlpack(value)
    return None


def _from_dlpack(value: Any) -> FromDlpack | None:
    """The library of an array: its array namespace, or the module that its class belongs to."""
    namespace = getattr(value, "__array_namespace__", None)
    library: Any = sys.modules.get(type(value).__module__.partition(".")[0])
    return getattr(namespace() if namespace is not None else library, "from_dlpack", None)


def handed_over(result: Any, from_dlpack: FromDlpack) -> Any:
    """The result of a function with each array in it as an array of another library."""
    if isinstance(result, tuple):
        return tuple(handed_over(r, from_dlpack) for r in result)  # type: ignore[reportUnknownVariableType]
    if isinstance(result, np.ndarray) and not result.flags.writeable:
        result = result.copy()  # memory that nobody may write to cannot be handed over
    if isinstance(result, np.ndarray) and result.dtype.name in _CODES:
        return from_dlpack(_Exported(result))
    return from_dlpack(result) if hasattr(result, "__dlpack__") else result


def viewed(value: Any) -> np.ndarray[Any, Any]:
    """An array of another library, in main memory, as one of NumPy over the same memory.

    Raises what the other library raises, and BufferError for a dtype that neither NumPy nor
    ml_dtypes has.
    """
    if isinstance(value, np.ndarray):
        return value
    bits = _Bits(value)
    array = np.from_dlpack(bits)
    return array if bits.dtype is None else array.view(numpy_dtype(bits.dtype))


# --- Dtypes that NumPy's own DLPack does not know -------------------------------------------------

_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
"""The numbers of DLPack for dtypes of ml_dtypes."""
_UINT = 1
_DTYPE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
"""The offset of the type's number in the record that a capsule of that name points to: behind data,
device and rank, which a version, a context, a deleter and flags may precede."""


@dataclass(frozen=True, slots=True)
class _Exported:
    """An array of a dtype of ml_dtypes, which other libraries can read."""

    array: np.ndarray[Any, Any]

    def __dlpack__(self, **options: Any) -> Any:
        bits = self.array.view(f"u{self.array.dtype.itemsize}")
        capsule = bits.__dlpack__(**options)
        _type_code(capsule).value = _CODES[self.array.dtype.name]
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@dataclass(slots=True)
class _Bits:
    """An array of another library as NumPy can read it: where its dtype is one of ml_dtypes, which
    is then noted in `dtype`, as unsigned integers."""

    value: Any
    dtype: str | None = None

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.value.__dlpack__(**options)
        code = _type_code(capsule)
        self.dtype = next((name for name, c in _CODES.items() if c == code.value), None)
        if self.dtype is not None:
            code.value = _UINT
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()


def _type_code(capsule: Any) -> ctypes.c_uint8:
    """The number of the elements' type in a capsule that nobody has taken yet."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    return ctypes.c_uint8.from_address(pointer_of(capsule, name) + _DTYPE_AT[name])
