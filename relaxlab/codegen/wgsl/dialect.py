"""WGSL, the language of WebGPU, as a dialect.

It has no integers of 64 bits: indices and sizes, which are int64 in loop functions, are `i32` here.
Buffers of WebGPU have fewer than 2^31 elements; kernels that compute with int64 values that are no
indices are refused. Bools of main memory are `u32`. There is no conditional expression that leaves
one side alone: where computing both has an effect, an `if` stands before the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.dialect import ATOM, UNARY, Conversion, Dialect, Frame, Scope, Text
from relaxlab.codegen.gpu.expressions import arguments, emit, text_of
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.codegen.wgsl.prelude import PARTS, prelude
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float, is_uint
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.intrinsics import INTRINSICS, Intrinsic
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore
from relaxlab.ir.node import Node, children, walk

_RESERVED = frozenset(
    "alias break case const const_assert continue continuing default diagnostic discard else "
    "enable false fn for if let loop override requires return struct switch true var while "
    "abstract active as asm async attribute auto await become cast catch class co_await compile "
    "delete do enum explicit export extends extern external fallthrough filter final finally from "
    "get goto groupshared highp impl implements import inline instanceof interface layout lowp "
    "macro match mediump meta mod module move mut mutable namespace new nil noexcept noinline null "
    "of operator package pass patch pixelfragment precise precision private protected pub public "
    "readonly ref register resource restrict self set shared sizeof smooth snorm static std super "
    "target template this throw trait try type typedef typename union unless unorm unsafe unsized "
    "use using varying virtual volatile where with write yield "
    "array atomic bool f16 f32 i32 u32 vec2 vec3 vec4 ptr sampler function storage uniform "
    "workgroup read read_write bitcast select abs acos acosh all any asin asinh atan atan2 atanh "
    "ceil clamp cos cosh cross degrees distance dot exp exp2 floor fma fract length log log2 max "
    "min mix modf normalize pow radians reflect refract round sign sin sinh sqrt step tan tanh "
    "transpose trunc blockIdx threadIdx".split()
) | {f"{name}_{kind}" for name, (kinds, _) in PARTS.items() for kind in kinds} | {
    row.wgsl or row.c for row in INTRINSICS.values()
}  # fmt: skip
_LARGEST = 2**31 - 1


def _head(f: Frame) -> str:
    lines: list[str] = []

    def declare(kind: str, name: str, of: str) -> None:
        number = sum(line.startswith("@group") for line in lines)
        lines.append(f"@group(0) @binding({number}) var<{kind}> {name}: {of};")

    for buffer, name, written in f.buffers:
        access = "read_write" if written else "read"
        declare(f"storage, {access}", name, f"array<{WGSL.element(buffer)}>")
    struct, sizes = f.fresh(f"{f.name}_Sizes"), f.fresh(f"{f.name}_sizes")
    if f.scalars:
        kinds = {**WGSL.types, **WGSL.elements}  # a bool as buffers hold it
        fields = ", ".join(f"{name}: {kinds[v.dtype]}" for v, name in f.scalars)
        lines.append(f"struct {struct} {{ {fields} }}")
        declare("uniform", sizes, struct)
    if f.failed:
        declare("storage, read_write", f.failed, "atomic<i32>")
    lines += f.outside
    x, y, z = f.block
    lines += [
        f"@compute @workgroup_size({x}, {y}, {z})",
        f"fn {f.name}(",
        "    @builtin(workgroup_id) blockIdx: vec3<u32>,",
        "    @builtin(local_invocation_id) threadIdx: vec3<u32>,",
        ") {",
        *(f"  let {name} = {_held(v.dtype, f'{sizes}.{name}')};" for v, name in f.scalars),
    ]
    return "\n".join(lines)


def _held(dtype: str, element: str) -> str:
    form, _ = WGSL.loaded.get(dtype, ("{element}", ATOM))
    return form.format(element=element)


def _array(
    buffer: Buffer, name: str, sizes: Sequence[int], facts: Facts, offset: int | None
) -> str:
    kind = WGSL.element(buffer)
    for size in reversed(sizes):
        kind = f"array<{kind}, {size}>"
    return f"var{'<workgroup>' if buffer.scope == 'shared' else ''} {name}: {kind};"


def _integer(value: int, dtype: str) -> Text:
    if dtype == "bool":
        return ("true" if value else "false"), ATOM
    if is_uint(dtype):
        return f"{value}u", ATOM
    if not -_LARGEST - 1 <= value <= _LARGEST:
        raise CodegenError(f"WGSL has no integers of 64 bits, as {value} needs")
    if value < -_LARGEST:
        return f"(-{_LARGEST} - 1)", ATOM
    return str(value), ATOM if value >= 0 else UNARY


def _operator(e: expr.BinaryOp) -> tuple[str, int, int, int]:
    """WGSL has C's operators, but mixes only those of arithmetic and comparison without
    parentheses."""
    symbol, level = e.row.c, e.row.c_level
    if e.row.arithmetic:
        return symbol, level, level, level + 1
    if e.a.dtype == "bool" and isinstance(e, expr.BitXor):
        symbol = "!="
    comparison = level in (6, 7)
    operand = 9 if comparison else UNARY if level > 2 else 6
    # A chain of one operator needs none.
    chain = level if not comparison and level <= 5 and type(e.a) is type(e) else operand
    return symbol, level, chain, operand


def _choose(s: Scope, condition: PrimExpr, one: PrimExpr, other: PrimExpr) -> Text:
    test = text_of(s, condition)
    outer = s.before
    sides: list[tuple[str, list[str]]] = []
    for side in (one, other):
        s.before = []
        text = text_of(s, side)
        sides.append((text, s.before))
    s.before = outer
    (first, before_first), (second, before_second) = sides
    if not before_first and not before_second:
        return f"select({second}, {first}, {test})", ATOM
    name = s.fresh("chosen")
    s.before += [
        f"var {name}: {WGSL.type(one.dtype)};",
        f"if ({test}) {{",
        *(f"  {line}" for line in (*before_first, f"{name} = {first};")),
        "} else {",
        *(f"  {line}" for line in (*before_second, f"{name} = {second};")),
        "}",
    ]
    return name, ATOM


def _bind(s: Scope, var: Var, value: PrimExpr, body: PrimExpr) -> Text:
    text = text_of(s, value)
    name = s.name(var)
    s.before.append(f"let {name}: {WGSL.type(var.dtype)} = {text};")
    return emit(s, body)


def _divisor(s: Scope, e: PrimExpr, number: int) -> str:
    text, name = text_of(s, e), s.fresh("divisor")
    s.before += [
        f"var {name} = {text};",
        f"if ({name} == 0) {{",
        f"  {WGSL.fail.format(failed=s.failed, number=number)}",
        f"  {name} = 1;",
        "}",
    ]
    return name


def _functions(row: Intrinsic, dtype: str) -> str:
    return row.wgsl or row.c if dtype == "float32" and "wgsl" not in row.absent else ""


def _helper(name: str) -> Callable[[Scope, expr.Call], Text]:
    """A function of the prelude for the type of its first argument."""

    def handler(s: Scope, e: expr.Call) -> Text:
        return f"{WGSL.function(name, e.args[0].dtype)}({arguments(s, e)})", ATOM

    return handler


def _absolute(s: Scope, e: expr.Call) -> Text:
    plain = is_uint(e.dtype) or e.dtype == "bool"
    return emit(s, e.args[0]) if plain else (f"abs({arguments(s, e)})", ATOM)


def _popcount(s: Scope, e: expr.Call) -> Text:
    return f"countOneBits({arguments(s, e)})", ATOM


def _clz(s: Scope, e: expr.Call) -> Text:
    return f"i32(countLeadingZeros({arguments(s, e)}))", ATOM


def _pow(s: Scope, e: expr.Call) -> Text:
    name = "power" if is_float(e.dtype) else "ipow"
    return f"{WGSL.function(name, e.dtype)}({arguments(s, e)})", ATOM


def _reinterpret(s: Scope, e: expr.Call) -> Text:
    return f"bitcast<{WGSL.type(e.dtype)}>({arguments(s, e)})", ATOM


def _check(launch: Launch) -> None:
    """Refuse values of 64 bits: only indices are known to fit into 32."""
    for e in _values(launch.body):
        loaded = e.dtype == "int64" and any(isinstance(n, BufferLoad) for n in walk(e))
        match e:
            case expr.Cast(_, value):
                wide = value.dtype not in ("int32", "bool")
            case expr.Add() | expr.Sub() | expr.Mul() | expr.ShiftLeft():
                wide = True
            case _:
                wide = False
        if loaded and wide:
            raise CodegenError(
                f"{launch.name!r} computes {e} of int64 values; WGSL has no integers of 64 bits"
            )


def _values(n: Node) -> Iterator[PrimExpr]:
    """The expressions of a statement that are not within indices of elements."""
    if isinstance(n, BufferLoad):
        return
    if isinstance(n, PrimExpr):
        yield n
    for c in (n.value,) if isinstance(n, BufferStore) else children(n):
        yield from _values(c)


WGSL = Dialect(
    name="WGSL",
    types={"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32", "int64": "i32"},
    elements={"bool": "u32", "int32": "i32", "uint32": "u32", "float32": "f32"},
    reserved=_RESERVED,
    integer=_integer,
    special={
        "nan": "not_a_number_f32()", "inf": "infinity_f32()", "-inf": "-infinity_f32()",
    },
    cast=Conversion("{type}({value})", 0, ATOM),
    truncate=Conversion("{type}({value})", 0, ATOM),  # which clamps
    helper="{name}_{type}",
    functions=_functions,
    intrinsics={
        "isnan": _helper("isnan"),
        "isinf": _helper("isinf"),
        "isfinite": _helper("isfinite"),
        "abs": _absolute,
        "popcount": _popcount,
        "clz": _clz,
        "pow": _pow,
        "reinterpret": _reinterpret,
    },
    operator=_operator,
    places="{count}u",
    choose=_choose,
    bind=_bind,
    divisor=_divisor,
    loaded={"bool": ("{element} != 0u", 6)},
    stored={"bool": "u32({value})"},
    constant="let {name}: {type} = {value};",
    array=_array,
    axis="i32({name})",
    bound="",
    loop="for (var {name}: {type} = {low}; {name} < {high}; {name}++)",
    unroll="",
    barrier="workgroupBarrier();",
    main_barrier="storageBarrier();",
    fail="atomicMax(&{failed}, {number});",
    outside=True,
    wide=None,
    head=_head,
    check=_check,
    prelude=prelude,
)  # fmt: skip
