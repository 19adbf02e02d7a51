"""The tiny Llama that ships inside the package, for demonstrations and tests without a download.

Half a million weights in Q4_1 and Q8_0, 342 KB, context of 256 tokens, chat template included. It
knows sums up to 20 + 20, products up to 10 * 10, counting, days, months, some opposites, colours
and one kind of animal story. ``tools/train_tiny.py`` made it, from text that the script makes up.
"""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """Return the path of the GGUF file."""
    return Path(__file__).with_name("data") / "tiny.gguf"
