"""The context of a schedule: target, weights, bounds and versions, and the attributes it leaves."""

from __future__ import annotations

from dataclasses import replace

import relaxlab as rl
from relaxlab.ir.target import Target
from relaxlab.schedule import Schedule
from relaxlab.schedule.bounds import UPPER_BOUNDS
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.schedule.rules.base import with_versions
from relaxlab.schedule.rules.context import Context

ROWS = """
@T.prim_func
def rows(A: T.Buffer(("n", 8), "float32"), B: T.Buffer(("n", 8), "float32")):
    {attributes}
    for i, j in T.grid(n, 8):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""


def test_primitives_find_facts_in_the_function() -> None:
    func = rl.parse(ROWS.format(attributes="")).loop_functions()["rows"]
    host = Target.host()
    assert Context(host, frozenset({0})).with_facts(func) is func
    exact = Context(replace(host, reassociate=False), bounds={"n": 9}).with_facts(func)
    assert exact.attrs[KEEP_ORDER] and dict(exact.attrs[UPPER_BOUNDS]) == {"n": 9}


def test_bounds_of_the_function_win() -> None:
    text = ROWS.format(attributes='T.func_attr({"tir_var_upper_bound": {"n": 5}})')
    func = rl.parse(text).loop_functions()["rows"]
    made = Context(Target.host(), bounds={"n": 9, "m": 3}).with_facts(func)
    assert dict(made.attrs[UPPER_BOUNDS]) == {"n": 5, "m": 3}


def test_weights_are_parameters() -> None:
    func = rl.parse(ROWS.format(attributes="")).loop_functions()["rows"]
    context = Context(Target.host(), frozenset({0}))
    assert [context.is_weight(func, b) for b in func.buffers] == [True, False]


def test_one_version_for_what_a_bound_leaves() -> None:
    func = rl.parse(ROWS.format(attributes="")).loop_functions()["rows"]
    size, seen = func.buffers[0].shape[0], list[int | None]()

    def version(sch: Schedule, most: int | None) -> Schedule:
        seen.append(most)
        return sch

    host = Target.host()
    for context in (
        Context(host),
        Context(host, versions=False),
        Context(host, bounds={"n": 7}, versions=False),
    ):
        sch = Schedule(context.with_facts(func))
        with_versions(sch, context, size, [1, 4, 16], version)
    assert seen == [None, 1, 4, 16, None, 16]
