"""Remove changes of layout that undo one another."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import graph
from relaxlab.ir.loops import Range
from relaxlab.ir.module import Module
from relaxlab.ops.define import attr
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import known_shape, leaf_type
from relaxlab.passes.patterns import Match, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches
from relaxlab.schedule.ranges import ZERO

RULE = "remove_redundant_layouts"
X = wildcard()
TWICE = is_op("layout_transform")(is_op("layout_transform")(X).named("first"))


@module_pass(RULE, needs=("normalize",))
def remove_redundant_layouts(mod: Module, _: NoOptions) -> Module:
    """A value whose layout is changed and changed back is used as it is."""
    return rewrite_matches(mod, TWICE, _unchanged, RULE)


def _unchanged(call: graph.Call, match: Match) -> graph.Expr | str:
    first = match.definition("first")
    assert isinstance(first, graph.Call)
    shape = known_shape(leaf_type(match[X]))
    if shape is None:
        return "the shape is not known"
    there: IndexMap = attr(first, "index_map")
    back: IndexMap = attr(call, "index_map")
    _, _, unused = there.inverse_with_padding(shape)
    if unused is not None:
        return "the first layout has more elements"
    an = Analyzer.for_shapes(*shape)
    with an.scope():
        for v, d in zip(there.initial_indices, shape, strict=True):
            an.bind_range(v, Range(ZERO, d))
        indices = back.apply(there.apply(there.initial_indices, an), an)
        same = len(indices) == len(shape) and all(
            an.prove_equal(new, old) is True
            for new, old in zip(indices, there.initial_indices, strict=True)
        )
    return match[X] if same else "it is another layout"
