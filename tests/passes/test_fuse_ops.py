import pytest

from relaxlab.ir import graph
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.annotate_pattern_kind import annotate_pattern_kind
from relaxlab.passes.base import Pipeline
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.passes.fuse_tir import fuse_tir
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, compare_runs

BEFORE = Pipeline((normalize, canonicalize, legalize_ops, canonicalize, annotate_pattern_kind))


def fused(mod):
    """The kernels `main` calls after both fusion passes, in order; everything is checked."""
    start = BEFORE.run(mod).result
    grouped = fuse_ops(start)
    check_module(fuse_ops, start, grouped)
    compare_runs(start, grouped)
    merged = dead_code_elimination(fuse_tir(grouped))
    check_module(fuse_tir, grouped, merged)
    compare_runs(start, merged)
    return merged


def kernels(mod, name="main"):
    found = []
    for block in mod[name].body.blocks:
        for b in block.bindings:
            value = getattr(b, "value", None)
            if isinstance(value, graph.Call) and value.op == graph.Op("call_tir"):
                found.append(value.args[0].name)
    return found


def reasons(mod):
    """Pairs of (subject, reason) of the groups that were refused."""
    trace = Pipeline((*BEFORE.passes, fuse_ops)).run(mod)
    return {w.subject: w.reason for w in trace.find("fuse_ops").remarks if not w.applied}


def test_the_group_and_its_loop_function():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.negative(a)
                R.output(b)
            return b

    @I.ir_module
    class Grouped:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            cls = Grouped
            with R.dataflow():
                b: R.Tensor((n, 4), "float32") = cls.fused_exp_negative(x)
                R.output(b)
            return b

        @T.prim_func
        def exp(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
            T.func_attr({"op_pattern": 0, "tir.noalias": True})
            n = T.int64()
            for i, j in T.grid(n, 4):
                with T.block("T_exp"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj])

        @T.prim_func
        def negative(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
            T.func_attr({"op_pattern": 0, "tir.noalias": True})
            n = T.int64()
            for i, j in T.grid(n, 4):
                with T.block("T_negative"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(-1)

        @R.function(private=True)
        def fused_exp_negative(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            R.func_attr({"Primitive": True})
            n = T.int64()
            cls = Grouped
            with R.dataflow():
                a = R.call_tir(cls.exp, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
                b = R.call_tir(cls.negative, (a,), out_sinfo=R.Tensor((n, 4), "float32"))
                R.output(b)
            return b

    @I.ir_module
    class Merged:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            cls = Merged
            with R.dataflow():
                b = R.call_tir(cls.fused_exp_negative, (x,), out_sinfo=R.Tensor((n, 4), "float32"))
                R.output(b)
            return b

        @T.prim_func
        def fused_exp_negative(x: T.handle, out: T.handle):
            T.func_attr({"op_pattern": 0, "tir.noalias": True})
            n = T.int64()
            X = T.match_buffer(x, (n, 4), "float32")
            Out = T.match_buffer(out, (n, 4), "float32")
            A = T.alloc_buffer((n, 4), "float32")
            for i, j in T.grid(n, 4):
                with T.block("T_exp"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = T.exp(X[vi, vj])
            for i, j in T.grid(n, 4):
                with T.block("T_negative"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Out[vi, vj] = A[vi, vj] * T.float32(-1)

    grouped = fuse_ops(BEFORE.run(Before).result)
    assert_structural_equal(grouped, normalize(Grouped))
    merged = fused(Before)
    assert_structural_equal(merged, normalize(Merged))


def test_elementwise_into_the_back_of_a_product():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"),
            w: R.Tensor((8, 16), "float32"),
            b: R.Tensor((16,), "float32"),
            r: R.Tensor(("n", 16), "float32"),
        ):
            with R.dataflow():
                a = R.matmul(x, w)
                c = R.add(a, b)
                d = R.nn.relu(c)
                e = R.add(d, r)
                R.output(e)
            return e

    assert kernels(fused(Before)) == ["fused_matmul_add_relu_add"]


def test_two_products_keep_two_kernels_and_share_one_function():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"),
            g: R.Tensor((8, 16), "float32"),
            u: R.Tensor((8, 16), "float32"),
            h: R.Tensor((8, 16), "float32"),
        ):
            with R.dataflow():
                a = R.matmul(x, g)
                b = R.matmul(x, u)
                c = R.nn.silu(a)
                d = R.multiply(c, b)
                e = R.nn.silu(R.matmul(x, h))
                R.output(d, e)
            return (d, e)

    names = kernels(fused(Before))
    assert names == ["fused_matmul_silu", "fused_matmul_multiply", "fused_matmul_silu"]
    assert "matmul and matmul" in reasons(Before)["main.c (silu) into main.d (multiply)"]


def test_diamonds_and_side_inputs():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                c = R.cos(a)
                s = R.multiply(y, y)
                d = R.add(b, c)
                e = R.add(d, s)
                R.output(e)
            return e

    assert kernels(fused(Before)) == ["fused_exp_sin_cos_multiply_add_add"]


def test_a_value_that_is_used_outside_is_not_hidden():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                R.output(a, b)
            return (a, b)

    assert kernels(fused(Before)) == ["exp", "sin"]


def test_reductions_take_prologues_and_epilogues():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32")):
            with R.dataflow():
                a = R.multiply(x, x)
                s = R.sum(a, axis=1)
                m = R.multiply(s, R.const(0.0625, "float32"))
                r = R.rsqrt(R.add(m, R.const(1.0, "float32")))
                R.output(r)
            return r

    assert kernels(fused(Before)) == ["fused_multiply_sum_multiply_add_rsqrt"]


def test_an_epilogue_has_the_reductions_elements():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32")):
            with R.dataflow():
                s = R.sum(x, axis=1, keepdims=True)
                y = R.divide(x, s)
                R.output(y)
            return y

    assert kernels(fused(Before)) == ["sum", "divide"]
    assert "more than once" in reasons(Before)["main.s (sum) into main.y (divide)"]


def test_costly_values_are_not_computed_again():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n", 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(y, a)
                R.output(b)
            return b

    assert kernels(fused(Before)) == ["exp", "add"]
    assert "costly" in reasons(Before)["main.a (exp) into main.b (add)"]


def test_activations_are_not_computed_in_every_tile():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 16), "float32")):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.matmul(a, w)
                R.output(b)
            return b

    assert kernels(fused(Before)) == ["relu", "matmul"]
    assert "no larger" in reasons(Before)["main.a (relu) into main.b (matmul)"]


@I.ir_module
class Quantized:
    """The paper's Figure 9: a loop program decodes 4-bit weights for a product."""

    @T.prim_func
    def decode(
        packed: T.Buffer((16, 4), "uint32"),
        scale: T.Buffer((16, 1), "float32"),
        W: T.Buffer((16, 32), "float32"),
    ):
        for i, j in T.grid(16, 32):
            with T.block("decode"):
                vi, vj = T.axis.remap("SS", [i, j])
                W[vi, vj] = (
                    T.cast(
                        T.bitwise_and(
                            T.shift_right(packed[vi, vj // 8], T.cast(vj % 8 * 4, "uint32")),
                            T.uint32(15),
                        ),
                        "float32",
                    )
                    - T.float32(7)
                ) * scale[vi, vj // 32]

    @R.function
    def main(
        x: R.Tensor(("n", 16), "float32"),
        packed: R.Tensor((16, 4), "uint32"),
        scale: R.Tensor((16, 1), "float32"),
    ) -> R.Tensor(("n", 32), "float32"):
        cls = Quantized
        with R.dataflow():
            w = R.call_tir(cls.decode, (packed, scale), out_sinfo=R.Tensor((16, 32), "float32"))
            y = R.matmul(x, w)
            R.output(y)
        return y


def test_decoding_joins_the_product_that_consumes_it():
    assert kernels(fused(Quantized)) == ["fused_decode_matmul"]


def test_a_decode_with_two_readers_is_repeated():
    @I.ir_module
    class Before:
        @T.prim_func
        def decode(packed: T.Buffer((16, 32), "int8"), W: T.Buffer((16, 32), "float32")):
            for i, j in T.grid(16, 32):
                with T.block("decode"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    W[vi, vj] = T.cast(packed[vi, vj], "float32") * T.float32(0.5)

        @R.function
        def main(
            x: R.Tensor(("n", 16), "float32"),
            ids: R.Tensor(("k",), "int32"),
            packed: R.Tensor((16, 32), "int8"),
        ):
            cls = Before
            with R.dataflow():
                w = R.call_tir(cls.decode, (packed,), out_sinfo=R.Tensor((16, 32), "float32"))
                y = R.matmul(x, w)
                e = R.take(w, ids, axis=0)
                R.output(y, e)
            return (y, e)

    assert kernels(fused(Before)) == ["fused_decode_matmul", "fused_decode_take"]


def test_symbols_that_no_argument_binds_are_passed():
    """Figure 8: an outlined group with a parameter of shape (2 * n,) needs n explicitly."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n * 2",), "float32"):
            n = T.int64()
            y = R.reshape(x, R.shape([n * 2]))
            with R.dataflow():
                a = R.exp(y)
                b = R.add(a, a)
                R.output(b)
            return b

    merged = fused(Before)
    (call,) = [
        b.value
        for block in merged["main"].body.blocks
        for b in block.bindings
        if b.value.op == graph.Op("call_tir")
    ]
    assert call.args[0].name == "fused_exp_add"
    assert [str(v) for v in call.args[2].values] == ["n"]


def test_no_call_moves_before_the_match_cast_of_its_shape():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor(("k",), "int64")):
            m = T.int64()
            with R.dataflow():
                a = R.exp(x)
                u = R.unique(i)
                v = R.match_cast(u, R.Tensor((m,), "int64"))
                c = R.astype(v, "float32")
                z = R.zeros(R.shape([m]), "float32")
                d = R.add(c, z)
                b = R.add(a, a)
                R.output(b, d)
            return (b, d)

    assert kernels(fused(Before)) == ["fused_astype_zeros_add", "fused_exp_add"]


def test_a_user_function_may_be_called_fused():
    @I.ir_module
    class Before:
        @R.function
        def fused_exp_add(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.exp(x)

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Before
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                R.output(b)
            y = cls.fused_exp_add(b)
            return y

    assert kernels(fused(Before)) == ["fused_exp_add1"]


def test_overwritten_values_are_read_before():
    @I.ir_module
    class Before:
        @T.prim_func
        def bump(A: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                with T.block("A"):
                    vi = T.axis.spatial(n, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
            n = T.int64()
            cls = Before
            with R.dataflow():
                a = R.exp(x)
                z = R.call_tir_inplace(
                    cls.bump, (x,), out_sinfo=R.Tensor((n,), "float32"), inplace_indices=[0]
                )
                b = R.add(a, z)
                R.output(b)
            return b

    names = kernels(fused(Before))
    assert names == ["exp", "add"]
    assert "overwritten" in reasons(Before)["main.a (exp) into main.b (add)"]


@pytest.mark.parametrize("limit, count", [(64, 1), (3, 2)])
def test_the_size_of_a_kernel_is_limited(limit, count):
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                c = R.cos(b)
                d = R.tanh(c)
                e = R.exp(d)
                f = R.sin(e)
                R.output(f)
            return f

    start = BEFORE.run(Before).result
    after = fuse_ops.with_options(max_group=limit)(start)
    groups = [f for f in after.graph_functions().values() if f.attrs.get("Primitive")]
    assert len(groups) == count
    compare_runs(start, after)


def test_the_whole_graph_pipeline_ends_with_kernels():
    after = Pipeline(GRAPH_PASSES).run(Quantized).result
    assert kernels(after) == ["fused_decode_matmul"]
    compare_runs(Quantized, after)
