"""Rewriting with callbacks: changes, refusals, and that the meaning stays."""

import random

import numpy as np
import pytest

from relaxlab import ops
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.node import walk
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import (
    is_const,
    is_op,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass, compare_runs, remarks_of
from tests.passes.graph_programs import Programs


def linear():
    """matmul(x, permute_dims(w)) + b is linear(x, w, b)."""
    x, w, b = wildcard(), wildcard(), wildcard().has_rank(1)
    product = is_op("matmul")(x, is_op("permute_dims")(w.has_rank(2)))
    pattern = is_op("add")(product, b) | is_op("add")(b, product)

    def to_linear(call, match):
        return ops.linear(match[x], match[w], match[b])

    return rewrite_call(pattern, to_linear, "to_linear")


@I.ir_module
class Layers:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
        b: R.Tensor((8,), "float32"),
    ):
        with R.dataflow():
            wt = R.permute_dims(w)
            y = R.matmul(x, wt)
            z = R.add(y, b)
            u = R.add(b, y)
            out = R.multiply(z, u)
            R.output(out)
        return out


def test_a_call_is_replaced_and_what_it_read_goes_away():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((8, 4), "float32"),
            b: R.Tensor((8,), "float32"),
        ):
            with R.dataflow():
                z = R.linear(x, w, b)
                u = R.linear(x, w, b)
                out = R.multiply(z, u)
                R.output(out)
            return out

    check_pass(linear(), Layers, Expected)
    assert remarks_of(linear(), normalize(Layers)) == [
        ("main.z", "matched with `wt`, `y`: now linear(x, w, b)", True),
        ("main.u", "matched with `wt`, `y`: now linear(x, w, b)", True),
    ]


def test_values_read_elsewhere_stay():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            e = R.exp(x)
            y = R.negative(e)
            return (e, y)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            e = R.exp(x)
            gv = R.exp(x)
            y = R.subtract(R.const(0.0, "float32"), gv)
            return (e, y)

    v = wildcard()
    pattern = is_op("negative")(is_op("exp")(v))
    one = rewrite_call(pattern, lambda call, m: ops.subtract(np.float32(0), ops.exp(m[v])))
    after = one(normalize(Before))
    # New calls are named by normalize; only the structure counts.
    assert_structural_equal(after, normalize(Expected))
    compare_runs(Before, after)


def test_the_rewriter_may_decline_with_a_reason():
    start = normalize(Layers)
    for answer, said in (
        (None, "the rewriter left it"),
        ("b is not a weight", "b is not a weight"),
    ):
        one = rewrite_call(is_op("multiply"), lambda call, m, a=answer: a)
        assert one(start) is start
        assert remarks_of(one, start) == [("main.out", said, False)]


def test_a_pattern_that_matches_nothing_names_the_nearest_miss():
    start = normalize(Layers)
    x = wildcard()
    one = rewrite_call(is_op("add")(is_op("matmul")(x, is_const()), ...), lambda c, m: None)
    assert one(start) is start
    ((subject, reason, applied),) = remarks_of(one, start)
    assert subject == 'is_op("add")(is_op("matmul")(wildcard(), is_const()), ...)' and not applied
    assert reason == (
        "matched nothing; the nearest miss is `main.z`: "
        "`wt` is a call of permute_dims, not is_const()"
    )
    ((_, reason, _),) = remarks_of(rewrite_call(is_op("exp"), lambda c, m: None), start)
    assert reason.startswith("matched nothing; no call of the right operator; there are calls of ")
    assert {"add", "matmul"} <= set(reason.rpartition(" of ")[2].split(", "))


def test_a_value_of_another_type_is_refused():
    one = rewrite_call(is_op("multiply"), lambda call, m: ops.sum(call.args[0]))
    with pytest.raises(DiagnosticError, match="`out` is annotated"):
        one(normalize(Layers))


def test_overwritten_operands_are_not_read_later():
    @I.ir_module
    class Before:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            a = R.exp(x)
            b = R.sin(a)
            c = R.call_tir_inplace(
                cls.bump, (a,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            d = R.negative(b)
            return (c, d)

    v = wildcard()
    one = rewrite_call(is_op("negative")(is_op("sin")(v)), lambda call, m: ops.cos(m[v]))
    start = normalize(Before)
    assert one(start) is start
    reason = "what `b` reads is overwritten before `d` is computed"
    assert remarks_of(one, start) == [("main.d", reason, False)]


def test_values_of_other_blocks_are_not_looked_into():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                y = R.negative(a)
            else:
                s = R.exp(x)
                y = R.negative(s)
            return y

    v = wildcard()
    one = rewrite_call(is_op("negative")(is_op("exp")(v)), lambda call, m: ops.sin(m[v]))
    after = one(normalize(Before))
    assert after.script().count("R.negative") == 1 and after.script().count("R.sin") == 1


# --- Chains -----------------------------------------------------------------------------------


@I.ir_module
class Parallel:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((4, 6), "float32"),
        v: R.Tensor((4, 2), "float32"),
    ):
        with R.dataflow():
            h = R.exp(x)
            a = R.matmul(h, w)
            s = R.sin(a)
            b = R.matmul(h, v)
            R.output(s, b)
        return (s, b)


def test_chains_describe_a_graph_and_bindings_find_their_order():
    h, a, b = is_op("exp"), is_op("matmul"), is_op("matmul")

    def combine(match, bindings):
        left, right = match.definition(a), match.definition(b)
        weights = graph.Var("weights")
        both = graph.Var("both")
        return {
            weights: ops.concat((left.args[1], right.args[1]), axis=1),
            both: ops.split(ops.matmul(left.args[0], weights), [6], axis=1),
            match[a]: graph.TupleGetItem(both, 0),
            match[b]: graph.TupleGetItem(both, 1),
        }

    one = rewrite_bindings((h >> a, h >> b), combine, "combine")
    after = one(normalize(Parallel))
    assert not check_well_formed(after)
    compare_runs(Parallel, after)
    text = after.script()
    assert text.count("R.matmul") == 1 and text.index("R.split") < text.index("R.sin")


@pytest.mark.parametrize(
    "chain, count",
    [
        (is_op("exp") >> is_op("matmul"), 2),
        (is_op("exp") >> is_op("matmul") >> is_op("sin"), 1),
        (is_op("exp") ^ is_op("matmul"), 0),  # two calls read it
        (is_op("matmul") ^ is_op("sin"), 1),
        (is_op("exp").used_by(is_op("matmul").only_used_by(is_op("sin"))), 1),
        (is_op("sin") >> is_op("matmul"), 0),
    ],
    ids=str,
)
def test_used_by_and_only_used_by(chain, count):
    seen = []
    one = rewrite_bindings(chain, lambda match, bindings: seen.append(match.members))
    start = normalize(Parallel)
    assert one(start) is start
    assert len(seen) == count
    if not count:
        ((_, reason, _),) = remarks_of(one, start)
        assert reason.startswith("matched nothing")


def test_a_cycle_is_refused():
    a = is_op("sin")
    one = rewrite_bindings(
        is_op("matmul") >> a, lambda m, b: {m.members[0]: ops.sin(m.root), m.root: m.members[0]}
    )
    with pytest.raises(ValueError, match="depends on itself"):
        one(normalize(Parallel))


# --- Random programs --------------------------------------------------------------------------


def identities(rng):
    """Rewrites that keep the value, on patterns of random operators."""
    v, w = wildcard(), wildcard()
    table = [
        (is_op("add")(v, w), lambda c, m: ops.add(m[w], m[v])),
        (is_op("subtract")(v, w), lambda c, m: ops.add(m[v], ops.negative(m[w]))),
        (is_op("exp")(v), lambda c, m: ops.multiply(ops.exp(m[v]), 1.0)),
        (is_op("negative")(is_op("negative")(v)), lambda c, m: m[v]),
        (is_op("abs")(v), lambda c, m: ops.maximum(m[v], ops.negative(m[v]))),
        (is_op("matmul")(v, w).has_rank(2),
         lambda c, m: ops.permute_dims(ops.matmul(ops.permute_dims(m[w]), ops.permute_dims(m[v])))
         if all(len(t.ty.shape) == 2 for t in (m[v], m[w])) else None),
    ]  # fmt: skip
    return rng.sample(table, 4)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_keep_their_meaning(seed):
    start = normalize(Programs(seed).module())
    rng = random.Random(seed)
    mod = start
    for pattern, rewriter in identities(rng):
        mod = rewrite_call(pattern, rewriter)(mod)
    assert not check_well_formed(mod)
    compare_runs(start, mod, seed=seed, runs=2)


def test_some_random_program_is_rewritten():
    changed = 0
    for seed in range(10):
        start = normalize(Programs(seed).module())
        v, w = wildcard(), wildcard()
        after = rewrite_call(is_op("add")(v, w), lambda c, m: ops.add(m[w], m[v]))(start)  # noqa: B023
        changed += after is not start
        assert sum(1 for _ in walk(after)) > 0
    assert changed >= 5


@pytest.mark.parametrize("seed", range(15))
def test_random_chains_keep_their_meaning(seed):
    start = normalize(Programs(seed).module(16))
    first = wildcard().where(lambda e: isinstance(e, graph.Call), "a call").has_dtype("float32")
    second = is_op("add") | is_op("multiply") | is_op("subtract")
    count = 0

    def split(match, bindings):
        nonlocal count
        count += 1
        new = graph.DataflowVar("new")
        return {
            match[second]: ops.add(new, match.definition(second)),
            new: ops.multiply(match[first], 0.0),
            match[first]: ops.negative(ops.negative(match.definition(first))),
        }

    after = rewrite_bindings(first >> second, split)(start)
    assert (count > 0) == (after is not start)
    assert not check_well_formed(after)
    compare_runs(start, after, seed=seed, runs=2)


def test_what_a_rewriter_makes_wrong_is_named():
    """With the rule and the place, not as a fault of the program."""

    @I.ir_module
    class Scaled:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            return R.multiply(x, R.const(2.0, "float32"))

    mod = normalize(Scaled)
    x = wildcard()
    pattern = is_op("multiply")(x, is_const())
    array = rewrite_call(
        pattern, lambda c, m: graph.Call(c.op, (m[x], np.ones(4, "float32"))), name="twice"
    )
    with pytest.raises(TypeError, match=r"twice: the rewriter of `main\..*` returned a call with"):
        array(mod)
    wide = graph.Constant(np.ones((), "float64"))
    other = rewrite_call(pattern, lambda c, m: graph.Call(c.op, (m[x], wide)), name="twice")
    with pytest.raises(DiagnosticError, match="`twice` made it so: the program was right before"):
        other(mod)
