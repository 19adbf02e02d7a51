"""x86's matrix tiles (AMX): products of 32 x 32 x 32 bfloat16 values.

A buffer of scope `TILE_SCOPE` is not memory: it is the tile registers 0 to 3, 16 x 16 sums each,
which cover 32 x 32 float32 elements, left above right. Only the intrinsics here can touch it.
Registers 4 and 5 hold the operand's 32 rows, 6 and 7 its 32 columns: four loads for four products.

- `tile_zero`: C[i, j] = 0
- `tile_dot_bf16`: C[i, j] += sum over k < 32 of A[i, k] * B[j // 16, k // 2, j % 16, k % 2]
- `tile_store`: D[i, j] = C[i, j]
- `round_bf16_pairs`: 16 pairs of numbers rounded to nearest even

To the instructions (tdpbf16ps, vcvtne2ps2bf16) subnormal numbers are zero, and sums of pairs are
added in another order; the descriptions keep subnormal numbers and add in order. Results of the two
differ by roundings of float32.
"""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

from relaxlab.schedule.tensor_intrin import Functions, declare, declare_scope
from relaxlab.script import tir as T

FAMILY = "tile_dot_bf16"
TILE_SCOPE = "amx.tile"
SIZE = 32
"""Rows, columns and products of one intrinsic."""
FEATURES = frozenset({"amx-tile", "amx-bf16", "avx512bf16"})

load, dot, store = "llvm.x86.tileloadd64", "llvm.x86.tdpbf16ps", "llvm.x86.tilestored64"


def _registers() -> Functions:
    @T.prim_func
    def enter():
        # The layout that ldtilecfg reads: the palette, 15 bytes unused, bytes per row (16 bits
        # each, room for 16 registers), rows. All eight registers are alike, so that one
        # configuration serves every product of the kernel.
        layout = T.alloc_buffer((64,), "uint8", scope="local")
        layout[0:64] = T.Broadcast(T.uint8(0), 64)
        layout[0] = 1
        for register in T.unroll(8):
            layout[16 + 2 * register] = 64
            layout[48 + register] = 16
        T.call_llvm_intrin("void", "llvm.x86.ldtilecfg", T.address_of(layout[0]))

    @T.prim_func
    def leave():
        T.call_llvm_intrin("void", "llvm.x86.tilerelease")

    return enter, leave


def _zero() -> Functions:
    @T.prim_func
    def desc(C: T.Buffer((32, 32))):
        for i, j in T.grid(32, 32):
            C[i, j] = 0.0

    @T.prim_func
    def impl(C: T.Buffer((32, 32))):
        T.call_llvm_intrin("void", "llvm.x86.tilezero", T.int8(0))
        T.call_llvm_intrin("void", "llvm.x86.tilezero", T.int8(1))
        T.call_llvm_intrin("void", "llvm.x86.tilezero", T.int8(2))
        T.call_llvm_intrin("void", "llvm.x86.tilezero", T.int8(3))

    return desc, impl


def _dot() -> Functions:
    @T.prim_func
    def desc(
        C: T.Buffer((32, 32)),
        A: T.Buffer((32, 32), "bfloat16"),
        B: T.Buffer((2, 16, 16, 2), "bfloat16"),
    ):
        for i, j, k in T.grid(32, 32, 32):
            C[i, j] += T.Cast("float32", A[i, k]) * T.Cast(
                "float32", B[j // 16, k // 2, j % 16, k % 2]
            )

    @T.prim_func
    def impl(
        C: T.Buffer((32, 32)),
        A: T.Buffer((32, 32), "bfloat16"),
        B: T.Buffer((2, 16, 16, 2), "bfloat16"),
    ):
        T.call_llvm_intrin("void", load, T.int8(6), T.address_of(B[0, 0, 0, 0]), 64)
        T.call_llvm_intrin("void", load, T.int8(7), T.address_of(B[1, 0, 0, 0]), 64)
        above = T.reinterpret("int64", T.address_of(A[0, 0]))
        row = T.reinterpret("int64", T.address_of(A[1, 0])) - above
        T.call_llvm_intrin("void", load, T.int8(4), T.address_of(A[0, 0]), row)
        T.call_llvm_intrin("void", load, T.int8(5), T.address_of(A[16, 0]), row)
        T.call_llvm_intrin("void", dot, T.int8(0), T.int8(4), T.int8(6))
        T.call_llvm_intrin("void", dot, T.int8(1), T.int8(4), T.int8(7))
        T.call_llvm_intrin("void", dot, T.int8(2), T.int8(5), T.int8(6))
        T.call_llvm_intrin("void", dot, T.int8(3), T.int8(5), T.int8(7))

    return desc, impl


def _store() -> Functions:
    @T.prim_func
    def desc(D: T.Buffer((32, 32)), C: T.Buffer((32, 32))):
        for i, j in T.grid(32, 32):
            D[i, j] = C[i, j]

    @T.prim_func
    def impl(D: T.Buffer((32, 32)), C: T.Buffer((32, 32))):
        above = T.reinterpret("int64", T.address_of(D[0, 0]))
        row = T.reinterpret("int64", T.address_of(D[1, 0])) - above
        T.call_llvm_intrin("void", store, T.int8(0), T.address_of(D[0, 0]), row)
        T.call_llvm_intrin("void", store, T.int8(1), T.address_of(D[0, 16]), row)
        T.call_llvm_intrin("void", store, T.int8(2), T.address_of(D[16, 0]), row)
        T.call_llvm_intrin("void", store, T.int8(3), T.address_of(D[16, 16]), row)

    return desc, impl


def _round() -> Functions:
    """Two float32 vectors to 16 pairs of bfloat16, as a tile's row of columns has them."""
    convert = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"

    @T.prim_func
    def desc(B: T.Buffer((16, 2), "bfloat16"), A: T.Buffer((2, 16))):
        for i, j in T.grid(16, 2):
            B[i, j] = T.Cast("bfloat16", A[j, i])

    @T.prim_func
    def impl(B: T.Buffer((16, 2), "bfloat16"), A: T.Buffer((2, 16))):
        B[T.Ramp(0, 1, 32) % 16, T.Ramp(0, 1, 32) // 16] = T.call_llvm_pure_intrin(
            "bfloat16x32", convert, A[1, 0:16], A[0, 0:16]
        )

    return desc, impl


declare_scope(TILE_SCOPE, _registers)
declare("tile_zero", _zero, FEATURES)
declare("tile_dot_bf16", _dot, FEATURES, FAMILY)
declare("tile_store", _store, FEATURES)
declare("round_bf16_pairs", _round, FEATURES)
