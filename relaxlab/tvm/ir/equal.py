"""Structural equality as TVM has it: of programs whose variables have their types."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import in_normal_form
from relaxlab.ir import equal, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.normalize import normalize


def _normal(program: Any) -> Any:
    """A program in normal form, as TVM's parser gives it; itself where it has none."""
    if isinstance(program, types.Type):
        return in_normal_form(program, Analyzer.for_shapes(program))
    if isinstance(program, graph.Function):
        return _normal(Module.of({"main": program}))["main"]
    try:
        return normalize(program) if isinstance(program, Module) else program
    except DiagnosticError:
        return program


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """True if two programs are the same up to the names of variables."""
    return equal.structural_equal(_normal(lhs), _normal(rhs), map_free_vars=map_free_vars)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise where two programs differ, with the path to the first difference."""
    equal.assert_structural_equal(_normal(lhs), _normal(rhs), map_free_vars=map_free_vars)


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that is equal for equal programs."""
    return int(equal.structural_key(_normal(node))[:15], 16)
