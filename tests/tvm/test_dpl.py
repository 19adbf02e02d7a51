"""Patterns and passes with them, in TVM's names."""

from __future__ import annotations

from typing import Any

import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax.backend.pattern_registry import register_patterns
from relaxlab.tvm.relax.backend.patterns import make_matmul_pattern
from relaxlab.tvm.relax.dpl import (
    PatternContext,
    PatternMatchingRewriter,
    is_const,
    is_op,
    is_var,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from relaxlab.tvm.relax.fuse_by_pattern import PatternCheckContext
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R

X = relax.Var("x", R.Tensor((2, 3), "float32"))


def test_patterns_match_expressions_by_themselves() -> None:
    assert is_var("x").match(X) and not is_var("y").match(X)
    assert is_const().match(relax.const(1.0)) and not is_const().match(X)
    total = relax.op.add(X, X)
    assert is_op("relax.add")(varg_default_wildcard=True).match(total)
    assert wildcard().has_shape((2, 3)).match(X) and not wildcard().has_shape((2, 4)).match(X)
    assert wildcard().has_struct_info(R.Tensor((2, 3), "float32")).match(X)
    same = wildcard()
    assert is_op("relax.add")(same, same).match(total)
    y = relax.Var("y", R.Tensor((2, 3), "float32"))
    assert not is_op("relax.add")(same, same).match(relax.op.add(X, y))
    found = is_op("relax.exp")(is_op("relax.abs")(same)).extract_matched_expr(
        relax.op.exp(y), {y: relax.op.abs(X)}
    )
    assert found is not None and found[same] is X


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            u = R.exp(z)
            R.output(u)
        return u


def test_calls_are_rewritten() -> None:
    value = wildcard()
    after = rewrite_call(
        is_op("relax.nn.relu")(value),
        lambda call, matched: relax.op.nn.gelu(matched[value]),
        Layer["main"],
    )

    @R.function
    def expected(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.gelu(y)
            u = R.exp(z)
            R.output(u)
        return u

    tvm.ir.assert_structural_equal(after, expected)


PRODUCT = is_op("relax.matmul")(wildcard(), wildcard())
PATTERN = is_op("relax.nn.relu")(PRODUCT)


def test_matches_become_functions() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
            cls = Expected
            with R.dataflow():
                z = cls.fused_relax_matmul_relax_nn_relu(x, w)
                u = R.exp(z)
                R.output(u)
            return u

        @R.function(private=True)
        def fused_relax_matmul_relax_nn_relu(
            x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")
        ):
            R.func_attr({"Composite": "cc.product", "Primitive": True})
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.nn.relu(y)
                R.output(z)
            return z

    fuse = relax.transform.FuseOpsByPattern([("cc.product", PATTERN)])
    tvm.ir.assert_structural_equal(fuse(Layer), Expected)


def test_a_check_sees_what_matched() -> None:
    seen = []

    def check(context) -> bool:
        seen.append(context.annotated_expr["product"].op.name)
        assert len(context.matched_bindings) == 2
        return False

    pattern = relax.transform.FusionPattern("cc.product", PATTERN, {"product": PRODUCT}, check)
    assert list(relax.transform.FuseOpsByPattern([pattern])(Layer)) == ["main"]
    assert seen == ["relax.matmul"]


def test_functions_for_other_compilers() -> None:
    fuse = relax.transform.FuseOpsByPattern([("cc.product", PATTERN)], annotate_codegen=True)
    after = fuse(Layer)
    outer = after["fused_relax_matmul_relax_nn_relu_cc"]
    assert dict(outer.attrs) == {"Codegen": "cc"}
    inner = outer.body.blocks[0].bindings[0].value
    assert dict(inner.attrs) == {"Composite": "cc.product"}
    assert relax.analysis.well_formed(after)


def test_an_index_map_may_be_a_function() -> None:
    turned = relax.op.layout_transform(X, lambda i, j: (j, i))
    tvm.ir.assert_structural_equal(turned.ty, R.Tensor((3, 2), "float32"))


def test_dimensions_are_compared_in_normal_form() -> None:
    n, k = tvm.te.var("n"), tvm.te.var("k")
    tvm.ir.assert_structural_equal(R.Tensor((n + k,)), R.Tensor((k + n,)))
    with pytest.raises(AssertionError):
        tvm.ir.assert_structural_equal(R.Tensor((n + k,)), R.Tensor((k - n,)))


@R.function
def products(
    x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32"), v: R.Tensor((4, 3), "float32")
):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.matmul(x, v)
        c = R.add(a, b)
        R.output(c)
    return c


def test_calls_of_a_context_are_rewritten_together() -> None:
    with PatternContext() as ctx:
        shared, one, other = wildcard(), wildcard(), wildcard()
        first, second = (is_op("relax.matmul")(shared, w) for w in (one, other))

        def rewriter(matched: Any, bindings: Any) -> Any:
            weights = R.concat([matched[one], matched[other]], axis=1)
            whole = R.matmul(matched[shared], weights)
            halves = {first: (0, 3), second: (3, 6)}
            return {
                matched[p]: R.strided_slice(whole, axes=[1], begin=[start], end=[end])
                for p, (start, end) in halves.items()
            }

        assert PatternContext.current() is ctx
        after = rewrite_bindings(ctx, rewriter, products)
        found = ctx.match_dfb(products.body.blocks[0])
    assert PatternContext.current() is None
    assert found is not None and [found[p].name for p in (first, second)] == ["a", "b"]

    @R.function
    def expected(
        x: R.Tensor((2, 4), "float32"),
        w: R.Tensor((4, 3), "float32"),
        v: R.Tensor((4, 3), "float32"),
    ):
        with R.dataflow():
            weights = R.concat((w, v), axis=1)
            whole = R.matmul(x, weights)
            a = R.strided_slice(whole, axes=[1], begin=[0], end=[3])
            b = R.strided_slice(whole, axes=[1], begin=[3], end=[6])
            c = R.add(a, b)
            R.output(c)
        return c

    tvm.ir.assert_structural_equal(after, expected)


def test_chains_of_a_context() -> None:
    block = products.body.blocks[0]
    with PatternContext() as ctx:
        product = is_op("relax.matmul")(wildcard(), wildcard())
        total = is_op("relax.add")(product, wildcard())
        _ = product ^ total
        found = ctx.match_dfb(block)
        assert found is not None and found[product].name == "a"
        with PatternContext(incremental=True) as inner:
            is_op("relax.exp")(total)
            assert inner.match_dfb(block) is None
        with PatternContext() as alone:
            assert not alone.chains
    with pytest.raises(NotImplementedError, match=r"used_by\(index=1\)"):
        product.used_by(total, 1)


def test_rewriters_of_modules() -> None:
    @I.ir_module
    class Rule:
        @R.function
        def pattern(a: R.Tensor((2, 3), "float32"), b: R.Tensor((3, 3), "float32")):
            c = R.nn.relu(R.matmul(a, b))
            return c

        @R.function
        def replacement(a: R.Tensor((2, 3), "float32"), b: R.Tensor((3, 3), "float32")):
            c = R.matmul(R.nn.gelu(a), b)
            return c

    inverse = PatternMatchingRewriter.from_pattern(
        is_op("relax.exp")(value := wildcard()), lambda call, found: relax.op.log(found[value])
    )
    rules = PatternMatchingRewriter.from_module(Rule) | inverse

    @R.function
    def expected(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            g = R.nn.gelu(x)
            z = R.matmul(g, w)
            u = R.log(z)
            R.output(u)
        return u

    tvm.ir.assert_structural_equal(rules(Layer["main"]), expected)
    tvm.ir.assert_structural_equal(rules(Layer)["main"], expected)
    with pytest.raises(ValueError, match="a pattern is made of calls of operators, not of"):

        @I.ir_module
        class Wrong:
            @R.function
            def pattern(a: R.Tensor((2, 3), "float32")):
                b = R.const([1.0, 2.0, 3.0], "float32")
                c = R.add(a, b)
                return c

            @R.function
            def replacement(a: R.Tensor((2, 3), "float32")):
                return a

        PatternMatchingRewriter.from_module(Wrong)


@pytest.mark.parametrize("activation", [None, "relax.nn.relu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_registered_patterns_are_found_by_name(
    activation: str | None, with_bias: bool, transposed: bool
) -> None:
    pattern, parts = make_matmul_pattern(with_bias, activation, transposed)
    assert parts.keys() == {"lhs", "rhs", "root"} | ({"bias"} if with_bias else set())
    name = f"test.matmul_{activation}_{with_bias}_{transposed}"
    seen: list[str] = []

    def check(context: PatternCheckContext) -> bool:
        seen.extend(context.annotated_expr)
        return True

    register_patterns([(name, pattern, parts, check)])
    found = relax.backend.get_pattern(name)
    assert found is not None and found in relax.backend.get_patterns_with_prefix("test.matmul_")
    assert relax.backend.get_pattern(f"{name}?") is None

    bb = relax.BlockBuilder()
    x, w = (relax.Var(n, R.Tensor((4, 4), "float32")) for n in "xw")
    b = relax.Var("b", R.Tensor((4,), "float32"))
    with bb.function("main", [x, w, b]), bb.dataflow():
        y = bb.emit(relax.op.matmul(x, bb.emit(relax.op.permute_dims(w)) if transposed else w))
        y = bb.emit(relax.op.add(y, b)) if with_bias else y
        y = bb.emit(relax.op.nn.relu(y)) if activation else y
        bb.emit_func_output(bb.emit_output(y))
    fused = relax.transform.FuseOpsByPattern([found])(bb.get())
    assert {*seen} == {*parts}
    assert any(f.attrs.get("Composite") == name for f in fused.graph_functions().values())
