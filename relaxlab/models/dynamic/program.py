"""Modules of networks, from texts that leave their weights out."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.ir.module import Module
from relaxlab.script import parse


def program(text: str, weights: Mapping[str, str], **sizes: float) -> Module:
    """Return the module of a text in which `{weights}` stands for the parameters of the weights,
    float32, and `{names}` for their names as arguments.

    `weights` has the shape of each as it is written, in which the names of `sizes` may stand.
    """
    declared = " ".join(f'{n}: R.Tensor(({s}), "float32"),' for n, s in weights.items())
    head = "".join(f"{name} = {size}\n" for name, size in sizes.items())
    return parse(head + text.replace("{weights}", declared).replace("{names}", ", ".join(weights)))
