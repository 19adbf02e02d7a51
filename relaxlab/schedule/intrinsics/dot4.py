"""Dot products of four bytes: `C[n] += sum over k < 4 of A[n, k] * B[k]`, A unsigned, B signed.

`dot4_u8s8_L` has L lanes n: x86's vpdpbusd (AVX-512 VNNI, AVX-VNNI), Arm's usdot (I8MM).
`dot4_u8s8_L_FEATURE` computes the same where x86 has no such instruction, by vpmaddubsw and
vpmaddwd. Sums are exact up to wrapping around in int32. `dp4a` is one lane's, for GPUs' threads.
"""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule.tensor_intrin import Functions, declare
from relaxlab.script import tir as T

FAMILY = "dot4_u8s8"


def _desc(lanes: int) -> PrimFunc:
    @T.prim_func
    def desc(
        A: T.Buffer((lanes, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((lanes,), "int32")
    ):
        for n, k in T.grid(lanes, 4):
            C[n] += T.Cast("int32", A[n, k]) * T.Cast("int32", B[k])

    return desc


def _of_words(lanes: int, instruction: str) -> Functions:
    """x86's instruction, whose operands are words of four bytes."""
    words, count = f"int32x{lanes}", 4 * lanes

    @T.prim_func
    def impl(
        A: T.Buffer((lanes, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((lanes,), "int32")
    ):
        # Four bytes of B as one word: it is loaded and broadcast by one instruction.
        C[0:lanes] = T.call_llvm_pure_intrin(
            words,
            instruction,
            C[0:lanes],
            T.reinterpret(words, A[T.Ramp(0, 1, count) // 4, T.Ramp(0, 1, count) % 4]),
            T.Broadcast(T.reinterpret("int32", B[0:4]), lanes),
        )

    return _desc(lanes), impl


def _of_bytes(lanes: int, instruction: str) -> Functions:
    """Arm's instruction, whose operands are bytes."""
    words, bytes_, count = f"int32x{lanes}", f"int8x{4 * lanes}", 4 * lanes

    @T.prim_func
    def impl(
        A: T.Buffer((lanes, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((lanes,), "int32")
    ):
        C[0:lanes] = T.call_llvm_pure_intrin(
            words,
            instruction,
            C[0:lanes],
            A[T.Ramp(0, 1, count) // 4, T.Ramp(0, 1, count) % 4],
            T.reinterpret(bytes_, T.Broadcast(T.reinterpret("int32", B[0:4]), lanes)),
        )

    return _desc(lanes), impl


def _by_pairs(lanes: int, multiply_bytes: str, add_pairs: str) -> Functions:
    """vpmaddubsw and vpmaddwd. The former adds two products of bytes in 16 bits, and saturates; of
    only every other byte of A no sum does, as 255 * -128 fits."""
    count, pairs = 4 * lanes, 2 * lanes
    words, halves, sums = f"int32x{lanes}", f"uint16x{pairs}", f"int16x{pairs}"
    signed, unsigned = f"int8x{count}", f"uint8x{count}"

    @T.prim_func
    def impl(
        A: T.Buffer((lanes, 4), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((lanes,), "int32")
    ):
        # One expression: with values in common bound to names, LLVM orders the code of a tile in
        # another way.
        C[0:lanes] = (
            C[0:lanes]
            + T.call_llvm_pure_intrin(
                words,
                add_pairs,
                T.call_llvm_pure_intrin(
                    sums,
                    multiply_bytes,
                    T.reinterpret(
                        unsigned,
                        T.reinterpret(halves, A[T.Ramp(0, 1, count) // 4, T.Ramp(0, 1, count) % 4])
                        & T.uint16(0x00FF),
                    ),
                    T.reinterpret(signed, T.Broadcast(T.reinterpret("int32", B[0:4]), lanes)),
                ),
                T.Broadcast(T.int16(1), pairs),
            )
            + T.call_llvm_pure_intrin(
                words,
                add_pairs,
                T.call_llvm_pure_intrin(
                    sums,
                    multiply_bytes,
                    T.reinterpret(
                        unsigned,
                        T.reinterpret(halves, A[T.Ramp(0, 1, count) // 4, T.Ramp(0, 1, count) % 4])
                        & T.uint16(0xFF00),
                    ),
                    T.reinterpret(signed, T.Broadcast(T.reinterpret("int32", B[0:4]), lanes)),
                ),
                T.Broadcast(T.int16(1), pairs),
            )
        )

    return _desc(lanes), impl


def _of_a_thread() -> Functions:
    """A GPU's instruction, for one sum."""

    @T.prim_func
    def desc(A: T.Buffer((4,), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((1,), "int32")):
        for k in range(4):
            C[0] += T.Cast("int32", A[k]) * T.Cast("int32", B[k])

    @T.prim_func
    def impl(A: T.Buffer((4,), "uint8"), B: T.Buffer((4,), "int8"), C: T.Buffer((1,), "int32")):
        T.dp4a_u8s8(T.address_of(C[0]), T.address_of(A[0]), T.address_of(B[0]))

    return desc, impl


_ROWS: tuple[tuple[str, set[str], Callable[[], Functions]], ...] = (
    (f"{FAMILY}_16", {"avx512vnni"}, partial(_of_words, 16, "llvm.x86.avx512.vpdpbusd.512")),
    (f"{FAMILY}_8", {"avxvnni"}, partial(_of_words, 8, "llvm.x86.avx512.vpdpbusd.256")),
    (
        f"{FAMILY}_4", {"neon", "i8mm"},
        partial(_of_bytes, 4, "llvm.aarch64.neon.usdot.v4i32.v16i8"),
    ),
    (
        f"{FAMILY}_16_avx512bw", {"avx512bw"},
        partial(_by_pairs, 16, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ),
    (
        f"{FAMILY}_8_avx2", {"avx2"},
        partial(_by_pairs, 8, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ),
)  # fmt: skip
"""Name, features that the target needs, and code; the first that a target has is taken."""

for _name, _features, _define in _ROWS:
    declare(_name, _define, _features, FAMILY)
declare("dp4a", _of_a_thread)
