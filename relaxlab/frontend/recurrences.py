"""Recurrent layers: a step for each element of a sequence, whose length may be a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.loops import counted_loop
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr

MOST_UNROLLED = 16
"""The longest sequence whose steps are written out; those of others are a loop."""

Step: TypeAlias = Callable[..., tuple[Any, Any]]
"""The states (h, c) after a step, of its gated input, the states before and the weights."""


def recurrence(
    b: Emitter, step: Step, gated: Tensor, h: Tensor, c: Tensor, weights: tuple[Any, ...],
    backward: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The states h after all steps (length, batch, features), in the order of the inputs `gated`,
    and the last ones. None among the weights stays None."""
    length = shape_of(gated)[0]
    if isinstance(length, expr.IntImm) and length.value <= MOST_UNROLLED:
        return _written_out(b, step, gated, h, c, weights, length.value, backward)
    return _counted(b, step, gated, h, c, weights, backward)


def row_of(b: Emitter, x: Tensor, i: int | PrimExpr) -> Tensor:
    """An element of a tensor along its first dimension, which has it."""
    at = expr.as_expr(i)
    one = b.strided_slice(x, [0], [at], [at + 1], [1], assume_inbound=True)
    return b.reshape(one, shape_of(x)[1:])


def _written_out(
    b: Emitter, step: Step, gated: Tensor, h: Tensor, c: Tensor, weights: tuple[Any, ...],
    length: int, backward: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    outputs: list[Any] = []
    for t in reversed(range(length)) if backward else range(length):
        h, c = step(row_of(b, gated, t), h, c, *weights)
        outputs.append(h)
    return b.stack(outputs[::-1] if backward else outputs, axis=0), h, c


def _counted(
    b: Emitter, step: Step, gated: Tensor, h: Tensor, c: Tensor, weights: tuple[Any, ...],
    backward: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    length, given = shape_of(gated)[0], tuple(w for w in weights if w is not None)

    def body(i: PrimExpr, h: Any, c: Any, whole: Any, gated: Any, *given: Any) -> list[Any]:
        at, rest = length - 1 - i if backward else i, iter(given)
        now = row_of(b, gated, at)
        h, c = step(now, h, c, *(None if w is None else next(rest) for w in weights))
        return [h, c, b.slice_scatter(whole, b.expand_dims(h, axis=0), at, at + 1, 1, axis=0)]

    whole = b.zeros((length, *shape_of(h)), dtype=dtype_of(h))
    h, c, whole = counted_loop(b, length, body, (h, c, whole), (gated, *given), updated={2})
    return whole, h, c
