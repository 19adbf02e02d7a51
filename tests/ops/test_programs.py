"""Every use of an operator as a module: well formed, and its script reads back as itself."""

from __future__ import annotations

import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph, types
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script.parser import parse
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase

CASES = [case for family in FAMILIES.values() for case in family()]


def _variables(e: graph.Expr) -> list[graph.Var]:
    if isinstance(e, graph.Tuple):
        return [v for f in e.fields for v in _variables(f)]
    return [e] if isinstance(e, graph.Var) else []


def _module(case: OpCase) -> Module:
    """A function of the arguments and a shape with all symbols, and the loops of the call."""
    program = CaseProgram(case, case.sizes[0], symbolic=True)
    symbols = tuple(program.symbols.values())
    params = [v for a in program.call.args for v in _variables(a)]
    params.append(graph.Var("symbols", types.ShapeType(symbols)))
    y = graph.Var("y", program.out)
    body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(program.call, y),)),), y)
    main = graph.Function(tuple(params), body, program.out)
    lower = program.row.lower
    assert lower is not None
    return Module.of({"main": main, "loops": lower(program.call, program.types, program.out)})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_program(case: OpCase) -> None:
    mod = _module(case)
    assert [d.render() for d in check_well_formed(mod)] == []
    assert_structural_equal(parse(mod.script()), mod)
