"""Passes that lower the operators of one family to loop functions."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir.op_table import has_trait, op_names
from relaxlab.passes.legalize_ops import LegalizeOptions
from relaxlab.tvm.relax.transform import core_pass
from relaxlab.tvm.transform import Pass


def _lowering(name: str, is_lowered: Callable[[str], bool]) -> Pass:
    options = LegalizeOptions(tuple(n for n in op_names() if not is_lowered(n)))
    return core_pass(name, "legalize_ops", options=options)


def DispatchSortScan() -> Pass:  # noqa: N802
    """Make calls of loop functions of calls that sort, or sum or multiply up along an axis."""
    return _lowering("DispatchSortScan", lambda name: has_trait(name, "sort_or_scan"))


def DispatchSampling() -> Pass:  # noqa: N802
    """Make calls of loop functions of calls that draw from distributions."""
    return _lowering("DispatchSampling", lambda name: name == "multinomial_from_uniform")
