"""Graph functions run by NumPy: calls in and across levels, checks, closures, recursion."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.expr import Var, const
from relaxlab.ir.graph import Call, Function, GlobalVar, MatchCast, Op, SeqExpr, VarBinding
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.types import ShapeType, TensorType, Type
from relaxlab.ops.define import builder
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.packed import register_func
from relaxlab.runtime.vm.vm import VirtualMachine

F32 = "float32"


def tensor(*dims: expr.ExprLike, dtype: str = F32) -> TensorType:
    return TensorType(tuple(expr.as_expr(d) for d in dims), dtype)


def fn(params, body, ret: Type | None = None, bindings=(), **kw) -> Function:
    blocks = (graph.BindingBlock(tuple(bindings)),) if bindings else ()
    return Function(tuple(params), SeqExpr(blocks, body), ret, **kw)


def scale_by(k: int) -> loops.PrimFunc:
    n, i = Var("n"), Var("i")
    a, b = loops.Buffer("A", (n,)), loops.Buffer("B", (n,))
    store = loops.BufferStore(b, loops.BufferLoad(a, (i,)) * float(k), (i,))
    return loops.PrimFunc((a, b), loops.For(i, const(0), n, "serial", store))


def test_operators_and_call_tir():
    n = Var("n")
    x = graph.Var("x", tensor(n))
    call = Call(Op("call_tir"), (GlobalVar("scale"), graph.Tuple((x,))), ty_args=(tensor(n),))
    mod = Module.of({"scale": scale_by(3), "main": fn([x], builder("exp")(call))})
    value = np.arange(4, dtype=F32)
    for m in (mod, normalize(mod)):
        np.testing.assert_allclose(interpret(m, "main", value), np.exp(value * 3), rtol=1e-6)
    interpret(mod, "scale", value, out := np.zeros(4, F32))
    np.testing.assert_array_equal(out, value * 3)


def test_extra_symbols_reach_the_loop_function():
    n, k, i = Var("n"), Var("k"), Var("i")
    b = loops.Buffer("B", (n,), "int64")
    store = loops.BufferStore(b, i + k, (i,))
    iota = loops.PrimFunc((b, k), loops.For(i, const(0), n, "serial", store))
    m = Var("m")
    x = graph.Var("x", tensor(m))
    args = (GlobalVar("iota"), graph.Tuple(()), graph.ShapeExpr((m * 10,)))
    call = Call(Op("call_tir"), args, ty_args=(tensor(m + 1, dtype="int64"),))
    mod = Module.of({"iota": iota, "main": fn([x], call)})
    assert interpret(mod, "main", np.zeros(3, F32)).tolist() == [30, 31, 32, 33]


def test_several_outputs_and_inplace_outputs():
    n, i = Var("n"), Var("i")
    a, b = loops.Buffer("A", (n,)), loops.Buffer("B", (n,))
    body = loops.seq(
        loops.BufferStore(b, loops.BufferLoad(a, (i,)) * 2.0, (i,)),
        loops.BufferStore(a, loops.BufferLoad(a, (i,)) + 1.0, (i,)),
    )
    both = loops.PrimFunc((a, b), loops.For(i, const(0), n, "serial", body))
    m = Var("m")
    x = graph.Var("x", tensor(m))
    call = Call(
        Op("call_tir_inplace"), (GlobalVar("both"), graph.Tuple((x,))),
        Attrs(inplace_indices=(0, -1)), (tensor(m), tensor(m)),
    )  # fmt: skip
    mod = Module.of({"both": both, "main": fn([x], call, is_pure=False)})
    value = np.ones(3, F32)
    first, second = interpret(mod, "main", value)
    assert first is value
    assert first.tolist() == [2, 2, 2]
    assert second.tolist() == [2, 2, 2]


def test_packed_functions():
    register_func("test.halve_into", lambda a, out: np.divide(a, 2, out=out))
    register_func("test.first", lambda a, count: a[:count])
    x = graph.Var("x", tensor(4))
    k = Var("k")
    into = Call(Op("call_dps_packed"), (graph.ExternFunc("test.halve_into"), graph.Tuple((x,))),
                ty_args=(tensor(4),))  # fmt: skip
    first = Call(
        Op("call_pure_packed"), (graph.ExternFunc("test.first"), into, graph.PrimValue(const(2))),
        ty_args=(TensorType(None, F32, 1),),
    )  # fmt: skip
    mod = Module.of({"main": fn([x], first)})
    assert interpret(mod, "main", np.ones(4, F32)).tolist() == [0.5, 0.5]
    wrong = Call(graph.ExternFunc("test.first"), (x, graph.PrimValue(const(2))),
                 ty_args=(tensor(3),))  # fmt: skip
    mod = Module.of({"main": fn([x], wrong, is_pure=False)})
    with pytest.raises(ExecutionError, match="dimension 0 of the result of `test.first` is 2, exp"):
        interpret(mod, "main", np.ones(4, F32))
    missing = Call(graph.ExternFunc("test.absent"), (x,))
    with pytest.raises(ExecutionError, match="register_func"):
        interpret(Module.of({"main": fn([x], missing)}), "main", np.ones(4, F32))
    del k


def test_match_cast_binds_and_checks():
    n, m = Var("n"), Var("m")
    x = graph.Var("x", tensor(n))
    u, y = graph.Var("u"), graph.Var("y", tensor(m))
    bindings = [
        VarBinding(builder("unique")(x), u),
        MatchCast(u, tensor(m), y),
    ]
    result = Call(Op("full"), (graph.ShapeExpr((m, n)), graph.Constant(np.array(7, F32))),
                  Attrs(dtype=F32))  # fmt: skip
    mod = Module.of({"main": fn([x], result, bindings=bindings)})
    assert interpret(mod, "main", np.array([1, 2, 1, 2, 5], F32)).shape == (3, 5)
    bad = [VarBinding(builder("unique")(x), u), MatchCast(u, tensor(2), graph.Var("y"))]
    mod = Module.of({"main": fn([x], u, bindings=bad)})
    with pytest.raises(ExecutionError) as caught:
        interpret(mod, "main", np.arange(3, dtype=F32))
    assert str(caught.value) == ("in `main`: match_cast `y`: dimension 0 of `u` is 3, expected 2")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(3, F32),), r"`main` takes 2 arguments \(x, y\), got 1"),
        ((np.zeros(3), np.zeros(3, F32)), "parameter `x` has dtype float64, expected float32"),
        ((np.zeros((3, 1), F32), np.zeros(3, F32)), "parameter `x` has 2 dimensions"),
        (
            (np.zeros(3, F32), np.zeros(4, F32)),
            "`n` is 3 in dimension 0 of parameter `x` and 4 in dimension 0 of parameter `y`",
        ),
        ((3, np.zeros(3, F32)), "parameter `x` has dtype int64, expected float32"),
        ((("a",), np.zeros(3, F32)), "parameter `x` must be a tensor, got a tuple of 1"),
    ],
)
def test_arguments_are_checked_at_the_boundary(args, message: str):
    n = Var("n")
    x, y = graph.Var("x", tensor(n)), graph.Var("y", tensor(n))
    mod = Module.of({"main": fn([x, y], builder("add")(x, y))})
    with pytest.raises(ExecutionError, match=message):
        interpret(mod, "main", *args)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, -1), r"parameter `s` of `main` must be a shape; -1 in \(3, -1\) is no size"),
        ((1 << 63, 0), "must be a shape; 9223372036854775808 in .* is no size"),
        ((2.5, 1), r"must be a shape of integers, got \(2.5, 1\)"),
    ],
)
def test_shapes_hold_sizes(shape, message: str):
    """In the interpreter and the virtual machine, as in compiled code."""
    n, m = Var("n"), Var("m")
    s = graph.Var("s", ShapeType((n, m)))
    mod = Module.of({"main": fn([s], graph.ShapeExpr((m, n)))})
    vm = VirtualMachine(lower_shapes(Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(mod).result))
    for call in (lambda v: interpret(mod, "main", v), lambda v: vm.run("main", v)):
        assert call((3, np.int64(0))) == (0, 3)
        with pytest.raises(ExecutionError, match=message):
            call(shape)


def test_compound_parameter_shapes_are_solved_or_refused():
    n = Var("n")
    x = graph.Var("x", tensor(n * 2 + 1))
    mod = Module.of({"main": fn([x], graph.ShapeExpr((n,)))})
    assert interpret(mod, "main", np.zeros(7, F32)) == (3,)
    with pytest.raises(ExecutionError, match=r"dimension 0 of parameter `x` is 8, expected n \* 2"):
        interpret(mod, "main", np.zeros(8, F32))


def test_declared_upper_bounds():
    n = Var("n")
    x = graph.Var("x", tensor(n))
    bounded = fn([x], x, attrs=Attrs(tir_var_upper_bound={"n": 4}))
    mod = Module.of({"main": bounded})
    assert interpret(mod, "main", np.zeros(4, F32)).shape == (4,)
    said = r"n \(dimension 0 of parameter `x`\) may be at most 4 \(it is 5\)"
    with pytest.raises(ExecutionError, match=said):
        interpret(mod, "main", np.zeros(5, F32))


def test_a_lying_result_type_is_caught_at_run_time():
    n = Var("n")
    x = graph.Var("x", TensorType(None, F32, 2))
    mod = Module.of({"main": fn([x], x, tensor(n, 4))})
    with pytest.raises(ExecutionError, match="dimension 1 of the result is 3, expected 4"):
        interpret(mod, "main", np.zeros((2, 3), F32))


def test_figure_7_a_subfunction_called_directly_as_a_value_and_with_a_coarse_shape():
    """The paper's Figure 7: `subfn` from Shape((n, m)) to Tensor((n * m,))."""
    n, m = Var("n"), Var("m")
    s = graph.Var("s", types.ShapeType((n, m)))
    flat = Call(Op("full"), (graph.ShapeExpr((n * m,)), graph.Constant(np.array(1, F32))),
                Attrs(dtype=F32))  # fmt: skip
    subfn = fn([s], flat, tensor(n * m))
    k = Var("k")
    x = graph.Var("x", tensor(k))
    t = graph.Var("t", types.ShapeType(None, 2))
    f = graph.Var("f")
    bindings = [
        VarBinding(GlobalVar("subfn"), f),
    ]
    body = graph.Tuple((
        Call(GlobalVar("subfn"), (graph.ShapeExpr((k, const(4))),)),
        Call(f, (graph.ShapeExpr((const(3), k)),)),
        Call(f, (t,)),
    ))  # fmt: skip
    mod = Module.of({"subfn": subfn, "main": fn([x, t], body, bindings=bindings)})
    typed = normalize(mod)
    ret = typed["main"].ret_ty
    assert str(ret) == (
        "R.Tuple(R.Tensor((k * 4,), 'float32'), R.Tensor((k * 3,), 'float32'), "
        "R.Tensor(dtype='float32', ndim=1))"
    )
    for program in (mod, typed):
        out = interpret(program, "main", np.zeros(5, F32), (2, 6))
        assert [o.shape for o in out] == [(20,), (15,), (12,)]


def test_conditionals_and_recursion():
    """Subtract one from an int64 scalar until it is not positive, doubling the tensor."""
    n = Var("n")
    x, k = graph.Var("x", tensor(n)), graph.Var("k", tensor(dtype="int64"))
    one, zero = graph.Constant(np.array(1)), graph.Constant(np.array(0))
    again = Call(GlobalVar("main"), (builder("add")(x, x), builder("subtract")(k, one)))
    choice = graph.If(builder("greater")(k, zero), SeqExpr((), again), SeqExpr((), x))
    mod = Module.of({"main": fn([x, k], choice, tensor(n))})
    for m in (mod, normalize(mod)):
        assert interpret(m, "main", np.ones(2, F32), np.int64(5)).tolist() == [32, 32]


def test_local_functions_capture_values_and_symbols():
    n = Var("n")
    x, y = graph.Var("x", tensor(n)), graph.Var("y", tensor(n))
    add_x = fn([y], builder("add")(y, x), tensor(n))
    g = graph.Var("g")
    mod = Module.of({"main": fn([x], Call(g, (Call(g, (x,)),)), tensor(n),
                                bindings=[VarBinding(add_x, g)])})  # fmt: skip
    for m in (mod, normalize(mod)):
        assert interpret(m, "main", np.ones(3, F32)).tolist() == [3, 3, 3]


def test_bfloat16_and_other_array_types():
    n = Var("n")
    x = graph.Var("x", tensor(n, dtype="bfloat16"))
    mod = Module.of({"main": fn([x], builder("add")(x, x))})
    value = np.array([1.5, 2.25], ml_dtypes.bfloat16)
    out = interpret(mod, "main", value)
    assert out.dtype == ml_dtypes.bfloat16
    assert out.tolist() == [3.0, 4.5]
    y = graph.Var("y", tensor(n))

    class Exporter:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **kw):
            return self.array.__dlpack__(**kw)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    mod = Module.of({"main": fn([y], builder("add")(y, y))})
    assert interpret(mod, "main", Exporter(np.ones(2, F32))).tolist() == [2, 2]


def test_a_wrong_deduced_type_is_reported():
    n = Var("n")
    x = graph.Var("x", tensor(n))
    y = graph.Var("y", tensor(n + 1))
    mod = Module.of({"main": fn([x], y, bindings=[VarBinding(builder("exp")(x), y)])})
    with pytest.raises(ExecutionError, match="computing `y`: .* is 2, expected n \\+ 1 = 3"):
        interpret(mod, "main", np.ones(2, F32))


@pytest.mark.parametrize("count", [0, 1, 6])
def test_an_extent_left_open_beside_one_of_zero_is_the_deduced_one(count):
    n = Var("n")
    x = graph.Var("x", tensor(n, 4))
    y = graph.Var("y", tensor(n * 2, 2, 1))
    value = builder("reshape")(x, graph.ShapeExpr((n * 2, expr.const(-1), expr.const(1))))
    mod = Module.of({"main": fn([x], y, bindings=[VarBinding(value, y)])})
    given = np.arange(4 * count, dtype=F32).reshape(count, 4)
    result = interpret(mod, "main", given)
    np.testing.assert_array_equal(result, given.reshape(2 * count, 2, 1), strict=True)


def test_a_symbol_of_size_zero_is_no_zero_that_stands_for_the_old_extent():
    n, m = Var("n"), Var("m")
    x = graph.Var("x", tensor(3, n, n, m))
    shape = graph.ShapeExpr((3 * n, n, const(1), m))
    r = graph.Var("r", tensor(3 * n, n, 1, m))
    main = fn([x], r, bindings=[VarBinding(builder("reshape")(x, shape), r)])
    mod = normalize(Module.of({"main": main}))
    assert interpret(mod, "main", np.zeros((3, 0, 0, 8), F32)).shape == (0, 0, 1, 8)


def test_empty_tensors_are_reshaped_in_programs_without_types():
    n = Var("n")
    x, y, r = graph.Var("x", tensor(n, 4)), graph.Var("y"), graph.Var("r")
    shape = graph.ShapeExpr((const(4), n))
    bindings = [VarBinding(builder("exp")(x), y), VarBinding(builder("reshape")(y, shape), r)]
    mod = Module.of({"main": fn([x], r, bindings=bindings)})
    assert interpret(mod, "main", np.zeros((0, 4), F32)).shape == (4, 0)


def test_constants_are_never_written():
    i = Var("i")
    a = loops.Buffer("A", (const(2),))
    clear = loops.PrimFunc((a,), loops.For(i, const(0), const(2), "serial",
                                          loops.BufferStore(a, const(0.0), (i,))))  # fmt: skip
    data = np.ones(2, F32)
    call = Call(
        Op("call_tir_inplace"), (GlobalVar("clear"), graph.Tuple((graph.Constant(data),))),
        Attrs(inplace_indices=(0,)), (tensor(2),),
    )  # fmt: skip
    mod = Module.of({"clear": clear, "main": fn([], call, is_pure=False)})
    with pytest.raises(ExecutionError, match="A is written but the array is read-only"):
        interpret(mod, "main")


def test_missing_functions_and_operators():
    x = graph.Var("x", tensor(2))
    mod = Module.of({"main": fn([x], Call(GlobalVar("nope"), (x,)))})
    with pytest.raises(ExecutionError, match="the module has no function `nope`"):
        interpret(mod, "main", np.zeros(2, F32))
    with pytest.raises(KeyError, match="no function named 'absent'"):
        interpret(mod, "absent")
    mod = Module.of({"main": fn([x], Call(Op("no_such_op"), (x,)))})
    with pytest.raises(ExecutionError, match="R.no_such_op has no NumPy meaning"):
        interpret(mod, "main", np.zeros(2, F32))


def test_functions_passed_as_arguments_are_held_to_their_type():
    n = Var("n")
    f = graph.Var("f", types.FuncType((tensor(n),), tensor(n * 2)))
    k = Var("k")
    x = graph.Var("x", tensor(k))
    mod = Module.of({"main": fn([f, x], Call(f, (x,)))})
    value = np.ones(3, F32)
    assert interpret(mod, "main", lambda v: np.concatenate([v, v]), value).shape == (6,)
    with pytest.raises(ExecutionError, match="dimension 0 of the result of `f` is 3, expected n"):
        interpret(mod, "main", lambda v: v, value)
