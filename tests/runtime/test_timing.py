"""Timings are well-formed, and a comparison says where results differ. How long things take is not
tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.lab.drawing import HUES
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@T.prim_func
def product(A: T.Buffer(("m", 16)), B: T.Buffer((16, 8), "float32"), C: T.Buffer(("m", 8))):
    m = T.int64()
    for i, j, k in T.grid(m, 8, 16):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@pytest.fixture
def operands(rng: np.random.Generator) -> tuple[Any, Any]:
    shapes = ((4, 16), (16, 8))
    a, b = (rng.normal(size=s).astype("float32") for s in shapes)
    return a, b


def in_order(*order: int) -> rl.Schedule:
    sch = rl.Schedule(product)
    loops = sch.get_loops(sch.get_block("C"))
    sch.reorder(*(loops[i] for i in order))
    return sch


def test_one_timing(operands: tuple[Any, Any]) -> None:
    """`time` takes whatever can be called or compiled; the arithmetic is that of the loops."""
    exe = rl.compile(product)
    out = np.empty((4, 8), "float32")
    for f, args in (
        (product, operands), (in_order(0, 2, 1), operands), (exe, operands),
        (exe["product"], operands), (exe["product"], (*operands, out)),
    ):  # fmt: skip
        timing = rl.time(f, *args, samples=3)
        assert len(timing.samples) == 3 and timing.calls >= 1
        assert min(timing.samples) <= timing.seconds <= max(timing.samples)
        assert timing.best == min(timing.samples) and timing.spread >= 0
        assert timing.flops == 2 * 4 * 8 * 16
        assert timing.flop_rate == timing.flops / timing.seconds
    plain = rl.time(np.matmul, *operands, samples=3)
    assert plain.name == "matmul" and plain.flops is None and plain.flop_rate is None
    assert plain.bytes == 4 * (4 * 16 + 16 * 8 + 4 * 8)
    assert "per call" in repr(plain) and "GB/s" in repr(plain) and "\n" not in repr(plain)


def test_a_comparison_finds_wrong_results(operands: tuple[Any, Any]) -> None:
    found = rl.compare(
        {
            "i j k": in_order(0, 1, 2),
            "i k j": in_order(0, 2, 1),
            "by rule": product,
            "numpy": np.matmul,
            "off by one": lambda a, b: a @ b + 1,
            "transposed": lambda a, b: (a @ b).T,
        },
        *operands,
        samples=3,
    )
    assert [t.name for t in found] == [
        "i j k", "i k j", "by rule", "numpy", "off by one", "transposed",
    ]  # fmt: skip
    assert set(found.differs) == {"off by one", "transposed"}
    assert "off by up to 1" in found.differs["off by one"]
    assert "has the shape (8, 4), expected (4, 8)" in found.differs["transposed"]
    assert repr(found).count("DIFFERS") == 2 and len(repr(found).splitlines()) == 6
    assert found["numpy"].flops is None
    with pytest.raises(KeyError, match="'cupy' was not timed; there are: i j k, "):
        found["cupy"]


def test_candidates_have_arguments_of_their_own() -> None:
    def grow(x: Any) -> Any:
        x += 1
        return x[0] * 0

    x = np.zeros(3)
    assert not rl.compare({"a": grow, "b": grow}, x, samples=3).differs
    assert not x.any()


def test_functions_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        rl.compare({})
    with pytest.raises(TypeError, match="'seven' is an int, which cannot be called"):
        rl.compare({"seven": 7})


def test_symbols_of_graph_functions_count(rng: np.random.Generator) -> None:
    @I.ir_module
    class Layer:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32"), w: R.Tensor((16, 8), "float32")):
            y = R.matmul(x, w)
            return y

    x, w = np.ones((5, 16), "float32"), np.ones((16, 8), "float32")
    assert rl.time(Layer, x, w, samples=3).flops == 2 * 5 * 16 * 8


def test_the_drawing_has_all_of_it(operands: tuple[Any, Any]) -> None:
    found = rl.compare({"a <b>": np.matmul, "wrong": lambda a, b: a}, *operands, samples=3)
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == repr(found)
    html = bundle["text/html"]
    assert "<svg" in html and "a &lt;b&gt;" in html and "<b>" not in html
    assert html.count(f'fill="{HUES["red"]}"') == 1
    by_hand = rl.explore.timings({"one": 1e-3, "two": found["wrong"]})
    assert "1 ms" in by_hand.html() and "two" in by_hand.html()
    assert "agrees" in html and "agrees" not in by_hand.html(), "there was nothing to compare"
    assert "spread" not in rl.explore.timings({"one": 1e-3}).html(), "of one sample"
    for wrong, message in (({}, "no timings"), ({"zero": 0.0}, "'zero' took 0.0 seconds")):
        with pytest.raises(ValueError, match=message):
            rl.explore.timings(wrong)


def test_names_are_drawn_whole_and_the_axis_ends_at_the_next_power_of_ten() -> None:
    html = rl.explore.timings({"a schedule with a name of some length": 1e-2, "b": 3e-4}).svg()
    assert "a schedule with a name of some length" in html
    assert ">10 ms<" in html and ">100 ms<" not in html


def test_the_bars_are_saved_as_a_page_and_as_a_picture(tmp_path: Path) -> None:
    view = rl.explore.timings({"one": 1e-3})
    assert "<svg" in view.save(tmp_path / "bars.html").read_text("utf-8")
    assert "1 ms" in view.save(tmp_path / "bars.svg").read_text("utf-8")


def test_two_schedules_side_by_side() -> None:
    first, second = in_order(0, 2, 1), in_order(0, 2, 1)
    second.unroll(second.get_loops(second.get_block("C"))[-1])
    view = rl.explore.compare(product, first, second)
    names = [[p["name"] for p in side["passes"]] for side in view.state["sides"]]
    assert names == [["reorder"], ["reorder", "unroll"]]
    assert view.state["rows"][0][2] == 1 and view.state["rows"][1][2] == 0


@pytest.mark.parametrize("candidates", [[len], {1: len}, None])
def test_what_is_compared_has_names(candidates: Any) -> None:
    with pytest.raises(TypeError, match="is given as a dictionary of names and programs"):
        rl.compare(candidates, [])
