"""Patterns with what they match, and the reasons of failed matches."""

import pytest

from relaxlab.ir import expr, graph
from relaxlab.passes.bindings import use_counts
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import (
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from relaxlab.passes.patterns.match import BlockScope, Matcher, NearestMiss
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Mod:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] + A[vi]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((8, 4), "float32")):
        cls = Mod
        with R.dataflow():
            wt = R.permute_dims(w)
            y = R.matmul(x, wt)
            b = R.const(2.0, "float32")
            z = R.multiply(y, b)
            s = R.reshape(x, R.shape([n * 4]))  # noqa: F821
            p = R.split(x, 2, axis=1)
            left = p[0]
            v = R.mean(x, axis=0)
            d = R.call_tir(cls.double, (v,), out_sinfo=R.Tensor((4,), "float32"))
            e = R.call_dps_packed("lib.f", (d,), out_sinfo=R.Tensor((4,), "float32"))
            f = R.call_pure_packed("lib.g", e, sinfo_args=(R.Tensor((4,), "float32"),))
            t = (z, s, left)
            sq = R.multiply(y, y)
            out = R.add(z, sq)
            R.output(out, f, t)
        return (out, f, t)


MAIN = normalize(Mod)["main"]


def found(pattern, name):
    """The match at the variable of that name, and the nearest miss."""
    (block,) = MAIN.body.blocks
    miss = NearestMiss()
    scope = BlockScope(normalize(Mod), block, use_counts(MAIN))
    var = next(b.var for b in block.bindings if b.var.name == name)
    return Matcher(scope, miss, "main").at(pattern, var), miss


X, W = wildcard(), wildcard()
N = MAIN.params[0].ty.shape[0]

MATCHING = [
    (is_op("matmul")(X, W), "y"),
    (is_op("relax.matmul")(X, is_op("permute_dims")(W)), "y"),
    (is_op("matmul"), "y"),
    (is_op("matmul")(...), "y"),
    (is_op("multiply")(is_op("matmul")(X, ...), is_const(2.0)), "z"),
    (is_op("multiply")(X, X), "sq"),
    (is_op("multiply")(X, is_const()), "z"),
    (is_op("add") | is_op("multiply"), "z"),
    (is_op("matmul")(X, W).has_shape((N, 8)), "y"),
    (is_op("matmul")(X, W).has_shape((None, 8)).has_dtype("float32"), "y"),
    (is_op("matmul")(X, W).has_rank(2), "y"),
    (is_op("split")(X).has_attr({"axis": 1}), "p"),
    (is_op("mean")(X).has_attr({"axis": 0, "keepdims": False}), "v"),
    (is_op("mean")(X).has_attr({"axis": [0]}), "v"),
    (is_op("reshape")(X, is_shape((N * 4,))), "s"),
    (is_op("reshape")(X, is_shape((None,))), "s"),
    (is_tuple_get_item(is_op("split"), 0), "left"),
    (is_tuple([wildcard(), is_op("reshape"), ...]), "t"),
    (is_call_tir("double", [is_op("mean")]), "d"),
    (is_call_tir(), "d"),
    (is_call_dps_packed("lib.f"), "e"),
    (is_call_packed("lib.g", is_call_dps_packed()), "f"),
    (is_call_packed("lib.g"), "f"),
    (is_op("matmul")(is_var("x"), is_dfv("wt")), "y"),
    (is_op("matmul")(~is_const(), ~is_op("multiply")), "y"),
    (is_op("matmul")(X & is_var(), W), "y"),
    (is_op("multiply")(X.where(lambda e: isinstance(e, graph.Call), "a call"), W), "z"),
    (is_op("add")(X, wildcard().has_same_shape_as(X)), "out"),
]


@pytest.mark.parametrize("pattern, name", MATCHING, ids=lambda v: str(v))
def test_matches(pattern, name):
    match, _ = found(pattern, name)
    assert match is not None and match.root.name == name


MISSING = [
    (is_op("matmul")(X, is_const()), "y", "`wt` is a call of permute_dims, not is_const"),
    (is_op("multiply")(X, X), "z", "stands for `y` before and for `b` here"),
    (is_op("multiply")(W, is_const(3.0)), "z", r"`b` is a constant of shape \(\), not is_const"),
    (is_op("matmul")(X), "y", "`matmul` has 2 parts, the pattern 1"),
    (is_op("matmul")(X, W).has_shape((4, 8)), "y", r"its shape is \(n, 8\), not \(4, 8\)"),
    (is_op("matmul")(X, W).has_dtype("float16"), "y", "not of dtype float16"),
    (is_op("split")(X).has_attr({"axis": 0}), "p", "attribute axis is 1, not 0"),
    (is_op("mean")(X).has_attr({"axis": [0, 1]}), "v", r"attribute axis is 0, not \[0, 1\]"),
    (is_op("matmul")(X, ~is_op("permute_dims")), "y", "`wt` is is_op"),
    (is_op("multiply")(is_op("matmul").where(lambda e: False, "lucky"), W), "z", "must be lucky"),
    (is_tuple_get_item(is_op("split"), 1), "left", "no call of the right operator"),
    (is_op("add")(X, wildcard().has_rank(1)), "out", "not of rank 1"),
]


@pytest.mark.parametrize("pattern, name, reason", MISSING, ids=lambda v: str(v))
def test_misses_say_how_near_they_were(pattern, name, reason):
    match, miss = found(pattern, name)
    assert match is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(str(miss))


def test_values_are_read_by_pattern_or_name():
    x, w = wildcard().named("x"), wildcard()
    product = is_op("matmul")(x, is_op("permute_dims")(w))
    match, _ = found(is_op("multiply")(product, is_const(2.0)), "z")
    assert match["x"] is match[x] is MAIN.params[0]
    assert match[w] is MAIN.params[1]
    assert match[product].name == "y"
    assert match.definition(product).op == graph.Op("matmul")
    assert [v.name for v in match.members] == ["wt", "y", "z"]
    assert [v.name for v in match.leaking()] == ["y"]  # `sq` reads it, too
    with pytest.raises(KeyError, match="nothing is captured as 'bias'; captured: x"):
        match["bias"]
    with pytest.raises(KeyError, match="not part of what matched"):
        match[wildcard()]


def test_alternatives_are_tried_until_all_fits():
    """The first alternative fits alone, but not with what comes after it."""
    a, b = wildcard(), wildcard()
    either = a | is_op("matmul")(wildcard(), b)
    match, _ = found(is_op("multiply")(either, is_const() | either), "z")
    assert match is not None and a in match
    other = is_op("multiply")(is_op("matmul")(a, b) | wildcard(), is_var("nobody") | is_const())
    match, _ = found(other, "z")
    assert match is not None and a in match


def test_bad_patterns_are_refused():
    with pytest.raises(ValueError, match="no operator 'mat_mul'; did you mean 'matmul'"):
        is_op("mat_mul")
    with pytest.raises(ValueError, match="write it last"):
        is_op("matmul")(..., wildcard())


def test_text_of_patterns():
    text = str(is_op("add")(is_op("matmul")(X, ...), is_const()).has_shape((expr.Var("n"), 4)))
    assert text == 'is_op("add")(is_op("matmul")(wildcard(), ...), is_const()).has_shape((n, 4))'
    assert str(is_op("exp") >> is_op("sin") ^ is_op("cos")) == (
        'is_op("exp") >> is_op("sin") ^ is_op("cos")'
    )


def test_a_chain_is_made_of_patterns():
    with pytest.raises(TypeError, match="made of patterns, not of 3"):
        is_op("add") >> 3
