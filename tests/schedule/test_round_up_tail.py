"""Tiles at the end of an axis without guards where only their own thread sees what they write."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.loops_check import check_loops
from relaxlab.ir import expr, loops
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace

ROWS = """
@T.prim_func
def rows(a: T.Buffer(("n", 8), "float32"), b: T.Buffer(("n", 8), "float32")):
    for t in T.parallel((n + 3) // 4):
        with T.sblock("tile"):
            own = T.sblock_alloc_buffer((SIZE, 8), "float32", scope="SCOPE")
            for r in T.unroll(4):
                for j in T.vectorized(8):
                    with T.sblock("twice"):
                        vi = T.axis.spatial(n, t * 4 + r)
                        vj = T.axis.spatial(8, j)
                        T.where(t * 4 + r < n)
                        own[vi - t * 4, vj] = a[vi, vj] * T.float32(2)
            for s in T.unroll(4):
                for j in T.vectorized(8):
                    with T.sblock("store"):
                        vi = T.axis.spatial(n, t * 4 + s)
                        vj = T.axis.spatial(8, j)
                        T.where(t * 4 + s < n)
                        b[vi, vj] = own[READ, vj]

@R.function
def main(a: R.Tensor(("n", 8), "float32")):
    b = R.call_tir(cls.rows, (a,), R.Tensor((n, 8), "float32"))
    return b
"""


def program(read: str = "vi - t * 4", scope: str = "local", size: int = 4) -> rl.Module:
    text = ROWS.replace("READ", read).replace("SCOPE", scope).replace("SIZE", str(size))
    return rl.parse(text)


def guards(func: loops.PrimFunc) -> dict[str, bool]:
    found = [n for n in walk(func.body) if isinstance(n, loops.BlockRealize)]
    return {n.block.name: n.predicate != expr.IntImm(1, "bool") for n in found}


def test_private_buffers_lose_their_guard() -> None:
    mod = program()
    sch = Schedule(mod["rows"])
    sch.round_up_tails()
    whole = sch.func
    assert_structural_equal(apply_trace(mod["rows"], sch.trace_json()).func, whole)
    assert [name for name, guarded in guards(whole).items() if guarded] == ["store"]
    for form in (mod, mod.with_functions({"rows": whole})):
        exe = rl.compile(form, use_cache=False)
        for n in (0, 1, 3, 4, 5, 11):
            x = np.arange(8 * n, dtype="float32").reshape(n, 8)
            np.testing.assert_array_equal(rl.interpret(form, "main", x), 2 * x)
            np.testing.assert_array_equal(exe["main"](x), 2 * x)


@pytest.mark.parametrize(
    "kind", [{"read": "t * 4 + 3 - vi"}, {"read": "0"}, {"scope": "global"}, {"size": 3}]
)
def test_rows_that_meet_keep_their_guards(kind: dict[str, object]) -> None:
    func = program(**kind)["rows"]  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="round_up_tails refused"):
        Schedule(func).round_up_tails()


def test_sums_over_rows_keep_their_guards() -> None:
    text = ROWS.replace("own[vi - t * 4, vj] = a", "own[0, vj] = own[0, vj] + a")
    text = text.replace("READ", "0").replace("SCOPE", "local").replace("SIZE", "4")
    with pytest.raises(ScheduleError, match="each row of local buffers is made from one row"):
        Schedule(rl.parse(text)["rows"]).round_up_tails()


def test_vectors_without_a_guard_are_refused() -> None:
    with pytest.raises(ScheduleError, match="guard on a vectorized axis"):
        Schedule(program()["rows"]).round_up_vectors()


BIAS = """
@R.function
def main(x: R.Tensor(("m", 360), "float32"), w: R.Tensor((360, 128), "float32"),
         b: R.Tensor(("m", 128), "float32")):
    with R.dataflow():
        y = R.add(R.nn.relu(R.matmul(x, w)), b)
        R.output(y)
    return y
"""


@pytest.mark.parametrize("weight", [False, True])
def test_products_round_up_tails(weight: bool) -> None:
    attr = "R.func_attr({'num_input': 1})\n    with"
    text = BIAS.replace("with R", f"{attr} R", 1) if weight else BIAS
    found = rl.trace(rl.parse(text)).result.loop_functions()
    (func,) = [f for name, f in found.items() if "matmul" in name]
    under = guards(func)
    private = [name for name in under if name.endswith(("_init", "_update"))]
    assert private and not any(under[name] for name in private)
    assert any(under.values())


@pytest.mark.parametrize(
    "call", ["conv2d(x, f)", "conv2d_transpose(x, f, strides=2, padding=1, output_padding=1)"]
)
def test_extents_beside_a_symbol_are_rounded_up(call: str) -> None:
    """A guard `column < w - 2` is simplified to `column + 2 < w`, `column < w + 1` to
    `column <= w`."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((1, 4, "h", "w"), "float32"), f: R.Tensor((4, 4, 3, 3), "float32")):
    with R.dataflow():
        y = R.nn.{call}
        R.output(y)
    return y
""")
    (func,) = rl.trace(mod).result.loop_functions().values()
    sums = [n for n in walk(func.body) if isinstance(n, loops.BlockRealize)]
    sums = [n for n in sums if n.block.name.endswith("_update")]
    nest = [n for n in walk(func.body) if isinstance(n, loops.For)]
    lanes = {n.loop_var for n in nest if n.kind == "vectorized"}
    assert sums and not any(lanes & set(symbols_in(n.predicate)) for n in sums)
    exe = rl.compile(mod, use_cache=False)
    rng = np.random.default_rng(1)
    for h, w in ((3, 3), (4, 17), (5, 34)):
        x, f = rng.random((1, 4, h, w), np.float32), rng.random((4, 4, 3, 3), np.float32)
        np.testing.assert_allclose(exe["main"](x, f), rl.interpret(mod, "main", x, f), rtol=1e-4)


def _run_as(text: str, step: str) -> None:
    """A function and its schedule compute the same in the interpreter, which checks each access."""
    mod = rl.parse(text)
    sch = Schedule(mod["main"])
    getattr(sch, step)()
    for n in (1, 2, 5, 8):
        x = np.arange(1, n + 1, dtype="float32")
        a, b = np.zeros(n, "float32"), np.zeros(n, "float32")
        for func, out in ((mod["main"], a), (sch.func, b)):
            interpret_prim_func(func, [x, out])
        np.testing.assert_array_equal(a, b)


TILE = """
@T.prim_func
def main(x: T.Buffer(("n",), "float32"), y: T.Buffer(("n",), "float32")):
    for t in range((n + 3) // 4):
        with T.sblock("tile"):
            own = T.sblock_alloc_buffer((4,), "float32", scope="local")
            for r in T.KIND(4):
                with T.sblock("own"):
                    v = T.axis.spatial(n, t * 4 + r)
                    T.where(t * 4 + r < n)
                    own[v - t * 4] = VALUE
            for r in range(4):
                with T.sblock("y"):
                    v = T.axis.spatial(n, t * 4 + r)
                    T.where(t * 4 + r < n)
                    y[v] = own[v - t * 4]
"""


def test_conditions_are_of_the_row_that_is_read() -> None:
    """The row behind a single one has one before it, and is computed from the single one."""
    value = "x[v] + T.if_then_else(v >= 1, x[v - 1], T.float32(0))"
    _run_as(TILE.replace("VALUE", value).replace("KIND", "serial"), "round_up_tails")


STEPS = [("serial", "round_up_tails"), ("vectorized", "round_up_vectors")]


@pytest.mark.parametrize(("kind", "step"), STEPS)
@pytest.mark.parametrize(
    ("tiles", "extent"),
    [*itertools.product(["(n + 3) // 4", "n", "3"], ["n", "0", "3", "7", "9"]), ("1", "0")],
)
def test_tiles_past_the_end_read_nothing(kind: str, step: str, tiles: str, extent: str) -> None:
    """There may be more tiles than rows reach, and some where there is no row at all."""
    text = TILE.replace("VALUE", "x[v] * T.float32(2)").replace("KIND", kind)
    text = text.replace("(n + 3) // 4", tiles.replace("n", extent))
    text = text.replace('"n"', extent if extent != "n" else '"n"').replace("n,", f"{extent},")
    func = rl.parse(text.replace("< n", f"< {extent}"))["main"]
    sch = Schedule(func)
    getattr(sch, step)()
    assert not [d for d in check_loops("main", sch.func) if d.code != "E0324"]
    exe = rl.compile(sch.func, use_cache=False, checks="all")
    for n in range(10) if extent == "n" else [int(extent)]:
        x = np.arange(n, dtype="float32")
        for run in (partial(interpret_prim_func, sch.func), lambda args: exe(*args)):
            y = np.full(n, 7, "float32")
            run([x, y])
            np.testing.assert_array_equal(y, 2 * x)


TRIANGLE = """
@T.prim_func
def main(x: T.Buffer(("n",), "float32"), y: T.Buffer(("n",), "float32")):
    for t in range((n + 3) // 4):
        with T.sblock("tile"):
            own = T.sblock_alloc_buffer((4,), "float32", scope="local")
            for r in T.KIND(4):
                for k in range(t * 4 + r + 1):
                    with T.sblock("own"):
                        v = T.axis.spatial(n, t * 4 + r)
                        vk = T.axis.reduce(v + 1, k)
                        T.where(t * 4 + r < n)
                        with T.init():
                            own[v - t * 4] = T.float32(0)
                        own[v - t * 4] = own[v - t * 4] + x[vk]
            for r in range(4):
                with T.sblock("y"):
                    v = T.axis.spatial(n, t * 4 + r)
                    T.where(t * 4 + r < n)
                    y[v] = own[v - t * 4]
"""


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_rows_with_terms_of_their_own_keep_their_guards(kind: str, step: str) -> None:
    """A row behind the end has terms that no row has."""
    func = rl.parse(TRIANGLE.replace("KIND", kind))["main"]
    with pytest.raises(ScheduleError, match=f"{step} refused"):
        getattr(Schedule(func), step)()


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_other_guards_that_read_rows_need_the_guard(kind: str, step: str) -> None:
    text = TILE.replace("VALUE", "x[v]").replace("KIND", kind)
    text = text.replace("T.where(t * 4 + r < n)",
                        "T.where(t * 4 + r < n and x[t * 4 + r] > T.float32(2))", 1)  # fmt: skip
    with pytest.raises(ScheduleError, match=f"{step} refused"):
        getattr(Schedule(rl.parse(text)["main"]), step)()


@pytest.mark.parametrize(
    "body",
    [
        "for k in range(v + 1):\n                        own[v - t * 4] = x[k]",
        "j: T.let = v + 1 - 1\n                    own[v - t * 4] = x[j]",
    ],
)
@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_loops_and_variables_of_a_row_need_its_guard(kind: str, step: str, body: str) -> None:
    text = TILE.replace("own[v - t * 4] = VALUE", body).replace("KIND", kind)
    with pytest.raises(ScheduleError, match=f"{step} refused"):
        getattr(Schedule(rl.parse(text)["main"]), step)()
