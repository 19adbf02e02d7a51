"""Remarks and traces: what is recorded, by whom it is seen, and what its text says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.tracing import PassRecord, Remark, Trace, may_apply, recording, remark
from tests.golden import Golden

EMPTY = Module.of({})


def test_nobody_records() -> None:
    remark("rule", "main.x", "no reason")  # and nothing happens


def test_remarks_in_order() -> None:
    with recording() as found:
        remark("fuse", "main.x", "they are alike")
        remark("fuse", "main.y", "it has effects", applied=False, size=[4, 2])
    remark("fuse", "main.z", "too late")
    assert found == [
        Remark("fuse", "main.x", "they are alike"),
        Remark("fuse", "main.y", "it has effects", False, Attrs(size=(4, 2))),
    ]


def test_a_remark_names_the_line_that_made_it() -> None:
    with recording() as found:
        remark("fuse", "main.x", "they are alike")
        assert may_apply("fuse", "main.y", "they are alike")
    line = test_a_remark_names_the_line_that_made_it.__code__.co_firstlineno
    assert [one.source for one in found] == [f"test_remarks.py:{line + n}" for n in (2, 3)]


def test_an_inner_recording_takes_its_own() -> None:
    with recording() as outer:
        remark("a", "", "")
        with recording() as inner:
            remark("b", "", "")
        remark("c", "", "")
    assert [r.rule for r in outer] == ["a", "c"] and [r.rule for r in inner] == ["b"]


def test_a_recording_ends_with_an_error() -> None:
    with recording() as outer:
        with pytest.raises(RuntimeError), recording():
            raise RuntimeError
        remark("a", "", "")
    assert len(outer) == 1


def test_threads_record_for_themselves() -> None:
    def work(name: str) -> list[Remark]:
        with recording() as found:
            for _ in range(100):
                remark(name, "", "")
        return found

    with recording() as mine, ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(work, "abcd"))
    assert mine == []
    assert [{r.rule for r in each} for each in lists] == [{"a"}, {"b"}, {"c"}, {"d"}]
    assert all(len(each) == 100 for each in lists)


def records() -> Trace:
    changed = Module.of({}, Attrs(changed=True))
    refused = Remark("fuse", "main.y", "it has effects", applied=False)
    return Trace(
        EMPTY,
        (
            PassRecord("normalize", Attrs(), EMPTY, EMPTY, 0.0012),
            PassRecord("fuse", Attrs(), EMPTY, changed, 0.25, (Remark("fuse", "x", "so"), refused)),
            PassRecord("plan", Attrs(), changed, changed, 0.002, (), "it failed"),
        ),
    )


def test_texts(golden: Golden) -> None:
    trace = records()
    texts = {f"repr of {r.name}": repr(r) for r in trace.passes}
    golden.file("tracing/trace", {"str": str(trace), "repr": repr(trace), **texts})


def test_results_and_names() -> None:
    trace = records()
    assert trace.result is trace.passes[-1].after and Trace(EMPTY).result is EMPTY
    assert trace.find("fuse") is trace.passes[1]
    assert [r.changed for r in trace.passes] == [False, True, False]
    with pytest.raises(KeyError, match="'cse' is not in the trace; it has: normalize, fuse, plan"):
        trace.find("cse")
    with pytest.raises(KeyError, match="it has: none"):
        Trace(EMPTY).find("cse")
