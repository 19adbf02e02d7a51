"""Shared by the model tests: the SmolLM2 file and random models of every family."""

from pathlib import Path

import pytest

from relaxlab.models import smollm2 as smollm2_weights
from relaxlab.models.gguf import GGUF, read_gguf
from tests.models.family_models import REFERENCE, make_models


@pytest.fixture(scope="session")
def smollm2() -> GGUF:
    try:
        return read_gguf(smollm2_weights.path())
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def family_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Per case of `family_models.CASES`, a folder with the model and a file with its logits."""
    if not REFERENCE.exists():
        pytest.skip("no .venv-reference with transformers (make reference-env)")
    folder = tmp_path_factory.mktemp("families")
    make_models(folder)
    return folder
