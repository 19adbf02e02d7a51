"""Type deduction: subtyping, unification, signatures, claims, and what the trace says."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import relaxlab.ops  # noqa: F401  the operators' rows
from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.subtype import Verdict, check_subtype, coarsen, lca
from relaxlab.analysis.unify import DimPair, bind_values, determined_symbols, unify
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import Var, const
from relaxlab.ir.module import Module
from relaxlab.ir.types import FuncType, ObjectType, PrimType, ShapeType, TensorType, TupleType
from relaxlab.passes.normalize import normalize
from relaxlab.script import parse
from relaxlab.tracing import recording

HEAD = """\
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""


def module(body: str) -> Module:
    return parse(HEAD + textwrap.indent(textwrap.dedent(body), "    "), check=False)


def types_in(mod: Module, name: str = "main") -> dict[str, str]:
    """The types of the variables of a normalised function, as text."""
    fn = mod[name]
    return {b.var.name: str(b.var.ty) for blk in fn.body.blocks for b in blk.bindings}


def returns(mod: Module, name: str = "main") -> str:
    return str(normalize(mod)[name].ret_ty)


def refused(mod: Module) -> list[str]:
    """The rendered errors of a module that cannot be normalised."""
    with pytest.raises(DiagnosticError) as caught:
        normalize(mod)
    return [d.render() for d in caught.value.diagnostics]


def tensor(*dims, dtype: str | None = "float32") -> TensorType:
    return TensorType(tuple(expr.as_expr(d) for d in dims), dtype)


N, M, K = Var("n"), Var("m"), Var("k")
AN = Analyzer.for_shapes((N, M, K))


@pytest.mark.parametrize(
    ("actual", "expected", "verdict"),
    [
        (tensor(N, 4), ObjectType(), Verdict.PASS),
        (ObjectType(), tensor(N, 4), Verdict.CHECK_AT_RUNTIME),
        (tensor(N, 4), tensor(N, 4), Verdict.PASS),
        (tensor(N * 2 + N), tensor(N * 3), Verdict.PASS),
        (tensor(N, 4), tensor(M, 4), Verdict.CHECK_AT_RUNTIME),
        (tensor(N, 4), tensor(3, 4), Verdict.CHECK_AT_RUNTIME),
        (tensor(N, 4), tensor(N, 5), Verdict.STATIC_MISMATCH),
        (tensor(N), tensor(N + 1), Verdict.STATIC_MISMATCH),
        (tensor(N, 4), tensor(N), Verdict.STATIC_MISMATCH),
        (tensor(N), tensor(N, dtype="int32"), Verdict.STATIC_MISMATCH),
        (tensor(N), tensor(N, dtype=None), Verdict.PASS),
        (tensor(N, dtype=None), tensor(N), Verdict.CHECK_AT_RUNTIME),
        (TensorType(None, "float32", 2), tensor(N, M), Verdict.CHECK_AT_RUNTIME),
        (TensorType(None, "float32"), TensorType(None, None, 2), Verdict.CHECK_AT_RUNTIME),
        (tensor(N, M), TensorType(None, "float32", 2), Verdict.PASS),
        (tensor(N), ShapeType((N,)), Verdict.DISJOINT),
        (TupleType(()), tensor(N), Verdict.DISJOINT),
        (ShapeType((N, const(2))), ShapeType(None, 2), Verdict.PASS),
        (ShapeType(None, 2), ShapeType((N, M)), Verdict.CHECK_AT_RUNTIME),
        (ShapeType(None, 3), ShapeType(None, 2), Verdict.STATIC_MISMATCH),
        (PrimType("int64"), PrimType("int64", N), Verdict.CHECK_AT_RUNTIME),
        (PrimType("int64", N), PrimType("int64", N + 1), Verdict.STATIC_MISMATCH),
        (PrimType("float32"), PrimType("int64"), Verdict.STATIC_MISMATCH),
        (TupleType((tensor(N),)), TupleType((tensor(N), tensor(N))), Verdict.STATIC_MISMATCH),
        (TupleType((tensor(N), tensor(N))), TupleType((tensor(N), tensor(M))),
         Verdict.CHECK_AT_RUNTIME),
        (TupleType((tensor(N), tensor(N))), TupleType((tensor(M), ShapeType())),
         Verdict.DISJOINT),
    ],
)  # fmt: skip
def test_the_four_outcomes(actual, expected, verdict):
    assert check_subtype(actual, expected, AN) is verdict


def test_function_types():
    f = FuncType((tensor(N),), tensor(N))
    renamed = FuncType((tensor(M),), tensor(M))
    other = FuncType((tensor(M),), tensor(M * 2))
    assert check_subtype(f, renamed, AN) is Verdict.PASS
    assert check_subtype(f, other, AN) is Verdict.CHECK_AT_RUNTIME
    assert check_subtype(f, FuncType((tensor(M, 2),), tensor(M)), AN) is Verdict.STATIC_MISMATCH
    assert check_subtype(f, FuncType(None, ObjectType()), AN) is Verdict.PASS
    impure = FuncType((tensor(N),), tensor(N), is_pure=False)
    assert check_subtype(impure, f, AN) is Verdict.STATIC_MISMATCH


def test_lca():
    def common(a, b) -> str:
        return str(lca(a, b, AN))

    assert common(tensor(N, 4), tensor(N, 4)) == "R.Tensor((n, 4), 'float32')"
    assert common(tensor(N, 4), tensor(M, 4)) == "R.Tensor(dtype='float32', ndim=2)"
    assert common(tensor(N * 2), tensor(N + N)) == "R.Tensor((n * 2,), 'float32')"
    assert common(tensor(N), tensor(N, M)) == "R.Tensor(dtype='float32')"
    assert common(tensor(N), tensor(N, dtype="int8")) == "R.Tensor((n,))"
    assert common(tensor(N), ShapeType((N,))) == "R.Object"
    assert common(TupleType((tensor(N),)), TupleType((tensor(M),))) == (
        "R.Tuple(R.Tensor(dtype='float32', ndim=1))"
    )
    assert common(ShapeType((N,)), ShapeType((M,))) == "R.Shape(ndim=1)"
    assert common(PrimType("int64", N), PrimType("int64", M)) == "R.Prim('int64')"


def test_coarsen_keeps_what_is_known():
    assert str(coarsen(tensor(N, M), {N})) == "R.Tensor(dtype='float32', ndim=2)"
    both = TupleType((tensor(N), tensor(M)))
    assert str(coarsen(both, {N})) == "R.Tuple(R.Tensor((n,), 'float32'), " + (
        "R.Tensor(dtype='float32', ndim=1))"
    )
    assert coarsen(both, {N, M}) is both


def pairs(*items) -> list[DimPair]:
    return [DimPair(d, None if a is None else expr.as_expr(a), p) for d, a, p in items]


def test_unify_binds_solves_and_compares():
    found = unify(pairs((N, K, "a"), (N * 2 + 1, K * 2 + 1, "b")), AN)
    assert found.bindings == {N: K}
    assert not found.conflicts
    assert not found.unproved
    found = unify(pairs((N * 2 + 1, K * 4 + 3, "a"), (M + N, K * 5, "b")), AN)
    assert not found.conflicts
    assert AN.prove_equal(found.bindings[N], K * 2 + 1)
    assert AN.prove_equal(found.bindings[M], K * 3 - 1)
    found = unify(pairs((N * M, 12, "a"), (M, 4, "b")), AN)  # 4 * n = 12
    assert found.bindings[N] == const(3)
    found = unify(pairs((N * M, 12, "a")), AN)
    assert [e for _, e in found.unproved] == [None]
    found = unify(pairs((N, None, "a"), (M, K, "b")), AN)
    assert found.bindings == {M: K}


def test_unify_names_both_arguments_of_a_conflict():
    found = unify(pairs((N, 3, "dimension 0 of `x`"), (N, 4, "dimension 0 of `y`")), AN)
    assert found.conflicts == ["`n` is 3 in dimension 0 of `x` and 4 in dimension 0 of `y`"]
    found = unify(pairs((N, 3, "`x`"), (N * 2, 7, "`y`")), AN)
    assert found.conflicts == ["`y` is 7, expected n * 2 = 6, because `n` is 3 in `x`"]
    found = unify(pairs((N * 2, 7, "`y`")), AN)
    assert found.conflicts == ["`y` is 7, expected n * 2 = 6, because `n` is 3 in `y`"]
    found = unify(pairs((const(4), 3, "`x`")), AN)
    assert found.conflicts == ["`x` is 3, expected 4"]


def test_bind_values_solves_in_any_order():
    env: dict[Var, int] = {}
    assert bind_values([(N * M + K, 17), (M, 3), (const(9) - K, 4)], env) == []
    assert env == {M: 3, K: 5, N: 4}
    assert bind_values([(N, 4), (N + 1, 6)], {}) == [(1, "n + 1 = 5")]
    assert bind_values([(N * 2, 5)], {}) == [(0, "n * 2 = 4")]
    assert bind_values([(N * M, 6)], {})[0][1].startswith("n * m (not determined")


def test_determined_symbols():
    assert determined_symbols([N * 2 + M, M], ()) == {N, M}
    assert determined_symbols([N * M], ()) == set()
    assert determined_symbols([N * M], {M}) == {M}  # m may be 0
    assert determined_symbols([N // 2], ()) == set()


def test_figure_3():
    """The paper's Figure 3: reshape, flatten, unique, match_cast, exp."""
    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n", 2, 2), "float32")):
            n = T.int64()
            m = T.int64()
            with R.dataflow():
                lv0 = R.reshape(x, (n, 4))
                lv1 = R.flatten(lv0)
                lv2 = R.unique(lv1)
                lv3 = R.match_cast(lv2, R.Tensor((m,), "float32"))
                lv4 = R.exp(lv3)
                R.output(lv4)
            return lv4
        """)
    )
    assert types_in(mod) == {
        "lv0": "R.Tensor((n, 4), 'float32')",
        "lv1": "R.Tensor((n * 4,), 'float32')",
        "lv2": "R.Tensor(dtype='float32', ndim=1)",
        "lv3": "R.Tensor((m,), 'float32')",
        "lv4": "R.Tensor((m,), 'float32')",
    }
    assert str(mod["main"].ret_ty) == "R.Tensor(dtype='float32', ndim=1)"
    assert normalize(mod) is mod


def test_nested_expressions_are_named():
    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            return (R.exp(R.add(x, x)), R.negative(x))
        """)
    )
    fn = mod["main"]
    values = [b.value for blk in fn.body.blocks for b in blk.bindings]
    assert [v.op.name for v in values] == ["add", "exp", "negative"]
    assert all(isinstance(a, graph.Var) for v in values for a in v.args)
    assert isinstance(fn.body.body, graph.Tuple)
    assert normalize(mod) is mod


SUBFN = """
    @R.function
    def subfn(s: R.Shape(["n", "m"])) -> R.Tensor(("n * m",), "float32"):
        n = T.int64()
        m = T.int64()
        return R.full((n * m,), R.const(1, "float32"), "float32")
"""


def test_figure_7():
    """The paper's Figure 7: a signature called directly, with other symbols, and coarsely."""
    mod = normalize(
        module(
            SUBFN
            + """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(ndim=2)):
        n = T.int64()
        a = Module.subfn(R.shape([n, 4]))
        b = Module.subfn(R.shape([3, 5]))
        c = Module.subfn(s)
        return a, b, c
    """
        )
    )
    found = types_in(mod)
    assert found["a"] == "R.Tensor((n * 4,), 'float32')"
    assert found["b"] == "R.Tensor((15,), 'float32')"
    assert found["c"] == "R.Tensor(dtype='float32', ndim=1)"


def test_first_class_functions():
    mod = normalize(
        module("""
        @R.function
        def main(
            f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n * 2",), "float32")),
            x: R.Tensor(("k", 3), "float32"),
        ):
            k = T.int64()
            y = f(R.flatten(x))
            return y
        """)
    )
    assert types_in(mod)["y"] == "R.Tensor((k * 6,), 'float32')"


def test_inconsistent_symbols_name_both_arguments():
    (error,) = refused(
        module("""
        @R.function
        def f(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n", 2), "float32")):
            return x
        @R.function
        def main(a: R.Tensor((3,), "float32"), b: R.Tensor((4, 2), "float32")):
            return Module.f(a, b)
        """)
    )
    assert "error[E0206]" in error
    assert "`n` is 3 in dimension 0 of argument `a` and 4 in dimension 0 of argument `b`" in error
    assert "^^^^^^" in error


def test_wrong_arguments():
    errors = refused(
        module("""
        @R.function
        def f(x: R.Tensor(("n",), "float32")):
            return x
        @R.function
        def main(a: R.Tensor((3,), "float32"), b: R.Tensor((3,), "int32"), s: R.Shape([2])):
            u = Module.f(a, a)
            v = Module.f(b)
            w = Module.f(s)
            x = R.add(a, b)
            y = s(a)
            return y
        """)
    )
    codes = [e.split("]")[0][6:] for e in errors]
    assert codes == ["E0205", "E0206", "E0206", "E0203", "E0204"]
    assert "takes 1 argument, got 2" in errors[0]
    assert "argument `b` of `f` is R.Tensor((3,), 'int32'), expected R.Tensor((n,)" in errors[1]
    assert "argument `s` of `f` is R.Shape([2])" in errors[2]


def test_an_error_is_reported_once():
    errors = refused(
        module("""
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((4,), "float32")):
            a = R.add(x, y)
            b = R.exp(a)
            c = R.add(b, x)
            return c
        """)
    )
    assert len(errors) == 1
    assert "R.add" in errors[0]


def test_loop_functions_are_not_called_directly():
    (error,) = refused(
        module("""
        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            return Module.f(x)
        """)
    )
    assert "error[E0204]" in error
    assert "R.call_tir" in error


def test_a_lying_result_is_refused():
    (error,) = refused(
        module("""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 5), "float32"):
            n = T.int64()
            return R.exp(x)
        """)
    )
    assert "error[E0207]" in error
    assert "-> R.Tensor((n, 4), 'float32')" in error


def test_an_unproved_result_is_checked_at_run_time():
    """`-> R.Tensor((3, 4))` over a body of `(n, 4)`."""
    from relaxlab.runtime.arrays import ExecutionError
    from relaxlab.runtime.interpreter.interpreter import interpret

    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((3, 4), "float32"):
            y = R.exp(x)
            return y
        """)
    )
    last = mod["main"].body.blocks[-1].bindings[-1]
    assert isinstance(last, graph.MatchCast)
    assert mod["main"].body.body is last.var
    assert interpret(mod, "main", np.zeros((3, 4), "float32")).shape == (3, 4)
    with pytest.raises(ExecutionError, match="dimension 0 of `y` is 2, expected 3"):
        interpret(mod, "main", np.zeros((2, 4), "float32"))
    assert normalize(mod) is mod


def test_unproved_fields_of_a_tuple_are_checked_one_by_one():
    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")) \
                -> R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32")):
            return (x, y)
        """)
    )
    casts = [b for blk in mod["main"].body.blocks for b in blk.bindings]
    assert len(casts) == 1
    assert isinstance(casts[0], graph.MatchCast)
    assert normalize(mod) is mod


def test_annotations_of_variables():
    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a: R.Tensor(ndim=1, dtype="float32") = R.exp(x)
            b: R.Tensor((4,), "float32") = R.exp(x)
            c = R.add(b, b)
            return c
        """)
    )
    found = types_in(mod)
    assert found["a"] == "R.Tensor((n,), 'float32')"  # finer than what was written
    assert found["b_1"] == "R.Tensor((n,), 'float32')"
    assert found["c"] == "R.Tensor((4,), 'float32')"
    (error,) = refused(
        module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            b: R.Tensor((4, 4), "float32") = R.exp(x)
            return b
        """)
    )
    assert "error[E0208]" in error


def test_a_match_cast_that_cannot_succeed():
    (error,) = refused(
        module("""
        @R.function
        def main(x: R.Tensor(("n", 2), "float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n, 3), "float32"))
            return y
        """)
    )
    assert "error[E0208]" in error


def test_match_cast_teaches_the_prover():
    mod = normalize(
        module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            n = T.int64()
            m = T.int64()
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            w = R.add(x, z)
            return w
        """)
    )
    assert types_in(mod)["w"] == "R.Tensor((n,), 'float32')"


def test_lost_shapes_are_explained():
    mod = module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            z = R.add(x, y)
            u = R.unique(x)
            return z, u
    """)
    with recording() as remarks:
        normalize(mod)
    lost = {r.subject: r.reason for r in remarks if not r.applied}
    assert set(lost) == {"main.z", "main.u"}
    assert "whether n equals m is not known" in lost["main.z"]
    assert 'z = R.match_cast(z, R.Tensor(("n",), "float32"))' in lost["main.z"]
    assert "its shape depends on the values" in lost["main.u"]


def test_conditionals_take_what_both_branches_have():
    mod = module("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"),
                 y: R.Tensor(("m",), "float32")):
            if c:
                z = R.exp(x)
                w = R.add(x, x)
            else:
                z = R.exp(x)
                w = R.add(y, y)
            return w
    """)
    assert returns(mod) == "R.Tensor(dtype='float32', ndim=1)"


def test_symbols_of_a_branch_stay_inside():
    mod = module("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
            m = T.int64()
            if c:
                u = R.unique(x)
                v = R.match_cast(u, R.Tensor((m,), "float32"))
                w = R.exp(v)
            else:
                w = R.exp(x)
            return w
    """)
    assert returns(mod) == "R.Tensor(dtype='float32', ndim=1)"


def test_recursion_needs_an_annotation():
    body = """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")){}:
            n = T.int64()
            if c:
                w = Module.main(c, x)
            else:
                w = R.exp(x)
            return w
    """
    (error,) = refused(module(body.format("")))
    assert "error[E0209]" in error
    good = module(body.format(' -> R.Tensor(("n",), "float32")'))
    assert types_in(normalize(good))["w"] == "R.Tensor((n,), 'float32')"


def test_functions_are_typed_before_their_callers():
    mod = module("""
        @R.function
        def main(x: R.Tensor(("k",), "float32")):
            return Module.twice(x)
        @R.function
        def twice(x: R.Tensor(("n",), "float32")):
            return R.concat((x, x), axis=0)
    """)
    assert returns(mod) == "R.Tensor((k * 2,), 'float32')"


def test_undefined_symbols_of_claims():
    k = Var("k")
    x = graph.Var("x", tensor(N))
    fn = graph.Function((x,), graph.SeqExpr((), x), tensor(k))
    (error,) = refused(Module.of({"main": fn}))
    assert "error[E0306]" in error
    assert "`k`" in error


KERNEL = """
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)
"""


def kernel_call(signature: str, args: str, out: str, head: str = "") -> Module:
    lines = [
        "@R.function",
        f"def main({signature}):",
        *(f"    {line}" for line in head.splitlines()),
        f"    z = R.call_tir(Module.double, {args}, out_sinfo={out})",
        "    return z",
    ]
    return module(KERNEL + textwrap.indent("\n".join(lines), "    "))


def test_arguments_of_loop_functions_are_proved():
    mod = kernel_call('x: R.Tensor(("k",), "float32")', "(x,)", 'R.Tensor((k,), "float32")',
                      "k = T.int64()")  # fmt: skip
    assert [type(b).__name__ for blk in normalize(mod)["main"].body.blocks
            for b in blk.bindings] == ["VarBinding"]  # fmt: skip


def test_arguments_of_loop_functions_are_refused():
    (error,) = refused(
        kernel_call('x: R.Tensor((3,), "float32")', "(x,)", 'R.Tensor((4,), "float32")')
    )
    assert "error[E0210]" in error
    assert "`n` is 3 in dimension 0 of argument `x` and 4 in dimension 0 of output 0" in error


def test_arguments_of_loop_functions_are_checked_at_run_time():
    from relaxlab.runtime.arrays import ExecutionError
    from relaxlab.runtime.interpreter.interpreter import interpret

    mod = normalize(
        kernel_call(
            'x: R.Tensor(("k",), "float32"), s: R.Shape(["m"])', "(x,)",
            'R.Tensor((m,), "float32")', "m = T.int64()",
        )
    )  # fmt: skip
    assert normalize(mod) is mod
    x = np.ones(3, "float32")
    assert interpret(mod, "main", x, (3,)).tolist() == [2, 2, 2]
    with pytest.raises(ExecutionError, match=r"`k` is 3 in .* `x` and 4 in value 0 of shape \(m\)"):
        interpret(mod, "main", x, (4,))
    coarse = normalize(
        kernel_call('x: R.Tensor(ndim=1, dtype="float32")', "(x,)", 'R.Tensor((3,), "float32")')
    )
    assert normalize(coarse) is coarse
    assert interpret(coarse, "main", x).tolist() == [2, 2, 2]
    with pytest.raises(ExecutionError, match="dimension 0 of `x` is 4, expected 3"):
        interpret(coarse, "main", np.ones(4, "float32"))


def test_type_of_single_expressions():
    x = graph.Var("x", tensor(N, 2))
    pair = graph.Tuple((x, graph.ShapeExpr((N,))))
    assert str(type_of(pair)) == "R.Tuple(R.Tensor((n, 2), 'float32'), R.Shape([n]))"
    assert str(type_of(graph.TupleGetItem(pair, 1))) == "R.Shape([n])"
    assert str(type_of(graph.Constant(np.zeros((2, 3), "int8")))) == "R.Tensor((2, 3), 'int8')"
    assert str(type_of(graph.PrimValue(N + 1))) == "R.Prim(value=n + 1)"
    with pytest.raises(DiagnosticError, match="E0203"):
        type_of(graph.TupleGetItem(pair, 2))
    with pytest.raises(DiagnosticError, match="E0201"):
        type_of(graph.Var("y"))
    with pytest.raises(DiagnosticError, match="did you mean `R.exp`"):
        type_of(graph.Call(graph.Op("expp"), (x,)))


def test_equal_dimensions_look_equal():
    """n + m + n and 2 * n + m are one dimension, so nothing is lost."""
    mod = module("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            a = R.concat((x, y, x), axis=0)
            b = R.concat((x, x, y), axis=0)
            return R.add(a, b)
    """)
    typed = normalize(mod)
    ret = typed["main"].ret_ty
    assert isinstance(ret, TensorType)
    assert ret.shape is not None
    assert structural_equal(ret, types.TensorType(ret.shape, "float32"))


def test_function_types_are_joined_pointwise() -> None:
    n, k = expr.Var("n"), expr.Var("k")
    a = FuncType((TensorType((n,), "float32"),), TensorType((n,), "float32"))
    b = FuncType((TensorType((k,), "float32"),), TensorType((k,), "float32"), is_pure=False)
    c = FuncType((TensorType((k,), "float32"),), TensorType(None, "float32", 1))
    d = FuncType((TensorType((k, k), "float32"),), TensorType((k,), "float32"))
    params = "(R.Tensor((n,), 'float32'))"
    assert str(lca(a, b, AN)) == f"R.Callable({params}, R.Tensor((n,), 'float32'), purity=False)"
    assert str(lca(a, c, AN)) == f"R.Callable({params}, R.Tensor(dtype='float32', ndim=1))"
    joined = "R.Callable(..., R.Tensor(dtype='float32', ndim=1), purity=True)"
    assert str(lca(a, d, AN)) == joined


def test_differences_of_function_types() -> None:
    ty = FuncType((ObjectType(),), ObjectType())
    impure = FuncType((ObjectType(),), ObjectType(), is_pure=False)
    assert str(ty) != str(impure)
