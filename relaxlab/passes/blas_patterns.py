"""Patterns of the matrix products that BLAS computes, with a bias or in batches.

The functions are `relaxlab.blas.matmul(a, b, transpose_a, transpose_b, out)` and
`relaxlab.blas.matmul_bias(a, b, bias, transpose_a, transpose_b, out)`: a is (*batch, m, k), or
(*batch, k, m) where transpose_a is 1, b likewise, out is (*batch, m, n), and bias (n,). An operand
without batch dimensions is the same for all of them.
"""

from __future__ import annotations

from relaxlab.ir import expr, graph, types
from relaxlab.passes.bindings import leaf_type, same_dims
from relaxlab.passes.libraries import library_call, register_library
from relaxlab.passes.patterns import Match, Pattern, is_op, wildcard
from relaxlab.passes.patterns.match import show

DTYPES = ("float32", "float64")
BLAS = ("blas.matmul_bias", "blas.batch_matmul", "blas.matmul")
"""The pairs registered here."""


def _swaps_last_axes(e: graph.Expr) -> bool:
    ty = leaf_type(e.args[0]) if isinstance(e, graph.Call) else None
    if not isinstance(e, graph.Call) or not isinstance(ty, types.TensorType) or ty.ndim < 2:
        return False
    axes = e.attrs.get("axes")
    if axes is None:
        return ty.ndim == 2
    return tuple(a % ty.ndim for a in axes) == (*range(ty.ndim - 2), ty.ndim - 1, ty.ndim - 2)


A, B, BIAS = wildcard(), wildcard(), wildcard()
SWAP_A, SWAP_B = (
    is_op("permute_dims")(x).where(_swaps_last_axes, "a swap of the last two axes") for x in (A, B)
)
MATMUL, LINEAR = is_op("matmul")(SWAP_A | A, SWAP_B | B), is_op("linear")(A, B)
PRODUCT = MATMUL | LINEAR


def _matmul(call: graph.Call, match: Match) -> graph.Call | str:
    assert match.root.ty is not None
    flags = _flags(match)
    operands = (match[A], match[B])
    reason = _unsuited(operands, match.root.ty)
    return reason or library_call("relaxlab.blas.matmul", (*operands, *flags), match.root.ty)


def _matmul_bias(call: graph.Call, match: Match) -> graph.Call | str:
    out = match.root.ty
    assert out is not None
    flags = _flags(match, linear=call.op == graph.Op("linear"))
    product = match.values.get(PRODUCT, match.root)
    if product in match.leaking():
        return f"the product `{show(product)}` is read elsewhere, too"
    operands = (match[A], match[B])
    reason = _unsuited(operands, leaf_type(product)) or _unsuited_bias(match[BIAS], product)
    args = (*operands, match[BIAS], *flags)
    return reason or library_call("relaxlab.blas.matmul_bias", args, out)


def _flags(match: Match, linear: bool = False) -> tuple[graph.PrimValue, graph.PrimValue]:
    swapped = (SWAP_A in match, SWAP_B in match or LINEAR in match or linear)
    a, b = (graph.PrimValue(expr.const(int(s))) for s in swapped)
    return a, b


def _unsuited(operands: tuple[graph.Expr, graph.Expr], out: types.Type | None) -> str | None:
    """Return the reason why BLAS cannot compute the product, if there is one."""
    tys = [leaf_type(e) for e in operands]
    shapes = [t.shape if isinstance(t, types.TensorType) else None for t in (*tys, out)]
    dtypes = {t.dtype if isinstance(t, types.TensorType) else None for t in (*tys, out)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        names = ", ".join(sorted(map(str, dtypes)))
        return f"BLAS multiplies float32 or float64 alone, not {names}"
    a, b, result = shapes
    if a is None or b is None or result is None:
        return "a shape is not known"
    if len(a) < 2 or len(b) < 2:
        return "an operand is a vector"
    for shape in (a, b):
        if len(shape) > 2 and not same_dims(shape[:-2], result[:-2]):
            return "the batch dimensions of an operand are broadcast"
    return None


def _unsuited_bias(bias: graph.Expr, product: graph.Expr) -> str | None:
    ty, out = leaf_type(bias), leaf_type(product)
    assert isinstance(out, types.TensorType) and out.shape is not None
    if not isinstance(ty, types.TensorType) or ty.shape is None or ty.dtype != out.dtype:
        return f"the bias has type {ty}"
    if not same_dims(ty.shape, out.shape[-1:]):
        return f"the bias of type {ty} is not one row of the product"
    return None


def _batched(pattern: Pattern) -> Pattern:
    def several(e: graph.Expr) -> bool:
        ty = leaf_type(e.args[1]) if isinstance(e, graph.Call) else None
        return isinstance(ty, types.TensorType) and ty.ndim > 2

    return pattern.where(several, "a product with one right matrix per batch")


ROW = BIAS.has_rank(1)
WITH_ROW = is_op("add")(PRODUCT, ROW) | is_op("add")(ROW, PRODUCT) | is_op("linear")(A, B, ROW)

register_library("blas.matmul_bias", WITH_ROW, _matmul_bias)
register_library("blas.batch_matmul", _batched(MATMUL), _matmul)
register_library("blas.matmul", (MATMUL & ~_batched(wildcard())) | LINEAR, _matmul)
