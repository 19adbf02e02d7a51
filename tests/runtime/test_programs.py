"""Programs that `compile` takes beside modules: loop functions, schedules, modules of loop
functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.node import walk
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.programs import fresh_buffers, written_buffers
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@T.prim_func
def product(A: T.Buffer(("m", 24)), B: T.Buffer((24, 8), "float32"), C: T.Buffer(("m", 8))):
    m = T.int64()
    for i, j, k in T.grid(m, 8, 24):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def accumulate(X: T.Buffer((4,), "float32"), S: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("S"):
            vi = T.axis.spatial(4, i)
            S[vi] = S[vi] + X[vi]


@T.prim_func
def repeat(X: T.Buffer(("n",)), Y: T.Buffer(("n", "k"))):
    n, k = T.int64(), T.int64()
    for i, j in T.grid(n, k):
        with T.sblock("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi]


@T.prim_func
def scale_and_sum(
    X: T.Buffer((3,)), f: T.int64, Y: T.Buffer((3,), "float32"), S: T.Buffer((1,), "float32")
):
    for i in range(3):
        with T.sblock("Y"):
            vi = T.axis.spatial(3, i)
            Y[vi] = X[vi] * T.Cast("float32", f)
    for i in range(3):
        with T.sblock("S"):
            vi = T.axis.reduce(3, i)
            with T.init():
                S[0] = T.float32(0)
            S[0] = S[0] + Y[vi]


def operands(rng: np.random.Generator, m: int = 5) -> tuple[Any, Any]:
    return rng.normal(size=(m, 24)).astype("float32"), rng.normal(size=(24, 8)).astype("float32")


def test_a_loop_function_writes_to_its_output_or_makes_it(rng: np.random.Generator) -> None:
    exe = rl.compile(product)
    for m in (1, 5):
        a, b = operands(rng, m)
        out = np.full((m, 8), np.nan, "float32")
        assert exe["product"](a, b, out) is out
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
        for made in (exe["product"](a, b), exe.product(a, b), exe(a, b), exe(B=b, A=a)):
            np.testing.assert_array_equal(made, out)


def test_a_module_of_loop_functions_offers_each() -> None:
    mod = rl.Module.of({"product": product, "accumulate": accumulate})
    exe = rl.compile(mod)
    assert set(exe) == {"product", "accumulate"}
    s = np.ones(4, "float32")
    exe.accumulate(np.arange(4, dtype="float32"), s)
    np.testing.assert_array_equal(s, [1, 2, 3, 4])
    with pytest.raises(TypeError, match=r"several functions; call one of product, accumulate"):
        exe(s)


def test_outputs_with_scalars_and_several_results() -> None:
    exe = rl.compile(scale_and_sum)
    y, s = exe(np.array([1, 2, 3], "float32"), 2)
    np.testing.assert_array_equal(y, [2, 4, 6])
    np.testing.assert_array_equal(s, [12])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_scalars_that_are_no_sizes(dtype: str) -> None:
    mod = rl.parse(f"""
@T.prim_func
def scaled(A: T.Buffer((4,), "float32"), s: T.{dtype}, turn: T.bool, n: T.int32):
    for i in range(4):
        A[i] = A[i] * T.Cast("float32", s) + T.Cast("float32", n)
        if turn:
            A[i] = T.float32(0) - A[i]
""")
    call = rl.compile(mod)["scaled"]
    for s, turn in (2.5, False), (-0.25, True), (-np.inf, False), (0.0, True):
        given = np.arange(1, 5, dtype="float32")
        read = given.copy()
        expected = (given * np.float32(s) + 3) * (-1 if turn else 1)
        call(given, s, turn, 3)
        rl.interpret(mod, "scaled", read, s, turn, 3)
        np.testing.assert_array_equal(given, expected)
        np.testing.assert_array_equal(read, expected)


def test_buffers_read_first_are_no_outputs() -> None:
    assert [b.name for b in written_buffers(accumulate)] == ["S"]
    assert fresh_buffers(accumulate) == ()
    assert [b.name for b in fresh_buffers(product)] == ["C"]
    assert [b.name for b in fresh_buffers(scale_and_sum)] == ["Y", "S"]
    with pytest.raises(ArgumentError, match="`accumulate` takes 2 arguments"):
        rl.compile(accumulate)(np.ones(4, "float32"))


@T.prim_func
def running_sums(
    A: T.Buffer((3, 4), "int32"), S: T.Buffer((3,), "int32"), P: T.Buffer((4,), "int32")
):
    for i in range(3):
        S[i] = 0
        for j in range(4):
            S[i] = S[i] + A[i, j]
        if S[i] > 5:
            P[0] = 1
        P[i] = P[0] + P[i + 1]


def test_loops_without_blocks_store_elements_before_they_read_them() -> None:
    assert [b.name for b in written_buffers(running_sums)] == ["S", "P"]
    assert [b.name for b in fresh_buffers(running_sums)] == ["S"]
    exe = rl.compile(running_sums, use_cache=False)
    a, p = np.arange(12, dtype="int32").reshape(3, 4), np.zeros(4, "int32")
    np.testing.assert_array_equal(exe(a, p)[0], a.sum(1))
    with pytest.raises(ArgumentError, match="got 1; it may read `P` before writing there"):
        exe(a)


def test_the_interpreter_makes_outputs_and_takes_functions_alone() -> None:
    a, p = np.arange(12, dtype="int32").reshape(3, 4), np.zeros(4, "int32")
    sums, _ = rl.compile(running_sums, target="interpreter")(a, p)
    np.testing.assert_array_equal(sums, a.sum(1))
    out = np.zeros(3, "int32")
    rl.interpret(running_sums, "running_sums", a, out, p)
    np.testing.assert_array_equal(out, a.sum(1))


@T.prim_func
def first_half(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(2):
        with T.sblock("B"):
            vi = T.axis.spatial(2, i)
            B[vi] = A[vi]


def test_elements_that_are_not_written_are_zeros_or_poison() -> None:
    a = np.arange(1, 5, dtype="float32")
    exe = rl.compile(first_half, use_cache=False)
    for _ in range(3):
        dirty = np.full(4, 7, "float32")  # what the allocator may give out next
        del dirty
        np.testing.assert_array_equal(exe(a), [1, 2, 0, 0])
    poison = [1, 2, np.nan, np.nan]
    np.testing.assert_array_equal(rl.compile(first_half, checks="all")(a), poison)
    np.testing.assert_array_equal(rl.compile(first_half, target="interpreter")(a), poison)


def test_programs_for_gpus_make_outputs() -> None:
    a = np.arange(1, 5, dtype="float32")
    for target in ("cuda:sm_80", "wgsl"):
        exe = rl.compile(first_half, target)
        np.testing.assert_array_equal(exe.simulate("first_half", a)[:2], [1, 2])
    takes = r"takes 1 argument \(A\), or 2 with its outputs \(B\), got 3"
    with pytest.raises(ArgumentError, match=takes):
        exe.simulate("first_half", a, a, a)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "`product` takes 2 arguments (A, B), or 3 with its outputs (C), got 0"),
        (("x", np.ones((24, 8), "f4")), "argument `A` of `product` must be an array"),
        ((np.ones((2, 24), "f4"), [[1, 2], [3]]), "argument `B` of `product`"),
    ],
)
def test_inputs_that_do_not_fit(args: tuple[Any, ...], message: str) -> None:
    """They are refused before outputs are made for them."""
    with pytest.raises(ArgumentError) as caught:
        rl.compile(product)(*args)
    assert message in str(caught.value)


def test_a_size_that_no_input_has() -> None:
    exe = rl.compile(repeat)
    x, y = np.arange(3, dtype="float32"), np.empty((3, 2), "float32")
    np.testing.assert_array_equal(exe(x, y), [[0, 0], [1, 1], [2, 2]])
    message = "size `k` of the output `Y` of `repeat` does not follow"
    with pytest.raises(ArgumentError, match=message):
        exe(x)


def loops_of(func: rl.loops.PrimFunc) -> list[str]:
    return [n.loop_var.name for n in walk(func.body) if isinstance(n, rl.loops.For)]


def in_order_i_k_j() -> rl.Schedule:
    sch = rl.Schedule(product)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    return sch


def test_schedules_are_compiled_as_they_are(rng: np.random.Generator) -> None:
    """Also the one in which nothing was done yet."""
    for sch in (rl.Schedule(product), in_order_i_k_j()):
        trace = rl.trace(sch)
        assert loops_of(trace.result["product"]) == loops_of(sch.func)
        a, b = operands(rng)
        np.testing.assert_allclose(rl.compile(sch)(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_a_schedule_inside_a_program_is_neither_merged_nor_scheduled(
    rng: np.random.Generator,
) -> None:
    @I.ir_module
    class Layer:
        @R.function
        def main(a: R.Tensor(("m", 24), "float32"), b: R.Tensor((24, 8), "float32")):
            m = T.int64()
            cls = Layer
            with R.dataflow():
                c = R.call_tir(cls.product, (a, b), out_sinfo=R.Tensor((m, 8), "float32"))
                d = R.nn.relu(c)
                R.output(d)
            return d

        @T.prim_func
        def product(A: T.Buffer(("m", 24)), B: T.Buffer((24, 8), "float32"), C: T.Buffer(("m", 8))):
            m = T.int64()
            for i, j, k in T.grid(m, 8, 24):
                with T.sblock("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    assert "product" not in rl.trace(Layer).result  # merged with the relu
    sch = rl.Schedule(Layer)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    a, b = operands(rng)
    for mod in (sch.mod, Layer.with_functions({"product": sch.func})):
        assert loops_of(rl.trace(mod).result["product"]) == ["i", "k", "j"]
        np.testing.assert_allclose(
            rl.compile(mod)(a, b), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5
        )


def test_private_buffers_of_schedules_hold_a_tile(rng: np.random.Generator) -> None:
    """On a thread's stack there is a tile, not the whole result."""
    sch = rl.Schedule(product)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    jo, ji = sch.split(j, factors=[None, 4])
    sch.reorder(i, jo, k, ji)
    total = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(total, jo)
    func = rl.trace(sch).result["product"]
    blocks = [n for n in walk(func.body) if isinstance(n, rl.loops.Block)]
    shapes = [tuple(map(str, b.shape)) for n in blocks for b in n.alloc_buffers]
    assert shapes == [("1", "4")]
    a, b = operands(rng)
    np.testing.assert_allclose(rl.compile(sch)(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_the_function_to_schedule_is_chosen_by_name() -> None:
    mod = rl.Module.of({"product": product, "accumulate": accumulate})
    assert rl.Schedule(mod, "accumulate").func.buffers == accumulate.buffers
    with pytest.raises(KeyError, match="name one; its loop functions are: product, accumulate"):
        rl.Schedule(mod)
    with pytest.raises(KeyError, match="no loop function 'prod'; its loop functions are: product"):
        rl.Schedule(mod, "prod")


def test_a_graph_function_alone_keeps_its_name() -> None:
    @R.function
    def twice(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        return y

    exe = rl.compile(twice)
    np.testing.assert_array_equal(exe([1, 2, 3]), [2, 4, 6])
    np.testing.assert_array_equal(exe["twice"]([1, 2, 3]), [2, 4, 6])


def test_modules_with_nothing_to_call() -> None:
    with pytest.raises(ValueError, match="the module has no function"):
        rl.compile(rl.Module.of({}))

    @T.prim_func
    def reads(A: T.Buffer((4,), "float32")):
        T.evaluate(0)

    with pytest.raises(ValueError, match="loop function `reads` writes to none of its parameters"):
        rl.compile(reads)


def test_code_can_be_read() -> None:
    exe = rl.compile(in_order_i_k_j())
    assert "define" in exe.llvm() and "@rl.product_kernel(" in exe.llvm("product_kernel")
    assert exe.llvm("product_kernel").count("define") == 1
    assert "rl.product_kernel:" in exe.assembly() and "ret" in exe.assembly("product_kernel")
    assert "def product_kernel(" in exe.source("product_kernel")
    assert "def product(" in exe.source() and "def product(" not in exe.source("product_kernel")
    for read in (exe.llvm, exe.assembly, exe.source):
        with pytest.raises(KeyError, match="product_kernel"):
            read("nothing")


@T.prim_func
def add_twice(X: T.Buffer((4,), "float32"), k: T.int32, Y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i)
            Y[vi] = X[vi] + T.Cast("float32", T.max(k, 0) + T.if_then_else(k < -1, 100, k // 2))


@pytest.mark.parametrize("k", [-(2**31), -3, -1, 0, 5])
def test_scalars_of_loop_functions_may_be_negative_and_stand_anywhere(k: int) -> None:
    x, want = np.ones(4, "float32"), np.zeros(4, "float32")
    rl.interpret(rl.Module.of({"add": add_twice}), "add", x, k, want)
    assert want[0] == np.float32(1 + max(k, 0) + (100 if k < -1 else k // 2))
    for target in ("cpu", "interpreter"):
        exe: Any = rl.compile(add_twice, target)
        np.testing.assert_array_equal(exe(x, k), want)
    assert rl.check(rl.Module.of({"add": add_twice})).ok


def test_scalars_that_are_extents_are_not_negative_in_any_executor() -> None:
    mod = rl.parse("""
@R.function
def main(size: R.Prim(value="k")):
    return R.zeros((k,), "float32")
""")
    exe: Any = rl.compile(mod)
    for call in (exe, lambda k: rl.interpret(mod, "main", k)):
        assert call(2).shape == (2,)
        with pytest.raises((rl.CheckFailed, rl.ExecutionError), match="k.*must not be negative"):
            call(-2)
