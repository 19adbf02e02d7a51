"""The parameters of loop functions, as records of trials have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.runtime.programs import as_module


@dataclass(frozen=True)
class ArgInfo:
    """The dtype and the shape of a parameter; a scalar has the shape ()."""

    dtype: str
    shape: tuple[int, ...] = ()

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[ArgInfo]:
        """Those of all parameters. Raises TypeError for a shape that is not of numbers."""
        return [
            TensorInfo(p.dtype, tuple(map(int, p.shape))) if isinstance(p, Buffer)  # type: ignore[call-overload]
            else ArgInfo(p.dtype)
            for p in func.params
        ]  # fmt: skip

    @staticmethod
    def from_entry_func(mod: Any, remove_preproc: bool = True) -> list[ArgInfo]:
        """Those of the only loop function of a module."""
        (func,) = as_module(mod).loop_functions().values()
        return ArgInfo.from_prim_func(func)

    def as_json(self) -> list[Any]:
        """The kind, the dtype and the shape."""
        return [type(self).__name__, self.dtype, list(self.shape)]

    @staticmethod
    def from_json(json_obj: Any) -> ArgInfo:
        """The parameter that `as_json` described."""
        kind, dtype, shape = json_obj
        return (TensorInfo if kind == "TensorInfo" else ArgInfo)(dtype, tuple(shape))


@dataclass(frozen=True)
class TensorInfo(ArgInfo):
    """The dtype and the shape of a buffer."""
