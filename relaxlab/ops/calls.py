"""Operators that call functions and move between tensors and shapes; none is lowered to loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.prelude import given_buffers
from relaxlab.analysis.ragged import Totals, stored
from relaxlab.ir import expr, graph, types
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import REQUIRED, OpRow, Trait, register_op
from relaxlab.ir.row_major import product
from relaxlab.ir.types import ShapeType, TensorType, TupleType, Type
from relaxlab.ops import te
from relaxlab.ops.define import TypesOf, attr, define, fail, params, require_dtype, tensor_arg
from relaxlab.ops.shapes import prove_equal, show


def _stated_type(call: graph.Call) -> Type:
    """The result type written at the call."""
    if not call.ty_args:
        raise fail(call, "the output type is missing", "add out_ty=R.Tensor(shape, dtype)")
    return call.ty_args[0] if len(call.ty_args) == 1 else TupleType(call.ty_args)


def _packed_infer(call: graph.Call, tys: TypesOf) -> Type:
    if not call.args or not isinstance(call.args[0], graph.ExternFunc):
        raise fail(call, "the first argument must be the name of a registered function")
    return _stated_type(call)


def _inplace_packed_infer(call: graph.Call, tys: TypesOf) -> Type:
    result = _packed_infer(call, tys)
    indices: tuple[int, ...] = attr(call, "inplace_indices")
    if len(indices) != len(call.ty_args):
        raise fail(call, f"inplace_indices {indices} must have one entry per result")
    if max(indices) < 0:
        raise fail(call, "no argument is overwritten", "write R.call_pure_packed")
    for i, out in zip(indices, call.ty_args, strict=True):
        if not -1 <= i < len(call.args) - 1:
            raise fail(call, f"inplace_indices names argument {i}, there are {len(call.args) - 1}")
        given = tys[i + 1]
        if i >= 0 and isinstance(given, types.ObjectType) and isinstance(out, types.ObjectType):
            continue  # an object that changes, such as a cache
        if i >= 0 and not (isinstance(given, TensorType) and isinstance(out, TensorType)):
            raise fail(call, f"argument {i}, which is overwritten, must be a tensor, is {given}")
        if i >= 0 and not _may_be(given, out):
            raise fail(call, f"argument {i} is {given}, and what overwrites it is {out}")
    return result


def _may_be(given: Type, out: Type) -> bool:
    """True if two tensors may have one shape and one dtype."""
    assert isinstance(given, TensorType) and isinstance(out, TensorType)
    if None not in (given.dtype, out.dtype) and given.dtype != out.dtype:
        return False
    if given.shape is None or out.shape is None:
        return -1 in (given.ndim, out.ndim) or given.ndim == out.ndim
    pairs = zip(given.shape, out.shape, strict=False)
    return given.ndim == out.ndim and all(prove_equal(a, b) is not False for a, b in pairs)


def _require_allocatable(call: graph.Call) -> None:
    """Raise `TypeDeductionError` unless the shapes and dtypes of all outputs are known."""
    for out in call.ty_args:
        if not isinstance(out, TensorType) or out.shape is None or out.dtype is None:
            raise fail(
                call,
                f"the output type {out} must have a shape and a dtype: the caller allocates it",
                "write out_ty=R.Tensor((n, 4), 'float32')",
            )


def _dps_packed_infer(call: graph.Call, tys: TypesOf) -> Type:
    result = _packed_infer(call, tys)
    _require_allocatable(call)
    return result


# --- call_tir ---------------------------------------------------------------------------------


def _tir_infer(call: graph.Call, tys: TypesOf, mod: Module | None) -> Type:
    if not call.args or not isinstance(call.args[0], graph.GlobalVar):
        raise fail(call, "the first argument must be a loop function of the module, as cls.name")
    inputs = _tensor_fields(call, tys)
    _require_allocatable(call)
    result = _stated_type(call)
    func = mod.get(call.args[0].name) if mod is not None else None
    if func is not None:
        outputs = tuple(t for t in call.ty_args if isinstance(t, TensorType))
        _check_callee(call, call.args[0].name, func, inputs, outputs)
    return result


def _tensor_fields(call: graph.Call, tys: TypesOf) -> tuple[Type, ...]:
    ty = tys[1] if len(tys) > 1 else None
    if isinstance(ty, TensorType):
        return (ty,)
    if not isinstance(ty, TupleType):
        raise fail(call, f"the arguments must be given as one tuple, got {ty}")
    return ty.fields


def _check_callee(
    call: graph.Call,
    name: str,
    func: Any,
    inputs: tuple[Type, ...],
    outputs: tuple[TensorType, ...],
) -> None:
    if not isinstance(func, PrimFunc):
        raise fail(call, f"{name} is a graph function", f"call it directly: cls.{name}(…)")
    given = (*inputs, *outputs)
    expected = func.buffers
    if len(given) < len(expected):  # `build_prelude` computes what follows from the others
        required = given_buffers(func)
        expected = required if len(given) == len(required) else expected
    if len(given) != len(expected):
        raise fail(
            call,
            f"{name} takes {counted(len(expected), 'buffer')}, given {len(inputs)} inputs and "
            f"{len(outputs)} outputs",
        )
    symbols = len(func.params) - len(func.buffers)
    passed = call.args[2].values if len(call.args) > 2 and _is_shape(call.args[2]) else ()  # type: ignore
    if len(passed) != symbols:
        raise fail(
            call,
            f"{name} takes {symbols} scalars after its buffers, given {len(passed)}",
            "pass them with tir_vars=R.shape([…])",
        )
    for i, (ty, buffer) in enumerate(zip(given, expected, strict=True)):
        what = f"input {i}" if i < len(inputs) else f"output {i - len(inputs)}"
        _check_buffer(call, f"{what} of {name}", ty, buffer)


def _is_shape(value: graph.Expr) -> bool:
    return isinstance(value, graph.ShapeExpr)


def _check_buffer(call: graph.Call, what: str, ty: Type, buffer: Buffer) -> None:
    if not isinstance(ty, TensorType):
        raise fail(call, f"{what} must be a tensor, is {ty}")
    dense = stored(ty, Totals())  # the elements of a ragged tensor are given to loops as they lie
    assert isinstance(dense, TensorType)
    same_dtype = ty.dtype is None or ty.dtype == buffer.dtype
    same_rank = ty.ndim < 0 or dense.ndim == buffer.ndim
    constant = isinstance(ty.shape, tuple) and same_rank
    same_dims = not constant or all(
        not isinstance(a, expr.IntImm) or prove_equal(a, b) is not False
        for a, b in zip(dense.shape or (), buffer.shape, strict=True)
    )
    if not (same_dtype and same_rank and same_dims):
        declared = f"{show(buffer.shape)} {buffer.dtype}"
        raise fail(call, f"{what} is declared as {buffer.name}: {declared}, given {ty}")


def _inplace_infer(call: graph.Call, tys: TypesOf, mod: Module | None) -> Type:
    indices: tuple[int, ...] = attr(call, "inplace_indices")
    count = len(_tensor_fields(call, tys))
    if len(indices) != len(call.ty_args):
        raise fail(call, f"inplace_indices {indices} must have one entry per output")
    for i in indices:
        if not -1 <= i < count:
            raise fail(call, f"inplace_indices names input {i}, there are {count}")
    return _tir_infer_inplace(call, tys, mod, indices)


def _tir_infer_inplace(
    call: graph.Call, tys: TypesOf, mod: Module | None, indices: tuple[int, ...]
) -> Type:
    """As `call_tir`, where only the outputs that overwrite no input are further buffers."""
    func = mod.get(call.args[0].name) if mod and isinstance(call.args[0], graph.GlobalVar) else None
    if func is not None:
        fresh = tuple(t for t, i in zip(call.ty_args, indices, strict=True) if i < 0)
        outputs = tuple(t for t in fresh if isinstance(t, TensorType))
        name = call.args[0].name  # type: ignore[union-attr]
        _check_callee(call, name, func, _tensor_fields(call, tys), outputs)
    return _tir_infer(call, tys, None)


LOOPS: frozenset[Trait] = frozenset({"calls_loops", "fills_outputs", "may_alias"})
register_op(OpRow("call_tir", params("gvar args tir_vars?"), _tir_infer, traits=LOOPS))
register_op(
    OpRow(
        "call_tir_inplace",
        (*params("gvar args"), *params("", inplace_indices=(0,)), *params("tir_vars?")),
        _inplace_infer,
        traits=LOOPS,
    )
)
# `te_grad_name` names the gradient that differentiation is to use; `legalize_ops` drops it.
register_op(
    OpRow(
        "call_tir_with_grad",
        (
            *params("gvar args", te_grad_name=REQUIRED),
            *params("tir_vars?", te_grad_kwargs=None),
        ),
        _tir_infer,
        traits=frozenset({"calls_loops", "may_alias"}),
    )
)
PACKED: tuple[Trait, ...] = ("calls_packed", "may_alias")
define(
    "call_dps_packed", params("func args"), _dps_packed_infer, traits=[*PACKED, "fills_outputs"]
)
define("call_pure_packed", params("func *args"), _packed_infer, traits=PACKED)
# A registered function with its arguments in a tuple, as `call_tir` has them.
define("call_py_func", params("func args"), _packed_infer, traits=PACKED)
# Registered functions get no context: there is no virtual machine to give them.
define("call_builtin_with_ctx", params("func args"), _packed_infer, pure=False, traits=PACKED)
define(
    "call_inplace_packed", params("func *args", inplace_indices=REQUIRED), _inplace_packed_infer,
    traits=PACKED,
)  # fmt: skip
define(
    "invoke_closure", params("closure args"), lambda c, t: _stated_type(c), pure=False,
    traits=["may_alias"],
)  # fmt: skip
define(
    "invoke_pure_closure", params("closure args"), lambda c, t: _stated_type(c),
    traits=["may_alias"],
)  # fmt: skip


# --- Closures, absent values ------------------------------------------------------------------


def _closure_infer(call: graph.Call, tys: TypesOf) -> Type:
    func, given = (tys[i] if i < len(tys) else None for i in range(2))
    if not isinstance(func, types.FuncType | types.ObjectType):
        raise fail(call, f"func must be a function, is {func}")
    if not isinstance(given, TupleType):
        raise fail(call, f"args must be a tuple, is {given}")
    params = func.params if isinstance(func, types.FuncType) else None
    if params is not None and len(given.fields) > len(params):
        raise fail(call, f"{len(given.fields)} values for a function of {len(params)} parameters")
    return types.ObjectType()


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A function with its last arguments, as a value."""

    func: Any
    args: tuple[Any, ...]

    def __call__(self, *rest: Any) -> Any:
        return self.func(*rest, *self.args)


# `invoke_closure(make_closure(f, (a,)), (b,))` is f(b, a).
define(
    "make_closure",
    params("func args"),
    _closure_infer,
    reference=BoundFunction,
    traits=["free", "may_alias"],
)
define(
    "null_value",
    params(""),
    lambda c, t: types.ObjectType(),
    reference=lambda: None,
    traits=["free"],
)


# --- Shapes as values -------------------------------------------------------------------------


def _same(x: Any) -> Any:
    return x


def _shape_of_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    return ShapeType(x.shape) if x.shape is not None else ShapeType(None, x.ndim)


def _tensor_to_shape_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "int64")
    if x.ndim not in (-1, 1):
        raise fail(call, f"x must have one dimension, is {x}")
    length = x.shape[0] if x.shape is not None else None
    return ShapeType(None, length.value if isinstance(length, expr.IntImm) else -1)


def _shape_to_tensor_infer(call: graph.Call, tys: TypesOf) -> Type:
    shape = tys[0] if tys else None
    if not isinstance(shape, ShapeType):
        raise fail(call, f"shape must be a shape, is {shape}")
    if shape.ndim < 0:
        return TensorType(None, "int64", 1)
    return TensorType((expr.const(shape.ndim),), "int64")


define("shape_of", params("x"), _shape_of_infer, reference=np.shape, traits=["free"])
define(
    "tensor_to_shape",
    params("x"),
    _tensor_to_shape_infer,
    reference=lambda x: tuple(int(v) for v in x),
)
define(
    "shape_to_tensor",
    params("shape"),
    _shape_to_tensor_infer,
    reference=lambda shape: np.array(shape, np.int64),
)


# --- size -------------------------------------------------------------------------------------


def _size_infer(call: graph.Call, tys: TypesOf) -> Type:
    tensor_arg(call, tys, 0)
    return TensorType((), "int64")


def _size_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: product(x.shape), "T_size")


define(
    "size",
    params("x"),
    _size_infer,
    emit=_size_emit,
    reference=lambda x: np.asarray(x.size, np.int64),
)


# --- Marks ------------------------------------------------------------------------------------

# The same value; what depends on it is not computed by `transform_params`.
define("builtin.stop_lift_params", params("x"), lambda c, t: tensor_arg(c, t, 0), reference=_same)


# --- Effects ----------------------------------------------------------------------------------


def _print_reference(*values: Any, format: str = "") -> tuple[()]:
    print(format.format(*values) if format else " ".join(map(str, values)))
    return ()


def _assert_infer(call: graph.Call, tys: TypesOf) -> Type:
    condition = tys[0] if tys else None
    scalar = isinstance(condition, TensorType) and condition.ndim in (-1, 0)
    if not scalar and not isinstance(condition, types.PrimType):
        raise fail(call, f"condition must be a bool scalar, is {condition}")
    dtype = condition.dtype  # type: ignore[union-attr]
    if dtype not in (None, "bool"):
        raise fail(call, f"condition must be a bool scalar, is {condition}")
    return TupleType(())


def _assert_reference(condition: Any, *values: Any, format: str = "") -> tuple[()]:
    if not bool(condition):
        raise AssertionError(format.format(*values) if format else "assert_op failed")
    return ()


define(
    "print",
    params("*values", format=""),
    lambda c, t: TupleType(()),
    reference=_print_reference,
    pure=False,
)
define(
    "assert_op",
    params("condition *format_args", format=""),
    _assert_infer,
    reference=_assert_reference,
    pure=False,
)

# The end of a phase in batches: an effect on their order alone, which pure functions may have.
define(
    "phase",
    "",
    lambda c, t: TupleType(()),
    reference=lambda: (),
    pure=False,
    traits=["free", "allocates"],
)
