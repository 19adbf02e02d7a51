"""Accuracy of the elementary functions over the whole range of their argument.

Errors are in units in the last place (ulp) of the result, against float64. Results below the
smallest normal number may become zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.executable import Executable
from tests.codegen.kernels import Kernels, module_text, parse_kernels

COUNT = 1 << 15

# function: (largest error in float32, in float64)
BOUNDS = {
    "exp": (1.5, 1), "exp2": (1.5, 1), "expm1": (2, 1), "exp10": (1, 2), "log": (1, 1),
    "log2": (2, 1), "log10": (2, 2), "log1p": (2, 1), "sqrt": (0.5, 0.5), "rsqrt": (1.5, 1.5),
    "sin": (2, 1), "cos": (2, 1), "tan": (3, 1), "asin": (3, 1), "acos": (3, 1), "atan": (3, 1),
    "sinh": (3, 2), "cosh": (2, 2), "tanh": (1.5, 2), "asinh": (4, 2), "acosh": (3, 2),
    "atanh": (2, 2), "erf": (5, 1), "erfc": (4, 2), "sigmoid": (2.5, 2), "floor": (0, 0),
    "lgamma": (5, 1), "ceil": (0, 0), "trunc": (0, 0), "round": (0, 0), "nearbyint": (0, 0),
    "fabs": (0, 0), "cbrt": (0.8, 3),
}  # fmt: skip

FUNCTION = """
@T.prim_func
def vector_{f}(A: T.Buffer(({n},), "{d}"), C: T.Buffer(({n},), "{d}")):
    for i in range({n} // 16):
        for j in T.vectorized(16):
            C[i * 16 + j] = T.call_intrin("{d}", "{f}", A[i * 16 + j])

@T.prim_func
def scalar_{f}(A: T.Buffer(({n},), "{d}"), C: T.Buffer(({n},), "{d}")):
    for i in range({n}):
        C[i] = T.call_intrin("{d}", "{f}", A[i])

@R.function
def {f}(a: R.Tensor(({n},), "{d}")):
    x = R.call_tir(cls.vector_{f}, (a,), out_sinfo=R.Tensor(({n},), "{d}"))
    y = R.call_tir(cls.scalar_{f}, (a,), out_sinfo=R.Tensor(({n},), "{d}"))
    return (x, y)
"""


def _round_half_away(x: Any) -> Any:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


REFERENCE: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc),
    "nearbyint": np.rint, "round": _round_half_away, "fabs": np.abs,
    "exp10": lambda x: np.power(np.float128(10), x), "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "lgamma": np.vectorize(lambda x: math.inf if x <= 0 and x % 1 == 0 else math.lgamma(x)),
}  # fmt: skip

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-45, -1e-45,
    1.17549435e-38, 1.1754942e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -87.33654,
    -87.4, -104.0, 127.5, 128.0, -126.0, 0.625, 0.62499994, 3.9, 4.0, 9.0, 1e5, 100000.01, 1e10,
    0.99999994, 1.0000001, 1.9999999, 2.0, 2.0000002, 3.0, 8388609.0, 16777217.0,
]  # fmt: skip


def samples(dtype: str) -> Any:
    """All magnitudes, common ranges, multiples of pi, and special values."""
    rng = np.random.default_rng(17)
    kind = numpy_dtype(dtype)
    words = rng.integers(0, 256, (COUNT // 2) * kind.itemsize, dtype=np.uint8).view(kind)
    parts = [
        words,
        rng.uniform(-10, 10, COUNT // 4),
        rng.uniform(-100, 100, COUNT // 8),
        rng.normal(size=COUNT // 16) * 1e4,
        np.arange(COUNT // 32) * (math.pi / 2),
        SPECIAL,
    ]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(p, "float64") for p in parts]).astype(kind)
    return np.resize(x, COUNT)


@cache
def executable(dtype: str) -> Executable:
    body = "".join(FUNCTION.format(f=f, d=dtype, n=COUNT) for f in BOUNDS)
    return rl.compile(rl.parse(body), use_cache=False, threads=1)


def run(dtype: str, name: str) -> tuple[Any, Any, Any]:
    """Arguments, results and exact results; vectors and scalars give the same bits."""
    x = samples(dtype)
    vector, scalar = executable(dtype)[name](x)
    np.testing.assert_array_equal(np.isnan(vector), np.isnan(scalar))
    same = np.isnan(vector.astype("float64")) | (bits(vector) == bits(scalar))
    assert same.all(), (x[~same][:5], vector[~same][:5], scalar[~same][:5])
    wide = np.float128 if dtype == "float64" else np.float64
    function = REFERENCE.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        return x, vector, function(x.astype("float64").astype(wide)).astype(wide)


def bits(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def check(dtype: str, name: str, bound: float) -> None:
    x, got, exact = run(dtype, name)
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
    info = ml_finfo(dtype)
    tiny = info.smallest_normal
    wrong = np.isnan(got) != np.isnan(want)
    assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5], want[wrong][:5])
    # Next to infinity one rounding decides.
    almost = np.abs(exact) > np.float64(info.max) * (1 - 2.0**-9)
    wrong = (np.isinf(got) != np.isinf(want)) & ~almost & ~np.isnan(want)
    assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5], want[wrong][:5])
    wrong = np.isinf(got) & (np.sign(got.astype("float64")) != np.sign(exact))
    assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5])
    finite = np.isfinite(got) & np.isfinite(want)
    exact, near, places = exact[finite], got[finite].astype(exact.dtype), x[finite]
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(exact), tiny)))
    ulp = np.exp2(exponent) * float(info.eps)
    error = np.abs(near - exact)
    error = np.where((np.abs(exact) < tiny) & (np.abs(near) <= tiny), 0, error / ulp)
    at = int(error.argmax())
    print(f"{name} of {dtype}: {float(error[at]):.3f} ulp at {places[at]!r}")
    assert error[at] <= bound, (name, places[at], near[at], exact[at])


def ml_finfo(dtype: str) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(numpy_dtype(dtype))


@pytest.mark.parametrize("name", BOUNDS)
def test_float32(name: str) -> None:
    check("float32", name, BOUNDS[name][0])


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs a wider reference")
def test_float64(name: str) -> None:
    if name in ("erf", "lgamma"):
        pytest.skip("no wider reference")
    check("float64", name, BOUNDS[name][1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BOUNDS)
def test_half_precision_rounds_a_float32_result(name: str, dtype: str) -> None:
    check(dtype, name, 0.51 if BOUNDS[name][0] else 0)


@pytest.mark.parametrize("name", ["sin", "fabs", "floor", "tanh", "erf", "round", "nearbyint",
                                  "cbrt"])  # fmt: skip
def test_zeros_keep_their_sign(name: str) -> None:
    x, got, _ = run("float32", name)
    zeros = x == 0
    np.testing.assert_array_equal(
        np.signbit(got[zeros]), np.signbit(np.abs(x[zeros]) if name == "fabs" else x[zeros])
    )


def test_logarithms_of_powers_are_whole() -> None:
    """Who counts digits or bits by them rounds down."""
    exe = rl.compile(rl.parse("""
@R.function
def main(x: R.Tensor(("n",), "float64"), y: R.Tensor(("n",), "float64")):
    return (R.log2(x), R.log10(y), R.exp2(R.log2(x)))
"""))
    k = np.arange(-300.0, 301.0)
    x, y = np.exp2(k), np.array([float(f"1e{int(n)}") for n in k])
    for got, want in zip(exe["main"](x, y), (k, k, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_erf_ends_in_one() -> None:
    """Whoever multiplies 1 + erf(x) by x (gelu) sees every bit that is missing."""
    x, got, exact = run("float32", "erf")
    ended = np.abs(x) >= 3.92
    np.testing.assert_array_equal(got[ended], exact[ended].astype("float32"))
    assert set(got[ended].tolist()) == {1.0, -1.0}


POWERS = """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
    return R.power(x, y)
"""


def test_powers() -> None:
    """Within one unit in the last place everywhere, and rounded as the exact value nearly always;
    the exceptions of C99 for all pairs of special values."""
    rng = np.random.default_rng(29)
    special = np.meshgrid(np.float32([*SPECIAL, 2, -2, 3, -3, 16777216]), np.float32([*SPECIAL, 3]))
    words = rng.integers(0, 256, (2, 4 * COUNT), dtype=np.uint8).view(np.float32)
    sizes = np.exp(8 * rng.normal(size=COUNT)), 8 * rng.normal(size=COUNT)
    whole = rng.normal(size=COUNT), rng.integers(-30, 30, COUNT)
    parts = [[p.ravel() for p in special], words, sizes, whole]
    x, y = (np.concatenate([p[i] for p in parts], dtype=np.float32) for i in range(2))
    got = rl.compile(rl.parse(POWERS), use_cache=False, threads=1)["main"](x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype("float64"), y.astype("float64")).astype("float32")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    numbers = ~np.isnan(want)
    steps = np.abs(got.view("int32").astype("int64") - want.view("int32"))[numbers]
    assert steps.max() <= 1, (x[numbers][steps.argmax()], y[numbers][steps.argmax()])
    assert (steps > 0).mean() < 1e-4


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("call", ["power(NUMBER, x)", "power(x, NUMBER)", "atan2(NUMBER, x)",
                                  "atan2(x, NUMBER)", "power(column, x)"])  # fmt: skip
def test_one_number_beside_a_vector(call: str, dtype: str) -> None:
    call = call.replace("NUMBER", f'R.const(1.5, "{dtype}")')
    mod = rl.parse(
        f"@R.function\ndef main(x: R.Tensor((4, 64), {dtype!r}), column: R.Tensor((4, 1), "
        f"{dtype!r})):\n    y = R.{call}\n    return y\n"
    )
    x = np.linspace(0.25, 2, 256).reshape(4, 64).astype(dtype)
    got = rl.compile(mod)["main"](x, x[:, :1].copy())
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(got, rl.interpret(mod, "main", x, x[:, :1].copy()), tolerance)


@cache
def of_two_arguments(name: str) -> Executable:
    return rl.compile(
        rl.parse(
            f"@R.function\ndef main(a: R.Tensor(({COUNT},), 'float32'), b: R.Tensor(({COUNT},), "
            f"'float32')):\n    y = R.{name}(a, b)\n    return y\n"
        ),
        threads=1,
    )


def pairs() -> tuple[Any, Any]:
    """Samples beside samples in another order, and each special value beside each."""
    a = samples("float32")
    b = np.random.default_rng(5).permutation(a)
    special = np.array([*SPECIAL, 1e-40, 3e38], "float32")
    x, y = np.meshgrid(special, special)
    a[: x.size], b[: x.size] = x.ravel(), y.ravel()
    return a, b


def test_remainders_are_exact() -> None:
    a, b = pairs()
    b[5000:20000] = np.abs(a[5000:20000]) / np.random.default_rng(6).integers(1, 9999, 15000)
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    np.testing.assert_array_equal(of_two_arguments("mod")["main"](a, b), want)


def test_angles_of_points() -> None:
    y, x = pairs()
    got = of_two_arguments("atan2")["main"](y, x)
    exact = np.arctan2(y.astype("float64"), x.astype("float64"))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    near = np.isnan(exact) | (np.abs(exact) < np.finfo("float32").smallest_normal)
    error = np.abs(got - exact)[~near] / np.spacing(np.abs(exact[~near]).astype("float32"))
    assert error.max() <= 3, (y[~near][error.argmax()], x[~near][error.argmax()])
    zeros = (y == 0) & ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(y[zeros]))


REPEATED = """
def repeated(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    for i in T.vectorized(32):
        C[i] = T.log(A[i]) * T.log(A[i]) + T.log(A[i])
"""


def test_a_function_is_computed_once_for_the_same_element() -> None:
    """A logarithm jumps around rare cases; LLVM would merge no two of them."""
    text, _ = module_text(parse_kernels(REPEATED))
    assert text.count("\nrare") == 1
    x = np.linspace(0, 5, 32, dtype="float32")
    got = np.zeros_like(x)
    Kernels(parse_kernels(REPEATED))("repeated", [x, got])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, np.log(x) ** 2 + np.log(x), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("condition", "sides"), [("ONE > 0", "ONE, SLOW"), ("ONE < 0", "SLOW, ONE")]
)
def test_a_side_that_no_lane_asks_for_is_passed_over(condition: str, sides: str) -> None:
    """Vectors of positive numbers alone, of negative ones, of both, with NaN and zeros."""
    value = f"T.Select({condition}, {sides})".replace("SLOW", "T.exp(ONE * T.float32(I % 5))")
    value = value.replace("ONE", "A[I]").replace("I", "(j * 16 + lane)")
    text = f"""
def chosen(A: T.Buffer((96,), "float32"), C: T.Buffer((96,), "float32")):
    for j in range(6):
        for lane in T.vectorized(16):
            C[j * 16 + lane] = {value}
"""
    kernels = Kernels(parse_kernels(text))
    assert "\nrare" in kernels.text
    x = np.random.default_rng(7).uniform(-2, 2, 96).astype("float32")
    x[:16], x[16:32] = np.abs(x[:16]), -np.abs(x[16:32])
    x[40:44] = math.nan, 0.0, -0.0, -8.0
    got = np.zeros_like(x)
    kernels("chosen", [x, got])
    usual = x > 0 if ">" in condition else ~(x < 0)
    slow_side = np.exp(x * (np.arange(96) % 5).astype("float32"))
    np.testing.assert_allclose(got, np.where(usual, x, slow_side), 1e-5)


ROOT = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    return R.sqrt(x)
"""


def test_roots_are_exact(rng: np.random.Generator) -> None:
    """Every thirteenth number from 1 to 4, and those that estimates are not used for, have the root
    that IEEE 754 asks for."""
    start = int(rng.integers(13))
    bits = np.arange((127 << 23) + start, 129 << 23, 13, dtype="int32")
    x = np.concatenate([bits.view("float32"), np.float32([*SPECIAL, 1e-30, 1e-40])])
    main = rl.compile(rl.parse(ROOT), use_cache=False, threads=1)["main"]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(main(x), np.sqrt(x))
