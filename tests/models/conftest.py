"""Shared by the model tests: the SmolLM2 file, and a seeded generator that prints its seed."""

import numpy as np
import pytest

from relaxlab.models import smollm2 as smollm2_weights
from relaxlab.models.gguf import GGUF, read_gguf


@pytest.fixture(scope="session")
def smollm2() -> GGUF:
    try:
        return read_gguf(smollm2_weights.path())
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    return np.random.default_rng(seed)
