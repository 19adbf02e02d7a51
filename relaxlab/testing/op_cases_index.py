"""Uses of operators that rearrange, gather and scatter, for `check_op`."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.index_map import IndexMap
from relaxlab.testing.op_check import OpCase, Shape, Symbol, T

SOME = ({"n": 3}, {"n": 1}, {"n": 7})
PAIRS = ({"n": 3, "m": 2}, {"n": 1, "m": 4}, {"n": 0, "m": 1})


def rearrange() -> list[OpCase]:
    """Grids, layouts, pixel shuffling, undone broadcasts, identity matrices, windows."""
    grids = ((T("n"), T("m")), (T("n", dtype="int8"), T("m", dtype="int8"), T(dtype="int8")))
    seq = T(3, dtype="int32", low=0, high=5)
    op = "reverse_sequence"
    cases = [
        *(OpCase("meshgrid", (g,), {"indexing": i}, PAIRS) for g in grids for i in ("ij", "xy")),
        OpCase("meshgrid", ((T("n"),),), {"indexing": "xy"}),
        OpCase(op, (T(3, "n", 2), seq), {}, ({"n": 5}, {"n": 7}, {"n": 3})),
        OpCase(op, (T("n", 3, dtype="float16"), seq), {"seq_axis": 0, "batch_axis": -1}),
        OpCase("nn.pixel_shuffle", (T("n", 4, 2, 3),), {"upscale_factor": 2}),
        OpCase("nn.pixel_shuffle", (T(9, "h", 2, dtype="int32"),), {"upscale_factor": 3},
               ({"h": 2}, {"h": 1})),
        OpCase("collapse_sum_to", (T(2, "n", 3), Shape("n", 1)), {}),
        OpCase("collapse_sum_to", (T("n", 3, dtype="float16"), Shape())),
        OpCase("collapse_sum_to", (T("n", "m", dtype="int32"), Shape("n", "m")), sizes=PAIRS),
        OpCase("collapse_sum_to", (T("n", 2), Shape("m", 2)), {},
               ({"n": 3, "m": 3}, {"n": 3, "m": 1}, {"n": 1, "m": 1})),
        OpCase("collapse_sum_like", (T(2, "n", 3), T("n", 3)), {}),
        OpCase("collapse_sum_like", (T("n", 3), T(1))),
    ]  # fmt: skip
    return cases + _layouts() + _made()


def _layouts() -> list[OpCase]:
    def of(fn: object) -> dict[str, IndexMap]:
        return {"index_map": IndexMap.of(fn)}  # type: ignore[arg-type]

    tiled = of(lambda i, j: (j // 4, i, j % 4))
    return [
        OpCase("layout_transform", (T("n", 3),), of(lambda i, j: (j, i))),
        OpCase("layout_transform", (T("n", 8, dtype="int8"),), tiled),
        OpCase("layout_transform", (T("n", 6),), {**tiled, "pad_value": 2.0}),
        OpCase("layout_transform", (T("n", 3),), of(lambda i, j: (i * 3 + j,)), SOME),
        OpCase("layout_transform", (T("n", 3),),
               {**of(lambda i, j: (i // 16, j, i % 16)), "pad_value": 2.0}),
    ]


def _made() -> list[OpCase]:
    n, m = Symbol("n"), Symbol("m")
    like = {"k": 1, "dtype": "int32"}
    windows = ({"n": 5}, {"n": 1}, {"n": 0})
    return [
        *(OpCase("eye", (), {"n": n, "m": m, "k": k}, PAIRS) for k in (0, -1, 2)),
        OpCase("eye", (), {"n": n, "dtype": "bool"}),
        OpCase("eye_like", (T("n", 3, dtype="float16"),)),
        OpCase("eye_like", (T("n", "m"),), like, PAIRS),
        OpCase("hamming_window", (), {"window_size": n}, windows),
        OpCase("hamming_window", (), {"window_size": n, "periodic": False, "alpha": 0.5}, windows),
        OpCase("hamming_window", (), {"window_size": n, "dtype": "float16"}, windows),
    ]


def gather() -> list[OpCase]:
    """Reading at places that tensors name."""
    whole = {"dtype": "int64", "low": -2, "high": 1}
    return [
        OpCase("gather_nd", (T(3, 2, "n"), T("m", 2, **whole)), {}, PAIRS),
        OpCase("gather_nd", (T(2, 3), T("n", 4, 1, dtype="int32", low=0, high=1))),
        OpCase("gather_nd", (T("n", 2, 3), T("n", 4, 1, **whole)), {"batch_dims": 1}),
        OpCase("gather_nd", (T("n", 2, dtype="float16"), T("n", 2, 1, **whole)), {"batch_dims": 1}),
        OpCase("gather_nd", (T(2, 2, dtype="bool"), T(2, **whole)), {}, ({},)),
        OpCase("index_tensor", (T(2, 3, "n"), (T("m", **whole), T("m", **whole))), {}, PAIRS),
        OpCase("index_tensor", (T(2, 4), (T("n", 1, **whole), T(3, **whole)))),
        OpCase("index_tensor", (T(2, "n", dtype="int8"), (T(2, 2, **whole),))),
    ]


def scatter() -> list[OpCase]:
    """Writing at places that tensors name."""
    far = {"dtype": "int64", "low": -5, "high": 4}
    cases: list[OpCase] = []
    for reduction in ("update", "add", "mul", "max", "min", "mean"):
        attrs = {"reduction": reduction}
        cases += [
            OpCase(
                "scatter_elements",
                (T(4, "n"), T(6, "n", **far), T(6, "n")),
                attrs,
            ),
            OpCase(
                "scatter_nd",
                (T(3, 2, "n"), T(4, 2, dtype="int32", low=-3, high=2), T(4, "n")),
                attrs,
            ),
            OpCase(
                "scatter_elements",
                (T("n", 4, dtype="int32", low=-9, high=9), T("n", 5, **far),
                 T("n", 5, dtype="int32", low=-9, high=9)),
                {"axis": -1, **attrs},
            ),
            OpCase(
                "scatter_elements",
                (T("n", 3, dtype="float16"), T("n", 4, **far), T("n", 4, dtype="float16")),
                {"axis": 1, **attrs},
            ),
        ]  # fmt: skip
    return cases + _points(far) + _slices()


def _points(far: dict[str, Any]) -> list[OpCase]:
    near = {"dtype": "int64", "low": -2, "high": 1}
    adding = {"accumulate": True}
    return [
        OpCase("scatter_elements", (T(5, 4), T("n", "m", **near), T("n", "m")), {}, PAIRS),
        OpCase("scatter_elements", (T(3, 4), T(3, "n", **far), T(3, "n")), {"axis": 1}),
        OpCase("scatter_nd", (T(9), T("n", 1, **far), T("n")), {"reduction": "add"}),
        OpCase("scatter_nd", (T(2, 2, dtype="bool"), T("n", 2, **near), T("n", dtype="bool"))),
        OpCase("scatter_nd", (T("n", 2), T(3, 2, 1, **far), T(3, 2, 2)), {}, SOME),
        OpCase("index_put", (T(2, 3), (T("n", **near), T("n", **near)), T("n"))),
        OpCase("index_put", (T(2, 3, "n"), (T(4, **near), T(4, **near)), T(4, "n"))),
        OpCase("index_put", (T(2, 2), (T("n", 1, **near), T(3, **near)), T("n", 3)), adding),
        OpCase("index_put", (T(2, "n", dtype="int8"), (T(5, **near),), T(dtype="int8"))),
        OpCase("index_put", (T(2, "n", dtype="bfloat16"), (T(5, **near),),
                             T(5, 1, dtype="bfloat16")), adding),
        OpCase("grad.take_backward", (T("n", 3), T(4, 3), T("n", **far)), {"axis": 0}),
        OpCase("grad.take_backward", (T(2, "n", 2), T(2, 5), T("n", 2, **far)), {"axis": -1}),
        OpCase("grad.take_backward", (T("n"), T("m"), T("n", dtype="int32", low=0, high=2)), {},
               ({"n": 5, "m": 3}, {"n": 0, "m": 4})),
        OpCase("grad.take_backward",
               (T("n", dtype="float16"), T(3, dtype="float16"), T("n", **far)), {"axis": 0}),
    ]  # fmt: skip


def _slices() -> list[OpCase]:
    a, b = Symbol("a"), Symbol("b")
    op, two = "slice_scatter", ({"n": 3}, {"n": 1})
    return [
        OpCase(op, (T(5, "n"), T(2, "n")), {"start": 1, "end": 3}),
        OpCase(op, (T("n", 8), T("n", 3)), {"start": -7, "end": 100, "step": 3, "axis": -1}, two),
        OpCase(op, (T("n", 3, dtype="int8"), T("n", 3, dtype="int8")), {"start": 0, "end": 99}),
        OpCase(op, (T(6), T("c")), {"start": a, "end": b},
               ({"a": 1, "b": 4, "c": 3}, {"a": 4, "b": 9, "c": 2}, {"a": 3, "b": 2, "c": 0})),
    ]  # fmt: skip
