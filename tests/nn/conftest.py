"""Shared by the tests of modules: a seeded generator that prints its seed."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    return np.random.default_rng(seed)
