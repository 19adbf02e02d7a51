"""The rows of ATen's operators, a file per family.

Rows get tensors as variables, symbolic integers as scalar expressions, dtypes by name, graphs of
control flow as functions; other arguments as PyTorch has them.
"""

from relaxlab.frontend.pytorch.rows import (  # noqa: F401
    complex,
    control,
    elementwise,
    factors,
    indexing,
    linear,
    nn,
    recurrent,
    reductions,
    shapes,
    special,
    transformer,
)
from relaxlab.frontend.pytorch.rows.complex import COMPLEX
from relaxlab.frontend.pytorch.rows.table import TABLE

__all__ = ["COMPLEX", "TABLE", "has_row"]


def has_row(name: str) -> bool:
    """True if a call of the operator can be imported, of real numbers or of complex ones."""
    return name in TABLE or name in COMPLEX
