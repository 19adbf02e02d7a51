"""Taking apart the operators of an exported program that have no row."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table

from relaxlab.frontend.pytorch.rows import has_row


def decomposed(program: Any) -> Any:
    """An `ExportedProgram` without mutation, in which PyTorch's decompositions have replaced the
    operators that have no row."""
    return program.run_decompositions(decompositions())


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of the operators that have no row."""
    known = {**decomposition_table, **torch.export.default_decompositions()}
    return {
        op: rule
        for op, rule in known.items()
        if isinstance(op, torch._ops.OpOverload) and not has_row(str(op))
    }
