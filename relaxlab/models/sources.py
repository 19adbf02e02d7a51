"""Sources of the parameters of a model: the tensors of its file."""

from __future__ import annotations

from typing import Protocol

from relaxlab import nn
from relaxlab.models.weights import Source


class Layer(Protocol):
    """A layer with a weight, stored in a format of its own or as it is, and maybe a `bias`."""

    @property
    def weight(self) -> nn.Weight | nn.Parameter: ...


class Sources(dict[nn.Parameter, Source]):
    """The source of each parameter."""

    def note(self, layer: Layer, *tensors: str, is_shared: bool = False) -> None:
        """The layer's parameters are `.weight` and `.bias` of those tensors; the weight was noted
        before if it `is_shared`."""
        weight, bias = layer.weight, getattr(layer, "bias", None)
        fields = {"data": weight} if isinstance(weight, nn.Parameter) else {
            name: getattr(weight, name) for name in weight.fields
        }  # fmt: skip
        if not is_shared:
            names = tuple(f"{t}.weight" for t in tensors)
            self.update({p: Source(names, name) for name, p in fields.items()})
        if bias is not None:
            self[bias] = Source(tuple(f"{t}.bias" for t in tensors), "data")
