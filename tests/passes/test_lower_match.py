"""`lower_match`: conditionals instead of matches."""

import numpy as np

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.node import walk
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.lower_match import lower_match
from relaxlab.passes.normalize import normalize

HEAD = """
@I.ir_module
class Module:
    @R.data
    class Shape:
        Point: ()
        Square: (R.Tensor((), "int64"),)
        Box: (R.Tensor((), "int64"), R.Tensor((), "int64"))

    @R.function
    def main(s: Shape) -> R.Tensor((), "int64"):
"""
BEFORE = HEAD + """
        match s:
            case cls.Box(w, h):
                area = R.multiply(w, h)
            case cls.Square(side):
                area = R.multiply(side, side)
            case cls.Point():
                area = R.const(0, "int64")
        return area
"""
AFTER = HEAD + """
        tag = R.adt.tag(s)
        is_box = R.equal(tag, R.const(2, "int64"))
        if is_box:
            w = R.adt.field(s, constructor="Box", index=0)
            h = R.adt.field(s, constructor="Box", index=1)
            area = R.multiply(w, h)
        else:
            is_square = R.equal(tag, R.const(1, "int64"))
            if is_square:
                side = R.adt.field(s, constructor="Square", index=0)
                area_1 = R.multiply(side, side)
            else:
                area_1 = R.const(0, "int64")
            area = area_1
        return area
"""


def test_matches_become_conditionals():
    before = normalize(rl.parse(BEFORE))
    after = canonicalize(normalize(lower_match(before)))
    # As texts: where blocks of bindings end has no meaning.
    assert after.script() == canonicalize(normalize(rl.parse(AFTER))).script()
    assert lower_match(after) is after
    assert not check_well_formed(after)
    assert not any(isinstance(n, graph.Match) for n in walk(after))
    made = rl.constructors(before)
    for value, area in ((made["Box"](3, 4), 12), (made["Square"](5), 25), (made["Point"](), 0)):
        for mod in (before, after):
            np.testing.assert_array_equal(rl.interpret(mod, "main", value), area)
