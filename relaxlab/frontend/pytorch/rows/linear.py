"""Products of matrices."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import as_tensor, dropout
from relaxlab.frontend.pytorch.rows.shapes import out_shape, transpose
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.ir import expr

for _name in "mm bmm matmul dot vdot mv".split():
    row(f"aten.{_name}.default", lambda b, x, y: b.matmul(x, y))


@row("aten.linear.default")
def linear(b: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if len(shape_of(weight)) == 1:
        product = b.matmul(x, weight)
        return product if bias is None else b.add(product, bias)
    return b.linear(x, weight) if bias is None else b.linear(x, weight, bias)


@row("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(
    b: Emitter, x: Tensor, first: Tensor, second: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`beta * x + alpha * first @ second`; x is not read where beta is 0."""
    dtype, product = dtype_of(first), b.matmul(first, second)
    if alpha != 1:
        product = b.multiply(product, as_tensor(b, alpha, dtype))
    if beta == 0:
        return product
    if beta != 1:
        x = b.multiply(x, as_tensor(b, beta, dtype))
    return b.add(x, product)


row("aten.outer.default", "aten.ger.default", lambda b, x, y: b.outer(x, y))


@row("aten.einsum.default")
def einsum(b: Emitter, equation: str, operands: list[Tensor], **_: Any) -> Tensor:
    return b.einsum(tuple(operands), subscripts=equation.replace(" ", ""))


@row("aten.scaled_dot_product_attention.default")
def attention(
    b: Emitter,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention over (..., heads, length, head_dim); relaxlab has the heads behind the length."""
    query = dropout(query, dropout_p, True)
    heads_last = [_heads_behind(b, t) for t in (query, key, value)]
    bias = () if mask is None else (_bias(b, mask, dtype_of(query), len(shape_of(query))),)
    result = b.attention(
        *heads_last, *bias, scale=scale, causal_mask="TopLeft" if is_causal else None
    )
    result = transpose(b, result, 1, 2)
    return result if shape_of(result) == out_shape(b) else b.reshape(result, out_shape(b))


def _heads_behind(b: Emitter, x: Tensor) -> Tensor:
    return transpose(b, _of_four(b, x), 1, 2)


def _of_four(b: Emitter, x: Tensor) -> Tensor:
    """The tensor with exactly four dimensions: more leading ones are joined."""
    shape = shape_of(x)
    if len(shape) == 4:
        return x
    lead, rest = shape[:-3], shape[-3:]
    joined = lead[0] if lead else 1
    for d in lead[1:]:
        joined = joined * d
    if len(shape) < 3:
        rest = (*(1,) * (3 - len(shape)), *shape)
    return b.reshape(x, (joined, *rest))


def _bias(b: Emitter, mask: Tensor, dtype: str, rank: int) -> Tensor:
    """The mask as numbers to be added to the scores."""
    if dtype_of(mask) == "bool":
        mask = b.where(mask, b.const(0.0, dtype), b.scalar(expr.lowest(dtype), dtype))
    shape = shape_of(mask)
    if rank > 4 and len(shape) == rank:
        return _of_four(b, mask)
    if rank == 3 and len(shape) == 3:  # batch and no heads
        return b.reshape(mask, (1, *shape))
    return b.reshape(mask, (*(1,) * (4 - len(shape)), *shape)) if len(shape) < 4 else mask
