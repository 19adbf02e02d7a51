"""Tensor intrinsics of x86's matrix tiles (AMX): products of 32 x 32 x 32 bfloat16 values.

A buffer of scope `TILE_SCOPE` is not memory: it is the tile registers 0 to 3, 16 x 16 sums each,
which cover 32 x 32 float32 elements, left above right. Only the intrinsics here can touch it.
Registers 4 and 5 hold the operand's 32 rows, 6 and 7 its 32 columns: four loads for four products.
The code generator configures the registers for a kernel that has such a buffer.

- `tile_zero`: C[i, j] = 0
- `tile_dot_bf16`: C[i, j] += sum over k < 32 of A[i, k] * B[j // 16, k // 2, j % 16, k % 2]
- `tile_store`: D[i, j] = C[i, j]
- `round_bf16_pairs`: 16 pairs of numbers rounded to nearest even, subnormal ones to zero

The product rounds like its instruction (tdpbf16ps): sums in float32, subnormal numbers are zero.
"""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import Call, Cast, PrimExpr, Ramp, StringImm, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc, Range
from relaxlab.ir.target import Target
from relaxlab.schedule.tensor_intrin import TensorIntrin

TILE_SCOPE = "amx.tile"
SIZE = 32
"""Rows, columns and products of one intrinsic."""
FEATURES = frozenset({"amx-tile", "amx-bf16", "avx512bf16"})
ZERO, ONE = const(0), const(1)
Axes = tuple[Var, ...]
_QUARTERS = tuple((row, col) for row in (0, 1) for col in (0, 1))


def has_tiles(target: Target) -> bool:
    """True if the target has bfloat16 matrix tiles."""
    return target.features >= FEATURES


def _function(params: tuple[Buffer, ...], body: loops.Stmt, reads: tuple[Buffer, ...]) -> PrimFunc:
    """A tensor intrinsic's function; the first parameter is written."""

    def whole(buffer: Buffer) -> BufferRegion:
        return BufferRegion(buffer, tuple(Range(ZERO, d) for d in buffer.shape))

    block = loops.Block("root", (), tuple(map(whole, reads)), (whole(params[0]),), body)
    return PrimFunc(params, loops.BlockRealize((), expr.IntImm(1, "bool"), block))


def _described(
    params: tuple[Buffer, ...],
    extents: tuple[int, ...],
    body: Callable[[Axes], BufferStore],
    reads: tuple[Callable[[Axes], BufferLoad], ...] = (),
) -> PrimFunc:
    """Return a function of one block over axes of these extents; the third, if there is one, is
    reduced."""
    axes = tuple(Var(f"v{name}") for name in "ijk"[: len(extents)])
    outer = [Var(name) for name in "ijk"[: len(extents)]]
    store = body(axes)

    def element(access: BufferLoad | BufferStore) -> BufferRegion:
        return BufferRegion(access.buffer, tuple(Range(i, ONE) for i in access.indices))

    block = loops.Block(
        "update",
        tuple(
            loops.IterVar(v, Range(ZERO, const(e)), "reduce" if at == 2 else "spatial")
            for at, (v, e) in enumerate(zip(axes, extents, strict=True))
        ),
        tuple(element(read(axes)) for read in reads),
        (element(store),),
        store,
    )
    nest: loops.Stmt = loops.BlockRealize(tuple(outer), expr.IntImm(1, "bool"), block)
    for var, extent in reversed(list(zip(outer, extents, strict=True))):
        nest = loops.For(var, ZERO, const(extent), "serial", nest)
    return _function(params, nest, tuple(read(axes).buffer for read in reads))


def _address(buffer: Buffer, *index: int) -> PrimExpr:
    return Call("handle", "address_of", (BufferLoad(buffer, tuple(map(const, index))),))


def _stride(buffer: Buffer) -> PrimExpr:
    """Bytes from one row of the last two dimensions to the next."""
    lead = (0,) * (buffer.ndim - 2)
    low, high = (Call("int64", "reinterpret", (_address(buffer, *lead, r, 0),)) for r in (0, 1))
    return expr.Sub(high, low)


def _instruction(name: str, *args: PrimExpr | int) -> loops.Stmt:
    """A tile instruction; numbers are registers."""
    given = (const(a, "int8") if isinstance(a, int) else a for a in args)
    return loops.Evaluate(Call("void", "llvm_intrin", (StringImm(f"llvm.x86.{name}"), *given)))


def _matrix(name: str) -> Buffer:
    return Buffer(name, (const(SIZE), const(SIZE)), "float32")


def _zero() -> None:
    c = _matrix("C")
    zero = const(0.0, "float32")
    desc = _described((c,), (SIZE, SIZE), lambda at: BufferStore(c, zero, at))
    impl = loops.seq(*(_instruction("tilezero", t) for t in range(4)))
    TensorIntrin.register("tile_zero", desc, _function((c,), impl, ()), FEATURES)


def _dot() -> None:
    c = _matrix("C")
    a = Buffer("A", (const(SIZE), const(SIZE)), "bfloat16")
    b = Buffer("B", (const(2), const(16), const(16), const(2)), "bfloat16")

    def left(at: Axes) -> BufferLoad:
        i, _, k = at
        return BufferLoad(a, (i, k))

    def right(at: Axes) -> BufferLoad:
        _, j, k = at
        return BufferLoad(b, (j // 16, k // 2, j % 16, k % 2))

    def total(at: Axes) -> BufferLoad:
        return BufferLoad(c, at[:2])

    def update(at: Axes) -> BufferStore:
        product = Cast("float32", left(at)) * Cast("float32", right(at))
        return BufferStore(c, total(at) + product, at[:2])

    desc = _described((c, a, b), (SIZE, SIZE, SIZE), update, (total, left, right))
    rows = (_instruction("tileloadd64", 4 + h, _address(a, 16 * h, 0), _stride(a)) for h in (0, 1))
    cols = (_instruction("tileloadd64", 6 + h, _address(b, h, 0, 0, 0), const(64)) for h in (0, 1))
    products = (
        _instruction("tdpbf16ps", 2 * row + col, 4 + row, 6 + col) for row, col in _QUARTERS
    )
    impl = _function((c, a, b), loops.seq(*cols, *rows, *products), (c, a, b))
    TensorIntrin.register("tile_dot_bf16", desc, impl, FEATURES)


def _store() -> None:
    d, c = _matrix("D"), _matrix("C")

    def value(at: Axes) -> BufferLoad:
        return BufferLoad(c, at)

    desc = _described((d, c), (SIZE, SIZE), lambda at: BufferStore(d, value(at), at), (value,))
    stores = (
        _instruction("tilestored64", 2 * row + col, _address(d, 16 * row, 16 * col), _stride(d))
        for row, col in _QUARTERS
    )
    impl = _function((d, c), loops.seq(*stores), (c,))
    TensorIntrin.register("tile_store", desc, impl, FEATURES)


def _round() -> None:
    """Register the rounding of two float32 vectors to 16 pairs of bfloat16, as a tile's row of
    columns has them."""
    a = Buffer("A", (const(2), const(16)), "float32")
    b = Buffer("B", (const(16), const(2)), "bfloat16")

    def number(at: Axes) -> BufferLoad:
        return BufferLoad(a, at[::-1])

    def rounded(at: Axes) -> BufferStore:
        return BufferStore(b, Cast("bfloat16", number(at)), at)

    lanes, sixteen = Ramp(ZERO, ONE, 32), expr.Broadcast(const(16), 32)
    halves = (BufferLoad(a, (const(half), Ramp(ZERO, ONE, 16))) for half in (1, 0))
    name = StringImm("llvm.x86.avx512bf16.cvtne2ps2bf16.512")
    value = Call("bfloat16x32", "llvm_intrin", (name, *halves))
    places = (expr.FloorMod(lanes, sixteen), expr.FloorDiv(lanes, sixteen))
    desc = _described((b, a), (16, 2), rounded, (number,))
    impl = _function((b, a), BufferStore(b, value, places), (a,))
    TensorIntrin.register("round_bf16_pairs", desc, impl, FEATURES)


_zero()
_dot()
_store()
_round()
