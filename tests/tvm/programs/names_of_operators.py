"""Operators' names as keys of tables; weights that are bound."""

from collections import Counter

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R

COST = {"relax.add": 1, "relax.matmul": 10, "relax.nn.relu": 2, "relax.nn.softmax": 3}


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        w: R.Tensor((3, 4), "float32"),
        b: R.Tensor((4,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.add(y, b)
            r = R.nn.relu(z)
            s = R.nn.softmax(R.add(r, b))
            R.output(s)
        return s


@mutator
class Ones(PyExprMutator):
    ACTIVATIONS = frozenset({"relax.nn.relu", "relax.nn.gelu"})

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        named = isinstance(call.op, tvm.ir.Op) and call.op.name in self.ACTIVATIONS
        return relax.op.sigmoid(call.args[0]) if named else call


def calls(mod):
    found = []

    def visit(e):
        if isinstance(e, relax.Call) and isinstance(e.op, tvm.ir.Op):
            found.append(e.op.name)

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def run(mod, *args):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    return vm["main"](*args)


names = calls(Layer)
print(Counter(names)["relax.add"], sum(COST[n] for n in names), sorted(set(names)))
print([n.split(".")[-1] for n in names if n.startswith("relax.nn.")])
print([tvm.ir.Op.get(n).name == n for n in COST])
ones = Ones(Layer)
for var, func in Layer.functions_items():
    ones.builder_.update_func(var, ones.visit_expr(func))
print(sorted(set(calls(ones.builder_.get()))))

for other in ("multiply", "add"):
    same = tvm.script.from_source(Layer.script().replace("R.add", f"R.{other}"))
    try:
        tvm.ir.assert_structural_equal(Layer, same)
        print("equal")
    except ValueError:
        print("different")

weights = {"w": np.full((3, 4), 0.5, "float32"), "b": np.arange(4, dtype="float32")}
bound = relax.transform.BindParams("main", weights)(Layer)
x = tvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3))
print(len(bound["main"].params), np.round(run(bound, x).numpy(), 4).tolist())
