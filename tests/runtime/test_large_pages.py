"""Memory that begins in small pages and moves to large ones: it keeps what is in it."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.runtime.large_pages import PAGE, STEP, Promotion, in_large_pages, zeros

SHAPES = [(3, PAGE // 4), (5,), (2, STEP // 4), (0, 7)]


def test_zeros_lie_apart_and_are_zero() -> None:
    arrays = zeros(SHAPES, "float16")
    assert [a.shape for a in arrays] == SHAPES
    assert not any(a.any() for a in arrays)
    for number, array in enumerate(arrays):
        array[...] = number + 1
    for number, array in enumerate(arrays):
        assert (array == number + 1).all()


@pytest.mark.parametrize("views", [False, True])
def test_promotion_keeps_the_content(views: bool, rng: np.random.Generator) -> None:
    arrays = zeros(SHAPES, "float32")
    for array in arrays:
        array[...] = rng.random(array.shape, np.float32)
    copies = [a.copy() for a in arrays]
    given = [a[1:] for a in arrays] if views else arrays
    promotion = Promotion(given)
    steps = 0
    while promotion._spans:
        promotion.step()
        steps += 1
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
    assert steps >= sum(a.nbytes for a in given) // STEP - len(SHAPES)
    assert steps > 0
    promotion.step()  # nothing is left to do


def test_large_caches_stay_where_they_are() -> None:
    arrays = zeros([(4 * PAGE,)], "uint8")
    assert Promotion(arrays)._spans and not Promotion(arrays, PAGE)._spans


def test_copies_in_large_pages(rng: np.random.Generator) -> None:
    arrays = [rng.random((3, 5)), rng.integers(0, 9, 7, np.int32), np.zeros((0, 4), np.float16)]
    for copy, array in zip(in_large_pages(arrays), arrays, strict=True):
        np.testing.assert_array_equal(copy, array)
        assert copy.dtype == array.dtype and not np.shares_memory(copy, array)
