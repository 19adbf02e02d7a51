"""The rows of ATen's operators, a file per family.

Rows get tensors as variables, symbolic integers as scalar expressions, dtypes by name, graphs of
control flow as functions; other arguments as PyTorch has them.
"""

from relaxlab.frontend.pytorch.rows import (  # noqa: F401
    control,
    elementwise,
    indexing,
    linear,
    nn,
    reductions,
    shapes,
    special,
    transformer,
)
from relaxlab.frontend.pytorch.rows.table import TABLE

__all__ = ["TABLE"]
