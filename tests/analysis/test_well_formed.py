"""Every documented error is what its example says it is, and its remedy is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import relaxlab.ops  # noqa: F401  the operators' rows
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.script import parse
from tests.golden import Golden

ROOT = Path(__file__).parents[2]
SECTIONS = re.split(r"^## ", (ROOT / "docs/errors-types.md").read_text(), flags=re.M)[1:]
EXAMPLES = [
    (section[:5], block.strip(), remedy)
    for section in SECTIONS
    for remedy, block in enumerate(re.findall(r"```python\n(.*?)```", section, flags=re.S))
]


def load(text: str) -> Module:
    if "@I.ir_module" in text:
        return parse(text, check=False)
    namespace: dict[str, Module] = {}
    exec(text, namespace)  # our own document
    return namespace["mod"]


@pytest.mark.parametrize(("code", "text", "remedy"), EXAMPLES,
                         ids=[f"{c}-{r}" for c, _, r in EXAMPLES])  # fmt: skip
def test_documented_examples(code: str, text: str, remedy: int):
    found = check_well_formed(load(text))
    assert [d.code for d in found] == ([] if remedy else [code]), [d.render() for d in found]


def test_texts_of_documented_errors(golden: Golden):
    wrong = ((code, check_well_formed(load(text))) for code, text, remedy in EXAMPLES if not remedy)
    golden.file("analysis/types", {code: found[0].render() for code, found in wrong})


def test_every_code_is_documented():
    used: set[str] = set()
    for path in (ROOT / "relaxlab/analysis").glob("*.py"):
        if path.name != "loops_check.py":
            used |= set(re.findall(r'"(E0[23]\d\d)"', path.read_text()))
    assert used == {section[:5] for section in SECTIONS}


def test_all_errors_are_reported_with_their_places():
    mod = parse(
        """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        m = T.int64()
        y = R.reshape(x, (m, 2))
        with R.dataflow():
            z = R.call_packed("my.log", y, sinfo_args=R.Tensor((4,), "float32"))
            R.output(z)
        return z

    @R.function
    def other(x: R.Tensor(("a * b",), "float32")):
        return x
""",
        check=False,
    )
    found = check_well_formed(mod)
    assert [d.code for d in found] == ["E0306", "E0304", "E0308"]
    assert [d.span.line for d in found if d.span][:2] == [9, 11]
    assert "in `main`: an expression mentions `m`" in found[0].message


def test_scopes_of_branches_and_local_functions():
    x = graph.Var("x", types.TensorType((), "float32"))
    c = graph.Var("c", types.TensorType((), "bool"))
    inside = graph.Var("inside", x.ty)
    bind = graph.BindingBlock((graph.VarBinding(x, inside),))
    y = graph.Var("y", x.ty)
    choice = graph.If(c, graph.SeqExpr((bind,), inside), graph.SeqExpr((), x))
    body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(choice, y),)),), inside)
    (error,) = check_well_formed(Module.of({"main": graph.Function((c, x), body)}))
    assert error.code == "E0301"
    assert "outside the branch" in error.message


def test_symbols_of_a_match_cast_in_a_branch_stay_there():
    n, m = expr.Var("n"), expr.Var("m")
    x = graph.Var("x", types.TensorType((n,), "float32"))
    c = graph.Var("c", types.TensorType((), "bool"))
    u = graph.Var("u", types.TensorType((m,), "float32"))
    cast = graph.BindingBlock((graph.MatchCast(x, types.TensorType((m,), "float32"), u),))
    choice = graph.If(c, graph.SeqExpr((cast,), u), graph.SeqExpr((), x))
    y = graph.Var("y", types.TensorType(None, "float32", 1))
    body = graph.SeqExpr(
        (graph.BindingBlock((graph.VarBinding(choice, y),)),), graph.ShapeExpr((m,))
    )
    (error,) = check_well_formed(Module.of({"main": graph.Function((c, x), body)}))
    assert error.code == "E0306"


def test_loop_functions_are_checked_too():
    mod = parse(
        """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def f(A: T.Buffer((128,), "float32")):
        for i in range(127):
            with T.block("A"):
                vi = T.axis.spatial(128, i)
                A[vi] = T.float32(0)
""",
        check=False,
    )
    assert check_well_formed(mod)


def test_bounds_help_proving():
    """A declared upper bound is a fact about the symbol."""
    n = expr.Var("n")
    x = graph.Var("x", types.TensorType((n,), "float32"))
    claim = types.TensorType((n % 8,), "float32")
    fn = graph.Function(
        (x,), graph.SeqExpr((), x), claim, attrs=Attrs(tir_var_upper_bound={"n": 7})
    )
    from relaxlab.passes.normalize import normalize

    mod = Module.of({"main": fn})
    assert normalize(mod)["main"].body.body is x
    loose = Module.of({"main": graph.Function((x,), graph.SeqExpr((), x), claim)})
    assert normalize(loose)["main"].body.body is not x
