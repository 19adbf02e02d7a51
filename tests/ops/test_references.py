"""The references themselves, against formulas written out element by element."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
import relaxlab.ops  # noqa: F401  the operators' rows
from relaxlab.ir.op_table import op_names, op_row

RNG = np.random.default_rng(5)


def call(name: str, *args: Any, **attrs: Any) -> Any:
    reference = op_row(name).reference
    return reference(*args, **attrs)


def randn(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def test_activations() -> None:
    formulas = {
        "nn.relu": lambda v: max(v, 0.0),
        "nn.silu": lambda v: v / (1 + math.exp(-v)),
        "nn.gelu": lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2)),
        "nn.gelu_tanh": lambda v: v / (1 + math.exp(-1.5957691216 * (v + 0.044715 * v**3))),
        "nn.softplus": lambda v: math.log(1 + math.exp(v)),
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    }
    x = randn(50) * 3
    for name, formula in formulas.items():
        want = [formula(float(v)) for v in x]
        np.testing.assert_allclose(call(name, x), want, rtol=2e-5, atol=2e-6, err_msg=name)


def test_softmax_survives_large_scores() -> None:
    x = np.array([[1000.0, 1001.0, -1000.0]], np.float32)
    want = [[1 / (1 + math.e), math.e / (1 + math.e), 0]]
    np.testing.assert_allclose(call("nn.softmax", x), want, rtol=1e-6)
    np.testing.assert_allclose(call("nn.log_softmax", x)[0, 2], -2001.3133, rtol=1e-6)


def test_norms() -> None:
    x, gamma, beta = randn(3, 8), randn(8), randn(8)
    for row, rms, layer in zip(
        x, call("nn.rms_norm", x, gamma), call("nn.layer_norm", x, gamma, beta), strict=True
    ):
        size = math.sqrt(sum(float(v) ** 2 for v in row) / 8 + 1e-5)
        np.testing.assert_allclose(rms, row / size * gamma, rtol=1e-5)
        mean = sum(map(float, row)) / 8
        spread = math.sqrt(sum((float(v) - mean) ** 2 for v in row) / 8 + 1e-5)
        np.testing.assert_allclose(layer, (row - mean) / spread * gamma + beta, rtol=1e-4)


@pytest.mark.parametrize(
    ("mask", "window"), [(None, None), ("TopLeft", None), ("BottomRight", None), ("TopLeft", 2)]
)
def test_attention(mask: str | None, window: int | None) -> None:
    q, k, v = randn(2, 3, 4, 8), randn(2, 5, 2, 8), randn(2, 5, 2, 6)
    got = call("nn.attention", q, k, v, causal_mask=mask, window_size=window)
    for b, i, h in itertools.product(range(2), range(3), range(4)):
        last = {None: 4, "TopLeft": i, "BottomRight": i + 2}[mask]
        seen = [j for j in range(5) if j <= last and (window is None or last - j < window)]
        scores = [math.exp(float(q[b, i, h] @ k[b, j, h // 2]) / math.sqrt(8)) for j in seen]
        want = sum(s * v[b, j, h // 2] for s, j in zip(scores, seen, strict=True)) / sum(scores)
        np.testing.assert_allclose(got[b, i, h], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_rope_turns_pairs_as_complex_numbers(style: str) -> None:
    x = randn(1, 3, 2, 8)
    got = call("nn.rope", x, 10, style=style, theta=500.0)
    for i, h, p in itertools.product(range(3), range(2), range(4)):
        a, b = (p, p + 4) if style == "neox" else (2 * p, 2 * p + 1)
        angle = (i + 10) * 500.0 ** (-p / 4)
        turned = complex(x[0, i, h, a], x[0, i, h, b]) * complex(math.cos(angle), math.sin(angle))
        np.testing.assert_allclose(
            got[0, i, h, [a, b]], [turned.real, turned.imag], rtol=1e-5, atol=1e-6
        )


def test_integer_division_never_traps() -> None:
    lowest = np.iinfo(np.int32).min
    a = np.array([7, -7, 7, -7, 5, lowest], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    assert call("divide", a, b).tolist() == [3, -3, -3, 3, 0, lowest]
    assert call("floor_divide", a, b).tolist() == [3, -4, -4, 3, 0, lowest]
    assert call("mod", a, b).tolist() == [1, -1, 1, -1, 0, 0]
    assert call("floor_mod", a, b).tolist() == [1, 1, -1, -1, 0, 0]


def test_halves_round_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    assert call("round", x).tolist() == [0, 2, 2, 0]


def test_half_precision_sums_are_exact_in_float32() -> None:
    x = np.full((1, 4096), 1 / 3, np.float16)
    assert call("sum", x, axis=1)[0] == np.float16(np.float32(x[0, 0]) * 4096)


def test_scans() -> None:
    x = np.array([[1, 2, 3]], np.int32)
    assert call("cumsum", x, axis=1).tolist() == [[1, 3, 6]]
    assert call("cumsum", x, axis=1, exclusive=True).tolist() == [[0, 1, 3]]
    assert call("cumprod", x, axis=1, exclusive=True).tolist() == [[1, 1, 2]]


def test_sorting_is_stable_both_ways() -> None:
    x = np.array([2, 1, 2, 1], np.float32)
    assert call("argsort", x).tolist() == [1, 3, 0, 2]
    assert call("argsort", x, descending=True).tolist() == [0, 2, 1, 3]
    values, indices = call("topk", x, k=3)
    assert (values.tolist(), indices.tolist()) == ([2, 2, 1], [0, 2, 1])


def test_resizing_reads_nothing_where_all_weights_are_excluded() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    with np.errstate(all="ignore"):  # as the interpreter calls them
        outside = call(
            "image.resize2d", x, (1, 1), roi=(-1.0, -1.0, -1.0, -1.0), method="cubic",
            coordinate_transformation_mode="tf_crop_and_resize", cubic_exclude=1,
            extrapolation_value=9.0,
        )  # fmt: skip
    assert outside.item() == 9.0


def test_take_modes() -> None:
    x, at = np.array([10.0, 20.0, 30.0], np.float32), np.array([-1, 1, 3])
    assert call("take", x, at, mode="clip").tolist() == [10, 20, 30]
    assert call("take", x, at, mode="wrap").tolist() == [30, 20, 10]
    np.testing.assert_array_equal(call("take", x, at, mode="nan"), [np.nan, 20, np.nan])


def test_nothing_is_added_to_an_axis_without_elements() -> None:
    grad, x, at = np.zeros((0, 5, 4)), np.zeros((0, 0)), np.full((5, 4), -1)
    assert call("grad.take_backward", grad, x, at, axis=1).shape == (0, 0)


def test_reductions_to_nothing_read_nothing() -> None:
    """Over an axis without elements, where the result has none, either."""
    x, checked = np.zeros((3, 0, 0)), set()
    for name in op_names():
        kinds = {p.name: p.kind for p in op_row(name).params}
        if {"axis", "keepdims"} <= set(kinds) and list(kinds.values()).count("value") == 1:
            result = call(name, x, axis=2, keepdims=True)
            for part in result if isinstance(result, tuple) else (result,):
                assert part.shape == (3, 0, 1), name
            checked.add(name)
    assert {"sum", "max", "argmax", "median", "std"} <= checked


def test_sampling_follows_the_distribution() -> None:
    prob = np.array([[0.1, 0.0, 0.6, 0.3]], np.float32)
    uniform = ((np.arange(1000) + 0.5) / 1000).astype(np.float32)[:, None]
    rows = np.zeros((1000, 1), np.int64)
    drawn = call("multinomial_from_uniform", prob, uniform, rows)
    assert np.bincount(drawn[:, 0], minlength=4).tolist() == [100, 0, 600, 300]


@pytest.mark.parametrize("name", sorted(op_names()))
def test_references_take_every_attribute(name: str) -> None:
    """Constant folding passes on whatever attributes the call has."""
    row = op_row(name)
    if row.reference is not None:
        attrs = {p.name: None for p in row.params if p.kind == "attr"}
        values = [None for p in row.params if p.kind != "attr"]
        inspect.signature(row.reference).bind(*values, **attrs)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "int64", "float16"])
@pytest.mark.parametrize(
    "low, high",
    [(-3, 3), (1, 300), (300, 400), (-900, -800), (-1e30, 1e30), (-math.inf, math.inf)],
)
def test_bounds_of_clip_that_the_dtype_cannot_hold(dtype: str, low: float, high: float) -> None:
    """Such a bound is beyond all numbers of the dtype, or the last of them on that side."""
    x = np.array([0, 1, 2, 3, 100, 127], dtype)
    inside = [min(max(float(v), low), high) for v in x]
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        inside = [min(max(int(v), int(info.min)), int(info.max)) for v in inside]
    want = np.array(inside, dtype)
    np.testing.assert_array_equal(call("clip", x, min=low, max=high), want)
    func = f"""
@R.function
def main(x: R.Tensor((6,), "{dtype}")):
    return R.clip(x, {_written(low)}, {_written(high)})
"""
    np.testing.assert_array_equal(rl.compile(rl.parse(func), use_cache=False)["main"](x), want)


def _written(value: float) -> str:
    return str(value).replace("inf", "1e400")
