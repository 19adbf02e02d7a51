"""Programs that several tests read: each uses a part of the language."""

from __future__ import annotations

LOOPS = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def blocks(a: T.handle, B: T.Buffer((4, 8), "float32"), c: T.handle, k: T.int64):
        T.func_attr({"tir.noalias": True, "op_pattern": 4})
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32", strides=(4, 1), elem_offset=0)
        C = T.match_buffer(c, (n, 8), "float32")
        tmp = T.sblock_alloc_buffer((n, 8), "float32", scope="local")
        for i, j in T.grid(n, 8):
            for k0 in range(4):
                with T.sblock("mm"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k0])
                    with T.init():
                        tmp[vi, vj] = T.float32(0)
                    tmp[vi, vj] = tmp[vi, vj] + A[vi, vk] * B[vk, vj]
        for i in T.parallel(n):
            for j in T.vectorized(8):
                with T.sblock("copy"):
                    vi = T.axis.spatial(n, i)
                    vj = T.axis.spatial(8, j)
                    T.where(i * 8 + j < 30)
                    C[vi, vj] = T.if_then_else(
                        vi < n and vj >= 3 or not vj == 5,
                        T.max(tmp[vi, vj], T.float32(1)),
                        T.exp(T.Cast("float32", vi)),
                    )
        for i in T.serial(4, n, annotations={"pragma": 1}):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                with T.sblock("view"):
                    vi = T.axis.spatial((4, n), i)
                    vj = T.axis.reduce((2, 8), j + 2)
                    T.where(j < 6)
                    T.reads(A[0:4, vi:vi + 4])
                    T.writes(C[vi, 0:8])
                    T.sblock_attr({"a": 1, "b": "x", "c": [1, 2]})
                    V = T.match_buffer(A[0:4, vi:vi + 4], (4, 4), "float32")
                    x: T.let = vi + 1
                    C[vi, x] = tmp[x, vj] + T.Select(vi < n, T.float32(0), V[0, 1])

    @T.prim_func
    def plain(b: T.handle, n: T.int64, s: T.float32, D: T.Buffer((), "int8")):
        B = T.match_buffer(b, (n, 8), "float32")
        while B[0, 0] < T.float32(1.0):
            B[0, 0] = B[0, 0] + T.float32(1.0)
        B[0, T.Ramp(0, 1, 8)] = B[1, 0:8] + T.Broadcast(s, 8)
        T.evaluate(T.call_extern("int32", "foo", T.address_of(B[0, 0]), n))
        assert n > 4, "hi"
        if n > 8:
            B[0, 0] = T.float32("inf")
        else:
            B[0, 1] = T.Cast("float32", T.float16(1.5))
        x = T.int64()
        B[0, 2] = T.Cast("float32", T.Let(x * x, where={x: n + 3}))
        B[0, 3] = T.Cast("float32", n & 3 | n ^ 4 << 2)
        B[0, 4] = T.Cast("float32", T.truncdiv(n, 2) + T.truncmod(n, 3) - n // 3 % 2)
        B[0, 5] = -B[0, 4] + T.pow(B[0, 1], T.float32(2)) + T.tanh(B[0, 2]) + T.sigmoid(s)
        D[()] = D[()] >> T.int8(2)
        for i in T.unroll(4):
            B[0, i] = T.fma(B[0, i], s, s) + T.floor(s) + T.fabs(s) + T.log2(s) + T.rsqrt(s)
        for i in range(n):
            B[i, 0] = T.min(B[i, 0], T.max_value("float32")) + T.erf(s)
"""

GRAPH = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    I.module_attrs({"a": 1})

    @T.prim_func(s_tir=True)
    def copy(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi]

    @R.function(pure=False, private=True)
    def other(
        x: R.Tensor(("n", "m * 4"), "float32"),
        s: R.Shape(["n", "m"]),
        p: R.Prim("int64"),
        k: T.int64,
        t: R.Tuple(R.Tensor((4,), "float32"), R.Object),
        cb: R.Callable((R.Tensor(("kk",), "float32"),), R.Tensor(("kk",), "float32"), True),
        m1: R.Tensor(ndim=2),
        m2: R.Tensor,
        m3: R.Shape,
        m4: R.Shape(ndim=2),
        y: R.Tensor(("k", 4), "float32"),
        m5: R.Tensor(dtype="int64"),
    ) -> R.Object:
        R.func_attr({"num_input": 1, "tir_var_upper_bound": {"n": 4}})
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            a: R.Tensor((n, m * 4), "float32") = R.add(x, x)
            b: R.Object = R.reshape(a, R.shape([n * 4, m]))
            c: R.Tensor((n,), "float32") = R.match_cast(t[0], R.Tensor((n,), "float32"))
            d = t[0]
            e = (a, b)
            f1 = R.const([1.0, 2.0], "float32")
            g = R.call_pure_packed(
                "foo.bar", a, R.prim_value(n + 1), R.str("abc"), R.dtype("float32"),
                ty_args=R.Tensor(ndim=2),
            )
            gg = R.call_dps_packed(
                "foo.bar", (a,), out_ty=[R.Tensor((4,), "float32"), R.Tensor((4,), "float32")]
            )
            h = cb(d)
            R.output(a, c, h)
        r = R.call_packed("abc", h, ty_args=R.Tensor((n,), "float32"))
        u = R.sum(a, axis=[0], keepdims=True)
        v = R.nn.softmax(u, axis=-1)
        w = R.permute_dims(y, axes=[1, 0])
        q1 = R.take(w, R.const([0, 1], "int64"), axis=0)
        z = R.astype(q1, "float16")
        zz = R.concat((z, z), axis=1)
        z2 = R.const(True)
        z3 = R.const([[1], [2]], "int64")
        z4 = R.tuple(z2, z3)
        if z2:
            q: R.Tensor((n, m * 4), "float32") = R.add(a, a)
        else:
            q: R.Tensor((n, m * 4), "float32") = R.multiply(a, a)
        return (q, r)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((n,), "float32"))
            z = R.call_tir_inplace(
                cls.copy, (y, x), inplace_indices=[0], out_ty=R.Tensor((n,), "float32")
            )
            w = R.match_cast(z, R.Tensor(("k",), "float32"))
            R.output(w)
        return w
"""

PAPER_ERA = """
import tvm
from tvm.script import ir as I
from tvm.script import relax as R, tir as T

@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(a: T.handle, b: T.handle, c: T.handle) -> None:
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        n, m, k = T.int64(), T.int64(), T.int64()
        A = T.match_buffer(a, [n, k], dtype="float32")
        B = T.match_buffer(b, [k, m], dtype="float32")
        C = T.match_buffer(c, [n, m], dtype="float32")
        Y = T.alloc_buffer((n, m), dtype="float32")
        for i, j, k0 in T.grid(n, m, k):
            with T.block("Y"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.S(m, j)
                vk = T.axis.R(k, k0)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] += A[vi, vk] * B[vk, vj]
        for i, j in T.grid(n, m):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))

    @T.prim_func
    def add(A: T.Buffer[(128,), "float32"], B: T.Buffer((128,), "float32"), C: T.Buffer(128)):
        for i in T.serial(128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                C[vi] = A[vi] + B[vi]

    @R.function
    def main(
        x: R.Tensor(("n", 784), "float32"), w: R.Tensor((784, 10), "float32")
    ) -> R.Tensor(("n", 10), "float32"):
        n = T.int64()
        with R.dataflow():
            lv0 = R.call_tir(MyModule.mm_relu, (x, w), out_sinfo=R.Tensor((n, 10), "float32"))
            lv1 = R.call_dps_packed("env.relu", (lv0,), out_sinfo=R.Tensor((n, 10), "float32"))
            R.output(lv1)
        return lv1
"""

EXTRA_SYMBOLS = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(a: T.handle, b: T.handle, n: T.int64):
        A = T.match_buffer(a, (n * 4,), "float32")
        B = T.match_buffer(b, (n * 4,), "float32")
        for i in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi]

    @R.function
    def main(x: R.Tensor(("n * 4",), "float32"), s: R.Shape(["n"])):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.f, (x,), out_ty=R.Tensor((n * 4,), "float32"), tir_vars=R.shape([n]))
            R.output(y)
        return y
"""

LOCAL = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        @R.function
        def twice(a: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m", 4), "float32"):
            with R.dataflow():
                b = R.add(a, a)
                R.output(b)
            return b

        with R.dataflow():
            z = twice(R.add(x, y))
            R.output(z)
        return z
"""

PROGRAMS = {
    "loops": LOOPS,
    "graph": GRAPH,
    "paper_era": PAPER_ERA,
    "extra": EXTRA_SYMBOLS,
    "local": LOCAL,
}
