"""Passes over loop functions, written by users and TVM's own."""

import numpy as np
import tvm
from tvm import tirx
from tvm.script import ir as I
from tvm.script import tirx as T


@I.ir_module
class Loops:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            if i // 8 == 0:
                B[(i * 8 + i) // 9] = A[i + 0 * i] * T.float32(3)

    @T.prim_func(s_tir=True)
    def other(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(1)


@tirx.transform.prim_func_pass(opt_level=0)
class Seen:
    def transform_function(self, func, mod, ctx):
        return func.with_attr("seen", len(mod.functions))


mod = Seen()(Loops)
print([mod[name].attrs["seen"] for name in ("main", "other")], Seen().info.name)
mod = tirx.transform.Filter(lambda func: len(func.params) == 2)(mod)
print([gv.name_hint for gv in mod.get_global_vars()])
mod = tirx.transform.Apply(lambda func: func.with_attr("applied", 1))(mod)
simple = tvm.tirx.transform.StmtSimplify()(mod)
print(
    simple["main"].attrs["applied"],
    [line for line in simple["main"].script().split("\n") if "A[i]" in line],
)
built = tvm.compile(simple, target="llvm")
a, b = tvm.runtime.tensor(np.arange(8, dtype="float32")), tvm.runtime.tensor(np.zeros(8, "float32"))
built["main"](a, b)
print(b.numpy())
