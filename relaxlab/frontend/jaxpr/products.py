"""Rows of matrix products and convolutions."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.jaxpr.rows import dtype_of_out, row
from relaxlab.frontend.jaxpr.shapes import along, pad
from relaxlab.frontend.known import Known
from relaxlab.frontend.table import Refused
from relaxlab.ir import graph
from relaxlab.ir.dtypes import is_float

HALF = ("float16", "bfloat16")


@row("dot_general")
def dot_general(
    b: Emitter, x: graph.Expr, y: graph.Expr, *, dimension_numbers: Any, **_: Any
) -> graph.Expr:
    """A product of matrices where the dimensions are in the order of one, else a contraction."""
    (left, right), (batch_x, batch_y) = dimension_numbers
    wanted = dtype_of_out(b)
    accumulated = wanted if dtype_of(x) in HALF else dtype_of(x)
    if dtype_of(x) != dtype_of(y) or (not is_float(wanted) and wanted != dtype_of(x)):
        x, y = b.cast(x, wanted), b.cast(y, wanted)
        accumulated = wanted
    nx, ny = len(shape_of(x)), len(shape_of(y))
    lead = tuple(range(len(batch_x)))
    leading = tuple(batch_x) == tuple(batch_y) == lead
    if leading and tuple(left) == (nx - 1,) and len(right) == 1:
        matrices = nx - len(lead) >= 1 and ny == len(lead) + 2
        if matrices and (not lead or nx == ny):
            if right[0] == ny - 2:
                return b.cast(b.matmul(x, y, out_dtype=accumulated), wanted)
            if not lead and ny == 2:
                return b.cast(b.linear(x, y, out_dtype=accumulated), wanted)
    text = _subscripts(nx, ny, left, right, batch_x, batch_y)
    if dtype_of(x) in HALF and wanted != dtype_of(x):
        x, y = b.cast(x, wanted), b.cast(y, wanted)
    return b.cast(b.einsum((x, y), subscripts=text), wanted)


def _subscripts(
    nx: int, ny: int, left: Any, right: Any, batch_x: Sequence[int], batch_y: Sequence[int]
) -> str:
    letters = iter(string.ascii_letters)
    xs = [next(letters) for _ in range(nx)]
    ys = [next(letters) for _ in range(ny)]
    for i, j in zip((*left, *batch_x), (*right, *batch_y), strict=True):
        ys[j] = xs[i]
    free_x = [c for d, c in enumerate(xs) if d not in (*left, *batch_x)]
    free_y = [c for d, c in enumerate(ys) if d not in (*right, *batch_y)]
    result = [*(xs[d] for d in batch_x), *free_x, *free_y]
    return f"{''.join(xs)},{''.join(ys)}->{''.join(result)}"


# --- Convolutions -----------------------------------------------------------------------------

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _layout(spec: Sequence[int], first: str, second: str) -> str:
    """The letters of dimensions that JAX gives as (first, second, spatial...)."""
    rank = len(spec) - 2
    if rank not in SPATIAL:
        raise Refused(f"a convolution of {rank} spatial dimensions")
    places = dict(zip(spec, (first, second, *SPATIAL[rank]), strict=True))
    return "".join(places[d] for d in range(len(spec)))


@row("conv_general_dilated")
def convolution(
    b: Emitter, x: graph.Expr, w: graph.Expr, *, window_strides: Any, padding: Any,
    lhs_dilation: Any, rhs_dilation: Any, dimension_numbers: Any, feature_group_count: int,
    batch_group_count: int, **_: Any,
) -> graph.Expr:  # fmt: skip
    numbers = dimension_numbers
    groups = int(feature_group_count)
    if batch_group_count > 1:
        x, groups = _batch_as_features(b, x, numbers.lhs_spec, batch_group_count), batch_group_count
    x, pads = _padded(b, x, numbers.lhs_spec, padding, lhs_dilation)
    rank = len(numbers.lhs_spec) - 2
    result = getattr(b, f"conv{rank}d")(
        x, w, strides=tuple(map(int, window_strides)), dilation=tuple(map(int, rhs_dilation)),
        padding=pads, groups=groups, out_dtype=dtype_of_out(b),
        data_layout=_layout(numbers.lhs_spec, "N", "C"),
        kernel_layout=_layout(numbers.rhs_spec, "O", "I"),
        out_layout=_layout(numbers.out_spec, "N", "C"),
    )  # fmt: skip
    return b.cast(result, dtype_of_out(b))


def _padded(
    b: Emitter, x: graph.Expr, spec: Sequence[int], padding: Any, dilation: Any
) -> tuple[graph.Expr, tuple[int, ...]]:
    """The data, and the padding that is left to the convolution: widths that are no positive
    numbers, and gaps between elements, are a padding of the data."""
    simple = all(isinstance(w, int) and w >= 0 for pair in padding for w in pair)
    if simple and all(int(d) == 1 for d in dilation):
        befores, afters = zip(*padding, strict=True) if len(padding) else ((), ())
        return x, (*befores, *afters)
    config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * len(spec)
    for d, (low, high), gap in zip(spec[2:], padding, dilation, strict=True):
        config[d] = (low, high, int(gap) - 1)
    return pad(b, x, Known.of(0, dtype_of(x)), config), (0,) * (2 * len(padding))


def _batch_as_features(b: Emitter, x: graph.Expr, spec: Sequence[int], groups: int) -> graph.Expr:
    """The data with `groups` parts of its batch as groups of its features: each part meets
    filters of its own."""
    batch, features = spec[:2]
    size = shape_of(x)[batch] // groups
    parts = [along(b, x, batch, size * i, size * (i + 1)) for i in range(groups)]
    return b.concat(parts, axis=features)
