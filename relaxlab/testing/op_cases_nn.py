"""Uses of norms, losses and less common activations, for `check_op`."""

from __future__ import annotations

import numpy as np

from relaxlab.ops.block_formats import FORMATS
from relaxlab.testing.op_check import OpCase, Scalar, Symbol, T

HALVES = ("float16", "bfloat16")
BATCHES = ({"n": 2}, {"n": 1}, {"n": 5}, {"n": 0})


def activations() -> list[OpCase]:
    """Activations with parameters, padding modes, dropout."""
    cases = [
        OpCase("nn.selu", (T("n", 3, dtype=d, low=-4, high=4),))
        for d in (*HALVES, "float32", "float64")
    ]
    cases += [
        OpCase("nn.prelu", (T("n", 3, 2), T(3))),
        OpCase("nn.prelu", (T(2, "n"), T("n")), {"axis": -1}),
        OpCase("nn.prelu", (T("n", 3), T(1))),
        OpCase("nn.prelu", (T("n", 3, dtype="bfloat16"), T(3, dtype="bfloat16"))),
        OpCase("nn.dropout", (T("n", 3, dtype="float16"),), {"rate": 0.2}),
        OpCase("nn.batch_flatten", (T("n", 2, 3),)),
        OpCase("nn.batch_flatten", (T(2, "n", 3),)),
    ]
    for mode in ("reflect", "replicate", "circular"):
        widths = {"pad_width": (0, 0, 2, 1), "pad_mode": mode}
        cases += [
            OpCase("nn.pad", (T(2, "n"),), widths, ({"n": 3}, {"n": 7})),
            OpCase("nn.pad", (T("n", 4, dtype="int8"),), widths),
        ]
    either = {"pad_width": (Symbol("a"), Symbol("b")), "pad_mode": "reflect"}
    cases.append(OpCase("nn.pad", (T(5),), either, ({"a": 0, "b": 4}, {"a": 3, "b": 1})))
    return cases


def norms() -> list[OpCase]:
    """Batch, instance and group norm."""
    op = "nn.batch_norm"
    moving = (T(3), T(3), T(3), T(3, low=0.1))
    cases = [
        OpCase(op, (T("n", 3, 4, 2), *moving), {"axis": 1}, BATCHES),
        OpCase(op, (T("n", 3), *moving), {"axis": 1, "momentum": 0.3, "scale": False}, BATCHES),
        OpCase(op, (T("n", 2, 3), *moving), {"axis": -1, "training": False}),
        OpCase(op, (T(2, "c", 3), T("c"), T("c"), T("c"), T("c")), {"axis": 1}, ({"c": 4},)),
    ]
    for d in HALVES:
        given = (T("n", 3, 4, dtype=d), *(T(3, dtype=d, low=0.1) for _ in range(4)))
        cases.append(OpCase(op, given, {"axis": 1, "center": False}, BATCHES))
    where = {"channel_axis": 1, "axes": (2, 3)}
    cases += [
        OpCase("nn.instance_norm", (T("n", 3, 4, 2), T(3), T(3)), where),
        OpCase(
            "nn.instance_norm",
            (T("n", 2, 3), T(3), T(3)),
            {"channel_axis": -1, "axes": (1,), "scale": False},
        ),
        OpCase(
            "nn.instance_norm",
            tuple(T(*s, dtype="float16") for s in (("n", 3, 4, 5), (3,), (3,))),
            where,
        ),
    ]
    groups = {"num_groups": 2, **where}
    cases += [
        OpCase("nn.group_norm", (T("n", 4, 3, 2), T(4), T(4)), groups),
        OpCase("nn.group_norm", (T(1, 6, "h", 3), T(6), T(6)), {**groups, "num_groups": 3},
               ({"h": 2}, {"h": 1})),
        OpCase(
            "nn.group_norm",
            (T("n", 5, 4), T(4), T(4)),
            {"num_groups": 4, "channel_axis": 2, "axes": (1,), "center": False},
        ),
        OpCase(
            "nn.group_norm",
            tuple(T(*s, dtype="bfloat16") for s in (("n", 4, 3, 3), (4,), (4,))),
            {**groups, "num_groups": 1},
        ),
    ]  # fmt: skip
    return cases


def losses() -> list[OpCase]:
    """Losses and the gradient of one."""
    op, classes = "nn.nll_loss", {"dtype": "int64", "low": 0, "high": 3}
    entropy = "nn.cross_entropy_with_logits"
    cases = [
        OpCase(entropy, (T("n", 3), T("n", 3)), sizes=BATCHES),
        OpCase(entropy, (T("n"), T("n")), sizes=BATCHES),
        OpCase(entropy, (T("n", 3, dtype="float16"), T("n", 3, dtype="float16")), sizes=BATCHES),
    ]
    for reduction in ("mean", "sum", "none"):
        attrs = {"reduction": reduction}
        skipping = {**attrs, "ignore_index": 1}
        cases += [
            OpCase(op, (T("n", 4), T("n", **classes)), attrs, BATCHES),
            OpCase(op, (T("n", 4, 3), T("n", 3, **classes), T(4, low=0.5)), skipping, BATCHES),
            OpCase(
                "grad.nll_loss_backward",
                (T(*["n"] * (reduction == "none")), T("n", 4), T("n", **classes), T(4, low=0.5)),
                skipping,
                ({"n": 5}, {"n": 8}),
            ),
        ]
    cases += [
        OpCase(op, (T(4), T(dtype="int32", low=0, high=3)), sizes=({},)),
        OpCase(op, (T("n", 4, dtype="bfloat16"), T("n", **classes)), sizes=BATCHES),
        OpCase(
            "grad.nll_loss_backward",
            (T(), T(2, 4, "n", dtype="float32"), T(2, "n", **classes)),
            {},
            BATCHES,
        ),
    ]
    return cases


def quantize() -> list[OpCase]:
    """Quantising and back."""
    x, scale = T("n", 3, low=-9, high=9), T(3, low=0.01, high=0.1)
    cases = [
        OpCase("quantize", (x, scale, T(3, dtype="int8", low=-9, high=9)), {"axis": 1}),
        OpCase("quantize", (x, T(values=0.5), T(dtype="int32", low=0, high=5)),
               {"out_dtype": "uint8"}),
        OpCase("quantize", (T("n", values=(0.5, 1.5, -2.5)), T(values=1.0), T(values=0.0))),
        OpCase("quantize", (T(3, "n", dtype="float16"), T(3, dtype="float16", low=0.1),
                            T(3, dtype="int8")), {"axis": 0, "out_dtype": "int16"}),
    ]  # fmt: skip
    for d in ("int8", "uint8", "int32"):
        low = 0 if d == "uint8" else -99
        pair = (T("n", 3, dtype=d, low=low, high=99), scale, T(3, dtype=d, low=0, high=9))
        cases.append(OpCase("dequantize", pair, {"axis": -1}))
    half = (T("n", 3, dtype="int8", low=-9, high=9), T(dtype="float16"), T(dtype="int8"))
    return [*cases, OpCase("dequantize", half, {"out_dtype": "float16"}), *_blocks()]


def _blocks() -> list[OpCase]:
    """Every format, and whole blocks, whose bytes make scales of any size."""

    def field(dtype: str, tail: tuple[int, ...]) -> T:
        if dtype == "float16":
            return T("n", 2, *tail, dtype=dtype, low=-0.1, high=0.1)
        info = np.iinfo(dtype)
        return T("n", 2, *tail, dtype=dtype, low=info.min, high=info.max)

    cases = [
        OpCase("decode_blocks", (tuple(field(d, tail) for _, d, tail in f.fields),),
               {"format": f.name}, ({"n": 3}, {"n": 0}))
        for f in FORMATS.values()
    ]  # fmt: skip
    whole = (T("n", 2, 18, dtype="uint8", low=0, high=90),)
    cases.append(OpCase("decode_blocks", (whole,), {"format": "Q4_0"}))
    for parts, name in ((1, "Q4_0"), (2, "Q4_0"), (1, "Q5_1"), (2, "Q6_K")):
        fmt = FORMATS[name]
        attrs = {"group": fmt.group, "parts": parts}
        cases.append(
            OpCase("dynamic_quantize", (T("m", 2 * fmt.group),), attrs, ({"m": 3}, {"m": 0}))
        )
        # One value, whose sum is known, stands for each activation.
        groups, value = 2 * fmt.block // fmt.group, 3 if parts == 1 else 3 * 129
        total = 0.25 * value * fmt.group
        rows = (
            T("m", groups * parts, fmt.group, dtype="int8", low=3, high=3),
            T("m", groups, low=0.25, high=0.25),
            T("m", groups, low=total, high=total),
            tuple(field(d, tail) for _, d, tail in fmt.fields),
        )
        cases.append(OpCase("quantized_linear", rows, {"format": name, "parts": parts},
                            ({"m": 3, "n": 5}, {"m": 1, "n": 0})))  # fmt: skip
    return cases


def scalars() -> list[OpCase]:
    """Element by element, with more than two arguments or unusual formulas."""
    ends = (0.0, 1.0, float("inf"), float("-inf"), float("nan"), -800.0)
    fill = {"value": -1.5}
    return [
        *(
            OpCase("log_add_exp", (T("n", 3, dtype=d, low=-9, high=9), T(3, dtype=d)))
            for d in (*HALVES, "float32", "float64")
        ),
        OpCase("log_add_exp", (T(6, values=ends), T(6, 1, values=ends)), sizes=({},)),
        *(
            OpCase("ewise_fma", (T("n", dtype=d), T("n", dtype=d), T("n", dtype=d)))
            for d in (*HALVES, "float32", "int32")
        ),
        OpCase("ewise_fma", (T("n", 3), T(3), Scalar(0.5))),
        OpCase("masked_fill", (T("n", 3), T("n", 1, dtype="bool")), fill),
        OpCase("masked_fill", (T("n", dtype="int8"), T(dtype="bool")), {"value": 3}),
        OpCase("masked_fill", (T("n", dtype="bool"), T("n", dtype="bool")), {"value": 1}),
        OpCase("masked_fill", (T("n", dtype="bfloat16"), T("n", dtype="bool")), fill),
        *(OpCase(f"grad.{op}", (T("n", 2),)) for op in
          ("no_grad", "start_checkpoint", "end_checkpoint")),
    ]  # fmt: skip
