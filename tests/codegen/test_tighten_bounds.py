"""Loops end where the conditions of all their statements fail."""

from __future__ import annotations

import pytest

from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.tighten_bounds import tighten_bounds
from relaxlab.ir.expr import LT
from relaxlab.ir.loops import For, PrimFunc
from relaxlab.ir.node import walk
from tests.codegen.kernels import parse_kernels


def kernel(body: str) -> PrimFunc:
    return parse_kernels(f"""
def kernel(A: T.Buffer(("n",), "float32"), C: T.Buffer(("n",), "float32")):
    for b in range((n + 255) // 256):
        for v in range(256):
            {body}
""")["kernel"]


def extent(body: str) -> str:
    """The extent of the loop over v."""
    lowered = tighten_bounds(lower_blocks(kernel(body).body)[0])
    (found,) = (n for n in walk(lowered) if isinstance(n, For) and n.loop_var.name == "v")
    return str(found.extent)


LAST = "min(256, n - b * 256)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if b * 256 + v < n: C[b * 256 + v] = A[b * 256 + v]", LAST),
        ("if b * 256 + v < n: C[0] = A[0]\n            if v + b * 256 < n: C[1] = A[1]", LAST),
        ("if b * 256 + v < n and v < b: C[v] = A[v]", LAST),
        ("C[0] = C[0] + T.if_then_else(b * 256 + v < n, A[b * 256 + v], T.float32(0))", LAST),
        ("C[0] = T.max(C[0], T.if_then_else(b * 256 + v < n, A[v], T.float32('-inf')))", LAST),
        ("for l in range(4):\n                if b * 1024 + v * 4 + l < n: C[v * 4 + l] = A[0]",
         "min(256, (n + 3) // 4 - b * 256)"),
        ("for l in range(4):\n                if v <= b + l: C[v] = A[0]", "min(256, b + 4)"),
        ("for l in range(4):\n                if v < b - l: C[v] = A[0]", "256"),
        ("C[0] = C[0] + T.if_then_else(b * 256 + v < n, A[v], T.float32(1))", "256"),
        ("if b * 256 + v < n: C[0] = A[0]\n            C[1] = A[1]", "256"),
        ("if v // 2 < n: C[0] = A[0]", "256"),
        ("if n - v < b: C[0] = A[0]", "256"),
        ("if b < n: C[0] = A[0]", "256"),
        ("if v < T.Cast('int64', A[0]): C[0] = A[0]", "256"),
    ],
)  # fmt: skip
def test_extents(body: str, expected: str) -> None:
    assert extent(body) == expected


def test_short_loops_end_early_where_asked() -> None:
    body = kernel("for w in range(8):\n                if v * 8 + w < n: C[v * 8 + w] = A[0]").body
    lowered = lower_blocks(body)[0]
    for short, expected in ((64, "8"), (1, "min(8, n - v * 8)")):
        loops = [n for n in walk(tighten_bounds(lowered, short)) if isinstance(n, For)]
        assert [str(n.extent) for n in loops if n.loop_var.name == "w"] == [expected]


def test_conditions_that_the_new_end_implies_are_dropped() -> None:
    body = kernel(
        "if b * 256 + v < n and A[v] < C[v]: C[b * 256 + v] = A[b * 256 + v]\n"
        "            C[0] = C[0] + T.if_then_else(b * 256 + v < n, A[v], T.float32(0))"
    ).body
    lowered = lower_blocks(body)[0]
    for stmt, expected in ((lowered, 2), (tighten_bounds(lowered), 0)):
        tests = [n for n in walk(stmt) if isinstance(n, LT) and str(n) == "b * 256 + v < n"]
        assert len(tests) == expected


def test_tests_of_whole_tiles_end_with_their_last_part() -> None:
    body = """if b * 1024 + v * 4 + 3 < n:
                C[v] = A[b * 1024 + v * 4 + 3]
            else:
                for l in range(4):
                    if b * 1024 + v * 4 + l < n: C[v] = A[0]"""
    assert extent(body) == "min(256, (n + 3) // 4 - b * 256)"


@pytest.mark.parametrize(
    ("decides", "expected"),
    [("", "min(256, s[b])"), (" and b < n", "256")],
    ids=["there", "or not"],
)
def test_elements_of_index_functions_end_loops_if_they_are_there(
    decides: str, expected: str
) -> None:
    func = parse_kernels(f"""
def kernel(s_: T.handle, C: T.Buffer(("n", "m"), "float32")):
    s = T.index_function(s_, (n,), "int64", facts=[T.range(0, m + 1)])
    for b in range((n + 1) // 2 * 2):
        for v in range(256):
            if v < s[b]{decides}: C[b, v] = T.float32(1)
""")["kernel"]
    lowered = tighten_bounds(lower_blocks(func.body)[0])
    (found,) = (n for n in walk(lowered) if isinstance(n, For) and n.loop_var.name == "v")
    assert str(found.extent) == expected
