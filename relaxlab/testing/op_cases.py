"""Uses of every operator that is lowered to loops, by family, for `check_op`."""

from __future__ import annotations

import numpy as np

from relaxlab.testing.op_cases_conv import conv, pool
from relaxlab.testing.op_cases_image import collectives, grids, resizing, vision
from relaxlab.testing.op_cases_index import gather, rearrange, scatter
from relaxlab.testing.op_cases_nn import activations, losses, norms, quantize, scalars
from relaxlab.testing.op_check import OpCase, Scalar, Shape, Symbol, T

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int32", "int64", "uint8")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 30.0)
SOME = ({"n": 3}, {"n": 1}, {"n": 7})
TWO_SIZES = ({"n": 3, "m": 5}, {"n": 1, "m": 1}, {"n": 2, "m": 0}, {"n": 5, "m": 1})


def elementwise() -> list[OpCase]:
    """Unary, binary and ternary operators."""
    cases: list[OpCase] = []
    anywhere = (
        "exp sin cos atan sinh cosh tanh asinh sigmoid erf erfc exp2 expm1 cbrt floor ceil trunc "
        "round abs"
    )
    for op in (*anywhere.split(), "negative", "square", "sign", "isnan", "isinf", "isfinite"):
        cases += [OpCase(op, (T("n", 5, dtype=d),), sizes=({"n": 4}, {"n": 0})) for d in FLOATS]
        cases.append(OpCase(op, (T("n", values=SPECIAL),), sizes=({"n": 14},)))
    for op in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma"):
        cases += [OpCase(op, (T("n", 5, dtype=d, low=0.1),), sizes=({"n": 4},)) for d in FLOATS]
        cases.append(OpCase(op, (T("n", values=SPECIAL),), sizes=({"n": 14},)))
    cases += [
        OpCase(op, (T("n", low=-0.9, high=0.9),)) for op in ("asin", "acos", "atanh", "erfinv")
    ]
    cases += [OpCase("erfinv", (T("n", dtype="float64", low=-1, high=1),))]
    cases += [OpCase("bitcast", (T("n", 3),), {"dtype": "int32"})]
    cases += [OpCase("acosh", (T("n", low=1, high=4),)), OpCase("tan", (T("n", low=-1, high=1),))]
    for op in ("floor", "round", "abs", "negative", "square", "sign", "popcount"):
        cases += [
            OpCase(op, (T("n", dtype=d, low=0 if d == "uint8" else -9, high=9),)) for d in INTS
        ]
    cases += [OpCase("bitwise_not", (T("n", dtype=d),)) for d in ("int32", "bool")]
    cases.append(OpCase("logical_not", (T("n", 2, dtype="bool"),)))
    return cases + _binary() + _ternary()


def _binary() -> list[OpCase]:
    cases: list[OpCase] = []
    arithmetic = "add subtract multiply divide floor_divide mod floor_mod maximum minimum"
    comparisons = "equal not_equal less less_equal greater greater_equal"
    for op in (*arithmetic.split(), *comparisons.split()):
        cases += [
            OpCase(op, (T("n", "m"), T("m")), sizes=TWO_SIZES),
            OpCase(op, (T("n", 1, 4), T(3, 1)), sizes=({"n": 2}, {"n": 0})),
            OpCase(op, (T("n", dtype="float16"), T(dtype="float16"))),
            OpCase(op, (T("n", dtype="bfloat16"), T("n", dtype="bfloat16"))),
            OpCase(op, (T("n", values=SPECIAL), T("n", values=SPECIAL[::-1])), sizes=({"n": 14},)),
            OpCase(op, (T("n"), Scalar(0.5))),
        ]
        for d in INTS:
            low = 0 if d == "uint8" else -5
            pair = (T("n", dtype=d, low=low, high=5), T("n", dtype=d, low=low, high=5))
            cases.append(OpCase(op, pair, sizes=({"n": 40},)))
    cases.append(OpCase("add", (Scalar(2), T("n", dtype="int32"))))
    cases.append(OpCase("multiply", (T("n", dtype="int64"), Scalar("n"))))
    for op in ("divide", "floor_divide", "mod", "floor_mod"):
        pair = (
            T(4, dtype="int32", values=(-(2**31), 7, -7, 0)),
            T(4, dtype="int32", values=(-1, 0, 2, -1)),
        )
        cases.append(OpCase(op, pair, sizes=({},)))
    cases.append(OpCase("power", (T("n", low=0.1), T("n"))))
    cases.append(OpCase("power", (T("n", dtype="float16", low=0.1), Scalar(2.0))))
    for exponent in (0.0, 0.5, 1.0, 3.0, 7.0, 8.0, 9.0, -1.0, -0.5, 1.5):
        pair = (T("n", values=SPECIAL), Scalar(exponent))
        cases.append(OpCase("power", pair, sizes=({"n": 14},)))
    cases.append(OpCase("atan2", (T("n"), T("n"))))
    for op in ("logical_and", "logical_or", "logical_xor"):
        cases.append(OpCase(op, (T("n", "m", dtype="bool"), T("m", dtype="bool")), sizes=TWO_SIZES))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        cases += [OpCase(op, (T("n", dtype=d), T("n", dtype=d))) for d in ("int32", "bool")]
        cases.append(
            OpCase(op, (T("n", dtype="uint8", low=0, high=255), T(dtype="uint8", low=0, high=255)))
        )
    for op in ("left_shift", "right_shift"):
        for d in ("int32", "int64"):
            cases.append(
                OpCase(op, (T("n", dtype=d, low=-99, high=99), T("n", dtype=d, low=0, high=7)))
            )
    return cases


def _ternary() -> list[OpCase]:
    return [
        OpCase("where", (T("n", 1, dtype="bool"), T("n", 3), T(3))),
        OpCase("where", (T("n", dtype="bool"), T("n", dtype="int8"), T(dtype="int8"))),
        OpCase("where", (T("n", dtype="bool"), T("n"), Scalar(0.0))),
        OpCase("clip", (T("n", 4),), {"min": -0.5, "max": 1.0}),
        OpCase("clip", (T("n", dtype="int32", low=-9, high=9),), {"min": -3, "max": 4}),
        OpCase("clip", (T("n", values=SPECIAL),), {"min": -1.0, "max": 2.0}, ({"n": 14},)),
        *(OpCase("astype", (T("n", dtype=a),), {"dtype": b}) for a in FLOATS for b in FLOATS),
        *(
            OpCase("astype", (T("n", dtype=a, low=0),), {"dtype": b})
            for a in INTS
            for b in ("float32", "int64", "uint8", "bool")
        ),
        OpCase("astype", (T("n", low=-9, high=9),), {"dtype": "int32"}),
        OpCase("astype", (T("n", dtype="bool"),), {"dtype": "float32"}),
        OpCase("wrap_param", (T("n", dtype="float16"),)),
    ]  # fmt: skip


def nn() -> list[OpCase]:
    """Activations, softmax, norms, attention, rope, pad."""
    cases: list[OpCase] = []
    for op in ("relu", "relu6", "gelu", "gelu_tanh", "silu", "leakyrelu", "softplus"):
        cases += [OpCase(f"nn.{op}", (T("n", 3, dtype=d, low=-6, high=6),)) for d in FLOATS]
    far = (-1e10, -300.0, -5.6, -5.0, 5.6, 300.0, 1e10)
    cases += [OpCase(op, (T(7, values=far),), sizes=({},)) for op in ("nn.gelu", "nn.gelu_tanh")]
    cases.append(OpCase("nn.leakyrelu", (T("n"),), {"alpha": 0.2}))
    cases.append(
        OpCase("nn.softplus", (T("n", low=-50, high=50),), {"beta": 2.0, "threshold": 10.0})
    )
    for op in ("nn.softmax", "nn.log_softmax"):
        cases += [
            OpCase(op, (T("n", "m"),), sizes=TWO_SIZES),
            OpCase(op, (T(2, "n", 3, low=-90, high=90),), {"axis": 1}, ({"n": 3}, {"n": 1})),
            OpCase(op, (T("n", dtype="float16"),)),
            OpCase(op, (T(3, "n", dtype="bfloat16"),), {"axis": 0}),
            OpCase(op, (T(7, dtype="float64"),), sizes=({},)),
        ]
    for d in FLOATS:
        pair = (T(2, "n", 8, dtype=d), T(8, dtype=d))
        cases.append(OpCase("nn.rms_norm", pair, {"axes": (-1,), "epsilon": 1e-6}))
        cases.append(OpCase("nn.layer_norm", (*pair, T(8, dtype=d)), {"axes": -1}))
    two = (T("n", 3, 4), T(3, 4))
    cases += [
        OpCase("nn.rms_norm", two, {"axes": (1, 2)}),
        OpCase("nn.rms_norm", (T(3, "n"), T("n")), sizes=({"n": 4}, {"n": 1})),
        OpCase("nn.layer_norm", (*two, T(3, 4)), {"axes": (1, 2), "epsilon": 1e-3}),
        OpCase("nn.layer_norm", (T(4, "n"), T(4), T(4)), {"axes": 0}),
        OpCase("nn.layer_norm", (T("n", 4), T(4), T(4)), {"center": False}),
        OpCase("nn.layer_norm", (T("n", 4), T(4), T(4)), {"scale": False}),
        OpCase("nn.pad", (T("n", 3),), {"pad_width": (1, 2, 0, 1), "pad_value": 9.0}),
        OpCase("nn.pad", (T("n", dtype="int8"),), {"pad_width": (0, 2), "pad_value": 0}),
    ]  # fmt: skip
    return cases + _attention() + _rope()


def _attention() -> list[OpCase]:
    lengths = ({"n": 3, "m": 5}, {"n": 1, "m": 4}, {"n": 4, "m": 4}, {"n": 3, "m": 1})
    q, k, v = T(2, "n", 4, 8), T(2, "m", 2, 8), T(2, "m", 2, 6)
    op = "nn.attention"
    return [
        OpCase(op, (q, k, v), sizes=(*lengths, {"n": 0, "m": 2})),
        OpCase(op, (q, k, v), {"causal_mask": "BottomRight", "scale": 0.3}, lengths),
        OpCase(op, (q, k, v), {"causal_mask": "TopLeft"}, lengths),
        OpCase(op, (q, k, v), {"causal_mask": "BottomRight", "window_size": 2}, lengths),
        OpCase(op, (q, k, v, T(2, 4, "n", "m")), {}, lengths),
        OpCase(op, (q, k, v, T(1, 1, 1, "m")), {"causal_mask": "BottomRight"}, lengths),
        *(OpCase(op, tuple(T("n", 3, 2, 4, dtype=d) for _ in range(3)), {}) for d in FLOATS),
        *_key_ranges(),
        OpCase("nn.attention_bias", (q, k, v, T(2, 4, 1, "m")), {"window_size": 3}, lengths),
    ]  # fmt: skip


def _starts(*values: int) -> T:
    return T(len(values), dtype="int32", values=values)


def ragged() -> list[OpCase]:
    """Attention of sequences behind each other, which a pass expresses by other operators."""
    longest = T(dtype="int32", low=5, high=5)
    q, k, v = T(1, "n", 2, 4), T(1, "n", 1, 4), T(1, "n", 1, 3)
    nine = ({"n": 9},)
    op, last = "nn.attention_var_len", {"causal_mask": "BottomRight", "window_size": 3}
    packed, lengths = (T("n", 2, 8),) * 3, T("b", dtype="int32", values=(3, 0, 5, 1))
    packed_sizes, scaled = ({"n": 9, "b": 4},), {"causal_mask": "TopLeft", "scale": 0.5}
    return [
        OpCase(op, (q, k, v, _starts(0, 4, 4, 9), longest), {}, nine),
        OpCase(
            op,
            (q, k, v, _starts(0, 1, 6, 8), longest, _starts(0, 3, 5, 9), longest),
            last,
            nine,
        ),
        OpCase(op, (q, k, v, _starts(0, 5, 9), longest), {"causal_mask": "TopLeft"}, nine),
        OpCase(
            op,
            (*(T(1, "n", 2, 4, dtype="float16") for _ in range(3)), _starts(0, 2, 9), longest),
            {"scale": 0.7},
            nine,
        ),
        # Whole vectors of features and a rest; queries before and after all sequences; offsets that
        # are past the last key; a query without keys, and one alone; any number of sequences.
        OpCase(
            op,
            (
                *(T(1, "n", 4, 35), T(1, "m", 2, 35), T(1, "m", 2, 16)),
                *(T("s", dtype="int32", values=(1, 1, 5, 6, 8)), longest),
                *(T("s", dtype="int64", values=(0, 2, 2, 5, 40)), longest),
            ),
            {},
            ({"n": 9, "m": 7, "s": 5},),
        ),
        OpCase(
            op,
            (*(T(1, "n", 3, "d") for _ in range(3)), _starts(0, 4, 9), longest),
            {"causal_mask": "BottomRight"},
            ({"n": 9, "d": 37}, {"n": 9, "d": 5}),
        ),
        OpCase(
            op,
            (*(T(1, "n", 2, 17, dtype="float64") for _ in range(3)), _starts(0, 1), longest),
            {"window_size": 1},
            ({"n": 1},),
        ),
        OpCase("nn.ragged_attention", (*packed, lengths), {}, packed_sizes),
        OpCase("nn.ragged_attention", (*packed, lengths), scaled, packed_sizes),
    ]


def _key_ranges() -> list[OpCase]:
    op, nine, rows = "nn.key_ranges", ({"n": 9},), Shape("n", 8)
    bottom = {"causal_mask": "BottomRight", "window_size": 2}
    q, k, v = T(2, "n", 4, 20), T(2, "m", 2, 20), T(2, "m", 2, 6)
    before, last = (T(6, dtype=d, values=x) for d, x in (
        ("int32", (-1, -1, 0, 2, 2, 3)), ("int64", (-1, 0, 2, 2, 3, 4))))  # fmt: skip
    return [
        OpCase(op, (rows, _starts(0, 4, 4, 8)), sizes=({"n": 8}, {"n": 11})),
        OpCase(op, (rows, _starts(1, 4, 8), _starts(0, 6, 40)), {"causal_mask": "TopLeft"}, nine),
        OpCase(op, (rows, _starts(0, 3, 9), _starts(0, 1, 8)), bottom, nine),
        OpCase(op, (rows, _starts(0, 3, 9)), {"window_size": 1, "whole": True}, nine),
        OpCase("nn.attention_within", (q, k, v, before, last), {}, ({"n": 6, "m": 5},)),
        OpCase("nn.attention_within", (q, k, v, before, last, _starts(0, 4, 4, 6)), {},
               ({"n": 6, "m": 5},)),
        *(OpCase("nn.segment_reduce", (T("n", 5), _starts(0, 3, 3, 9)), {"mode": m}, nine)
          for m in ("sum", "mean", "max")),
        OpCase("nn.segment_reduce", (T("n"), _starts(0, 1, 9)), {}, nine),
        OpCase("nn.segment_softmax", (T("n", 2, 5), _starts(0, 3, 3, 9)), {}, nine),
        OpCase("nn.segment_softmax", (T("n", 4), _starts(0, 9)), {}, nine),
    ]  # fmt: skip


def _rope() -> list[OpCase]:
    x, op = T(2, "n", 3, 8), "nn.rope"
    cases: list[OpCase] = []
    for style in ("neox", "gptj"):
        cases += [
            OpCase(op, (x,), {"style": style}),
            OpCase(op, (x, Scalar("p")), {"style": style}, ({"n": 3, "p": 100}, {"n": 1, "p": 0})),
            OpCase(op, (x, Scalar(7)), {"style": style, "theta": 1e5, "scaling": 2.0}),
            OpCase(op, (x, Scalar(7)), {"style": style, "rotary_dim": 4}),
            OpCase(op, (x,), {"style": style, "rotary_dim": 0}),
            OpCase(op, (T(1, "n", 2, 6, dtype="float16"), Scalar("n")), {"style": style}),
            OpCase(op, (x, Scalar("n"), T(4, low=1, high=8)), {"style": style}),
            OpCase(op, (x, T(2, dtype="int64", low=0, high=50)), {"style": style}),
        ]
    return cases


def linalg() -> list[OpCase]:
    """Matrix products."""
    half = (T("n", 4, dtype="float16"), T(4, 3, dtype="float16"))
    bytes_ = tuple(T(*s, dtype="int8", low=-99, high=99) for s in (("n", 9), (9, 3)))
    cases = [
        OpCase("matmul", (T("n", 6), T(6, "m")), sizes=TWO_SIZES),
        OpCase("matmul", (T(4, "n"), T("n", 5)), sizes=SOME),
        OpCase("matmul", (T(2, 1, "n", 3), T(5, 3, 2))),
        OpCase("matmul", (T("n", 4), T(4))),
        OpCase("matmul", (T(4), T(4, "n"))),
        OpCase("matmul", (T("n"), T("n")), sizes=SOME),
        OpCase("matmul", (T(3, "n", 4), T(4))),
        OpCase("matmul", (T(4), T("n", 4, 2))),
        OpCase("matmul", half, {"out_dtype": "float32"}),
        OpCase("matmul", bytes_, {"out_dtype": "int32"}),
        OpCase("linear", (T("n", 6), T(4, 6))),
        OpCase("linear", (T(2, "n", 6), T(4, 6), T(4))),
        OpCase("linear", (T(6), T("n", 6), T("n"))),
        OpCase("linear", tuple(T(*s, dtype="bfloat16") for s in (("n", 6), (4, 6), (4,)))),
        OpCase("outer", (T("n"), T("m")), sizes=TWO_SIZES),
    ]  # fmt: skip
    cases += [OpCase("matmul", (T("n", 5, dtype=d), T(5, 3, dtype=d))) for d in FLOATS]
    for text, shapes in {
        "ij,jk->ik": (("n", 4), (4, 3)), "bij,bjk": ((2, "n", 4), (2, 4, 3)),
        "ii->i": (("n", "n"),), "ii": (("n", "n"),), "ij->ji": (("n", 3),),
        "i,i,i->": (("n",),) * 3,
        "...ij,...jk->...ik": ((2, "n", 3), (3, 4)), "ij->": (("n", 4),),
        "bqhd,bkhd->bhqk": ((2, "n", 3, 4), (2, 5, 3, 4)),
    }.items():  # fmt: skip
        operands = tuple(T(*s) for s in shapes)
        cases.append(OpCase("einsum", (operands,), {"subscripts": text}, SOME))
    cases.append(
        OpCase(
            "einsum",
            ((T("n", 4, dtype="float16"), T(4, 3, dtype="float16")),),
            {"subscripts": "ij,jk->ik"},
        )
    )
    return cases


def manipulate() -> list[OpCase]:
    """Reshaping, permuting, joining, splitting, repeating."""
    evens = ({"n": 4}, {"n": 5}, {"n": 1}, {"n": 0})
    return [
        OpCase("reshape", (T("n", 2, 2), Shape("n", 4))),
        OpCase("reshape", (T("n", 2, 2), Shape(-1, 4)), sizes=({"n": 3}, {"n": 1})),
        OpCase("reshape", (T(2, "n", 32), Shape(2, "n", 4, 8))),
        OpCase("reshape", (T(2, "n", 4, 8), Shape(2, "n", 32))),
        OpCase("reshape", (T(6, 4), Shape(4, 6)), sizes=({},)),
        OpCase("reshape", (T("n", 1, "m"), Shape("m", "n")), sizes=TWO_SIZES),
        OpCase("reshape", (T(2, "n", 3), Shape("n", 6))),
        OpCase("reshape", (T(1, 1), Shape()), sizes=({},)),
        OpCase("reshape", (T(), Shape(1, 1)), sizes=({},)),
        OpCase("flatten", (T("n", 2, 3, dtype="int8"),)),
        OpCase("flatten", (T(),), sizes=({},)),
        OpCase("expand_dims", (T("n", 3),), {"axis": 1}),
        OpCase("expand_dims", (T("n", 3),), {"axis": (0, -1)}),
        OpCase("squeeze", (T(1, "n", 1),), {"axis": (0, 2)}),
        OpCase("squeeze", (T(1, "n", 1),), {"axis": -1}),
        OpCase("squeeze", (T(1, 4, 1),), sizes=({},)),
        OpCase("permute_dims", (T("n", 2, 3),)),
        OpCase("permute_dims", (T("n", 2, 3, 4),), {"axes": (0, 2, -1, 1)}),
        OpCase("broadcast_to", (T("n", 1), Shape(2, "n", 3))),
        OpCase("broadcast_to", (T(), Shape("n"))),
        OpCase("broadcast_to", (T("m"), Shape(2, "n")), sizes=({"m": 1, "n": 3}, {"m": 3, "n": 3})),
        OpCase("flip", (T("n", 3),), {"axis": 0}),
        OpCase("flip", (T("n", 3),), {"axis": (0, 1)}),
        OpCase("concat", ((T("n", 3), T("m", 3), T(2, 3)),), {"axis": 0}, TWO_SIZES),
        OpCase("concat", ((T(2, "n"), T(2, 3)),), {"axis": -1}),
        OpCase("concat", ((T("n"),),)),
        OpCase("stack", ((T("n", 3), T("n", 3)),), {"axis": 0}),
        OpCase("stack", ((T("n"), T("n"), T("n")),), {"axis": -1}),
        OpCase("split", (T("n", 6),), {"indices_or_sections": 3, "axis": 1}),
        OpCase("split", (T("n", 7),), {"indices_or_sections": 3, "axis": 1}),
        OpCase("split", (T("n", 7),), {"indices_or_sections": 1, "axis": 1}),
        OpCase("split", (T("n", 7),), {"indices_or_sections": (2, 3), "axis": -1}),
        OpCase("split", (T("n"),), {"indices_or_sections": 2}, evens),
        OpCase("split", (T("n"),), {"indices_or_sections": 3}, evens),
        OpCase("split", (T("n"),), {"indices_or_sections": (2,)}, ({"n": 4}, {"n": 2}, {"n": 1})),
        OpCase("tile", (T("n", 2),), {"repeats": (2, 3)}),
        OpCase("tile", (T("n"),), {"repeats": (2, 1, 2)}),
        OpCase("tile", (T(2, "n"),), {"repeats": 3}),
        OpCase("repeat", (T("n", 2),), {"repeats": 3, "axis": 1}),
        OpCase("repeat", (T("n", 2),), {"repeats": 2}),
    ]  # fmt: skip


def create() -> list[OpCase]:
    """Filled tensors, ranges, triangles."""
    two = ({"n": 3, "m": 5}, {"n": 0, "m": 1})
    ahead = ({"n": 2, "m": 7}, {"n": 3, "m": 3}, {"n": 5, "m": 3})
    return [
        OpCase("full", (Shape("n", 4), T(dtype="int32")), {"dtype": "float32"}),
        OpCase("full", (Shape("n"), T())),
        OpCase("full", (Shape("n", "m"), Scalar(2.5)), {"dtype": "float16"}, two),
        OpCase("full_like", (T("n", 2, dtype="int8"), T())),
        OpCase("full_like", (T("n", 2), Scalar(3)), {"dtype": "int32"}),
        OpCase("zeros", (Shape("n", 3),), {"dtype": "float32"}),
        OpCase("ones", (Shape(2, "n"),), {"dtype": "bool"}),
        OpCase("zeros_like", (T("n", 3, dtype="bfloat16"),)),
        OpCase("size", (T("n", 3, dtype="int8"),)),
        OpCase("ones_like", (T("n"),), {"dtype": "int64"}),
        OpCase("arange", (), {"start": Symbol("n")}),
        OpCase("arange", (), {"start": Symbol("n"), "end": Symbol("m")}, ahead),
        OpCase("arange", (), {"start": Symbol("m"), "end": Symbol("n"), "step": -2}, ahead),
        OpCase("arange", (), {"start": 1, "end": Symbol("n"), "step": 3, "dtype": "float32"}),
        OpCase("arange", (), {"start": 10, "end": 0, "step": -3}, ({},)),
        OpCase("arange", (), {"start": 0.0, "end": 1.0, "step": 0.25}, ({},)),
        *(OpCase(op, (T(2, "n", 4),), {"k": k}) for op in ("tril", "triu") for k in (0, 1, -2)),
        OpCase("tril", (T("n", "m", dtype="int32"),), {}, TWO_SIZES),
    ]  # fmt: skip


def reduce() -> list[OpCase]:
    """Reductions and scans."""
    cases: list[OpCase] = []
    some = ({"n": 3, "m": 2}, {"n": 1, "m": 1}, {"n": 0, "m": 5}, {"n": 2, "m": 0})
    for op in ("sum", "prod", "max", "min", "mean", "variance", "std"):
        cases += [
            OpCase(op, (T("n", 3, 4),), {"axis": 1}),
            OpCase(op, (T("n", 3, 4),), {"axis": (-1, 0), "keepdims": True}),
            OpCase(op, (T("n", "m"),), {"axis": (1,)}, some),
            OpCase(op, (T("n", 3),)),
            OpCase(op, (T(),), sizes=({},)),
            *(OpCase(op, (T("n", 5, dtype=d),), {"axis": -1}) for d in FLOATS),
        ]
    for op in ("sum", "prod", "max", "min"):
        cases += [OpCase(op, (T("n", 4, dtype=d, low=0, high=3),), {"axis": 1}) for d in INTS]
    nans = (1.0, np.nan, 3.0, np.nan, -np.inf, 2.0)
    for op in ("argmax", "argmin"):
        cases += [
            OpCase(op, (T("n", "m"),), {"axis": 1}, some[:3]),
            OpCase(op, (T(2, 5, 3),), {"axis": -1, "keepdims": True}, ({},)),
            OpCase(op, (T(4, "n"),), sizes=({"n": 3}, {"n": 1})),
            OpCase(op, (T(3, 9, dtype="int32", low=0, high=2),), {"axis": 1}, ({},)),
            OpCase(op, (T(6, values=nans),), {"axis": 0}, ({},)),
            OpCase(op, (T(3, values=(-np.inf,)),), sizes=({},)),
            OpCase(op, (T(3, values=(np.inf,)),), sizes=({},)),
            OpCase(op, (T("n", 5, dtype="float16"),), {"axis": 1}),
            OpCase(op, (T("n", 5, dtype="bool"),), {"axis": 1}),
        ]
    for op in ("cummax", "cummin", "cumlogsumexp"):
        cases += [OpCase(op, (T("n", 1500),), {"axis": 1}), OpCase(op, (T("n", 2),))]
        cases.append(OpCase(op, (T(2, "n"),), {"axis": 1, "exclusive": True}))
    for op in ("cumsum", "cumprod"):
        cases += [
            OpCase(op, (T("n", 4),), {"axis": 1}),
            OpCase(op, (T(2, "n", 3),), {"axis": 1, "exclusive": True}),
            OpCase(op, (T("n", 2),)),
            OpCase(op, (T("n", dtype="float16"),), {"axis": 0}),
            OpCase(op, (T("n", dtype="bool"),), {"axis": 0, "dtype": "int32"}),
        ]
    return cases


def index() -> list[OpCase]:
    """take, slices, gather, one_hot."""
    places = T("n", 2, dtype="int32", low=-2, high=7)
    op, modes = "strided_slice", ("fast", "clip", "wrap", "nan")
    ab = {"axes": (0,), "begin": (Symbol("a"),), "end": (Symbol("b"),)}
    inbound = {"assume_inbound": True}
    at1 = {"axis": 1}
    one, off = T(values=1.0), T(values=0.0)
    return [
        *(OpCase("take", (T(5, 3), places), {"axis": 0, "mode": m}) for m in modes),
        OpCase("take", (T(5), T(dtype="int64", low=-2, high=7)), {"mode": "nan"}, ({},)),
        OpCase("take", (T(2, 6, 3), T("n", dtype="int64", low=0, high=5)), {"axis": 1}),
        OpCase("take", (T("m"), T("n", dtype="int64", low=0, high=3)), {}, ({"n": 3, "m": 4},)),
        OpCase("take", (T(3, "n"), Scalar(1)), {"axis": 0}),
        OpCase("take", (T("n", 3), T(dtype="int32", low=0, high=0)), {"axis": 0}, ({"n": 3},)),
        OpCase(op, (T("n", 8),), {"axes": (1,), "begin": (2,), "end": (7,)}),
        OpCase(op, (T("n", 8),), {"axes": (0, 1), "begin": (1, -3), "end": (100, -1)}),
        OpCase(op, (T("n", 8),), {"axes": (1,), "begin": (0,), "end": (8,), "strides": (3,)}),
        OpCase(op, (T("n", 8),), {"axes": (-1,), "begin": (6,), "end": (1,), "strides": (-2,)}),
        OpCase(op, (T("n"),), {"axes": (0,), "begin": (-1,), "end": (-100,), "strides": (-1,)}),
        OpCase(op, (T(9, 2),), ab, ({"a": 2, "b": 5}, {"a": 5, "b": 2}, {"a": 0, "b": 20})),
        OpCase(op, (T(9, 2),), {**ab, **inbound}, ({"a": 2, "b": 5}, {"a": 4, "b": 4})),
        OpCase(op, (T("n", 3),), {"axes": (0,), "begin": (0,), "end": (Symbol("n"),)}),
        OpCase("gather_elements", (T(4, 3), T("n", 3, dtype="int64", low=-4, high=3))),
        OpCase("gather_elements", (T("n", 6), T("n", 2, dtype="int64", low=0, high=5)), at1),
        OpCase("one_hot", (T("n", 2, dtype="int64", low=-1, high=5), one, off), {"depth": 5}),
        OpCase("one_hot", (T("n", dtype="int32"), Scalar(1), Scalar(0)), {"depth": 4, "axis": 0}),
    ]  # fmt: skip


def search_sort() -> list[OpCase]:
    """Sorting, topk, sampling."""
    cases: list[OpCase] = []
    nans = T(9, values=(3.0, np.nan, -1.0, 3.0, np.inf, np.nan, -np.inf, 0.0, -0.0))
    for op in ("sort", "argsort"):
        for descending in (False, True):
            attrs = {"descending": descending}
            cases += [
                OpCase(op, (T("n", 7),), attrs),
                OpCase(op, (T("n", 2, dtype="int32", low=0, high=3),), {"axis": 0, **attrs}),
                OpCase(op, (T("n", dtype="float16"),), attrs),
                OpCase(op, (nans,), attrs, ({},)),
            ]
    # Values that are counted; a row of 7 is too short for that.
    for d, low, high in (("int8", -128, 127), ("uint8", 0, 255), ("bool", 0, 1)):
        for descending in (False, True):
            attrs = {"descending": descending}
            cases += [
                OpCase("sort", (T("n", 70, dtype=d, low=low, high=high),), attrs),
                OpCase("argsort", (T("n", 3, dtype=d, low=low, high=high),), {"axis": 0, **attrs}),
                OpCase("argsort", (T("n", 7, dtype=d, low=low, high=high),), attrs),
            ]
    cases += [
        OpCase("topk", (T("n", 80, dtype="int8", low=-128, high=127),), {"k": 70}),
        OpCase("median", (T("n", 90, dtype="uint8", low=0, high=255),), {"axis": 1}),
        OpCase("argsort", (T("n"),), {"dtype": "int64"}),
        OpCase("topk", (T("n", 7),), {"k": 3}),
        OpCase("topk", (T("n", 3),), {"k": 5}),
        OpCase("topk", (T("n", 7),), {"k": -1, "largest": False}),
        OpCase("topk", (T(5, "n", 2),), {"k": 2, "axis": 0, "ret_type": "values"}),
        OpCase("topk", (T(6, "n"),), {"k": 4, "axis": 0, "ret_type": "indices", "dtype": "int64"}),
        OpCase("topk", (nans,), {"k": 4}, ({},)),
        OpCase("topk", (T("n", 70),), {"k": 66}),
        OpCase("topk", (T(2, 200),), {"k": 64, "largest": False}),
    ]
    return cases + _medians() + _buckets()


def _medians() -> list[OpCase]:
    nans = T(9, values=(3.0, np.nan, -1.0, 3.0, np.inf, np.nan, -np.inf, 0.0, -0.0))
    some = {"n": 4}, {"n": 1}, {"n": 7}
    return [
        OpCase("median", (T("n", 4),), {"axis": (1,)}),
        OpCase("median", (T(2, "n", 3),), {"axis": 1, "keepdims": True}, some),
        OpCase("median", (T("n", 3, dtype="int32", low=0, high=4),), {"axis": 0}, some),
        OpCase("median", (T("n", 2, dtype="float16"),), {}, some),
        OpCase("median", (T("n", 2),), {"keepdims": True}, some),
        OpCase("median", (T(3, "n", 2),), {"axis": (0, 2)}, some),
        OpCase("median", (T(3, "n", 2),), {"axis": (-1, 1), "keepdims": True}, some),
        OpCase("median", (nans,), {}, ({},)),
        OpCase("median", (T(2, 3, values=(1.0, np.nan, 0.0, 2.0, -1.0, 5.0)),), {"axis": 1}, ({},)),
    ]


def _buckets() -> list[OpCase]:
    ends = T(4, values=(-1.0, 0.0, 0.5, 1.5))
    op, flags = "bucketize", {"out_int32": True, "right": True}
    return [
        *(OpCase(op, (T("n", 14, values=SPECIAL), ends), {"right": r}) for r in (False, True)),
        OpCase(op, (T("n", dtype="int32"), T(3, dtype="int32", values=(-1, 0, 2))), flags),
        OpCase(op, (T(), T("n", values=(0.0,))), {}),
        OpCase(op, (T("n", dtype="bfloat16"), T(2, dtype="bfloat16", values=(0.0, 1.0)))),
    ]


def sampling() -> list[OpCase]:
    """Temperature, top-p and top-k, drawing."""
    cases: list[OpCase] = []
    prob = T(3, 6, low=0, high=1)
    uniform = T("n", 1, low=0, high=1)
    rows = T("n", 1, dtype="int64", low=0, high=2)
    op = "multinomial_from_uniform"
    cases.append(OpCase(op, (prob, uniform, rows)))
    cases.append(OpCase(op, (prob, T("n", 1, values=(0.0, 1.0)), rows), {"dtype": "int32"}))
    heat = T("n", 1, values=(0.0, 0.7, 3.0))
    op = "softmax_with_temperature"
    cases += [
        OpCase(op, (T("n", 6, low=-9, high=9), heat)),
        OpCase(op, (T(2, "n"), T(2, 1, low=1)), {}, ({"n": 0},)),
        OpCase(op, (T(1, "n", values=(2.0, 5.0, 5.0)), T(1, 1, values=0.0)), {}, SOME),
        OpCase(op, (T("n", 5, dtype="float16"), T("n", 1, dtype="float16", low=1))),
    ]
    op, share = "renormalize_top_p_top_k", T("n", 1, values=(0.9, 0.3, 0.0, 1.0))
    limits = T("n", 1, dtype="int32", values=(0, 3, 4, 99, 1))
    cases += [
        OpCase(op, (T("n", 7, low=0, high=1), share, limits)),
        OpCase(op, (T(2, "n"), T(2, 1), T(2, 1, dtype="int32")), {}, ({"n": 0},)),
        OpCase(op, (T(2, "n", values=0.25), T(2, 1, values=0.5), T(2, 1, dtype="int64")), {}, SOME),
        OpCase(op, (T("n", 5, dtype="bfloat16", low=0, high=1), share, limits)),
    ]
    return cases


FAMILIES = {
    "elementwise": elementwise,
    "nn": nn,
    "linalg": linalg,
    "manipulate": manipulate,
    "create": create,
    "reduce": reduce,
    "index": index,
    "search_sort": search_sort,
    "sampling": sampling,
    "conv": conv,
    "pool": pool,
    "scalars": scalars,
    "activations": activations,
    "norms": norms,
    "losses": losses,
    "quantize": quantize,
    "rearrange": rearrange,
    "gather": gather,
    "scatter": scatter,
    "resizing": resizing,
    "grids": grids,
    "vision": vision,
    "collectives": collectives,
}
"""Functions giving the cases of each family."""
