"""What the errors about effects advise."""

from __future__ import annotations

import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.script import parse

DATAFLOW = """with R.dataflow():
            y = R.print(x)
            R.output(y)"""


@pytest.mark.parametrize(
    "code, decorator, body",
    [
        ("E0304", "@R.function(pure=False)", DATAFLOW),
        ("E0305", "@R.function", "y = R.print(x)"),
    ],
)
def test_operators_with_effects_cannot_be_stated_to_be_pure(
    code: str, decorator: str, body: str
) -> None:
    """`R.call_pure_packed` is for functions from outside."""
    mod = parse(
        f"""
@I.ir_module
class Module:
    {decorator}
    def main(x: R.Tensor((4,), "float32")):
        {body}
        return x
""",
        check=False,
    )
    found = next(d for d in check_well_formed(mod) if d.code == code)
    assert "call_pure_packed" not in found.render()
