"""Loop functions of quantised weights: decoding, activation quantisation, and the product of both.

Every supported block format is affine per group of consecutive weights in a row,
`w = scale * q + offset` with an unsigned integer q, whatever its storage; a `Format` says how q,
scale and offset are computed from the stored fields. Weights stay as stored: `decode` is a loop
function that fuses into the product that consumes it (the paper's Figure 9), and
`integer_product` multiplies the integers themselves with activations quantised per group, to 8
bits or to two times 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr, loops
from relaxlab.ir.codebooks import IQ4_LEVELS
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import ExprLike, PrimExpr, binary, const
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ops import te


class Field(Protocol):
    """A stored field: indexed with row, block and, where a block has several, the number."""

    def __getitem__(self, index: Any, /) -> PrimExpr: ...


Fields: TypeAlias = Mapping[str, Field]


def _f32(e: PrimExpr) -> PrimExpr:
    return expr.Cast("float32", e)


@dataclass(frozen=True, slots=True)
class Format:
    """A block format. `fields` gives, per stored field, its dtype and its shape after
    (rows, blocks); `stored` names them in the order in which a block has them; `group` is how many
    consecutive weights share a scale; a block holds `block` weights. The functions take the fields
    and (row, group index[, index in the group]).
    """

    name: str
    block: int
    group: int
    fields: tuple[tuple[str, str, tuple[int, ...]], ...]
    stored: str
    q: Callable[[Fields, PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    scale: Callable[[Fields, PrimExpr, PrimExpr], PrimExpr]
    offset: Callable[[Fields, PrimExpr, PrimExpr], PrimExpr]

    @property
    def offsets(self) -> dict[str, int]:
        """Bytes before each field in a block, in storage order; those of a whole block under the
        empty name."""
        sizes = {n: bytes_of(dtype) * math.prod(tail) for n, dtype, tail in self.fields}
        found, at = dict[str, int](), 0
        for name in self.stored.split():
            found[name], at = at, at + sizes[name]
        return {**found, "": at}

    def in_blocks(self, blocks: te.Tensor) -> Fields:
        """The fields of whole blocks, uint8 (rows, blocks, bytes)."""
        offsets = self.offsets
        return {name: _InBlocks(blocks, offsets[name], dtype) for name, dtype, _ in self.fields}

    def placeholders(self, rows: ExprLike, blocks: ExprLike) -> dict[str, te.Tensor]:
        """One tensor per field."""
        return {
            name: te.placeholder((rows, blocks, *tail), dtype, name)
            for name, dtype, tail in self.fields
        }


@dataclass(frozen=True, slots=True)
class _InBlocks:
    """A field that begins at byte `first` of each block."""

    blocks: te.Tensor
    first: int
    dtype: str

    def __getitem__(self, index: Any) -> PrimExpr:
        row, block, *number = index
        at = self.first + (number[0] if number else te.ZERO)
        byte = self.blocks[row, block, at]
        if self.dtype == "uint8":
            return byte
        if self.dtype == "int8":
            return expr.Call("int8", "reinterpret", (byte,))
        assert self.dtype == "float16" and not number, self.dtype
        low, high = (expr.Cast("uint16", self.blocks[row, block, at + i]) for i in (0, 1))
        bits = expr.BitOr(low, expr.ShiftLeft(high, const(8, "uint16")))
        return expr.Call("float16", "reinterpret", (bits,))


def _nibble(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Weight i of a group of 32 stored as 16 bytes: low halves first, then high halves."""
    shift = expr.Cast("uint8", i // 16 * 4)
    return expr.BitAnd(expr.ShiftRight(f["qs"][n, g, i % 16], shift), const(15, "uint8"))


def _with_fifth_bit(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """A nibble with bit i of the group's 32 fifth bits, stored in 4 bytes, on top."""
    bit = expr.ShiftRight(f["qh"][n, g, i // 8], expr.Cast("uint8", i % 8))
    return _joined(_nibble(f, n, g, i), bit, 1)


def _joined(low: PrimExpr, high: PrimExpr, bits: int, at: int = 4) -> PrimExpr:
    """The lowest `bits` bits of `high` on top of `at` low ones."""
    masked = expr.BitAnd(high, const((1 << bits) - 1, "uint8"))
    return expr.BitOr(low, expr.ShiftLeft(masked, const(at, "uint8")))


def _biased(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """A signed byte plus 128, as an unsigned byte."""
    return expr.BitXor(expr.Cast("uint8", f["qs"][n, g, i]), const(128, "uint8"))


def _d(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    return _f32(f["d"][n, g])


# The K formats: blocks of 256 weights with a two-level scale.


def _k_nibble(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """32 bytes hold two groups of 32: the even one in the low halves, the odd one in the high."""
    shift = expr.Cast("uint8", g % 2 * 4)
    byte = f["qs"][n, g // 8, g % 8 // 2 * 32 + i]
    return expr.BitAnd(expr.ShiftRight(byte, shift), const(15, "uint8"))


def _k_with_fifth_bit(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Group g of a block has its fifth bits in bit g of 32 bytes."""
    bit = expr.ShiftRight(f["qh"][n, g // 8, i], expr.Cast("uint8", g % 8))
    return _joined(_k_nibble(f, n, g, i), bit, 1)


def _k_six_bits(f: Fields, n: PrimExpr, g: PrimExpr, first: int, shift: int) -> PrimExpr:
    """A 6-bit factor of group g: the low bits of byte `first` + g for the first four groups; for
    the others 4 bits of bytes 8 to 11 (from bit `shift` on) below the top 2 of byte `first` + g."""
    block, at = g // 8, g % 4
    byte = f["scales"][n, block, first + at]
    shared = expr.ShiftRight(f["scales"][n, block, 8 + at], const(shift, "uint8"))
    low = expr.BitAnd(shared, const(15, "uint8"))
    late = _joined(low, expr.ShiftRight(byte, const(6, "uint8")), 2)
    early = expr.BitAnd(byte, const(63, "uint8"))
    return _f32(expr.Select(expr.LT(g % 8, const(4)), early, late))


def _k_scale(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    return _f32(f["d"][n, g // 8]) * _k_six_bits(f, n, g, 0, 0)


def _k_offset(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    return _f32(f["dmin"][n, g // 8]) * _k_six_bits(f, n, g, 4, 4) * -1.0


def _q6(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Weight i of group g (of 16): four runs of 32 weights share 64 bytes of low halves and 32
    bytes of 2-bit tops, once for each half of the block."""
    block, half, run, at = g // 16, g % 16 // 8, g % 8 // 2, g % 2 * 16 + i
    low = f["ql"][n, block, half * 64 + run % 2 * 32 + at]
    low = expr.ShiftRight(low, expr.Cast("uint8", run // 2 * 4))
    high = expr.ShiftRight(f["qh"][n, block, half * 32 + at], expr.Cast("uint8", run * 2))
    return _joined(expr.BitAnd(low, const(15, "uint8")), high, 2)


def _q6_scale(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    return _f32(f["d"][n, g // 16]) * _f32(f["scales"][n, g // 16, g % 16])


def _two_bits(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Weight i of group g (of 16): each half of a block's 64 bytes holds four runs of 32 weights of
    2 bits, the first in the lowest ones."""
    byte = f["qs"][n, g // 16, g % 16 // 8 * 32 + g % 2 * 16 + i]
    return expr.BitAnd(
        expr.ShiftRight(byte, expr.Cast("uint8", g % 8 // 2 * 2)), const(3, "uint8")
    )


def _q2_scale(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    low = expr.BitAnd(f["scales"][n, g // 16, g % 16], const(15, "uint8"))
    return _f32(f["d"][n, g // 16]) * _f32(low)


def _q2_offset(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    high = expr.ShiftRight(f["scales"][n, g // 16, g % 16], const(4, "uint8"))
    return _f32(f["dmin"][n, g // 16]) * _f32(high) * -1.0


def _q3(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Two bits below a third one: run r of 32 weights has it in bit r of the block's 32 bytes."""
    bit = expr.ShiftRight(f["hmask"][n, g // 16, g % 2 * 16 + i], expr.Cast("uint8", g % 16 // 2))
    return _joined(_two_bits(f, n, g, i), bit, 1, at=2)


def _q3_scale(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    """Four low bits in bytes 0 to 7, eight groups in each half of the bytes; two high bits in bytes
    8 to 11, four groups in each two bits; 32 is subtracted."""
    block, at = g // 16, g % 16
    low = expr.ShiftRight(f["scales"][n, block, at % 8], expr.Cast("uint8", at // 8 * 4))
    high = expr.ShiftRight(f["scales"][n, block, 8 + at % 4], expr.Cast("uint8", at // 4 * 2))
    six = _joined(expr.BitAnd(low, const(15, "uint8")), high, 2)
    return _f32(f["d"][n, block]) * (_f32(six) - 32.0)


# The IQ4 formats: codes of 4 bits for sixteen levels.


def _level(code: PrimExpr) -> PrimExpr:
    """The level of a code plus 128, as an unsigned byte: chosen bit by bit, which takes 15 blends
    of a vector of any width and no table in memory."""
    found: list[PrimExpr] = [const(level + 128, "uint8") for level in IQ4_LEVELS]
    for bit in range(4):
        masked = expr.BitAnd(code, const(1 << bit, "uint8"))
        is_set = expr.NE(masked, const(0, "uint8"))
        pairs = zip(found[1::2], found[::2], strict=True)
        found = [expr.Select(is_set, high, low) for high, low in pairs]
    return found[0]


def _iq4_xs(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Each group of a block has 16 bytes: low halves first, then high halves."""
    byte = f["qs"][n, g // 8, g % 8 * 16 + i % 16]
    code = expr.ShiftRight(byte, expr.Cast("uint8", i // 16 * 4))
    return _level(expr.BitAnd(code, const(15, "uint8")))


def _iq4_xs_scale(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    """Four low bits of group g in half a byte, two high ones in a quarter; 32 is subtracted."""
    block, at = g // 8, g % 8
    low = expr.ShiftRight(f["scales_l"][n, block, at // 2], expr.Cast("uint8", at % 2 * 4))
    high = expr.ShiftRight(f["scales_h"][n, block, at // 4], expr.Cast("uint8", at % 4 * 2))
    six = _joined(expr.BitAnd(low, const(15, "uint8")), high, 2)
    return _f32(f["d"][n, block]) * (_f32(six) - 32.0)


_K_FACTORS = (("scales", "uint8", (12,)), ("d", "float16", ()), ("dmin", "float16", ()))

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format(
            "Q4_0", 32, 32, (("qs", "uint8", (16,)), ("d", "float16", ())), "d qs", _nibble, _d,
            lambda f, n, g: _d(f, n, g) * -8.0,
        ),
        Format(
            "Q4_1", 32, 32,
            (("qs", "uint8", (16,)), ("d", "float16", ()), ("m", "float16", ())), "d m qs",
            _nibble, _d,
            lambda f, n, g: _f32(f["m"][n, g]),
        ),
        Format(
            "Q8_0", 32, 32, (("qs", "int8", (32,)), ("d", "float16", ())), "d qs", _biased, _d,
            lambda f, n, g: _d(f, n, g) * -128.0,
        ),
        Format(
            "Q5_0", 32, 32,
            (("qs", "uint8", (16,)), ("qh", "uint8", (4,)), ("d", "float16", ())), "d qh qs",
            _with_fifth_bit, _d, lambda f, n, g: _d(f, n, g) * -16.0,
        ),
        Format(
            "Q5_1", 32, 32,
            (("qs", "uint8", (16,)), ("qh", "uint8", (4,)), ("d", "float16", ()),
             ("m", "float16", ())), "d m qh qs",
            _with_fifth_bit, _d, lambda f, n, g: _f32(f["m"][n, g]),
        ),
        Format(
            "Q2_K", 256, 16,
            (("qs", "uint8", (64,)), ("scales", "uint8", (16,)), ("d", "float16", ()),
             ("dmin", "float16", ())), "scales qs d dmin",
            _two_bits, _q2_scale, _q2_offset,
        ),
        Format(
            "Q3_K", 256, 16,
            (("qs", "uint8", (64,)), ("hmask", "uint8", (32,)), ("scales", "uint8", (12,)),
             ("d", "float16", ())), "hmask qs scales d",
            _q3, _q3_scale, lambda f, n, g: _q3_scale(f, n, g) * -4.0,
        ),
        Format(
            "Q4_K", 256, 32, (("qs", "uint8", (128,)), *_K_FACTORS), "d dmin scales qs",
            _k_nibble, _k_scale, _k_offset,
        ),
        Format(
            "Q5_K", 256, 32, (("qs", "uint8", (128,)), ("qh", "uint8", (32,)), *_K_FACTORS),
            "d dmin scales qh qs",
            _k_with_fifth_bit, _k_scale, _k_offset,
        ),
        Format(
            "Q6_K", 256, 16,
            (("ql", "uint8", (128,)), ("qh", "uint8", (64,)), ("scales", "int8", (16,)),
             ("d", "float16", ())), "ql qh scales d",
            _q6, _q6_scale, lambda f, n, g: _q6_scale(f, n, g) * -32.0,
        ),
        Format(
            "IQ4_NL", 32, 32, (("qs", "uint8", (16,)), ("d", "float16", ())), "d qs",
            lambda f, n, g, i: _level(_nibble(f, n, g, i)), _d,
            lambda f, n, g: _d(f, n, g) * -128.0,
        ),
        Format(
            "IQ4_XS", 256, 32,
            (("qs", "uint8", (128,)), ("scales_l", "uint8", (4,)), ("scales_h", "uint8", (2,)),
             ("d", "float16", ())), "d scales_h scales_l qs",
            _iq4_xs, _iq4_xs_scale, lambda f, n, g: _iq4_xs_scale(f, n, g) * -128.0,
        ),
    )
}  # fmt: skip


def _blocks(cols: int, block: int) -> int:
    if cols % block:
        raise ValueError(f"{cols} columns are not a multiple of the block of {block} weights")
    return cols // block


def _weight(fmt: Format, f: Fields, n: PrimExpr, k: PrimExpr) -> PrimExpr:
    group, i = k // fmt.group, k % fmt.group
    return _f32(fmt.q(f, n, group, i)) * fmt.scale(f, n, group) + fmt.offset(f, n, group)


def decode(fmt: Format, rows: int, cols: int) -> loops.PrimFunc:
    """(fields…) -> W float32 (rows, cols)."""
    f = fmt.placeholders(rows, _blocks(cols, fmt.block))
    w = te.compute((rows, cols), lambda n, k: _weight(fmt, f, n, k), "decode")
    return te.create_prim_func([*f.values(), w])


def take_rows(fmt: Format, rows: int, cols: int, dims: Sequence[PrimExpr]) -> loops.PrimFunc:
    """(ids int32 dims, fields…) -> float32 (*dims, cols): rows of the matrix, decoded."""
    f = fmt.placeholders(rows, _blocks(cols, fmt.block))
    ids = te.placeholder(tuple(dims), "int32", "ids")

    def element(*index: PrimExpr) -> PrimExpr:
        return _weight(fmt, f, expr.Cast("int64", ids[tuple(index[:-1])]), index[-1])

    out = te.compute((*dims, cols), element, "take_rows")
    return te.create_prim_func([ids, *f.values(), out])


def take_rows_of_blocks(
    fmt: Format, rows: int, cols: int, dims: Sequence[PrimExpr]
) -> loops.PrimFunc:
    """(ids int32 dims, blocks uint8 (rows, cols / block, bytes)) -> float32 (*dims, cols): rows of
    the matrix, decoded from whole blocks as a file has them."""
    shape = (rows, _blocks(cols, fmt.block), fmt.offsets[""])
    blocks = te.placeholder(shape, "uint8", "blocks")
    f = fmt.in_blocks(blocks)
    ids = te.placeholder(tuple(dims), "int32", "ids")

    def element(*index: PrimExpr) -> PrimExpr:
        return _weight(fmt, f, expr.Cast("int64", ids[tuple(index[:-1])]), index[-1])

    out = te.compute((*dims, cols), element, "take_rows")
    return te.create_prim_func([ids, blocks, out])


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
    w = te.compute((rows, cols), lambda n, j: _weight(fmt, f, n, j), "w")
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
