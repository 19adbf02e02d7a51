import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import graph
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.lift_workspace import lift_workspace
from relaxlab.passes.normalize import normalize
from relaxlab.passes.plan_memory import memory_plan_of
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs


def test_scratch_memory_becomes_an_output():
    @I.ir_module
    class Before:
        @T.prim_func
        def total(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n",), "float32")):
            n = T.int64()
            partial = T.alloc_buffer((n, 2), "float32")
            for i, j, k in T.grid(n, 2, 2):
                with T.block("partial"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        partial[vi, vj] = T.float32(0)
                    partial[vi, vj] = partial[vi, vj] + A[vi, vj * 2 + vk]
            for i, j in T.grid(n, 2):
                with T.block("B"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + partial[vi, vj]

        @R.function
        def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m",), "float32"):
            m = T.int64()
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.total, (x,), out_sinfo=R.Tensor((m,), "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @T.prim_func
        def total(a: T.handle, b: T.handle, p: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n, 4), "float32")
            B = T.match_buffer(b, (n,), "float32")
            partial = T.match_buffer(p, (n, 2), "float32")
            for i, j, k in T.grid(n, 2, 2):
                with T.block("partial"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        partial[vi, vj] = T.float32(0)
                    partial[vi, vj] = partial[vi, vj] + A[vi, vj * 2 + vk]
            for i, j in T.grid(n, 2):
                with T.block("B"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + partial[vi, vj]

        @R.function
        def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m",), "float32"):
            m = T.int64()
            cls = Expected
            with R.dataflow():
                both = R.call_tir(
                    cls.total,
                    (x,),
                    out_sinfo=[R.Tensor((m,), "float32"), R.Tensor((m, 2), "float32")],
                )
                y = both[0]
                R.output(y)
            return y

    after = check_pass(lift_workspace, Before, Expected)
    # The planner gives the workspace a place; the result, in the same tuple, is returned.
    expanded = expand_calls(after)
    plan = memory_plan_of(expanded["main"], expanded)
    assert [p.var.name for a in plan.arenas for p in a.placements] == ["y_with_workspace_1"]
    assert [v.name for v, _ in plan.unplanned] == ["y_with_workspace_0"]


def test_memory_of_a_version_is_as_large_as_it_needs():
    """The versions for up to 4 and up to 8 rows share constant memory, the general one has its own.
    Rows of a symbolic length are as many as a call has."""

    @I.ir_module
    class Before:
        @T.prim_func
        def twice(A: T.Buffer(("n", 3), "float32"), B: T.Buffer(("n", 3), "float32")):
            n = T.int64()
            if n <= 4:
                with T.block("few"):
                    few = T.alloc_buffer((2, n), "float32")
                    for i in range(n):
                        few[1, i] = A[i, 0]
                    for i, j in T.grid(n, 3):
                        B[i, j] = few[1, i] + A[i, j]
            else:
                if n <= 8:
                    with T.block("more"):
                        more = T.alloc_buffer((2, n), "float32")
                        for i in range(n):
                            more[0, i] = A[i, 0]
                        for i, j in T.grid(n, 3):
                            B[i, j] = more[0, i] + A[i, j]
                else:
                    with T.block("many"):
                        many = T.alloc_buffer((n, 1), "float32")
                        for i in range(n):
                            many[i, 0] = A[i, 0]
                        for i, j in T.grid(n, 3):
                            B[i, j] = many[i, 0] + A[i, j]

        @R.function
        def main(x: R.Tensor(("m", 3), "float32")) -> R.Tensor(("m", 3), "float32"):
            m = T.int64()
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((m, 3), "float32"))
                R.output(y)
            return y

    mod = normalize(Before)
    after = lift_workspace(mod)
    assert lift_workspace(after) is after
    shapes = [tuple(map(str, b.shape)) for b in after["twice"].buffers[2:]]
    assert shapes == [("2", "8"), ("n", "1")]
    for n in (0, 3, 7, 11):
        x = np.arange(n * 3, dtype="float32").reshape(n, 3)
        np.testing.assert_array_equal(rl.interpret(after, "main", x), x + x[:, :1])


def test_private_memory_and_memory_inside_loops_stay():
    @I.ir_module
    class Before:
        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            t = T.alloc_buffer((4,), "float32", scope="local")
            for i in range(4):
                with T.block("t"):
                    vi = T.axis.spatial(4, i)
                    t[vi] = A[vi] * T.float32(2)
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = t[vi]

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            y = R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((4,), "float32"))
            return y

    check_pass(lift_workspace, Before)


def test_several_outputs_and_updates_in_place():
    @I.ir_module
    class Before:
        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            t = T.alloc_buffer((4,), "float32")
            for i in range(4):
                with T.block("t"):
                    vi = T.axis.spatial(4, i)
                    t[vi] = A[vi] * T.float32(2)
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = t[vi] + T.float32(1)
                    B[vi] = t[vi]

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            y = R.call_tir_inplace(
                cls.f,
                (x,),
                out_sinfo=[R.Tensor((4,), "float32"), R.Tensor((4,), "float32")],
                inplace_indices=[0, -1],
            )
            return y

    start = normalize(Before)
    after = lift_workspace(start)
    check_module(lift_workspace, start, after)
    compare_runs(start, after)
    call = after["main"].body.blocks[0].bindings[0].value
    assert call.attrs["inplace_indices"] == (0, -1, -1)
    assert call.op == graph.Op("call_tir_inplace")


EXPANDED = """
@T.prim_func
def f(A: T.Buffer(("n",), "float32"), O: T.Buffer(("n",), "float32"), k: T.int64):
    W = T.alloc_buffer((n, k), "float32")
    for i, j in T.grid(n, k):
        with T.sblock("W"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[0:n])
            T.writes(W[vi, vj])
            W[vi, vj] = T.float32(1)
            for r in range(n):
                W[vi, vj] = W[vi, vj] + A[r] * W[vi, vj]
    for i, j in T.grid(n, k):
        with T.sblock("O"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                O[vi] = T.float32(0)
            O[vi] = O[vi] + W[vi, vj] * W[n - 1 - vi, vj]

@R.function(pure=False)
def main(x: R.Tensor(("m",), "float32")):
    y = R.builtin.alloc_tensor(
        R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    _ = CALL
    return y
"""


@pytest.mark.parametrize(
    "call",
    ["cls.f(x, y, R.prim_value(m + 1))", "R.vm.call_tir_dyn(cls.f, (x, y, R.shape([m + 1])))"],
)
def test_a_call_that_is_expanded_already(call, rng):
    mod = rl.parse(EXPANDED.replace("CALL", call))
    start = normalize(mod)
    after = lift_workspace(start)
    assert len(after["f"].buffers) == 3
    check_module(lift_workspace, start, after)
    x = rng.random(5).astype("float32")
    want = rl.interpret(mod, "main", x)
    np.testing.assert_allclose(rl.interpret(after, "main", x), want)
    exe = rl.compile(mod, use_cache=False, checks="all")
    np.testing.assert_allclose(exe["main"](x), want, rtol=1e-5)


def test_memory_allocated_inside_loops_is_refused():
    func = rl.parse("""
@T.prim_func
def f(A: T.Buffer((4,), "float32"), O: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("O"):
            vi = T.axis.spatial(4, i)
            W = T.alloc_buffer((4,), "float32")
            for j in range(4):
                with T.sblock("W"):
                    vj = T.axis.spatial(4, j)
                    W[vj] = A[vj] + T.float32(1)
            O[vi] = W[3 - vi]
""")
    with pytest.raises(CodegenError, match=r"main memory where loops run: .* scope=\"local\""):
        rl.compile(func, use_cache=False)
