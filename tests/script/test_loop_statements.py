"""Statements of loop functions that are refused at their place, not where code is made."""

from __future__ import annotations

import re

import pytest

import relaxlab as rl

PROGRAM = """
@I.ir_module
class M:
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("B"):
                vi = T.axis.spatial(16, i)
                {}
                B[vi] = {}
"""


@pytest.mark.parametrize(
    ("statement", "value", "message"),
    [
        ("if i:\n                    B[vi] = A[vi]", "A[vi]",
         "the block uses the loop variable i of a loop around it\n  --> <script>:9:20"),
        ('assert i, "none"', "A[vi]",
         "the block uses the loop variable i of a loop around it\n  --> <script>:9:24"),
        ("T.writes([])", "A[vi]", "B is written, but T.writes does not name it"),
        ("T.evaluate(0)", 'T.call_extern("float32", 1.5, A[vi])',
         "the name of what is called must be a string, not float 1.5"),
        ("T.evaluate(0)", 'T.reinterpret("int64", A[vi])',
         "float32 and int64 have different numbers"),
    ],
)  # fmt: skip
def test_the_place_is_that_of_the_statement(statement: str, value: str, message: str) -> None:
    with pytest.raises(rl.DiagnosticError, match=re.escape(message)):
        rl.parse(PROGRAM.format(statement, value), check=True)
