"""Functions and modules are built by frames, and equal those that scripts define."""

import tvm
from tvm import relax
from tvm.script import from_source
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import ir as I
from tvm.script.ir_builder import relax as R
from tvm.script.ir_builder import tirx as T


def same(built, text):
    tvm.ir.assert_structural_equal(built, from_source(text), map_free_vars=True)
    print("the same")


with IRBuilder() as ib, T.prim_func(s_tir=True):
    T.func_name("main")
    T.func_attr({"tir.noalias": True})
    a = T.arg("a", T.handle())
    b = T.arg("b", T.handle())
    A = IRBuilder.name("A", T.match_buffer(a, (8, 16), "float32"))
    B = IRBuilder.name("B", T.match_buffer(b, (8,), "float32"))
    with T.grid(8, 16) as (i, k), T.sblock("sum"):
        vi = IRBuilder.name("vi", T.axis.spatial(8, i))
        vk = IRBuilder.name("vk", T.axis.reduce(16, k))
        T.reads(A[vi, vk])
        T.writes(B[vi])
        with T.init():
            T.buffer_store(B, T.float32(0), [vi])
        T.buffer_store(B, B[vi] + A[vi, vk] * T.float32(2), [vi])
same(ib.get(), """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle):
    T.func_attr({"tir.noalias": True})
    A = T.match_buffer(a, (8, 16), "float32")
    B = T.match_buffer(b, (8,), "float32")
    for i, k in T.grid(8, 16):
        with T.sblock("sum"):
            vi = T.axis.spatial(8, i)
            vk = T.axis.reduce(16, k)
            T.reads(A[vi, vk])
            T.writes(B[vi])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk] * T.float32(2)
""")

with IRBuilder() as ib, T.prim_func():
    T.func_name("choose")
    A = T.arg("A", T.buffer((16,), "int32"))
    m = T.arg("m", T.int32())
    with T.serial(16) as i, T.If(i < m):
        with T.Then():
            T.buffer_store(A, T.max(A[i], m), [i])
        with T.Else():
            T.evaluate(T.call_extern("int32", "f", m))
same(ib.get(), """
@T.prim_func
def choose(A: T.Buffer((16,), "int32"), m: T.int32):
    for i in range(16):
        if i < m:
            A[i] = T.max(A[i], m)
        else:
            T.evaluate(T.call_extern("int32", "f", m))
""")

with IRBuilder() as ib, R.function():
    R.func_name("main")
    x = R.arg("x", relax.TensorType((4, 8), "float32"))
    y = R.arg("y", relax.TensorType((4, 8), "float32"))
    with R.dataflow() as block:
        lv = R.emit(R.add(x, y))
        gv = R.emit(R.multiply(lv, lv))
        R.output(gv)
    (gv,) = block.output_vars
    R.func_ret_value(gv)
same(ib.get(), """
@R.function
def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
    with R.dataflow():
        lv = R.add(x, y)
        gv = R.multiply(lv, lv)
        R.output(gv)
    return gv
""")

with IRBuilder() as ib, I.ir_module():
    with R.function(is_private=True):
        R.func_name("twice")
        x = R.arg("x", relax.TensorType((4,), "float32"))
        R.func_ret_value(R.emit(R.add(x, x)))
    with T.prim_func():
        T.func_name("store")
        A = T.arg("A", T.buffer((4,), "float32"))
        T.buffer_store(A, T.float32(1), [0])
mod = ib.get()
print(sorted(g.name_hint for g in mod.get_global_vars()))
same(mod, """
@I.ir_module
class Module:
    @R.function(private=True)
    def twice(x: R.Tensor((4,), "float32")):
        gv = R.add(x, x)
        return gv

    @T.prim_func
    def store(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(1)
""")

with IRBuilder() as ib, R.function():
    R.func_name("either")
    c = R.arg("c", relax.TensorType((), "bool"))
    x = R.arg("x", relax.TensorType((4,), "float32"))
    with R.If(c) as choice:
        with R.Then():
            IRBuilder.name("y", R.emit(R.add(x, x)))
        with R.Else():
            IRBuilder.name("y", R.emit(R.multiply(x, x)))
    R.func_ret_value(choice.var)
same(ib.get(), """
@R.function
def either(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        y = R.add(x, x)
    else:
        y = R.multiply(x, x)
    return y
""")
print(IRBuilder.is_in_scope())
