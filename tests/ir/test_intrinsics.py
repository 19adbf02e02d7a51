"""Every target either has an intrinsic or says why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import BY_NAME, INTRINSICS, NAMED, Intrinsic
from relaxlab.ir.module import Module
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

ROW = "A[T.Ramp(0, 1, 4)]"
LANES = f'T.call_intrin("float32", "{{name}}", {ROW})'
SHUFFLED = f'T.call_intrin("float32x4", "vector_shuffle", {ROW}, {ROW}, 0, 4, 1, 5)'
CALLS = {
    "isnan": "T.Select(T.isnan(A[i]), 1.0, 0.0)",
    "isinf": "T.Select(T.isinf(A[i]), 1.0, 0.0)",
    "isfinite": "T.Select(T.isfinite(A[i]), 1.0, 0.0)",
    "bitwise_not": 'T.cast(T.bitwise_not(T.cast(A[i], "int32")), "float32")',
    "popcount": 'T.cast(T.popcount(T.cast(A[i], "int32")), "float32")',
    "clz": 'T.cast(T.clz(T.cast(A[i], "int32")), "float32")',
    "ldexp": "T.ldexp(A[i], i)",
    "q_multiply_shift": 'T.cast(T.q_multiply_shift(T.cast(A[i], "int32"), 3, 2, i), "float32")',
    "q_multiply_shift_per_axis": 'T.cast(T.q_multiply_shift_per_axis(T.cast(A[i], "int32"), 3, i, '
                                 '1, 2, True, True), "float32")',
    "if_then_else": "T.if_then_else(A[i] > T.float32(0), A[i], T.float32(0))",
    "tvm_thread_invariant": "T.tvm_thread_invariant(A[i])",
    "ignore_loop_partition": "T.ignore_loop_partition(A[i])",
    "likely": "T.Select(T.likely(i < 4), A[i], T.float32(0))",
    "reinterpret": 'T.reinterpret("float32", T.reinterpret("int32", A[i]))',
    "vector_reduce_add": LANES, "vector_reduce_mul": LANES, "vector_reduce_max": LANES,
    "vector_reduce_min": LANES,
    "shuffle": "T.Shuffle([A[i], 2.0 * A[i]], [1])",
    "vector_shuffle": LANES.replace("{name}", "vector_reduce_add").replace(ROW, SHUFFLED),
    "llvm_intrin": 'T.call_llvm_pure_intrin("float32", "llvm.fabs.f32", A[i])',
    "call_extern": 'T.call_extern("float32", "fabsf", A[i])',
    "call_pure_extern": 'T.call_pure_extern("float32", "fabsf", A[i])',
    "warp_shuffle_xor": 'T.call_intrin("float32", "warp_shuffle_xor", A[i], 1)',
}  # fmt: skip
"""How the value of a row is written, where it is no function of numbers."""
SHARED, LOCAL = "T.address_of(S[0])", "T.address_of(L[0])"
BARRIER = "T.address_of(W[0])"
STATEMENTS = {
    "address_of": 'T.evaluate(T.call_extern("void", "free", T.address_of(A[i])))',
    "prefetch": 'T.evaluate(T.call_intrin("void", "prefetch", T.address_of(A[i])))',
    "tvm_storage_sync": 'T.evaluate(T.tvm_storage_sync("shared"))',
    "cp_async": f"T.evaluate(T.cp_async({SHARED}, T.address_of(A[i]), 4))",
    "cp_async_commit": "T.evaluate(T.cp_async_commit())",
    "cp_async_wait": "T.evaluate(T.cp_async_wait(0))",
    "dp4a_u8s8": "T.evaluate(T.dp4a_u8s8(T.address_of(D[0]), T.address_of(U[0]), "
                 "T.address_of(B[0])))",
    "ldmatrix": f"T.evaluate(T.ldmatrix({LOCAL}, {SHARED}))",
    "ldmatrix_trans": f"T.evaluate(T.ldmatrix_trans({LOCAL}, {SHARED}))",
    "mbarrier_init": f"T.evaluate(T.mbarrier_init({BARRIER}, 1))",
    "mbarrier_fence": "T.evaluate(T.mbarrier_fence())",
    "mbarrier_arrive": f"T.evaluate(T.mbarrier_arrive({BARRIER}))",
    "mbarrier_expect": f"T.evaluate(T.mbarrier_expect({BARRIER}, 128))",
    "mbarrier_wait": f"T.evaluate(T.mbarrier_wait({BARRIER}, 0))",
    "tma_load": f"T.evaluate(T.tma_load({SHARED}, T.address_of(A[i]), 64, {BARRIER}))",
    "wgmma_fence": "T.evaluate(T.wgmma_fence())",
    "wgmma": f"T.evaluate(T.wgmma(T.address_of(F[0]), {SHARED}, {SHARED}, 64, 0, 16, 1))\n"
             "        T.evaluate(T.wgmma_wait(0))",
    "wgmma_commit": "T.evaluate(T.wgmma_commit())",
    "wgmma_wait": "T.evaluate(T.wgmma_wait(0))",
    "setmaxnreg_inc": "T.evaluate(T.setmaxnreg_inc(232))",
    "setmaxnreg_dec": "T.evaluate(T.setmaxnreg_dec(40))",
    "mma_m16n8k16": f"T.evaluate(T.mma_m16n8k16(T.address_of(F[0]), {LOCAL}, {LOCAL}))",
}
"""Those that are written as statements of their own."""


def function(row: Intrinsic, loop: str):
    arguments = ", ".join(["A[i]"] * row.arity)
    value = CALLS.get(row.name, 'T.call_intrin("float32", "{name}", {arguments})')
    value = value.format(name=row.name, arguments=arguments)
    before = STATEMENTS.get(row.name, "")
    buffers = {"S": ("float16", "shared"), "L": ("float16", "local"), "F": ("float32", "local"),
               "W": ("uint64", "shared"), "D": ("int32", "local"), "U": ("uint8", "local"),
               "B": ("int8", "local")}  # fmt: skip
    made = "".join(
        f'    {name} = T.alloc_buffer((64,), "{dtype}", scope="{scope}")\n'
        for name, (dtype, scope) in buffers.items()
        if f"({name}[" in before
    )
    return rl.parse(f"""
@T.prim_func
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
{made}    for i in {loop}:
        {before or "T.evaluate(0)"}
        C[i] = {"A[i]" if before else value}
""")


def interpreted(row: Intrinsic) -> None:
    if row.name in (*BY_NAME, "address_of"):
        with pytest.raises(UserError, match="register_intrinsic_meaning"):
            run(row)
    else:
        run(row)


def run(row: Intrinsic) -> None:
    arrays = np.full(4, 0.5, "float32"), np.zeros(4, "float32")
    interpret_prim_func(function(row, "range(4)")["f"], arrays)


EXECUTORS = {
    "interpreter": interpreted,
    "llvm": lambda row: rl.compile(function(row, "range(4)")),
    "cuda": lambda row: rl.compile(
        function(row, 'T.thread_binding(4, "threadIdx.x")'), target="cuda"
    ),
    "wgsl": lambda row: rl.compile(
        function(row, 'T.thread_binding(4, "threadIdx.x")'), target="wgsl"
    ),
}


@pytest.mark.parametrize("target", EXECUTORS)
@pytest.mark.parametrize("name", INTRINSICS)
def test_targets_have_an_intrinsic_or_say_why_not(name: str, target: str) -> None:
    row = INTRINSICS[name]
    assert set(row.absent) <= set(EXECUTORS) and all(row.absent.values())
    if target in row.absent:
        with pytest.raises(UserError):
            EXECUTORS[target](row)
    else:
        EXECUTORS[target](row)


def test_every_row_is_documented() -> None:
    assert all(row.doc.endswith(".") for row in INTRINSICS.values())


@pytest.mark.parametrize("name", [n for n, row in INTRINSICS.items() if row.floats])
def test_integers_in_functions_of_fractions_are_floats(name: str) -> None:
    row = INTRINSICS[name]
    f = rl.parse(f"""
@T.prim_func
def f(C: T.Buffer((1,), "float32")):
    C[0] = T.{name}({", ".join(["1"] * row.arity)})
""")
    out = np.zeros(1, "float32")
    interpret_prim_func(f["f"], [out])
    assert row.meaning is not None
    with np.errstate(divide="ignore"):
        expected = row.meaning(np.dtype("float32"), *[1.0] * row.arity)
    np.testing.assert_array_equal(out[0], expected)


POINTS = (0.7, 0.6, 0.3), (0.3, 0.8, 2.3)


def value_of(e: PrimExpr, values: Mapping[PrimExpr, float]) -> float:
    """The value of an expression of float64."""
    match e:
        case expr.Var():
            return values[e]
        case expr.FloatImm(number) | expr.IntImm(number):
            return number
        case expr.BinaryOp(a, b):
            exact = SCALAR_OPERATORS[type(e).__name__].exact
            return exact(value_of(a, values), value_of(b, values))
        case expr.Select(condition, a, b):
            return value_of(a if value_of(condition, values) else b, values)
        case expr.Call(_, "if_then_else", (condition, a, b)):
            return value_of(expr.Select(condition, a, b), values)
        case expr.Call(dtype, op, args):
            meaning = INTRINSICS[op].meaning
            assert meaning is not None
            result = {"bool": "bool"}.get(dtype, "float64")
            return float(meaning(np.dtype(result), *(value_of(a, values) for a in args)))
        case _:
            raise AssertionError(f"no value of {e}")


@pytest.mark.parametrize("name", [n for n, r in INTRINSICS.items() if callable(r.derivative)])
def test_derivatives_are_the_limits_of_differences(name: str) -> None:
    row = INTRINSICS[name]
    xs = [expr.Var(f"x{i}", "float64") for i in range(row.arity - (name == "ldexp"))]
    forms = {"if_then_else": [xs[0] > 0.5, *xs[1:]], "ldexp": [*xs, expr.const(3)]}
    args = forms.get(name, xs)
    y = expr.Var("y", "float64")
    call = expr.Call(row.dtype(args) or "float64", name, tuple(args))
    derivatives = row.derivatives(args, y)
    assert len(derivatives) == row.arity
    for given in ((1.7, 0.6, 0.3), (1.3, 0.8, 2.3)) if name == "acosh" else POINTS:
        at: dict[PrimExpr, float] = dict(zip(xs, given, strict=False))
        values = {**at, y: value_of(call, at)}
        for x, d in zip(xs, derivatives, strict=name != "ldexp"):
            ahead, behind = (value_of(call, {**at, x: at[x] + h}) for h in (1e-6, -1e-6))
            slope = 0.0 if d is None else value_of(d, values)
            assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-7, abs=1e-8)


def test_pure_rows_have_derivatives_or_say_why_not() -> None:
    assert all(row.derivative for row in INTRINSICS.values() if row.pure)
    with pytest.raises(ValueError, match="popcount has no derivatives: a function of bits"):
        INTRINSICS["popcount"].derivatives([expr.Var("x")], expr.Var("y"))


def kernel(call: str, *dtypes: str) -> Module:
    """C[i] = call, of arrays X, Y, … of the dtypes, the last of which is C's; scalar and vector."""
    names = "XYZ"[: len(dtypes) - 1]
    params = [
        f'{name}: T.Buffer((16,), "{dtype}")'
        for name, dtype in zip((*names, "C", "D"), (*dtypes, dtypes[-1]), strict=True)
    ]
    return rl.parse(f"""
@T.prim_func
def f({", ".join(params)}):
    for i in range(16):
        C[i] = {call}
    for i in T.vectorized(16):
        D[i] = {call}
""")


def assert_computes(call: str, expected: Any, *arrays: Any) -> None:
    """Compiled, in the interpreter, and as a vector: the bits are those that are expected."""
    f = kernel(call, *(str(a.dtype) for a in (*arrays, expected)))
    wide = expected.dtype if expected.dtype.kind in "iu" else np.dtype("float64")
    executable = rl.compile(f)
    for run_on in (executable["f"], lambda *a: rl.interpret(f, "f", *a)):
        one, lanes = np.zeros_like(expected), np.zeros_like(expected)
        run_on(*arrays, one, lanes)
        for result in (one, lanes):  # of bfloat16, NumPy finds no NaN equal
            np.testing.assert_array_equal(result.astype(wide), expected.astype(wide))
            if wide == "float64":
                usual = ~np.isnan(expected)
                signs = np.signbit(result)[usual], np.signbit(expected)[usual]
                np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_nextafter_steps_by_one_bit(dtype: str) -> None:
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    tiny, least, most = info.smallest_subnormal, info.smallest_normal, info.max
    pairs = [
        (0.0, 1.0), (0.0, -1.0), (-0.0, 1.0), (-0.0, -1.0), (0.0, -0.0), (-0.0, 0.0),
        (tiny, 0.0), (-tiny, 1.0), (least, 0.0), (most, np.inf), (-most, -np.inf),
        (np.inf, 0.0), (-np.inf, -np.inf), (np.nan, 1.0), (1.0, np.nan), (1.0, -2.0),
    ]  # fmt: skip
    x, y = (np.array(column, numpy_dtype(dtype)) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        expected = np.where(x == y, y, np.nextafter(x, y))  # as C has it, signs of zeros too
    assert_computes("T.nextafter(X[i], Y[i])", expected, x, y)


@pytest.mark.parametrize("exponent", ["int8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ldexp_keeps_what_is_exact(dtype: str, exponent: str) -> None:
    info = np.finfo(dtype)
    low, top = (0, 100) if exponent[0] == "u" else (-100, 100)
    wide = exponent in ("int64", "uint32")
    far, near = (2**31 if wide else top), (-(2**33) if exponent == "int64" else low)
    pairs = [
        (0.0, top), (-0.0, low), (1.0, 3), (-1.5, 0), (3.0, 10), (1.0, top), (1.0, low),
        (np.inf, low), (-np.inf, top), (np.nan, 3), (info.smallest_subnormal, 12),
        (info.max, low), (info.max, 1), (1.0, far), (1.0, near), (-2.5, near),
    ]  # fmt: skip
    x, n = np.array([a for a, _ in pairs], dtype), np.array([b for _, b in pairs], exponent)
    with np.errstate(all="ignore"):
        expected = np.ldexp(x, np.clip(n.astype(object), -5000, 5000).astype("int32"))
    assert_computes("T.ldexp(X[i], Y[i])", expected, x, n)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_clz_counts_the_zeros_of_every_width(dtype: str) -> None:
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 4, 7, 8, 64, 100, 127, info.max, info.max - 1, info.max // 2, info.min,
               info.min // 2, info.max // 3]  # fmt: skip
    x = np.array(numbers, dtype)
    expected = [info.bits - (int(v) & (2**info.bits - 1)).bit_length() for v in x]
    assert_computes("T.clz(X[i])", np.array(expected, "int32"), x)


def fixed_point(x: int, y: int, q: int, left: int, right: int) -> int:
    """Python's integers have no width: wrapped where int64 and int32 wrap."""
    product = wrapped(wrapped(x << left, 64) * y, 64)
    return wrapped(wrapped(product + (1 << (q + right - 1)), 64) >> (q + right), 32)


def wrapped(number: int, bits: int) -> int:
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.parametrize("shift", [0, 1, 3, -1, -3, -20])
def test_q_multiply_shift_rounds_halves_up(shift: int) -> None:
    ends = [2**31 - 1, -(2**31)]
    x = np.array([0, 1, -1, 100, -100, 7, -7, 3, *ends, *ends, 12345678, -12345678, 5, -5], "int32")
    factors = [2**30, 2**30, 2**30, 1395864371, 1395864371, 2**30, 2**30, 2**29]
    y = np.array([*factors, *ends, *ends[::-1], -1395864371, 2**31 - 1, 2**30, 2**30], "int32")
    left, right = max(shift, 0), max(-shift, 0)
    rows = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    expected = np.array([fixed_point(a, b, 31, left, right) for a, b in rows], "int32")
    assert_computes(f"T.q_multiply_shift(X[i], Y[i], 31, {shift})", expected, x, y)
    amount = np.full(16, shift, "int32")
    assert_computes("T.q_multiply_shift(X[i], Y[i], 31, Z[i])", expected, x, y, amount)
    shifts = f"{left}, {right}, 31, {bool(left)}, {bool(right)}"
    assert_computes(f"T.q_multiply_shift_per_axis(X[i], Y[i], {shifts})", expected, x, y)


def test_q_multiply_shift_without_a_fraction_rounds_nothing() -> None:
    x = np.arange(-8, 8, dtype="int32")
    assert_computes("T.q_multiply_shift(X[i], 3, 0, 0)", x * 3, x)
    assert_computes("T.q_multiply_shift(X[i], 3, 0, Z[i])", x * 6, x, x, np.ones(16, "int32"))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("T.clz(X[i])", "clz takes an integer, not X[i], which is float32"),
        ("T.popcount(X[i])", "popcount takes an integer or a bool, not X[i], which is float32"),
        ("T.ldexp(X[i], X[i])", "ldexp takes an integer, not X[i], which is float32"),
        ("T.nextafter(i, i)", "nextafter takes a float, not i, which is int64"),
    ],
)
def test_arguments_of_other_kinds_are_refused(call: str, problem: str) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        rl.compile(kernel(call, "float32", "float32"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_copysign_takes_the_sign_of_zeros_and_nan(dtype: str) -> None:
    f = rl.parse(f"""
@T.prim_func
def f(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer((8,), "{dtype}"), C: T.Buffer((8,), "{dtype}")):
    for i in range(8):
        C[i] = T.copysign(X[i], Y[i])
""")
    x = np.array([1.5, -1.5, 0.0, -0.0, np.inf, -np.inf, np.nan, 3.0], dtype)
    y = np.array([-0.0, 0.0, -2.0, 2.0, -1.0, np.inf, -1.0, -np.nan], dtype)
    compiled, read = np.zeros(8, dtype), np.zeros(8, dtype)
    rl.compile(f)["f"](x, y, compiled)
    rl.interpret(f, "f", x, y, read)
    for result in (compiled, read):
        np.testing.assert_array_equal(result, np.copysign(x, y))
        np.testing.assert_array_equal(np.signbit(result), np.signbit(y))


@pytest.mark.parametrize("spelling", [s for s in NAMED if s.startswith("llvm.") or s.endswith("f")])
def test_functions_of_llvm_and_c_are_the_intrinsics_that_they_name(spelling: str) -> None:
    row = INTRINSICS[NAMED[spelling]]
    args = ", ".join(["X[i]", "Y[i]" if row.name != "ldexp" else "2", "X[i]"][: row.arity])
    by = "call_llvm_pure_intrin" if spelling.startswith("llvm.") else "call_pure_extern"
    own, named = (
        rl.parse(f"""
@T.prim_func
def f(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = {call}
""")
        for call in (f"T.{row.name}({args})", f'T.{by}("float32", "{spelling}", {args})')
    )
    x = np.array([0.25, 0.5, 0.75, 1.0], "float32") + (row.name == "acosh")
    wanted, read, compiled = (np.zeros(4, "float32") for _ in range(3))
    rl.interpret(own, "f", x, x, wanted)
    rl.interpret(named, "f", x, x, read)
    rl.compile(named)["f"](x, x, compiled)
    np.testing.assert_array_equal(read, wanted)
    np.testing.assert_allclose(compiled, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loop", ["range(17)", "T.vectorized(16)"])
def test_functions_of_c_are_called_for_each_lane(loop: str) -> None:
    """C's functions take numbers, and lanes come from loops."""
    f = rl.parse(f"""
@T.prim_func
def f(X: T.Buffer((17,), "float32"), C: T.Buffer((17,), "float64")):
    for i in {loop}:
        T.evaluate(T.call_extern("void", "srandom", T.cast(i, "int32")))
        C[i] = T.call_extern("float64", "exp", T.cast(X[i], "float64")) + T.cast(
            T.call_extern("int32", "abs", T.cast(X[i], "int32")), "float64")
""")
    x, c = np.linspace(-8, 8, 17).astype("float32"), np.zeros(17)
    rl.compile(f)["f"](x, c)
    count = 17 if "17" in loop else 16
    np.testing.assert_allclose(c[:count], (np.exp(x, dtype="float64") + np.abs(x))[:count])
