"""Tensor intrinsics: dot products by target feature, and reductions across lanes.

`reduce_OP_DTYPE_L` folds L lanes into one value, `C = C op A[0] op A[1] …`, pairwise.
`dot4_u8s8_L` computes, for L lanes n, `C[n] += sum over k < 4 of A[n, k] * B[k]` with unsigned A
and signed B: x86's vpdpbusd (AVX-512 VNNI, AVX-VNNI), Arm's usdot (I8MM). `dot4_u8s8_L_FEATURE`
computes the same where x86 has no such instruction, by vpmaddubsw and vpmaddwd.
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


Dot4 = Callable[[int, PrimExpr, PrimExpr, PrimExpr], PrimExpr]
"""The sums of L lanes after a step, from L, the sums before, 4L unsigned bytes, and four signed
bytes as one word."""


def _dot4_impl(lanes: int, step: Dot4) -> PrimFunc:
    a, b, c = _buffers(lanes)
    acc = (Ramp(ZERO, const(1), lanes),)
    flat = Ramp(ZERO, const(1), 4 * lanes)
    four = Broadcast(const(4), 4 * lanes)
    bytes_of_a = BufferLoad(a, (expr.FloorDiv(flat, four), expr.FloorMod(flat, four)))
    # Four bytes as one word: it is loaded and broadcast by one instruction.
    word = Call("int32", "reinterpret", (BufferLoad(b, (Ramp(ZERO, const(1), 4),)),))
    update = BufferStore(c, step(lanes, BufferLoad(c, acc), bytes_of_a, word), acc)
    return PrimFunc((a, b, c), _block(update, a, b, c))


def _of_words(instruction: str) -> Dot4:
    """x86's instruction, whose operands are words of four bytes."""

    def step(lanes: int, sums: PrimExpr, a: PrimExpr, word: PrimExpr) -> PrimExpr:
        ints = f"int32x{lanes}"
        words = Call(ints, "reinterpret", (a,))
        args = (StringImm(instruction), sums, words, Broadcast(word, lanes))
        return Call(ints, "llvm_intrin", args)

    return step


def _of_bytes(instruction: str) -> Dot4:
    """Arm's instruction, whose operands are bytes."""

    def step(lanes: int, sums: PrimExpr, a: PrimExpr, word: PrimExpr) -> PrimExpr:
        b = Call(f"int8x{4 * lanes}", "reinterpret", (Broadcast(word, lanes),))
        return Call(f"int32x{lanes}", "llvm_intrin", (StringImm(instruction), sums, a, b))

    return step


def _by_pairs(multiply_bytes: str, add_pairs: str) -> Dot4:
    """vpmaddubsw and vpmaddwd. The former adds two products of bytes in 16 bits, and saturates; of
    only every other byte of `a` no sum does, as 255 * -128 fits."""

    def step(lanes: int, sums: PrimExpr, a: PrimExpr, word: PrimExpr) -> PrimExpr:
        b = Call(f"int8x{4 * lanes}", "reinterpret", (Broadcast(word, lanes),))
        pairs = Call(f"uint16x{2 * lanes}", "reinterpret", (a,))
        ones = Broadcast(const(1, "int16"), 2 * lanes)
        for mask in (0x00FF, 0xFF00):
            every_other = expr.BitAnd(pairs, Broadcast(const(mask, "uint16"), 2 * lanes))
            some = Call(f"uint8x{4 * lanes}", "reinterpret", (every_other,))
            name = StringImm(multiply_bytes)
            products = Call(f"int16x{2 * lanes}", "llvm_intrin", (name, some, b))
            words = Call(f"int32x{lanes}", "llvm_intrin", (StringImm(add_pairs), products, ones))
            sums = expr.Add(sums, words)
        return sums

    return step


_DOT4: tuple[tuple[str, int, frozenset[str], Dot4], ...] = (
    ("dot4_u8s8_16", 16, frozenset({"avx512vnni"}), _of_words("llvm.x86.avx512.vpdpbusd.512")),
    ("dot4_u8s8_8", 8, frozenset({"avxvnni"}), _of_words("llvm.x86.avx512.vpdpbusd.256")),
    (
        "dot4_u8s8_4", 4, frozenset({"neon", "i8mm"}),
        _of_bytes("llvm.aarch64.neon.usdot.v4i32.v16i8"),
    ),
    (
        "dot4_u8s8_16_avx512bw", 16, frozenset({"avx512bw"}),
        _by_pairs("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ),
    (
        "dot4_u8s8_8_avx2", 8, frozenset({"avx2"}),
        _by_pairs("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ),
)  # fmt: skip
"""Name, lanes, features that the target needs, and code; the first that a target has is taken."""

for _name, _lanes, _features, _step in _DOT4:
    TensorIntrin.register(_name, _dot_desc(*_buffers(_lanes)), _dot4_impl(_lanes, _step), _features)

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


FOLDED = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64")
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
        _reduce(expr.Mul, "vector_reduce_mul", _dtype, _lanes)
        _reduce(expr.Max, "vector_reduce_max", _dtype, _lanes)
        _reduce(expr.Min, "vector_reduce_min", _dtype, _lanes)


def dot4_of(target: Target) -> tuple[str, int] | None:
    """The name and the lanes of the best dot4_u8s8 intrinsic that the target has, or None."""
    for name, lanes, features, _ in _DOT4:
        if features <= target.features:
            return name, lanes
    return None


def has_dot2(target: Target) -> bool:
    """True if the target has `dot2_bf16_16`."""
    return target.features >= _DOT2
