"""Every loop node and intrinsic means what NumPy says, run one by one and all at once."""

from __future__ import annotations

import math
import random

import ml_dtypes
import numpy as np
import pytest

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, IterVar
from relaxlab.ops import te
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.independence import is_independent
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func, register_intrinsic_meaning

TRUE = IntImm(1, "bool")


def both(func: loops.PrimFunc, *args: object) -> list[object]:
    """Run with and without vectorisation on copies; the results must be the same bits."""
    runs = []
    for vectorise in (True, False):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        interpret_prim_func(func, copies, vectorise=vectorise)
        runs.append(copies)
    for a, b in zip(*runs, strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()
    return runs[0]


def loop(var: Var, extent: expr.ExprLike, body: loops.Stmt, kind: str = "serial", lo: int = 0):
    return For(var, const(lo), expr.as_expr(extent), kind, body)  # type: ignore[arg-type]


def block(name: str, axes: list[tuple[str, Var, PrimExpr, int]], body, init=None, where=TRUE, **kw):
    iters = tuple(
        IterVar(v, loops.Range(const(0), const(extent)), kind)  # type: ignore[arg-type]
        for kind, v, _, extent in axes
    )
    values = tuple(value for _, _, value, _ in axes)
    return BlockRealize(values, where, Block(name, iters, (), (), body, init, **kw))


def test_matmul_with_symbolic_extents():
    n, m, k = Var("n"), Var("m"), Var("k")
    a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis(k, "k")
    c = te.compute((n, m), lambda i, j: te.te_sum(a[i, r.var] * b[r.var, j], r), "C")
    func = te.create_prim_func([a, b, c])
    rng = np.random.default_rng(0)
    for shape in ((3, 4, 5), (1, 1, 1), (7, 2, 9), (0, 3, 2), (2, 3, 0)):
        x = rng.standard_normal((shape[0], shape[2]), "float32")
        y = rng.standard_normal((shape[2], shape[1]), "float32")
        out = both(func, x, y, np.empty(shape[:2], "float32"))[2]
        expected = np.zeros(shape[:2], "float32")
        for kk in range(shape[2]):
            expected = expected + x[:, kk, None] * y[None, kk]
        if shape[2]:
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled", "thread_binding"])
def test_every_loop_kind_runs_every_iteration(kind: str):
    n, i = Var("n"), Var("i")
    a, b = Buffer("A", (n,)), Buffer("B", (n,))
    store = BufferStore(b, BufferLoad(a, (i,)) * 2.0, (i,))
    func = loops.PrimFunc((a, b), loop(i, n, store, kind))
    out = both(func, np.arange(5, dtype="float32"), np.zeros(5, "float32"))[1]
    np.testing.assert_array_equal(out, [0, 2, 4, 6, 8])


def test_a_loop_carried_dependence_keeps_its_order():
    i = Var("i")
    a = Buffer("A", (const(6),), "int64")
    step = BufferStore(a, BufferLoad(a, (i,)) + BufferLoad(a, (i + 1,)), (i + 1,))
    func = loops.PrimFunc((a,), loop(i, 5, step))
    out = both(func, np.arange(6))[0]
    np.testing.assert_array_equal(out, np.cumsum(np.arange(6)))


def test_split_loops_with_a_predicate():
    n, i0, i1, v = Var("n"), Var("i0"), Var("i1"), Var("v")
    a, b = Buffer("A", (n,)), Buffer("B", (n,))
    at = i0 * 4 + i1
    body = BufferStore(b, BufferLoad(a, (v,)) + 1.0, (v,))
    inner = block("B", [("spatial", v, at, 0)], body, where=expr.LT(at, n))
    func = loops.PrimFunc((a, b), loop(i0, (n + 3) // 4, loop(i1, 4, inner)))
    for size in (1, 4, 6, 13):
        x = np.arange(size, dtype="float32")
        np.testing.assert_array_equal(both(func, x, x * 0)[1], x + 1)


def test_reduction_block_initialises_at_the_first_reduce_iteration():
    i, k, vi, vk = (Var(s) for s in ("i", "k", "vi", "vk"))
    a, b = Buffer("A", (const(3), const(4))), Buffer("B", (const(3),))
    init = BufferStore(b, const(10.0), (vi,))
    body = BufferStore(b, BufferLoad(b, (vi,)) + BufferLoad(a, (vi, vk)), (vi,))
    inner = block("B", [("spatial", vi, i, 3), ("reduce", vk, k, 4)], body, init)
    x = np.arange(12, dtype="float32").reshape(3, 4)
    for nest in (loop(i, 3, loop(k, 4, inner)), loop(k, 4, loop(i, 3, inner))):
        out = both(loops.PrimFunc((a, b), nest), x, np.full(3, np.nan, "float32"))[1]
        np.testing.assert_array_equal(out, x.sum(1) + 10)


def test_if_else_on_a_vectorised_variable():
    i = Var("i")
    a, b = Buffer("A", (const(6),), "int32"), Buffer("B", (const(6),), "int32")
    even = expr.EQ(i % 2, const(0))
    body = loops.IfThenElse(
        even,
        BufferStore(b, BufferLoad(a, (i,)), (i,)),
        BufferStore(b, const(-1, "int32"), (i,)),
    )
    out = both(loops.PrimFunc((a, b), loop(i, 6, body)), np.arange(6, dtype="int32"),
               np.zeros(6, "int32"))[1]  # fmt: skip
    np.testing.assert_array_equal(out, [0, -1, 2, -1, 4, -1])


def test_if_then_else_evaluates_one_side_only():
    i = Var("i")
    a, b = Buffer("A", (const(4),)), Buffer("B", (const(6),))
    inside = expr.And(expr.GE(i, const(1)), expr.LT(i, const(5)))
    value = expr.Call("float32", "if_then_else", (inside, BufferLoad(a, (i - 1,)), const(0.0)))
    func = loops.PrimFunc((a, b), loop(i, 6, BufferStore(b, value, (i,))))
    out = both(func, np.arange(1, 5, dtype="float32"), np.zeros(6, "float32"))[1]
    np.testing.assert_array_equal(out, [0, 1, 2, 3, 4, 0])
    select = expr.Select(inside, BufferLoad(a, (i - 1,)), const(0.0))
    func = loops.PrimFunc((a, b), loop(i, 6, BufferStore(b, select, (i,))))
    with pytest.raises(ExecutionError, match="outside its extent 4"):
        both(func, np.zeros(4, "float32"), np.zeros(6, "float32"))


def test_nested_conditionals_inside_let():
    i, j, t = Var("i"), Var("j"), Var("t")
    b = Buffer("B", (const(5), const(7)), "int64")
    small = expr.Call(
        "int64", "if_then_else",
        (expr.LT(t, const(4)), expr.Let(Var("u"), t * 2, t * 2),
         expr.Call("int64", "if_then_else", (expr.EQ(t % 2, const(0)), t, const(0)))),
    )  # fmt: skip
    store = loops.LetStmt(t, i * 2 + j, BufferStore(b, small, (i, j)))
    keep = loops.IfThenElse(expr.NE(i, j), store)
    out = both(loops.PrimFunc((b,), loop(i, 5, loop(j, 7, keep))), np.full((5, 7), -1))[0]
    for x in range(5):
        for y in range(7):
            s = 2 * x + y
            want = -1 if x == y else 2 * s if s < 4 else s if s % 2 == 0 else 0
            assert out[x, y] == want


def test_while_and_allocation():
    s = Buffer("s", (const(1),), "int64")
    out = Buffer("out", (), "int64")
    i = BufferLoad(s, (const(0),))
    body = loops.seq(
        BufferStore(s, const(1), (const(0),)),
        loops.While(expr.LT(i, const(100)), BufferStore(s, i * 3, (const(0),))),
        BufferStore(out, i, ()),
    )
    root = block("root", [], body, alloc_buffers=(s,))
    assert both(loops.PrimFunc((out,), root), np.array(0))[0] == 243


def test_allocations_are_filled_with_a_pattern_that_shows():
    t, out = Buffer("t", (const(2),)), Buffer("out", (const(2),))
    body = BufferStore(out, BufferLoad(t, (const(0),)), (const(1),))
    func = loops.PrimFunc((out,), block("root", [], body, alloc_buffers=(t,)))
    assert np.isnan(both(func, np.zeros(2, "float32"))[0][1])


def test_match_buffer_is_a_view():
    i, v = Var("i"), Var("v")
    a = Buffer("A", (const(4), const(6)))
    row = Buffer("row", (const(3),), strides=(Var("s0"),), elem_offset=Var("off"))
    region = loops.BufferRegion(a, (loops.Range(v, const(1)), loops.Range(const(2), const(3))))
    j = Var("j")
    body = loop(j, 3, BufferStore(row, expr.Cast("float32", v * 10 + j), (j,)))
    inner = block("rows", [("spatial", v, i, 4)], body,
                  match_buffers=(loops.MatchBufferRegion(row, region),))  # fmt: skip
    out = both(loops.PrimFunc((a,), loop(i, 4, inner)), np.zeros((4, 6), "float32"))[0]
    assert out[:, 2:5].tolist() == [[10.0 * x + y for y in range(3)] for x in range(4)]
    assert not out[:, :2].any()
    assert not out[:, 5:].any()


def test_vector_indices_and_values():
    i = Var("i")
    a, b = Buffer("A", (const(8),)), Buffer("B", (const(8),))
    at = expr.Ramp(i * 4, const(1), 4)
    back = expr.Ramp(const(7) - i * 4, const(-1), 4)
    value = BufferLoad(a, (back,)) + expr.Broadcast(const(0.5), 4)
    func = loops.PrimFunc((a, b), loop(i, 2, BufferStore(b, value, (at,))))
    x = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(both(func, x, x * 0)[1], x[::-1] + 0.5)


def scalar_func(value, *inputs: Buffer, dtype: str):
    out = Buffer("out", (), dtype)
    return loops.PrimFunc((*inputs, out), BufferStore(out, value, ()))


def run_scalar(e: PrimExpr, *inputs: tuple[Buffer, object]) -> object:
    func = scalar_func(e, *(b for b, _ in inputs), dtype=e.dtype)
    from relaxlab.ir.dtypes import numpy_dtype

    arrays = [np.asarray(v).astype(numpy_dtype(b.dtype)) for b, v in inputs]
    out = np.zeros((), numpy_dtype(e.dtype))
    return both(func, *arrays, out)[-1][()]


@pytest.mark.parametrize(
    ("cls", "a", "b", "dtype", "want"),
    [
        (expr.Add, 120, 10, "int8", -126),
        (expr.Add, 250, 10, "uint8", 4),
        (expr.Mul, 2**31 - 1, 2, "int32", -2),
        (expr.Mul, 2**62, 4, "int64", 0),
        (expr.Sub, 0, 1, "uint64", 2**64 - 1),
        (expr.FloorDiv, -7, 2, "int32", -4),
        (expr.FloorMod, -7, 2, "int32", 1),
        (expr.Div, -7, 2, "int32", -3),
        (expr.Mod, -7, 2, "int32", -1),
        (expr.Mod, 7, -2, "int64", 1),
        (expr.ShiftRight, -8, 1, "int32", -4),
        (expr.ShiftRight, 0xF8, 3, "uint8", 31),
        (expr.ShiftLeft, 3, 7, "uint8", 128),
        (expr.BitAnd, 12, 10, "int8", 8),
        (expr.BitOr, 12, 10, "int8", 14),
        (expr.BitXor, 12, 10, "int8", 6),
        (expr.Min, 3, -2, "int8", -2),
        (expr.Max, 3, -2, "int8", 3),
    ],
)
def test_integer_arithmetic_wraps(cls, a: int, b: int, dtype: str, want: int):
    x, y = Buffer("x", (), dtype), Buffer("y", (), dtype)
    got = run_scalar(cls(BufferLoad(x, ()), BufferLoad(y, ())),
                     (x, np.uint64(a) if a >= 0 else a), (y, b))  # fmt: skip
    assert int(got) == want


def test_float_arithmetic_rounds_at_every_step():
    for dtype, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        x = Buffer("x", (), dtype)
        load = BufferLoad(x, ())
        got = run_scalar(load + load * load, (x, kind(1.3)))
        assert got.dtype == np.dtype(kind)
        assert got == kind(1.3) + kind(1.3) * kind(1.3)


def test_minimum_propagates_nan():
    x = Buffer("x", ())
    assert np.isnan(run_scalar(expr.Min(BufferLoad(x, ()), const(1.0)), (x, np.nan)))
    assert np.isnan(run_scalar(expr.Max(const(1.0), BufferLoad(x, ())), (x, np.nan)))


def test_casts_have_c_semantics():
    x = Buffer("x", (), "float32")
    y = Buffer("y", (), "int32")
    assert run_scalar(expr.Cast("int32", BufferLoad(x, ())), (x, -2.7)) == -2
    assert run_scalar(expr.Cast("int8", BufferLoad(y, ())), (y, 300)) == 44
    assert run_scalar(expr.Cast("uint8", BufferLoad(y, ())), (y, -1)) == 255
    assert bool(run_scalar(expr.Cast("bool", BufferLoad(y, ())), (y, 2))) is True
    assert run_scalar(expr.Cast("bfloat16", BufferLoad(x, ())), (x, 1.01)) == ml_dtypes.bfloat16(
        1.01
    )


UNARY = {
    "exp": math.exp, "exp2": lambda v: 2.0**v, "exp10": lambda v: 10.0**v, "log": math.log,
    "log2": math.log2, "log10": math.log10, "log1p": math.log1p, "sqrt": math.sqrt,
    "rsqrt": lambda v: v**-0.5, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "asin": lambda v: math.asin(v), "acos": math.acos, "atan": math.atan, "sinh": math.sinh,
    "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh, "acosh": None,
    "atanh": math.atanh, "erf": math.erf, "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "fabs": abs, "abs": abs,
    "nearbyint": round, "round": lambda v: math.floor(v + 0.5),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
def test_float_intrinsics_agree_with_python(name: str, dtype: str):
    from relaxlab.ir.dtypes import numpy_dtype

    kind = numpy_dtype(dtype)
    fn = UNARY[name] or math.acosh
    value = np.asarray(1.75 if name == "acosh" else 0.71).astype(kind)
    x = Buffer("x", (), dtype)
    got = run_scalar(expr.Call(dtype, name, (BufferLoad(x, ()),)), (x, value))
    want = np.asarray(fn(float(value))).astype(kind)
    bits = {"float64": 1e-15, "float32": 1e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    assert float(got) == pytest.approx(float(want), rel=bits)


def call(dtype: str, name: str, *args: PrimExpr) -> PrimExpr:
    return expr.Call(dtype, name, args)


def test_rounding_of_halves():
    x = Buffer("x", (), "float64")
    load = BufferLoad(x, ())
    for value, away, even in ((0.5, 1, 0), (-0.5, -1, 0), (2.5, 3, 2), (0.49999999999999994, 0, 0)):
        assert run_scalar(call("float64", "round", load), (x, value)) == away
        assert run_scalar(call("float64", "nearbyint", load), (x, value)) == even


def test_other_intrinsics():
    x, y = Buffer("x", (), "float64"), Buffer("y", (), "int32")
    fx, fy = BufferLoad(x, ()), BufferLoad(y, ())
    two = const(2.0, "float64")
    assert run_scalar(call("float64", "pow", fx, two), (x, 3.0)) == 9
    assert run_scalar(call("int32", "pow", fy, const(3, "int32")), (y, -2)) == -8
    assert run_scalar(call("float64", "atan2", fx, two), (x, -1.0)) == math.atan2(-1, 2)
    assert run_scalar(call("float64", "fmod", fx, two), (x, -3.5)) == -1.5
    # One rounding only: the product needs more bits than a float64 has.
    eps = 2.0**-30
    fma = call("float64", "fma", fx, fx, const(-1 - 2 * eps, "float64"))
    assert run_scalar(fma, (x, 1 + eps)) == eps * eps
    for name, value, want in (("isnan", np.nan, True), ("isnan", 1.0, False),
                              ("isinf", -np.inf, True), ("isfinite", np.inf, False)):  # fmt: skip
        assert bool(run_scalar(call("bool", name, fx), (x, value))) is want
    assert run_scalar(call("int32", "bitwise_not", fy), (y, 5)) == -6
    assert run_scalar(call("int32", "popcount", fy), (y, -1)) == 32
    assert run_scalar(call("int32", "abs", fy), (y, -9)) == 9
    assert run_scalar(call("int32", "likely", fy), (y, 7)) == 7
    f32 = Buffer("f", (), "float32")
    bits = call("int32", "reinterpret", BufferLoad(f32, ()))
    assert run_scalar(bits, (f32, 1.0)) == 0x3F800000


def test_lane_intrinsics():
    a = Buffer("A", (const(4),), "int32")
    vec = BufferLoad(a, (expr.Ramp(const(0), const(1), 4),))
    values = np.array([3, -1, 7, 2], "int32")
    assert run_scalar(call("int32", "vector_reduce_add", vec), (a, values)) == 11
    assert run_scalar(call("int32", "vector_reduce_max", vec), (a, values)) == 7
    b = Buffer("B", (const(4),), "int8")
    packed = BufferLoad(b, (expr.Ramp(const(0), const(1), 4),))
    got = run_scalar(call("int32", "reinterpret", packed), (b, [1, 2, 3, 4]))
    assert got == 0x04030201


def test_target_instructions_need_a_meaning():
    x = Buffer("x", (), "int32")
    e = call("int32", "llvm_intrin", expr.StringImm("test.twice"), BufferLoad(x, ()))
    with pytest.raises(ExecutionError, match="register_intrinsic_meaning"):
        run_scalar(e, (x, 4))
    register_intrinsic_meaning("test.twice", lambda dtype, v: (v + v).astype(dtype))
    assert run_scalar(e, (x, 4)) == 8


def test_extern_calls_get_addresses():
    i = Var("i")
    a, b = Buffer("A", (const(3), const(4))), Buffer("B", (const(3),))

    def row_sum(dtype, source, target, count):
        target.flat()[0] = source.flat()[: int(count)].sum()
        return dtype.type(0)

    register_intrinsic_meaning("test.row_sum", row_sum)
    address = [call("handle", "address_of", BufferLoad(a, (i, const(0)))),
               call("handle", "address_of", BufferLoad(b, (i,)))]  # fmt: skip
    e = call("int32", "call_extern", expr.StringImm("test.row_sum"), *address, const(4))
    func = loops.PrimFunc((a, b), loop(i, 3, loops.Evaluate(e)))
    x = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(both(func, x, np.zeros(3, "float32"))[1], x.sum(1))


def test_prefetching_does_nothing_even_beyond_the_buffer():
    i = Var("i")
    a, b = Buffer("A", (const(4),)), Buffer("B", (const(4),))
    ahead = call("handle", "address_of", BufferLoad(a, (i + 64,)))
    hint = loops.Evaluate(call("int32", "prefetch", ahead))
    body = loops.seq(hint, BufferStore(b, BufferLoad(a, (i,)), (i,)))
    func = loops.PrimFunc((a, b), loop(i, 4, body))
    assert is_independent(func.body, {})
    x = np.arange(4, dtype="f4")
    np.testing.assert_array_equal(both(func, x, x * 0)[1], x)


def test_loops_without_iterations_read_nothing():
    """An index that is constant in an empty inner loop is not checked by the outer loop either."""
    i, j, n = Var("i"), Var("j"), Var("n")
    a, b = Buffer("A", (const(3), n)), Buffer("B", (const(3), n, const(2)))
    copy = BufferStore(b, BufferLoad(a, (i, const(0))), (i, const(0), j))
    func = loops.PrimFunc((a, b), loop(i, 3, loop(j, n, copy)))
    assert is_independent(func.body, {})
    both(func, np.zeros((3, 0), "float32"), np.zeros((3, 0, 2), "float32"))


def test_symbols_are_bound_by_compound_shapes_and_scalar_parameters():
    n, k, i = Var("n"), Var("k"), Var("i")
    a = Buffer("A", (n * 2 + 1,), "int64")
    func = loops.PrimFunc((a, k), loop(i, n, BufferStore(a, k, (i,))))
    assert both(func, np.zeros(7, "int64"), 5)[0].tolist() == [5, 5, 5, 0, 0, 0, 0]
    with pytest.raises(ExecutionError, match=r"dimension 0 of A is 8, expected n \* 2 \+ 1 = 7"):
        interpret_prim_func(func, [np.zeros(8, "int64"), 5])


def test_aliased_arguments_are_run_in_order():
    i = Var("i")
    a, b = Buffer("A", (const(5),), "int64"), Buffer("B", (const(5),), "int64")
    step = BufferStore(b, BufferLoad(a, (i,)) + 1, (i + 1,))
    func = loops.PrimFunc((a, b), loop(i, 4, step))
    shared = np.zeros(5, "int64")
    interpret_prim_func(func, [shared, shared])
    assert shared.tolist() == [0, 1, 2, 3, 4]


def test_errors_name_the_place():
    i, v = Var("i"), Var("v")
    a, b = Buffer("A", (const(4),)), Buffer("B", (const(5),))
    store = BufferStore(b, BufferLoad(a, (v,)), (v,))
    func = loops.PrimFunc((a, b), loop(i, 5, block("copy", [("spatial", v, i, 5)], store)))
    for vectorise in (True, False):
        with pytest.raises(ExecutionError) as caught:
            interpret_prim_func(func, [np.zeros(4, "f4"), np.zeros(5, "f4")], name="k",
                                vectorise=vectorise)  # fmt: skip
        assert str(caught.value) == (
            "loop function 'k': index 4 of dimension 0 of A is outside its extent 4 "
            "(shape (4,)), in block 'copy'"
        )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(4, "f4")], "takes 2 arguments, got 1"),
        ([np.zeros(4, "f8"), np.zeros(4, "f4")], "A needs dtype float32, got float64"),
        ([np.zeros((4, 1), "f4"), np.zeros(4, "f4")], "A needs 1 dimensions, got 2"),
        ([np.zeros(4, "f4"), np.zeros(3, "f4")], "dimension 0 of B is 3, expected n = 4"),
        ([[0.0], np.zeros(4, "f4")], "A needs an array, got list"),
    ],
)
def test_wrong_arguments(args, message: str):
    n, i = Var("n"), Var("i")
    a, b = Buffer("A", (n,)), Buffer("B", (n,))
    func = loops.PrimFunc((a, b), loop(i, n, BufferStore(b, BufferLoad(a, (i,)), (i,))))
    with pytest.raises(ExecutionError, match=message):
        interpret_prim_func(func, args)


def test_read_only_outputs_are_refused():
    i = Var("i")
    b = Buffer("B", (const(2),))
    func = loops.PrimFunc((b,), loop(i, 2, BufferStore(b, const(0.0), (i,))))
    array = np.zeros(2, "f4")
    array.flags.writeable = False
    with pytest.raises(ExecutionError, match="read-only"):
        interpret_prim_func(func, [array])


def test_division_by_zero_and_assertions():
    x = Buffer("x", (), "int32")
    with pytest.raises(ExecutionError, match="division by zero"):
        run_scalar(expr.FloorDiv(const(1, "int32"), BufferLoad(x, ())), (x, 0))
    func = loops.PrimFunc((x,), loops.AssertStmt(expr.GT(BufferLoad(x, ()), const(0, "int32")),
                                                 "x is positive"))  # fmt: skip
    interpret_prim_func(func, [np.array(1, "int32")])
    with pytest.raises(ExecutionError, match="assertion failed: x is positive"):
        interpret_prim_func(func, [np.array(0, "int32")])


def test_a_view_may_be_a_scalar():
    i, v = Var("i"), Var("v")
    a = Buffer("A", (const(3),))
    cell = Buffer("cell", ())
    region = loops.BufferRegion(a, (loops.Range(v, const(1)),))
    body = BufferStore(cell, BufferLoad(cell, ()) + 1.0, ())
    inner = block("cells", [("spatial", v, i, 3)], body,
                  match_buffers=(loops.MatchBufferRegion(cell, region),))  # fmt: skip
    assert both(loops.PrimFunc((a,), loop(i, 3, inner)), np.zeros(3, "f4"))[0].tolist() == [1, 1, 1]


def test_buffers_allocated_in_a_loop_belong_to_one_iteration():
    """Rows summed through a private accumulator, one row per iteration, odd rows left out."""
    i, k = Var("i"), Var("k")
    a, out = Buffer("A", (const(5), const(4))), Buffer("out", (const(5),))
    acc = Buffer("acc", (), scope="local")
    add = BufferStore(acc, BufferLoad(acc, ()) + BufferLoad(a, (i, k)), ())
    done = BufferStore(out, BufferLoad(acc, ()), (i,))
    body = loops.seq(BufferStore(acc, const(0.0), ()), loop(k, 4, add), done)
    inner = block("row", [], body, where=expr.EQ(i % 2, const(0)), alloc_buffers=(acc,))
    func = loops.PrimFunc((a, out), loop(i, 5, inner))
    assert is_independent(func.body, {})
    x = np.arange(20, dtype="f4").reshape(5, 4)
    assert both(func, x, np.zeros(5, "f4"))[1].tolist() == [6, 0, 38, 0, 70]


def test_errors_in_private_buffers_show_the_declared_shape():
    i = Var("i")
    out = Buffer("out", (const(4),))
    t = Buffer("t", (const(2),), scope="local")
    body = loops.seq(BufferStore(t, const(1.0), (i,)), BufferStore(out, const(0.0), (i,)))
    func = loops.PrimFunc((out,), loop(i, 4, block("b", [], body, alloc_buffers=(t,))))
    for vectorise in (True, False):
        with pytest.raises(ExecutionError, match=r"index 2 of dimension 0 of t .*shape \(2,\)"):
            interpret_prim_func(func, [np.zeros(4, "f4")], vectorise=vectorise)


def _random_index(rng: random.Random, names: list[Var], bound: int) -> PrimExpr:
    """An index expression in `names`, brought into [0, bound) by a modulus."""
    e: PrimExpr = const(rng.randrange(4))
    for v in names:
        if rng.random() < 0.7:
            e = e + v * rng.choice([1, 1, 2, 4, 16, 16])
    match rng.randrange(8):
        case 0 | 1:
            return expr.FloorMod(e, const(bound))
        case 2:
            return expr.FloorDiv(e, const(rng.choice([2, 4, 16])))
        case 3:
            return expr.FloorMod(e, const(rng.choice([2, 4, 16])))
        case _:
            return e


def _through_private(
    rng: random.Random, names: list[Var], store: BufferStore, size: int
) -> loops.Stmt:
    """`store` with its value taken through a buffer that is allocated on the spot."""
    t = Buffer("t", (const(size),), "int64", scope="local")
    at = _random_index(rng, names, size)
    fill = BufferStore(t, store.value, (at,))
    value = BufferLoad(t, (at,)) + BufferLoad(t, (const(0),))
    use = BufferStore(store.buffer, value, store.indices)
    return block("private", [], loops.seq(fill, use), alloc_buffers=(t,))


def test_running_all_at_once_changes_nothing():
    """Random nests of loops over shared buffers: the order of iterations must not be felt."""
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    vectorised = 0
    for _ in range(150):
        names = [Var(f"i{d}") for d in range(3)]
        extents = [rng.randrange(1, 5) for _ in names]
        a, b = Buffer("A", (const(160),), "int64"), Buffer("B", (const(160),), "int64")
        stmts: list[loops.Stmt] = []
        for _ in range(rng.randrange(1, 3)):
            where = _random_index(rng, names, 160)
            source = rng.choice([a, b])
            at = where if rng.random() < 0.5 else _random_index(rng, names, 160)
            plain = BufferStore(b, BufferLoad(source, (at,)) * 3 + names[0], (where,))
            store: loops.Stmt = plain
            if rng.random() < 0.4:
                store = _through_private(rng, names, plain, 160)
            if rng.random() < 0.3:
                store = loops.IfThenElse(expr.LT(names[1], names[2]), store)
            stmts.append(store)
        nest = loops.seq(*stmts)
        for v, extent in zip(reversed(names), reversed(extents), strict=True):
            nest = loop(v, extent, nest)
        func = loops.PrimFunc((a, b), nest)
        both(func, np.arange(160), np.arange(160) * 100)
        vectorised += is_independent(nest, {})  # type: ignore[arg-type]
    assert vectorised > 5
