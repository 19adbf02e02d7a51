"""`tvm.tir.analysis`: facts about loop functions."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import substitute
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import Var
from relaxlab.runtime.programs import as_module


def verify_well_formed(obj: Any, assert_mode: bool = True) -> bool:
    """True if nothing is wrong with a loop function or module; raises ValueError with all that is
    instead, unless `assert_mode` is False."""
    problems = check_well_formed(as_module(obj))
    if problems and assert_mode:
        raise ValueError("\n".join(str(p) for p in problems))
    return not problems


def undefined_vars(node: Any, defs: Any = ()) -> list[Var]:
    """The variables of a statement or expression that nothing in it defines."""
    return [v for v in substitute.free_symbols(node) if v not in set(defs)]


expr_deep_equal = structural_equal
