"""Building modules call by call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.span import Source, Span
from relaxlab.ops import te
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


def tensor(name: str, *dims: expr.ExprLike, dtype: str = "float32") -> graph.Var:
    return graph.Var(name, types.TensorType(tuple(map(expr.as_expr, dims)), dtype))


def test_nested_calls_become_bindings() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            return b

    bb = rl.BlockBuilder()
    x = tensor("x", expr.Var("n"), 4)
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(rl.ops.add(rl.ops.exp(x), x))
        bb.emit_func_output(y)
    rl.assert_structural_equal(bb.get(), rl.find_pass("normalize")(Expected))


def branching() -> rl.Module:
    bb = rl.BlockBuilder()
    n = expr.Var("n")
    x, c = tensor("x", n * 2, 4), tensor("c", dtype="bool")
    with bb.function("main", [tensor("m", n), x, c]):
        with bb.dataflow():
            y = bb.emit(rl.ops.exp(x))
            z = bb.emit_if(c, lambda: rl.ops.exp(y), lambda: rl.ops.negative(rl.ops.negative(y)))

            def plus(a: te.Tensor, b: te.Tensor, scale: float) -> te.Tensor:
                return te.compute(a.shape, lambda i, j: a[i, j] + b[i, j] * scale)

            w = bb.emit_te(plus, z, y, scale=2.0)
            bb.emit_te(plus, y, z, scale=2.0)
        bb.emit_func_output((w, y))
    return bb.get()


def test_a_dataflow_block_goes_on_after_a_conditional() -> None:
    mod = branching()
    kinds = [type(b) for b in mod["main"].body.blocks]  # type: ignore[union-attr]
    assert kinds == [graph.DataflowBlock, graph.BindingBlock, graph.DataflowBlock]
    assert list(mod) == ["main", "plus"], "one loop function for two calls of the same loops"
    assert rl.structural_equal(rl.parse(mod.script()), mod)
    exe, m = rl.compile(mod), np.zeros(3, "float32")
    x = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)
    for c in (True, False):
        y = np.exp(x)
        for got in (exe(m, x, np.array(c)), rl.interpret(mod, "main", m, x, np.array(c))):
            np.testing.assert_allclose(got[0], (np.exp(y) if c else y) + y * 2, rtol=1e-5)
            np.testing.assert_allclose(got[1], y, rtol=1e-5)


def test_a_function_that_calls_itself() -> None:
    bb = rl.BlockBuilder()
    x, i = tensor("x", 3), tensor("i", dtype="int64")
    ty = x.ty
    with bb.function("main", [x, i], ret_ty=ty):
        smaller = bb.emit(rl.ops.subtract(i, 1))

        def again() -> graph.Expr:
            return graph.Call(graph.GlobalVar("main"), (bb.emit(rl.ops.add(x, 1.0)), smaller))

        bb.emit_func_output(bb.emit_if(bb.emit(rl.ops.greater(i, 0)), again, lambda: x))
    np.testing.assert_array_equal(
        rl.compile(bb.get())(np.ones(3, "float32"), np.array(5)), [6.0] * 3
    )


def test_claims_and_places() -> None:
    span = Span(Source("model.py", "y = f(x)\n"), 1, 4, 1, 8)
    bb = rl.BlockBuilder()
    x = graph.Var("x", types.TensorType(None, "float32", 2))
    n = expr.Var("n")
    with bb.function("main", [x]):
        with bb.dataflow(), bb.at(span):
            y = bb.match_cast(x, types.TensorType((n, expr.const(4)), "float32"))
            bb.require(expr.GE(n, expr.const(2)), "pairs")
            z = bb.emit(rl.ops.exp(y))
        bb.emit_func_output(z)
    mod = bb.get()
    assert all(b.span == span for b in mod["main"].body.blocks[0].bindings)  # type: ignore[union-attr]
    exe = rl.compile(mod)
    with pytest.raises(rl.CheckFailed, match=r"`pairs` in `main` needs n >= 2"):
        exe(np.ones((1, 4), "float32"))


def test_misuse_is_named() -> None:
    bb = rl.BlockBuilder(branching())
    x = tensor("x", 2)
    with pytest.raises(ValueError, match="no function is being built"):
        bb.emit(rl.ops.exp(x))
    with pytest.raises(ValueError, match="has a function 'main' already"), bb.function("main"):
        pass
    with pytest.raises(ValueError, match="'f' has no result"), bb.function("f", [x]):
        pass
    with pytest.raises(ValueError, match="cannot be nested"), bb.function("f", [x]):  # noqa: SIM117
        with bb.dataflow(), bb.dataflow():
            pass
    with pytest.raises(DiagnosticError, match="R.add"), bb.function("f", [x]):
        bb.emit(rl.ops.add(x, tensor("y", 3)))
    with pytest.raises(KeyError, match="no function 'g'"):
        bb.update_function("g", branching()["main"])
    assert list(bb.get()) == ["main", "plus"]
    bb.update_function("main", branching()["main"])


@pytest.mark.parametrize(
    "repeat",
    [
        lambda x: x,
        lambda x: (te.compute(x.shape, lambda i: x[i] + 1.0, "y"), x, x),
        lambda x: (lambda y: (y, y))(te.compute(x.shape, lambda i: x[i] + 1.0, "y")),
    ],
    ids=["an argument", "arguments beside a result", "a result twice"],
)
def test_tensor_expressions_return_what_has_a_place_already(repeat: Any) -> None:
    x = tensor("x", 5)
    bb = rl.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_te(repeat, x))
    data = np.arange(5, dtype="float32")
    got = rl.compile(bb.get(), use_cache=False)(data)
    results = got if isinstance(got, tuple) else (got,)
    plus_one = [len(results) > 1, len(results) == 2, False]
    for result, more in zip(results, plus_one, strict=False):
        np.testing.assert_array_equal(result, data + more)


def test_tensor_expressions_that_read_beside_a_tensor_are_refused() -> None:
    x = tensor("x", expr.Var("n"))
    bb = rl.BlockBuilder()
    with bb.function("main", [x]):
        with pytest.raises(DiagnosticError, match="reaches n, outside 0 to n - 1"):
            bb.emit_te(lambda x: te.compute(x.shape, lambda i: x[i + 1], "next"), x)
        # `n` may be more than four: the call checks it.
        bb.emit_func_output(bb.emit_te(lambda x: te.compute(x.shape, lambda i: x[4], "fifth"), x))


def test_functions_without_a_name_are_printed_and_return_lists() -> None:
    bb = rl.BlockBuilder()
    x = tensor("x", 8)
    with bb.function("main", [x]):
        both = bb.emit_te(
            lambda a: [
                te.compute(a.shape, lambda i: a[i] * 2.0, "double"),
                te.compute(a.shape, lambda i: a[i] * 3.0, "triple"),
            ],
            x,
        )
        bb.emit_func_output(both)
    mod = bb.get()
    assert rl.structural_equal(rl.parse(mod.script()), mod)
    given = np.arange(8, dtype="float32")
    for result, k in zip(rl.compile(mod)["main"](given), (2, 3), strict=True):
        np.testing.assert_array_equal(result, given * k)
