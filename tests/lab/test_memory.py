"""The memory explorer: plans as data agree with the planner, at every value of the symbols."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.lab.memory import memory
from relaxlab.lab.payload import pack
from relaxlab.lab.symbols import spelled
from tests.lab.programs import CHAIN, NETWORK, WRONG, decoder


def value(encoded, env):
    """Return the value that `evaluate` of core.js computes."""
    if isinstance(encoded, str):
        return env[encoded]
    if isinstance(encoded, int):
        return encoded
    op, a, b = encoded
    a, b = value(a, env), value(b, env)
    return {
        "+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1), "%": a % (b or 1),
        "min": min(a, b), "max": max(a, b),
    }[op]  # fmt: skip


@pytest.fixture(scope="module")
def chain():
    return memory(rl.parse(CHAIN))


def test_tensors_in_use_together_do_not_overlap():
    for program in (CHAIN, NETWORK):
        for function in memory(program).state["functions"]:
            for plan in function["plans"]:
                for arena in plan["arenas"]:
                    for n in (1, 3, 64):
                        _disjoint(function, arena, dict.fromkeys(function["symbols"], n))


def _disjoint(function, arena, env):
    placed = []
    for number, offset, size, *_ in arena["blocks"]:
        t = function["tensors"][number]
        low, high = value(offset, env), value(offset, env) + value(size, env)
        assert high <= value(arena["size"], env)
        for start, end, other_low, other_high in placed:
            together = start <= t["end"] and t["start"] <= end
            assert not together or high <= other_low or other_high <= low
        placed.append((t["start"], t["end"], low, high))


def test_reuse_is_explained(chain):
    (main,) = chain.state["functions"]
    plan = main["plans"][main["start"]]
    (arena,) = plan["arenas"]
    names = [t["name"] for t in main["tensors"]]
    why = {names[b[0]]: b[4] for b in arena["blocks"]}
    assert why["a"] == "new memory: no earlier tensor is dead yet"
    assert why["c"] == "it reuses the memory of a, which nothing reads any more"
    assert [names[i] for b in arena["blocks"] if names[b[0]] == "c" for i in b[3]] == ["a"]
    assert [(names[i], reason) for i, reason in plan["unplanned"]] == [("d", "it is returned")]


def test_bounds_are_tried(chain):
    (main,) = chain.state["functions"]
    titles = [p["title"] for p in main["plans"]]
    assert titles == [
        "without upper bounds", "n ≤ 128", "n ≤ 256", "as compiled: n ≤ 512", "n ≤ 1024",
    ]  # fmt: skip
    sizes = [p["arenas"][0]["size"] for p in main["plans"]]
    assert sizes[1:] == [2 * n * 256 for n in (128, 256, 512, 1024)]
    assert spelled(sizes[0]) == "n * 512"
    assert main["start"] == 3


def test_steps_are_calls_in_program_order(chain):
    (main,) = chain.state["functions"]
    assert not any("alloc" in s for s in main["steps"])
    spans = {
        t["name"]: (main["steps"][t["start"]], main["steps"][t["end"]]) for t in main["tensors"]
    }
    assert all(first.startswith("matmul") for first, _ in spans.values())
    a, b = (next(t for t in main["tensors"] if t["name"] == n) for n in "ab")
    assert a["start"] < b["start"] == a["end"] < b["end"]


def test_programs_that_fail_or_have_nothing_to_plan():
    state = memory(WRONG).state
    assert state["functions"] == [] and state["failure"]["pass"] == "normalize"
    one = NETWORK[: NETWORK.index("            h1")] + "            R.output(h)\n        return h\n"
    assert "returned" in memory(one).text
    with pytest.raises(KeyError, match="no graph function"):
        memory(CHAIN, "other")


def test_a_large_model_is_small_data():
    view = memory(decoder())
    prefill = view.state["functions"][0]
    assert len(prefill["tensors"]) > 200
    assert len(pack(view.state)) < 60_000 and len(view.html()) < 250_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sliding_and_choosing(chain, open_view, scheme):
    page = open_view(chain, scheme)
    assert "as compiled: n ≤ 512" in page.inner_text(".root")
    assert "peak 256 KiB" in page.text_content("svg.chart >> nth=0")
    slider = page.get_by_label("plan, by upper bounds")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert "n ≤ 1024" in page.inner_text(".root")
    assert "peak 512 KiB" in page.text_content("svg.chart >> nth=0")
    page.keyboard.press("Home")
    page.get_by_label("value of n").fill("10")
    page.keyboard.press("Tab")
    assert "peak 5 KiB" in page.text_content("svg.chart >> nth=0")
    page.locator("g.block").first.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    panel = page.locator(".panel[aria-live]")
    assert "It reuses the memory of a" in panel.inner_text()
    panel.get_by_role("button", name="a", exact=True).click()
    assert "reused by" in panel.inner_text()


def test_running_above_a_bound(chain, open_view):
    page = open_view(chain)
    page.get_by_label("value of n").fill("600")
    page.keyboard.press("Tab")
    assert "n = 600 is above its upper bound 512" in page.inner_text(".root")


def test_time_is_stretched_by_a_zoom(chain, open_view):
    page = open_view(chain)
    chart = page.locator("svg.chart").first
    wide = chart.bounding_box()["width"]
    page.get_by_label("zoom, powers of two").fill("2")
    box = chart.bounding_box()
    assert box["width"] == pytest.approx(4 * wide, rel=0.01)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
