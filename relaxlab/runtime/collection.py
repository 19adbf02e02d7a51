"""Python's garbage collector, paused where many long-lived objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector inside the block: it would traverse all objects again and again,
    which takes a tenth of a compilation or of reading a vocabulary."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
