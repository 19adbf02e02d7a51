"""The sizes of tensors of constant shape, of which batches have one per row."""

from __future__ import annotations

import math

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.types import TensorType


def row_dims(ty: TensorType) -> tuple[int, ...]:
    """The dimensions of a tensor of constant shape."""
    return tuple(d.value for d in ty.shape or () if isinstance(d, expr.IntImm))


def row_elements(ty: TensorType) -> int:
    """The elements of a tensor of constant shape."""
    return math.prod(row_dims(ty))


def row_bytes(ty: TensorType) -> int:
    """The bytes of a tensor of constant shape."""
    return row_elements(ty) * bytes_of(str(ty.dtype))
