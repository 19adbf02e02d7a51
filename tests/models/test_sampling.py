"""Samplers: restriction to the right tokens, the right frequencies, reproducible draws."""

import numpy as np
import pytest

from relaxlab.models.sampling import Sampler

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def draws(sampler: Sampler, count: int, logits=LOGITS) -> np.ndarray:
    return np.bincount([sampler(logits) for _ in range(count)], minlength=len(logits)) / count


def test_greedy_takes_the_first_of_the_largest():
    assert Sampler()(np.array([0.0, 2.0, 2.0, 1.0], np.float32)) == 1


def test_frequencies_follow_the_probabilities():
    np.testing.assert_allclose(
        draws(Sampler(temperature=1, seed=1), 8000), [0.1, 0.4, 0.2, 0.3], atol=0.025
    )


def test_temperature_sharpens():
    squared = np.array([0.01, 0.16, 0.04, 0.09])
    np.testing.assert_allclose(
        draws(Sampler(temperature=0.5, seed=2), 8000), squared / squared.sum(), atol=0.025
    )


def test_top_k_and_top_p_keep_the_most_likely():
    assert set(np.flatnonzero(draws(Sampler(1, top_k=2), 300))) == {1, 3}
    assert set(np.flatnonzero(draws(Sampler(1, top_p=0.65), 300))) == {1, 3}
    assert set(np.flatnonzero(draws(Sampler(1, top_p=0.75), 600))) == {1, 2, 3}
    assert set(np.flatnonzero(draws(Sampler(1, top_p=1e-9), 50))) == {1}
    assert set(np.flatnonzero(draws(Sampler(1, top_k=3, top_p=0.5), 300))) == {1, 3}
    assert (draws(Sampler(1, top_k=99), 600) > 0).all()


def test_same_seed_same_draws():
    a, b = Sampler(1, seed=7), Sampler(1, seed=7)
    assert [a(LOGITS) for _ in range(50)] == [b(LOGITS) for _ in range(50)]


def test_tiny_temperature_and_impossible_tokens():
    logits = np.array([-np.inf, 1e30, 0.0, -np.inf], np.float32)
    assert draws(Sampler(1e-30), 20, logits)[1] == 1
    with np.errstate(all="raise"):
        assert Sampler(1e-320)(logits) == 1
    assert set(np.flatnonzero(draws(Sampler(1e30), 200, logits))) == {1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": -3}, "seed"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampler(**arguments)


@pytest.mark.parametrize("bad", [[[1.0]], [], [np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_are_checked(bad, temperature):
    with pytest.raises(ValueError, match="logits"):
        Sampler(temperature)(np.array(bad, np.float32))
