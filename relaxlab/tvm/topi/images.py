"""Functions of `tvm.topi.image` whose arguments are not those of an operator of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.ops.te import Tensor
from relaxlab.tvm.topi.common import ints, op


def _resize(dims: int) -> Callable[..., Any]:
    layout_of = {2: "NCHW", 3: "NCDHW"}[dims]

    def resize(
        data: Tensor, roi: Any, size: Any, layout: str = layout_of, method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
        bicubic_alpha: float = -0.75, bicubic_exclude: int = 0, extrapolation_value: float = 0.0,
        out_dtype: str | None = None, output_shape: Any = None,
    ) -> Any:  # fmt: skip
        return op(
            f"image.resize{dims}d", data, tuple(ints(size, dims)), list(ints(roi)), layout, method,
            coordinate_transformation_mode, rounding_method, bicubic_alpha, bicubic_exclude,
            extrapolation_value, out_dtype,
        )  # fmt: skip

    resize.__name__ = f"resize{dims}d"
    return resize


resize2d, resize3d = _resize(2), _resize(3)


def affine_grid(data: Tensor, target_shape: Any, align_corners: bool = True) -> Any:
    """The places that matrices map the elements of an image to."""
    return op("image.affine_grid", data, tuple(ints(target_shape)), align_corners)


def grid_sample(
    data: Tensor, grid: Tensor, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = True,
) -> Any:  # fmt: skip
    """The values of an image at the places of a grid."""
    return op("image.grid_sample", data, grid, method, layout, padding_mode, align_corners)
