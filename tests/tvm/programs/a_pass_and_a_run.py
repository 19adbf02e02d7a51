"""A module built call by call, changed by a pass of the user's, lowered, and run."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard
from tvm.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor
from tvm.script import ir as I
from tvm.script import relax as R


def built():
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    w = relax.Var("w", R.Tensor((8, 8), "float32"))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            a = bb.emit(relax.op.matmul(x, w))
            b = bb.emit_te(lambda t: tvm.te.compute(t.shape, lambda i, j: t[i, j] + 1.0), a)
            c = bb.emit_output(relax.op.nn.relu(b))
        bb.emit_func_output(c)
    return bb.get()


@visitor
class Calls(PyExprVisitor):
    def __init__(self):
        super().__init__()
        self.found = []

    def visit_call_(self, call):
        if isinstance(call.op, tvm.ir.Op):
            self.found.append(call.op == tvm.ir.Op.get("relax.nn.relu"))


@mutator
class Squared(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op == tvm.ir.Op.get("relax.nn.relu"):
            once = self.builder_.emit(relax.op.nn.relu(call.args[0]))
            return relax.op.multiply(once, once)
        return call


@tvm.transform.module_pass(opt_level=0, name="Square")
class Square:
    def transform_module(self, mod, ctx):
        squared = Squared(mod)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                squared.builder_.update_func(var, squared.visit_expr(func))
        return squared.builder_.get()


mod = built()
calls = Calls()
calls.visit_expr(mod["main"])
print(calls.found, len(mod.get_global_vars()))
mod = Square()(mod)
value = wildcard()
func = rewrite_call(
    is_op("relax.nn.relu")(value), lambda call, m: relax.op.exp(m[value]), mod["main"]
)
mod.update_func(mod.get_global_var("main"), func)
passes = [
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
]
with tvm.transform.PassContext(opt_level=3):
    fused = tvm.transform.Sequential(passes)(mod)
block = fused["main"].body.blocks[0]
print(isinstance(block, relax.DataflowBlock), [len(b.bindings) for b in fused["main"].body.blocks])
vm = relax.VirtualMachine(tvm.compile(fused, target="llvm"), tvm.cpu())
rng = np.random.default_rng(0)
x, w = (rng.uniform(-0.1, 0.1, s).astype("float32") for s in ((4, 8), (8, 8)))
out = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
print(out.shape, out.dtype, np.allclose(out, np.exp(x @ w + 1) ** 2, rtol=1e-4))


@I.ir_module
class Written:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            z = R.add(x, x)
            unread = R.exp(x)
            s = R.multiply(y, z)
            R.output(s)
        return s


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            s = R.multiply(y, y)
            R.output(s)
        return s


for one in ("EliminateCommonSubexpr", "CanonicalizeBindings", "DeadCodeElimination"):
    Written = getattr(relax.transform, one)()(Written)
tvm.ir.assert_structural_equal(Written, Expected)
print([b.var.name for b in Written["main"].body.blocks[0].bindings])
print(relax.analysis.well_formed(Written) in (True, None))
