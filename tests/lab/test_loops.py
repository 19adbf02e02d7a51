"""The loops explorer: its recorded state, hostile names shown as text, and its controls in a
browser."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.lab.loop_run import Sizes
from relaxlab.lab.loop_tree import difference, tree_of
from relaxlab.lab.loops import loops, loops_of_program
from relaxlab.lab.payload import pack
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import parse
from tests.lab.test_run import CHAIN
from tests.lab.test_view import HOSTILE
from tests.runtime.simt import programs as simt_programs

MATMUL = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k))
    B = T.match_buffer(b, (k, m))
    C = T.match_buffer(c, (n, m))
    for i, j, p in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, p])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

GATHER = """
@T.prim_func
def main(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n,), "int64")
    Y = T.match_buffer(y, (n,))
    for i in range(n):
        with T.block("Y"):
            vi = T.axis.spatial(n, i)
            Y[X[vi] + vi] = T.float32(1)
"""


def function(text: str) -> PrimFunc:
    (func,) = (f for _, f in parse(text).functions)
    assert isinstance(func, PrimFunc)
    return func


def tiled() -> Schedule:
    sch = Schedule(function(MATMUL))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, [None, 2])
    sch.reorder(io, k, ii, j)
    sch.unroll(ii)
    return sch


def refused() -> Schedule:
    sch = tiled()
    block = sch.get_block("C")
    io, k, ii, _ = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    with pytest.raises(ScheduleError):
        sch.reorder(k, io)
    return sch


# --- The tree ---------------------------------------------------------------------------------


def test_the_tree_has_loops_axes_and_regions():
    rows = tree_of(function(MATMUL)).rows
    assert [("  " * r.depth + r.text, "/".join(r.axes)) for r in rows] == [
        ("for i in range(n)", "S"),
        ("  for j in range(m)", "S"),
        ("    for p in range(k)", "R"),
        ("      block C", ""),
        ("        vi in range(n) = i", "S"),
        ("        vj in range(m) = j", "S"),
        ("        vk in range(k) = p", "R"),
        ("        reads A[vi, vk], B[vk, vj]", ""),
        ("        writes C[vi, vj]", ""),
        ("        init:", ""),
        ("          C[vi, vj] = 0.0", ""),
        ("        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", ""),
    ]


def test_loops_of_fused_and_nested_blocks_know_their_kind():
    sch = Schedule(function(MATMUL))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.fuse(j, k)
    assert [r.axes for r in tree_of(sch.func).rows if r.kind == "for"] == [("S",), ("S", "R")]
    sch = Schedule(function(MATMUL))
    *_, k = sch.get_loops(sch.get_block("C"))
    sch.blockize(k)
    assert [r.axes for r in tree_of(sch.func).rows if r.kind == "for"] == [("S",), ("S",), ("R",)]


def test_differences_tell_new_moved_changed_and_gone_rows():
    versions = loops(tiled()).state["versions"]
    assert [v["number"] for v in versions] == [-1, 2, 3, 4]

    def marked(v, mark):
        return [r[2] for r, m in zip(v["rows"], v["marks"], strict=True) if m == mark]

    _, split, reorder, vectorize = versions
    assert marked(split, "+")[0].startswith("for i_0 in range(")
    assert [row[2] for _, row in split["gone"]][0] == "for i in range(n)"
    assert marked(reorder, ">") == ["for p in range(k)"]
    assert not marked(reorder, "+") and not reorder["gone"]
    assert marked(vectorize, "~") == ["for i_1 in range(2)"]


def test_nothing_changes_between_equal_trees():
    rows = tree_of(function(MATMUL)).rows
    found = difference(rows, rows)
    assert set(found.marks) == {"="} and not found.gone


# --- Runs -------------------------------------------------------------------------------------


def test_sizes_are_small_and_different_unless_given():
    assert Sizes.of(function(MATMUL), {}).state() == {"n": 4, "k": 5, "m": 6}
    assert loops(function(MATMUL), n=2, m=3).state["sizes"] == {"n": 2, "k": 5, "m": 3}
    with pytest.raises(ValueError, match="no symbol 'q'; it has: n, k, m"):
        loops(function(MATMUL), q=3)
    for wrong in (-1, 2.5):
        with pytest.raises(ValueError, match="sizes are whole numbers from 0"):
            loops(function(MATMUL), n=wrong)
    assert loops(function(MATMUL), n=0).state["versions"][0]["costs"]["writes"] == 0


def test_a_run_lists_every_access_with_its_value():
    state = loops(function(MATMUL), n=2, m=2, k=3).state["versions"][0]
    run, costs = state["run"], state["costs"]
    assert [b["role"] for b in run["buffers"]] == ["input", "input", "output"]
    assert costs["reads"] == 2 * 2 * 3 * 3 and costs["writes"] == 2 * 2 * (3 + 1)
    assert costs["flops"] == 2 * 2 * 2 * 3
    assert costs["elements"] == 6 + 6 + 4
    assert {n: sum(c for d, c in found if d < 0) for n, found in costs["lines"].items()} == {
        "16": 2 + 2 + 1, "32": 3, "64": 3, "128": 3,
    }  # fmt: skip
    texts = run["values"]
    a, b = (
        np.array([float(texts[v]) for v in run["buffers"][n]["initial"]]).reshape(shape)
        for n, shape in ((0, (2, 3)), (1, (3, 2)))
    )
    columns = run["accesses"]
    memory: dict[int, float] = {}
    for buffer, element, write, value in zip(
        columns["buffer"], columns["element"], columns["write"], columns["value"], strict=True
    ):
        if write:
            assert buffer == 2
            memory[element] = float(texts[value])
    np.testing.assert_allclose([memory[e] for e in range(4)], (a @ b).reshape(-1))
    assert {s["row"] for s in run["sites"]} == {10, 11}, "initialisations have their row, too"


def steps_of(func: PrimFunc) -> list[tuple[str, list[int | str], int]]:
    """The steps of a run: the first word of the statement, the values of the loops, accesses."""
    version = loops(func).state["versions"][0]
    run, rows = version["run"], version["rows"]
    values = iter(run["steps"]["values"])
    found: list[tuple[str, list[int | str], int]] = []
    for number, count in zip(run["steps"]["site"], run["steps"]["count"], strict=True):
        site = run["sites"][number]
        word = rows[site["row"]][2].split("[")[0]
        found.append((word, [next(values) for _ in site["loops"]], count))
    return found


def test_the_lanes_of_a_vector_are_one_step():
    """Each statement in turn for all lanes, with the loops inside the vectorized one."""
    text = """
@T.prim_func
def main(A: T.Buffer((2, 8), "float32"), B: T.Buffer((2, 8), "float32")):
    for i in range(2):
        for j in T.vectorized(8):
            B[i, j] = A[i, j]
            for k in range(2):
                B[i, j] = B[i, j] + A[i, j]
"""
    for i, found in enumerate((lambda s: (s[:3], s[3:]))(steps_of(function(text)))):
        assert found == [
            ("B", [i, "0–7"], 16), ("B", [i, "0–7", 0], 24), ("B", [i, "0–7", 1], 24),
        ]  # fmt: skip


def test_lanes_that_skip_what_others_run_first_are_steps_of_their_own():
    text = """
@T.prim_func
def main(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
    for j in T.vectorized(3):
        if j != 0:
            A[j] = T.float32(1)
        B[j] = A[j]
"""
    stores = [s[:2] for s in steps_of(function(text)) if s[0] in "AB"]
    assert stores == [("B", [0]), ("A", [1]), ("B", [1]), ("A", [2]), ("B", [2])]
    late = text.replace("j != 0", "j % 2 == 0").replace("B[j] = A[j]", "A[j] = A[j]")
    stores = [s[:2] for s in steps_of(function(late)) if s[0] in "AB"]
    assert stores == [("A", ["0, 2"]), ("A", ["0–2"])]


def test_reuse_depends_on_the_order_of_the_loops():
    """Rows of eight lines: down the columns every access is to a line that was not used lately."""
    copy = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A, B = T.match_buffer(a, (8, 16)), T.match_buffer(b, (8, 16))
    for i, j in T.grid(8, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    sch = Schedule(function(copy))
    i, j = sch.get_loops(sch.get_block("B"))
    sch.reorder(j, i)
    rows, columns = (v["costs"]["lines"]["64"] for v in loops(sch).state["versions"])
    assert rows == [[-1, 16], [1, 240]]
    assert columns == [[-1, 16], [15, 240]]


def test_a_long_run_is_cut_with_a_note():
    view = loops(function(MATMUL), n=40, m=40, k=40)
    stepped, counted = view.state["notes"]
    assert stepped.startswith("Only the first 20,000 accesses are stepped through; smaller sizes")
    assert counted.startswith("Only the first 150,000 accesses are counted")
    assert len(pack(view.state)) < 150_000
    assert loops(function(MATMUL), n=20, m=20, k=20).state["notes"] == [stepped], "all are counted"


def test_a_program_that_fails_is_shown_up_to_there():
    view = loops(function(GATHER))
    (version,) = view.state["versions"]
    assert "is outside its extent 4" in version["costs"]["error"]
    assert version["run"]["steps"]["site"], "the steps before are there"
    assert "fails: " in view.text


def test_arguments_too_big_to_look_at():
    view = loops(function(MATMUL), n=10_000, m=10_000)
    assert "give the symbols smaller values" in view.state["versions"][0]["costs"]["error"]


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match="name one of them: a, b"):
        loops(Module((("a", function(MATMUL)), ("b", function(GATHER)))))
    with pytest.raises(ValueError, match="no loop function named 'c'"):
        loops(Module((("a", function(MATMUL)),)), "c")
    with pytest.raises(ValueError, match=r"relaxlab.trace\(mod\)"):
        loops(Module(()))
    with pytest.raises(TypeError, match="got int"):
        loops(3)  # type: ignore[arg-type]


# --- Costs ------------------------------------------------------------------------------------

SQUARE = MATMUL.replace("T.match_buffer(a, (n, k))", "T.match_buffer(a, (8, 8))").replace(
    "T.match_buffer(b, (k, m))", "T.match_buffer(b, (8, 8))"
).replace("T.match_buffer(c, (n, m))", "T.match_buffer(c, (8, 8))").replace(
    "    n, m, k = T.int64(), T.int64(), T.int64()\n", ""
).replace("T.grid(n, m, k)", "T.grid(8, 8, 8)")  # fmt: skip


def in_order(vectors: bool) -> Schedule:
    """The loops in the order i, k, j, the innermost as vectors of 4 or not."""
    sch = Schedule(function(SQUARE))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(i, k, j)
    if vectors:
        sch.vectorize(sch.split(j, [None, 4])[1])
    return sch


def in_registers() -> Schedule:
    """Tiles of 2 rows and 2 vectors of 4, whose sums are kept in registers."""
    sch = Schedule(function(SQUARE))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, [None, 2])
    jo, jv, jl = sch.split(j, [None, 2, 4])
    sch.reorder(io, jo, k, ii, jv, jl)
    total = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(total, jo)
    sch.vectorize(sch.split(sch.get_loops(total)[-1], [None, 4])[-1])
    init = sch.decompose_reduction(block, k)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(jl)
    sch.unroll(ii)
    sch.unroll(jv)
    return sch


def counters(costs, lines=8):
    """Return the counters of the steps' costs: instructions, and lines of 16 bytes fetched."""
    served = sum(n for d, n in costs["lines"]["16"] if 0 <= d < lines)
    return {**costs["issued"], "fetched": costs["reads"] + costs["writes"] - served}


def test_no_step_of_a_good_schedule_makes_a_counter_worse():
    """The schedules by which a lesson makes a product fast: each step lowers some counter of the
    view or none, and what the lesson calls a gain is one."""
    found = []
    for sch in (in_order(False), in_order(True), in_registers()):
        steps = [counters(v["costs"]) for v in loops(sch).state["versions"]]
        for before, after in zip(steps, steps[1:], strict=False):
            assert all(after[k] <= before[k] for k in before)
        found += [steps[0], steps[-1]] if not found else [steps[-1]]
    given, ordered, vectors, registers = found
    assert given == {"loads": 1472, "stores": 576, "arithmetic": 1024, "fetched": 560}
    assert ordered == {**given, "fetched": 160}
    assert vectors == {"loads": 368, "stores": 144, "arithmetic": 256, "fetched": 160}
    assert registers == {"loads": 128, "stores": 16, "arithmetic": 256, "fetched": 96}


def test_registers_are_no_memory():
    versions = loops(in_registers()).state["versions"]
    assert {v["costs"]["scratch"] for v in versions} == {0}
    shared = Schedule(function(SQUARE))
    shared.cache_write(shared.get_block("C"), 0, "global")
    assert loops(shared).state["versions"][-1]["costs"]["scratch"] == 8 * 8 * 4


def test_lanes_that_are_apart_are_loads_of_their_own():
    sch = Schedule(function(SQUARE))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(j, k, i)
    sch.vectorize(i)
    (_, _, column) = loops(sch).state["versions"]
    # Per j and k: 8 elements of A and of C each in another row, one of B; for the first k those of
    # C were set to 0 just before, and are in registers.
    assert column["costs"]["issued"]["loads"] == 64 * (8 + 8 + 1) - 8 * 8
    assert column["costs"]["issued"]["stores"] == 64 * 8 + 8 * 8


# --- Schedules --------------------------------------------------------------------------------


def test_a_refused_step_has_its_reason_its_cause_and_an_order_that_works():
    view = loops(refused())
    found = view.state["refused"]
    assert found["step"].startswith("sch.reorder(")
    assert found["condition"] and found["place"]
    assert [text.split("sch.")[1].split("(")[0] for _, text in found["causes"]] == [
        "decompose_reduction"
    ]
    assert found["order"][-1][1].split("sch.")[1].startswith("decompose_reduction")
    assert "this order works:" in view.text


def test_a_schedule_that_was_not_refused_has_no_reason():
    assert loops(tiled()).state["refused"] is None


def test_many_steps_fit_the_budget():
    sch = Schedule(function(MATMUL))
    block = sch.get_block("C")
    for _ in range(12):
        i, *_ = sch.get_loops(block)
        sch.add_unit_loop(i)
        sch.annotate(i, "pragma", 1)
    view = loops(sch, n=12, m=12, k=12)
    assert len(view.state["versions"]) == 25
    assert len(pack(view.state)) < 200_000


# --- Threads ----------------------------------------------------------------------------------


def test_threads_their_elements_and_what_accesses_cost():
    threads = loops(simt_programs.transpose_naive, n=32, m=32).state["threads"]
    assert threads["error"] is None and threads["problems"] == []
    (launch,) = threads["launches"]
    assert launch["threads"] == [32, 8, 1] and len(launch["blocks"]) == 4
    load, store = launch["sites"]
    assert (load["count"], load["least"]) == (32, 32)
    assert (store["count"], store["least"]) == (256, 32)
    access = launch["blocks"][0]["accesses"][1]
    assert access["threads"][:3] == [0, 1, 2] and access["elements"][:3] == [0, 32, 64]


def test_shared_memory_and_its_banks():
    (launch,) = loops(simt_programs.transpose).state["threads"]["launches"]
    assert launch["shared"][0]["bytes"] == 32 * 32 * 4
    degrees = [s["count"] / s["least"] for s in launch["sites"] if s["unit"] == "rounds of banks"]
    assert max(degrees) == 32


def test_problems_of_threads_are_shown():
    threads = loops(simt_programs.vector_add_off_by_one, n=30).state["threads"]
    kinds = {p["kind"] for p in threads["problems"]}
    assert kinds == {"out of bounds"}
    assert threads["problems"][0]["threads"] == [[0, 0, 0, 30, 0, 0]]


def test_races_are_found():
    func = function("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    A, B = T.match_buffer(a, (64,)), T.match_buffer(b, (1,))
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        B[0] = A[tx]
""")
    view = loops(func)
    (problem,) = view.state["threads"]["problems"]
    assert problem["kind"] == "data race" and problem["buffer"] == "B"
    assert "data race: " in view.text


# --- In a browser -----------------------------------------------------------------------------


def said(page):
    return page.locator(".said:visible").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stepping_with_keys_and_clicks(open_view, scheme):
    page = open_view(loops(function(MATMUL), n=2, m=2, k=2), scheme)
    assert "C[vi, vj] = 0.0 at i = 0" in said(page)
    next_step = page.get_by_label("Next step").last
    next_step.focus()
    page.keyboard.press("j")
    assert "reads C[0, 0] = 0 (again at once), A[0, 0] = 1 (first time, new line)" in said(page)
    assert (
        page.locator("td.write").inner_text() == page.locator("td.read, td.write").last.inner_text()
    )
    page.keyboard.press("End")
    assert "at i = 1, j = 1, p = 1" in said(page)
    page.keyboard.press("k")
    page.keyboard.press("Home")
    assert "C[vi, vj] = 0.0 at i = 0" in said(page)
    page.get_by_role("button", name="C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]").click()
    assert "at i = 0, j = 0, p = 0" in said(page)
    page.get_by_label("what cells show").select_option("times")
    assert page.locator("td.write").inner_text() == "3"
    page.get_by_role("tab", name="Reuse").click()
    slider = page.get_by_label("lines of the cache, powers of two")
    slider.fill("0")
    one = page.locator("output").last.inner_text()
    slider.fill("5")
    many = page.locator("output").last.inner_text()
    assert one.startswith("(16 B)") and many.startswith("(512 B)")
    page.get_by_label("bytes of a line").select_option("64")
    assert page.locator("output").last.inner_text().startswith("(2 KiB)")
    assert page.get_by_text("Distance in cache lines of 64 bytes").count() == 1


def test_nothing_moves_while_stepping(open_view):
    page = open_view(loops(function(MATMUL)))
    page.get_by_label("Next step").last.focus()
    boxes = set()
    for _ in range(12):
        page.keyboard.press("j")
        box = page.locator(".grids").bounding_box()
        boxes.add((box["y"], box["height"], page.locator(".root").bounding_box()["height"]))
    assert len(boxes) == 1


def test_a_click_on_a_loop_goes_to_its_next_round(open_view):
    page = open_view(loops(function(MATMUL)))
    page.get_by_role("button", name="for i in range(n)").click()
    assert "at i = 1, j = 0" in said(page)
    for p in (0, 1):
        page.get_by_role("button", name="for p in range(k)").click()
        assert f"at i = 1, j = 0, p = {p}" in said(page)


BRANCHES = """
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    if n == 1:
        for i in range(50):
            A[0] = T.float32(1)
    else:
        for j in range(n):
            A[j] = T.float32(2)
"""


def test_loops_that_do_not_run_are_marked(open_view):
    page = open_view(loops(function(BRANCHES)))
    idle = page.locator(".tree .idle").all_inner_texts()
    assert [text.strip() for text in idle] == ["for i in range(50)", "A[0] = 1.0"]
    row = page.locator(".tree .now").first
    tree, inside = page.locator(".tree").bounding_box(), row.bounding_box()
    assert tree["y"] <= inside["y"] <= tree["y"] + tree["height"], "it was scrolled there"


def test_the_steps_of_a_schedule(open_view):
    page = open_view(loops(refused(), n=4, m=3, k=2))
    assert "an order that works" in page.locator(".refused").inner_text()
    steps = page.get_by_role("listbox", name="steps of the schedule")
    chosen = steps.locator("[aria-selected=true]")
    assert "sch.decompose_reduction(" in chosen.inner_text(), "it opens at the schedule as it is"
    box, row = page.locator(".schedule").bounding_box(), chosen.bounding_box()
    assert box["y"] <= row["y"] < box["y"] + box["height"], "and shows that step"
    steps.get_by_text("as given").click()
    assert "as given" in chosen.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(".tree .moved").inner_text().replace("\n", " ").startswith("↕")
    page.get_by_role("tab", name="Costs of the steps").click()
    assert page.locator("tbody tr:visible").count() == 5
    page.get_by_role("button", name="as given").click()
    assert "as given" in chosen.inner_text()


def test_threads_in_the_browser(open_view):
    page = open_view(loops(simt_programs.transpose_naive, n=40, m=40))
    page.get_by_role("tab", name="Threads").click()
    assert "load from A" in said(page)
    page.get_by_role("group", name="accesses of the block").get_by_label("Next step").click()
    assert "256 sectors of 32 bytes, 8.0 × the fewest (32)" in said(page)
    page.get_by_label("block of threads").select_option("1")
    assert "load from A" in said(page)


RACE = """
@I.ir_module
class M:
    @T.prim_func
    def reversed(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            with T.sblock("swap"):
                S = T.sblock_alloc_buffer((8,), scope="shared")
                S[tx] = A[tx]
                B[tx] = S[7 - tx]
"""


def test_all_elements_of_a_long_row_are_seen(open_view):
    page = open_view(loops(simt_programs.tree_sum, n=2))
    page.get_by_role("tab", name="Threads").click()
    page.get_by_role("group", name="accesses of the block").get_by_label("Next step").click()
    shared = page.locator("figure[aria-label=S]")
    assert shared.locator("td").all_inner_texts() == [str(n) for n in range(128)]
    assert shared.locator("td").nth(33).get_attribute("title").startswith("S[33]")
    heads = page.locator("figure[aria-label=A] tr th:first-child").all_inner_texts()
    assert heads[1:4] == ["0, 0", "0, 32", "0, 64"]


def test_the_race_is_one_click_away(open_view):
    page = open_view(loops(parse(RACE)))
    page.get_by_role("tab", name="Threads").click()
    page.get_by_role("button", name="Go to it").first.click()
    assert "from S" in said(page) and "S[7 - tx]" in said(page), "the access that is told about"


def test_a_function_that_only_threads_can_run_begins_with_them(open_view):
    page = open_view(loops(simt_programs.tiled_matmul))
    assert page.get_by_role("tab", name="Threads").get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="Step through").click()
    assert "relaxlab.simt" in page.locator(".error").inner_text()


def test_names_stay_text(open_view):
    func = function(MATMUL)
    func = Schedule(func)
    func.annotate(func.get_block("C"), "note", HOSTILE)
    page = open_view(loops(func, HOSTILE))
    assert page.evaluate("window.bad") is None
    assert HOSTILE in page.locator("h3").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(scheme, open_view, audit):
    page = open_view(loops(refused()), scheme)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert audit(page) == []
    page = open_view(loops(simt_programs.transpose), scheme, width=700)
    page.get_by_role("tab", name="Threads").click()
    assert audit(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_a_live_view_is_made_anew_at_other_sizes():
    view = loops(function(MATMUL))
    program, *sizes = view.controls
    assert [(c.name, c.value) for c in sizes] == [("n", 4), ("k", 5), ("m", 6)]
    assert view.again is not None
    again = view.again(n=2, k=2, m=2)
    assert again.state["sizes"] == {"n": 2, "k": 2, "m": 2}
    edited = str(program.value).replace("A[vi, vk] * B", "A[vi, vk] - B")
    assert "A[vi, vk] - B[vk, vj]" in view.again(program=edited, n=2, k=2, m=2).text


def test_of_a_whole_program_the_function_that_computes_most():
    view = loops_of_program(CHAIN)
    assert view.kind == "loops" and "matmul" in view.title
    assert "Of 2 loop functions" in view.state["notes"][0]
    broken = CHAIN.replace("softmax(a, axis=0)", "softmax(a, axis=7)")
    assert loops_of_program(broken).kind == "pipeline"
