"""Uses of operators that rearrange, gather and scatter, for `check_op`."""

from __future__ import annotations

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
        OpCase("collapse_sum_to", (T("n", 3, dtype="float16"), Shape()), {}, SOME),
        OpCase("collapse_sum_to", (T("n", "m", dtype="int32"), Shape("n", "m")), sizes=PAIRS),
        OpCase("collapse_sum_to", (T("n", 2), Shape("m", 2)), {},
               ({"n": 3, "m": 3}, {"n": 3, "m": 1}, {"n": 1, "m": 1})),
        OpCase("collapse_sum_like", (T(2, "n", 3), T("n", 3)), {}),
        OpCase("collapse_sum_like", (T("n", 3), T(1)), {}, SOME),
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
