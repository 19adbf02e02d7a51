"""Loop functions of products with quantised weights: activation quantisation, and the products.

Weights stay as stored. `integer_product` multiplies their integers (see `ops.block_formats`) with
activations quantised per group, to 8 bits or to two times 8 bits; `bfloat16_product` multiplies
both as bfloat16.
"""

from __future__ import annotations

from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, binary, const
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ops import te
from relaxlab.ops.block_formats import Format


def _f32(e: PrimExpr) -> PrimExpr:
    return expr.Cast("float32", e)


def _blocks(cols: int, block: int) -> int:
    if cols % block:
        raise ValueError(f"{cols} columns are not a multiple of the block of {block} weights")
    return cols // block


def quantize_activations(rows: PrimExpr, cols: int, group: int, parts: int) -> loops.PrimFunc:
    """x float32 (rows, cols) -> xq int8 (rows, parts * groups, group), xd and xs float32 (rows,
    groups): integers, their scale, and scale times the integers' sum.

    One part is a group rounded to 127 steps of either sign. With two, the integer 128 * high + low
    counts 127 * 128 steps: each group's high parts are followed by its low parts.
    """
    x = te.placeholder((rows, cols), "float32", "x")
    groups = _blocks(cols, group)
    r, s = te.reduce_axis(group, "r"), te.reduce_axis(group, "s")
    steps = 127.0 * 128 ** (parts - 1)
    amax = te.compute(
        (rows, groups),
        lambda i, g: te.te_max(expr.Call("float32", "fabs", (x[i, g * group + r.var],)), r),
        "amax",
    )

    def integer(i: PrimExpr, g: PrimExpr, k: PrimExpr) -> PrimExpr:
        largest = binary(expr.Max, amax[i, g // parts], const(1e-30, "float32"))
        inverse = binary(expr.Div, const(steps, "float32"), largest)
        whole = _round(x[i, g // parts * group + k] * inverse)
        if parts == 1:
            return expr.Cast("int8", whole)
        high = _round(whole * (1 / 128))
        return expr.Cast("int8", expr.Select(_is_high(g), high, whole - high * 128.0))

    xd = te.compute((rows, groups), lambda i, g: amax[i, g] * (1 / steps), "xd")
    xq = te.compute((rows, parts * groups, group), integer, "xq")
    total = te.compute(
        (rows, groups),
        lambda i, g: te.te_sum(_joined_parts(xq, parts, i, g, s.var), s),
        "total",
    )
    xs = te.compute((rows, groups), lambda i, g: _f32(total[i, g]) * xd[i, g], "xs")
    return te.create_prim_func([x, xq, xd, xs])


def _joined_parts(xq: te.Tensor, parts: int, i: PrimExpr, g: PrimExpr, k: PrimExpr) -> PrimExpr:
    """The integer that the parts of an activation make up."""
    pieces = [expr.Cast("int32", xq[i, g * parts + p, k]) for p in range(parts)]
    return pieces[0] if parts == 1 else pieces[0] * 128 + pieces[1]


def _is_high(part: PrimExpr) -> PrimExpr:
    return expr.EQ(part % 2, const(0))


def _round(e: PrimExpr) -> PrimExpr:
    return expr.Call("float32", "nearbyint", (e,))


def integer_product(fmt: Format, m: PrimExpr, rows: int, cols: int, parts: int) -> loops.PrimFunc:
    """(xq, xd, xs, fields…) -> y float32 (m, rows): x @ W.T with integer inner products, from
    activations in `parts` (see `quantize_activations`).

    y[i, n] = sum over groups g of scale * xd * (sum over the group of q * xq) + offset * xs.
    """
    g = fmt.group
    groups = _blocks(cols, g)
    xq = te.placeholder((m, parts * groups, g), "int8", "xq")
    xd = te.placeholder((m, groups), "float32", "xd")
    xs = te.placeholder((m, groups), "float32", "xs")
    f = fmt.placeholders(rows, _blocks(cols, fmt.block))
    kb = te.reduce_axis(groups, "kb")
    q = te.compute((rows, groups, g), lambda n, b, i: fmt.q(f, n, b, i), "q")

    def dot(part: int) -> te.Tensor:
        k = te.reduce_axis(g, "k")
        return te.compute(
            (m, groups, rows),
            lambda i, b, n: te.te_sum(
                expr.Cast("int32", q[n, b, k.var])
                * expr.Cast("int32", xq[i, b * parts + part, k.var]),
                k,
            ),
            "dot",
        )

    dots = [dot(part) for part in range(parts)]

    def whole(i: PrimExpr, n: PrimExpr) -> PrimExpr:
        first = dots[0][i, kb.var, n]
        return first if parts == 1 else first * 128 + dots[1][i, kb.var, n]

    y = te.compute(
        (m, rows),
        lambda i, n: te.te_sum(
            _f32(whole(i, n)) * (fmt.scale(f, n, kb.var) * xd[i, kb.var])
            + fmt.offset(f, n, kb.var) * xs[i, kb.var],
            kb,
        ),
        "y",
    )
    func = rewrite(te.create_prim_func([xq, xd, xs, *f.values(), y]), _offset_first)
    kind = int(PatternKind.OUT_EWISE_FUSIBLE)  # a matrix product, whatever its inner structure
    return replace(func, attrs=func.attrs.with_(op_pattern=kind))


def bfloat16_product(fmt: Format, m: PrimExpr, rows: int, cols: int) -> loops.PrimFunc:
    """(x float32 (m, cols), fields…) -> y float32 (m, rows): x @ W.T of both rounded to bfloat16,
    summed in float32."""
    x = te.placeholder((m, cols), "float32", "x")
    f = fmt.placeholders(rows, _blocks(cols, fmt.block))
    k = te.reduce_axis(cols, "k")
    xb = te.compute((m, cols), lambda i, j: expr.Cast("bfloat16", x[i, j]), "x_bfloat16")
    w = te.compute((rows, cols), lambda n, j: fmt.weight(f, n, j), "w")
    wb = te.compute((rows, cols), lambda n, j: expr.Cast("bfloat16", w[n, j]), "w_bfloat16")
    y = te.compute(
        (m, rows), lambda i, n: te.te_sum(_f32(xb[i, k.var]) * _f32(wb[n, k.var]), k), "y"
    )
    func = te.create_prim_func([x, *f.values(), y])
    kind = int(PatternKind.OUT_EWISE_FUSIBLE)  # a matrix product, whatever its inner structure
    return replace(func, attrs=func.attrs.with_(op_pattern=kind))


def _offset_first(n: Node) -> Node | None:
    """acc + (product + offset) as (acc + offset) + product: two fused multiply-adds."""
    match n:
        case loops.BufferStore(_, expr.Add(loops.BufferLoad() as acc, expr.Add(product, offset))):
            return replace(n, value=expr.Add(expr.Add(acc, offset), product))
        case _:
            return None
