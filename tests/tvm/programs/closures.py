"""Functions with some of their arguments given, run by the virtual machine; lifted functions."""

import itertools

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def f(
        a: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32"), c: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        d = R.multiply(b, R.const(3, "float32"))
        return R.subtract(a, R.add(R.multiply(c, R.const(7, "float32")), d))

    @R.function(pure=False)
    def all_given(
        x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32"), z: R.Tensor((2,), "float32")
    ):
        g = R.make_closure(Mod.f, (x, y, z))
        return R.invoke_closure(g, (), ty_args=(R.Tensor((2,), "float32"),))

    @R.function(pure=False)
    def two_given(
        x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32"), z: R.Tensor((2,), "float32")
    ):
        g = R.make_closure(Mod.f, (x, y))
        return R.invoke_closure(g, (z,), ty_args=(R.Tensor((2,), "float32"),))

    @R.function
    def one_given(
        x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32"), z: R.Tensor((2,), "float32")
    ):
        g = R.make_closure(Mod.f, (x,))
        return R.invoke_pure_closure(g, (y, z), ty_args=(R.Tensor((2,), "float32"),))


@I.ir_module
class Local:
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        @R.function
        def inner(z: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.subtract(z, x)

        return inner(y)


machine = relax.VirtualMachine(tvm.compile(Mod, "llvm"), tvm.cpu())
values = [np.array([i, 2 * i + 1], "float32") for i in (3, 5, 7)]
for name in ("all_given", "two_given", "one_given"):
    for order in itertools.permutations(values):
        print(name, machine[name](*map(tvm.runtime.tensor, order)).numpy())
lifted = relax.transform.LambdaLift()(Local)
functions = sorted(lifted.get_global_vars(), key=lambda v: v.name_hint)
print([[p.name for p in lifted[v].params] for v in functions])
