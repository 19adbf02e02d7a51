"""Arrays of the words that native code shares with its caller."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""An array of int64."""
