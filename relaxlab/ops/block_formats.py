"""The block formats of quantised weights, as scalar expressions over their stored fields.

Every format is affine per group of consecutive weights in a row; a `Format` says how integer,
scale and offset are computed from the fields, whatever their storage, which
`relaxlab.ir.quant_formats` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from relaxlab.ir import expr
from relaxlab.ir.codebooks import IQ4_LEVELS
from relaxlab.ir.expr import PrimExpr, const
from relaxlab.ir.quant_formats import FORMAT_BY_NAME, QuantFormat
from relaxlab.ops import te


class Field(Protocol):
    """A stored field: indexed with row, block and, where a block has several, the number."""

    def __getitem__(self, index: Any, /) -> PrimExpr: ...


Fields: TypeAlias = Mapping[str, Field]


def _f32(e: PrimExpr) -> PrimExpr:
    return expr.Cast("float32", e)


@dataclass(frozen=True, slots=True)
class Format:
    """A block format: consecutive weights of a row in groups of `group`, each weight
    `scale * q + offset` with an unsigned integer q. `storage` says which fields a block has; the
    functions take these and (row, number of the group[, index in the group]).
    """

    storage: QuantFormat
    group: int
    q: Callable[[Fields, PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    scale: Callable[[Fields, PrimExpr, PrimExpr], PrimExpr]
    offset: Callable[[Fields, PrimExpr, PrimExpr], PrimExpr]

    @property
    def name(self) -> str:
        """GGML's name."""
        return self.storage.name

    @property
    def block(self) -> int:
        """Weights of a block."""
        return self.storage.block_size

    @property
    def fields(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Name, dtype, and shape after (rows, blocks) of each stored field."""
        fields = self.storage.fields
        return tuple((f.name, f.dtype.name, (f.count,) if f.count else ()) for f in fields)

    def in_blocks(self, blocks: te.Tensor) -> Fields:
        """The fields of whole blocks, uint8 (rows, blocks, bytes)."""
        fields = self.storage.fields
        return {f.name: _InBlocks(blocks, f.offset, f.dtype.name) for f in fields}

    def weight(self, f: Fields, n: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The weight in row n and column k, float32."""
        group, i = k // self.group, k % self.group
        return _f32(self.q(f, n, group, i)) * self.scale(f, n, group) + self.offset(f, n, group)


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
    return expr.BitAnd(expr.ShiftRight(byte, expr.Cast("uint8", g % 8 // 2 * 2)), const(3, "uint8"))


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


def _iq4_nl(f: Fields, n: PrimExpr, g: PrimExpr, i: PrimExpr) -> PrimExpr:
    return _level(_nibble(f, n, g, i))


def _m(f: Fields, n: PrimExpr, g: PrimExpr) -> PrimExpr:
    return _f32(f["m"][n, g])


Scale: TypeAlias = Callable[[Fields, PrimExpr, PrimExpr], PrimExpr]


def _times(scale: Scale, factor: float) -> Scale:
    """The offset of integers that are stored less `-factor`."""
    return lambda f, n, g: scale(f, n, g) * factor


FORMATS: Mapping[str, Format] = {
    name: Format(FORMAT_BY_NAME[name], *row)
    for name, row in {
        "Q4_0": (32, _nibble, _d, _times(_d, -8.0)),
        "Q4_1": (32, _nibble, _d, _m),
        "Q8_0": (32, _biased, _d, _times(_d, -128.0)),
        "Q5_0": (32, _with_fifth_bit, _d, _times(_d, -16.0)),
        "Q5_1": (32, _with_fifth_bit, _d, _m),
        "Q2_K": (16, _two_bits, _q2_scale, _q2_offset),
        "Q3_K": (16, _q3, _q3_scale, _times(_q3_scale, -4.0)),
        "Q4_K": (32, _k_nibble, _k_scale, _k_offset),
        "Q5_K": (32, _k_with_fifth_bit, _k_scale, _k_offset),
        "Q6_K": (16, _q6, _q6_scale, _times(_q6_scale, -32.0)),
        "IQ4_NL": (32, _iq4_nl, _d, _times(_d, -128.0)),
        "IQ4_XS": (32, _iq4_xs, _iq4_xs_scale, _times(_iq4_xs_scale, -128.0)),
    }.items()
}
"""By name."""
