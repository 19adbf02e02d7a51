"""Scalar expressions to LLVM values: a `match` over nodes and a table over intrinsics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm.access import Memory, element_pointer, linear_index, load
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import (
    Builder,
    Value,
    float_value,
    int_value,
    llvm_type,
    mangle,
)
from relaxlab.codegen.llvm.formula import Formula, all_lanes, per_lane
from relaxlab.codegen.llvm.vector_math import FLOAT32_FUNCTIONS, vector_function
from relaxlab.codegen.llvm.wide_math import FLOAT64_FUNCTIONS
from relaxlab.codegen.positive import is_positive
from relaxlab.codegen.powers import known_power
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import (
    bits_of,
    element_of,
    integer_range,
    is_float,
    is_int,
    is_uint,
    lanes_of,
    with_lanes,
)
from relaxlab.ir.intrinsics import INTRINSICS, NAMED, has_effect
from relaxlab.ir.node import children, walk
from relaxlab.ir.substitute import symbols_in


class FailWhen(Protocol):
    """Emits the report of a failure that happens when an i1 is set, and returns its number. The
    text has doubled braces; with `numbers`, a kernel's has {got} and {expected} for them."""

    def __call__(
        self, cond: str, message: str, numbers: tuple[str, str] | None = None, /
    ) -> int: ...


@dataclass(slots=True)
class Scope:
    """The state while one function is emitted.

    `fail_when(i1, message)` emits the report of a failure that happens when the bit is set, and
    returns the failure's number; execution goes on. `exit` is the label for a thread that cannot go
    on with its work, `exits` whether any jumps there. Under a `speculative` mask all lanes may be
    off. `in_vector`: inside a vectorized loop. `sizes` are variables that are not negative,
    `positive` expressions known to be above zero here. `on_access` emits a debug build's check of
    an access; `place` is the statement's place, for its message.
    """

    builder: Builder
    function: str
    fail_when: FailWhen
    values: dict[expr.Var, Value] = field(default_factory=lambda: dict[expr.Var, Value]())
    memory: dict[loops.Buffer, Memory] = field(default_factory=lambda: dict[loops.Buffer, Memory]())
    mask: Value | None = None
    speculative: bool = False
    in_vector: bool = False
    sizes: frozenset[expr.Var] = frozenset()
    positive: frozenset[expr.PrimExpr] = frozenset()
    exit: str = ""
    exits: bool = False
    on_access: Callable[[Scope, loops.Buffer, Sequence[Value]], None] | None = None
    place: str = ""
    variables: dict[expr.PrimExpr, tuple[expr.Var, ...] | None] = field(default_factory=lambda: {})

    def variables_of(self, e: expr.PrimExpr) -> tuple[expr.Var, ...] | None:
        """The variables that alone determine an expression (see `_variables_of`), looked up once
        per expression: unrolled statements look up each of their copies."""
        try:
            return self.variables[e]
        except KeyError:
            found = self.variables[e] = _variables_of(e)
            return found


def emit_expr(s: Scope, e: expr.PrimExpr) -> Value:
    """Emit an expression. Raises CodegenError naming a node the target cannot do."""
    b = s.builder
    match e:
        case expr.Var():
            if e not in s.values:
                raise CodegenError(f"variable {e.name!r} is not defined in {s.function!r}")
            return s.values[e]
        case expr.IntImm(value, dtype):
            return int_value(value, dtype)
        case expr.FloatImm(value, dtype):
            return float_value(value, dtype)
        case expr.BinaryOp() if (of := s.variables_of(e)) is not None:
            return b.once(e, tuple(map(s.values.get, of)), lambda: _operation(s, e))
        case expr.BinaryOp():
            return _operation(s, e)
        case loops.BufferLoad(buffer, indices):
            at = [emit_expr(s, i) for i in indices]
            if s.on_access is not None:
                s.on_access(s, buffer, at)
            return _load(s, memory_of(s, buffer), at)
        case expr.Cast(to, value):
            return _convert(b, emit_expr(s, value), to)
        case expr.Not(a):
            return _not(b, emit_expr(s, a))
        case expr.Select(c, x, y):
            return _choice(s, c, x, y)
        case expr.Let(var, value, body):
            s.values[var] = emit_expr(s, value)
            return emit_expr(s, body)
        case expr.Ramp(base, stride, lanes):
            return _ramp(s, base, stride, lanes)
        case expr.Broadcast(value, lanes):
            return b.widen(emit_expr(s, value), lanes)
        case expr.Call():
            return _call(s, e)
        case _:
            raise CodegenError(f"no LLVM row for {type(e).__name__} in {s.function!r}: {e}")


def _operation(s: Scope, e: expr.BinaryOp) -> Value:
    x, y = emit_expr(s, e.a), emit_expr(s, e.b)
    if e.row.is_division:
        return _divide(s, type(e), x, y, is_positive(e.b, s.positive, s.sizes))
    return binary(s.builder, type(e), x, y)


def _variables_of(e: expr.PrimExpr) -> tuple[expr.Var, ...] | None:
    """The variables that alone determine the value of an expression and that it has no other
    effect; None for one that reads memory, calls something, or divides by what may be zero."""
    found: dict[expr.Var, None] = {}
    for n in walk(e):
        match n:
            case expr.Var():
                found[n] = None
            case expr.Div(_, b) | expr.Mod(_, b) | expr.FloorDiv(_, b) | expr.FloorMod(_, b):
                if not isinstance(b, expr.IntImm) or b.value == 0:
                    return None
            case expr.BinaryOp() | expr.IntImm():
                pass
            case _:
                return None
    return tuple(found)


def memory_of(s: Scope, buffer: loops.Buffer) -> Memory:
    """Return the memory of a buffer. Raises CodegenError for one that has none here."""
    if buffer not in s.memory:
        raise CodegenError(f"buffer {buffer.name!r} is not declared in {s.function!r}")
    return s.memory[buffer]


def _convert(b: Builder, v: Value, to: str) -> Value:
    """A conversion, as `expr.Cast` says."""
    if not (is_float(v.dtype) and is_int(to)):
        return cast(b, v, to)
    v = cast(b, v, "float32") if bits_of(v.dtype) < 32 else v
    f, x = Formula(b, v), Value(v.dtype, b.materialise(v))
    low, high = integer_range(element_of(to))
    # LLVM's own `fptosi.sat` is computed lane by lane on x86-64. `last` is the largest float below
    # `high + 1`, a power of two.
    last = high + 1 - (high + 1 >> (24 if bits_of(v.dtype) == 32 else 53))
    number = f.select(f.op(expr.EQ, x, x), x, 0.0)
    result = cast(b, f.bound(number, low, min(last, high)), to)
    if last >= high:
        return result
    return _select(b, f.op(expr.GT, x, last), int_value(high, element_of(to)), result)


def _load(s: Scope, memory: Memory, indices: list[Value]) -> Value:
    b, index = s.builder, linear_index(s.builder, memory, indices)
    uniform = index.lanes == 1 or (index.offsets is not None and len(set(index.offsets)) == 1)
    if s.mask is not None and s.speculative and uniform:
        # One element for all lanes: where no lane is on it may not exist, so read another.
        spare = b.alloca(1, memory.element)
        single = index if index.lanes == 1 else lane_of(b, index)
        pointer = element_pointer(b, memory, single)
        some = any_lane(b, s.mask)
        chosen = b.emit(f"select i1 {some}, ptr {pointer}, ptr {spare}", "p")
        return load(b, Memory(chosen, memory.dtype, (), 1), int_value(0), None)
    return load(b, memory, index, s.mask)


def lane_of(b: Builder, index: Value) -> Value:
    """The scalar that all lanes of an index vector have in common."""
    assert index.base is not None and index.offsets is not None
    return binary(b, expr.Add, index.base, int_value(index.offsets[0]))


def any_lane(b: Builder, mask: Value) -> str:
    """True if some lane of a vector of bools (or the bool itself) is set, as an i1."""
    text = b.materialise(mask)
    if mask.lanes == 1:
        return text
    bits = b.emit(f"bitcast {mask.ty} {text} to i{mask.lanes}")
    return b.emit(f"icmp ne i{mask.lanes} {bits}, 0")


def _divide(s: Scope, cls: type[expr.BinaryOp], x: Value, y: Value, checked: bool) -> Value:
    """Integer division that cannot trap: a divisor of zero is reported, and the smallest integer
    by -1 wraps. Index arithmetic mostly divides by sizes, inside loops that are empty when a size
    is zero (`checked`): there only the trap is avoided, where LLVM moves the division out."""
    b, elem = s.builder, element_of(y.dtype)
    known: list[float] = [] if y.const is None else [y.const]
    if y.offsets is not None and y.base is not None and y.base.const is not None:
        known = [y.base.const + o for o in y.offsets]
    if is_float(y.dtype) or (known and 0 not in known):
        return binary(b, cls, x, y)
    zero = binary(b, expr.EQ, y, int_value(0, elem))
    if not checked:
        bad = zero if s.mask is None else binary(b, expr.And, zero, s.mask)
        s.fail_when(any_lane(b, bad), "integer division by zero")
    # -1 is the other divisor that traps, with the smallest integer as the dividend.
    negative = None
    if not (y.nonneg or is_uint(y.dtype)):
        negative = binary(b, expr.EQ, y, int_value(-1, elem))
    unsafe = zero if negative is None else binary(b, expr.Or, zero, negative)
    # The division is emitted for all lanes and may be moved out of conditions: any divisor that
    # traps is replaced.
    divisor = _select(b, unsafe, int_value(1, elem), y)
    divisor.nonneg, divisor.index, divisor.largest = y.nonneg, y.index, y.largest
    result = binary(b, cls, x, divisor)
    # Remainders by 1 and by -1 are both 0.
    if negative is None or cls in (expr.Mod, expr.FloorMod):
        return result
    # Wraps for the smallest integer, as NumPy's quotient does.
    minus_x = binary(b, expr.Sub, int_value(0, elem), x)
    return _select(b, negative, minus_x, result)


def _ramp(s: Scope, base: expr.PrimExpr, stride: expr.PrimExpr, lanes: int) -> Value:
    b = s.builder
    start, step = emit_expr(s, base), emit_expr(s, stride)
    zero = Value(with_lanes("int64", lanes), None, base=int_value(0), offsets=tuple(range(lanes)))
    return binary(b, expr.Add, start, binary(b, expr.Mul, zero, step))


def _not(b: Builder, v: Value) -> Value:
    if v.const is not None:
        return int_value(int(not v.const), "bool")
    ones = b.materialise(b.widen(int_value(1, "bool"), v.lanes))
    return Value(v.dtype, b.emit(f"xor {v.ty} {b.materialise(v)}, {ones}"))


def _choice(s: Scope, cond: expr.PrimExpr, x: expr.PrimExpr, y: expr.PrimExpr) -> Value:
    """Emit a choice. Functions that take long, on one side alone, are passed over where no lane
    asks for that side: selu of 262,144 positive float16 took 68 us with them, 20 without."""
    b, c = s.builder, emit_expr(s, cond)
    plain = c.lanes == 1 or s.on_access is not None
    known = frozenset[expr.Call]() if plain else _costly_calls(cond)
    first, second = (not plain and bool(_costly_calls(side) - known) for side in (x, y))
    costly = x if first else y
    if first == second or has_effect(costly) or _may_fail(s, costly):
        return _select(b, c, emit_expr(s, x), emit_expr(s, y))
    others = _not(b, c) if first else c
    usual = b.widen(emit_expr(s, y if first else x), c.lanes)
    # Lanes that are built aside would not be there afterwards.
    for var in s.values.keys() & symbols_in(costly):
        b.materialise(s.values[var])
    before = b.block
    with b.detour(all_lanes(b, others)):
        chosen = _select(b, others, usual, emit_expr(s, costly))
        after = b.block
    ends = f"[ {b.materialise(usual)}, %{before} ], [ {chosen.text}, %{after} ]"
    return Value(usual.dtype, b.emit(f"phi {usual.ty} {ends}"))


def _costly_calls(e: expr.PrimExpr) -> frozenset[expr.Call]:
    """The calls of functions of floats that take long in an expression, indices left out."""
    if isinstance(e, loops.BufferLoad):
        return frozenset()
    inside = (_costly_calls(n) for n in children(e) if isinstance(n, expr.PrimExpr))
    found = frozenset[expr.Call]().union(*inside)
    if isinstance(e, expr.Call) and e.op in INTRINSICS and INTRINSICS[e.op].costly:
        return found | {e}
    return found


def _may_fail(s: Scope, e: expr.PrimExpr) -> bool:
    """True if an expression has a division whose divisor may be an integer zero."""
    divided = (n.b for n in walk(e) if isinstance(n, expr.BinaryOp) and n.row.is_division)
    return any(not is_float(d.dtype) and not is_positive(d, s.positive, s.sizes) for d in divided)


def _select(b: Builder, c: Value, x: Value, y: Value) -> Value:
    if c.const is not None:
        return x if c.const else y
    lanes = max(c.lanes, x.lanes, y.lanes)
    x, y = b.widen(x, lanes), b.widen(y, lanes)
    if lanes != 1:
        c = b.widen(c, lanes)
    text = f"select {c.ty} {b.materialise(c)}, {x.ty} {b.materialise(x)}, "
    chosen = b.emit(text + f"{y.ty} {b.materialise(y)}")
    nonneg, index = x.nonneg and y.nonneg, x.index and y.index
    largest = max(x.largest, y.largest)
    return Value(x.dtype, chosen, nonneg=nonneg, index=index, largest=largest)


# -- intrinsics ----------------------------------------------------------------------------------


def _call(s: Scope, e: expr.Call) -> Value:
    handler = _INTRINSICS.get(e.op)
    if handler is not None:
        return handler(s, e)
    if (power := known_power(e)) is not None:
        return emit_expr(s, power)
    row = INTRINSICS.get(e.op)
    if row is not None and row.formula is not None and (made := row.formula(*e.args)) is not None:
        return emit_expr(s, made)
    if row is not None and is_float(e.dtype) and (row.c or row.llvm or e.op in FLOAT32_FUNCTIONS):
        return _float_call(s.builder, e.op, [emit_expr(s, a) for a in e.args])
    raise CodegenError(f"no LLVM row for intrinsic {e.op!r} on {e.dtype} in {s.function!r}: {e}")


def _float_call(b: Builder, op: str, args: list[Value]) -> Value:
    dtype, base = args[0].dtype, element_of(args[0].dtype)
    if base in ("float16", "bfloat16"):
        wide = [cast(b, a, "float32") if is_float(a.dtype) else a for a in args]
        return cast(b, _float_call(b, op, wide), base)
    formulas = FLOAT32_FUNCTIONS if base == "float32" else FLOAT64_FUNCTIONS
    if op in formulas:
        return vector_function(b, op, formulas[op], args)
    if INTRINSICS[op].llvm:
        pairs = [(a.ty, b.materialise(a)) for a in args]
        name = f"llvm.{INTRINSICS[op].llvm}.{mangle(dtype)}"
        return Value(dtype, b.call(name, args[0].ty, pairs))
    if op == "rsqrt":
        one = b.widen(float_value(1.0, base), args[0].lanes)
        return binary(b, expr.Div, one, _float_call(b, "sqrt", args))
    return per_lane(b, INTRINSICS[op].c + ("f" if base == "float32" else ""), args)


def _if_then_else(s: Scope, e: expr.Call) -> Value:
    """Emit a choice of which only the chosen side runs; with a vector condition, its lanes are
    masked off."""
    b, cond = s.builder, emit_expr(s, e.args[0])
    if cond.const is not None:
        return emit_expr(s, e.args[1] if cond.const else e.args[2])
    # Both sides run, so each loads under its lanes; neither need have any.
    if cond.lanes > 1:
        x = _under(s, cond, e.args[1])
        y = _under(s, _not(b, cond), e.args[2])
        return _select(b, cond, x, y)
    then, other, done = b.label("then"), b.label("else"), b.label("endif")
    b.branch(b.materialise(cond), then, other)
    b.place(then)
    x = emit_expr(s, e.args[1])
    xt, then_end = b.materialise(x), b.block
    spot = len(b.lines)
    b.jump(done)
    b.place(other)
    y = emit_expr(s, e.args[2])
    lanes = max(x.lanes, y.lanes)
    y = b.widen(y, lanes)
    yt, else_end = b.materialise(y), b.block
    b.jump(done)
    if x.lanes != lanes:  # widen in the first branch, before its jump
        tail, b.lines = b.lines[spot:], b.lines[:spot]
        x = b.widen(x, lanes)
        xt = b.materialise(x)
        b.lines += tail
    b.place(done)
    text = b.emit(f"phi {x.ty} [ {xt}, %{then_end} ], [ {yt}, %{else_end} ]")
    return Value(x.dtype, text, nonneg=x.nonneg and y.nonneg)


def _under(s: Scope, cond: Value, e: expr.PrimExpr) -> Value:
    outer = s.mask, s.speculative
    s.mask = cond if s.mask is None else binary(s.builder, expr.And, s.mask, cond)
    s.speculative = True
    value = emit_expr(s, e)
    s.mask, s.speculative = outer
    return value


def _named_call(s: Scope, e: expr.Call) -> Value:
    """Emit a call of the LLVM intrinsic or C function that the first argument names; one of LLVM's
    whose name lacks the types, as TVM's programs have it, by the intrinsic that it is."""
    name = e.args[0]
    assert isinstance(name, expr.StringImm)
    if e.op == "llvm_intrin" and name.value in NAMED:
        return emit_expr(s, expr.Call(e.dtype, NAMED[name.value], e.args[1:]))
    values = [emit_expr(s, a) for a in e.args[1:]]
    if any(v.lanes > lanes_of(a.dtype) for v, a in zip(values, e.args[1:], strict=True)):
        if lanes_of(e.dtype) > 1:
            raise CodegenError(
                f"{name.value} returns {e.dtype} in a vectorized loop of {s.function!r}: leave "
                "the loop serial"
            )
        return per_lane(s.builder, name.value, values, e.dtype)
    pairs = [(v.ty, s.builder.materialise(v)) for v in values]
    return Value(e.dtype, s.builder.call(name.value, llvm_type(e.dtype), pairs))


def _reinterpret(s: Scope, e: expr.Call) -> Value:
    v = emit_expr(s, e.args[0])
    dtype = e.dtype
    if lanes_of(dtype) == 1 == lanes_of(e.args[0].dtype):  # lanes come from a vectorized loop
        dtype = with_lanes(dtype, v.lanes)
    if llvm_type(dtype) == v.ty:
        return Value(dtype, s.builder.materialise(v))
    how = "ptrtoint" if v.ty == "ptr" else "bitcast"
    text = s.builder.emit(f"{how} {v.ty} {s.builder.materialise(v)} to {llvm_type(dtype)}")
    return Value(dtype, text)


def _address_of(s: Scope, e: expr.Call) -> Value:
    target = e.args[0]
    assert isinstance(target, loops.BufferLoad)
    memory = memory_of(s, target.buffer)
    index = linear_index(s.builder, memory, [emit_expr(s, i) for i in target.indices])
    return Value("handle", element_pointer(s.builder, memory, index))


def _prefetch(s: Scope, e: expr.Call) -> Value:
    """Read into the cache that the target is best at fetching into, as LLVM counts: 3 is L1."""
    address = emit_expr(s, e.args[0])
    locality = str(4 - s.builder.target.facts.prefetch_level)
    args = [("ptr", address.text or ""), ("i32", "0"), ("i32", locality), ("i32", "1")]
    s.builder.call("llvm.prefetch.p0", "void", args)
    signature = "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)"
    s.builder.declarations["llvm.prefetch.p0"] = signature
    return Value("void", "")


def _reduce(kind: str) -> Callable[[Scope, expr.Call], Value]:
    def handler(s: Scope, e: expr.Call) -> Value:
        b, v = s.builder, emit_expr(s, e.args[0])
        elem = element_of(v.dtype)
        if v.lanes == 1:
            return v
        if is_float(elem) and kind in ("add", "mul"):
            return _by_halves(b, v, kind)
        if is_float(elem):
            return _extreme(b, v, kind)
        prefix = "" if kind in ("add", "mul") else "u" if is_uint(elem) else "s"
        name = f"llvm.vector.reduce.{prefix}{kind}.{mangle(v.dtype)}"
        return Value(elem, b.call(name, llvm_type(elem), [(v.ty, b.materialise(v))]))

    return handler


def _extreme(b: Builder, v: Value, kind: str) -> Value:
    """Return the largest or smallest (`kind`: max, min) of the lanes, NaN if one is: one test for
    NaN beside the steps keeps it out of their chain of dependences."""
    elem, text = llvm_type(element_of(v.dtype)), b.materialise(v)
    name = f"llvm.vector.reduce.f{kind}.{mangle(v.dtype)}"
    # `nnan` drops a test for NaN from each of the steps, which wait for each other: six for 64
    # lanes.
    most = b.call(name, elem, [(v.ty, text)], math="nnan nsz")
    tested = b.emit(f"fcmp uno {v.ty} {text}, {text}")
    bits = b.emit(f"bitcast <{v.lanes} x i1> {tested} to i{v.lanes}")
    some = b.emit(f"icmp ne i{v.lanes} {bits}, 0")
    nan = float_value(math.nan, element_of(v.dtype)).text
    return Value(element_of(v.dtype), b.emit(f"select i1 {some}, {elem} {nan}, {elem} {most}"))


def _by_halves(b: Builder, v: Value, kind: str) -> Value:
    """Return the sum or product (`kind`: add, mul) of the lanes, pairwise: halves are combined
    until one lane is left."""
    elem, lanes, text = element_of(v.dtype), v.lanes, b.materialise(v)
    while lanes > 1 and lanes % 2 == 0:
        half = lanes // 2
        low = b.select_lanes(text, llvm_type(elem), lanes, range(half))
        high = b.select_lanes(text, llvm_type(elem), lanes, range(half, lanes))
        if half > 1:
            text = b.emit(f"f{kind} {llvm_type(with_lanes(elem, half))} {low}, {high}")
        else:
            one, two = (
                b.emit(f"extractelement <1 x {llvm_type(elem)}> {t}, i64 0") for t in (low, high)
            )
            text = b.emit(f"f{kind} {llvm_type(elem)} {one}, {two}")
        lanes = half
    if lanes > 1:
        name = f"llvm.vector.reduce.f{kind}.{mangle(with_lanes(elem, lanes))}"
        # The neutral element of LLVM's ordered sum: 0.0 would turn a sum of negative zeros
        # positive.
        neutral = float_value(-0.0 if kind == "add" else 1.0, elem)
        args = [(neutral.ty, neutral.text or ""), (llvm_type(with_lanes(elem, lanes)), text)]
        text = b.call(name, llvm_type(elem), args)
    return Value(elem, text)


def _fma(s: Scope, e: expr.Call) -> Value:
    b = s.builder
    values = [emit_expr(s, a) for a in e.args]
    lanes = max(v.lanes for v in values)
    values = [b.widen(v, lanes) for v in values]
    pairs = [(v.ty, b.materialise(v)) for v in values]
    dtype = values[0].dtype
    return Value(dtype, b.call(f"llvm.fma.{mangle(dtype)}", values[0].ty, pairs))


def _classify(op: str) -> Callable[[Scope, expr.Call], Value]:
    def handler(s: Scope, e: expr.Call) -> Value:
        b, v = s.builder, emit_expr(s, e.args[0])
        # Widening keeps NaN, infinities and finiteness.
        if element_of(v.dtype) in ("float16", "bfloat16"):
            v = cast(b, v, "float32")
        dtype = with_lanes("bool", v.lanes)
        if op == "isnan":
            return Value(dtype, b.emit(f"fcmp uno {v.ty} {v.text}, {v.text}"))
        size = b.call(f"llvm.fabs.{mangle(v.dtype)}", v.ty, [(v.ty, b.materialise(v))])
        inf = b.widen(float_value(float("inf"), element_of(v.dtype)), v.lanes)
        test = "oeq" if op == "isinf" else "olt"
        return Value(dtype, b.emit(f"fcmp {test} {v.ty} {size}, {inf.text}"))

    return handler


def _abs(s: Scope, e: expr.Call) -> Value:
    b, v = s.builder, emit_expr(s, e.args[0])
    if is_int(v.dtype):
        if is_uint(v.dtype):
            return v
        # `false`: the smallest integer stays itself, as in NumPy, instead of being poison.
        args = [(v.ty, b.materialise(v)), ("i1", "false")]
        return Value(v.dtype, b.call(f"llvm.abs.{mangle(v.dtype)}", v.ty, args), nonneg=True)
    return _float_call(b, "fabs", [v])


def _bitwise_not(s: Scope, e: expr.Call) -> Value:
    v = emit_expr(s, e.args[0])
    ones = s.builder.widen(int_value(-1, element_of(v.dtype)), v.lanes)
    return binary(s.builder, expr.BitXor, v, ones)


def _popcount(s: Scope, e: expr.Call) -> Value:
    b, v = s.builder, emit_expr(s, e.args[0])
    return Value(v.dtype, b.call(f"llvm.ctpop.{mangle(v.dtype)}", v.ty, [(v.ty, b.materialise(v))]))


def _clz(s: Scope, e: expr.Call) -> Value:
    b, v = s.builder, emit_expr(s, e.args[0])
    # `false`: zero has as many zeros as bits, instead of being poison.
    args = [(v.ty, b.materialise(v)), ("i1", "false")]
    count = Value(v.dtype, b.call(f"llvm.ctlz.{mangle(v.dtype)}", v.ty, args))
    return cast(b, count, "int32")


def _shuffle(s: Scope, e: expr.Call) -> Value:
    b, (x, y) = s.builder, [emit_expr(s, a) for a in e.args[:2]]
    picks = [a.value for a in e.args[2:] if isinstance(a, expr.IntImm) and a.value < 2 * x.lanes]
    if x.dtype != y.dtype or not len(picks) == len(e.args) - 2 == lanes_of(e.dtype):
        raise CodegenError(
            f"vector_shuffle: {e} does not pick {lanes_of(e.dtype)} lanes of two vectors by number"
        )
    return Value(e.dtype, b.shuffle_lanes(x, y, picks))


_INTRINSICS: dict[str, Callable[[Scope, expr.Call], Value]] = {
    "if_then_else": _if_then_else,
    # A hint of TVM's scripts; branches that matter are removed by `hoist_guards`.
    "likely": lambda s, e: emit_expr(s, e.args[0]),
    "llvm_intrin": _named_call,
    "call_extern": _named_call,
    "call_pure_extern": _named_call,
    "reinterpret": _reinterpret,
    "address_of": _address_of,
    "prefetch": _prefetch,
    "vector_reduce_add": _reduce("add"),
    "vector_reduce_mul": _reduce("mul"),
    "vector_reduce_max": _reduce("max"),
    "vector_reduce_min": _reduce("min"),
    "vector_shuffle": _shuffle,
    "fma": _fma,
    "isnan": _classify("isnan"),
    "isinf": _classify("isinf"),
    "isfinite": _classify("isfinite"),
    "abs": _abs,
    "fabs": _abs,
    "bitwise_not": _bitwise_not,
    "popcount": _popcount,
    "clz": _clz,
}


def require_scalar(v: Value, what: str, s: Scope) -> Value:
    """`v`, which must not be a vector. Raises CodegenError."""
    if lanes_of(v.dtype) != 1:
        raise CodegenError(f"{what} in {s.function!r} must be a scalar, not {v.dtype}")
    return v
