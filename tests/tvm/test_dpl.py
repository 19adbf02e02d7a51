"""Patterns and passes with them, in TVM's names."""

from __future__ import annotations

import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax.dpl import is_const, is_op, is_var, rewrite_call, wildcard
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
    assert seen == ["matmul"]


def test_functions_for_other_compilers() -> None:
    fuse = relax.transform.FuseOpsByPattern([("cc.product", PATTERN)], annotate_codegen=True)
    after = fuse(Layer)
    outer = after["fused_relax_matmul_relax_nn_relu"]
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
