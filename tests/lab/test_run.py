"""The run explorer: the recorded state, failures at their places, and its controls in a page."""

from __future__ import annotations

import json

import numpy as np
import pytest

import relaxlab
from relaxlab.ir.module import Module
from relaxlab.lab.payload import pack
from relaxlab.lab.run import RunView, run
from relaxlab.lab.run_values import value_state
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.runtime.packed import register_func
from relaxlab.script import ir as I
from relaxlab.script import parse
from relaxlab.script import relax as R
from relaxlab.tuning.database import Record
from relaxlab.tuning.kernels import kernels_of
from tests.lab.test_view import HOSTILE

CHAIN = """
@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a, axis=0)
            c = R.matmul(b, w)
            d = R.nn.softmax(c, axis=0)
            R.output(d)
        return d
"""


@I.ir_module
class Branches:
    @R.function
    def inner(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        cls = Branches
        a = cls.inner(x)
        if c:  # noqa: SIM108
            b = R.sum(a)
        else:
            b = R.max(a)
        return b


CLAIMS = """
@I.ir_module
class Claims:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        a = R.exp(x)
        b = R.match_cast(y, R.Tensor((n,), "float32"))
        c = R.add(a, b)
        return c
"""


def held(view, name, step=-1):
    """Return the value of register `name` of any function after a step."""
    made = view.state["run"]
    found = None
    steps = made["steps"] if step == -1 else made["steps"][: step + 1]
    for one in steps:
        for activation, register, value, _ in one["changes"]:
            fn = made["functions"][made["activations"][activation]["function"]]
            if fn["registers"][register] == name:
                found = made["values"][value]
    return found


def rows(view):
    """The instructions that ran, as text."""
    made = view.state["run"]
    return [
        made["functions"][made["activations"][s["frame"]]["function"]]["rows"][s["row"]][1]
        for s in made["steps"]
    ]


def arguments():
    return np.arange(8, dtype="float32").reshape(2, 4), np.eye(4, dtype="float32")


def test_steps_show_the_values_of_registers():
    x, w = arguments()
    view = run(parse(CHAIN), "main", x, w, timed=False)
    assert view.state["error"] is None and view.state["profile"] is None
    a = held(view, "a", next(i for i, t in enumerate(rows(view)) if "kernel matmul" in t))
    assert a["shape"] == [2, 4] and a["values"] == [str(n) for n in range(8)]
    assert (a["min"], a["max"], a["mean"]) == ("0", "7", "3.5")
    (result,) = view.state["run"]["result"]
    want = relaxlab.interpret(parse(CHAIN), "main", x, w)
    np.testing.assert_allclose([float(v) for v in result["values"]], want.reshape(-1), rtol=1e-3)
    assert ["n", 2] in [s[1:] for step in view.state["run"]["steps"] for s in step["symbols"]]


def test_storages_and_what_is_overwritten_in_them():
    wide = CHAIN.replace(" 4)", " 32)").replace("(4,", "(32,").replace(", axis=0", "")
    x, w = np.ones((2, 32), "float32"), np.eye(32, dtype="float32")
    view = run(parse(wide), "main", x, w, timed=False)
    made = view.state["run"]
    (storage,) = made["storages"]
    places = {
        (p["storage"], p["offset"], p["bytes"]) for p in made["places"] if p.get("bytes") == 256
    }
    assert storage["bytes"] == 512 and places == {(0, 0, 256), (0, 256, 256)}
    assert held(view, "a") == {"kind": "gone", "text": "overwritten by c"}
    fresh = held(view, "a", next(i for i, t in enumerate(rows(view)) if t.startswith("a = ")))
    assert fresh["fresh"], "planned memory holds nothing before the kernel runs"


@pytest.mark.parametrize("condition", [True, False])
def test_calls_and_branches_are_followed(condition):
    view = run(Branches, "main", np.zeros(3, "float32"), np.array(condition), timed=False)
    made = view.state["run"]
    assert [f["name"] for f in made["functions"]][0] == "main"
    texts = rows(view)
    assert ("kernel sum" in " ".join(texts)) == condition
    assert made["result"][0]["values"] == ["3" if condition else "1"]


def test_a_failing_check_ends_the_run_and_keeps_what_was_before():
    view = run(parse(CLAIMS), "main", np.ones(3, "float32"), np.ones(4, "float32"))
    made = view.state["run"]
    assert "dimension 0 of" in view.state["error"] and "is 4, expected n = 3" in view.state["error"]
    assert made["steps"][-1]["failed"] and made["result"] is None
    assert held(view, "x")["values"] == ["1", "1", "1"]
    assert view.state["profile"] is None and "no profile" in view.state["notes"][0]
    assert "fails: " in view.text


def test_a_function_outside_the_program_may_raise_anything():
    def fails(_):
        raise LookupError(HOSTILE)

    register_func("tests.fails", fails)
    text = CHAIN.replace("a = R.matmul(x, w)", "a0 = R.matmul(x, w)").replace(
        "b = R.nn.softmax(a, axis=0)",
        'a = R.call_pure_packed("tests.fails", a0, sinfo_args=R.Tensor((2, 4), "float32"))\n'
        "            b = R.nn.softmax(a, axis=0)",
    )
    view = run(parse(text), "main", *arguments())
    assert HOSTILE in view.state["error"]
    assert "call tests.fails(a0)" in rows(view)[-1]


def test_arguments_are_left_as_they_are_and_must_fit():
    x, w = arguments()
    x.flags.writeable = False
    run(parse(CHAIN), "main", x, w, timed=False)
    with pytest.raises(ExecutionError, match="takes 2 arguments, got 1"):
        run(parse(CHAIN), "main", x)
    with pytest.raises(KeyError, match="it has: main"):
        run(parse(CHAIN), "other", x)


def test_a_program_that_does_not_compile_gives_its_pipeline():
    text = CHAIN.replace("softmax(a, axis=0)", "softmax(a, axis=7)")
    mod = parse(text, check=False)
    view = run(mod, "main", *arguments())
    assert view.kind == "pipeline"


def test_a_profile_knows_times_costs_and_limits(tmp_path):
    x, w = arguments()
    view = run(parse(CHAIN), "main", x, w, threads=1)
    made = view.state["profile"]
    assert [made["names"][c["name"]] for c in made["calls"]] == [
        "matmul", "softmax", "matmul", "softmax",
    ]  # fmt: skip
    first = made["calls"][0]["cost"]
    assert first == {"flops": 2 * 2 * 4 * 4, "bytes": 4 * (8 + 16 + 8)}
    levels = made["limits"]["levels"]
    assert [level["name"] for level in levels[-2:]] == [f"L{len(levels) - 1}", "main memory"]
    holds = [level["holds"] for level in levels[:-1]]
    assert holds == sorted(holds) and levels[-1]["holds"] is None
    assert levels[0]["bandwidth"] > levels[-1]["bandwidth"]
    assert made["threads"] == 1
    assert isinstance(view, RunView)
    events = json.loads(view.chrome_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["main", "matmul", "softmax", "matmul", "softmax"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert max(e["ts"] + e["dur"] for e in events) <= events[0]["dur"] + 1e-3
    with pytest.raises(ValueError, match="not timed"):
        run(parse(CHAIN), "main", x, w, timed=False).chrome_trace(tmp_path / "none.json")


def test_executables_know_their_module(tmp_path):
    x, w = arguments()
    exe = relaxlab.compile(parse(CHAIN))
    view = run(exe, "main", x, w, timed=False)
    assert len(rows(view)) == len(rows(run(parse(CHAIN), "main", x, w, timed=False)))
    exe["main"].bind(w)
    assert len(rows(run(exe, "main", x, timed=False))) == len(rows(view))
    exe.compiled_from = None
    with pytest.raises(ValueError, match="give the module"):
        run(exe, "main", x, w)


def test_updates_in_place_work_on_copies():
    text = CHAIN.replace("a = R.matmul(x, w)", "a0 = R.matmul(x, w)").replace(
        "b = R.nn.softmax(a, axis=0)",
        'a = R.call_inplace_packed("tests.zero", x, inplace_indices=[0], '
        'sinfo_args=R.Tensor(("n", 4), "float32"))\n'
        "            b = R.add(R.nn.softmax(a, axis=0), a0)",
    )

    def zero(x):
        x[...] = 0
        return x

    register_func("tests.zero", zero)
    x, w = arguments()
    view = run(parse(text), "main", x, w)
    assert view.state["error"] is None and x[1, 3] == 7
    assert held(view, "x")["values"] == ["0"] * 8


def test_values_of_every_kind():
    assert value_state((2, 3)) == {"kind": "shape", "text": "(2, 3)"}
    assert value_state(4) == {"kind": "scalar", "text": "4"}
    assert value_state((np.ones(1), 2))["kind"] == "tuple"
    mixed = value_state(np.array([1, np.nan, np.inf, 3], "float32"))
    assert (mixed["nan"], mixed["infinite"], mixed["min"], mixed["max"]) == (1, 1, "1", "3")
    assert mixed["values"] == ["1", "nan", "inf", "3"]
    assert "min" not in value_state(np.zeros((0, 3)))
    large = value_state(np.arange(1 << 19, dtype="int32"))
    assert (
        large["sampled"] == 1 << 17 and "values" not in large and sum(large["histogram"]) == 1 << 17
    )
    assert value_state(np.array([True, False]))["values"] == ["True", "False"]
    json.dumps([mixed, large], allow_nan=False)


def long_chain(length: int) -> Module:
    lines = CHAIN.split("        with R.dataflow():")[0].splitlines()
    lines.append("        with R.dataflow():")
    lines.append("            v0 = x")
    for i in range(length):
        call = f"R.matmul(v{i}, w)" if i % 2 else f"R.nn.softmax(v{i}, axis=0)"
        lines.append(f"            v{i + 1} = {call}")
    lines += [f"            R.output(v{length})", f"        return v{length}"]
    return parse("\n".join(lines))


def test_long_runs_stay_small_and_are_cut():
    mod = long_chain(1100)
    view = run(mod, "main", *arguments(), timed=False)
    assert len(view.state["run"]["steps"]) == 2000
    assert "The first 2,000 instructions are shown" in view.state["notes"][0]
    assert len(pack(view.state)) < 100_000


# --- In a browser -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stepping_timeline_and_roofline(open_view, scheme):
    page = open_view(run(parse(CHAIN), "main", *arguments(), threads=1), scheme)
    bar = page.get_by_role("group", name="instructions")
    bar.get_by_label("Next step").focus()
    page.keyboard.press("End")
    assert "kernel softmax" in page.locator(".listing .now").inner_text()
    assert "overwritten by c" in page.locator(".registers").inner_text()
    page.keyboard.press("Home")
    assert "match x" in page.locator(".listing .now").inner_text()
    page.get_by_role("button", name="kernel matmul(x, w, a, n)").click()
    assert page.locator(".registers tr.changed button").inner_text() == "a"
    page.get_by_role("button", name="w", exact=True).click()
    assert page.locator(".values").inner_text().startswith("1  0  0  0")
    page.get_by_role("tab", name="Timeline").click()
    calls = page.get_by_role("group", name="calls")
    calls.get_by_label("Next step").click()
    assert "call 2 of 4: softmax in main" in page.locator("p.mono[aria-live]").inner_text()
    time = page.locator("svg.time")
    wide = int(time.get_attribute("width"))
    page.get_by_label("zoom, powers of two").fill("2")
    assert wide >= 600 and int(time.get_attribute("width")) == 4 * wide
    assert page.locator(".lanes .names").inner_text().splitlines()[0] == "thread 0"
    assert "allocated, at most" in page.locator(".lanes .names").inner_text()
    page.get_by_role("tab", name="Roofline").click()
    assert page.locator("svg.roof circle").count() == 2
    assert "from main memory" in page.locator("[role=tabpanel]:visible").inner_text()


def test_a_failure_is_shown_where_it_happens(open_view):
    page = open_view(run(parse(CLAIMS), "main", np.ones(3, "float32"), np.ones(4, "float32")))
    assert "is 4, expected n = 3" in page.locator(".error:visible").first.inner_text()
    page.get_by_label("Last step").click()
    assert page.locator(".listing .bad").count() == 1


def test_names_and_errors_stay_text(open_view):
    def fails(_):
        raise LookupError(HOSTILE)

    register_func(HOSTILE, fails)
    text = CHAIN.replace("c = R.matmul(b, w)", "c = R.matmul(b, w)").replace(
        "d = R.nn.softmax(c, axis=0)",
        f'd = R.call_pure_packed({HOSTILE!r}, c, sinfo_args=R.Tensor((2, 4), "float32"))',
    )
    page = open_view(run(parse(text), "main", *arguments()))
    assert page.evaluate("window.bad") is None
    page.get_by_label("Last step").click()
    assert HOSTILE.split("\u2028")[0] in page.locator(".error:visible").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(scheme, open_view, audit):
    page = open_view(run(parse(CHAIN), "main", *arguments()), scheme, width=700)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert audit(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


TEAM = """
@I.ir_module
class Team:
    @R.function
    def main(x: R.Tensor((256, 256), "float32"), w: R.Tensor((256, 256), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a)
            R.output(b)
        return b
"""


def test_each_thread_has_a_lane_with_its_waiting(open_view, tmp_path):
    x = np.ones((256, 256), "float32")
    view = run(parse(TEAM), "main", x, x, threads=2)
    made = view.state["profile"]
    assert len(made["lanes"]) == 2
    for lane in made["lanes"]:
        assert {made["names"][name] for name, *_ in lane} == {"matmul", "softmax"}
        assert {waits for *_, waits in lane} == {0, 1}
        ends = [start + took for _, start, took, _ in lane]
        assert all(a <= b[1] for a, b in zip(ends, lane[1:], strict=False))
    assert [c["memory"] for c in made["calls"]] == sorted(c["memory"] for c in made["calls"])
    assert made["calls"][0]["memory"] >= x.nbytes
    events = json.loads(view.chrome_trace(tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["tid"] for e in events} == {0, 1} and "barrier" in {e["cat"] for e in events}
    page = open_view(view)
    page.get_by_role("tab", name="Timeline").click()
    assert "thread 1 worked" in page.locator("[role=tabpanel]:visible").inner_text()
    assert page.locator("svg.time rect.waits").count() >= 2
    page.locator("svg.time rect:not(.waits)").last.click()
    assert "call 2 of 2: softmax" in page.locator("p.mono[aria-live]").inner_text()


def test_schedules_under_one_roof(open_view):
    """A kernel of one name is followed from program to program; outputs are made."""
    func = parse(PRODUCT)["product"]
    swapped = relaxlab.Schedule(func)
    i, j, k = swapped.get_loops(swapped.get_block("C"))
    swapped.reorder(i, k, j)
    x = np.ones((32, 32), "float32")
    programs = {"as written": relaxlab.Schedule(func), "i k j": swapped}
    view = relaxlab.explore.roofline(programs, x, x)
    assert [r["label"] for r in view.state["runs"]] == ["as written", "i k j"]
    page = open_view(view)
    assert page.locator("svg.roof circle").count() == 2
    assert page.locator("svg.roof path.moved").count() == 1
    assert "i k j: product_kernel" in page.locator("svg.roof").text_content()
    heads = page.locator("th").all_inner_texts()
    assert {"run", "GFLOP/s", "GB/s"} <= set(heads)
    with pytest.raises(ValueError, match="nothing to draw"):
        relaxlab.explore.roofline({})
    with pytest.raises(ValueError, match="'wrong' has no profile: There is no profile, as the run"):
        relaxlab.explore.roofline({"wrong": parse(CLAIMS)}, np.ones(3, "f4"), np.ones(4, "f4"))


PRODUCT = """
@I.ir_module
class Product:
    @T.prim_func
    def product(
        A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"),
        C: T.Buffer((32, 32), "float32"),
    ):
        for i, j, k in T.grid(32, 32, 32):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_tuned_kernels_are_marked(open_view, tmp_path):
    """Of a program that was compiled with a database, those that it has decisions of."""
    mod, host = parse(CHAIN), relaxlab.Target.host()
    kernels = {k.name: k for k in kernels_of(mod, host, {})[0]}
    database = relaxlab.Database(tmp_path / "tuning.db")
    database.add(
        Record(
            kernels["softmax"].key, machine_key(host), 1, compiler_version(), "m", 1.0, "accepted",
            "", {"share_terms(T_softmax_expsum)": False}, ({},), (1.5, 1.4, 1.6), "[]",
        )
    )  # fmt: skip
    exe = relaxlab.compile(mod, tuned=database, threads=1)
    view = run(exe, "main", *arguments())
    assert view.state["profile"]["tuned"] == ["softmax"]
    assert " softmax (tuned)" in view.text and "matmul (tuned)" not in view.text
    page = open_view(view)
    page.get_by_role("tab", name="Timeline").click()
    assert page.locator(".badge", has_text="tuned").count() == 1
