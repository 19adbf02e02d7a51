"""Keeping recurrent layers whole while PyTorch exports a program, which else writes out a step for
each element of the sequence it is exported with."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_LIBRARY = torch.library.Library("relaxlab", "DEF")
_ARGUMENTS = (
    "(Tensor x, Tensor[] states, Tensor[] weights, bool has_biases, int num_layers, "
    "float dropout, bool train, bool bidirectional, bool batch_first) -> "
)
_LIBRARY.define(f"lstm{_ARGUMENTS}(Tensor, Tensor, Tensor)")
for _name in LAYERS[1:]:
    _LIBRARY.define(f"{_name}{_ARGUMENTS}(Tensor, Tensor)")


def _shapes(
    x: Any, states: Sequence[Any], weights: Any, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """Results without data."""
    features = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:-1], features)), *(s.new_empty(s.shape) for s in states))


for _name in LAYERS:
    torch.library.register_fake(f"relaxlab::{_name}", _shapes, lib=_LIBRARY)


class WholeRecurrences(TorchFunctionMode):
    """While this is entered, recurrent layers of whole sequences are calls of one operator each."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        packed = len(args) > 3 and isinstance(args[3], list | tuple)
        if name not in LAYERS or func is not getattr(torch, name) or packed:
            return func(*args, **(kwargs or {}))
        x, states, *rest = args
        states = list(states) if isinstance(states, list | tuple) else [states]
        return getattr(torch.ops.relaxlab, name)(x, states, *rest)
