"""Passes written and run in TVM's way."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R
from relaxlab.tvm.script import tir as T


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.add(a, x)
            unread = R.exp(b)
            c = R.nn.relu(b)
            R.output(c)
        return c


X = np.random.default_rng(0).standard_normal((4, 4), "float32")
W = np.random.default_rng(1).standard_normal((4, 4), "float32")
ANSWER = np.maximum(X @ W + X, 0)


def check(executable) -> None:
    vm = relax.VirtualMachine(executable, tvm.cpu())
    out = vm["main"](tvm.nd.array(X), tvm.nd.array(W))
    np.testing.assert_allclose(out.numpy(), ANSWER, rtol=1e-5, atol=1e-6)


@relax.expr_functor.mutator
class Fusor(relax.PyExprMutator):
    """Outlines x @ w + b as a primitive function."""

    def __init__(self, mod):
        super().__init__(mod)
        self.mod_ = mod

    def transform(self):
        for var, func in self.mod_.functions_items():
            if isinstance(func, relax.Function) and "Primitive" not in func.attrs:
                self.builder_.update_func(
                    var, relax.analysis.remove_all_unused(self.visit_expr(func))
                )
        return self.builder_.get()

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        product = self.lookup_binding(call.args[0])
        if call.op != tvm.ir.Op.get("relax.add") or not isinstance(product, relax.Call):
            return call
        operands = [*product.args, call.args[1]]
        params = [relax.Var(f"p{i}", a.struct_info) for i, a in enumerate(operands)]
        bb = relax.BlockBuilder()
        with bb.function("fused", params):
            with bb.dataflow():
                out = bb.emit_output(relax.op.matmul(*params[:2]) + params[2])
            bb.emit_func_output(out)
        fused = bb.get()["fused"].with_attr("Primitive", True)  # noqa: FBT003
        return relax.Call(self.builder_.add_func(fused, "fused"), operands)


@tvm.transform.module_pass(opt_level=2, name="FuseMatmulAdd")
class FuseMatmulAdd:
    def transform_module(self, mod, ctx):
        return Fusor(mod).transform()


def test_a_mutator_that_outlines_calls() -> None:
    after = FuseMatmulAdd()(Layer)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                b = Expected.fused(x, w, x)
                c = R.nn.relu(b)
                R.output(c)
            return c

        @R.function
        def fused(
            x: R.Tensor((4, 4), "float32"),
            w: R.Tensor((4, 4), "float32"),
            b: R.Tensor((4, 4), "float32"),
        ):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.matmul(x, w)
                c = R.add(a, b)
                R.output(c)
            return c

    tvm.ir.assert_structural_equal(after, Expected)
    lowered = relax.transform.FuseTIR()(relax.transform.LegalizeOps()(after))
    assert sorted(lowered) == ["fused", "main", "relu"]
    check(relax.build(lowered, "llvm"))


def test_a_mutator_that_changes_nothing_gives_the_same_function() -> None:
    func = relax.transform.Normalize()(Layer)["main"]
    assert relax.PyExprMutator(Layer).visit_expr(func) is func


def test_a_mutator_that_removes_an_operator_corrects_the_types() -> None:
    @relax.expr_functor.mutator
    class Flattened(relax.PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            return relax.op.flatten(call) if call.op == tvm.ir.Op.get("relax.matmul") else call

    @R.function
    def before(x: R.Tensor((4, 4), "float32")):
        y = R.matmul(x, x)
        z = R.exp(y)
        return z

    after = Flattened().visit_expr(before)
    tvm.ir.assert_structural_equal(after.ret_struct_info, R.Tensor((16,), "float32"))


def test_a_visitor_sees_each_call_and_definition() -> None:
    @relax.expr_functor.visitor
    class Seen(relax.PyExprVisitor):
        def __init__(self):
            self.names, self.defined = [], []

        def visit_call_(self, call):
            super().visit_call_(call)
            self.names.append(call.op.name)

        def visit_var_def(self, var):
            self.defined.append(var.name_hint)

    seen = Seen()
    seen.visit_expr(Layer["main"])
    assert seen.names == [f"relax.{n}" for n in ("matmul", "add", "exp", "nn.relu")]
    assert seen.defined == ["x", "w", "a", "b", "unread", "c"]


def test_passes_in_sequence_tell_their_instruments() -> None:
    told = []

    @tvm.instrument.pass_instrument
    class Names:
        def run_before_pass(self, mod, info):
            told.append(info.name)

        def should_run(self, mod, info):
            return info.name != "FoldConstant"

    timing = tvm.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(opt_level=3, instruments=[Names(), timing]):
        after = relax.get_pipeline("zero")(Layer)
    assert told == ["zero", "LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"]
    assert [line.split(":")[0].strip() for line in timing.render().splitlines()] == [
        *told[1:],
        "zero",
    ]
    assert sorted(after) == ["fused_matmul_add", "main", "relu"]
    check(tvm.compile(after, target="llvm"))


def test_a_pass_above_the_level_is_left_out() -> None:
    @relax.transform.function_pass(opt_level=3)
    def rename(func, mod, ctx):
        return func.with_attr("seen", 1)

    sequence = tvm.ir.transform.Sequential([rename])
    assert "seen" not in sequence(Layer)["main"].attrs
    with tvm.transform.PassContext(opt_level=3):
        assert sequence(Layer)["main"].attrs["seen"] == 1


def test_a_pass_over_dataflow_blocks() -> None:
    @relax.transform.dataflowblock_pass(opt_level=0, name="drop")
    class Drop:
        def transform_dataflowblock(self, block, mod, ctx):
            return relax.DataflowBlock([b for b in block.bindings if b.var.name_hint != "unread"])

    after = Drop()(Layer)
    tvm.ir.assert_structural_equal(after, relax.transform.DeadCodeElimination()(Layer))


def test_lowerings_given_by_the_user() -> None:
    def double(bb, call):
        return bb.call_te(lambda x: tvm.te.compute(x.shape, lambda i, j: x[i, j] * 2.0), *call.args)

    after = relax.transform.LegalizeOps({"relax.nn.relu": double})(Layer)
    vm = relax.VirtualMachine(relax.build(after), tvm.cpu())
    out = vm["main"](X, W).numpy()
    np.testing.assert_allclose(out, (X @ W + X) * 2, rtol=1e-5, atol=1e-6)


def test_the_stateful_interface_of_the_virtual_machine() -> None:
    vm = relax.VirtualMachine(relax.build(Layer, params={"w": W}), tvm.cpu())
    with pytest.raises(ValueError, match="no arguments are set for main"):
        vm.invoke_stateful("main")
    vm.set_input("main", tvm.nd.array(X))
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs("main").numpy(), ANSWER, rtol=1e-5, atol=1e-6)
    vm.save_function("main", "saved", tvm.nd.array(X))
    np.testing.assert_allclose(vm["saved"]().numpy(), ANSWER, rtol=1e-5, atol=1e-6)


def test_questions_about_programs() -> None:
    func = relax.transform.Normalize()(Layer)["main"]
    x, w = func.params
    names = [v.name_hint for v in relax.analysis.bound_vars(func)]
    assert names == ["x", "w", "a", "b", "unread", "c"]
    assert relax.analysis.free_vars(func) == [] and relax.analysis.free_vars(func.body) == [x, w]
    block = func.body.blocks[0]
    a, b, unread, c = (binding.var for binding in block.bindings)
    assert relax.analysis.udchain(block) == {
        x: [a, b],
        w: [a],
        a: [b],
        b: [unread, c],
        unread: [],
        c: [],
    }
    assert relax.analysis.get_var2val(func)[a].op == tvm.ir.Op.get("relax.matmul")
    assert relax.analysis.well_formed(Layer)
    assert not relax.analysis.contains_impure_call(func)
    assert relax.analysis.detect_recursion(Layer) == []
    n = tvm.te.var("n")
    one, other = R.Tensor((n, 4), "float32"), R.Tensor((3, 4), "float32")
    assert relax.analysis.tir_vars_in_struct_info(one) == [n]
    tvm.ir.assert_structural_equal(
        relax.analysis.struct_info_lca(one, other), R.Tensor(dtype="float32", ndim=2)
    )


def test_packed_calls_find_loop_functions_and_registered_functions() -> None:
    @I.ir_module
    class Calls:
        @T.prim_func
        def negate(x: T.handle, y: T.handle):
            n = T.int64()
            X = T.match_buffer(x, (n,), "float32")
            Y = T.match_buffer(y, (n,), "float32")
            for i in range(n):
                with T.block("Y"):
                    vi = T.axis.spatial(n, i)
                    Y[vi] = -X[vi]

        @R.function
        def main(x: R.Tensor(("n",), "float32"), b: R.Tensor(("n",), "float32")):
            n = T.int64()
            with R.dataflow():
                y = R.call_dps_packed("negate", (x,), R.Tensor((n,), "float32"))
                z = R.call_dps_packed("test.tvm.add", (y, b), R.Tensor((n,), "float32"))
                R.output(z)
            return z

    @tvm.register_func("test.tvm.add", override=True)
    def add(x: tvm.nd.NDArray, y: tvm.nd.NDArray, out: tvm.nd.NDArray) -> None:
        np.from_dlpack(out)[...] = np.from_dlpack(x) + np.from_dlpack(y)

    x, b = np.arange(3, dtype="float32"), np.ones(3, "float32")
    bound = relax.transform.BindParams("main", {"b": tvm.nd.array(b)})(Calls)
    vm = relax.VirtualMachine(relax.build(bound, target="llvm"), tvm.cpu())
    np.testing.assert_array_equal(vm["main"](tvm.nd.array(x)).numpy(), 1 - x)


def test_backend_passes_lower_one_family_of_operators() -> None:
    @I.ir_module
    class Sorted:
        @R.function
        def main(x: R.Tensor((2, 8), "float32"), u: R.Tensor((2, 1), "float32")):
            with R.dataflow():
                a = R.nn.softmax(R.cumsum(R.sort(x, axis=1), axis=1))
                i = R.const(np.array([[0], [1]], "int64"))
                drawn = R.multinomial_from_uniform(a, u, i)
                R.output(drawn)
            return drawn

    scans = relax.backend.DispatchSortScan()(Sorted)
    assert {f.name_hint for f in scans.get_global_vars()} == {"main", "sort", "cumsum"}
    both = relax.backend.DispatchSampling()(scans)
    drawn = "multinomial_from_uniform"
    assert {f.name_hint for f in both.get_global_vars()} == {"main", "sort", "cumsum", drawn}
    assert "R.nn.softmax" in both["main"].script()
    u = np.array([[0.3], [0.9]], "float32")
    x = X.reshape(2, 8)
    want, got = (
        relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())["main"](
            tvm.nd.array(x), tvm.nd.array(u)
        ).numpy()
        for mod in (Sorted, both)
    )
    np.testing.assert_array_equal(want, got)
    sums = np.exp(np.cumsum(np.sort(x, 1), 1))
    below = np.cumsum(sums / sums.sum(1, keepdims=True), 1) < u
    np.testing.assert_array_equal(got, below.sum(1, keepdims=True))
