"""Effects of `nn`: states that exported functions take after their inputs, and return changed."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relaxlab.ir import expr, graph, types
from relaxlab.ir.node import Attrs
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.relax.frontend.nn.core import Tensor, get_default_dtype, unwrap

_ANY = types.ObjectType()
_IO: ContextVar[IOEffect | None] = ContextVar("io", default=None)


class Effect(ABC):
    """A state with one value, which the function being built has, or changed."""

    value: graph.Expr | None = None

    @abstractmethod
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[graph.Var]:
        """Bind the state's first value."""

    def create(self, name_hint: str) -> list[graph.Var]:
        """The parameters for the state's values."""
        self.value = graph.Var(name_hint, _ANY)
        return [self.value]

    def set_state(self, state_vars: Sequence[graph.Expr]) -> None:
        """Use these values from now on."""
        (self.value,) = state_vars

    def finalize(self) -> list[graph.Expr]:
        """The values at the end, which are forgotten."""
        assert self.value is not None
        found, self.value = self.value, None
        return [found]

    def to(self, dtype: str | None = None) -> None:  # noqa: B027 - most states have no dtype
        """Change the dtype of what the state holds."""


class IOEffect(Effect):
    """The order of what is printed."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[graph.Var]:
        return [builder.emit(graph.Call(graph.Op("null_value"), ()), name_hint)]


class KVCache(Effect):
    """Rows of a shape and dtype, to which calls append; it begins with room for so many."""

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        self.init_seq_len, self.unit_shape = init_seq_len, list(unit_shape)
        self.dtype = dtype or get_default_dtype()

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[graph.Var]:
        shape = _shape(self.init_seq_len, *self.unit_shape)
        zeros = builder.emit(graph.Call(graph.Op("zeros"), (shape,), Attrs(dtype=self.dtype)))
        empty = graph.PrimValue(expr.const(0))
        made = _packed("vm.builtin.attention_kv_cache_create", zeros, shape, empty)
        return [builder.emit(made, name_hint)]

    def to(self, dtype: str | None = None) -> None:
        self.dtype = dtype or self.dtype

    def append(self, new_element: Tensor) -> None:
        """Add rows at the end. Raises TypeError for a tensor of another dtype."""
        if new_element.dtype != self.dtype:
            raise TypeError(f"the cache has {self.dtype}, and is given {new_element.dtype}")
        func = graph.ExternFunc("vm.builtin.attention_kv_cache_append")
        args = (func, self._held(), unwrap(new_element))
        changed = graph.Call(
            graph.Op("call_inplace_packed"), args, Attrs(inplace_indices=(0,)), (_ANY,)
        )
        self.value = _builder().emit(changed)

    def view(self, seq_len: Any) -> Tensor:
        """The first rows, so many."""
        shape = _shape(seq_len, *self.unit_shape)
        ty = types.TensorType(shape.values, self.dtype)
        name = "vm.builtin.attention_kv_cache_view"
        return Tensor(_expr=_builder().emit(_packed(name, self._held(), shape, ty=ty)))

    def _held(self) -> graph.Expr:
        if self.value is None:
            raise ValueError("a cache is used while a module is exported (export_tvm)")
        return self.value


def _shape(*dims: Any) -> graph.ShapeExpr:
    return graph.ShapeExpr(tuple(expr.as_expr(d) for d in dims))


def _packed(name: str, *args: graph.Expr, ty: types.Type = _ANY) -> graph.Call:
    called = (graph.ExternFunc(name), *args)
    return graph.Call(graph.Op("call_pure_packed"), called, ty_args=(ty,))


def _builder() -> BlockBuilder:
    found = BlockBuilder.current()
    if found is None:
        raise ValueError("operators of nn are called while a module is exported (export_tvm)")
    return found


# --- Printing and debugging -----------------------------------------------------------------------


@contextmanager
def printing(io: IOEffect | None) -> Iterator[None]:
    """Let operators print by an effect."""
    token = _IO.set(io)
    try:
        yield
    finally:
        _IO.reset(token)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Call a registered function with the place in the program and arguments. Raises ValueError
    where the module is not exported with `debug=True`."""
    io = _IO.get()
    if io is None or io.value is None:
        raise ValueError("debug_func and print_ need export_tvm(spec, debug=True)")
    if _line_info is None:
        caller = sys._getframe(1)
        _line_info = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    given = [_argument(a) for a in args]
    place = graph.StringImm(name), graph.StringImm(_line_info)
    made = _packed("vm.builtin.invoke_debug_func", io.value, *place, *given)
    io.value = _builder().emit(made, "_io")


def _argument(value: Any) -> graph.Expr:
    match value:
        case str():
            return graph.StringImm(value)
        case int() | float():
            return graph.PrimValue(expr.const(value, "int64" if type(value) is int else "float64"))
        case expr.PrimExpr():
            return graph.PrimValue(value)
        case _:
            return unwrap(value)


def print_(tensor: Tensor) -> None:
    """Print a tensor when the function runs."""
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    debug_func("vm.builtin.debug_print", tensor, _line_info=place)
