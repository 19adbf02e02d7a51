"""Limits on rewrites and steps: what is left out, what is counted, and who is concerned."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.equal import assert_structural_equal, structural_equal
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.tracing import first_rewrites, may_apply, recording
from relaxlab.tracing.limit import Stopped, after_step, before_step, first_steps
from tests.passes.graph_programs import Programs


def answers(count: int) -> list[bool]:
    return [may_apply("rule", f"x{i}", "it fits") for i in range(count)]


def test_without_a_limit_everything_is_done() -> None:
    assert answers(5) == [True] * 5


@pytest.mark.parametrize("count", range(4))
def test_the_first_rewrites_are_made(count: int) -> None:
    with recording() as remarks, first_rewrites(count) as rewrites:
        assert answers(3) == [i < count for i in range(3)]
    assert [r.subject for r in rewrites.made] == ["x0", "x1", "x2"][:count]
    assert [r.applied for r in remarks] == [i < count for i in range(3)]
    assert {r.reason for r in remarks[count:]} <= {f"only the first {count} rewrites are made"}
    assert answers(1) == [True], "the limit ends with its block"


def test_no_limit_counts() -> None:
    with first_rewrites(None) as rewrites:
        assert answers(3) == [True] * 3
    assert len(rewrites.made) == 3


def test_limits_are_nested() -> None:
    with first_rewrites(1) as outer:
        with first_rewrites(2) as inner:
            assert answers(3) == [True, True, False]
        assert answers(2) == [True, False]
    assert (len(outer.made), len(inner.made)) == (1, 2)


def test_the_limit_ends_with_an_error() -> None:
    with pytest.raises(RuntimeError), first_rewrites(0):
        raise RuntimeError
    assert answers(1) == [True]


def _halved(state: int) -> int:
    before_step(state)
    after_step("halved")
    return state // 2


def test_steps_stop_with_what_there_is() -> None:
    assert _halved(8) == 4, "without a limit"
    for most in range(4):
        state = 8
        with first_steps(most) as steps:
            if most < 3:
                with pytest.raises(Stopped) as stopped:
                    for _ in range(3):
                        state = _halved(state)
                assert stopped.value.state == state == 8 >> most
            else:
                assert _halved(_halved(_halved(state))) == 1
        assert steps.made == ["halved"] * most


def test_a_step_that_fails_does_not_count() -> None:
    with first_steps(1) as steps:
        for _ in range(3):
            before_step(None)  # and no `after_step`
        after_step("one")
        with pytest.raises(Stopped):
            before_step(None)
    assert steps.made == ["one"]


def test_programs_between_two_rewrites_differ_by_one(rng: np.random.Generator) -> None:
    """The module after n rewrites is a function of n, equal to that before with none and to that
    after with all."""
    mod, passes = Programs(int(rng.integers(1 << 32))).module(), cpu_pipeline()
    whole, limited = passes.run(mod), None
    with first_rewrites(None) as all_:
        assert_structural_equal(passes.run(mod).result, whole.result)
    assert len(all_.made) > 2
    for count in (0, len(all_.made) // 2, len(all_.made)):
        with first_rewrites(count) as some:
            limited = passes.run(mod).result
        assert len(some.made) == count
        assert [r.rule for r in some.made] == [r.rule for r in all_.made[:count]]
        with first_rewrites(count):
            assert structural_equal(passes.run(mod).result, limited)
    assert limited is not None
    assert_structural_equal(limited, whole.result)
