"""Dot products of two bfloat16 values: `C[n] += sum over k < 2 of A[n, k] * B[k]`, C float32.

`dot2_bf16_16` is x86's vdpbf16ps. It adds the second product first and takes subnormal numbers,
also among its results, as zero; the description adds in order and keeps them, as machines without
the instruction do. Results of the two differ by roundings of float32.
"""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

from relaxlab.schedule.tensor_intrin import Functions, declare
from relaxlab.script import tir as T

FAMILY = "dot2_bf16"
LANES = 16
"""float32 sums of one `vdpbf16ps`: the lanes of a 512-bit vector."""


def _define() -> Functions:
    instruction = "llvm.x86.avx512bf16.dpbf16ps.512"

    @T.prim_func
    def desc(
        A: T.Buffer((16, 2), "bfloat16"), B: T.Buffer((2,), "bfloat16"), C: T.Buffer((16,))
    ):  # fmt: skip
        for n, k in T.grid(16, 2):
            C[n] += T.Cast("float32", A[n, k]) * T.Cast("float32", B[k])

    @T.prim_func
    def impl(
        A: T.Buffer((16, 2), "bfloat16"), B: T.Buffer((2,), "bfloat16"), C: T.Buffer((16,))
    ):  # fmt: skip
        C[0:16] = T.call_llvm_pure_intrin(
            "float32x16",
            instruction,
            C[0:16],
            T.reinterpret("int32x16", A[T.Ramp(0, 1, 32) // 2, T.Ramp(0, 1, 32) % 2]),
            T.Broadcast(T.reinterpret("int32", B[0:2]), 16),
        )

    return desc, impl


declare(f"{FAMILY}_{LANES}", _define, {"avx512f", "avx512bf16"}, FAMILY)
