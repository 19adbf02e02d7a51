"""group_composites: one function for a compiler of what patterns outlined for it."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.passes.group_composites import group_composites
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Outlined:
    @R.function(private=True)
    def relu(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        R.func_attr({"Primitive": True, "Composite": "cc.relu"})
        y = R.nn.relu(x)
        return y

    @R.function(private=True)
    def fused_add(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        R.func_attr({"Primitive": True, "Composite": "cc.add"})
        z = R.add(x, y)
        return z

    @R.function(private=True)
    def fused_exp(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        R.func_attr({"Primitive": True, "Composite": "other.exp"})
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        with R.dataflow():
            a = Outlined.relu(x)
            b = Outlined.relu(y)
            e = Outlined.fused_exp(b)
            c = Outlined.fused_add(a, b)
            d = Outlined.fused_add(c, e)
            f = Outlined.fused_exp(d)
            R.output(d, f)
        return (d, f)


def test_groups_never_read_what_comes_after_them() -> None:
    before = normalize(Outlined)
    after = normalize(group_composites(before))
    functions = after.graph_functions()
    # `d` needs `e`, which needs `b`: it cannot be in the group of `b`.
    assert set(functions) == {"main", "fused_relu_relu_add_cc", "fused_exp1_other", "fused_add1_cc"}
    group = functions["fused_relu_relu_add_cc"]
    local = [b.value for b in group.body.blocks[0].bindings if isinstance(b.value, graph.Function)]
    assert group.attrs["Codegen"] == "cc"
    assert [f.attrs["Composite"] for f in local] == ["cc.relu", "cc.add"]
    x, y = np.random.default_rng(0).standard_normal((2, 5)).astype("float32")
    for got, wanted in zip(
        rl.interpret(after, "main", x, y), rl.interpret(before, "main", x, y), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)
    assert group_composites(after) is after
