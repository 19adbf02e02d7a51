import numpy as np

from relaxlab.ir import graph
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs
from relaxlab.tracing import recording


def legalized(mod):
    """The result, checked for idempotence, well-formedness and meaning."""
    start = canonicalize(normalize(mod))
    after = legalize_ops(start)
    check_module(legalize_ops, start, after)
    compare_runs(start, after)
    return after


def calls_of(mod, name="main"):
    bindings = mod[name].body.blocks[0].bindings
    return [b.value.args[0].name for b in bindings if b.value.op == graph.Op("call_tir")]


def test_an_operator_becomes_its_loops():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            y = R.exp(x)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            cls = Expected
            y = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
            return y

        @T.prim_func
        def exp(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            for i, j in T.grid(n, 4):
                with T.block("T_exp"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj])

    check_pass(legalize_ops, Before, Expected)


def test_equal_loops_are_shared_whatever_the_symbols_are_called():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32")):
            a = R.exp(x)
            b = R.exp(y)
            c = R.exp(a)
            d = R.exp(R.sum(b, axis=0))
            return (c, d)

    after = legalized(Before)
    assert calls_of(after) == ["exp", "exp", "exp", "sum", "exp1"]


def test_scalar_constants_are_written_into_the_loops():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            a = R.add(x, R.const(1.5, "float32"))
            b = R.add(a, R.const(2.5, "float32"))
            c = R.add(b, R.const(1.5, "float32"))
            return c

    after = legalized(Before)
    assert calls_of(after) == ["add", "add1", "add"]
    assert len(after["add"].params) == 2


def test_views_become_reshapes_and_stay():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 2, 3), "float32")):
            n = T.int64()
            a = R.flatten(x)
            b = R.reshape(a, R.shape([n, 6]))
            c = R.expand_dims(b, 1)
            d = R.squeeze(c, axis=[1])
            return d

    after = legalized(Before)
    ops = [b.value.op.name for b in after["main"].body.blocks[0].bindings]
    assert ops == ["reshape"] * 4
    assert not after.loop_functions()


def test_symbols_that_no_buffer_binds_are_passed():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["k"])):
            k = T.int64()
            a = R.full(R.shape([k * 2]), R.const(1, "float32"), "float32")
            b = R.full(R.shape([k * 2 + 2]), R.const(1, "float32"), "float32")
            return (a, b, x)

    after = legalized(Before)
    first = after["main"].body.blocks[0].bindings[0].value
    assert isinstance(first.args[2], graph.ShapeExpr)
    assert [str(v) for v in first.args[2].values] == ["k"]


def test_tuples_are_spread():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n",), "float32"),
            t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("m",), "float32")),
        ):
            a = R.concat(t)
            b = R.concat((a, x))
            p = R.split(b, [1])
            return p

    legalized(Before)


def test_unknown_shapes_stay_with_a_remark():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "int64")):
            u = R.unique(x)
            y = R.add(u, u)
            return y

    start = normalize(Before)
    with recording() as remarks:
        after = legalize_ops(start)
    assert after is start
    assert [(n.subject, n.applied) for n in remarks] == [("main.y: add", False)]
    assert "unknown" in remarks[0].reason


def test_user_functions_keep_their_names():
    one = np.float32(1)

    @I.ir_module
    class Before:
        @T.prim_func
        def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(7)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            a = R.call_tir(cls.add, (x,), out_sinfo=R.Tensor((4,), "float32"))
            b = R.add(a, R.const(one))
            return b

    after = legalized(Before)
    assert calls_of(after) == ["add", "add1"]
