"""Drawings are well-formed SVG, escape what they show, and follow light and dark pages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import relaxlab as rl
from relaxlab.lab.drawing import HUES, Drawing, clipped
from relaxlab.lab.symbols import value_of
from relaxlab.lab.view import View
from tests.lab.test_view import HOSTILE


def example() -> Drawing:
    d = Drawing(f"a {HOSTILE}", f"words {HOSTILE}", 200, 100)
    d.box((10, 10), (80, 30), f"{HOSTILE}\nsecond", "blue", strong=True)
    d.box((10, 50), (80, 30), "empty", dashed=True)
    d.line((90, 25), (120, 25), (120, 60), arrow=True)
    d.curve([(0, 0), (10, 10), (20, 20), (30, 30)])
    d.circle((150, 50), 4, "red", HOSTILE)
    d.row((100, 70), ["1", "2"], ["green", None])
    d.brace((10, 90), (90, 90), "all")
    return d


def test_a_file_is_well_formed_and_has_its_own_colours(tmp_path: Path) -> None:
    path = example().view().save(tmp_path / "drawing.SVG")
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [e.text or "" for e in root.iter() if e.tag.endswith("text")]
    assert HOSTILE in texts and "second" in texts and "all" in texts
    assert "prefers-color-scheme:dark" in path.read_text("utf-8")


def test_text_of_a_drawn_view() -> None:
    view = example().view(below="<p>below</p>")
    html = view.html()
    assert HOSTILE not in html and html.endswith("<p>below</p></div>")
    assert view.text == f"words {HOSTILE}" and "<style>" not in html
    assert {HUES["blue"], HUES["green"], HUES["red"]} <= set(html.split('"'))


def test_views_without_a_drawing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the module view has no drawing; save it as a page"):
        View("module", "a title", {}, "").save(tmp_path / "x.svg")
    with pytest.raises(ValueError, match=r"convert it \(`rsvg-convert x.svg -o x.png`\)"):
        example().view().save(tmp_path / "x.png")
    with pytest.raises(ValueError, match="saved as HTML or SVG.*: name it x.html"):
        example().view().save(tmp_path / "x.docx")
    assert not list(tmp_path.iterdir())


def test_names_are_cut_to_their_boxes() -> None:
    assert clipped("short", 100) == "short"
    assert clipped("a_long_name_of_a_kernel", 60) == "a_long_…"


def test_a_drawing_stands_beside_views_that_need_a_script(open_page, tmp_path: Path) -> None:
    """The script that starts views leaves it alone."""
    mod = rl.parse("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return y
""")
    both = example().view().html() + rl.explore.graph(mod).html()
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{both}", "utf-8")
    page = open_page(tmp_path / "page.html")
    page.wait_for_selector('.relaxlab-view[data-kind="graph"][data-ready=true]')
    assert page.locator('[data-kind="drawing"] svg').count() == 1
    assert page.locator('[data-kind="drawing"] pre').count() == 0


MOD = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.matmul(c, w)
            R.output(d)
        return d
"""


def test_graphs_fusions_and_plans_are_saved_as_pictures(tmp_path: Path) -> None:
    mod = rl.parse(MOD)
    for view, texts in (
        (rl.explore.graph(mod), {"x", "matmul", "nn.relu", "return", "(n, 64) float32"}),
        (rl.explore.fusion(mod), {"main", "matmul", "relu"}),
        (rl.explore.memory(mod), {"n = 64", "32,768 bytes"}),
    ):
        root = ElementTree.parse(view.save(tmp_path / f"{view.kind}.svg")).getroot()
        assert texts <= {e.text for e in root.iter() if e.tag.endswith("text")}
    fused = (tmp_path / "fusion.svg").read_text("utf-8")
    assert HUES["blue"] in fused and HUES["green"] not in fused, "one group of two calls"


def test_values_of_encoded_sizes() -> None:
    size = ["+", ["*", "n", 4], ["max", ["//", "m", 2], 1]]
    assert value_of(size, {"n": 3, "m": 5}) == 14
    assert value_of(size, {"n": 3}) is None
    assert value_of(["%", "n", 0], {"n": 3}) is None
    assert value_of(["text", "f(n)"], {"n": 3}) is None
