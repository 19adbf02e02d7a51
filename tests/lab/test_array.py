"""Views of arrays, and the extension that shows every array as one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.lab.array import CORNER, array_view
from relaxlab.lab.run_values import tensor_state


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_statistics_and_a_corner(scheme, open_view, audit, rng):
    array = rng.normal(size=(3, 50, 40)).astype("float32")
    view = array_view(array)
    corner = view.state["corner"]
    assert corner["shape"] == [*CORNER] and corner["name"] == "values[0, :16, :24]"
    assert array_view(array[0, :9]).state["corner"]["name"] == "values[:, :24]"
    assert array_view(array[0, :4, :4]).state["corner"]["name"] == "values"
    assert corner["text"][:2] == [f"{v:.4g}" for v in array[0, 0, :2]]
    assert sum(view.state["histogram"]) == array.size
    page = open_view(view, scheme)
    assert audit(page) == []
    assert "(3, 50, 40) float32" in page.locator("h4").first.inner_text()
    assert page.locator("svg.bars rect").count() == 16
    page = open_view(array_view(np.float32(3)))
    assert "() float32" in page.locator("h4").inner_text()


@pytest.mark.parametrize("value, heat", [
    (np.zeros((0, 3), "int8"), []),
    (np.array([np.nan, np.inf, -np.inf, 1.0, 3.0]), [0, 100, 0, 0, 100]),
    (np.array([True, False]), [100, 0]),
    (np.array([-2.0, 0.0, 1.0, -np.inf]), [-100, 0, 50, -100]),  # both signs: 0 is in the middle
])  # fmt: skip
def test_odd_values_have_a_colour(value, heat):
    assert array_view(value).state["corner"]["heat"] == heat


def test_the_extension_shows_arrays():
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        before, _ = shell.display_formatter.format(np.ones(3))
        shell.extension_manager.load_extension("relaxlab")
        bundle, _ = shell.display_formatter.format(np.ones(3))
        odd, _ = shell.display_formatter.format(np.array(["a"]))
        shell.extension_manager.unload_extension("relaxlab")
        after, _ = shell.display_formatter.format(np.ones(3))
    finally:
        InteractiveShell.clear_instance()
    assert set(before) == set(after) == set(odd) == {"text/plain"}
    assert "relaxlab-view" in bundle["text/html"]


def test_it_is_an_explorer():
    assert rl.explore.array([1, 2]).title == "array (2,)"


def test_large_arrays_have_a_picture_of_means(open_view):
    values = np.outer(np.arange(-150, 150), np.ones(200)).astype("float32")
    values[0, 0] = np.nan
    picture = array_view(np.stack([values, values])).state["picture"]
    assert (picture["of"], picture["block"], picture["shape"]) == ([300, 200], [3, 2], [100, 100])
    assert picture["text"][-1] == "148" and picture["heat"][0] == -100
    assert "picture" not in array_view(values[:16, :24]).state
    page = open_view(array_view(values))
    page.locator("canvas.pixels").hover(position={"x": 10, "y": 1})
    assert "row 0–2, column 6–7: mean -149" in page.locator(".root").inner_text()


def test_statistics_of_extreme_values_are_made_without_warnings():
    """A signalling NaN, as memory that was never written may hold, and squares beyond float64."""
    signalling = np.ones(8, "float32")
    signalling.view("uint32")[2] = 0x7FA00000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = tensor_state(signalling)
        assert (state["nan"], state["mean"], state["std"]) == (1, "1", "0")
        assert tensor_state(np.array([1e300, -1e300]))["std"] == "inf"
