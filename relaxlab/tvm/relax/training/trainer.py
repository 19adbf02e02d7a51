"""`Trainer`, which holds the parameters and states of a model and updates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.nn.optimizers import sizes_of
from relaxlab.tvm import runtime


class _Values:
    """Arrays for variables, by position and name; None where one was not set."""

    def __init__(self, what: str, variables: tuple[graph.Var, ...], device: Any) -> None:
        self.what, self.variables, self.device = what, variables, device
        self.arrays: list[Any] = [None] * len(variables)

    def fill(self, make: Any) -> None:
        """Set each to `make(sizes)`, in the dtype of its variable."""
        for i, v in enumerate(self.variables):
            array = np.asarray(make(sizes_of(v))).astype(str(v.ty.dtype))  # type: ignore[union-attr]
            self.arrays[i] = runtime.tensor(array, self.device)

    def load(self, given: Any) -> None:
        """Set all from a list, or some from a dictionary by name."""
        if isinstance(given, Mapping):
            places = {v.name: i for i, v in enumerate(self.variables)}
            for name, value in given.items():
                if name not in places:
                    raise ValueError(f"{self.what} {name!r} is not among: {', '.join(places)}")
                self.arrays[places[name]] = runtime.tensor(value, self.device)
        elif isinstance(given, list) and len(given) == len(self.variables):
            self.arrays = [runtime.tensor(value, self.device) for value in given]
        else:
            raise ValueError(
                f"a dictionary, or a list of {len(self.variables)} {self.what}s, is expected"
            )

    def named(self) -> dict[str, Any]:
        """The arrays by name."""
        return {v.name: a for v, a in zip(self.variables, self.arrays, strict=True)}

    def ready(self) -> list[Any]:
        """The arrays. Raises RuntimeError where one was not set."""
        for v, array in zip(self.variables, self.arrays, strict=True):
            if array is None:
                raise RuntimeError(f"{self.what} {v.name!r} has no value yet")
        return self.arrays


class Trainer:
    """Trains the model of a module that `SetupTrainer` made, which `vm` runs."""

    def __init__(
        self, train_mod: Module, vm: Any, device: Any, zero_init_param_state: bool = True
    ) -> None:
        self.mod, self.vm, self.device = train_mod, vm, device
        attrs = train_mod.attrs
        inputs, params, states = (int(attrs[f"{k}_num"]) for k in ("input", "param", "state"))
        self._inputs = inputs
        adjoint: Any = train_mod["backbone_loss_adjoint"]
        given = adjoint.params[inputs : inputs + params + states]
        self._params = _Values("parameter", given[:params], device)
        self._states = _Values("state", given[params:], device)
        self._optim_state: Any = [runtime.tensor(a, device) for a in attrs["optim_state"]]
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    def xaiver_uniform_init_params(self) -> None:
        """Draw the parameters as Glorot and Bengio (2010) do; the name is TVM's."""
        self._params.fill(
            lambda sizes: np.sqrt(6.0 / sum(sizes)) * np.random.uniform(-1.0, 1.0, sizes)
        )

    def zero_init_params(self) -> None:
        """Set all parameters to zero."""
        self._params.fill(np.zeros)

    def zero_init_states(self) -> None:
        """Set all states to zero."""
        self._states.fill(np.zeros)

    def load_params(self, params: Any) -> None:
        """Set the parameters, from a list or by name."""
        self._params.load(params)

    def load_states(self, states: Any) -> None:
        """Set the states, from a list or by name."""
        self._states.load(states)

    def export_params(self) -> dict[str, Any]:
        """The parameters by name."""
        return self._params.named()

    def export_states(self) -> dict[str, Any]:
        """The states by name."""
        return self._states.named()

    def predict(self, *input_instances: Any) -> Any:
        """The results of the model for inputs, without its states."""
        given = self._arguments(input_instances)
        result = self.vm["backbone"](*given)
        count = len(self._states.variables)
        if not count:
            return result
        rest = result[:-count]
        return rest[0] if len(rest) == 1 else rest

    def update(self, input_instances: Any, targets: Any) -> Any:
        """Make a step, and return the loss before it. Several inputs or targets are a list."""
        inputs = input_instances if isinstance(input_instances, list) else [input_instances]
        wanted = targets if isinstance(targets, list) else [targets]
        last = [runtime.tensor(t, self.device) for t in wanted]
        result, gradients = self.vm["backbone_loss_adjoint"](*self._arguments(inputs), *last)
        if self._states.variables:
            result, *self._states.arrays = result
        params, self._optim_state = self.vm["optimizer"](
            tuple(self._params.arrays), tuple(gradients), tuple(self._optim_state)
        )
        self._params.arrays = list(params)
        return result

    def _arguments(self, inputs: Any) -> list[Any]:
        if len(inputs) != self._inputs:
            raise ValueError(f"the model takes {self._inputs} inputs, got {len(inputs)}")
        given = [runtime.tensor(i, self.device) for i in inputs]
        return [*given, *self._params.ready(), *self._states.ready()]
