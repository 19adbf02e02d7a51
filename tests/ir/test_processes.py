"""Work shared with forked processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

import pytest

from relaxlab.ir import expr, loops, processes
from relaxlab.ir.node import Attrs
from relaxlab.ir.processes import map_forked

ON_LINUX = sys.platform.startswith("linux")
pytestmark = pytest.mark.skipif(not ON_LINUX, reason="processes are forked on Linux alone")


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 1 if processes._is_forked else 3)


def test_results_are_in_the_order_of_items() -> None:
    items = list(range(10_000))  # more than entries of the queue
    assert map_forked(lambda i: i * i, items, [1.0] * len(items)) == [i * i for i in items]


def test_items_are_computed_at_the_same_time() -> None:
    together = multiprocessing.get_context("fork").Barrier(3, timeout=60)

    def meet(_: int) -> int:
        together.wait()
        return os.getpid()

    assert len(set(map_forked(meet, [0, 1, 2], [1.0] * 3))) == 3


def test_work_whose_memory_is_given_back_is_done_elsewhere() -> None:
    pids = map_forked(lambda _: os.getpid(), [0, 1, 2], [1.0] * 3, keeps_memory=False)
    assert os.getpid() not in pids


def test_little_work_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", None)
    assert map_forked(str, [1, 2, 3], [1e-4, 9.0, 1e-4]) == ["1", "2", "3"]
    assert map_forked(str, [], []) == []


def test_processes_start_no_processes() -> None:
    together = multiprocessing.get_context("fork").Barrier(3, timeout=60)

    def count(_: int) -> int:
        together.wait()
        return processes.cores()

    assert sorted(map_forked(count, [0, 1, 2], [1.0] * 3)) == [1, 1, 3]


def test_known_nodes_stay_what_they_are() -> None:
    n, k = expr.Var("n"), expr.Var("k")
    x = loops.Buffer("x", (n, k), "float32")
    together = multiprocessing.get_context("fork").Barrier(3, timeout=60)

    def use(_: int) -> tuple[expr.PrimExpr, expr.Var, loops.BufferLoad, Attrs]:
        together.wait()
        fresh = expr.Var("fresh")
        attrs = Attrs(n=n, fresh=fresh)
        hash(attrs)
        return n + fresh, fresh, loops.BufferLoad(x, (n, k)), attrs

    for total, fresh, load, attrs in map_forked(use, [0, 1, 2], [1.0] * 3, [x]):
        assert isinstance(total, expr.Add) and total.a is n and total.b is fresh
        assert load.buffer is x and load.indices[1] is k
        assert attrs == Attrs(n=n, fresh=fresh) and hash(attrs) == hash(Attrs(n=n, fresh=fresh))


def test_the_error_of_the_first_item_that_fails() -> None:
    def fail(i: int) -> int:
        if i > 2:
            raise ValueError(str(i))
        return i

    with pytest.raises(ValueError, match="^3$"):
        map_forked(fail, list(range(20)), list(map(float, range(20))))


def test_what_a_lost_process_had_is_computed_here() -> None:
    here = os.getpid()

    def die(i: int) -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    assert map_forked(die, [1, 2, 3, 4], [1.0] * 4) == [1, 2, 3, 4]


def test_results_that_cannot_be_sent_are_computed_here() -> None:
    def local(i: int) -> Callable[[], int]:
        return lambda: i

    assert [f() for f in map_forked(local, [1, 2, 3, 4], [1.0] * 4)] == [1, 2, 3, 4]
