"""Versions of a function with schedules of their own: recorded, replayed, printed, and refused."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.expr import Var, const
from relaxlab.ir.loops import Buffer, For, IfThenElse, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.bounds import UPPER_BOUNDS, with_upper_bound
from relaxlab.schedule.nested import Versions, versions_for
from relaxlab.schedule.trace import Steps
from relaxlab.tracing.limit import first_steps
from tests.schedule.programs import PROGRAMS, matmul

SCALED = """
@T.prim_func
def scaled(A: T.Buffer(("n", 3, 8), "float32"), C: T.Buffer(("n", 3, 8), "float32")):
    B = T.alloc_buffer((n, 3, 8), "float32")
    for i, j, k in T.grid(n, 3, 8):
        with T.sblock("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
    for i, j, k in T.grid(n, 3, 8):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            C[vi, vj, vk] = B[vi, vj, vk] + T.float32(1)
"""


def scaled() -> tuple[PrimFunc, Var]:
    func = rl.parse(SCALED).loop_functions()["scaled"]
    n = func.buffers[0].shape[0]
    assert isinstance(n, Var)
    return func, n


def on_the_stack(sch: Schedule, bound: int | None) -> Schedule:
    """One row inlined, some on the stack, in a version of joined axes, others in parallel."""
    n = sch.func.buffers[0].shape[0]
    if bound == 1:
        sch.compute_inline(sch.get_block("B"))
    elif bound is not None:
        assert isinstance(n, Var)
        sch.declare_upper_bound(n, bound)
        sch.set_scope(sch.get_block("B"), 0, "local")
        sch.bound_storage(n, bound)
    else:
        sch.join_axes(in_parallel)
    return sch


def in_parallel(sch: Schedule) -> Schedule:
    for name in "BC":
        (loop,) = sch.get_loops(sch.get_block(name))
        outer, lane = sch.split(loop, factors=[None, 16])
        sch.parallel(outer)
        sch.vectorize(lane)
    return sch


def in_versions() -> Schedule:
    func, n = scaled()
    sch = Schedule(func)
    sch.guarded_versions(n, [1, 4], on_the_stack)
    return sch


def test_versions_are_one_step_that_replays() -> None:
    sch = in_versions()
    (step,) = sch.trace
    nested = dict(step.args)["schedule"]
    assert [steps.bound for steps in nested] == [None, 1, 4]
    assert isinstance(dict(nested[0].trace[0].args)["schedule"], Steps)
    for trace in (sch.trace, sch.trace_json()):
        assert_structural_equal(apply_trace(sch.original, trace).func, sch.func)
    other, _ = scaled()
    assert_structural_equal(apply_trace(other, sch.trace_json()).func, sch.func)


def test_printed_versions_run(capsys: pytest.CaptureFixture[str]) -> None:
    sch = in_versions()
    again = Schedule(sch.original)
    exec("\n".join(map(str, sch.trace)), {"sch": again, "n": sch.original.buffers[0].shape[0]})
    assert_structural_equal(again.func, sch.func)
    sch.show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  0  def schedule(sch, bound):"
    assert lines[1] == "         if bound == 1:"
    assert lines[2] == "             b0 = sch.get_block(name='B')"
    assert lines[-1] == "     sch.guarded_versions(size=n, bounds=[1, 4], schedule=schedule)"


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 40])
def test_each_version_computes_the_same(n: int, rng: np.random.Generator) -> None:
    func = in_versions().func
    x = rng.random((n, 3, 8), dtype="float32")
    results = [np.zeros_like(x), np.zeros_like(x)]
    interpret_prim_func(func, [x, results[0]])
    rl.compile(func, use_cache=False)(x, results[1])
    for result in results:
        np.testing.assert_array_equal(result, 2 * x + 1)


def test_one_version_needs_no_guard() -> None:
    def split(sch: Schedule, bound: int | None) -> Schedule:
        sch.split(sch.get_loops(sch.get_block("C"))[0], [None, bound])
        return sch.copy()

    sch = Schedule(PROGRAMS["matmul_even"]())
    i = sch.get_loops(sch.get_block("C"))[0]
    found = sch.get(i)
    assert isinstance(found, For)
    sch.guarded_versions(found.extent, [1, 4, 64], split)
    assert [s.name for s in sch.trace[2:]] == ["get_block", "get_loops", "split"]
    func, n = scaled()
    sch = Schedule(with_upper_bound(func, n, 3))
    sch.guarded_versions(n, [4], on_the_stack)
    assert sch.trace[0].name == "declare_upper_bound"
    assert not any(isinstance(s, IfThenElse) for s in walk(sch.func.body))


def test_bounds_need_a_reason() -> None:
    func, n = scaled()
    sch = Schedule(func)
    sch.set_scope(sch.get_block("B"), 0, "local")
    for step in (sch.declare_upper_bound, sch.bound_storage):
        with pytest.raises(ScheduleError, match="known to be at most 4"):
            step(n, 4)

    def too_small(sub: Schedule, bound: int | None) -> Schedule:
        if bound is not None:
            sub.bound_storage(n, bound - 1)
        return sub

    before = sch.func
    with pytest.raises(ScheduleError, match="known to be at most 3"):
        sch.guarded_versions(n, [4], too_small)
    assert sch.func is before and sch.trace[-1].name == "set_scope"


def test_the_tightest_bound_is_kept() -> None:
    func, n = scaled()
    sch = Schedule(with_upper_bound(func, n, 3))
    sch.declare_upper_bound(n, 4)
    assert dict(sch.func.attrs[UPPER_BOUNDS]) == {"n": 3}
    assert_structural_equal(apply_trace(sch.original, sch.trace_json()).func, sch.func)


def test_no_buffer_of_that_size_is_refused() -> None:
    func, n = scaled()
    sch = Schedule(with_upper_bound(func, n, 4))
    with pytest.raises(ScheduleError, match="a local buffer has that size"):
        sch.bound_storage(n, 4)


def test_versions_agree_on_layouts() -> None:
    def packed(sch: Schedule, bound: int | None) -> Schedule:
        if bound is not None:
            sch.transform_layout(sch.get_block("C"), "B", lambda x, y: (y, x))
        return sch

    func = matmul(Var("n"), Var("k"), Var("m"))
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="change the layout of a parameter alike"):
        sch.guarded_versions(func.buffers[0].shape[0], [8], packed)
    assert sch.refused is not None and sch.trace == []


@pytest.mark.parametrize("bounds", [[0], [4, 1], [2, 2]])
def test_bounds_ascend(bounds: list[int]) -> None:
    func, n = scaled()
    with pytest.raises(ScheduleError, match="bounds are positive and ascend"):
        Schedule(func).guarded_versions(n, bounds, on_the_stack)


def test_sizes_are_known_to_callers() -> None:
    func, _ = scaled()
    with pytest.raises(ScheduleError, match="its symbols are arguments or their dimensions"):
        Schedule(func).guarded_versions(Var("m"), [4], on_the_stack)


def test_axes_of_other_strides_are_not_joined() -> None:
    sch = Schedule(PROGRAMS["matmul"]())
    with pytest.raises(ScheduleError, match="join_axes refused"):
        sch.join_axes(lambda joined: joined)


def test_schedules_of_other_functions_are_not_taken() -> None:
    func, n = scaled()
    with pytest.raises(ValueError, match="of another function"):
        Schedule(func).guarded_versions(n, [4], lambda _, bound: Schedule(scaled()[0]))


def test_traces_without_a_version_for_any_size_do_not_replay() -> None:
    sch = in_versions()
    (step,) = sch.trace
    args = {**dict(step.args), "schedule": dict(step.args)["schedule"][1:]}
    with pytest.raises(ValueError, match="no version for any size"):
        apply_trace(sch.original, [type(step)(step.name, tuple(args.items()))])


@pytest.mark.parametrize("bound", [None, 2, 5])
def test_exact_sizes_are_constants(bound: int | None, rng: np.random.Generator) -> None:
    """Versions for one size each have that size in the place of the symbol, whatever else is known;
    sizes below them go to the next version that has them."""
    func, n = scaled()
    func = func if bound is None else with_upper_bound(func, n, bound)
    sch, seen = Schedule(func), dict[int | None, str]()

    def version(one: Schedule, size: int | None) -> Schedule:
        seen[size] = str(one.func.buffers[0].shape[0])
        return one

    sch.guarded_versions(n, [2, 3, 4, 8], version, exact=4)
    most = {2: "2", 3: "3", 4: "4", 8: "n"}
    last = None if bound is None else 8
    assert seen == {last: "n", **{k: v for k, v in most.items() if k < (last or 9)}}
    tests = [str(v.condition) for v in walk(sch.func.body) if isinstance(v, IfThenElse)]
    guards = ["n == 2", "n == 3", "n == 4", "n <= 8"]
    assert tests == (guards if bound is None else guards[:-1])
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    exe = rl.compile(sch.func, use_cache=False)
    for size in range(bound or 11):
        x = rng.random((size, 3, 8), dtype="float32")
        result = np.zeros_like(x)
        exe(x, result)
        np.testing.assert_array_equal(result, 2 * x + 1)
    assert versions_for(func, const(3), [2, 4, 8], exact=4) == Versions(8, ())
    assert versions_for(func, const(4), [2, 4, 8], exact=4) == Versions(4, ())


def test_a_version_may_be_left_to_the_next() -> None:
    func, n = scaled()
    sch = Schedule(func)
    sch.guarded_versions(n, [1, 4], lambda s, n: None if n == 4 else on_the_stack(s, n))
    assert [steps.bound for steps in dict(sch.trace[0].args)["schedule"]] == [None, 1]
    assert sum(isinstance(s, IfThenElse) for s in walk(sch.func.body)) == 1
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    bounded = Schedule(with_upper_bound(func, n, 3))
    bounded.guarded_versions(n, [4], lambda s, n: None if n else on_the_stack(s, n))
    assert bounded.trace[0].name == "join_axes"
    with pytest.raises(TypeError, match="returns a schedule for any size"):
        Schedule(func).guarded_versions(n, [4], lambda s, n: None)


def test_copies_go_on_by_themselves() -> None:
    func, _ = scaled()
    sch = Schedule(func)
    b = sch.get_block("B")
    copy = sch.copy()
    copy.compute_inline(b)
    assert sch.func.attrs == func.attrs and len(sch.trace) == 1
    assert [loop.name for loop in sch.get_loops(b)] == ["l0", "l1", "l2"]
    assert_structural_equal(apply_trace(func, copy.trace).func, copy.func)


def test_limited_steps_give_functions_with_the_same_parameters(rng: np.random.Generator) -> None:
    with first_steps(None) as all_steps:
        func, n = scaled()
        Schedule(func).guarded_versions(n, [1, 4], on_the_stack)
    x = rng.random((6, 3, 8), dtype="float32")
    for most in range(len(all_steps.made) + 1):
        sch = Schedule(func)
        with first_steps(most):
            sch.guarded_versions(n, [1, 4], on_the_stack)
        assert sch.func.params == func.params
        y = np.zeros_like(x)
        interpret_prim_func(sch.func, [x, y])
        np.testing.assert_array_equal(y, 2 * x + 1)
        assert all(isinstance(p, Buffer) for p in sch.func.params)


SIZES_GIVEN = """
@T.prim_func
def main(a: T.handle, b: T.handle, {given}):
    {free}A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i, k in T.grid(n, m):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk] * T.Cast("float32", vk + n)
"""


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("given", [("m",), ("n",), ("n", "m")])
def test_sizes_that_are_parameters_are_versions_too(
    dtype: str, given: tuple[str, ...], rng: np.random.Generator
) -> None:
    """The parameter became the number of a version, and the function could not be built."""
    free = [f"{name} = T.{dtype}()\n    " for name in ("n", "m") if name not in given]
    params = ", ".join(f"{name}: T.{dtype}" for name in given)
    func = rl.parse(SIZES_GIVEN.format(given=params, free="".join(free)))
    exe = rl.compile(func, checks="all")
    for n, m in ((1, 1), (5, 2), (4, 3), (33, 40)):
        a = rng.random((n, m), "float32")
        sizes = [{"n": n, "m": m}[name] for name in given]
        found = exe["main"](a, np.zeros(n, "float32"), *sizes)
        np.testing.assert_allclose(found, a @ (np.arange(m) + n), rtol=1e-5)
