"""Graph functions built and read by TVM's names."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab.tvm as tvm
from relaxlab.ir import expr
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ops import te
from relaxlab.script.type_values import as_type
from relaxlab.tvm import relax
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R


def tensor(name: str, *shape: int, dtype: str = "float32"):
    return relax.Var(name, R.Tensor(shape, dtype))


def test_types_of_the_script_in_python() -> None:
    equal = tvm.ir.assert_structural_equal
    equal(R.Tensor((2, 3), "float32"), relax.TensorStructInfo([2, 3], "float32"))
    equal(R.Tensor("int32"), relax.TensorType(dtype="int32"))
    equal(R.Tensor(dtype="float16", ndim=2), relax.TensorType(dtype="float16", ndim=2))
    equal(R.Shape([2, 3]), relax.ShapeStructInfo([2, 3]))
    equal(R.Tuple(R.Tensor((2,)), R.Object), relax.TupleType([R.Tensor((2,)), R.Object()]))
    equal(R.Prim("int64"), relax.PrimStructInfo("int64"))
    equal(
        R.Callable((R.Tensor((2,)),), R.Tensor((3,))),
        relax.FuncStructInfo([R.Tensor((2,))], R.Tensor((3,))),
    )
    equal(R.Callable(ret=R.Object, purity=False), relax.FuncStructInfo.opaque_func())


def test_a_symbol_in_a_string_means_something_only_in_a_program() -> None:
    assert R.Tensor(("n", 4)) is R.Tensor
    with pytest.raises(TypeError, match=r"expected a type such as R\.Tensor.*got a str"):
        relax.Var("x", "n")
    with pytest.raises(TypeError, match="got an int"):
        as_type(3)


def test_a_call_has_a_type() -> None:
    bb = relax.BlockBuilder()
    call = bb.normalize(relax.op.matmul(tensor("x", 2, 3), tensor("y", 3, 4)))
    assert isinstance(call, relax.Call)
    assert call.op == tvm.ir.Op.get("relax.matmul")
    tvm.ir.assert_structural_equal(call.struct_info, relax.TensorStructInfo((2, 4), "float32"))
    tvm.ir.assert_structural_equal(call.ty, R.Tensor((2, 4), "float32"))


@pytest.mark.parametrize("error", [TypeError, ValueError, tvm.TVMError])
def test_a_call_without_a_type(error: type[Exception]) -> None:
    x = tensor("x", 2, 3)
    with pytest.raises(error, match="matmul"):
        relax.BlockBuilder().normalize(relax.op.matmul(x, x))


def built():
    x = tensor("x", 2, 3)
    bb = relax.BlockBuilder()
    with bb.function("main"):
        with bb.dataflow():
            a = bb.emit(relax.op.add(x, x))
            b = bb.emit(a * relax.const(2.0))
            c = bb.emit_output((relax.op.nn.relu(b), -b))
        bb.emit_func_output(c, params=[x])
    return bb.get()


def test_a_module_built_call_by_call() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, R.const(2.0, "float32"))
                c = R.nn.relu(b)
                d = R.negative(b)
                e = (c, d)
                R.output(e)
            return e

    tvm.ir.assert_structural_equal(built(), Expected)
    assert not tvm.ir.structural_equal(built(), tvm.IRModule({}))
    assert tvm.ir.structural_hash(built()) == tvm.ir.structural_hash(Expected)


def test_modules_are_read_by_global_variables_and_change() -> None:
    mod = built()
    ((var, func),) = mod.functions.items()
    assert var.name_hint == "main" and mod[var] is func is mod.functions[var]
    assert var == mod.get_global_var("main") and mod.get_global_vars() == [var]
    before = func.body.blocks[0].bindings[0]
    assert before.value.op == tvm.ir.Op.get("relax.add") and before.var.name_hint == "add"
    mod.update_func(var, func.with_attr("num_input", 1))
    assert mod["main"].attrs["num_input"] == mod["main"].attrs.num_input == 1
    mod["other"] = mod["main"].without_attr("num_input")
    assert list(mod) == ["main", "other"] and not mod["other"].attrs
    tvm.ir.assert_structural_equal(mod["other"], func)
    del mod["other"]
    mod.update({"third": func})
    assert list(mod) == ["main", "third"]


def test_nodes_made_by_their_constructors() -> None:
    x = tensor("x", 2)
    y = relax.Var("y")
    block = relax.BindingBlock([relax.VarBinding(y, relax.Call("relax.exp", [x]))])
    func = relax.Function([x], relax.SeqExpr([block], y), R.Tensor((2,), "float32"))

    @R.function
    def expected(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = relax.op.exp(x)
        return y

    tvm.ir.assert_structural_equal(func, expected)
    assert isinstance(func, relax.Function) and not isinstance(func, relax.Call)
    assert relax.const(1).data.dtype == np.int32 and relax.const(1.0).data.dtype == np.float32
    branch = relax.If(relax.const(True), x, x)  # noqa: FBT003
    assert branch.cond is branch.condition and branch.true_branch.body is x


def test_calls_of_loop_functions() -> None:
    x = tensor("x", 2)
    kernel = relax.GlobalVar("kernel")
    out = R.Tensor((2,), "float32")
    one = relax.call_tir(kernel, (x,), out)
    tvm.ir.assert_structural_equal(one, relax.op.call_tir(kernel, [x], out_sinfo=[out]), True)
    tvm.ir.assert_structural_equal(one, relax.op.call_tir(kernel, x, out_ty=out), True)
    assert one.sinfo_args == (out,) or one.ty_args[0].ndim == 1
    extern = relax.op.call_dps_packed("lib.run", [x], out)
    assert isinstance(extern.args[0], relax.ExternFunc) and extern.args[0].name == "lib.run"
    inplace = relax.op.call_tir_inplace(kernel, (x,), [0], out)
    assert inplace.attrs.inplace_indices == (0,)


def test_calls_that_cannot_be_computed_have_types_and_are_refused_where_they_are_compiled() -> None:
    x, y = tensor("x", 3, dtype="bool"), tensor("y", 2, 3, dtype="int8")
    assert str(relax.op.add(x, y).ty) == "R.Tensor((2, 3), 'bool')"
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(relax.op.sum(relax.op.add(x, y))))

    @I.ir_module
    class Read:
        @R.function
        def main(x: R.Tensor((3,), "bool"), y: R.Tensor((2, 3), "int8")):
            add = R.add(x, y)
            result = R.sum(add)
            return result

    for mod in (builder.get(), Read, tvm.script.from_source(Read.script())):
        tvm.ir.assert_structural_equal(mod, Read)
        tvm.ir.assert_structural_equal(relax.transform.Normalize()(mod), Read)
        assert str(mod["main"].ret_ty) == "R.Tensor((), 'bool')"
        assert not relax.analysis.well_formed(mod)
        for compiled in (relax.transform.LegalizeOps(), lambda m: tvm.compile(m, "llvm")):
            with pytest.raises(DiagnosticError, match=r"R.add: the arguments have dtypes bool and"):
                compiled(mod)


def test_tensors_of_the_core_keep_their_errors() -> None:
    """One index of two is a slice for the functions of `tvm.te.compute` alone."""
    table = te.placeholder((expr.const(2), expr.const(3)), "float32", "table")
    with pytest.raises(ValueError, match="table has 2 dimensions, indexed with 1"):
        _ = table[0]
