"""WGSL of single statements and expressions, and what is refused."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.codegen.gpu.program import sources_of
from relaxlab.codegen.wgsl.dialect import WGSL
from relaxlab.ir.facts import WEBGPU
from relaxlab.runtime.vm.gpu import NoGpu
from tests.codegen.kernels import parse_kernels


def source(text: str) -> str:
    (func,) = parse_kernels(text).loop_functions().values()
    return sources_of({"f": lower_launches(func, "f", facts=WEBGPU)}, WGSL)[1]


def stored(value: str, dtype: str, result: str | None = None) -> str:
    """The statements that store `value`, which may read X[i] and Y[i]."""
    code = source(f"""
    def f(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer((8,), "{dtype}"),
          Z: T.Buffer((8,), "{result or dtype}")):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            Z[i] = {value}
    """)
    return code.split("i32(threadIdx.x);\n")[1].rsplit("\n}", 1)[0].replace("[tx]", "")


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", "(X[i] - Y[i]) * X[i]", "(X - Y) * X"),
        ("float32", "T.max(X[i], T.float32(0))", "maximum_f32(X, 0.0f)"),
        ("float32", "T.rsqrt(X[i])", "inverseSqrt(X)"),
        ("float32", 'T.float32("-inf")', "-infinity_f32()"),
        ("float32", "T.if_then_else(X[i] < Y[i], X[i], Y[i])", "select(Y, X, X < Y)"),
        ("int32", "T.shift_right(X[i] + Y[i], T.int32(3))", "(X + Y) >> 3u"),
        ("int32", "T.bitwise_or(T.bitwise_and(X[i], Y[i]), X[i])", "(X & Y) | X"),
        ("int32", "T.floordiv(X[i], T.int32(4))", "floordiv_i32(X, 4)"),
        ("uint32", "T.floordiv(X[i], T.uint32(4))", "X / 4u"),
        ("bool", "X[i] and not Y[i]", "u32(X != 0u && !(Y != 0u))"),
        ("bool", "X[i] and Y[i] or X[i]", "u32((X != 0u && Y != 0u) || X != 0u)"),
    ],
)  # fmt: skip
def test_expressions(dtype: str, value: str, expected: str) -> None:
    assert stored(value, dtype) == f"  Z = {expected};"


def test_what_may_fail_is_computed_where_it_is_chosen() -> None:
    lines = stored("T.if_then_else(Y[i] > 0, X[i] // Y[i], X[i])", "int32").split("\n")
    assert lines[:3] == ["  var chosen: i32;", "  if (Y >= 1) {", "    var divisor = Y;"]
    assert lines[-1] == "  Z = chosen;"
    assert "atomicMax(&failed, 1);" in "".join(lines)


@pytest.mark.parametrize(
    ("dtype", "value", "reason"),
    [
        ("float16", "X[i]", "no type for the elements of 'X': float16"),
        ("int64", "X[i]", "no type for the elements of 'X': int64"),
        ("int32", 'T.cast(T.cast(X[i], "int64") * T.cast(Y[i], "int64") // 65536, "int32")',
         "no integers of 64 bits"),
        ("int32", 'T.cast(T.cast(X[i], "int64") < T.int64(5000000000), "int32")',
         "no integers of 64 bits"),
    ],
)  # fmt: skip
def test_what_wgsl_does_not_have_is_refused(dtype: str, value: str, reason: str) -> None:
    with pytest.raises(CodegenError, match=reason):
        stored(value, dtype)


def test_names_of_two_kernels_are_apart() -> None:
    exe = rl.compile(PROGRAM, target="wgsl")
    text = exe.source()
    declared = [line.split("> ")[1].split(":")[0] for line in text.split("\n") if "@group" in line]
    assert len(set(declared)) == len(declared) >= 4
    assert text.count("@compute") == sum(len(k.launches) for k in exe.gpu.kernels.values()) >= 2
    with pytest.raises(NoGpu, match="simulate"):
        exe["main"](None)


PROGRAM = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
    y = R.nn.softmax(R.matmul(x, w))
    z = R.matmul(x, w)
    return y, z
""")
