"""Exporting modules of PyTorch."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.pytorch.importer import imported


def exported(
    program: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ImportedProgram:
    """See `from_torch`. Raises TypeError for what is neither a module nor an exported program."""
    if isinstance(program, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise TypeError("an ExportedProgram has its arguments and dynamic shapes already")
        return imported(program)
    if not isinstance(program, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module or an ExportedProgram, not {type(program)}")
    with torch.no_grad():
        found = torch.export.export(
            program, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
        )
    return imported(found)
