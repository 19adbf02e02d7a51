"""The modules that `nn` has ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.tvm.relax.frontend.nn import op
from relaxlab.tvm.relax.frontend.nn.core import Parameter, Tensor
from relaxlab.tvm.relax.frontend.nn.module import Module


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """x times the normal distribution at x."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Identity(Module):
    """x itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight^T + bias."""

    def __init__(
        self, in_features: Any, out_features: Any, bias: bool = True, dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        x = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return x if self.bias is None else x + self.bias


class Embedding(Module):
    """Rows of a table."""

    def __init__(self, num: Any, dim: Any, dtype: str | None = None) -> None:
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        flat = op.take(self.weight, op.reshape(x, [-1]), axis=0)
        return op.reshape(flat, [*x.shape, self.dim])


class RMSNorm(Module):
    """x divided by its root mean square, times the weight."""

    def __init__(
        self, hidden_size: int, axes: int | list[int], epsilon: float = 1e-5, bias: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.axes = epsilon, axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else op.add(out, self.bias)


class LayerNorm(Module):
    """x of mean 0 and variance 1, scaled and shifted."""

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if affine else None
        self.bias = Parameter((normalized_shape,), dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class GroupNorm(Module):
    """Groups of channels of mean 0 and variance 1, scaled and shifted."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: list[int] | None = None) -> Tensor:
        return op.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )


class _Conv(Module):
    rank: int
    convolve: Any

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: int = 1,
        padding: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        sizes = kernel_size if isinstance(kernel_size, Sequence) else [kernel_size] * self.rank
        self.weight = Parameter((out_channels, in_channels // groups, *sizes), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        convolve = type(self).convolve
        return convolve(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv1D(_Conv):
    """A convolution along one axis."""

    rank, convolve = 1, staticmethod(op.conv1d)


class Conv2D(_Conv):
    """A convolution along two axes."""

    rank, convolve = 2, staticmethod(op.conv2d)


class Conv3D(_Conv):
    """A convolution along three axes."""

    rank, convolve = 3, staticmethod(op.conv3d)


class ConvTranspose1D(Module):
    """A transposed convolution along one axis."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1,
        padding: int = 0, output_padding: int = 0, dilation: int = 1, groups: int = 1,
        bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        self.weight = Parameter((in_channels, out_channels // groups, kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.dilation, self.groups,
        )  # fmt: skip
