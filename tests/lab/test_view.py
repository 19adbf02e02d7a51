"""The frame of all views: payloads, fragments, pages, and how they start in a browser."""

from __future__ import annotations

import os
import random
import threading

import pytest

from relaxlab.ir.expr import LT, FloorDiv, IntImm, Min, Var
from relaxlab.lab import assets
from relaxlab.lab.payload import Interner, pack, unpack
from relaxlab.lab.symbols import encode, spelled
from relaxlab.lab.view import Page, View

HOSTILE = (
    '</script><script>window.bad = 1</script><img src=x onerror="window.bad = 1">\'"&amp;\u2028 ]]>'
)


def view(lines, title="a module"):
    interner = Interner()
    ids = interner.ids(lines)
    state = {"lines": ids, "table": interner.lines, "title": title, "notes": [title]}
    return View("module", title, state, "\n".join(lines))


def test_lines_are_interned_once():
    interner = Interner()
    assert interner.ids(["a", "b", "a"]) == [0, 1, 0]
    assert interner.ids(["c", "b"]) == [2, 1]
    assert interner.lines == ["a", "b", "c"]


def test_packed_states_come_back():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    text = "".join(
        chr(rng.choice((rng.randrange(1, 128), rng.randrange(0x2000, 0xE000)))) for _ in range(500)
    )
    state = {"text": text, "n": [1, -2.5, None, True], HOSTILE: {}}
    assert unpack(pack(state)) == state
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            pack([wrong])


def test_expressions_are_encoded():
    n = Var("n")
    assert encode(Min(n * 4 + 1, FloorDiv(n, IntImm(2)))) == [
        "min",
        ["+", ["*", "n", 4], 1],
        ["//", "n", 2],
    ]
    assert encode(LT(n, IntImm(3)))[0] == "text"


def test_an_unknown_kind_is_refused():
    with pytest.raises(FileNotFoundError):
        assets.link("nothing")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_stays_text(open_view, scheme):
    lines = ["def f():", HOSTILE, f"x = '{HOSTILE}'", "# -->", "${1}`"]
    page = open_view(view(lines, HOSTILE), scheme)
    assert page.evaluate("window.bad") is None
    shown = page.locator(".ln").all_inner_texts()
    for line, row in zip(lines, shown, strict=True):
        assert line.split("\u2028")[0] in row
    assert page.locator("h3").inner_text() == HOSTILE.replace("\u2028", "\u2028")
    assert page.title() == HOSTILE


def test_without_scripts_the_text_is_there(chromium, tmp_path):
    path = view(["def f():", "    return '<b>'"]).save(tmp_path / "page.html")
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    assert "return '<b>'" in page.locator("pre").inner_text()


def test_a_view_starts_before_it_is_scrolled_to(open_page, tmp_path):
    """As in JupyterLab: an element of the page scrolls, and those around it clip."""
    path = tmp_path / "page.html"
    path.write_text(
        '<!doctype html><meta charset="utf-8"><div style="contain:strict;height:400px">'
        '<div style="height:400px;overflow:auto"><div style="height:700px"></div>'
        f'{view(["a = 1"]).html()}<div style="height:2000px"></div>{view(["b = 2"]).html()}'
        "</div></div>"
    )
    page = open_page(path)
    near, far = (page.locator(".relaxlab-view").nth(i) for i in range(2))
    near.and_(page.locator("[data-ready=true]")).wait_for()
    assert far.get_attribute("data-ready") is None, "it costs nothing until somebody comes near"
    far.scroll_into_view_if_needed()
    far.and_(page.locator("[data-ready=true]")).wait_for()


def test_tabs_start_their_view_when_chosen(open_view):
    page = open_view(Page.of("two", [view(["a = 1"], "first"), view(["b = 2"], "second")]))
    assert page.locator("[role=tab]").all_inner_texts() == ["first", "second"]
    assert page.locator("h3:visible").all_inner_texts() == ["first"]
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("h3:visible").all_inner_texts() == ["second"]
    with pytest.raises(ValueError, match="at least one"):
        Page.of("none", [])


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    one = view(["a"])
    with pytest.raises(OSError, match="cannot write .*page.html: there is no folder .*missing"):
        one.save(tmp_path / "missing" / "page.html")
    path = one.save(str(tmp_path / "page.html"))
    assert path.read_text("utf-8").endswith("</html>\n") and [*tmp_path.iterdir()] == [path]


def test_encoded_expressions_are_spelled():
    n, m = Var("n"), Var("m")
    for e in (n * 4 + 1, (n + 1) * 4, Min(n, m * 2), n - (m - 1), (n * m) // 2):
        assert spelled(encode(e)) == str(e)
    assert spelled(encode(LT(n, IntImm(3)))) == "n < 3"


def test_a_view_fills_the_window_and_shrinks_again(open_view):
    page = open_view(Page.of("two", [view(["a = 1"] * 200, "first"), view(["b = 2"], "second")]))
    root = page.locator(".root").first
    before = root.bounding_box()
    assert page.locator("button[title*='Full screen']").count() == 1, "one for all tabs"
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("f")
    assert root.bounding_box()["x"] == 0 and root.bounding_box()["width"] == 1100
    page.locator("input[type=search]").fill("f")
    assert root.bounding_box()["x"] == 0, "f is typed there"
    page.keyboard.press("Escape")
    assert root.bounding_box() == before
    page.locator("button[title*='Full screen']").click()
    assert root.bounding_box()["x"] == 0
    assert page.locator(".script").bounding_box()["height"] > 600, "the script uses the window"


def test_choices_are_in_the_address(open_view):
    functions = "".join(f"    @R.function\n    def f{i}(x):\n        pass\n" for i in range(3))
    second = view(f"class M:\n{functions}".split("\n"), "second one")
    page = open_view(Page.of("two", [view(["a = 1"], "first"), second]))
    assert page.evaluate("location.hash") == ""
    page.locator("[role=tab]").last.click()
    page.locator("select:visible").select_option("f2")
    assert page.evaluate("location.hash") == "#second-one:function=f2"
    page.reload()
    page.wait_for_selector(".relaxlab-view[data-ready=true]")
    assert page.locator("select:visible").input_value() == "f2"
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "second one"
    assert page.locator("h1").inner_text() == "two"


def test_saving_follows_links_and_replaces_no_device(tmp_path):
    one = view(["text"])
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    link.symlink_to(page)
    assert one.save(link) == link and link.is_symlink()
    assert "text" in page.read_text(encoding="utf-8")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(
        target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True
    )
    reader.start()
    one.save(pipe)
    reader.join(10)
    assert pipe.is_fifo() and read == [one.page()]
