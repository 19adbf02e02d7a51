"""Axes that go through memory like one are joined before reductions down columns are scheduled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.join_axes import join_axes
from relaxlab.schedule.rules.base import blocks_of, with_joined_axes
from relaxlab.schedule.rules.context import Context

SUM = "R.sum(x, axis=0)"


def program(call: str, shape: str = '("n", 3, 5, 7)', dtype: str = "float32") -> Module:
    return rl.parse(f"""
@R.function
def main(x: R.Tensor({shape}, "{dtype}"), w: R.Tensor((7,), "{dtype}")):
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
""")


def extents(call: str, shape: str = '("n", 3, 5, 7)') -> list[list[str]]:
    """The extents of each block once axes are joined."""
    before = rl.trace(program(call, shape)).find("schedule_kernels").before
    (kernel,) = (f for _, f in before.functions if isinstance(f, PrimFunc))
    blocks = blocks_of(join_axes(kernel, units=False)[0])
    return [[str(it.dom.extent) for it in b.iter_vars] for b in blocks]


@pytest.mark.parametrize(
    "call, shape, wanted",
    [
        (SUM, '("n", 3, 5, 7)', [["105", "n"]]),
        (SUM, '("n", "m", 5, 7)', [["m * 35", "n"]]),
        ("R.sum(x, axis=1)", '("n", 3, 5, 7)', [["n", "35", "3"]]),
        ("R.sum(x, axis=2)", '("n", 3, 5, 7)', [["n * 3", "7", "5"]]),
        ("R.sum(x, axis=[0, 1])", '("n", 3, 5, 7)', [["35", "n * 3"]]),
        # The last axis has an operand of its own, with which it stays alone.
        ("R.sum(x * w, axis=0)", '("n", 3, 5, 7)', [["15", "7", "n"]]),
    ],
)  # fmt: skip
def test_what_is_joined(call: str, shape: str, wanted: list[list[str]]) -> None:
    found = extents(call, shape)
    assert found[-len(wanted) :] == wanted, found


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(
    "call",
    [
        SUM, "R.max(x, axis=1)", "R.argmax(x, axis=0)", "R.variance(x, axis=0)",
        "R.nn.softmax(x, axis=0)", "R.sum(x * w, axis=0)", "R.sum(x, axis=[0, 1], keepdims=True)",
    ],
)  # fmt: skip
def test_joined_axes_against_the_interpreter(
    call: str, dtype: str, rng: np.random.Generator
) -> None:
    if dtype == "int8" and ("softmax" in call or "variance" in call):
        dtype = "float16"
    mod = program(call, dtype=dtype)
    exe = rl.compile(mod, threads=2, checks="all")
    for n in (1, 3, 700, 5000):
        x, w = (np.asarray(9 * rng.random(s), dtype) for s in ((n, 3, 5, 7), (7,)))
        want = rl.interpret(mod, "main", x, w)
        near = 2e-3 if dtype == "float16" else 1e-4
        np.testing.assert_allclose(exe["main"](x, w), want, near, near)


def test_lanes_are_combined_where_a_result_has_a_dimension_of_one(rng) -> None:
    """The view that an intrinsic writes through is one of the parameter."""
    mod = rl.parse("""
@R.function
def main(p: R.Tensor((8, 16), "float32"), u: R.Tensor((17, 1), "float32"),
         i: R.Tensor((17, 1), "int32")):
    return R.multinomial_from_uniform(p, u, i, dtype="int64")
""")
    args = (rng.random((8, 16), "float32"), rng.random((17, 1), "float32"),
            rng.integers(0, 8, (17, 1), "int32"))  # fmt: skip
    got = rl.compile(mod, use_cache=False)["main"](*args)
    np.testing.assert_array_equal(got, rl.interpret(mod, "main", *args))


def test_axes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[PrimFunc] = []

    def counted(func: PrimFunc, units: bool) -> tuple[PrimFunc, Callable[[PrimFunc], PrimFunc]]:
        given.append(func)
        return join_axes(func, units)

    monkeypatch.setattr("relaxlab.schedule.schedule._join_axes", counted)
    before = rl.trace(program(SUM)).find("schedule_kernels").before
    (kernel,) = before.loop_functions().values()
    given.clear()
    sch = with_joined_axes(Schedule(kernel), lambda joined, _: joined, Context(Target.host()))
    assert isinstance(sch, Schedule) and len(given) == 1
    with pytest.raises(ScheduleError, match="too narrow"):
        with_joined_axes(Schedule(kernel), lambda *_: "too narrow", Context(Target.host()))


def test_weights_whose_dimensions_are_joined_are_repacked(rng: np.random.Generator) -> None:
    """Callers repack a weight by a map from its own dimensions."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 3, 8), "float32"), w: R.Tensor((3, 8, 5, 4), "float32")):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        y = R.einsum((x, w), subscripts="nhd,hdab->nab")
        R.output(y)
    return y
""")
    kernels = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    assert [i for f in kernels for i, _ in f.attrs.get("layout_rewrites", ())] == [1]
    main, w = rl.compile(mod, use_cache=False)["main"], rng.random((3, 8, 5, 4), "float32")
    for n in (1, 7):
        x = rng.random((n, 3, 8), "float32")
        np.testing.assert_allclose(main(x, w), np.einsum("nhd,hdab->nab", x, w), 1e-4)
