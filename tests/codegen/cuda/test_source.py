"""CUDA C of single statements and expressions."""

from __future__ import annotations

import pytest

from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.cuda.prelude import prelude
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.kernel import KernelSource, emit_kernel
from relaxlab.codegen.gpu.lower import lower_launches
from tests.codegen.kernels import parse_kernels


def kernel(text: str) -> KernelSource:
    (func,) = parse_kernels(text).loop_functions().values()
    (launch,) = lower_launches(func, "f").launches
    return emit_kernel(launch, CUDA_C)


def stored(value: str, dtype: str, result: str | None = None) -> str:
    """The C text of `value`, which may read X[i] and Y[i]."""
    code = kernel(f"""
    def f(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer((8,), "{dtype}"),
          Z: T.Buffer((8,), "{result or dtype}")):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            Z[i] = {value}
    """).code
    return code.split("Z[tx] = ")[1].split(";\n")[0].replace("[tx]", "")


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", "X[i] + Y[i] * X[i]", "X + Y * X"),
        ("float32", "(X[i] - Y[i]) * X[i]", "(X - Y) * X"),
        ("float32", "X[i] - (Y[i] - X[i])", "X - (Y - X)"),
        ("float32", "T.max(X[i], T.float32(0))", "maximum<float>(X, 0.0f)"),
        ("float32", "T.exp(X[i])", "expf(X)"),
        ("float64", "T.exp(X[i])", "exp(X)"),
        ("float16", "X[i] + Y[i]", "__half((float)X + (float)Y)"),
        ("bfloat16", "T.sqrt(X[i])", "__nv_bfloat16(sqrtf((float)X))"),
        ("float32", 'T.float32("-inf")', "-INFINITY"),
        ("int8", "X[i] + Y[i]", "(int8_t)(X + Y)"),
        ("int32", "X[i] * Y[i]", "X * Y"),
        ("int32", "T.floordiv(X[i], T.int32(4))", "floordiv<int32_t>(X, 4)"),
        ("uint8", "T.floordiv(X[i], T.uint8(4))", "(uint8_t)(X / 4)"),
        ("int32", "T.floordiv(X[i], Y[i])",
         "floordiv<int32_t>(X, checked_divisor<int32_t>(Y, failed, 1))"),
        ("int64", "T.shift_left(T.int64(1), X[i])", "shift_left<int64_t>(1, X)"),
        ("int64", "T.shift_right(X[i], T.int64(3))", "X >> 3"),
        ("bool", "X[i] and not Y[i]", "X && !Y"),
        ("float32", "T.if_then_else(X[i] < Y[i], X[i], Y[i])", "X < Y ? X : Y"),
    ],
)  # fmt: skip
def test_expressions(dtype: str, value: str, expected: str) -> None:
    assert stored(value, dtype) == expected


def test_conversions() -> None:
    assert stored('T.Cast("float16", X[i])', "int32", "float16") == "__half((float)(X))"
    assert stored('T.Cast("bool", X[i])', "float32", "bool") == "X != 0"
    assert stored('T.Cast("int8", X[i])', "bfloat16", "int8") == "truncate<int8_t>((float)X)"


def test_neighbours_move_together_and_the_tail_alone() -> None:
    code = kernel("""
    def f(X: T.Buffer(("n",), "float32"), Y: T.Buffer(("n",), "float32")):
        n = T.int64()
        for b in T.thread_binding((n + 127) // 128, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for j in T.vectorized(4):
                    with T.block("Y"):
                        v = T.axis.spatial(n, b * 128 + t * 4 + j)
                        T.where(b * 128 + t * 4 + j < n)
                        Y[v] = X[v] * T.float32(2)
    """).code
    assert "if (bx * 128 + tx * 4 + 3 < n) {" in code
    assert "const Vec<float, 4> X_vec = *reinterpret_cast<const Vec<float, 4>*>(X + " in code
    assert "Y_vec.lane[lane_of_vector] = X_vec.lane[lane_of_vector] * 2.0f;" in code
    assert "if (bx * 128 + tx * 4 + j < n) {" in code.split("} else {")[1]


def test_rows_of_unknown_length_are_not_moved_together() -> None:
    """The address of row 1 of n floats is a multiple of 16 bytes for some n only."""
    code = kernel("""
    def f(X: T.Buffer((8, "n"), "float32"), Y: T.Buffer((8, "n"), "float32")):
        n = T.int64()
        for b in T.thread_binding(8, thread="blockIdx.x"):
            for t in range(n // 4):
                for j in T.vectorized(4):
                    Y[b, t * 4 + j] = X[b, t * 4 + j]
    """).code
    assert "Vec<" not in code and "#pragma unroll" in code


def test_lazy_loads_stay_lazy() -> None:
    code = kernel("""
    def f(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for j in T.vectorized(4):
                Y[t * 4 + j] = T.if_then_else(t < 8, X[t * 4 + j], T.float32(0))
    """).code
    first, rest = code.split("if (tx < 8) {")
    inside, outside = rest.split("else {")
    assert "X_vec" not in first and "X_vec" in inside and "X_vec" not in outside


def test_names_are_c_names_and_taken_once() -> None:
    code = kernel("""
    def f(int_: T.Buffer((8,), "float32"), exp: T.Buffer((8,), "float32")):
        for lane in T.thread_binding(8, thread="threadIdx.x"):
            exp[lane] = T.exp(int_[lane])
    """).code
    assert "exp_1[tx] = expf(int_[tx]);" in code


def test_assertions_are_reported_by_number() -> None:
    source = kernel("""
    def f(X: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32")):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            assert X[t] > T.int32(0), "not positive"
            Y[t] = X[t]
    """)
    assert source.failures == ("assertion failed: not positive",)
    assert "int* __restrict__ failed" in source.code and "atomicCAS(failed, 0, 1);" in source.code


def test_the_prelude_has_what_is_used() -> None:
    text = prelude("maximum<float>(x, y) + (float)__half(z)")
    assert "T maximum(" in text and "cuda_fp16.h" in text
    assert "minimum" not in text and "cuda_bf16.h" not in text


@pytest.mark.parametrize(
    ("value", "name"),
    [('T.call_extern("float32", "frobnicate", X[i])', "frobnicate"),
     ('T.call_llvm_pure_intrin("float32", "llvm.x86.magic", X[i])', "llvm.x86.magic")],
)  # fmt: skip
def test_instructions_of_other_machines_are_refused(value: str, name: str) -> None:
    with pytest.raises(CodegenError, match=f"no CUDA row for '{name}'"):
        stored(value, "float32")
