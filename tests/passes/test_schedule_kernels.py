"""Kernels that `schedule_kernels` schedules or leaves alone, and its remarks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.loops import IS_SCHEDULED, For, IfThenElse, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, Node, walk
from relaxlab.ir.node import replace as replace_node
from relaxlab.ir.target import Target, register_target, target_kind
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES, cpu_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.schedule.known_schedules import KnownSchedules, key_of
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import Schedule
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, compare_runs
from relaxlab.tracing import first_rewrites
from relaxlab.tracing.limit import first_steps


@I.ir_module
class Mixed:
    @T.prim_func
    def double(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
        for i in T.serial(n):  # noqa: F821
            with T.block("B"):
                vi = T.axis.spatial(n, i)  # noqa: F821
                B[vi] = A[vi] * T.float32(2)

    @T.prim_func
    def halve(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
        for i in T.parallel(n):  # noqa: F821
            with T.block("B"):
                vi = T.axis.spatial(n, i)  # noqa: F821
                B[vi] = A[vi] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((40, 24), "float32")):
        R.func_attr({"num_input": 1})
        cls = Mixed
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor(("n",), "float32"))
            b = R.call_tir(cls.halve, (x,), out_sinfo=R.Tensor(("n",), "float32"))
            z: R.Tensor(("n", 40), "float32") = R.matmul(
                R.reshape(a, (n, 1)),  # noqa: F821
                R.ones((1, 40), "float32"),
            )
            y = R.matmul(z, R.add(w, w))
            R.output(b, y)
        return (b, y)


def test_a_kernel_is_scheduled_once() -> None:
    after = schedule_kernels(Mixed)
    check_module(schedule_kernels, Mixed, after)
    compare_runs(Mixed, after)
    kinds = {n.kind for n in walk(after["double"]) if isinstance(n, For)}
    assert "vectorized" in kinds
    assert all(f.attrs["tir.is_scheduled"] for f in after.loop_functions().values())
    assert rl.parse(after.script())["double"].attrs == after["double"].attrs


def test_schedules_by_hand_stay() -> None:
    after = schedule_kernels(Mixed)
    assert isinstance(after["halve"], PrimFunc)
    assert after["halve"].body is Mixed["halve"].body  # type: ignore[union-attr]
    sch = Schedule(Mixed["double"])  # type: ignore[arg-type]
    marked = sch.func.attrs.with_(**{"tir.is_scheduled": True})
    told = Module.of({"double": rl.ir.node.replace(sch.func, attrs=marked)})
    assert schedule_kernels(told) is told


@pytest.mark.parametrize(("bound", "size"), [({"n": 40, "m": 50}, 91), ({"n": 40}, None)])
def test_rules_get_bounds_of_symbols(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, int], size: int | None
) -> None:
    """`k` of `double` is n + 1 in one call, n + m + 1 in the other."""

    @I.ir_module
    class Bounded:
        @T.prim_func
        def double(A: T.Buffer(("k",), "float32"), B: T.Buffer(("k",), "float32")):
            for i in T.serial(k):  # noqa: F821
                with T.block("B"):
                    vi = T.axis.spatial(k, i)  # noqa: F821
                    B[vi] = A[vi] * T.float32(2)

        @R.function
        def main(x: R.Tensor(("n + 1",), "float32"), y: R.Tensor(("n + m + 1",), "float32")):
            cls = Bounded
            with R.dataflow():
                a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor(("n + 1",), "float32"))
                b = R.call_tir(cls.double, (y,), out_sinfo=R.Tensor(("n + m + 1",), "float32"))
                R.output(a, b)
            return (a, b)

    seen: list[object] = []

    def look(name: str, func: PrimFunc, context: Context, decider: None) -> PrimFunc:
        seen.append(context.bounds)
        return func

    main = Bounded["main"]
    told = rl.ir.node.replace(main, attrs=main.attrs.with_(tir_var_upper_bound=Attrs(bound)))
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.schedule_kernel", look)
    after = schedule_kernels(Bounded.with_functions({"main": told}))
    assert seen == [{} if size is None else {"k": size}]
    assert "tir_var_upper_bound" not in after["double"].attrs


def test_one_remark_per_kernel() -> None:
    trace = rl.trace(Mixed)
    runs = [r for r in trace.passes if r.name == "schedule_kernels"]
    assert len(runs) == 2
    decided = {w.subject: w for w in runs[0].remarks if w.applied or "rule" not in w.reason}
    assert decided["halve"].reason == "already scheduled by hand"
    assert not decided["halve"].applied
    by_rule = {n for n, w in decided.items() if w.reason.startswith("scheduled by the rule ")}
    packing = {"relayout", "relayout1"}  # the constant and the sum of weights are packed at load
    assert by_rule == set(trace.result.loop_functions()) - {"halve"} - packing
    assert {w.subject for w in runs[1].remarks if w.applied} == packing
    x, w = np.ones(3, "float32"), np.ones((40, 24), "float32")
    exe = rl.compile(Mixed)
    b, y = exe["main"](x, *exe["main_transform_params"]((w,)))
    np.testing.assert_array_equal(b, np.full(3, 0.5))
    np.testing.assert_array_equal(y, np.full((3, 24), 160))


def test_kernels_can_be_held_to_one_version() -> None:
    def versions(options: dict[str, bool]) -> int:
        pipeline = cpu_pipeline().with_options("schedule_kernels", **options)
        exe = rl.compile(Mixed, pipeline=pipeline)
        x, w = np.ones(3, "float32"), np.ones((40, 24), "float32")
        b, y = exe["main"](x, *exe["main_transform_params"]((w,)))
        np.testing.assert_array_equal(b, np.full(3, 0.5))
        np.testing.assert_array_equal(y, np.full((3, 24), 160))
        kernels = pipeline.run(Mixed).result.loop_functions().values()
        return sum(isinstance(k.body, IfThenElse) for k in kernels)  # the outermost statement

    assert versions({}) > 0
    assert versions({"versions": False}) == 0


def test_no_versions_for_sizes_beyond_a_bound() -> None:
    """Dead versions would rely on the bound, which the checker of loops does not know."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor(("n", 8), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 100}})
    return R.linear(x, w)
""")
    done = next(p.after for p in rl.trace(mod).passes if p.name == "schedule_kernels")
    assert check_well_formed(done) == []
    limits = [int(limit) for limit in re.findall(r"if n <= (\d+)", str(done))]
    assert 32 in limits and max(limits) < 100


def spans_in(kernel: Node) -> list[Any]:
    return [getattr(n, "span", None) for n in walk(kernel)]


def test_what_was_scheduled_before_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function at other lines of a source gets the known kernel, with its own parameters and
    locations. Other rules, decisions, seeds, or a limit on steps schedule it again."""
    known = KnownSchedules()
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.KNOWN", known)
    text = """
@R.function
def main(x: R.Tensor(("n", 24), "float32")):
    return R.nn.softmax(x)
"""
    first, moved = (
        Pipeline(GRAPH_PASSES).run(rl.parse(source)).result for source in (text, "\n\n" + text)
    )
    one, other = (Pipeline((schedule_kernels,)).run(mod).passes[0] for mod in (first, moved))
    assert str(one.after) == str(other.after)
    assert list(map(str, one.remarks)) == list(map(str, other.remarks)) != []
    (name,) = moved.loop_functions()
    own, new = moved[name], other.after[name]
    assert isinstance(own, PrimFunc) and isinstance(new, PrimFunc)
    assert all(a is b for a, b in zip(own.params, new.params, strict=True))
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.KNOWN", KnownSchedules())
    anew = schedule_kernels(moved)[name]
    assert spans_in(new) == spans_in(anew) != spans_in(one.after[name])
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.KNOWN", known)
    # The kernel of a function without locations is not given to one that has them.
    assert own.span is not None
    keys = [key_of(name, f, Context(Target.host())) for f in (own, replace_node(own, span=None))]
    assert keys[0] != keys[1]
    # Each of these is scheduled anew.
    seen: list[str] = []

    def look(name: str, func: PrimFunc, context: Context, decider: object) -> PrimFunc:
        seen.append(name)
        return func

    monkeypatch.setattr("relaxlab.passes.schedule_kernels.schedule_kernel", look)
    schedule_kernels(moved)
    marked = replace_node(own, attrs=own.attrs.with_(**{IS_SCHEDULED: True}))
    for count in (0, 1):  # a limit on rewrites leaves out kernels that are scheduled already
        with first_rewrites(count) as rewrites:
            limited = schedule_kernels(moved)[name]
        assert len(rewrites.made) == count
        assert str(limited) == str(schedule_kernels(moved)[name] if count else marked)
    assert not seen
    schedule_kernels.with_options(decisions={name: {"unroll": 1}})(moved)
    schedule_kernels.with_options(seed=1)(moved)
    schedule_kernels.with_options(versions=False)(moved)
    with first_steps(0):
        schedule_kernels(moved)
    for rules in (target_kind("cpu").rules, tuple):
        register_target(replace(target_kind("cpu"), name="mine", rules=rules), override=True)
        target = replace(Target.host(), kind="mine")
        schedule_kernels.with_options(target=target)(moved)
        schedule_kernels.with_options(target=target)(moved)
    assert seen == [name] * 6
    known.keep("function", own, lambda: 1)  # which cannot be copied
    assert known.find("function", own) is None
    # The entry that was used least recently is dropped first.
    monkeypatch.setattr("relaxlab.schedule.known_schedules.MOST_BYTES", 100)
    known.keep("a", own, "a" * 40)
    known.keep("b", own, "b" * 40)
    assert known.find("a", own) is None and known.find("b", own) == "b" * 40
