"""Times that were measured on GPUs, as NOTES.md states them, with the program of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DECODER_LAYERS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel or a decoder's step on `gpu`: a case of `cases.py`, or a product of 8192 x 8192
    matrices of bfloat16 by `mma.sync` with `decisions`. `us` are microseconds."""

    case: str
    gpu: str
    us: float
    decisions: Mapping[str, int] | None = field(default=None)

    @property
    def label(self) -> str:
        """The case with its decisions."""
        chosen = ", ".join(f"{k} {v}" for k, v in (self.decisions or {}).items())
        return f"{self.case}{f' ({chosen})' if chosen else ''}"


def _product(tflop_s: float) -> float:
    return 2 * 8192**3 / tflop_s / 1e6


STATIC = "matmul bf16 8192, static"
H200 = {
    "add f32": 185.3,
    "gelu(x)*y f32": 185.8,
    "relu(x+bias) f32": 129.3,
    "transpose f32": 134.1,
    "add bf16": 94.6,
    "gelu(x)*y bf16": 107.6,
    "relu(x+bias) bf16": 65.7,
    "transpose bf16": 69.2,
    "add f32 odd, symbolic": 185.7,
    "cast f32 bf16": 96.4,
    "softmax f32 8192x4096": 67.6,
    "rms_norm f32 8192x4096": 68.2,
    "layer_norm f32 8192x4096": 69.3,
    "softmax f32 65536x512": 66.7,
    "rms_norm f32 65536x512": 67.2,
    "layer_norm f32 65536x512": 68.8,
    "softmax f32 4096x32000": 263.4,
    "softmax bf16 16384x4096": 67.3,
    "rms_norm bf16 16384x4096": 68.2,
    "layer_norm bf16 16384x4096": 69.0,
    "sum f32 axis 0": 123.4,
    "sum f32 axis 1": 118.0,
    "sum f32 all": 127.0,
    "max f32 axis 1": 118.0,
    "decode bf16 1x4096 by 4096x14336": 31.2,
    "decode f32 1x4096 by 4096x14336": 55.0,
    "decode bf16 1x14336 by 14336x4096": 29.7,
    "decode f32 1x14336 by 14336x4096": 56.0,
    "decode bf16 1x4096 by 4096x128256": 238.4,
    "decode f32 1x4096 by 4096x128256": 457.1,
    "decode q4 float32 1x4096 by 4096x14336": 22.4,
    "decode q4 float32 1x14336 by 14336x4096": 36.2,
    "matmul bf16 1024": 9.0,
    "matmul bf16 4096": 197.1,
    "matmul bf16 8192": 1617.0,
    "matmul f16 8192": 1532.8,
    "matmul bf16 8191x8193x8190": 1829.9,
    "matmul bf16 16x4096x14336": 36.9,
    "matmul bf16 64x4096x14336": 37.3,
    "matmul bf16 128x14336x4096": 45.6,
    "matmul f32 4096": 3264.0,
    "gelu(x@w.T+b) bf16 4096x14336x4096": 861.3,
    "attention bf16 4x4096x32x128": 2197.7,
    "attention bf16 4x4096x32x128 causal": 1170.5,
    "attention kv f16 1024 of 1024 32x128 by 8": 77.7,
    "attention kv f16 1024 of 4096 32x128 by 8": 311.4,
    "attention kv f16 8 of 4096 32x128 by 8": 30.4,
    "attention kv f16 8 of 16384 32x128 by 8": 82.5,
    "decoder, 4 layers, batch 1, BF16: a step": 793,
    "decoder, 4 layers, batch 1, BF16: a prompt of 1024": 3879,
}
"""Microseconds of `bench_gpu` and `bench_gpu_models` on an H200, in two runs; without rows of 4095,
whose kernels have changed since."""
MEASURED = (
    *(Measured(case, "h200", us) for case, us in H200.items()),
    Measured("add f32", "h100", 3 * 8192 * 8192 * 4 / 3010e3),
    Measured(STATIC, "h200", _product(401), {}),
    Measured(STATIC, "h200", _product(369), {"block_rows": 128}),
    Measured(STATIC, "h200", _product(319), {"block_rows": 128, "block_terms": 32}),
    Measured(
        STATIC, "h100", _product(322),
        {"block_rows": 128, "block_terms": 32, "warp_rows": 2, "warp_cols": 2,
         "pipeline_stages": 4, "fragments_ahead": False},
    ),
    Measured(
        STATIC, "h100", _product(294),
        {"block_rows": 128, "block_terms": 32, "warp_rows": 2, "warp_cols": 4,
         "pipeline_stages": 4, "fragments_ahead": False},
    ),
)  # fmt: skip
"""Where NOTES.md gives a rate, the time is that of the operations of the case."""
