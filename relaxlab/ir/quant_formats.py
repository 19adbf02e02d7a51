"""The weight formats of GGUF files: one table row per format.

A format cuts each row of a weight matrix into blocks of ``block_size`` values and stores a block in
``block_bytes`` bytes: packed small integers beside the scales that turn them back into numbers. The
facts (ids, field order, bit positions) are those of the GGML library's block formats; the code is
our own. ``QuantFormat.split_fields`` turns the array of blocks into one array per field, which is
how the compiler takes quantised weights; ``dequantise`` says what the bits mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from relaxlab.ir.codebooks import IQ4_LEVELS

Array = np.ndarray[Any, np.dtype[Any]]
Fields = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a block: ``count`` values of ``dtype``, ``offset`` bytes into the block.

    ``count`` is 0 for a single value; its array then has no axis of its own.
    """

    name: str
    dtype: np.dtype[Any]
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """The storage format of one kind of tensor.

    ``decode`` maps the fields, each ``(..., nblocks[, count])``, to float32 values ``(..., nblocks,
    block_size)``. ``encode``, where we have it, is its approximate inverse.
    """

    name: str
    ggml_id: int
    block_size: int
    block_bytes: int
    fields: tuple[Field, ...]
    decode: Callable[[Fields], Array]
    encode: Callable[[Array], dict[str, Array]] | None = None

    def __repr__(self) -> str:
        return f"QuantFormat({self.name})"

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of `shape`; ValueError if its last axis does not hold whole blocks."""
        if not shape or shape[-1] % self.block_size:
            raise ValueError(
                f"{self.name} stores blocks of {self.block_size} values; "
                f"the last axis of shape {shape} is not a multiple of that"
            )
        return math.prod(shape) // self.block_size * self.block_bytes

    def blocks(self, raw: Array, shape: tuple[int, ...]) -> Array:
        """The raw bytes (uint8, any shape) of a tensor of `shape` as a view (*shape[:-1], nblocks,
        block_bytes). ValueError if the byte count is wrong."""
        expected = self.nbytes(shape)
        if raw.dtype != np.uint8 or raw.size != expected:
            raise ValueError(
                f"{self.name} tensor of shape {shape} needs {expected} raw uint8 bytes, "
                f"got {raw.size} of dtype {raw.dtype}"
            )
        return raw.reshape(*shape[:-1], shape[-1] // self.block_size, self.block_bytes)

    def views(self, raw: Array, shape: tuple[int, ...]) -> dict[str, Array]:
        """The raw bytes (uint8, any shape) of a tensor of `shape` as one strided view per field,
        shaped as `split_fields` says. ValueError if the byte count is wrong."""
        blocks = self.blocks(raw, shape)
        found = {f.name: _field_view(blocks, f) for f in self.fields}
        return {"data": found["data"].reshape(shape)} if self.block_size == 1 else found

    def split_fields(self, raw: Array, shape: tuple[int, ...]) -> dict[str, Array]:
        """The raw bytes (uint8, any shape) of a tensor of `shape` as one array per field.

        Each array is C-contiguous, ``(*shape[:-1], nblocks)`` for a single value per block and
        ``(*shape[:-1], nblocks, count)`` otherwise. The formats without blocks (F32, F16, BF16)
        give ``{"data": array of shape}`` without a copy. ValueError if the byte count is wrong.
        """
        return {k: np.ascontiguousarray(v) for k, v in self.views(raw, shape).items()}

    def join_fields(self, fields: Fields) -> Array:
        """Inverse of `split_fields`: fields to flat uint8 bytes; ValueError on a wrong field."""
        if set(fields) != {f.name for f in self.fields}:
            raise ValueError(
                f"{self.name} has the fields {', '.join(f.name for f in self.fields)}; "
                f"got {', '.join(sorted(fields))}"
            )
        first = self.fields[0]
        leading = fields[first.name].shape
        leading = leading[:-1] if first.count else leading
        out = np.empty((*leading, self.block_bytes), np.uint8)
        for f in self.fields:
            expected = (*leading, f.count) if f.count else leading
            array = fields[f.name]
            if array.shape != expected or array.dtype != f.dtype:
                raise ValueError(
                    f"{self.name} field '{f.name}' must be {f.dtype}{expected}, "
                    f"got {array.dtype}{array.shape}"
                )
            data = np.ascontiguousarray(array).view(np.uint8) if array.ndim else array
            width = f.dtype.itemsize * max(f.count, 1)
            out[..., f.offset : f.offset + width] = data.reshape(*leading, width)
        return out.reshape(-1)

    def dequantise(self, raw: Array, shape: tuple[int, ...]) -> Array:
        """Raw uint8 bytes to a new float32 array of `shape`; ValueError on a wrong byte count."""
        return np.ascontiguousarray(self.decode(self.views(raw, shape)).reshape(shape))

    def quantise(self, values: Array) -> Array:
        """Float values, last axis whole blocks, to flat uint8 bytes.

        ValueError if the shape does not fit or we have no encoder for the format (K and IQ4).
        """
        if self.encode is None:
            able = ", ".join(f.name for f in FORMATS if f.encode)
            raise ValueError(f"no encoder for {self.name}; formats that can be written: {able}")
        self.nbytes(values.shape)
        blocks = values.astype(np.float32).reshape(*values.shape[:-1], -1, self.block_size)
        return self.join_fields(self.encode(blocks))


def _field_view(blocks: Array, field: Field) -> Array:
    width = field.dtype.itemsize * max(field.count, 1)
    part = blocks[..., field.offset : field.offset + width]
    # A view of a wider dtype needs a contiguous last axis, which `part` keeps.
    typed = part.view(field.dtype)
    return typed if field.count else typed[..., 0]


_F16 = np.dtype("<f2")
_F32 = np.dtype("<f4")
_U8 = np.dtype(np.uint8)
_I8 = np.dtype(np.int8)
_BF16 = np.dtype(ml_dtypes.bfloat16)


def _f32(x: Array) -> Array:
    return x.astype(np.float32)


def _nibbles(qs: Array) -> Array:
    """(..., k) bytes to (..., 2k) values 0..15: all the low halves, then all the high halves."""
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


def _pack_nibbles(q: Array) -> Array:
    low, high = np.split(q, 2, axis=-1)
    return (low | (high << 4)).astype(np.uint8)


def _fifth_bits(qh: Array) -> Array:
    """(..., 4) bytes to (..., 32) bits, element j from bit j, moved to bit position 4."""
    return np.unpackbits(qh, axis=-1, bitorder="little") << 4


def _pack_fifth_bits(q: Array) -> Array:
    return np.packbits(q >> 4, axis=-1, bitorder="little")


def _decode_plain(f: Fields) -> Array:
    return _f32(f["data"])[..., None]


def _encode_plain(dtype: np.dtype[Any]) -> Callable[[Array], dict[str, Array]]:
    return lambda x: {"data": x[..., 0].astype(dtype)}


def _decode_q8_0(f: Fields) -> Array:
    return _f32(f["qs"]) * _f32(f["d"])[..., None]


def _encode_q8_0(x: Array) -> dict[str, Array]:
    d = np.abs(x).max(axis=-1) / np.float32(127)
    return {"d": d.astype(_F16), "qs": _divide(x, d, -127, 127).astype(np.int8)}


def _decode_q4_0(f: Fields) -> Array:
    return (_f32(_nibbles(f["qs"])) - 8) * _f32(f["d"])[..., None]


def _encode_q4_0(x: Array) -> dict[str, Array]:
    # Divided by -8, not 7: the value of largest magnitude is then exact, on the side that has one
    # more code.
    d = _signed_extreme(x) / np.float32(-8)
    q = (_divide(x, d, -8, 7) + 8).astype(np.uint8)
    return {"d": d.astype(_F16), "qs": _pack_nibbles(q)}


def _decode_q4_1(f: Fields) -> Array:
    return _f32(_nibbles(f["qs"])) * _f32(f["d"])[..., None] + _f32(f["m"])[..., None]


def _encode_q4_1(x: Array) -> dict[str, Array]:
    d, m, q = _encode_affine(x, 15)
    return {"d": d, "m": m, "qs": _pack_nibbles(q)}


def _decode_q5_0(f: Fields) -> Array:
    q = _f32(_nibbles(f["qs"]) | _fifth_bits(f["qh"])) - 16
    return q * _f32(f["d"])[..., None]


def _encode_q5_0(x: Array) -> dict[str, Array]:
    d = _signed_extreme(x) / np.float32(-16)
    q = (_divide(x, d, -16, 15) + 16).astype(np.uint8)
    return {"d": d.astype(_F16), "qh": _pack_fifth_bits(q), "qs": _pack_nibbles(q & 15)}


def _decode_q5_1(f: Fields) -> Array:
    q = _f32(_nibbles(f["qs"]) | _fifth_bits(f["qh"]))
    return q * _f32(f["d"])[..., None] + _f32(f["m"])[..., None]


def _encode_q5_1(x: Array) -> dict[str, Array]:
    d, m, q = _encode_affine(x, 31)
    return {"d": d, "m": m, "qh": _pack_fifth_bits(q), "qs": _pack_nibbles(q & 15)}


def _divide(x: Array, step: Array, low: int, high: int) -> Array:
    """round(x / step) clipped to [low, high]; 0 where the step is 0."""
    step = step[..., None]
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    return np.clip(np.rint(x * inverse), low, high)


def _signed_extreme(x: Array) -> Array:
    """The value of largest magnitude of each block, with its sign."""
    at = np.abs(x).argmax(axis=-1)[..., None]
    return np.take_along_axis(x, at, axis=-1)[..., 0]


def _encode_affine(x: Array, levels: int) -> tuple[Array, Array, Array]:
    m = x.min(axis=-1)
    d = (x.max(axis=-1) - m) / np.float32(levels)
    q = _divide(x - m[..., None], d, 0, levels).astype(np.uint8)
    return d.astype(_F16), m.astype(_F16), q


def _k_scales(scales: Array) -> tuple[Array, Array]:
    """The 12 bytes of eight 6-bit scales and eight 6-bit minima, as (..., 8) float32 each.

    Bytes 0-3 and 4-7 hold scale and minimum of sub-blocks 0-3 in their low six bits; their top
    two bits are the top bits of sub-blocks 4-7, whose low four bits share bytes 8-11.
    """
    a, b, c = scales[..., 0:4], scales[..., 4:8], scales[..., 8:12]
    scale = np.concatenate([a & 63, (c & 15) | (a >> 6 << 4)], axis=-1)
    minimum = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], axis=-1)
    return _f32(scale), _f32(minimum)


def _k_affine(f: Fields, q: Array) -> Array:
    """q (..., 8, 32) with the two-level scales of Q4_K and Q5_K: d*scale*q - dmin*minimum."""
    scale, minimum = _k_scales(f["scales"])
    step = _f32(f["d"])[..., None] * scale
    shift = _f32(f["dmin"])[..., None] * minimum
    out = step[..., None] * _f32(q) - shift[..., None]
    return out.reshape(*out.shape[:-2], 256)


def _k_nibbles(qs: Array) -> Array:
    """128 bytes to (..., 8, 32): 32 bytes hold sub-block 2c (low) and sub-block 2c+1 (high)."""
    chunks = qs.reshape(*qs.shape[:-1], 4, 1, 32)
    pairs = np.concatenate([chunks & 15, chunks >> 4], axis=-2)
    return pairs.reshape(*qs.shape[:-1], 8, 32)


def _decode_q4_k(f: Fields) -> Array:
    return _k_affine(f, _k_nibbles(f["qs"]))


def _decode_q5_k(f: Fields) -> Array:
    bit = np.arange(8, dtype=np.uint8)[:, None]  # sub-block s takes bit s of each of the 32 bytes
    fifth = (f["qh"][..., None, :] >> bit) & 1
    return _k_affine(f, _k_nibbles(f["qs"]) | (fifth << 4))


def _decode_q6_k(f: Fields) -> Array:
    lead = f["d"].shape
    # Each half of the block: 64 bytes of low bits, 32 of high bits, for four runs of 32 values.
    ql = f["ql"].reshape(*lead, 2, 64)
    qh = f["qh"].reshape(*lead, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    low = _nibbles(ql).reshape(*lead, 2, 4, 32)
    q = _f32(low | (qh << 4)) - 32
    scale = _f32(f["d"])[..., None] * _f32(f["scales"])
    return (q.reshape(*lead, 16, 16) * scale[..., None]).reshape(*lead, 256)


def _two_bits(qs: Array) -> Array:
    """64 bytes to (..., 256) values 0..3: each half of them holds four runs of 32 values, the first
    in the lowest bits."""
    halves = qs.reshape(*qs.shape[:-1], 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    return halves.reshape(*qs.shape[:-1], 256)


def _decode_q2_k(f: Fields) -> Array:
    q = _f32(_two_bits(f["qs"])).reshape(*f["d"].shape, 16, 16)
    step = _f32(f["d"])[..., None] * _f32(f["scales"] & 15)
    shift = _f32(f["dmin"])[..., None] * _f32(f["scales"] >> 4)
    return (step[..., None] * q - shift[..., None]).reshape(*f["d"].shape, 256)


def _decode_q3_k(f: Fields) -> Array:
    lead = f["d"].shape
    bit = np.arange(8, dtype=np.uint8)[:, None]  # run r of 32 values takes bit r of the 32 bytes
    third = ((f["hmask"][..., None, :] >> bit) & 1).reshape(*lead, 256)
    q = (_f32(_two_bits(f["qs"]) | (third << 2)) - 4).reshape(*lead, 16, 16)
    low = _nibbles(f["scales"][..., :8])
    tops = f["scales"][..., None, 8:] >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    scale = _f32(low | (tops.reshape(*lead, 16) << 4)) - 32
    step = _f32(f["d"])[..., None] * scale
    return (step[..., None] * q).reshape(*lead, 256)


_IQ4_LEVELS = np.array(IQ4_LEVELS, np.float32)


def _decode_iq4_nl(f: Fields) -> Array:
    return _IQ4_LEVELS[_nibbles(f["qs"])] * _f32(f["d"])[..., None]


def _decode_iq4_xs(f: Fields) -> Array:
    lead = f["d"].shape
    low = np.stack([f["scales_l"] & 15, f["scales_l"] >> 4], axis=-1).reshape(*lead, 8)
    tops = f["scales_h"][..., None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    scale = _f32(low | (tops.reshape(*lead, 8) << 4)) - 32
    step = _f32(f["d"])[..., None] * scale
    q = _IQ4_LEVELS[_nibbles(f["qs"].reshape(*lead, 8, 16))]
    return (step[..., None] * q).reshape(*lead, 256)


def _row(
    name: str,
    ggml_id: int,
    block_size: int,
    layout: str,
    decode: Callable[[Fields], Array],
    encode: Callable[[Array], dict[str, Array]] | None = None,
) -> QuantFormat:
    """A table row; `layout` lists ``name:dtype`` or ``name:dtype*count`` in storage order."""
    dtypes = {"f16": _F16, "f32": _F32, "bf16": _BF16, "u8": _U8, "i8": _I8}
    fields: list[Field] = []
    offset = 0
    for part in layout.split():
        field_name, kind = part.split(":")
        kind, _, count = kind.partition("*")
        fields.append(Field(field_name, dtypes[kind], int(count or 0), offset))
        offset += dtypes[kind].itemsize * int(count or 1)
    return QuantFormat(name, ggml_id, block_size, offset, tuple(fields), decode, encode)


FORMATS: tuple[QuantFormat, ...] = (
    _row("F32", 0, 1, "data:f32", _decode_plain, _encode_plain(_F32)),
    _row("F16", 1, 1, "data:f16", _decode_plain, _encode_plain(_F16)),
    _row("BF16", 30, 1, "data:bf16", _decode_plain, _encode_plain(_BF16)),
    _row("Q8_0", 8, 32, "d:f16 qs:i8*32", _decode_q8_0, _encode_q8_0),
    _row("Q4_0", 2, 32, "d:f16 qs:u8*16", _decode_q4_0, _encode_q4_0),
    _row("Q4_1", 3, 32, "d:f16 m:f16 qs:u8*16", _decode_q4_1, _encode_q4_1),
    _row("Q5_0", 6, 32, "d:f16 qh:u8*4 qs:u8*16", _decode_q5_0, _encode_q5_0),
    _row("Q5_1", 7, 32, "d:f16 m:f16 qh:u8*4 qs:u8*16", _decode_q5_1, _encode_q5_1),
    _row("Q2_K", 10, 256, "scales:u8*16 qs:u8*64 d:f16 dmin:f16", _decode_q2_k),
    _row("Q3_K", 11, 256, "hmask:u8*32 qs:u8*64 scales:u8*12 d:f16", _decode_q3_k),
    _row("Q4_K", 12, 256, "d:f16 dmin:f16 scales:u8*12 qs:u8*128", _decode_q4_k),
    _row("Q5_K", 13, 256, "d:f16 dmin:f16 scales:u8*12 qh:u8*32 qs:u8*128", _decode_q5_k),
    _row("Q6_K", 14, 256, "ql:u8*128 qh:u8*64 scales:i8*16 d:f16", _decode_q6_k),
    _row("IQ4_NL", 20, 32, "d:f16 qs:u8*16", _decode_iq4_nl),
    _row("IQ4_XS", 23, 256, "d:f16 scales_h:u8*2 scales_l:u8*4 qs:u8*128", _decode_iq4_xs),
)

FORMAT_BY_NAME: Mapping[str, QuantFormat] = {f.name: f for f in FORMATS}
FORMAT_BY_ID: Mapping[int, QuantFormat] = {f.ggml_id: f for f in FORMATS}
