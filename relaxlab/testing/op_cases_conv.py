"""Uses of convolutions and pooling, for `check_op`."""

from __future__ import annotations

from relaxlab.testing.op_check import OpCase, Shape, T

HALVES = ("float16", "bfloat16")


def conv() -> list[OpCase]:
    """Convolutions and their transposes."""
    n = ({"n": 2}, {"n": 1}, {"n": 0})
    hw = ({"h": 4, "w": 5}, {"h": 3, "w": 3}, {"h": 7, "w": 3})
    odd = {"strides": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2)}
    op, bytes_ = "nn.conv2d", {"dtype": "int8", "low": -9, "high": 9}
    cases = [
        OpCase("nn.conv1d", (T("n", 3, 8), T(4, 3, 3)), sizes=n),
        OpCase(
            "nn.conv1d",
            (T(2, "w", 4), T(3, 2, 6)),
            {
                "groups": 2, "padding": 2, "strides": 3,
                "data_layout": "NWC", "kernel_layout": "WIO",
            },
            ({"w": 6}, {"w": 1}),
        ),
        OpCase(op, (T(1, 2, "h", "w"), T(3, 2, 3, 3)), sizes=hw),
        OpCase(op, (T("n", 2, 5, 6), T(3, 2, 3, 2)), odd, n),
        OpCase(op, (T(1, "c", 4, 4), T("c", 1, 1, 1)), sizes=({"c": 1},)),
        OpCase(op, (T(1, 4, "h", "w"), T(4, 1, 3, 3)), {"groups": 4, "padding": 1}, hw),
        OpCase(
            op,
            (T(1, "h", "w", 2), T(2, 3, 2, 4)),
            {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NCHW", "padding": 1},
            hw,
        ),
        OpCase(op, (T(1, 3, 4, 4, **bytes_), T(2, 3, 3, 3, **bytes_)), {"out_dtype": "int32"}, n),
        OpCase("nn.conv3d", (T("n", 2, 3, 4, 3), T(2, 2, 2, 3, 1)), {"padding": (1, 0, 1)}, n),
    ]  # fmt: skip
    for d in (*HALVES, "float64"):
        cases.append(OpCase(op, (T("n", 2, 3, 3, dtype=d), T(2, 2, 2, 2, dtype=d)), sizes=n))
    return cases + _transposed(n, hw) + _blocked(n, hw)


def _blocked(n: tuple[dict[str, int], ...], hw: tuple[dict[str, int], ...]) -> list[OpCase]:
    """Channels in blocks."""
    both = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o"}
    out = {"out_layout": "NCHW2c"}
    grouped = {"groups": 2, "padding": 1, **out}
    return [
        OpCase("nn.conv2d", (T(1, 2, "h", "w", 4), T(3, 2, 3, 2, 4, 2)), {**both, **out}, hw),
        OpCase("nn.conv2d", (T("n", 4, 3, 5), T(4, 2, 2, 2)), grouped, n),
        OpCase("nn.conv2d", (T("n", 2, 5, 7, 4), T(4, 8, 1, 1)),
               {"data_layout": "NCHW4c", "strides": (2, 3), "padding": 1}, n),
        OpCase("nn.conv2d", (T("n", "c", 3, 3, 4), T(4, 4, 1, 1)), {"data_layout": "NCHW4c"},
               ({"n": 2, "c": 1},)),
        OpCase("nn.conv1d", (T("n", 2, 7, 3), T(2, 6, 2, 2)),
               {"data_layout": "NCW3c", "kernel_layout": "OIW2o", "out_layout": "NCW"}, n),
        OpCase("nn.conv2d_transpose", (T("n", 2, 3, 3, 2), T(4, 3, 2, 2)),
               {"data_layout": "NCHW2c", "out_layout": "NCHW", "strides": 2}, n),
    ]  # fmt: skip


def _transposed(n: tuple[dict[str, int], ...], hw: tuple[dict[str, int], ...]) -> list[OpCase]:
    op = "nn.conv2d_transpose"
    odd = {"strides": (2, 1), "padding": (1, 0, 1, 1), "dilation": (1, 2)}
    return [
        OpCase("nn.conv1d_transpose", (T("n", 3, 4), T(3, 2, 3)), {"strides": 2}, n),
        OpCase(
            "nn.conv1d_transpose",
            (T(1, "w", 4), T(3, 1, 4)),
            {
                "strides": 3, "output_padding": 2, "groups": 2,
                "data_layout": "NWC", "kernel_layout": "WOI",
            },
            ({"w": 3}, {"w": 1}),
        ),
        OpCase(op, (T(1, 2, "h", "w"), T(2, 3, 3, 3)), {"strides": 2, "padding": 1}, hw),
        OpCase(op, (T("n", 2, 3, 3), T(2, 2, 3, 2)), {**odd, "output_padding": (1, 0)}, n),
        OpCase(op, (T("n", 4, 3, 3), T(4, 1, 2, 2)), {"groups": 2}, n),
        OpCase(op, (T("n", 2, 3, 3, dtype="float16"), T(2, 2, 2, 2, dtype="float16")), sizes=n),
        OpCase("nn.conv3d_transpose", (T("n", 2, 2, 2, 2), T(2, 1, 2, 1, 2)), {"strides": 2}, n),
    ]  # fmt: skip


def pool() -> list[OpCase]:
    """Pooling and its gradients."""
    hw = ({"h": 5, "w": 6}, {"h": 3, "w": 4}, {"h": 8, "w": 3})
    n = ({"n": 2}, {"n": 1}, {"n": 0})
    window = {"pool_size": (3, 2), "strides": 2, "padding": (1, 0, 1, 1)}
    last = {"layout": "NHWC", "out_layout": "NCHW"}
    dilated = {"pool_size": 2, "dilation": (2, 1), "padding": 1, "strides": (1, 3)}
    cases: list[OpCase] = []
    for op in ("nn.max_pool2d", "nn.avg_pool2d"):
        cases += [
            OpCase(op, (T(1, 2, "h", "w"),), {"pool_size": 2}, hw),
            OpCase(op, (T(2, 1, "h", "w"),), window, hw),
            OpCase(op, (T(1, 1, "h", "w"),), {**window, "ceil_mode": True}, hw),
            OpCase(op, (T(1, "h", "w", 2),), {**dilated, **last}, hw),
            *(OpCase(op, (T("n", 2, 4, 3, dtype=d),), window, n) for d in (*HALVES, "float64")),
        ]
    for include in (False, True):
        counted = {**window, "count_include_pad": include, "ceil_mode": True}
        cases.append(OpCase("nn.avg_pool2d", (T(1, 1, "h", "w"),), counted, hw))
    bytes_ = T("n", 2, 4, 3, dtype="int8", low=-99, high=99)
    cases.append(OpCase("nn.max_pool2d", (bytes_,), window, n))
    for op in ("nn.max_pool1d", "nn.avg_pool1d"):
        cases.append(OpCase(op, (T("n", 3, 7),), {"pool_size": 3, "strides": 2, "padding": 1}, n))
    for op in ("nn.max_pool3d", "nn.avg_pool3d"):
        cases.append(OpCase(op, (T("n", 2, 3, 2, 4),), {"pool_size": 2, "padding": (1, 0, 0)}, n))
    for op in ("nn.max_pool2d", "nn.avg_pool2d"):
        cases.append(OpCase(op, (T(1, 2, "h", "w", 3),), {**window, "layout": "NCHW3c"}, hw))
    return cases + _adaptive(n, hw) + _pool_backward(hw) + _windows(n, hw)


def _windows(n: tuple[dict[str, int], ...], hw: tuple[dict[str, int], ...]) -> list[OpCase]:
    x, wide = T("h", "w", 3), {"window": (2, 3, 1)}
    pad, none = Shape(1, 0, 0, 1, 2, -1), Shape(0, 0, 0, 0)
    every = {"window": (2, 1, 2), "strides": (2, 1, 1), "dilation": (1, 1, 2)}
    backward = {"window": (1, 2, 2), "strides": (1, 2, 2)}
    op, back = "reduce_window", "grad.reduce_window_max_backward"
    return [
        *(
            OpCase(op, (x, pad), {**wide, "reduction": r}, hw)
            for r in ("sum", "prod", "max", "min")
        ),
        OpCase(op, (T("n", 6, 5), Shape(0, "n", 1, 0, 0, -1)), every, n[:2]),
        OpCase(op, (T("n", 4, dtype="int8", low=-9, high=9), none), {"window": (1, 2)}),
        OpCase(op, (T("n", 4, dtype="float16"), none), {"window": (1, 2), "reduction": "sum"}),
        OpCase(back, (T("n", 3, 2), T("n", 6, 5), Shape(0, 1, 0, 0, 0, 0)), backward, n),
    ]


def _adaptive(n: tuple[dict[str, int], ...], hw: tuple[dict[str, int], ...]) -> list[OpCase]:
    op = "nn.adaptive_avg_pool2d"
    return [
        OpCase("nn.adaptive_avg_pool1d", (T("n", 2, 7),), {"output_size": 3}, n),
        OpCase(op, (T(2, 1, "h", "w"),), {"output_size": (1, 1)}, hw),
        OpCase(op, (T(1, 2, "h", "w"),), {"output_size": (4, 3)}, hw),
        OpCase(op, (T(1, "h", "w", 2),), {"output_size": 2, "layout": "NHWC"}, hw),
        OpCase(op, (T("n", 2, 4, 6),), {"output_size": 2}, n),
        OpCase(op, (T("n", 1, 5, 6, 2),), {"output_size": 2, "layout": "NCHW2c"}, n),
        OpCase(op, (T("n", 2, 3, 5, dtype="float16"),), {}, n),
        OpCase("nn.adaptive_avg_pool3d", (T("n", 1, 3, 4, 2),), {"output_size": (2, 2, 1)}, n),
    ]


def _pool_backward(hw: tuple[dict[str, int], ...]) -> list[OpCase]:
    last = {"layout": "NHWC"}
    even = {"pool_size": (2, 2), "strides": (2, 2)}
    odd = {"pool_size": (3, 2), "strides": (2, 1), "padding": 1, "dilation": (1, 2)}
    cases: list[OpCase] = []
    for op in ("grad.max_pool2d_backward", "grad.avg_pool2d_backward"):
        cases += [
            OpCase(op, (T("n", 2, 2, 3), T("n", 2, 4, 6)), even, ({"n": 2}, {"n": 0})),
            OpCase(op, (T(1, 3, 5, 2), T(1, 5, 5, 2)), {**odd, **last}, ({},)),
            OpCase(op, (T(2, 1, 2, 2), T(2, 1, 3, 4)), {**even, "ceil_mode": True}, ({},)),
            OpCase(op, (T(1, 1, 2, 3, 2), T(1, 1, 4, 6, 2)), {**even, "layout": "NCHW2c"}, ({},)),
        ]
        # Elements of a window that are two apart, of a stride of four, meet the same places.
        attrs = {"pool_size": (5, 3), "strides": 4, "padding": 2}
        dilated = {**attrs, "dilation": 2} if op == "grad.max_pool2d_backward" else attrs
        shape = (2, 4) if "dilation" in dilated else (3, 4)
        cases.append(OpCase(op, (T("n", 2, *shape), T("n", 2, 10, 13)), dilated, ({"n": 2},)))
    same = T(1, 1, 4, 4, values=(1.0,))
    cases.append(OpCase("grad.max_pool2d_backward", (T(1, 1, 2, 2), same), even, ({},)))
    padded = {**even, "padding": 1, "count_include_pad": True}
    cases.append(OpCase("grad.avg_pool2d_backward", (T(1, 1, 3, 3), T(1, 1, 4, 4)), padded, ({},)))
    return cases
