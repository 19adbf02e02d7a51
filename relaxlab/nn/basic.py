"""Small layers under the names that PyTorch gives them."""

from __future__ import annotations

from typing import Any, Literal

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.errors import expect_number
from relaxlab.ir.plain import plain
from relaxlab.nn.builder import Parameter, Tensor
from relaxlab.nn.initial import uniform_fan_in
from relaxlab.nn.module import Module, ModuleList


@methods_name_arguments
class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.op("nn.relu")


@methods_name_arguments
class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.op("nn.silu")


@methods_name_arguments
class GELU(Module):
    """x times the normal distribution's probability of less than x; "tanh" approximates it."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is {approximate!r}; it is 'none' or 'tanh'")
        self.operator = "nn.gelu_tanh" if approximate == "tanh" else "nn.gelu"

    def forward(self, x: Tensor) -> Tensor:
        return x.op(self.operator)


@methods_name_arguments
class Sequential(ModuleList):
    """Modules that are called one after the other, each with the result of the one before."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


@methods_name_arguments
class Conv2d(Module):
    """A convolution of images x (n, in_channels, h, w), which gives (n, out_channels, h', w').

    weight: (out_channels, in_channels / groups, kh, kw), bias: (out_channels,). `kernel_size`,
    `stride`, `padding` (zeros on either side) and `dilation` are one number, or one for rows and
    one for columns.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        """ValueError for channels that `groups` does not divide."""
        counts = {"in_channels": in_channels, "out_channels": out_channels, "groups": groups}
        for name, count in counts.items():
            expect_number(count, f"{name} is a whole number", whole=True)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{groups} groups do not divide {in_channels} and {out_channels} channels"
            )
        rows, columns = _pair(kernel_size)
        initial = uniform_fan_in(in_channels // groups * rows * columns)
        shape = (out_channels, in_channels // groups, rows, columns)
        self.weight, self.channels = Parameter(shape, initial=initial), out_channels
        self.bias = Parameter((out_channels,), initial=initial) if bias else None
        self.window = {
            "strides": _pair(stride), "padding": _pair(padding), "dilation": _pair(dilation),
            "groups": groups,
        }  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = x.op("nn.conv2d", x.builder.weight(self.weight), **self.window)
        if self.bias is None:
            return y
        return y + x.builder.weight(self.bias).reshape(1, self.channels, 1, 1)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    given = plain(value)
    return (given, given) if isinstance(given, int) else given
