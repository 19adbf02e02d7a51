"""Times that were measured on GPUs, as NOTES.md states them, with the program of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DECODER_LAYERS = 8


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


def _at(bytes_: float, gb_s: float) -> float:
    return bytes_ / gb_s / 1e3


def _product(tflop_s: float) -> float:
    return 2 * 8192**3 / tflop_s / 1e6


WIDE, ROWS = 8192 * 8192 * 4, 8192 * 4096 * 4
STATIC = "matmul bf16 8192, static"
MEASURED = (
    # Elementwise kernels, softmax and norms of 4096 elements ran at copies' speed.
    Measured("add f32", "h100", _at(3 * WIDE, 3010)),
    Measured("add f32", "h200", _at(3 * WIDE, 4250)),
    Measured("softmax f32 8192x4096", "h100", _at(2 * ROWS, 3010)),
    Measured("rms_norm f32 8192x4096", "h100", _at(2 * ROWS, 3010)),
    Measured("transpose f32", "h200", 280),
    Measured("sum f32 all", "h100", 180),
    Measured("sum f32 axis 0", "h100", 250),
    Measured("decode bf16 1x4096 by 4096x14336", "h100", _at(14336 * 4096 * 2, 2850)),
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
    # By warpgroups.
    Measured("matmul bf16 4096", "h200", 198.7),
    Measured("matmul bf16 8192", "h200", 1515),
    Measured("matmul f16 8192", "h200", 1536),
    Measured("gelu(x@w.T+b) bf16 4096x14336x4096", "h200", 905),
    Measured("decoder, 8 layers, batch 1, BF16: a step", "h200", 1400),
    Measured("decoder, 8 layers, batch 4, BF16: a step", "h200", 2060),
)  # fmt: skip
"""Where NOTES.md gives a rate, the time is that of the bytes or operations of the case. Those of
sums and of the product of one row name no GPU: their rates are an H100's."""
