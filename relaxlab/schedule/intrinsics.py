"""Tensor intrinsics: dot products by target feature, and sums across lanes.

`reduce_OP_DTYPE_L` folds L lanes into one value, `C = C op A[0] op A[1] …`, pairwise.
`dot4_u8s8_L` computes, for L lanes n, `C[n] += sum over k < 4 of A[n, k] * B[k]` with unsigned A
and signed B: x86's vpdpbusd (AVX-512 VNNI, AVX-VNNI), Arm's usdot (I8MM).
`dot2_bf16_16` computes `C[n] += sum over k < 2 of A[n, k] * B[k]` with bfloat16 A and B, float32 C:
x86's vdpbf16ps, to which subnormal numbers are zero.
"""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import Broadcast, Call, Cast, PrimExpr, Ramp, StringImm, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc, Range
from relaxlab.ir.target import Target
from relaxlab.schedule.tensor_intrin import TensorIntrin

ZERO = const(0)


def _buffers(lanes: int) -> tuple[Buffer, Buffer, Buffer]:
    a = Buffer("A", (const(lanes), const(4)), "uint8")
    b = Buffer("B", (const(4),), "int8")
    c = Buffer("C", (const(lanes),), "int32")
    return a, b, c


def _pairs(lanes: int) -> tuple[Buffer, Buffer, Buffer]:
    a = Buffer("A", (const(lanes), const(2)), "bfloat16")
    b = Buffer("B", (const(2),), "bfloat16")
    c = Buffer("C", (const(lanes),), "float32")
    return a, b, c


def _block(body: loops.Stmt, a: Buffer, b: Buffer, c: Buffer) -> loops.Stmt:
    def whole(buffer: Buffer) -> BufferRegion:
        return BufferRegion(buffer, tuple(Range(ZERO, d) for d in buffer.shape))

    block = loops.Block("root", (), (whole(c), whole(a), whole(b)), (whole(c),), body)
    return loops.BlockRealize((), expr.IntImm(1, "bool"), block)


def _dot_desc(a: Buffer, b: Buffer, c: Buffer) -> PrimFunc:
    """C[n] += sum over k of A[n, k] * B[k]"""
    lanes, count = a.shape
    n, k, vn, vk = Var("n"), Var("k"), Var("vn"), Var("vk")
    left, right = BufferLoad(a, (vn, vk)), BufferLoad(b, (vk,))
    product = Cast(c.dtype, left) * Cast(c.dtype, right)
    update = BufferStore(c, BufferLoad(c, (vn,)) + product, (vn,))
    one = const(1)
    inner = loops.Block(
        "update",
        (
            loops.IterVar(vn, Range(ZERO, lanes), "spatial"),
            loops.IterVar(vk, Range(ZERO, count), "reduce"),
        ),
        (
            BufferRegion(c, (Range(vn, one),)),
            BufferRegion(a, (Range(vn, one), Range(vk, one))),
            BufferRegion(b, (Range(vk, one),)),
        ),
        (BufferRegion(c, (Range(vn, one),)),),
        update,
    )
    realize = loops.BlockRealize((n, k), expr.IntImm(1, "bool"), inner)
    nest = loops.For(k, ZERO, count, "serial", realize)
    return PrimFunc((a, b, c), _block(loops.For(n, ZERO, lanes, "serial", nest), a, b, c))


def _dot4_impl(lanes: int, instruction: str) -> PrimFunc:
    a, b, c = _buffers(lanes)
    acc = (Ramp(ZERO, const(1), lanes),)
    flat = Ramp(ZERO, const(1), 4 * lanes)
    four = Broadcast(const(4), 4 * lanes)
    bytes_of_a = BufferLoad(a, (expr.FloorDiv(flat, four), expr.FloorMod(flat, four)))
    bytes_of_b = BufferLoad(b, (Ramp(ZERO, const(1), 4),))
    ints = f"int32x{lanes}"
    of_a: PrimExpr = bytes_of_a
    of_b: PrimExpr = Broadcast(Call("int32", "reinterpret", (bytes_of_b,)), lanes)
    if "aarch64" in instruction:  # takes bytes, x86's take words of four
        of_b = Call(f"int8x{4 * lanes}", "reinterpret", (of_b,))
    else:
        of_a = Call(ints, "reinterpret", (of_a,))
    words: tuple[PrimExpr, ...] = (StringImm(instruction), BufferLoad(c, acc), of_a, of_b)
    update = BufferStore(c, Call(ints, "llvm_intrin", words), acc)
    return PrimFunc((a, b, c), _block(update, a, b, c))


_DOT4 = (
    (16, "llvm.x86.avx512.vpdpbusd.512", frozenset({"avx512vnni"})),
    (8, "llvm.x86.avx512.vpdpbusd.256", frozenset({"avxvnni"})),
    (4, "llvm.aarch64.neon.usdot.v4i32.v16i8", frozenset({"neon", "i8mm"})),
)
for _lanes, _instruction, _features in _DOT4:
    TensorIntrin.register(
        f"dot4_u8s8_{_lanes}", _dot_desc(*_buffers(_lanes)), _dot4_impl(_lanes, _instruction),
        _features,
    )  # fmt: skip

DOT2_LANES = 16
"""float32 sums of one `vdpbf16ps`: the lanes of a 512-bit vector."""
_DOT2 = frozenset({"avx512f", "avx512bf16"})


def _dot2_impl() -> PrimFunc:
    a, b, c = _pairs(DOT2_LANES)
    acc, flat = (Ramp(ZERO, const(1), n * DOT2_LANES) for n in (1, 2))
    two, words = Broadcast(const(2), 2 * DOT2_LANES), f"int32x{DOT2_LANES}"
    of_a = BufferLoad(a, (expr.FloorDiv(flat, two), expr.FloorMod(flat, two)))
    of_b = Call("int32", "reinterpret", (BufferLoad(b, (Ramp(ZERO, const(1), 2),)),))
    args: tuple[PrimExpr, ...] = (
        StringImm("llvm.x86.avx512bf16.dpbf16ps.512"),
        BufferLoad(c, (acc,)),
        Call(words, "reinterpret", (of_a,)),
        Broadcast(of_b, DOT2_LANES),
    )
    update = BufferStore(c, Call(f"float32x{DOT2_LANES}", "llvm_intrin", args), (acc,))
    return PrimFunc((a, b, c), _block(update, a, b, c))


TensorIntrin.register(
    f"dot2_bf16_{DOT2_LANES}", _dot_desc(*_pairs(DOT2_LANES)), _dot2_impl(), _DOT2
)


FOLDED = ("float32", "float64", "int32", "int64")
"""The dtypes whose lanes intrinsics fold: half precision is accumulated in float32."""


def _reduce(op: type[expr.BinaryOp], vector: str, dtype: str, lanes: int) -> TensorIntrin:
    """Register the folding of `lanes` lanes of `dtype`."""

    def func(body: Callable[[Buffer, Buffer], loops.Stmt]) -> PrimFunc:
        a, c = Buffer("A", (const(lanes),), dtype), Buffer("C", (), dtype)
        whole = (BufferRegion(a, (Range(ZERO, const(lanes)),)), BufferRegion(c, ()))
        block = loops.Block("root", (), whole, whole[1:], body(a, c))
        return PrimFunc((a, c), loops.BlockRealize((), expr.IntImm(1, "bool"), block))

    def described(a: Buffer, c: Buffer) -> loops.Stmt:
        i, vi = Var("i"), Var("vi")
        update = BufferStore(c, op(BufferLoad(c, ()), BufferLoad(a, (vi,))), ())
        axis = loops.IterVar(vi, Range(ZERO, const(lanes)), "reduce")
        one = BufferRegion(a, (Range(vi, const(1)),))
        block = loops.Block(
            "update", (axis,), (BufferRegion(c, ()), one), (BufferRegion(c, ()),), update
        )
        realize = loops.BlockRealize((i,), expr.IntImm(1, "bool"), block)
        return loops.For(i, ZERO, const(lanes), "serial", realize)

    def implemented(a: Buffer, c: Buffer) -> loops.Stmt:
        folded = Call(dtype, vector, (BufferLoad(a, (Ramp(ZERO, const(1), lanes),)),))
        return BufferStore(c, op(BufferLoad(c, ()), folded), ())

    return TensorIntrin.register(
        f"reduce_{op.__name__.lower()}_{dtype}_{lanes}", func(described), func(implemented)
    )


for _lanes in (4, 8, 16, 32, 64):
    for _dtype in FOLDED:
        _reduce(expr.Add, "vector_reduce_add", _dtype, _lanes)
        _reduce(expr.Max, "vector_reduce_max", _dtype, _lanes)
        _reduce(expr.Min, "vector_reduce_min", _dtype, _lanes)


def dot4_lanes(target: Target) -> int | None:
    """Lanes of the widest dot4_u8s8 intrinsic the target has, or None."""
    for lanes, _, features in _DOT4:
        if features <= target.features:
            return lanes
    return None


def has_dot2(target: Target) -> bool:
    """True if the target has `dot2_bf16_16`."""
    return target.features >= _DOT2
