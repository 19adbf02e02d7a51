"""Rules that draw calls of operators of neural networks: products, norms, attention, losses,
quantisation and sampling."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import ExprLike, PrimExpr
from relaxlab.ops.block_formats import FORMATS, Format
from relaxlab.ops.define import builder
from relaxlab.testing.draw import ELEMENTS, Draw, Refused, dtype_of, shape_of
from relaxlab.testing.draw_rules import rule

PRODUCTS = 1 << 21
"""Most multiplications of a drawn product: what the references compute in some milliseconds."""


# --- Products ---------------------------------------------------------------------------------


def _extents(d: Draw, count: int) -> list[expr.PrimExpr]:
    """Random extents of a loop nest with at most PRODUCTS iterations."""
    return list(d.shape(count, PRODUCTS))


def _factors(d: Draw, *shapes: tuple[expr.ExprLike, ...]) -> tuple[list[graph.Var], dict[str, Any]]:
    """Operands of a product, and attributes: bytes are summed as 32-bit integers."""
    if d.chance(0.08):
        return [d.new(s, "int8", -9, 9) for s in shapes], {"out_dtype": "int32"}
    dtype = d.dtype()
    found = [d.new(shapes[0], dtype), *(d.new(s, dtype) for s in shapes[1:])]
    return found, d.some(out_dtype=d.choice((None, dtype, "float32")))


@rule("matmul")
def _matmul(d: Draw, op: str) -> graph.Call:
    b, m, n, k = _extents(d, 4)
    one = expr.const(1)
    match d.rng.randrange(7):
        case 0:
            shapes: tuple[Any, Any] = ((k,), (k,))
        case 1:
            shapes = (m, k), (k,)
        case 2:
            shapes = (k,), (b, k, n)
        case 3:
            shapes = (b, m, k), (b, k, n)
        case 4:
            shapes = (2, one, m, k), (d.choice((one, b)), k, n)
        case _:
            shapes = (m, k), (k, n)
    pair, attrs = _factors(d, *shapes)
    if d.chance(0.3):
        found = d.found(lambda ty: ty == pair[0].ty, 16.0, False)
        pair[0] = found or pair[0]
    return builder(op)(*pair, **attrs)


@rule("linear")
def _linear(d: Draw, op: str) -> graph.Call:
    m, n, k = _extents(d, 3)
    lead = d.choice(((), (m,), (2, m), (m, 1)))
    operands, attrs = _factors(d, (*lead, k), (n, k))
    if d.flag():
        dtype = attrs.get("out_dtype") or dtype_of(operands[0])
        operands.append(d.new((n,), dtype))
    return builder(op)(*operands, **attrs)


@rule("outer")
def _outer(d: Draw, op: str) -> graph.Call:
    m, n = d.shape(2)
    dtype = d.dtype(("float", "int32"))
    return builder(op)(d.new((m,), dtype), d.new((n,), dtype))


@rule("einsum")
def _einsum(d: Draw, op: str) -> graph.Call:
    """Random letters per operand; the result keeps some of them, in any order."""
    letters = d.rng.sample("abcdefgh", 4)
    extents = dict(zip(letters, d.shape(4, PRODUCTS // 8), strict=True))
    if d.chance(0.25):
        text = d.choice(("ij,jk->ik", "bij,bjk->bik", "ij,kj->ik", "ji,jk->ik", "bqhd,bkhd->bhqk",
                         "i,i->", "ij->ji", "ii->i", "ij->"))  # fmt: skip
        inputs, output = text.split("->")
        words = inputs.split(",")
        names = sorted(set("".join(words)))
        extents = dict(zip(names, d.shape(len(names), PRODUCTS // 8), strict=True))
    else:
        words = ["".join(d.rng.sample(letters, d.rng.randint(1, 3)))
                 for _ in range(d.rng.randint(1, 3))]  # fmt: skip
        used = sorted(set("".join(words)))
        output = "".join(d.rng.sample(used, d.rng.randint(0, min(3, len(used)))))
    dtype = d.dtype()
    operands = tuple(d.new([extents[c] for c in w], dtype) for w in words)
    return builder(op)(graph.Tuple(operands), subscripts=f"{','.join(words)}->{output}")


# --- Along axes -------------------------------------------------------------------------------


@rule("nn.softmax", "nn.log_softmax")
def _softmax(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), low=-2 if d.flag() else -30, high=2)
    return builder(op)(x, **d.some(axis=d.axis(len(shape_of(x)))))


@rule("nn.rms_norm", "nn.layer_norm")
def _norm(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4))
    shape = shape_of(x)
    axes = d.axes(len(shape))
    if d.chance(0.5):
        axes = (-1,)
    width = [shape[a] for a in axes]
    if not all(d.size(e) for e in width):
        raise Refused
    factors = [d.new(width, dtype_of(x)) for _ in range(1 if op == "nn.rms_norm" else 2)]
    attrs = d.some(epsilon=d.choice((1e-5, 1e-3, 0.5)))
    if op == "nn.layer_norm":
        attrs |= d.some(center=d.flag(), scale=d.flag())
    given = axes[0] if len(axes) == 1 and d.flag() else axes
    return builder(op)(x, *factors, axes=given, **attrs)


@rule("nn.batch_norm")
def _batch_norm(d: Draw, op: str) -> graph.Call:
    x = d.x((2, 4))
    shape = shape_of(x)
    axis = d.axis(len(shape))
    if not d.count(shape):
        raise Refused
    parts = [d.new((shape[axis],), dtype_of(x), 0.25, 2) for _ in range(4)]
    attrs = d.some(epsilon=d.choice((1e-5, 0.1)), center=d.flag(), scale=d.flag(),
                   momentum=d.choice((0.0, 0.3, 1.0)), training=d.flag())  # fmt: skip
    return builder(op)(x, *parts, axis=axis, **attrs)


@rule("nn.instance_norm", "nn.group_norm")
def _group_norm(d: Draw, op: str) -> graph.Call:
    groups = d.choice((1, 2, 3, 4))
    ndim = d.rng.randint(2, 4)
    dims = list(d.shape(ndim, ELEMENTS // 8))
    channel = d.rng.randrange(ndim)
    rest = [a for a in range(ndim) if a != channel]
    axes = d.rng.sample(rest, d.rng.randint(1, len(rest)))
    grouped = op == "nn.group_norm"
    dims[channel] = expr.const(groups * d.choice((1, 2, 5)))
    if not d.count(dims):
        raise Refused
    x = d.new(dims, d.dtype())
    factors = [d.new((dims[channel],), dtype_of(x)) for _ in range(2)]
    attrs = d.some(epsilon=d.choice((1e-5, 0.1)), center=d.flag(), scale=d.flag())
    if grouped:
        attrs["num_groups"] = groups
    return builder(op)(x, *factors, channel_axis=channel - ndim if d.flag() else channel,
                       axes=tuple(axes), **attrs)  # fmt: skip


@rule("nn.prelu")
def _prelu(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4))
    ndim = len(shape_of(x))
    axis = d.axis(ndim)
    extent = expr.const(1) if d.chance(0.2) else shape_of(x)[axis]
    attrs: dict[str, Any] = d.some(axis=axis) if axis == 1 else {"axis": axis}
    return builder(op)(x, d.new((extent,), dtype_of(x)), **attrs)


@rule("nn.dropout")
def _dropout(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(), **d.some(rate=d.choice((0.0, 0.2, 0.9))))


# --- Attention --------------------------------------------------------------------------------


def _mask(d: Draw) -> dict[str, Any]:
    mask = d.choice((None, "TopLeft", "BottomRight"))
    attrs = d.some(scale=d.choice((None, 0.3, 1.0)))
    if mask is not None:
        attrs |= {"causal_mask": mask} | d.some(window_size=d.choice((None, 1, 3, 40)))
    return attrs


@rule("nn.attention", "nn.attention_bias")
def _attention(d: Draw, op: str) -> graph.Call:
    batch, n, m = d.shape(3, 3000)
    if not d.size(m):
        m = expr.const(5)
    groups, heads = d.choice((1, 2, 3)), d.choice((1, 2))
    width, values = d.choice((4, 8, 16, 20, 64)), d.choice((4, 8, 18, 64))
    dtype, query_heads = d.dtype(), groups * heads
    operands = [
        d.new((batch, n, query_heads, width), dtype), d.new((batch, m, heads, width), dtype),
        d.new((batch, m, heads, values), dtype),
    ]  # fmt: skip
    if op == "nn.attention_bias" or d.chance(0.3):
        dims = [e if d.chance(0.7) else expr.const(1) for e in (batch, expr.const(query_heads), n)]
        operands.append(d.new((*dims, m), dtype))
    attrs = _mask(d)
    if attrs.get("causal_mask") == "BottomRight" and d.size(n) > d.size(m):
        raise Refused  # rows before the first key have nothing to attend to
    return builder(op)(*operands, **attrs)


@rule("nn.attention_var_len")
def _var_len(d: Draw, op: str) -> graph.Call:
    lengths = [d.choice((1, 2, 5, 17)) for _ in range(d.rng.randint(1, 4))]
    keys = [n + d.choice((0, 0, 3)) for n in lengths] if d.flag() else lengths
    groups, heads, width = d.choice((1, 2)), d.choice((1, 3)), d.choice((8, 16, 20))
    dtype = d.dtype()
    starts = [[sum(part[:i]) for i in range(len(part) + 1)] for part in (lengths, keys)]
    total, total_keys = starts[0][-1], starts[1][-1]
    operands: list[graph.Expr] = [
        d.new((1, total, heads * groups, width), dtype),
        d.new((1, total_keys, heads, width), dtype), d.new((1, total_keys, heads, width), dtype),
    ]  # fmt: skip
    for part, places in zip((lengths, keys), starts, strict=True):
        operands.append(d.new((len(places),), "int32", given=tuple(places)))
        operands.append(d.new((), "int32", given=(max(part),)))
    if keys is lengths and d.flag():
        operands = operands[:5]
    return builder(op)(*operands, **_mask(d))


@rule("nn.key_ranges")
def _key_ranges(d: Draw, op: str) -> graph.Call:
    lengths = [d.choice((0, 1, 2, 5, 17)) for _ in range(d.rng.randint(1, 4))]
    keys = [n + d.choice((0, 0, 3)) for n in lengths]
    starts = [tuple(sum(part[:i]) for i in range(len(part) + 1)) for part in (lengths, keys)]
    beyond = d.choice((0, 2))
    shape = graph.ShapeExpr((expr.const(starts[0][-1] + beyond), expr.const(sum(keys))))
    operands = [d.new((len(s),), d.choice(("int32", "int64")), given=s) for s in starts]
    attrs = {k: v for k, v in _mask(d).items() if k != "scale"}
    return builder(op)(shape, *operands, **attrs, **d.some(whole=beyond == 0))


@rule("nn.attention_within")
def _within(d: Draw, op: str) -> graph.Call:
    rows, keys = d.choice((1, 3, 9, 20)), d.choice((1, 5, 17))
    width, dtype = d.choice((4, 8, 20)), d.dtype()
    operands = [d.new((2, n, 2, width), dtype) for n in (rows, keys, keys)]
    ends = sorted(d.rng.randint(0, keys - 1) for _ in range(rows))
    seen = d.choice((1, 3, keys))
    for places in ([max(-1, e - seen) for e in ends], ends):
        operands.append(d.new((rows,), d.choice(("int32", "int64")), given=tuple(places)))
    if d.flag():
        cuts = (0, *sorted(d.rng.randint(0, rows) for _ in range(d.rng.randint(0, 3))), rows)
        operands.append(d.new((len(cuts),), d.choice(("int32", "int64")), given=cuts))
    return builder(op)(*operands, **d.some(scale=d.choice((1.0, 0.3))))


@rule("nn.ragged_attention")
def _ragged(d: Draw, op: str) -> graph.Call:
    lengths = tuple(d.choice((0, 1, 2, 5, 17)) for _ in range(d.rng.randint(1, 4)))
    shape, dtype = (sum(lengths), 2, d.choice((8, 20))), d.dtype()
    operands = [d.new(shape, dtype) for _ in range(3)]
    operands.append(d.new((len(lengths),), d.choice(("int32", "int64")), given=lengths))
    return builder(op)(*operands, **_mask(d))


def _segments(d: Draw) -> list[graph.Expr]:
    lengths = [d.choice((0, 1, 2, 5, 17)) for _ in range(d.rng.randint(1, 4))]
    starts = tuple(sum(lengths[:i]) for i in range(len(lengths) + 1))
    data = d.new((starts[-1], *d.shape(d.rng.randint(0, 2), 300)), d.dtype())
    return [data, d.new((len(starts),), d.choice(("int32", "int64")), given=starts)]


@rule("nn.segment_reduce")
def _segment_reduce(d: Draw, op: str) -> graph.Call:
    return builder(op)(*_segments(d), **d.some(mode=d.choice(("sum", "mean", "max"))))


@rule("nn.segment_softmax")
def _segment_softmax(d: Draw, op: str) -> graph.Call:
    return builder(op)(*_segments(d))


@rule("nn.rope")
def _rope(d: Draw, op: str) -> graph.Call:
    batch, n = d.shape(2, 300)
    width = d.choice((2, 6, 8, 16, 64))
    rotary = d.choice((None, width, 2 * (width // 4), 0))
    x = d.new((batch, n, d.choice((1, 2, 3)), width), d.dtype())
    operands: list[graph.Expr] = []
    match d.rng.randrange(5):
        case 0:
            operands.append(graph.PrimValue(d.rng.choice(d.symbols)))
        case 1:
            operands.append(graph.PrimValue(expr.const(d.choice((0, 7, 100)))))
        case 2:
            operands.append(d.new((batch,), d.choice(("int32", "int64")), 0, 90))
        case 3:
            pairs = (width if rotary is None else rotary) // 2
            operands.append(graph.PrimValue(expr.const(5)))
            operands.append(d.new((pairs,), "float32", 1, 8))
        case _:
            pass
    attrs = d.some(theta=d.choice((1e4, 1e5)), style=d.choice(("neox", "gptj")),
                   rotary_dim=rotary, scaling=d.choice((1.0, 2.0)))  # fmt: skip
    if len(operands) == 2:
        attrs["rotary_dim"] = rotary
    return builder(op)(x, *operands, **attrs)


# --- Losses -----------------------------------------------------------------------------------


@rule("nn.cross_entropy_with_logits")
def _entropy(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3))
    return builder(op)(x, d.like(x))


def _targets(d: Draw, x: graph.Var) -> tuple[list[graph.Expr], dict[str, Any]]:
    """Classes, at times their weights; attributes."""
    shape = shape_of(x)
    at = 1 if len(shape) > 1 else 0
    classes = d.size(shape[at])
    if not classes:
        raise Refused
    rest = (*shape[:at], *shape[at + 1 :])
    found: list[graph.Expr] = [d.indices(rest, shape[at])]
    if d.flag():
        found.append(d.new((shape[at],), dtype_of(x), 0.5, 2))
    ignored = d.choice((-100, 0, classes - 1)) if classes > 1 else -100
    return found, d.some(ignore_index=ignored)


@rule("nn.nll_loss")
def _nll(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), most=ELEMENTS // 8)
    rest, attrs = _targets(d, x)
    attrs |= d.some(reduction=d.choice(("mean", "sum", "none")))
    return builder(op)(x, *rest, **attrs)


@rule("grad.nll_loss_backward")
def _nll_backward(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), most=ELEMENTS // 8)
    rest, attrs = _targets(d, x)
    reduction = d.choice(("mean", "sum", "none"))
    targets = rest[0]
    assert isinstance(targets, graph.Var)
    grad = d.new(shape_of(targets) if reduction == "none" else (), dtype_of(x))
    return builder(op)(grad, x, *rest, reduction=reduction, **attrs)


# --- Quantisation, sampling -------------------------------------------------------------------


def _scales(d: Draw, x: graph.Var, zero: tuple[str, float, float], dtype: str
            ) -> tuple[list[graph.Var], dict[str, Any]]:  # fmt: skip
    shape = shape_of(x)
    if not shape or d.chance(0.3):
        return [d.new((), dtype, 0.25, 0.25), d.new((), *zero)], {}
    axis = d.axis(len(shape))
    dims = (shape[axis],)
    return [d.new(dims, dtype, 0.1, 1), d.new(dims, *zero)], {"axis": axis}


@rule("quantize")
def _quantize(d: Draw, op: str) -> graph.Call:
    """Scales are powers of two, so that no quotient lies beside a half by a rounding."""
    shape, dtype = d.shape(d.rng.randint(0, 3)), d.dtype()
    x = d.new(shape, dtype, values=[i / 8 for i in range(-71, 71, 3)])
    found, attrs = _scales(d, x, (d.choice(("int8", "int32")), 0, 5), dtype)
    scale = d.new(shape_of(found[0]), dtype, values=(0.25, 0.5, 1.0))
    out = d.some(out_dtype=d.choice(("int8", "uint8", "int16", "int32")))
    return builder(op)(x, scale, found[1], **attrs, **out)


@rule("dequantize")
def _dequantize(d: Draw, op: str) -> graph.Call:
    dtype = d.choice(("int8", "uint8", "int16", "int32"))
    x = d.x((0, 3), kinds=(dtype,), low=-9, high=9)
    wide = d.dtype()
    found, attrs = _scales(d, x, (dtype, 0, 5), wide)
    return builder(op)(x, *found, **attrs, out_dtype=wide)


def _blocks(d: Draw, fmt: Format, rows: PrimExpr, blocks: ExprLike) -> tuple[graph.Var, ...]:
    return tuple(
        d.new((rows, blocks, *tail), dtype, *((-0.5, 0.5) if dtype == "float16" else (0, 127)))
        for _, dtype, tail in fmt.fields
    )


@rule("decode_blocks")
def _decode_blocks(d: Draw, op: str) -> graph.Call:
    fmt = FORMATS[d.choice(("Q4_0", "Q4_1", "Q8_0"))]
    return builder(op)(_blocks(d, fmt, d.dim(), d.small()), format=fmt.name)


@rule("dynamic_quantize")
def _dynamic_quantize(d: Draw, op: str) -> graph.Call:
    """Largest values of either sign, so that none lies beside a half."""
    group, parts = d.choice((4, 16)), d.choice((1, 2))
    x = d.new((d.dim(), group * d.rng.randint(1, 3)), "float32", values=(127, -127))
    return builder(op)(x, group=group, parts=parts)


@rule("quantized_linear")
def _quantized_linear(d: Draw, op: str) -> graph.Call:
    """One value, whose sum is known, stands for each activation."""
    fmt, parts = FORMATS[d.choice(("Q4_0", "Q4_1", "Q8_0"))], d.choice((1, 2))
    m, n, blocks = d.dim(), d.dim(), d.rng.randint(1, 3)
    sums = 32 * (2 if parts == 1 else 2 * 129) * 0.5
    q = d.new((m, blocks * parts, 32), "int8", values=(2,))
    scale, total = (d.new((m, blocks), "float32", values=(v,)) for v in (0.5, sums))
    fields = _blocks(d, fmt, n, blocks)
    return builder(op)(q, scale, total, fields, format=fmt.name, parts=parts)


@rule("softmax_with_temperature")
def _temperature(d: Draw, op: str) -> graph.Call:
    x = d.x((2, 2))
    rows = shape_of(x)[0]
    return builder(op)(x, d.new((rows, 1), dtype_of(x), values=(0.0, 0.7, 3.0)))


@rule("multinomial_from_uniform")
def _multinomial(d: Draw, op: str) -> graph.Call:
    """Multiples of 1/64, whose sums have no rounding."""
    rows, classes, draws = d.small(), d.small(), d.dim()
    parts = [i / 64 for i in (1, 3, 0, 7, 2)]
    prob = d.new((rows, classes), "float32", values=parts)
    uniform = d.new((draws, 1), "float32", values=[i / 128 for i in range(1, 128, 6)])
    at = d.indices((draws, 1), rows)
    return builder(op)(prob, uniform, at, **d.some(dtype=d.choice(("int32", "int64"))))


@rule("renormalize_top_p_top_k")
def _renormalize(d: Draw, op: str) -> graph.Call:
    rows, classes = d.shape(2, 4000)
    dtype = d.dtype()
    prob = d.new((rows, classes), dtype, values=[i / 64 for i in (1, 3, 9, 7, 2, 0, 5)])
    share = d.new((rows, 1), dtype, values=(0.9, 0.3, 0.0, 1.0))
    limit = d.new((rows, 1), d.choice(("int32", "int64")), values=(0, 3, 4, 99, 1))
    return builder(op)(prob, share, limit)
