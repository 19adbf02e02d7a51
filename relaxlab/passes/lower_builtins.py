"""Operators on memory, shapes and closures become calls of the functions that compute them."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type, map_blocks, with_bindings

CALL_WITH_CONTEXT = graph.Op("call_builtin_with_ctx")
_ZERO = graph.PrimValue(expr.const(0))


@module_pass("lower_builtins", needs=("normalize",))
def lower_builtins(mod: Module, _: NoOptions) -> Module:
    """Write operators that change no elements as calls of registered functions (`vm.builtin.`…),
    and storages as those of a virtual machine (`vm.alloc_storage`)."""

    def binding(b: graph.Binding) -> graph.Binding:
        call = b.value
        if not isinstance(b, graph.VarBinding) or not isinstance(call, graph.Call):
            return b
        lower = LOWERED.get(call.op.name) if isinstance(call.op, graph.Op) else None
        return b if lower is None else replace(b, value=replace(lower(call, b.var), span=call.span))

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [binding(b) for b in blk.bindings])

    return mod.with_functions({k: map_blocks(f, block) for k, f in mod.graph_functions().items()})


def packed(name: str, *args: graph.Expr, ty: types.Type | None) -> graph.Call:
    """The call of a registered function, with the type of its result."""
    return graph.Call(graph.ExternFunc(name), args, ty_args=() if ty is None else (ty,))


Lowering = Callable[[graph.Call, graph.Var], graph.Call]


def _function(name: str) -> Lowering:
    """The lowering to a registered function of the same arguments."""
    return lambda call, var: packed(f"vm.builtin.{name}", *call.args, ty=var.ty)


def _operator(name: str, order: tuple[int, ...], *defaults: graph.Expr) -> Lowering:
    """The lowering to an operator of the same arguments in another order, the last ones of which
    have defaults."""

    def lower(call: graph.Call, _: graph.Var) -> graph.Call:
        given = [call.args[i] for i in order if i < len(call.args)]
        missing = len(order) - len(given)
        return graph.Call(graph.Op(name), (*given, *defaults[len(defaults) - missing :]))

    return lower


def _storage(call: graph.Call, var: graph.Var) -> graph.Call:
    size, device, scope, dtype = call.args
    return graph.Call(graph.Op("vm.alloc_storage"), (size, device, dtype, scope))


def _view(call: graph.Call, var: graph.Var) -> graph.Call:
    """A view with the shape, dtype and offset in bytes that are stated, or those of the tensor."""
    x, *rest = call.args
    stated = [None if _is_absent(r) else r for r in rest]
    shape, dtype, offset = (*stated, None, None, None)[:3]
    ty = leaf_type(x)
    assert isinstance(ty, types.TensorType)
    if shape is None:
        shape = graph.ShapeExpr(ty.shape or ())
    if dtype is None:
        dtype = graph.DataTypeImm(ty.dtype or "void")
    args = (x, shape, dtype, offset or _ZERO)
    return packed("runtime.TVMTensorCreateView", *args, ty=None)


def _is_absent(e: graph.Expr) -> bool:
    """True for `null_value()`, and for a variable of any type, which holds it."""
    ty = leaf_type(e)
    return isinstance(e, graph.Call | graph.Tuple) or (
        isinstance(e, graph.Var) and isinstance(ty, types.ObjectType)
    )


def _closure(call: graph.Call, var: graph.Var) -> graph.Call:
    func, args = call.args
    given = args.fields if isinstance(args, graph.Tuple) else (args,)
    return packed("vm.builtin.make_closure", func, *given, ty=types.ObjectType())


def _invoked(call: graph.Call, var: graph.Var) -> graph.Call:
    closure, args = call.args
    given = args.fields if isinstance(args, graph.Tuple) else (args,)
    called = (graph.ExternFunc("vm.builtin.invoke_closure"), graph.Tuple((closure, *given)))
    return graph.Call(CALL_WITH_CONTEXT, called, ty_args=(var.ty or types.ObjectType(),))


LOWERED: dict[str, Lowering] = {
    "memory.alloc_storage": _storage,
    "memory.alloc_tensor": _operator("vm.alloc_tensor", (0, 1, 2, 3, 4), _ZERO),
    "memory.kill_storage": _operator("vm.kill_object", (0,)),
    "memory.kill_tensor": _operator("vm.kill_object", (0,)),
    "memory.view": _view,
    "memory.ensure_zero_offset": _function("ensure_zero_offset"),
    "reshape": _function("reshape"),
    "shape_of": _function("shape_of"),
    "tensor_to_shape": _function("tensor_to_shape"),
    "make_closure": _closure,
    "invoke_closure": _invoked,
}
"""By operator, the function that makes the call of what computes it."""
