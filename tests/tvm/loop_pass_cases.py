"""Loop functions that passes of `tir.transform` are run on with TVM and with relaxlab."""

from __future__ import annotations

from pathlib import Path


def _case(text: str) -> tuple[str, tuple[str, str]]:
    """The name, the expression of the pass, behind which a configuration may be, and a program."""
    title, program = text.split("\n", 1)
    name, expression = title.split(": ", 1)
    return name, (expression, program)


_FOLDER = Path(__file__).with_name("loop_passes")
_PARTS = [p for f in sorted(_FOLDER.glob("*.txt")) for p in f.read_text("utf-8").split("=== ")[1:]]
CASES: dict[str, tuple[str, str]] = dict(map(_case, _PARTS))
"""By name, the expression of a pass and the text of a program."""

REFUSED = {
    "LCTR_15": "a loop of the result is inside of one of the reduction",
    "LCTR_17": "a difference is no reduction",
    "LCTR_18": "blocks of threads do not combine values",
}
"""The cases that both refuse, and why."""

OTHERWISE = {
    "LCTR_12": "TVM stores the results of rows that are not there",
    "FCL_1": "TVM reads the smallest floats of 8 bits as others",
    "CL_2": "TVM's bounds of the inner loop are those of the outer one's old variable",
}
"""The cases in which relaxlab's function computes something else, and why it is right."""
