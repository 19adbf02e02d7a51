"""Rules that draw convolutions and poolings with random windows and layouts."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import expr, graph
from relaxlab.ops.define import builder
from relaxlab.testing.draw import Draw, Refused, dtype_of
from relaxlab.testing.draw_rules import rule, shape_expr

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _windows(d: Draw, dims: int, sizes: tuple[int, ...]) -> tuple[dict[str, Any], list[int]]:
    """Strides, padding and dilation, and the least extents that they take."""
    strides = [d.choice((1, 1, 2, 3)) for _ in range(dims)]
    dilation = [d.choice((1, 1, 2)) for _ in range(dims)]
    pads = [d.choice((0, 1, 2)) for _ in range(dims)]
    pads = [min(p, s // 2) for p, s in zip(pads, sizes, strict=True)]
    least = [(s - 1) * g + 1 for s, g in zip(sizes, dilation, strict=True)]
    same = len(set(strides)) == 1 and d.flag()
    attrs = d.some(strides=strides[0] if same else tuple(strides), padding=tuple(pads),
                   dilation=tuple(dilation))  # fmt: skip
    if "dilation" not in attrs:
        least = list(sizes)
    return attrs, least


def _spatial(d: Draw, least: list[int]) -> list[expr.PrimExpr]:
    found: list[expr.PrimExpr] = []
    for size in least:
        symbol = d.rng.choice(d.symbols)
        if d.chance(0.3) and size <= d.size(symbol) <= 40:
            found.append(symbol)
        else:
            found.append(expr.const(size + d.choice((0, 1, 2, 5, 11))))
    return found


def _ordered(d: Draw, letters: str, sizes: dict[str, Any], blocks: dict[str, int]
             ) -> tuple[str, list[Any]]:  # fmt: skip
    """A random layout of dimensions with blocks, and the extents in it."""
    order = list(letters)
    if d.chance(0.5):
        d.rng.shuffle(order)
    text, shape = "".join(order), [sizes[c] for c in order]
    for letter, block in blocks.items():
        at = order.index(letter)
        shape[at] = expr.const(sizes[letter].value // block)
        text += f"{block}{letter.lower()}"
        shape.append(expr.const(block))
    return text, shape


def _block(d: Draw, letter: str, extent: int) -> dict[str, int]:
    fits = [b for b in (2, 3, 4, 8, 16) if extent % b == 0]
    return {letter: d.choice(fits)} if fits and d.chance(0.2) else {}


@rule(*(f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")))
def _conv(d: Draw, op: str) -> graph.Call:
    dims, turned = int(op[7]), op.endswith("transpose")
    groups = d.choice((1, 1, 1, 2, 4))
    each_in, each_out = d.choice((1, 2, 3, 8, 16)), d.choice((1, 2, 3, 8, 16))
    inputs, outputs = groups * each_in, groups * each_out
    taps = tuple(d.choice((1, 2, 3, 3, 5) if dims < 3 else (1, 2, 3)) for _ in range(dims))
    attrs, least = _windows(d, dims, taps)
    batch, spatial = d.choice((d.dim(), expr.const(1))), _spatial(d, least)
    if d.size(batch) > 8:
        batch = expr.const(2)
    data = dict(zip("NC" + SPATIAL[dims], (batch, expr.const(inputs), *spatial), strict=True))
    wide = outputs if not turned else each_out
    narrow = each_in if not turned else inputs
    kernel = dict(zip("OI" + SPATIAL[dims], map(expr.const, (wide, narrow, *taps)), strict=True))
    plain = "OI" if not turned else "IO"
    blocks = _block(d, "C", inputs)
    text, shape = _ordered(d, "NC" + SPATIAL[dims], data, blocks)
    kernel_text, kernel_shape = _ordered(
        d, plain + SPATIAL[dims], kernel, _block(d, "O", wide) | _block(d, "I", narrow)
    )
    attrs |= {"groups": groups, "data_layout": text, "kernel_layout": kernel_text}
    if d.chance(0.3):
        attrs["out_layout"] = _ordered(d, "NC" + SPATIAL[dims], data, {})[0]
    elif blocks and outputs % blocks["C"]:
        raise Refused
    if turned and d.chance(0.3):
        strides = attrs.get("strides", 1)
        each = strides if isinstance(strides, tuple) else (strides,) * dims
        attrs["output_padding"] = tuple(d.rng.randrange(s) for s in each)
    if d.chance(0.06):
        pair = d.new(shape, "int8", -9, 9), d.new(kernel_shape, "int8", -9, 9)
        return builder(op)(*pair, **attrs, out_dtype="int32")
    dtype = d.dtype()
    attrs |= d.some(out_dtype=d.choice((None, "float32")))
    return builder(op)(d.new(shape, dtype), d.new(kernel_shape, dtype), **attrs)


def _pool_attrs(d: Draw, op: str, dims: int) -> tuple[dict[str, Any], list[int]]:
    sizes = tuple(d.choice((1, 2, 3, 3)) for _ in range(dims))
    attrs, least = _windows(d, dims, sizes)
    attrs |= d.some(ceil_mode=d.flag(), count_include_pad=d.flag())
    whole = len(set(sizes)) == 1 and d.flag() and "backward" not in op
    return {**attrs, "pool_size": sizes[0] if whole else sizes}, least


def _channels_and(d: Draw, dims: int, spatial: list[expr.PrimExpr]
                  ) -> tuple[dict[str, Any], list[Any]]:  # fmt: skip
    channels = d.choice((1, 2, 3, 8, 16))
    batch = d.choice((d.dim(), expr.const(1)))
    if d.size(batch) > 8:
        batch = expr.const(2)
    letters = "NC" + SPATIAL[dims]
    sizes = dict(zip(letters, (batch, expr.const(channels), *spatial), strict=True))
    text, shape = _ordered(d, letters, sizes, _block(d, "C", channels))
    attrs: dict[str, Any] = {"layout": text}
    if d.chance(0.3):
        attrs["out_layout"] = _ordered(d, letters, sizes, {})[0]
    return attrs, shape


@rule(*(f"nn.{kind}_pool{n}d" for n in (1, 2, 3) for kind in ("max", "avg")))
def _pool(d: Draw, op: str) -> graph.Call:
    dims = int(op[-2])
    attrs, least = _pool_attrs(d, op, dims)
    layout, shape = _channels_and(d, dims, _spatial(d, least))
    dtype = d.dtype(("float", "float", "int8", "int32")) if "max" in op else d.dtype()
    return builder(op)(d.new(shape, dtype), **attrs, **layout)


@rule(*(f"nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)))
def _adaptive(d: Draw, op: str) -> graph.Call:
    dims = int(op[-2])
    layout, shape = _channels_and(d, dims, _spatial(d, [1] * dims))
    sizes = tuple(d.choice((1, 2, 3, 7)) for _ in range(dims))
    attrs = d.some(output_size=sizes[0] if d.flag() else sizes)
    return builder(op)(d.new(shape, d.dtype()), **attrs, **layout)


def _window_attrs(d: Draw, ndim: int) -> tuple[dict[str, Any], graph.ShapeExpr, list[int]]:
    """Windows of all dimensions, their padding, and the least extents."""
    window = tuple(d.rng.randint(1, 3) for _ in range(ndim))
    strides = tuple(d.rng.randint(1, 3) for _ in range(ndim))
    dilation = tuple(d.rng.randint(1, 2) for _ in range(ndim))
    padding = [d.rng.randint(0, 1) for _ in range(2 * ndim)]
    least = [(k - 1) * e + 1 for k, e in zip(window, dilation, strict=True)]
    attrs = {"window": window, **d.some(strides=strides, dilation=dilation)}
    return attrs, shape_expr(*padding), least


@rule("reduce_window")
def _reduce_window(d: Draw, op: str) -> graph.Call:
    attrs, padding, least = _window_attrs(d, d.rng.randint(1, 4))
    reduction = d.choice(("sum", "prod", "max", "min"))
    x = d.new(_spatial(d, least), d.dtype(("float", "float", "int32")))
    return builder(op)(x, padding, **attrs, reduction=reduction)


@rule("grad.reduce_window_max_backward")
def _window_backward(d: Draw, op: str) -> graph.Call:
    attrs, padding, least = _window_attrs(d, d.rng.randint(1, 3))
    x = d.new(_spatial(d, least), d.dtype())
    reduced = d.result_of(builder("reduce_window")(x, padding, **attrs))
    return builder(op)(d.new(reduced, dtype_of(x)), x, padding, **attrs)


@rule("grad.max_pool2d_backward", "grad.avg_pool2d_backward")
def _pool_backward(d: Draw, op: str) -> graph.Call:
    """The gradient has the shape that the pooling has."""
    attrs, least = _pool_attrs(d, op, 2)
    layout, shape = _channels_and(d, 2, _spatial(d, least))
    for name in ("strides", "dilation"):
        if isinstance(attrs.get(name), int):
            attrs[name] = (attrs[name],) * 2
    x = d.new(shape, d.dtype())
    forward = builder(f"nn.{op[5:].removesuffix('_backward')}")
    pooled = d.result_of(forward(x, **attrs, **layout))
    return builder(op)(d.new(pooled, dtype_of(x)), x, **attrs, **layout)
