"""The weight formats of GGUF files: one table row per format.

A format cuts each row of a weight matrix into blocks of ``block_size`` values and stores a block in
``block_bytes`` bytes: packed small integers beside the scales that turn them back into numbers. The
facts (ids, field order) are those of the GGML library's block formats. ``QuantFormat.split_fields``
turns the array of blocks into one array per field, which is how the compiler takes quantised
weights; `ops.block_formats` says what the bits mean, and tests compare it with GGML's own package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


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
    """The storage format of one kind of tensor."""

    name: str
    ggml_id: int
    block_size: int
    block_bytes: int
    fields: tuple[Field, ...]

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

    def dequantise(self, raw: Array, shape: tuple[int, ...]) -> Array:
        """Raw uint8 bytes to a new float32 array of `shape`. ValueError on a wrong byte
        count."""
        if self.block_size == 1:
            return self.views(raw, shape)["data"].astype(np.float32)
        rows = np.ascontiguousarray(self.blocks(raw, shape)).reshape(-1, self.block_bytes)
        if not len(rows):  # the package infers a dimension, which no blocks do not determine
            return np.empty(shape, np.float32)
        gguf = ggml_package()
        kind = gguf.GGMLQuantizationType(self.ggml_id)
        return gguf.quants.dequantize(rows, kind).reshape(shape)

    def quantise(self, values: Array) -> Array:
        """Float values, last axis whole blocks, to flat uint8 bytes, by GGML's package.
        NotImplementedError for formats that it only reads (K and IQ4)."""
        gguf = ggml_package()
        kind = gguf.GGMLQuantizationType(self.ggml_id)
        data = gguf.quants.quantize(values.astype(np.float32), kind)
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def join_fields(self, fields: Mapping[str, Array]) -> Array:
        """Inverse of `split_fields`: fields to flat uint8 bytes."""
        first = self.fields[0]
        leading = fields[first.name].shape[: -1 if first.count else None]
        parts = [
            np.ascontiguousarray(fields[f.name]).reshape(*leading, f.count or 1).view(np.uint8)
            for f in self.fields
        ]
        return np.concatenate(parts, axis=-1).reshape(-1)


def ggml_package() -> Any:
    """GGML's package `gguf`, imported when it is needed: that takes longer than reading a model,
    which does without it."""
    return import_module("gguf")


def _field_view(blocks: Array, field: Field) -> Array:
    width = field.dtype.itemsize * max(field.count, 1)
    part = blocks[..., field.offset : field.offset + width]
    # A view of a wider dtype needs a contiguous last axis, which `part` keeps.
    typed = part.view(field.dtype)
    return typed if field.count else typed[..., 0]


_DTYPES = {
    "f16": np.dtype("<f2"), "f32": np.dtype("<f4"), "bf16": np.dtype(ml_dtypes.bfloat16),
    "u8": np.dtype(np.uint8), "i8": np.dtype(np.int8),
}  # fmt: skip


def _row(name: str, ggml_id: int, block_size: int, layout: str) -> QuantFormat:
    """A table row; `layout` lists ``name:dtype`` or ``name:dtype*count`` in storage order."""
    fields: list[Field] = []
    offset = 0
    for part in layout.split():
        field_name, kind = part.split(":")
        kind, _, count = kind.partition("*")
        fields.append(Field(field_name, _DTYPES[kind], int(count or 0), offset))
        offset += _DTYPES[kind].itemsize * int(count or 1)
    return QuantFormat(name, ggml_id, block_size, offset, tuple(fields))


FORMATS: tuple[QuantFormat, ...] = (
    _row("F32", 0, 1, "data:f32"),
    _row("F16", 1, 1, "data:f16"),
    _row("BF16", 30, 1, "data:bf16"),
    _row("Q8_0", 8, 32, "d:f16 qs:i8*32"),
    _row("Q4_0", 2, 32, "d:f16 qs:u8*16"),
    _row("Q4_1", 3, 32, "d:f16 m:f16 qs:u8*16"),
    _row("Q5_0", 6, 32, "d:f16 qh:u8*4 qs:u8*16"),
    _row("Q5_1", 7, 32, "d:f16 m:f16 qh:u8*4 qs:u8*16"),
    _row("Q2_K", 10, 256, "scales:u8*16 qs:u8*64 d:f16 dmin:f16"),
    _row("Q3_K", 11, 256, "hmask:u8*32 qs:u8*64 scales:u8*12 d:f16"),
    _row("Q4_K", 12, 256, "d:f16 dmin:f16 scales:u8*12 qs:u8*128"),
    _row("Q5_K", 13, 256, "d:f16 dmin:f16 scales:u8*12 qh:u8*32 qs:u8*128"),
    _row("Q6_K", 14, 256, "ql:u8*128 qh:u8*64 scales:i8*16 d:f16"),
    _row("IQ4_NL", 20, 32, "d:f16 qs:u8*16"),
    _row("IQ4_XS", 23, 256, "d:f16 scales_h:u8*2 scales_l:u8*4 qs:u8*128"),
)

FORMAT_BY_NAME: Mapping[str, QuantFormat] = {f.name: f for f in FORMATS}
FORMAT_BY_ID: Mapping[int, QuantFormat] = {f.ggml_id: f for f in FORMATS}
