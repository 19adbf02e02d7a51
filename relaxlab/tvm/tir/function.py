"""Index maps, tensor intrinsics and buffers, as TVM builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from relaxlab.analysis import index_map as core
from relaxlab.ir import expr
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.schedule import tensor_intrin


class ForKind(StrEnum):
    """The kinds of loops."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD_BINDING = "thread_binding"


class IndexMap:
    """Makes index maps of the core."""

    AXIS_SEPARATOR = "axis_separator"

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any], ndim: int | None = None,
        inverse_index_map: object = None, *, index_dtype: str = "int64",
    ) -> core.IndexMap:  # fmt: skip
        """The index map that a function from old indices to new ones describes."""
        count = ndim if ndim is not None else mapping_function.__code__.co_argcount
        return core.IndexMap.of(mapping_function, count)


class TensorIntrin:
    """The registry of tensor intrinsics."""

    @staticmethod
    def register(
        name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False
    ) -> tensor_intrin.TensorIntrin:
        """Make an intrinsic known under `name`."""
        return tensor_intrin.TensorIntrin.register(name, desc, impl, override=override)

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> tensor_intrin.TensorIntrin | None:
        """The intrinsic of that name; None where `allow_missing` and there is none."""
        try:
            return tensor_intrin.TensorIntrin.get(name)
        except KeyError as error:
            if allow_missing:
                return None
            raise ValueError(str(error)) from error


def decl_buffer(
    shape: Any, dtype: str = "float32", name: str = "buffer", data: object = None,
    strides: Sequence[Any] | None = None, elem_offset: Any = None, scope: str = "",
    **options: Any,
) -> Buffer:  # fmt: skip
    """A buffer."""
    dims = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return Buffer(
        name, tuple(map(expr.as_expr, dims)), dtype, tuple(map(expr.as_expr, strides or ())),
        scope or "global", None if elem_offset is None else expr.as_expr(elem_offset),
    )  # fmt: skip
