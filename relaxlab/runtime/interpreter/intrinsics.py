"""The meaning of target instructions and C functions in NumPy, registered by name.

Other intrinsics have theirs in their rows (`relaxlab.ir.intrinsics`); `if_then_else`, `likely`,
`address_of` and hints are part of the interpreter itself. Tensor intrinsics need none: blocks that
are one hold its description.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir.intrinsics import BY_NAME, INTRINSICS, NAMED, Meaning
from relaxlab.runtime.arrays import ExecutionError

_EXTERNAL: dict[str, Meaning] = {}


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
    """The registered meaning of a target instruction or C function, or that of the intrinsic that
    it is."""
    known = INTRINSICS[NAMED[name]].meaning if name in NAMED else None
    if name not in _EXTERNAL and known is not None:
        return known
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
    if op in BY_NAME:
        return _named
    if op not in INTRINSICS:
        raise ExecutionError(f"unknown intrinsic {op!r}")
    return INTRINSICS[op].meaning


def _named(dtype: Any, name: str, *args: Any) -> Any:
    return external_meaning(name)(dtype, *args)
