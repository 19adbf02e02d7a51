"""Optimizers with TVM's arguments: `SGD(0.1).init(params).get_function()`."""

from __future__ import annotations

from typing import Any, ClassVar

from relaxlab.ir import graph
from relaxlab.nn import optimizers as core
from relaxlab.tvm import runtime
from relaxlab.tvm.accessors import with_attr


class Optimizer:
    """Updates parameters, of which `init` is told; `state` is what a step goes on from."""

    name: ClassVar[str]

    def __init__(self, by: core.Optimizer) -> None:
        self._by = by
        self.param_list: list[graph.Var] | None = None
        self.dtype: str | None = None
        self.state: tuple[runtime.Tensor, ...] | None = None

    def __getattr__(self, name: str) -> Any:
        if "_by" not in self.__dict__:  # while a copy is made
            raise AttributeError(name)
        return getattr(self._by, name)

    def init(self, params: graph.Var | list[graph.Var]) -> Optimizer:
        """Set the parameters. Raises ValueError for others than tensors of one dtype of floats."""
        self.param_list = list(params) if isinstance(params, list | tuple) else [params]
        self.dtype = core.checked_dtype(self.param_list)
        state = self._by.initial_state(self.param_list)
        self.state = tuple(runtime.tensor(a) for a in state)
        return self

    def get_function(self) -> graph.Function:
        """The function of a step. Raises RuntimeError before `init`."""
        if self.param_list is None:
            raise RuntimeError("call init() with the parameters before get_function()")
        return with_attr(self._by.step(self.param_list, self.name), "global_symbol", self.name)


class SGD(Optimizer):
    """Stochastic gradient descent."""

    name = "SGD"

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__(core.SGD(lr, weight_decay))


class MomentumSGD(Optimizer):
    """Gradient descent with momentum."""

    name = "MomentumSGD"

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(core.MomentumSGD(lr, weight_decay, momentum, dampening, nesterov))


class Adam(Optimizer):
    """Adam."""

    name = "Adam"

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08,
        weight_decay: float = 0,
    ) -> None:  # fmt: skip
        super().__init__(core.Adam(lr, weight_decay, betas, eps))
