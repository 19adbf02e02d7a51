"""Graph functions that update parameters by their gradients: one step of an optimizer.

    step = SGD(0.1).step(params)
    params, state = vm["step"](params, gradients, state)

`step` takes tuples of parameters, gradients and state, and returns the new parameters and the new
state, which `initial_state` begins. The first of the state is the number of steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.define import builder as op

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Optimizer(ABC):
    """Base of the optimizers. `lr` is the learning rate; `weight_decay` times the parameter is
    added to its gradient."""

    lr: float
    weight_decay: float = 0.0

    kept = 0
    """The arrays of the state per parameter, of its shape."""

    def decays(self) -> tuple[float, ...]:
        """The scalars of the state, which begin as 1, are multiplied by these at each step."""
        return ()

    def initial_state(self, params: Sequence[graph.Var]) -> tuple[Array, ...]:
        """The state before the first step. Raises ValueError as `checked_dtype`, and for parameters
        whose shapes are not constant."""
        dtype = numpy_dtype(checked_dtype(params))
        scalars = [np.zeros((), "int64"), *(np.ones((), dtype) for _ in self.decays())]
        return (*scalars, *(np.zeros(sizes_of(p), dtype) for _ in range(self.kept) for p in params))

    def step(self, params: Sequence[graph.Var], name: str = "step") -> graph.Function:
        """The function of a step. Raises ValueError as `checked_dtype`."""
        dtype = checked_dtype(params)
        tys = tuple(p.ty for p in params if p.ty is not None)
        scalar = types.TensorType((), dtype)
        held = (types.TensorType((), "int64"), *(scalar for _ in self.decays()), *tys * self.kept)
        given = (("params", tys), ("gradients", tys), ("optim_states", held))
        weights, gradients, state = (graph.Var(n, types.TupleType(t)) for n, t in given)
        bb = BlockBuilder()
        with bb.function(name, [weights, gradients, state]):
            with bb.dataflow():
                step = _Step(self, bb, dtype, state)
                for i, p in enumerate(params):
                    step.update(p.name, weights, gradients, i, len(params))
                new = bb.emit_output(graph.Tuple(tuple(step.params)), "params_new")
                after = bb.emit_output(graph.Tuple(tuple(step.state())), "optim_states_new")
            bb.emit_func_output(graph.Tuple((new, after)))
        made = bb.get()[name]
        assert isinstance(made, graph.Function)
        return made

    @abstractmethod
    def updated(
        self, step: _Step, name: str, p: graph.Expr, g: graph.Expr, kept: tuple[graph.Expr, ...]
    ) -> tuple[graph.Expr, tuple[graph.Expr, ...]]:
        """The new value of a parameter, and its new arrays of the state."""


class _Step:
    """The function of a step under construction."""

    def __init__(self, by: Optimizer, bb: BlockBuilder, dtype: str, state: graph.Var) -> None:
        self.by, self.bb, self.dtype, self.old = by, bb, dtype, state
        count = bb.emit(graph.TupleGetItem(state, 0), "num_steps")
        one = graph.Constant(np.asarray(1, "int64"))
        self.scalars = [bb.emit(op("add")(count, one), "num_steps_new")]
        for i, factor in enumerate(by.decays(), 1):
            product = op("multiply")(graph.TupleGetItem(state, i), self.number(factor))
            self.scalars.append(bb.emit(product, f"beta{i}_prod"))
        self.params: list[graph.Expr] = []
        self.kept: list[tuple[graph.Expr, ...]] = []

    def number(self, value: float) -> graph.Constant:
        """A scalar of the dtype of the parameters."""
        return graph.Constant(np.asarray(value, numpy_dtype(self.dtype)))

    def scaled(self, factor: float, value: graph.Expr) -> graph.Expr:
        """A multiple of a value."""
        return op("multiply")(self.number(factor), value)

    def update(
        self, name: str, weights: graph.Var, gradients: graph.Var, i: int, count: int
    ) -> None:
        """Emit the update of the parameter number `i` of `count`."""
        p: graph.Expr = self.bb.emit(graph.TupleGetItem(weights, i), name)
        g: graph.Expr = self.bb.emit(graph.TupleGetItem(gradients, i), f"{name}_grad")
        first = len(self.scalars)
        letters = ("v",) if self.by.kept == 1 else ("m", "v")[: self.by.kept]
        kept = tuple(
            self.bb.emit(graph.TupleGetItem(self.old, first + i + k * count), f"{name}_{letter}")
            for k, letter in enumerate(letters)
        )
        if self.by.weight_decay:
            decayed = op("add")(self.scaled(self.by.weight_decay, p), g)
            g = self.bb.emit(decayed, f"{name}_grad_new")
        new, arrays = self.by.updated(self, name, p, g, kept)
        self.params.append(self.bb.emit(new, f"{name}_new"))
        self.kept.append(arrays)

    def state(self) -> list[graph.Expr]:
        """The new state."""
        return [*self.scalars, *(arrays[k] for k in range(self.by.kept) for arrays in self.kept)]


def checked_dtype(params: Sequence[graph.Var]) -> str:
    """The dtype of parameters. Raises ValueError for what is no tensor of floating-point numbers,
    for parameters of several dtypes, and for one that is there twice."""
    found: str | None = None
    for i, p in enumerate(params):
        if not isinstance(p, graph.Var):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"an optimizer updates variables, not {p}")
        dtype = p.ty.dtype if isinstance(p.ty, types.TensorType) else None
        if dtype is None or not is_float(dtype):
            raise ValueError(f"parameter {p.name} is no tensor of floats: its type is {p.ty}")
        if found is not None and dtype != found:
            raise ValueError(f"parameter {p.name} has dtype {dtype}, those before it {found}")
        if p in params[:i]:
            raise ValueError(f"parameter {p.name} is given twice")
        found = dtype
    if found is None:
        raise ValueError("an optimizer needs parameters to update")
    return found


def sizes_of(p: graph.Var) -> tuple[int, ...]:
    """The sizes of a parameter. Raises ValueError where they are not constant."""
    shape = p.ty.shape if isinstance(p.ty, types.TensorType) else None
    if shape is None or not all(isinstance(d, expr.IntImm) for d in shape):
        raise ValueError(f"the shape of parameter {p.name} is not constant: {p.ty}")
    return tuple(int(d.value) for d in shape)  # type: ignore[attr-defined]


def _rest(part: float) -> float:
    """1 - part, in decimal digits: 0.1 of 0.9."""
    return float(1 - Decimal(str(part)))


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: p - lr * g."""

    def updated(
        self, step: _Step, name: str, p: graph.Expr, g: graph.Expr, kept: tuple[graph.Expr, ...]
    ) -> tuple[graph.Expr, tuple[graph.Expr, ...]]:
        """The new value of a parameter, and its new arrays of the state."""
        return op("subtract")(p, step.scaled(self.lr, g)), ()


@dataclass(frozen=True)
class MomentumSGD(Optimizer):
    """Gradient descent by a velocity, v = momentum * v + (1 - dampening) * g, or by that of the
    next step with `nesterov` (Sutskever et al., 2013)."""

    momentum: float = 0.9
    dampening: float = 0.0
    nesterov: bool = False
    kept = 1

    def updated(
        self, step: _Step, name: str, p: graph.Expr, g: graph.Expr, kept: tuple[graph.Expr, ...]
    ) -> tuple[graph.Expr, tuple[graph.Expr, ...]]:
        """The new value of a parameter, and its new arrays of the state."""
        part = step.scaled(_rest(self.dampening), g) if self.dampening else g
        v = step.bb.emit(op("add")(step.scaled(self.momentum, kept[0]), part), f"{name}_v_new")
        way: graph.Expr = v
        if self.nesterov:
            way = step.bb.emit(op("add")(g, step.scaled(self.momentum, v)), f"{name}_g_nest")
        return op("subtract")(p, step.scaled(self.lr, way)), (v,)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): steps by running means of gradients and of their squares."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    kept = 2

    def decays(self) -> tuple[float, ...]:
        """The scalars of the state, which begin as 1, are multiplied by these at each step."""
        return self.betas

    def updated(
        self, step: _Step, name: str, p: graph.Expr, g: graph.Expr, kept: tuple[graph.Expr, ...]
    ) -> tuple[graph.Expr, tuple[graph.Expr, ...]]:
        """The new value of a parameter, and its new arrays of the state."""
        means: list[graph.Expr] = []
        values = (g, op("multiply")(g, g))
        for old, beta, value, letter in zip(kept, self.betas, values, "mv", strict=True):
            mean = op("add")(step.scaled(beta, old), step.scaled(_rest(beta), value))
            means.append(step.bb.emit(mean, f"{name}_{letter}_new"))
        hats: list[graph.Expr] = []
        for mean, product, letter in zip(means, step.scalars[1:], "mv", strict=True):
            hat = op("divide")(mean, op("subtract")(step.number(1), product))
            hats.append(step.bb.emit(hat, f"{name}_{letter}_hat"))
        root = op("add")(op("sqrt")(hats[1]), step.number(self.eps))
        return op("subtract")(p, step.scaled(self.lr, op("divide")(hats[0], root))), tuple(means)
