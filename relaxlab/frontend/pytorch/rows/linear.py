"""Products of matrices."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.groups import grouped_product
from relaxlab.frontend.pytorch.rows.elementwise import as_tensor, dropout
from relaxlab.frontend.pytorch.rows.shapes import out_shape, transpose
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph

for _name in "bmm matmul dot vdot mv".split():
    row(f"aten.{_name}.default", lambda b, x, y: b.matmul(x, y))


@row("aten.mm.default")
def mm(b: Emitter, x: Tensor, y: Tensor) -> Tensor:
    weight = transposed_matrix(b, y)
    return b.matmul(x, y) if weight is None else b.linear(x, weight)


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
    dtype, weight = dtype_of(first), transposed_matrix(b, second)
    if weight is not None and alpha == beta == 1 and len(shape_of(x)) == 1:
        return b.linear(first, weight, x)
    product = b.matmul(first, second)
    if alpha != 1:
        product = b.multiply(product, as_tensor(b, alpha, dtype))
    if beta == 0:
        return product
    if beta != 1:
        x = b.multiply(x, as_tensor(b, beta, dtype))
    return b.add(x, product)


def transposed_matrix(b: Emitter, x: Tensor) -> Tensor | None:
    """The matrix that x is the transpose of; None where it is none."""
    match b.builder.lookup_binding(x):
        case graph.Call(graph.Op("permute_dims"), (matrix, *_), {"axes": (1, 0)}):
            return matrix
        case _:
            return None


@row("aten.addbmm.default")
def addbmm(
    b: Emitter, x: Tensor, first: Tensor, second: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`addmm` of the sum of products."""
    dtype, product = dtype_of(first), b.sum(b.matmul(first, second), axis=0)
    if alpha != 1:
        product = b.multiply(product, as_tensor(b, alpha, dtype))
    if beta == 0:
        return product
    return b.add(b.multiply(x, as_tensor(b, beta, dtype)), product)


@row("aten._cdist_forward.default")
def cdist(b: Emitter, x: Tensor, y: Tensor, p: float, _: Any = None) -> Tensor:
    """The distances of all pairs of rows, by the norm of order p."""
    gaps = b.abs(b.subtract(b.expand_dims(x, axis=-2), b.expand_dims(y, axis=-3)))
    if p == 0:
        return b.sum(b.cast(b.not_equal(gaps, 0.0), dtype_of(x)), axis=-1)
    if p == float("inf"):
        return b.max(gaps, axis=-1)
    if p == 2:
        return b.sqrt(b.sum(b.multiply(gaps, gaps), axis=-1))
    return b.power(b.sum(b.power(gaps, float(p)), axis=-1), 1.0 / p)


@row("aten._trilinear.default")
def trilinear(
    b: Emitter, x: Tensor, y: Tensor, z: Tensor, expand_x: list[int], expand_y: list[int],
    expand_z: list[int], sum_dim: list[int], *_: Any,
) -> Tensor:  # fmt: skip
    """The product of three tensors, in which each lacks some dimensions, summed over some."""
    lacking = expand_x, expand_y, expand_z
    names = "abcdefghijklmnopqrstuvwxyz"[: len(shape_of(x)) + len(expand_x)]
    terms = ("".join(n for d, n in enumerate(names) if d not in dims) for dims in lacking)
    kept = "".join(n for d, n in enumerate(names) if d not in sum_dim)
    return b.einsum((x, y, z), subscripts=f"{','.join(terms)}->{kept}")


@row("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_mm(
    b: Emitter, x: Tensor, weight: Tensor, ends: Tensor | None = None, bias: Tensor | None = None,
    *_: Any,
) -> Tensor:  # fmt: skip
    if ends is None or bias is not None or len(shape_of(x)) != 2 or len(shape_of(weight)) != 3:
        raise Refused("groups other than of the rows of a matrix")
    return grouped_product(b, x, weight, ends)


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


@row("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: Emitter, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """The result, and the logarithms of the sums of the scores' exponentials, which gradients
    read."""
    result = attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale)
    values, _ = scores(b, query, key, attn_mask, is_causal, scale)
    top = b.max(values, axis=-1, keepdims=True)
    total = b.sum(b.exp(b.subtract(values, top)), axis=-1)
    return result, b.add(b.log(total), b.squeeze(top, axis=-1))


@row("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    b: Emitter, grad: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor,
    log_sums: Tensor, dropout_p: float, is_causal: bool, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    """The gradients of query, key and value, from the probabilities, which are computed again."""
    values, factor = scores(b, query, key, attn_mask, is_causal, scale)
    chances = b.exp(b.subtract(values, b.expand_dims(log_sums, axis=-1)))
    by_value = b.matmul(transpose(b, chances, -2, -1), grad)
    wanted = b.matmul(grad, transpose(b, value, -2, -1))
    mean = b.sum(b.multiply(grad, result), axis=-1, keepdims=True)
    by_scores = b.multiply(b.multiply(chances, b.subtract(wanted, mean)), factor)
    return b.matmul(by_scores, key), b.matmul(transpose(b, by_scores, -2, -1), query), by_value


def scores(
    b: Emitter, query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, float]:
    """The scores of all pairs of a query and a key, and the factor of their products."""
    depth, dtype = shape_of(query)[-1], dtype_of(query)
    if scale is None and not isinstance(depth, expr.IntImm):
        raise Refused(f"the size of its heads is {depth}")
    factor = depth.value**-0.5 if scale is None else scale  # type: ignore[union-attr]
    values = b.multiply(b.matmul(query, transpose(b, key, -2, -1)), factor)
    if mask is not None:
        values = b.add(values, _bias(b, mask, dtype, len(shape_of(query))))
    if causal:
        seen = b.tril(b.ones(shape_of(values)[-2:], dtype="int8"))
        values = b.where(b.cast(seen, "bool"), values, b.scalar(expr.lowest(dtype), dtype))
    return values, factor


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
