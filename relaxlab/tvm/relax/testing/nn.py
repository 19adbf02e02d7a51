"""`tvm.relax.testing.nn`: modules whose calls emit into the function that is being built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import graph
from relaxlab.ir.module import Module as IRModule
from relaxlab.nn.optimizers import sizes_of
from relaxlab.ops.define import builder as op
from relaxlab.tvm import runtime, topi
from relaxlab.tvm.relax.block_builder import BlockBuilder
from relaxlab.tvm.relax.ty import TensorType


def _builder() -> BlockBuilder:
    current = BlockBuilder.current()
    if current is None:
        raise ValueError("no function is being built: use `with bb.function(name):`")
    return current


def emit(expr: Any, name_hint: str = "") -> graph.Var:
    """Bind a value in the function that is being built."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> graph.Var:
    """Bind a call of the loop function that tensor expressions describe."""
    return _builder().emit_te(func, *args, **kwargs)


def _marked(value: Any, how: str, mark: Callable[[graph.Expr, str], graph.Expr]) -> Any:
    """A value, or several, between a start and an end of what the backward pass repeats."""
    if isinstance(value, list | tuple):
        return [_marked(v, how, mark) for v in value]
    return mark(value, how) if isinstance(value, graph.Expr) else value


def _between(
    mark: Callable[[graph.Expr, str], graph.Expr], func: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    given = [_marked(a, "start_checkpoint", mark) for a in args]
    named = {k: _marked(a, "start_checkpoint", mark) for k, a in kwargs.items()}
    return _marked(func(*given, **named), "end_checkpoint", mark)


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The results of a function that the backward pass computes again."""
    return _between(lambda v, how: op(f"grad.{how}")(v), func, args, kwargs)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same, with the marks bound to variables."""

    def mark(value: graph.Expr, how: str) -> graph.Expr:
        var = value if isinstance(value, graph.Var) else emit(value)
        return emit(op(f"grad.{how}")(var), f"{var.name}_{'scp' if how[0] == 's' else 'ecp'}")

    return _between(mark, func, args, kwargs)


def Placeholder(shape: Any, dtype: str = "float32", name: str = "data") -> graph.Var:  # noqa: N802
    """A variable for an input, with a name of its own in the function that is being built."""
    if not isinstance(shape, list | tuple):
        raise TypeError(f"a shape is a list or tuple, not {shape!r}")
    current = BlockBuilder.current()
    return graph.Var(
        name if current is None else current.get_unique_name(name), TensorType(shape, dtype)
    )


def Parameter(shape: Any, dtype: str = "float32", name: str = "param") -> graph.Var:  # noqa: N802
    """A variable for a weight."""
    return Placeholder(shape, dtype, name)


class Module:
    """Base of the modules: `forward` says what a call emits."""

    def parameters(self) -> list[graph.Var]:
        """The weights of the module and of those that it holds."""
        return _weights(vars(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Emit a call."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _weights(held: Any) -> list[graph.Var]:
    match held:
        case graph.Var():
            return [held]
        case Module():
            return held.parameters()
        case dict():
            return [w for v in held.values() for w in _weights(v)]  # pyright: ignore
        case list() | tuple():
            return [w for v in held for w in _weights(v)]  # pyright: ignore
        case _:
            return []


class Sequential(Module):
    """Modules after each other."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, input: Any) -> Any:
        """Emit a call of each module on the result of the one before."""
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: Any) -> graph.Var:
        """Emit a call."""
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """The logarithm of softmax along the last axis."""

    def forward(self, input: Any) -> graph.Var:
        """Emit a call."""
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """x @ weight + bias."""

    def __init__(self, in_features: Any, out_features: Any, bias: bool = True) -> None:
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Any) -> graph.Var:
        """Emit a call."""
        product = emit_te(topi.matmul, input, self.weight)
        return product if self.bias is None else emit_te(topi.add, product, self.bias)


def init_params(mod: IRModule) -> list[Any]:
    """Zeros for the parameters of `main` whose names do not begin with "data". Raises ValueError
    where a shape is not constant."""
    main: Any = mod["main"]
    weights = [p for p in main.params if not p.name.startswith("data")]
    return [runtime.tensor(np.zeros(sizes_of(p), "float32")) for p in weights]
