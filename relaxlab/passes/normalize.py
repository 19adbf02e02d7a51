"""Bring graph functions into A-normal form and give every variable its deduced type."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.annotate import annotate
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.base import module_pass


@dataclass(frozen=True, slots=True)
class NormalizeOptions:
    """`computable`: refuse calls that have a type and cannot be computed, too."""

    computable: bool = True


@module_pass("normalize", NormalizeOptions)
def normalize(mod: Module, options: NormalizeOptions) -> Module:
    """Name every intermediate value, deduce all types, and turn claims that are not proved into
    `match_cast`s that are checked at run time.

    Raises `DiagnosticError` with everything that cannot be typed (codes E02xx, E0306, E0307).
    """
    result, diagnostics = annotate(mod, computable=options.computable)
    if diagnostics:
        raise DiagnosticError(diagnostics)
    return result
