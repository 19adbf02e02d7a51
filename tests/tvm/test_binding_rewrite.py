"""Changes of a dataflow block under TVM's names."""

from __future__ import annotations

import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import relax
from relaxlab.tvm.relax import DataflowBlockRewrite
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.abs(a)
            c = R.negative(a)
            R.output(b)
        return b


def test_a_block_is_changed() -> None:
    fn = Before["main"]
    block = fn.body.blocks[0]
    a, b, c = (binding.var for binding in block.bindings)
    rewrite = DataflowBlockRewrite(block, fn)
    with pytest.raises(ValueError, match="'a' is read"):
        rewrite.remove_unused(a)
    with pytest.raises(ValueError, match="no binding of 'y'"):
        rewrite.remove_unused(relax.Var("y"))
    rewrite.remove_unused(relax.Var("y"), allow_undef=True)
    rewrite.remove_unused(c)
    rewrite.replace_all_uses(a, fn.params[0])
    rewrite.add(relax.op.sin(fn.params[0]), "d", is_dfvar=True)
    assert [binding.var.name for binding in rewrite.mutated_dfb().bindings] == ["a", "b", "d"]
    rewrite.remove_all_unused()

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                b = R.abs(x)
                R.output(b)
            return b

    tvm.ir.assert_structural_equal(rewrite.mutated_root_fn(), Expected["main"])
    tvm.ir.assert_structural_equal(rewrite.mutate_irmodule(Before), Expected)
    with pytest.raises(ValueError, match="not one of the function's"):
        DataflowBlockRewrite(rewrite.mutated_dfb(), fn)
    assert b.name == "b"
