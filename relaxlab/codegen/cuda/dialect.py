"""CUDA C as a dialect."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence

from relaxlab.codegen.cuda.prelude import C_TYPES, PARTS, prelude
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.dialect import (
    ATOM,
    UNARY,
    Conversion,
    Dialect,
    Frame,
    Scope,
    Text,
    Wide,
    alignment_of,
)
from relaxlab.codegen.gpu.expressions import (
    HALF,
    arguments,
    element,
    emit,
    rounded,
    text_of,
    wide,
)
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, bytes_of, is_int, is_uint
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.facts import BOX_DIMENSIONS, Facts
from relaxlab.ir.intrinsics import INTRINSICS, Intrinsic
from relaxlab.ir.loops import Buffer, BufferLoad

_RESERVED = frozenset(
    "int long short char bool float double void unsigned signed const static struct union enum "
    "auto switch case default do goto register volatile template typename class this new delete "
    "operator public private namespace using typedef sizeof extern inline and or not xor failed "
    "min max abs exp log sin cos tan pow sqrt floor ceil round erf y0 y1 yn j0 j1 jn gamma "
    "threadIdx blockIdx blockDim gridDim warpSize lane NAN INFINITY fabs fabsf".split()
) | set(keyword.kwlist) | set(C_TYPES.values()) | set(PARTS) | {
    f"{name}{end}" for row in INTRINSICS.values() for name in (row.cuda, row.c) for end in ("", "f")
}  # fmt: skip
"""Words and functions that variables and buffers may not hide from the kernel's own text."""


def _head(f: Frame) -> str:
    params: list[str] = []
    for buffer, name, written in f.buffers:
        params.append(f"{'' if written else 'const '}{C_TYPES[buffer.dtype]}* __restrict__ {name}")
    reads: list[str] = []
    for v, name in f.scalars:
        kind = CUDA_C.type(v.dtype)
        if v in f.in_memory:
            at = f.fresh(f"{name}_at")
            params.append(f"const {kind}* __restrict__ {at}")
            reads.append(f"\n  const {kind} {name} = *{at};")
        else:
            params.append(f"{kind} {name}")
    params += [f"int* __restrict__ {f.failed}"] if f.failed else []
    params += [f"const __grid_constant__ TensorMap {name}" for name in f.maps]
    line = ", ".join(params)
    listed = line if len(line) < 88 else "\n    " + ",\n    ".join(params)
    x, y, z = f.block
    bounds = f'extern "C" __global__ void __launch_bounds__({x * y * z})'
    return f"{bounds}\n{f.name}({listed}) {{{''.join(reads)}"


def _array(
    buffer: Buffer, name: str, sizes: Sequence[int], facts: Facts, offset: int | None
) -> str:
    kind, dims = C_TYPES[buffer.dtype], "".join(f"[{n}]" for n in sizes)
    if offset is not None:
        at = f"reinterpret_cast<{kind} (*){dims}>(shared_memory + {offset})"
        return f"{kind} (&{name}){dims} = *{at};"
    align = alignment_of(buffer, facts)
    if buffer.scope == "shared":
        return f"__shared__ __align__({align}) {kind} {name}{dims};"
    # Bytes are moved by words where there are four.
    return f"{'__align__(4) ' if bytes_of(buffer.dtype) == 1 else ''}{kind} {name}{dims};"


def _integer(value: int, dtype: str) -> Text:
    if dtype == "bool":
        return ("true" if value else "false"), ATOM
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)", ATOM
    if value == -(1 << 31):
        return "(-2147483647 - 1)", ATOM
    suffix = "u" if is_uint(dtype) and bits_of(dtype) >= 32 else ""
    suffix += "LL" if not -(1 << 31) < value < 1 << 31 else ""
    return f"{value}{suffix}", ATOM if value >= 0 else UNARY


def _operator(e: expr.BinaryOp) -> tuple[str, int, int, int]:
    return e.row.c, e.row.c_level, e.row.c_level, e.row.c_level + 1


def _choose(s: Scope, condition: PrimExpr, one: PrimExpr, other: PrimExpr) -> Text:
    return f"{text_of(s, condition, 1)} ? {_branch(s, one)} : {_branch(s, other)}", 0


def _branch(s: Scope, e: PrimExpr) -> str:
    """One side of `?:`, with a cast if it is a constant of few bits, which would be `int`."""
    text = text_of(s, e, 1)
    constant = isinstance(e, expr.IntImm) and e.dtype not in ("int32", "bool")
    return f"({CUDA_C.type(e.dtype)}){text_of(s, e, UNARY)}" if constant else text


def _bind(s: Scope, var: Var, value: PrimExpr, body: PrimExpr) -> Text:
    given = f"const {CUDA_C.type(var.dtype)} {s.name(var)} = {text_of(s, value)};"
    return f"[&] {{ {given} return {text_of(s, body)}; }}()", ATOM


def _divisor(s: Scope, e: PrimExpr, number: int) -> str:
    return f"{CUDA_C.function('checked_divisor', e.dtype)}({text_of(s, e)}, failed, {number})"


def _f(dtype: str) -> str:
    """The ending of the name of a function of floats."""
    return "" if dtype == "float64" else "f"


def _functions(row: Intrinsic, dtype: str) -> str:
    name = row.cuda or row.c
    return f"{name}{_f(dtype)}" if name else ""


def _isnan(s: Scope, e: expr.Call) -> Text:
    x = wide(s, e.args[0], 7)
    return f"{x} != {x}", 6


def _against_infinity(symbol: str) -> Callable[[Scope, expr.Call], Text]:
    def handler(s: Scope, e: expr.Call) -> Text:
        x = e.args[0]
        return f"fabs{_f(x.dtype)}({wide(s, x, 0)}) {symbol} INFINITY", 6

    return handler


def _absolute(s: Scope, e: expr.Call) -> Text:
    if is_uint(e.dtype) or e.dtype == "bool":
        return emit(s, e.args[0])
    if is_int(e.dtype):
        return f"{CUDA_C.function('absolute', e.dtype)}({text_of(s, e.args[0])})", ATOM
    return rounded(s, f"fabs{_f(e.dtype)}({arguments(s, e)})", ATOM, e.dtype)


def _popcount(s: Scope, e: expr.Call) -> Text:
    bits = f"(uint{bits_of(e.dtype)}_t){text_of(s, e.args[0], UNARY)}"
    return f"({CUDA_C.type(e.dtype)})__popcll({bits})", UNARY


def _clz(s: Scope, e: expr.Call) -> Text:
    value = e.args[0]
    bits = bits_of(value.dtype)
    text = f"__clzll((uint{bits}_t){text_of(s, value, UNARY)})"
    return (f"{text} - {64 - bits}", 9) if bits < 64 else (text, ATOM)


def _pow(s: Scope, e: expr.Call) -> Text:
    if is_int(e.dtype):
        return f"{CUDA_C.function('ipow', e.dtype)}({arguments(s, e)})", ATOM
    return rounded(s, f"pow{_f(e.dtype)}({arguments(s, e)})", ATOM, e.dtype)


def _sigmoid(s: Scope, e: expr.Call) -> Text:
    fn = CUDA_C.function("sigmoid", "float32" if e.dtype in HALF else e.dtype)
    return rounded(s, f"{fn}({arguments(s, e)})", ATOM, e.dtype)


def _reinterpret(s: Scope, e: expr.Call) -> Text:
    value, fn = e.args[0], CUDA_C.function("reinterpret", e.dtype)
    return f"{fn}(({CUDA_C.type(value.dtype)}){text_of(s, value, UNARY)})", ATOM


def _shuffle(s: Scope, e: expr.Call) -> Text:
    """Bytes and bools travel as integers."""
    value, mask = text_of(s, e.args[0]), text_of(s, e.args[1])
    narrow = e.dtype == "bool" or (is_int(e.dtype) and bits_of(e.dtype) < 32)
    text = f"__shfl_xor_sync(0xffffffffu, {f'(int32_t)({value})' if narrow else value}, {mask})"
    return (f"({CUDA_C.type(e.dtype)}){text}", UNARY) if narrow else (text, ATOM)


def _address(s: Scope, e: expr.Call) -> Text:
    load = e.args[0]
    assert isinstance(load, BufferLoad)
    return f"&{element(s, load.buffer, load.indices)}", UNARY


def _collective(s: Scope, e: expr.Call) -> Text:
    """A function of the prelude, by the dtype of what its last argument is the address of."""
    last = e.args[-1]
    assert isinstance(last, expr.Call)
    kind = CUDA_C.function(e.op, last.args[0].dtype)
    return f"{kind}({', '.join(text_of(s, a) for a in e.args)})", ATOM


def _asynchronous(s: Scope, e: expr.Call) -> Text:
    """A function of the prelude with its last argument, a number, as that of its template."""
    *handles, number = e.args or ("",)
    template = f"<{text_of(s, number)}>" if isinstance(number, PrimExpr) else ""
    return f"{e.op}{template}({', '.join(text_of(s, a) for a in handles)})", ATOM


def _plain(s: Scope, e: expr.Call) -> Text:
    """A function of the prelude with the name of the call."""
    return f"{e.op}({arguments(s, e)})", ATOM


def _tma_load(s: Scope, e: expr.Call) -> Text:
    to, source, *box, barrier = e.args
    load = source.args[0] if isinstance(source, expr.Call) else source
    sizes = tuple(n.value for n in box if isinstance(n, IntImm))
    if not isinstance(load, BufferLoad) or len(sizes) != len(box):
        raise CodegenError(f"tma_load in {s.function!r} copies a constant box of an array")
    if len(box) != load.buffer.ndim or not 0 < len(box) <= BOX_DIMENSIONS:
        raise CodegenError(
            f"tma_load in {s.function!r} copies boxes of {len(box)} extents of "
            f"{load.buffer.name!r}, which has {load.buffer.ndim} dimensions; both are "
            f"equal, and {BOX_DIMENSIONS} at most"
        )
    number = s.map(load.buffer, sizes)
    place = ", ".join(text_of(s, i) for i in reversed(load.indices))
    name = f"tma_load_{len(box)}d"
    return f"{name}({text_of(s, to)}, &{number}, {place}, {text_of(s, barrier)})", ATOM


def _wgmma(s: Scope, e: expr.Call) -> Text:
    """Columns, the order of the right operand and the place of the left one are in the name of the
    function."""
    *places, columns, by_rows, distance, add = e.args
    _, left, right = places
    assert isinstance(left, expr.Call) and isinstance(left.args[0], BufferLoad)
    assert isinstance(right, expr.Call)
    kind = s.dialect.type(right.args[0].dtype)
    place = "registers_" if left.args[0].buffer.scope == "local" else ""
    name = f"wgmma_{place}m64n{text_of(s, columns)}k16<{kind}, {text_of(s, by_rows)}>"
    return f"{name}({', '.join(text_of(s, a) for a in (*places, distance, add))})", ATOM


def _check(launch: Launch) -> None:
    """Accept every launch: CUDA C has all that one may contain."""


CUDA_C = Dialect(
    name="CUDA",
    types=C_TYPES,
    elements=C_TYPES,
    reserved=_RESERVED,
    integer=_integer,
    special={"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"},
    cast=Conversion("({type}){value}", UNARY, UNARY),
    truncate=Conversion("truncate<{type}>({value})", 0, ATOM),
    helper="{name}<{type}>",
    functions=_functions,
    intrinsics={
        "isnan": _isnan,
        "isinf": _against_infinity("=="),
        "isfinite": _against_infinity("<"),
        "abs": _absolute,
        "fabs": _absolute,
        "popcount": _popcount,
        "clz": _clz,
        "pow": _pow,
        "sigmoid": _sigmoid,
        "reinterpret": _reinterpret,
        "fast_exp": _plain,
        "fast_divide": _plain,
        "warp_shuffle_xor": _shuffle,
        "address_of": _address,
        "cp_async": _asynchronous,
        "cp_async_commit": _asynchronous,
        "cp_async_wait": _asynchronous,
        "dp4a_u8s8": _plain,
        "ldmatrix": _collective,
        "ldmatrix_trans": _collective,
        "mma_m16n8k16": _collective,
        "mbarrier_init": _plain,
        "mbarrier_fence": _plain,
        "mbarrier_arrive": _plain,
        "mbarrier_expect": _plain,
        "mbarrier_wait": _plain,
        "tma_load": _tma_load,
        "wgmma": _wgmma,
        "wgmma_fence": _plain,
        "wgmma_commit": _plain,
        "wgmma_wait": _asynchronous,
        "setmaxnreg_inc": _asynchronous,
        "setmaxnreg_dec": _asynchronous,
    },
    operator=_operator,
    places="{count}",
    choose=_choose,
    bind=_bind,
    divisor=_divisor,
    loaded={},
    stored={},
    constant="const {type} {name} = {value};",
    array=_array,
    axis="{name}",
    # From the bounds of a launch NVRTC does not conclude that guards hold: without this, softmax of
    # rows of 4095 had 776 instructions and 64 registers, with it 408 and 32.
    bound="__builtin_assume({name} < {extent});",
    loop="for ({type} {name} = {low}; {name} < {high}; ++{name})",
    unroll="#pragma unroll",
    barrier="__syncthreads();",
    main_barrier="",  # the barrier orders main memory, too
    fail="atomicCAS({failed}, 0, {number});",
    outside=False,
    wide=Wide(
        type="Vec<{type}, {count}>",
        variable="{vec} {name};",
        load="const {vec} {name} = *reinterpret_cast<const {vec}*>({at});",
        words="Vec<uint32_t, {count}> {name};",
        loaded_words="const auto {name} = *reinterpret_cast<const Vec<uint32_t, {count}>*>({at});",
        word="{name}.lane[{word}]",
        word_at="reinterpret_cast<uint32_t*>(&{first})[{word}]",
        byte="uint8_t({name}.lane[{lane} / 4] >> {lane} % 4 * 8)",
        float="float_of_byte({name}, {lane})",
        lane="{name}.lane[{lane}]",
        store="*reinterpret_cast<{vec}*>({at}) = {name};",
        loop="for (int {lane} = 0; {lane} < {count}; ++{lane})",
    ),
    head=_head,
    check=_check,
    prelude=prelude,
)
