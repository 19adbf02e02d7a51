"""float16 on processors without instructions for it."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm.half_conversions import half_conversions
from relaxlab.ir.target import Target
from relaxlab.targets.machines import MACHINES
from relaxlab.testing.processors import without_avx

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520, 65536, 1e30, -7e4, 2**-24, 2**-25,
     2**-25 * 1.0001, 2**-26, 1e-40, 6.1e-5, 2**-14, 2**-14 - 2**-26, 1 + 2**-11, 1 + 3 * 2**-11],
    np.float32,
)  # fmt: skip


@pytest.fixture(scope="module")
def older() -> Target:
    target = without_avx()
    if target is None:
        pytest.skip("this machine is no x86-64, whose older processors lack the instructions")
    return target


def converted(target: Target, source: str, dest: str, x: np.ndarray) -> np.ndarray:
    param = f'x: R.Tensor(("n",), "{source}")'
    mod = rl.parse(f'@R.function\ndef main({param}):\n    return R.astype(x, "{dest}")\n')
    return rl.compile(mod, target=target, use_cache=False)["main"](x)


def test_all_halves_are_extended(older: Target) -> None:
    assert not older.facts.converts_halves
    got = converted(older, "float16", "float32", ALL)
    want = ALL.astype("float32")
    np.testing.assert_array_equal(got[~np.isnan(want)], want[~np.isnan(want)])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_numbers_are_rounded_to_nearest_even(
    older: Target, source: str, rng: np.random.Generator
) -> None:
    # The numbers of all halves, those in the middle between two, and their neighbours.
    finite = np.sort(ALL[np.isfinite(ALL)].astype(source))
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middle, to, dtype=source) for to in (np.inf, -np.inf)]
    any_bits = rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):  # of signalling NaNs, and of numbers beyond the largest half
        x = np.concatenate([finite, middle, *beside, any_bits, SPECIAL]).astype(source)
        want = x.astype("float16")
    got = converted(older, source, "float16", x)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint16)[number], want.view(np.uint16)[number])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_programs_with_halves_run(older: Target, rng: np.random.Generator) -> None:
    params = 'x: R.Tensor(("n", 40), "float16"), w: R.Tensor((40, 9), "float16")'
    mod = rl.parse(f"@R.function\ndef main({params}):\n    return R.nn.softmax(R.matmul(x, w))\n")
    x, w = (rng.standard_normal(s).astype("float16") for s in ((7, 40), (40, 9)))
    got = rl.compile(mod, target=older, use_cache=False)["main"](x, w)
    np.testing.assert_allclose(got, rl.interpret(mod, "main", x, w), 1e-2, 1e-3)


def test_only_where_they_are_called() -> None:
    with_halves = ["define void @f(half %x) #0 {\n}"]
    for name in ("aarch64", "riscv64"):
        assert not half_conversions(with_halves, MACHINES[name])
    assert len(half_conversions(with_halves, Target())) == 2
    assert not half_conversions(["define void @f(float %x) #0 {\n}"], Target())

