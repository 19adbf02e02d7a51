"""`tvm.relax.BlockBuilder`: the core's builder with TVM's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import NO_ATTRS, Attrs
from relaxlab.ir.types import Type
from relaxlab.ops import block_builder as core
from relaxlab.script.type_values import as_type
from relaxlab.tvm.accessors import name_of, with_attr
from relaxlab.tvm.error import inference_errors

_CURRENT: ContextVar[BlockBuilder | None] = ContextVar("relaxlab_tvm_builder", default=None)


def _sequence(values: Any) -> tuple[Any, ...]:
    """Several values, or one of them alone."""
    if values is None:
        return ()
    if isinstance(values, graph.Tuple):
        return values.fields
    return tuple(values) if isinstance(values, list | tuple) else (values,)


def _value(value: Any) -> Any:
    return graph.Tuple(tuple(map(_value, value))) if isinstance(value, list | tuple) else value


class BlockBuilder(core.BlockBuilder):
    """Builds the functions of a module call by call."""

    def __init__(self, mod: Module | None = None) -> None:
        super().__init__(mod)
        self._names = UniqueNames(())

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function is being built."""
        return _CURRENT.get()

    @contextmanager
    def function(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        params: Any = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """Build a function; `emit_func_output` may give its parameters."""
        token = _CURRENT.set(self)
        try:
            with super().function(
                name,
                _sequence(params),
                NO_ATTRS if attrs is None else Attrs(dict(attrs)),
                private=private,
                is_pure=pure,
            ):
                yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def testing_scope(self, def_vars: Sequence[Any]) -> Iterator[None]:
        """A function that is thrown away: `emit` works inside."""
        self.begin_scope()
        try:
            yield
        finally:
            self.end_scope()

    def begin_scope(self, params: Sequence[graph.Var] | None = None) -> None:
        """Begin a scope of variables."""
        self.begin_function("", params or ())

    def end_scope(self) -> None:
        """End the scope that was begun last."""
        self._scopes.pop()

    def emit(self, expr: Any, name_hint: str = "", *, name: str = "") -> graph.Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Bind a value and return its variable."""
        with inference_errors():
            return super().emit(_value(expr), name_hint or name)

    def emit_output(self, output: Any, name_hint: str = "") -> graph.Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Bind a value that is to be visible after its dataflow block."""
        with inference_errors():
            return super().emit_output(_value(output), name_hint)

    def emit_func_output(self, output: Any, params: Any = None) -> graph.GlobalVar:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Let the function being built return a value; `params` are its parameters."""
        if params is not None:
            self._scope.params = _sequence(params)
        super().emit_func_output(_value(output))
        return graph.GlobalVar(self._scope.name)

    def emit_normalized(self, binding: graph.Binding) -> None:
        """Append a binding as it is."""
        self._sequence.bindings.append(binding)
        if isinstance(binding, graph.VarBinding):
            self._values[binding.var] = binding.value

    def match_cast(self, value: Any, struct_info: Any, name_hint: str = "") -> graph.Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Claim that a value has a type."""
        return super().match_cast(value, as_type(struct_info), name_hint)

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> graph.Call:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A call of the loop function that tensor expressions describe."""
        hint = kwargs.pop("primfunc_name_hint", None) or ""
        attrs = kwargs.pop("primfunc_attrs", None)
        call = super().call_te(func, *args, name=hint, **kwargs)
        if attrs:
            callee = call.args[0].name
            self.update_function(callee, with_attr(self.get()[callee], attrs))
        return call

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> graph.Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Bind what `call_te` returns."""
        hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), hint)

    def type_of(self, value: graph.Expr, *, computable: bool = False) -> Type:
        """The type of an expression; as in TVM, also of one that cannot be computed: what compiles
        the function refuses it."""
        return super().type_of(value, computable=computable)

    def normalize(self, expr: graph.Expr) -> graph.Expr:
        """The expression itself, whose type is known. Raises where it has none."""
        with inference_errors():
            self.type_of(expr)
        return expr

    @contextmanager
    def nested_sequence(self) -> Iterator[core.BlockSequence]:
        """A sequence of blocks inside the present one."""
        sequence = core.BlockSequence(dataflow=False)
        self._scope.sequences.append(sequence)
        try:
            yield sequence
        finally:
            self._scope.sequences.pop()

    def as_value(self, expr: Any) -> graph.Expr:
        """The expression with what it nests bound before it; blocks of bindings become part of the
        present block."""
        if isinstance(expr, graph.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    self.emit_normalized(binding)
            expr = expr.body
        return self.flatten(_value(expr))

    def as_operand(self, expr: Any) -> graph.Expr:
        """A variable or another expression without parts to compute."""
        return self._atom(self.as_value(expr))

    @property
    def values(self) -> Mapping[graph.Var, graph.Expr]:
        """The values of the variables that were bound."""
        return self._values

    def add_func(self, func: BaseFunc, func_name: str) -> graph.GlobalVar:
        """Add a function, under a name of its own where the name is taken."""
        name = func_name
        if not isinstance(func, PrimFunc):
            name = self.get().fresh_name(func_name)
        return self.add_function(name, func)

    def update_func(self, gv: graph.GlobalVar, updated_func: BaseFunc) -> None:
        """Replace a function, or add it where there is none of its name."""
        name = name_of(gv)
        if name in self.get():
            self.update_function(name, updated_func)
        else:
            self.add_function(name, updated_func)

    def get_unique_name(self, name_prefix: str) -> str:
        """A name that was not given before."""
        return self._names(name_prefix)

    def current_block_is_dataflow(self) -> bool:
        """True inside a dataflow block."""
        return self._sequence.dataflow

    def finalize(self) -> Module:
        """The module built so far."""
        return self.get()
