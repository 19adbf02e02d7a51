"""Types of calls: symbols, unknown shapes, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import ops
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import TypeDeductionError, infer_type, infer_with_conditions, op_row
from relaxlab.ir.types import ShapeType, TensorType, TupleType, Type
from relaxlab.ops import te
from relaxlab.passes.normalize import normalize

N, M = expr.Var("n"), expr.Var("m")


def tensor(*shape: expr.PrimExpr | int, dtype: str | None = "float32") -> graph.Var:
    return graph.Var("x", TensorType(tuple(expr.as_expr(d) for d in shape), dtype))


def coarse(ndim: int = -1, dtype: str | None = "float32") -> graph.Var:
    return graph.Var("x", TensorType(None, dtype, ndim))


def type_of(e: graph.Expr) -> Type:
    match e:
        case graph.Var(_, ty) if ty is not None:
            return ty
        case graph.ShapeExpr(values):
            return ShapeType(values)
        case graph.PrimValue(value):
            return types.PrimType(value.dtype, value)
        case graph.Tuple(fields):
            return TupleType(tuple(map(type_of, fields)))
        case graph.Constant(data):
            return TensorType(tuple(map(expr.const, data.shape)), data.dtype.name)
        case _:
            return types.ObjectType()


def infer(call: graph.Call, mod: Module | None = None) -> Type:
    assert isinstance(call.op, graph.Op)
    return infer_type(op_row(call.op.name), call, tuple(map(type_of, call.args)), mod)


def _name(value: object) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, graph.Call) else str(value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ops.add(tensor(N, 4), tensor(4)), "R.Tensor((n, 4), 'float32')"),
        (ops.add(tensor(N * 2), tensor(N + N)), "R.Tensor((n + n,), 'float32')"),
        (ops.add(tensor(N), tensor(M)), "R.Tensor(dtype='float32', ndim=1)"),
        (ops.add(tensor(N, 1), tensor(M)), "R.Tensor((n, m), 'float32')"),
        (ops.add(coarse(2), tensor(M)), "R.Tensor(dtype='float32', ndim=2)"),
        (ops.add(coarse(), tensor(M)), "R.Tensor(dtype='float32')"),
        (ops.add(coarse(1, None), coarse(1, None)), "R.Tensor(ndim=1)"),
        (ops.less(tensor(N), 0.0), "R.Tensor((n,), 'bool')"),
        (ops.exp(coarse(1)), "R.Tensor(dtype='float32', ndim=1)"),
        (ops.matmul(coarse(3), tensor(4, 5)), "R.Tensor(dtype='float32', ndim=3)"),
        (ops.matmul(tensor(N, M), tensor(M, 3)), "R.Tensor((n, 3), 'float32')"),
        (ops.reshape(tensor(N, 2, 2), (N, 4)), "R.Tensor((n, 4), 'float32')"),
        (ops.reshape(tensor(N, 6), (-1, 3)), "R.Tensor((n * 2, 3), 'float32')"),
        (ops.reshape(tensor(N, M), (M, -1)), "R.Tensor((m, n), 'float32')"),
        (ops.flatten(tensor(N, 4)), "R.Tensor((n * 4,), 'float32')"),
        (ops.unique(tensor(N)), "R.Tensor(dtype='float32', ndim=1)"),
        (ops.nonzero(tensor(N, 3)), "R.Tensor(dtype='int64', ndim=2)"),
        (ops.squeeze(tensor(N, 1)), "R.Tensor(dtype='float32')"),
        (ops.concat((tensor(N, 3), tensor(M, 3))), "R.Tensor((n + m, 3), 'float32')"),
        (ops.sum(coarse(3), axis=1), "R.Tensor(dtype='float32', ndim=2)"),
        (ops.sum(coarse()), "R.Tensor((), 'float32')"),
        (ops.argmax(tensor(N, 7), axis=-1), "R.Tensor((n,), 'int64')"),
        (ops.shape_of(tensor(N, 4)), "R.Shape([n, 4])"),
        (ops.shape_of(coarse(2)), "R.Shape(ndim=2)"),
        (ops.tensor_to_shape(tensor(3, dtype="int64")), "R.Shape(ndim=3)"),
        (ops.shape_to_tensor((N, 2)), "R.Tensor((2,), 'int64')"),
        (ops.print(tensor(N), format="{}"), "R.Tuple()"),
    ],
    ids=_name,
)  # fmt: skip
def test_type(call: graph.Call, text: str) -> None:
    assert str(infer(call)) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ops.add(tensor(N, 4), tensor(5)), r"\(n, 4\) and \(5,\) do not broadcast: 4 against 5"),
        (ops.add(tensor(N, dtype="int32"), tensor(N)), "dtypes int32 and float32"),
        (ops.add(tensor(N), graph.ShapeExpr((N,))), "x2 must be a tensor, is R.Shape"),
        (ops.exp(tensor(N, dtype="int32")), "x must be floating point, has dtype int32"),
        (ops.left_shift(tensor(N), tensor(N)), "must be integer"),
        (ops.where(tensor(N), tensor(N), tensor(N)), "condition must be bool"),
        (ops.matmul(tensor(N, 3), tensor(4, 5)), "contracted dimensions are 3 and 4"),
        (ops.matmul(tensor(N, N + 1), tensor(N, 5)), r"contracted dimensions are n \+ 1 and n"),
        (ops.matmul(tensor(), tensor(3)), "at least one dimension"),
        (ops.linear(tensor(N, 3), tensor(4, 5)), "contracted dimensions are 3 and 5"),
        (ops.reshape(tensor(4, 2), (3, 3)), "8 elements, which do not fill"),
        (ops.reshape(tensor(7), (-1, 2)), "7 elements, which do not fill"),
        (ops.reshape(tensor(N, 2), (-1, -1)), "more than one -1"),
        (ops.permute_dims(tensor(N, 2), axes=(0,)), "must name each of the 2 dimensions"),
        (ops.permute_dims(tensor(N, 2), axes=(0, 0)), "names a dimension twice"),
        (ops.sum(tensor(N, 2), axis=2), "axis 2 is out of range for a tensor with 2 dimensions"),
        (ops.sum(tensor(N, dtype="bool")), "must be a number"),
        (ops.squeeze(tensor(N, 2), axis=1), "dimension 1 of \\(n, 2\\) is 2, not 1"),
        (ops.broadcast_to(tensor(3), (N, 4)), "3 against 4"),
        (ops.concat((tensor(N, 3), tensor(N, 4))), "differ in dimension 1: 3 against 4"),
        (ops.concat((tensor(N), tensor(N, 4))), "1 and 2 dimensions"),
        (ops.split(tensor(4), indices_or_sections=(3, 1)), "must not decrease"),
        (ops.take(tensor(N, 3), tensor(2, dtype="int64")), "axis must be given"),
        (ops.take(tensor(N), tensor(2)), "indices must be integer"),
        (ops.astype(tensor(N), dtype="float33"), "'float33' is not a data type"),
        (ops.arange(start=0, end=3, step=0), "step must not be 0"),
        (ops.nn.softmax(tensor(N, dtype="int32")), "must be floating point"),
        (ops.nn.rms_norm(tensor(N, 8), tensor(7)), "7 against 8"),
        (ops.nn.pad(tensor(N, 8), pad_width=(1, 1)), "must have 4 entries"),
        (ops.nn.attention(*[tensor(1, N, 3, 8)] * 2, tensor(1, N, 2, 8)), "heads of key and value"),
        (ops.nn.attention(tensor(1, N, 3, 8), *[tensor(1, N, 2, 8)] * 2), "cannot share"),
        (ops.nn.attention(*[tensor(1, N, 8)] * 3), "query must be \\(batch, length, heads"),
        (ops.nn.rope(tensor(1, N, 2, 7)), "rotary_dim must be even"),
        (ops.nn.rope(tensor(1, N, 2, 8), 2.5), "offset must be"),
        (ops.einsum((tensor(N, 3), tensor(4)), subscripts="ij,j"), "'j' is 3 here and 4 there"),
        (ops.einsum((tensor(N),), subscripts="i->k"), "must name operand dimensions"),
        (ops.assert_op(tensor(N)), "condition must be a bool scalar"),
    ],
    ids=_name,
)  # fmt: skip
def test_refused(call: graph.Call, message: str) -> None:
    with pytest.raises(TypeDeductionError, match=message):
        infer(call)


def test_suggestions_say_the_way_out() -> None:
    with pytest.raises(TypeDeductionError) as error:
        infer(ops.add(tensor(N, 4), tensor(5)))
    assert error.value.suggestion is not None and "R.reshape" in error.value.suggestion


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (ops.matmul(tensor(N, M), tensor(3, 4)), "m == 3"),
        (ops.reshape(tensor(N), (M, 4)), "n == m * 4"),
        (ops.reshape(tensor(N, 3), (-1, 2)), "n * 3 == 2 * (n * 3 // 2)"),
        (ops.broadcast_to(tensor(N), (M,)), "n == m or n == 1"),
        (ops.concat((tensor(N, 2), tensor(M, 2)), axis=1), "n == m"),
        (ops.topk(tensor(N), k=3), "3 <= n"),
        (ops.squeeze(tensor(N, 2), axis=0), "n == 1"),
        (ops.matmul(tensor(N, M), tensor(M, 4)), None),
    ],
    ids=_name,
)
def test_conditions_on_symbols_are_stated(call: graph.Call, condition: str | None) -> None:
    assert isinstance(call.op, graph.Op)
    row, tys = op_row(call.op.name), tuple(map(type_of, call.args))
    _, conditions = infer_with_conditions(row, call, tys, None)
    assert [str(c) for c, _ in conditions] == ([] if condition is None else [condition])


def test_unknown_shapes_are_not_lowered() -> None:
    call = ops.exp(coarse(1))
    lower = op_row("exp").lower
    assert lower is not None
    with pytest.raises(TypeDeductionError, match="shape or dtype of x is not known"):
        lower(call, tuple(map(type_of, call.args)), infer(call))


# --- call_tir ---------------------------------------------------------------------------------


def _module() -> Module:
    x = te.placeholder((N, 4), "float32", "x")
    y = te.compute((N, 4), lambda i, j: x[i, j], "y")
    return Module.of({"copy": te.create_prim_func([x, y])})


def _call_tir(args: tuple[graph.Expr, ...], *out: Type, name: str = "copy") -> graph.Call:
    return ops.call_tir(graph.GlobalVar(name), graph.Tuple(args), ty_args=out)


def test_call_tir_has_the_stated_type() -> None:
    ty = tensor(N, 4).ty
    assert ty is not None
    assert infer(_call_tir((tensor(N, 4),), ty), _module()) == ty
    two = infer(_call_tir((tensor(N, 4),), ty, ty))
    assert isinstance(two, TupleType) and two.fields == (ty, ty)


@pytest.mark.parametrize(
    ("args", "out", "message"),
    [
        ((), tensor(N, 4), "takes 2 buffers, given 0 inputs and 1 outputs"),
        ((tensor(N, 5),), tensor(N, 4), r"input 0 of copy is declared as x: \(n, 4\) float32"),
        ((tensor(N, 4, dtype="int8"),), tensor(N, 4), "input 0 of copy is declared as x"),
        ((tensor(N, 4),), tensor(4), "output 0 of copy is declared as y"),
        ((tensor(N, 4),), coarse(2), "must have a shape and a dtype"),
    ],
)
def test_call_tir_is_checked_against_the_loop_function(
    args: tuple[graph.Expr, ...], out: graph.Var, message: str
) -> None:
    assert out.ty is not None
    with pytest.raises(TypeDeductionError, match=message):
        infer(_call_tir(args, out.ty), _module())


def test_call_tir_inplace_names_inputs_that_exist() -> None:
    call = graph.Call(
        graph.Op("call_tir_inplace"),
        (graph.GlobalVar("f"), graph.Tuple((tensor(N),))),
        Attrs(inplace_indices=(1,)),
        (TensorType((N,), "float32"),),
    )
    with pytest.raises(TypeDeductionError, match="names input 1, there are 1"):
        infer(call)


def test_packed_calls_state_their_type() -> None:
    call = ops.call_pure_packed(graph.ExternFunc("f"), tensor(N))
    with pytest.raises(TypeDeductionError, match="output type is missing"):
        infer(call)


def known(call: str, params: str = 'x: R.Tensor(("n", 4, 6), "float32")') -> str:
    """The type of a call in a function of these parameters."""
    text = f"@R.function\ndef main({params}):\n    y = {call}\n    return y\n"
    return str(normalize(rl.parse(text))["main"].ret_ty)


def test_zero_copies_an_extent() -> None:
    assert known("R.reshape(x, (0, 24))") == "R.Tensor((n, 24), 'float32')"
    assert known("R.reshape(x, (0, 0, 2, 3))") == "R.Tensor((n, 4, 2, 3), 'float32')"
    assert known("R.reshape(x, (0, -1))") == "R.Tensor((n, 24), 'float32')"
    assert known("R.reshape(x, (0,))", 'x: R.Tensor((3, 0), "int8")') == "R.Tensor((0,), 'int8')"
    # 0 or the old extent, which only the number of rows tells
    assert known("R.reshape(x, (0,))", 'x: R.Tensor(("n", 0), "int8")') == (
        "R.Tensor(dtype='int8', ndim=1)"
    )
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n'
        "    return R.exp(R.reshape(x, (0, 2, 2)))\n"
    )
    for n in (0, 3):
        x = np.ones((n, 4), "float32")
        assert rl.compile(mod)["main"](x).shape == rl.interpret(mod, "main", x).shape == (n, 2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("R.concat((x, x), axis=None)", "axis must be given for tensors with 3 dimensions"),
        ("R.repeat(x, 1.5)", "repeats must be an integer, is 1.5"),
        ("R.repeat(x, -1)", "repeats must be at least 0"),
        ("R.repeat(u, 2, axis=2)", "axis 2 is out of range"),
        ("R.split(u, 2, axis=2)", "axis 2 is out of range"),
        ("R.nn.batch_flatten(v)", "data must have at least two dimensions"),
    ],
)
def test_meaningless_programs_are_refused(call: str, message: str) -> None:
    params = (
        'x: R.Tensor(("n", 4, 6), "float32"), u: R.Tensor(dtype="float32", ndim=2), '
        'v: R.Tensor(("n",), "float32")'
    )
    with pytest.raises(DiagnosticError, match=message):
        known(call, params)


def test_a_reduction_of_everything_has_a_known_shape() -> None:
    assert known("R.sum(x)", 'x: R.Tensor(dtype="float32")') == "R.Tensor((), 'float32')"
    assert known("R.concat((x, x), axis=None)", 'x: R.Tensor((3,), "int8")') == (
        "R.Tensor((6,), 'int8')"
    )


def test_several_values_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = '@R.function(pure=False)\ndef main(x: R.Tensor((), "int64")):\n'
    mod = rl.parse(text + "    _ = R.print(x, x)\n    a = R.print(x, x, format='{} and {}')\n"
                   "    return x\n")  # fmt: skip
    rl.interpret(mod, "main", np.array(3))
    assert capsys.readouterr().out == "3 3\n3 and 3\n"
    assert_structural_equal(mod, rl.parse(mod.script()))


def test_a_data_type_may_be_a_string() -> None:
    call = 'R.builtin.alloc_tensor(R.shape([4]), "float16", R.prim_value(0))'
    mod = normalize(rl.parse(f"@R.function(pure=False)\ndef main():\n    return {call}\n"))
    assert str(mod["main"].ret_ty) == "R.Tensor((4,), 'float16')"
