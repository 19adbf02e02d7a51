"""Properties of the graph, shapes, fusion and memory views alike: hostile names, huge programs,
keyboards and screen readers, narrow columns, speed."""

from __future__ import annotations

import random

import pytest

import relaxlab as rl
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.lab import assets
from relaxlab.lab.fusion import fusion
from relaxlab.lab.graph import graph_view
from relaxlab.lab.memory import memory
from relaxlab.lab.payload import pack
from relaxlab.lab.shapes import shapes
from relaxlab.ops.define import builder
from relaxlab.passes.base import find_pass
from relaxlab.testing.mixed_programs import mixed_program
from relaxlab.testing.script_corpus import PROGRAMS
from tests.lab.programs import CALLS, CHAIN, NETWORK, WRONG

HOSTILE = '</script><script>window.bad = 1</script><img src=x onerror="window.bad = 1">\'"&amp;'

RENDER = """
async ([code, kind, state]) => {
  const {views} = await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  const [values, calls] = [new Map([["state", state]]), []];
  const model = {
    get: (key) => values.get(key),
    set(key, value) {
      values.set(key, value);
      calls.forEach(([k, f]) => k === `change:${key}` && f());
    },
    on: (key, f) => calls.push([key, f]),
    off: (key, f) => calls.splice(calls.findIndex((c) => c[0] === key && c[1] === f), 1),
    save_changes() {},
  };
  const el = document.createElement("div");
  el.id = "again";
  document.body.append(el);
  let cleanup = views[kind].render({model, el});
  window.again = () => {
    cleanup();
    if (calls.length) throw new Error(`${calls.length} listeners are left`);
    cleanup = views[kind].render({model, el});
  };
}
"""
"""Renders a view into a new element; `window.again()` ends that and renders anew."""

BUILDERS = {
    "graph": graph_view, "shapes": shapes, "fusion": fusion, "memory": memory,
}  # fmt: skip


def chain(count: int, name: str = "v", symbol: str = "n") -> Module:
    """`count` values, each made from the one before by one of four operators in no order."""
    n = expr.Var(symbol)
    x = graph.Var(name, types.TensorType((n, expr.const(8)), "float32"))
    ops = ("exp", "nn.softmax", "negative", "nn.relu")
    bindings: list[graph.Binding] = []
    last = x
    for i in range(count):
        var = graph.Var(f"{name}{i}")
        call = builder(ops[(i * i * 7 + i // 3) % 4])(last)
        bindings.append(graph.VarBinding(call, var))
        last = var
    body = graph.SeqExpr((graph.BindingBlock(tuple(bindings)),), last)
    return Module.of({"main": graph.Function((x,), body)})


@pytest.mark.parametrize("kind", BUILDERS)
def test_hostile_names_are_text(kind, open_view):
    view = BUILDERS[kind](chain(6, HOSTILE, HOSTILE))
    page = open_view(view)
    page.wait_for_timeout(100)
    assert page.evaluate("window.bad") is None
    assert "window.bad = 1" in page.inner_text(".root")
    assert page.locator("img").count() == 0
    assert "<script>window" not in view.html()


@pytest.mark.parametrize("kind", BUILDERS)
def test_hostile_text_of_a_program_is_text(kind, open_view):
    program = CALLS.replace('"outside"', '"<script>window.bad = 1</script>"')
    page = open_view(BUILDERS[kind](rl.parse(program)))
    assert page.evaluate("window.bad") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", BUILDERS)
def test_accessibility(kind, scheme, open_view, audit):
    page = open_view(BUILDERS[kind](rl.parse(CHAIN if kind == "memory" else NETWORK)), scheme)
    for summary in page.locator("summary").all():
        summary.click()
    if kind == "fusion":
        page.get_by_role("button", name="Last step").click()
    assert audit(page) == []


@pytest.mark.parametrize("kind", BUILDERS)
def test_accessibility_of_failures(kind, open_view, audit):
    assert audit(open_view(BUILDERS[kind](WRONG))) == []


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_huge_program_stays_small_and_quick(kind, open_view):
    """Over a thousand values, of which nothing repeats: at most 500 nodes, a page that opens."""
    view = BUILDERS[kind](chain(1200))
    assert len(pack(view.state)) < 500_000 and len(view.html()) < 700_000
    page = open_view(view)
    assert page.locator("g.node, g.group").count() <= 500 + 1
    assert "main" in view.text or kind == "memory"


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_narrow_column_is_enough(kind, open_view):
    """Nothing is wider than a notebook's column; what is large scrolls inside."""
    page = open_view(BUILDERS[kind](rl.parse(CHAIN)), width=700)
    root = page.locator(".root")
    assert root.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 1


@pytest.mark.parametrize("kind", BUILDERS)
def test_the_page_is_made_again_where_it_was(kind, open_view):
    """View state lives in the model: a second rendering shows the same."""
    view = BUILDERS[kind](rl.parse(CHAIN))
    page = open_view(view)
    page.evaluate(RENDER, [assets.link(kind), kind, view.state])
    first = page.locator("#again .root")
    first.get_by_label("value of n").fill("48")
    page.keyboard.press("Tab")
    text = first.inner_text()
    page.evaluate("window.again()")
    second = page.locator("#again .root")
    assert second.count() == 1 and second.inner_text() == text
    assert second.get_by_label("value of n").input_value() == "48"


def test_live_versions_make_the_view_again():
    view = fusion(rl.parse(NETWORK))
    controls = {c.name: c.value for c in view.controls}
    assert controls["max_group"] == find_pass("fuse_ops").options.max_group
    assert "def main(" in controls["program"]
    steps = view.again(max_group=2).state["functions"][0]["steps"]
    assert any(s["reason"] == "the kernel would do more than 2 calls" for s in steps)
    assert memory(rl.parse(CHAIN)).again(target="cuda").state["functions"]
    drawn = graph_view(rl.parse(NETWORK)).again(program=CHAIN).state["functions"]
    assert drawn == graph_view(rl.parse(CHAIN)).state["functions"]
    fixed = shapes(WRONG).again(program=CALLS)
    assert fixed.state["failure"] is None
    broken = shapes(fixed.controls[0].value.replace("axis=1", "axis=9", 1)).state["failure"]
    assert broken["diagnostics"][0]["code"] == "E0203"


def test_any_program_can_be_explored():
    """Branches, local functions, data-dependent shapes, libraries, tuples, updates in place."""
    seeds = random.sample(range(1 << 20), 3)
    print("seeds", seeds)
    programs = [rl.parse(text) for text in PROGRAMS.values()]
    programs += [mixed_program(seed) for seed in seeds]
    for mod in programs:
        for view in (build(mod) for build in BUILDERS.values()):
            assert view.state["failure"] is None and pack(view.state)


NOTHING = """
@I.ir_module
class Nothing:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        return x
"""

LOOPS = """
@I.ir_module
class Loops:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(2)
"""

TABS = ["Pipeline", "Dataflow", "Shapes", "Fusion", "Memory", "Loops", "Code", "Run"]


@pytest.mark.parametrize("program", [NOTHING, LOOPS, WRONG], ids=["nothing", "loops", "wrong"])
def test_every_tab_of_a_page_says_something_under_its_own_name(program, open_view):
    page = open_view(rl.explore(program if program is WRONG else rl.parse(program)))
    tabs = page.get_by_role("tab")
    titles = [t.partition(" of ")[0] for t in tabs.all_inner_texts()[: len(TABS)]]
    assert titles == TABS
    for number in range(len(TABS)):
        tabs.nth(number).click()
        shown = page.locator("[data-part] .root").nth(number)
        shown.wait_for()
        assert shown.inner_text().strip(), titles[number]


def test_a_module_of_loop_functions_runs():
    view = rl.explore(rl.parse(LOOPS), views=["run"])
    assert "twice" in view.text and "Error" not in view.text


@pytest.mark.parametrize(
    "kind", ["pipeline", "graph", "shapes", "fusion", "memory", "code", "llvm"]
)
def test_functions_and_schedules_are_programs(kind):
    loops = rl.parse(LOOPS)["twice"]
    for program in (loops, rl.Schedule(loops), rl.parse(CHAIN)["main"]):
        view = getattr(rl.explore, kind)(program)
        assert not view.state.get("failure") and pack(view.state)


def test_a_page_of_a_function_is_that_of_its_module():
    mod = rl.parse(LOOPS)
    pages = [rl.explore(p, views=["pipeline", "loops"]) for p in (mod, mod["twice"])]
    assert pages[0].kinds == pages[1].kinds
    assert all("def twice(" in page.text for page in pages)


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_view_opens_with_main(kind):
    state = BUILDERS[kind](rl.parse(CALLS)).state
    assert state["functions"][state["start"]]["name"] == "main"
    assert len(state["functions"]) > 1


def test_shapes_of_one_dimension_keep_their_comma(open_view):
    page = open_view(graph_view(rl.parse(NOTHING)))
    assert "(3,) float32" in page.inner_text(".root")


def test_names_are_not_cut_off_by_their_panel(open_view):
    page = open_view(graph_view(chain(3, "name_" * 14)))
    panel = page.locator(".panel").first
    assert panel.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_a_plan_without_storage_says_so(open_view):
    short = NETWORK[: NETWORK.index("            h1")]
    page = open_view(memory(rl.parse(short + "            R.output(h)\n        return h\n")))
    assert page.get_by_text("The plan has no storage").count() == 1
    assert page.locator("svg.chart").count() == 0


def test_numbers_stand_under_their_heading(open_view):
    page = open_view(shapes(rl.parse(NETWORK)))
    right = "e => e.getBoundingClientRect().right"
    head = page.locator(".values-head .amount").evaluate(
        "e => { const r = document.createRange(); r.selectNodeContents(e);"
        " return r.getBoundingClientRect().right; }"
    )
    amounts = page.locator(".values .amount")
    assert abs(amounts.first.evaluate(right) - head) < 12


def test_the_tree_stays_beside_grids_that_are_higher_than_the_window(open_view):
    text = LOOPS.replace("(4,)", "(64, 16)").replace("range(4)", "range(64)")
    text = text.replace("[i]", "[i, 0]")
    buffers = "".join(f', C{k}: T.Buffer((64, 16), "float32")' for k in range(4))
    sums = "".join(f"\n            C{k}[i, 1] = A[i, 0]" for k in range(4))
    text = text.replace("):\n        for", f"{buffers}):\n        for")
    page = open_view(rl.explore.loops(rl.parse(text.rstrip() + sums + "\n"), "twice"), width=1100)
    tree = page.locator(".loops-split > :first-child")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_timeout(100)
    assert page.evaluate("window.scrollY") > 200
    assert tree.evaluate("e => e.getBoundingClientRect().bottom") > 0


def test_views_of_a_page_are_those_that_are_made_one_by_one(monkeypatch):
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    return R.nn.softmax(x)
""")
    made = []
    for seconds in (0.0, 1.0):  # in this process, and in others
        monkeypatch.setattr("relaxlab.lab.explore.SECONDS", seconds)
        made.append(rl.explore(rl.trace(mod).module, views=["graph", "shapes", "memory", "code"]))
    one, other = made
    assert one.text == other.text and one.state == other.state
    assert [tab["title"] for tab in one.state["tabs"]] == ["Dataflow", "Shapes", "Memory", "Code"]
