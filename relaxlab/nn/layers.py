"""The layers: linear maps of plain and quantised weights, embeddings, norms, MLPs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relaxlab.ir import expr
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.errors import expect_number
from relaxlab.ir.names import among
from relaxlab.nn.builder import FunctionBuilder, Parameter, Tensor
from relaxlab.nn.initial import Initialiser, normal, ones, uniform_fan_in, zeros
from relaxlab.nn.module import Module, ModuleList
from relaxlab.ops.block_formats import FORMATS
from relaxlab.ops.define import builder as operator

Activations: TypeAlias = Literal["float32", "bfloat16", "q8", "q16"]

PARTS = {"q8": 1, "q16": 2}
"""The number of 8-bit integers that represent one quantised activation."""

Activation: TypeAlias = Literal["silu", "gelu", "gelu_tanh"]
"""The nonlinearities of MLPs; `gelu_tanh` is the approximation by a tanh."""

PLAIN_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The formats without blocks, which store one array `data`."""


@methods_name_arguments
class Weight(Module):
    """A matrix (rows, cols) in a storage format: plain (`F32`, `F16`, `BF16`), or one of
    `ops.block_formats.FORMATS`, whose fields are one parameter each."""

    def __init__(
        self, rows: int, cols: int, format: str, initial: Initialiser | None = None
    ) -> None:
        """`initial` draws the values of a plain matrix. ValueError for an unknown format, or
        columns that do not fill its blocks."""
        self.rows, self.cols, self.format = rows, cols, format
        if format in PLAIN_DTYPES:
            self.data = Parameter((rows, cols), PLAIN_DTYPES[format], initial)
            return
        if format not in FORMATS:
            known = among(format, [*PLAIN_DTYPES, *FORMATS])
            raise ValueError(f"unknown weight format {format!r}; known: {known}")
        fmt = FORMATS[format]
        if cols % fmt.block:
            raise ValueError(f"{cols} columns do not fill the blocks of {fmt.block} of {format}")
        for name, dtype, tail in fmt.fields:
            setattr(self, name, Parameter((rows, cols // fmt.block, *tail), dtype))

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the stored arrays."""
        if self.format in PLAIN_DTYPES:
            return ("data",)
        return tuple(name for name, _, _ in FORMATS[self.format].fields)

    def tensors(self, function: FunctionBuilder) -> list[Tensor]:
        """The stored arrays in `function`."""
        return [function.weight(vars(self)[name]) for name in self.fields]

    def dense(self, function: FunctionBuilder, dtype: str = "float32") -> Tensor:
        """The matrix as `dtype`."""
        stored = self.tensors(function)
        plain = self.format in PLAIN_DTYPES
        return (stored[0] if plain else _decoded(stored, self.format)).astype(dtype)

    def take(self, ids: Tensor) -> Tensor:
        """ids int32 (m,) -> float32 (m, cols): those rows."""
        if self.format in PLAIN_DTYPES:
            (stored,) = self.tensors(ids.builder)
            return stored.op("take", ids, axis=0).astype("float32")
        return self.dense(ids.builder).op("take", ids, axis=0)


def _decoded(fields: Sequence[Tensor], format: str) -> Tensor:
    """The matrix of stored arrays, or of whole blocks."""
    call = operator("decode_blocks")(tuple(f.var for f in fields), format=format)
    return fields[0].builder.emit(call, f"decode_{format}")


@dataclass(frozen=True, slots=True)
class Precision:
    """The arithmetic of products by quantised weights: with activations in float32; with both
    rounded to bfloat16; or with activations quantised to 8 ("q8") or 15 bits ("q16") per group of
    weights and integer products. Sums are float32.

    one: for a single row, which waits for memory. few: where at most `FEW_ROWS` rows are possible,
    for which decoding the weights takes longer than multiplying; None: as `several`. several: for
    any other number of rows. plain: "bfloat16" rounds the activations that plain bfloat16 weights
    are multiplied by; other plain weights are multiplied in float32 in any case. queries: "cache"
    rounds those of attention to the dtype of the cached keys, so that tensor cores can multiply
    them.
    """

    one: Activations = "float32"
    several: Activations = "float32"
    few: Activations | None = None
    plain: Literal["float32", "bfloat16"] = "float32"
    queries: Literal["float32", "cache"] = "float32"

    def of(self, most: int | None) -> Activations:
        """Return the format of activations for at most `most` rows; None: any number."""
        if most is not None and most <= FEW_ROWS:
            return self.one if most == 1 else self.few or self.several
        return self.several


FEW_ROWS = 32
"""Most rows for which integer products are faster than tiles of bfloat16, into which decoding the
weights took 25 ms however few rows there are (NOTES, *Batches*)."""

FLOAT32 = Precision()


@methods_name_arguments
class Linear(Module):
    """y = x @ W.T (+ bias) for x float32 (..., in_features), in a `Precision`. Quantised
    activations are those of rows, (m, in_features)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        format: str = "F32",
        precision: Precision = FLOAT32,
        weight: Weight | None = None,
        bias: bool = False,
    ) -> None:
        """`weight` shares the matrix of another layer."""
        expect_number(in_features, "in_features is a number")  # the weight checks that it is whole
        initial = uniform_fan_in(in_features)
        self.weight = weight or Weight(out_features, in_features, format, initial)
        self.bias = Parameter((out_features,), initial=initial) if bias else None
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        y = self._product(x)
        return y if self.bias is None else y + x.builder.weight(self.bias)

    def _product(self, x: Tensor) -> Tensor:
        rows = math.prod(x.shape[:-1], start=expr.const(1))
        w, activations = self.weight, self.precision.of(x.builder.most(rows))
        if w.format in PLAIN_DTYPES:
            activations = self.precision.plain if w.format == "BF16" else "float32"
        if activations == "float32":
            return x.op("linear", w.dense(x.builder))
        if activations == "bfloat16":
            weight = w.dense(x.builder, "bfloat16")
            return x.astype("bfloat16").op("linear", weight, out_dtype="float32")
        parts, group = PARTS[activations], FORMATS[w.format].group
        integers = x.builder.emit_tuple(
            operator("dynamic_quantize")(x.var, group=group, parts=parts), f"x_{activations}"
        )
        fields = tuple(f.var for f in w.tensors(x.builder))
        call = operator("quantized_linear")(
            *(t.var for t in integers), fields, format=w.format, parts=parts
        )
        return x.builder.emit(call, f"dot_{activations}")


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns `first` .. `first + count` of a tensor (m, n): one part of a merged projection."""

    tensor: Tensor
    first: int
    count: int

    def whole(self) -> Tensor:
        """The columns as a tensor of their own."""
        if self.count == self.tensor.shape[-1].value:  # type: ignore[attr-defined]
            return self.tensor
        ends = {"axes": (1,), "begin": (self.first,), "end": (self.first + self.count,)}
        return self.tensor.op("strided_slice", **ends)


@methods_name_arguments
class MergedLinear(Module):
    """Several linear maps of one input as few larger ones: neighbours whose weights have the same
    format are one matrix, their rows below each other. `groups` says which."""

    def __init__(
        self,
        in_features: int,
        parts: Mapping[str, int],
        formats: Mapping[str, str],
        precision: Precision = FLOAT32,
        *,
        bias: bool = False,
    ) -> None:
        """`parts` gives each part's number of output features, `formats` its weight format."""
        self.parts = dict(parts)
        self.groups: list[list[str]] = []
        for part in parts:
            if self.groups and formats[self.groups[-1][0]] == formats[part]:
                self.groups[-1].append(part)
            else:
                self.groups.append([part])
        self.linears = ModuleList(
            [
                Linear(
                    in_features,
                    sum(parts[p] for p in group),
                    format=formats[group[0]],
                    precision=precision,
                    bias=bias,
                )
                for group in self.groups
            ]
        )

    def forward(self, x: Tensor) -> dict[str, Columns]:
        found: dict[str, Columns] = {}
        for group, linear in zip(self.groups, self.linears, strict=True):
            y, first = linear(x), 0
            for part in group:
                found[part] = Columns(y, first, self.parts[part])
                first += self.parts[part]
        return found


@methods_name_arguments
class Embedding(Module):
    """Rows of a matrix (count, features) by id, as float32."""

    def __init__(self, count: int, features: int, *, format: str = "F32") -> None:
        self.weight = Weight(count, features, format, normal)

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight.take(ids)


@methods_name_arguments
class BlockEmbedding(Module):
    """Rows of a quantised matrix (count, features) by id, as float32, decoded from whole blocks as
    a file has them: `blocks` uint8 (count, features / block, bytes). Rows that are never looked up
    stay in the file."""

    def __init__(self, count: int, features: int, format: str) -> None:
        """`format` is one of `FORMATS`."""
        fmt = FORMATS[format]
        self.format, self.count, self.features = format, count, features
        self.blocks = Parameter((count, features // fmt.block, fmt.storage.block_bytes), "uint8")

    def forward(self, ids: Tensor) -> Tensor:
        blocks = ids.builder.weight(self.blocks)
        return _decoded([blocks], self.format).op("take", ids, axis=0)


@methods_name_arguments
class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        self.weight, self.eps = Parameter((features,), initial=ones), eps

    def forward(self, x: Tensor) -> Tensor:
        return x.op("nn.rms_norm", x.builder.weight(self.weight), axes=-1, epsilon=self.eps)


@methods_name_arguments
class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        self.weight, self.eps = Parameter((features,), initial=ones), eps
        self.bias = Parameter((features,), initial=zeros)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = x.builder.weight(self.weight), x.builder.weight(self.bias)
        return x.op("nn.layer_norm", weight, bias, axes=-1, epsilon=self.eps)


@methods_name_arguments
class Conv1d(Module):
    """A convolution along the positions of x (b, t, inputs), which gives (b, t', outputs): for
    each position the sum over `kernel` neighbours, weight (outputs, inputs, kernel), plus a bias.

    Every `stride`-th position is computed; `padding` zeros are assumed on either side.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0
    ) -> None:
        initial = uniform_fan_in(inputs * kernel)
        self.weight = Parameter((outputs, inputs, kernel), initial=initial)
        self.bias = Parameter((outputs,), initial=initial)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = x.builder.weight(self.weight), x.builder.weight(self.bias)
        window = {"strides": self.stride, "padding": self.padding}
        return x.op("nn.conv1d", weight, data_layout="NWC", **window) + bias


@methods_name_arguments
class MLP(Module):
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        self.up, self.down, self.activation = up, down, activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).op(f"nn.{self.activation}"))


@methods_name_arguments
class GatedMLP(Module):
    """down(activation(gate(x)) * up(x)); `gate_up` has the parts `gate` and `up`."""

    def __init__(
        self, gate_up: MergedLinear, down: Linear, activation: Activation = "silu"
    ) -> None:
        self.gate_up, self.down, self.activation = gate_up, down, activation

    def forward(self, x: Tensor) -> Tensor:
        parts = self.gate_up(x)
        gate, up = parts["gate"].whole(), parts["up"].whole()
        return self.down(gate.op(f"nn.{self.activation}") * up)
