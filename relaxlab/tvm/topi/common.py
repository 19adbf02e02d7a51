"""Arguments and operators that the functions of `tvm.topi` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from relaxlab.ops.define import expression_of
from relaxlab.ops.te import Tensor

op: Callable[..., Any] = expression_of
"""The result of an operator of the core as tensor expressions."""

Ints = int | Sequence[int]


def ints(value: Any, count: int = 1) -> tuple[Any, ...]:
    """A number for each of `count` dimensions, or the items of a sequence."""
    items = tuple(value) if isinstance(value, tuple | list) else (value,) * count
    return tuple(getattr(v, "value", v) for v in items)


def refuse(function: str, what: str) -> NoReturn:
    """Raise NotImplementedError for what a function of TVM takes and that of relaxlab does not."""
    raise NotImplementedError(f"topi.{function} takes no {what} in relaxlab; call it without")


def transposed(x: Tensor) -> Any:
    """The last two axes exchanged."""
    ndim = len(x.shape)
    return op("permute_dims", x, axes=[*range(ndim - 2), ndim - 1, ndim - 2])
